// Fields of a form that is made from a schema.

import { FormField } from "../components/field";
import { at, type Entered, type Field, type Group, written } from "./schema";

export interface Suggestion {
  value: string;
  label: string;
}

export interface FormState {
  entered: Entered;
  /** What is wrong with a field, by its pointer. */
  faults: Map<string, string>;
  /** The settings as the server resolves them: what a field is that is left empty. */
  resolved: unknown;
  /** Values to choose from, by pointer, where the schema cannot know them. */
  suggestions: Record<string, Suggestion[]>;
  /** What is to be said of a field besides its description, by pointer. */
  remarks?: Record<string, string>;
  onEnter: (pointer: string, text: string) => void;
}

interface RowProps {
  field: Field;
  form: FormState;
  /** The part of the settings that it belongs to, where it stands apart from it. */
  where?: string;
}

export function FieldRow({ field, form, where }: RowProps) {
  const { pointer, name, kind, description, range, required } = field;
  const text = form.entered[pointer] ?? "";
  const fault = form.faults.get(pointer);
  const untold = written(at(form.resolved, pointer) ?? field.default);
  const enter = (event: { currentTarget: { value: string } }) => form.onEnter(pointer, event.currentTarget.value);
  const choices = form.suggestions[pointer] ?? choicesOf(field);
  return (
    <FormField
      name={titled(name)}
      where={where}
      hint={fault ?? [description, range, form.remarks?.[pointer]].filter(Boolean).join(" ")}
      wrong={Boolean(fault)}
      look={text ? "entered" : ""}
    >
      {(control) => {
        const common = {
          ...control,
          value: text,
          "aria-invalid": fault ? true : undefined,
          "aria-required": required || undefined,
          "data-pointer": pointer,
        };
        if (choices) {
          return (
            <select {...common} onChange={enter}>
              <option value="">{required ? "Choose …" : untold ? `${untold} (default)` : "none"}</option>
              {choices.map(({ value, label }) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          );
        }
        if (kind === "pairs") return <textarea rows={2} placeholder="name=value, one a line" {...common} onInput={enter} />;
        const inputMode = kind === "integer" || kind === "number" ? "decimal" : "text";
        return <input autocomplete="off" inputMode={inputMode} placeholder={untold} {...common} onInput={enter} />;
      }}
    </FormField>
  );
}

function titled(name: string): string {
  return name[0]!.toUpperCase() + name.slice(1).replaceAll("_", " ");
}

function choicesOf({ kind, choices }: Field): Suggestion[] | undefined {
  if (kind === "boolean") return ["true", "false"].map((value) => ({ value, label: value }));
  return kind === "choice" ? choices.map((value) => ({ value, label: value })) : undefined;
}

function count({ fields, groups }: Group, passes: (field: Field) => boolean): number {
  return fields.filter(passes).length + groups.reduce((sum, group) => sum + count(group, passes), 0);
}

interface GroupProps {
  group: Group;
  form: FormState;
  /** The pointer of a field that stands elsewhere. */
  without?: string | undefined;
}

/** One stage's settings, folded until one is at fault. */
export function GroupFields({ group, form, without }: GroupProps) {
  const given = count(group, (field) => field.pointer !== without && Boolean(form.entered[field.pointer]));
  const wrong = count(group, (field) => form.faults.has(field.pointer));
  return (
    <details class="group" open={wrong > 0 || undefined}>
      <summary>
        {titled(group.name)}
        <span class="soft">{wrong ? "at fault" : given ? `${given} set` : "defaults"}</span>
      </summary>
      {group.optional && (
        <label class="check group-about">
          <input
            type="checkbox"
            checked={Boolean(form.entered[group.pointer]) || given > 0}
            disabled={given > 0}
            onChange={(event) => form.onEnter(group.pointer, event.currentTarget.checked ? "yes" : "")}
          />
          With {group.name}
        </label>
      )}
      <Rows fields={group.fields.filter((field) => field.pointer !== without)} form={form} />
      {group.groups.map((inner) => (
        <Inner key={inner.pointer} group={inner} form={form} />
      ))}
    </details>
  );
}

function Inner({ group, form }: { group: Group; form: FormState }) {
  return (
    <fieldset class="inner">
      <legend>{titled(group.pointer.slice(1).split("/").slice(1).join(" / "))}</legend>
      <Rows fields={group.fields} form={form} />
      {group.groups.map((inner) => (
        <Inner key={inner.pointer} group={inner} form={form} />
      ))}
    </fieldset>
  );
}

function Rows({ fields, form }: { fields: Field[]; form: FormState }) {
  return (
    <div class="fields">
      {fields.map((field) => (
        <FieldRow key={field.pointer} field={field} form={form} />
      ))}
    </div>
  );
}
