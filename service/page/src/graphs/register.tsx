// A graph by the path of its tables or of its bundle; the fields are those of the API's schema.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { changed, post } from "../api/client";
import { useQuery } from "../api/query";
import type { Graph } from "../api/types";
import { Dialog, useAction } from "../components/dialog";
import { FormField } from "../components/field";
import { Loading, ProblemNote } from "../components/notes";
import { tell } from "../components/toasts";
import { FieldRow } from "../forms/fields";
import { useMissing } from "../forms/missing";
import { type Document, type Entered, type Field, type Group, graphSources, request } from "../forms/schema";
import { shortId } from "../format";
import { go, link } from "../router";

const NAMES: Record<string, string> = {
  tables: "Tables, Parquet or CSV",
  npz: "An .npz file",
  pyg: "A data set of PyTorch Geometric",
  bundle: "A bundle that rgrl ingest made",
};
/** What is mostly given; the other columns have names that ingest finds. */
const FIRST = ["/source/edges", "/source/nodes", "/source/label", "/source/path", "/source/root", "/source/name"];

export function Register({ onClose }: { onClose: () => void }) {
  const { data: document, problem } = useQuery<Document>("/openapi.json");
  const known = useMemo(() => document && graphSources(document), [document]);
  return (
    <Dialog title="Register a graph" wide onClose={onClose}>
      <ProblemNote problem={problem} />
      {known ? <Form {...known} onClose={onClose} /> : <Loading />}
    </Dialog>
  );
}

function Form({ sources, root, onClose }: { sources: Map<string, Group>; root: Group; onClose: () => void }) {
  const [kind, setKind] = useState("tables");
  const first = useRef<HTMLSelectElement>(null);
  // Where the dialog was open before its form was there.
  useEffect(() => first.current?.focus(), []);
  const [entered, setEntered] = useState<Entered>({});
  const source = sources.get(kind);
  const ofKind: Field[] = source
    ? [...source.fields, ...root.fields.filter(({ name }) => name === "direction" || name === "feature_dtype")]
    : root.fields.filter(({ name }) => name === "bundle");
  // The schema asks for one of two, and so for neither.
  const asked = entered["/source/relations"]?.trim() ? ["/bundle"] : ["/bundle", "/source/edges"];
  const shown = ofKind.map((field) => ({
    ...field,
    // There is the graph's own name besides.
    name: field.pointer === "/source/name" ? "data set" : field.name,
    required: field.required || asked.includes(field.pointer),
  }));
  const named = root.fields.filter(({ name }) => name === "name");
  const given: Group = { ...root, fields: [...named, ...shown], groups: [] };
  const { element, lacking, faults: needed, complain } = useMissing(kind, given, entered);
  const { busy, problem, act } = useAction(async () => {
    const body = request(given, entered);
    if (source) body.source = { ...(body.source as object), kind };
    const graph = await post<Graph>("/v1/graphs", body);
    changed();
    tell(`Registered ${graph.name ?? shortId(graph.id)}`);
    go(link(["graphs", graph.id]));
  });
  const pointers = new Set([...named, ...shown].map(({ pointer }) => pointer));
  const told = problem?.errors.map(({ pointer, detail }): [string, string] => [pointer, detail]) ?? [];
  const form = {
    entered,
    faults: new Map([...told, ...needed]),
    resolved: undefined,
    suggestions: {},
    onEnter: (pointer: string, text: string) => setEntered((before) => ({ ...before, [pointer]: text })),
  };
  const common = shown.filter(({ pointer }) => !source || FIRST.includes(pointer));
  const rest = shown.filter((field) => !common.includes(field));
  const rows = (fields: Field[]) => fields.map((field) => <FieldRow key={field.pointer} field={field} form={form} />);
  return (
    <form
      ref={element}
      class="form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (lacking.length > 0) complain();
        else act();
      }}
    >
      <div class="fields">
        <FormField name="From" hint="Paths are taken under the server's data roots.">
          {(control) => (
            <select {...control} ref={first} value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
              {Object.keys(NAMES).map((one) => (
                <option key={one} value={one}>
                  {NAMES[one]}
                </option>
              ))}
            </select>
          )}
        </FormField>
        {rows([...named, ...common])}
      </div>
      {rest.length > 0 && (
        <details class="more-fields" open={rest.some(({ pointer }) => form.faults.has(pointer)) || undefined}>
          <summary>More</summary>
          <div class="fields">{rows(rest)}</div>
        </details>
      )}
      {problem && (!problem.errors.length || problem.remedy || problem.errors.some(({ pointer }) => !pointers.has(pointer))) && (
        <ProblemNote problem={problem} />
      )}
      <div class="actions">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button class="primary" aria-disabled={busy}>
          Register
        </button>
      </div>
    </form>
  );
}
