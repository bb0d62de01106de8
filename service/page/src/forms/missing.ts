// What a form still needs: told at each empty field once it was tried to be sent, the first of them focused.

import { useEffect, useRef, useState } from "preact/hooks";

import { allFields, type Entered, type Field, type Group } from "./schema";

/** Needed fields without a value; those of a part that may be left out whole are needed once something of it is given. */
export function missing(root: Group, entered: Entered): Field[] {
  const given = Boolean(entered[root.pointer]) || allFields(root).some(({ pointer }) => entered[pointer]);
  if (root.optional && !given) return [];
  const own = root.fields.filter(({ required, pointer }) => required && !entered[pointer]?.trim());
  return [...own, ...root.groups.flatMap((one) => missing(one, entered))];
}

/** `form` is what is sent, such as its kind: another has not been tried yet. */
export function useMissing(form: string, root: Group, entered: Entered) {
  const [tried, setTried] = useState({ form, times: 0 });
  const element = useRef<HTMLFormElement>(null);
  const lacking = missing(root, entered);
  const told = tried.form === form && tried.times > 0;
  useEffect(() => {
    const wanted = new Set(lacking.map(({ pointer }) => pointer));
    const fields = [...(element.current?.querySelectorAll<HTMLElement>("[data-pointer]") ?? [])];
    if (told) fields.find(({ dataset }) => wanted.has(dataset.pointer!))?.focus();
  }, [tried]);
  return {
    element,
    lacking,
    faults: told ? lacking.map(({ pointer }): [string, string] => [pointer, "This is needed, and nothing is given."]) : [],
    complain: () => setTried(({ times }) => ({ form, times: times + 1 })),
  };
}
