// One field of a form: its name, its control, and a hint that is read after both.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  name: string;
  hint?: ComponentChildren;
  /** The hint is what is wrong with it. */
  wrong?: boolean;
  look?: string;
  children: (control: { id: string; "aria-describedby": string | undefined }) => ComponentChildren;
}

export function FormField({ name, hint, wrong = false, look = "", children }: FieldProps) {
  const id = useId();
  return (
    <div class={`field ${look}`}>
      <label for={id}>{name}</label>
      {children({ id, "aria-describedby": hint ? `${id}-hint` : undefined })}
      {hint && (
        <small id={`${id}-hint`} class={wrong ? "field-error" : undefined}>
          {hint}
        </small>
      )}
    </div>
  );
}
