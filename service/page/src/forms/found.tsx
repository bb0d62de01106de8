// Settings that are sought by a word, or by a name as documents write it (`run.max_steps`): those that are called so
// first, then those whose names begin so, then the rest.

import { type FormState, FieldRow } from "./fields";
import type { Field } from "./schema";

export function FoundFields({ fields, sought, form }: { fields: Field[]; sought: string; form: FormState }) {
  const found = ranked(fields, sought);
  return (
    <div class="fields panel-body">
      {found.map((field) => (
        <FieldRow key={field.pointer} field={field} form={form} where={whereOf(field)} />
      ))}
      {found.length === 0 && <p class="soft">No setting of this kind of job is called or described so.</p>}
    </div>
  );
}

function ranked(fields: Field[], sought: string): Field[] {
  const word = plain(sought);
  const rank = ({ pointer, name, description }: Field) => {
    if (calls(pointer).includes(word)) return 0;
    if (plain(name).startsWith(word)) return 1;
    return plain(`${pointer} ${description}`).includes(word) ? 2 : null;
  };
  return [0, 1, 2].flatMap((wanted) => fields.filter((field) => rank(field) === wanted));
}

/** What a setting is called: its name alone, and with the parts of the settings that it is in. */
function calls(pointer: string): string[] {
  const steps = pointer.slice(1).split("/");
  return steps.map((_, from) => plain(steps.slice(from).join(" ")));
}

function plain(text: string): string {
  return text.toLowerCase().replace(/[\s_./]+/g, " ").trim();
}

function whereOf({ pointer }: Field): string {
  return pointer.slice(1).split("/").slice(0, -1).join(" / ").replaceAll("_", " ") || "job";
}
