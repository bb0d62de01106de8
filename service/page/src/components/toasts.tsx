// Short messages in a corner, told to screen readers too. Good news goes by itself; the other kind stays.

import { State, useValue } from "../state";
import { Icon } from "./icons";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const SHOWN_MS = 5000;
const toasts = new State<Toast[]>([]);
let count = 0;

function close(id: number): void {
  toasts.set(toasts.value.filter((toast) => toast.id !== id));
}

export function tell(text: string, bad = false): void {
  count += 1;
  const toast = { id: count, text, bad };
  toasts.set([...toasts.value.slice(-2), toast]);
  if (!bad) setTimeout(() => close(toast.id), SHOWN_MS);
}

export function ToastHost() {
  const shown = useValue(toasts);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} class={toast.bad ? "toast bad" : "toast"}>
          <Icon name={toast.bad ? "alert" : "check"} />
          <span>{toast.text}</span>
          <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => close(toast.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
