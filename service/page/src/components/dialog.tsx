// Modal dialogs: the browser's own element, which holds the focus and closes on Escape.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

import { Problem } from "../api/client";
import { State, useValue } from "../state";
import { Icon } from "./icons";
import { ProblemNote } from "./notes";

interface DialogProps {
  title: string;
  onClose: () => void;
  /** A dialog that asks for what nothing goes on without cannot be closed. */
  fixed?: boolean;
  wide?: boolean;
  children: ComponentChildren;
}

/** What is asked for comes before closing: the first field, or the first answer, which changes nothing. */
const ASKED = ".dialog-head ~ * :is(input, select, textarea, button)";

export function Dialog({ title, onClose, fixed = false, wide = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const name = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      // Where the dialog has left the document before it was closed, the browser gives nothing back.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  // Another title is another question.
  const ask = () => (dialog.current!.querySelector<HTMLElement>(ASKED) ?? name.current!).focus();
  useEffect(ask, [title]);
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        if (!fixed) onClose();
      }}
      onClose={() => {
        // A browser that is asked twice closes it whatever `cancel` says. One that left the view has no element here.
        if (!dialog.current) return;
        if (!fixed) return onClose();
        dialog.current.showModal();
        ask();
      }}
      onMouseDown={(event) => {
        // The dialog itself is hit only beside what it holds.
        if (!fixed && event.target === dialog.current) onClose();
      }}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id={heading} ref={name} tabIndex={-1}>
            {title}
          </h2>
          {!fixed && (
            <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
              <Icon name="close" />
            </button>
          )}
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: ComponentChildren;
  /** What the button says that does it. */
  action: string;
  run: () => Promise<unknown>;
}

const asked = new State<Question | null>(null);

/** Ask before something that cannot be undone; a failure is shown where it was asked. */
export function confirm(question: Question): void {
  asked.set(question);
}

export function ConfirmHost() {
  const question = useValue(asked);
  return question && <Confirm {...question} />;
}

function Confirm({ title, text, action, run }: Question) {
  const { busy, problem, act } = useAction(async () => {
    await run();
    asked.set(null);
  });
  return (
    <Dialog title={title} onClose={() => asked.set(null)}>
      <p>{text}</p>
      <ProblemNote problem={problem} />
      <div class="actions">
        <button type="button" onClick={() => asked.set(null)}>
          Keep
        </button>
        <button type="button" class="danger" aria-disabled={busy} onClick={act}>
          {action}
        </button>
      </div>
    </Dialog>
  );
}

/** Something a press of a button does: once at a time, its refusal kept until the next try. Its button is
    `aria-disabled` meanwhile: one that is `disabled` loses the focus. */
export function useAction(run: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const act = async () => {
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await run();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return { busy, problem, act };
}
