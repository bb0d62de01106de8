// One field of a form: its name, its control, and a hint that is read after both.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  name: string;
  hint?: ComponentChildren;
  /** The hint is what is wrong with it. */
  wrong?: boolean;
  look?: string;
  /** What it is a part of, told before its name. */
  where?: string | undefined;
  children: (control: { id: string; "aria-describedby": string | undefined }) => ComponentChildren;
}

export function FormField({ name, hint, wrong = false, look = "", where, children }: FieldProps) {
  const id = useId();
  const described = [where && `${id}-where`, hint && `${id}-hint`].filter(Boolean).join(" ");
  return (
    <div class={`field ${look}`}>
      {where && <small id={`${id}-where`}>{where}</small>}
      <label for={id}>{name}</label>
      {children({ id, "aria-describedby": described || undefined })}
      {hint && (
        <small id={`${id}-hint`} class={wrong ? "field-error" : undefined}>
          {hint}
        </small>
      )}
    </div>
  );
}
