// A new job: what it is about, its settings as the API's schema has them, and what it would take before it is sent.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { changed, post, Problem, read, send } from "../api/client";
import { useMay } from "../api/own-key";
import { useAll, useQuery } from "../api/query";
import type { DryRun, Embedding, Graph, Info, Job } from "../api/types";
import { useAction } from "../components/dialog";
import { FormField } from "../components/field";
import { NotAllowed } from "../components/needs";
import { Empty, Loading, ProblemNote } from "../components/notes";
import { tell } from "../components/toasts";
import { Panel, View } from "../components/view";
import { number, setLabel, shortId } from "../format";
import { go, link } from "../router";
import { Estimate } from "./estimate";
import { FieldRow, GroupFields, type Suggestion } from "../forms/fields";
import { FoundFields } from "../forms/found";
import { useMissing } from "../forms/missing";
import { allFields, at, type Document, type Entered, type Field, type Group, jobKinds, request, written } from "../forms/schema";

const BACK: [string, string] = ["Jobs", "#/jobs"];
const USUAL = "pipeline";
const QUIET_MS = 350;
// What a job is about stands before its settings.
const WANTED: Record<string, string> = {
  "/graph": "a graph",
  "/embedding": "an embedding set",
  "/previous/graph": "a previous graph",
};
const SUBJECT = ["/graph", "/embedding", "/name", "/alias"];

export function NewJob({ query }: { query: URLSearchParams }) {
  const from = query.get("from");
  const { data: document, problem } = useQuery<Document>("/openapi.json");
  const { data: model, problem: gone } = useQuery<Job>(from ? `/v1/jobs/${encodeURIComponent(from)}` : null);
  const kinds = useMemo(() => document && jobKinds(document), [document]);
  const allowed = useMay("write");
  if (!allowed) return <NotAllowed title="New job" back={BACK} scope="write" />;
  if (!kinds || (from && !model && !gone)) {
    return (
      <View title="New job" back={BACK}>
        {problem ? <ProblemNote problem={problem} /> : <Loading lines={8} />}
      </View>
    );
  }
  const kind = model?.kind ?? query.get("kind") ?? USUAL;
  const begun: Entered = {};
  for (const [name, pointer] of [["graph", "/graph"], ["embedding", "/embedding"]] as const) {
    const given = query.get(name);
    if (given) begun[pointer] = given;
  }
  return <Form kinds={kinds} first={kind} begun={model ? asEntered(model, kinds) : begun} />;
}

/** What a job was told that is not as it would be untold. */
function asEntered(job: Job, kinds: Map<string, Group>): Entered {
  const told = { ...job, ...job.spec, embedding: job.encoder ?? job.embedding };
  const entered: Entered = {};
  for (const field of allFields(kinds.get(job.kind)!)) {
    if (field.pointer.startsWith("/resources")) continue;
    const text = written(at(told, field.pointer));
    if (text && text !== written(field.default)) entered[field.pointer] = text;
  }
  return entered;
}

function Form({ kinds, first, begun }: { kinds: Map<string, Group>; first: string; begun: Entered }) {
  const [kind, setKind] = useState(kinds.has(first) ? first : USUAL);
  const [entered, setEntered] = useState(begun);
  const [sought, setSought] = useState("");
  const { data: graphs } = useAll<Graph>("/v1/graphs?limit=200");
  const { data: sets } = useAll<Embedding>("/v1/embeddings?limit=200");
  const { data: info } = useQuery<Info>("/v1/info");

  const root = kinds.get(kind)!;
  const body = useMemo(() => ({ kind, ...request(root, entered) }), [kind, entered]);
  const { element, lacking, faults: needed, complain } = useMissing(kind, root, entered);
  const { plan, refusal } = useDryRun(body, lacking.length === 0);
  // A request that is sent twice because its answer was lost makes one job.
  const once = useRef("");
  useEffect(() => {
    once.current = `${Date.now()}-${Math.random()}`;
  }, [body]);
  const { busy, problem, act } = useAction(async () => {
    const headers = { "Idempotency-Key": once.current };
    const job: Job = await read(await send("/v1/jobs", { method: "POST", body, headers }));
    changed();
    tell(`Submitted ${job.name ?? shortId(job.id)}`);
    go(link(["jobs", job.id]));
  });

  const shown = problem ?? refusal;
  const pointers = new Set(allFields(root).map((field) => field.pointer));
  const told = shown?.errors.map(({ pointer, detail }): [string, string] => [pointer, detail]) ?? [];
  const beside = shown?.errors.some(({ pointer }) => !pointers.has(pointer)) || shown?.errors.length === 0;
  const subject = SUBJECT.flatMap((pointer) => root.fields.filter((field) => field.pointer === pointer));
  const preset = root.groups.find(({ pointer }) => pointer === "/train")?.fields.find(({ name }) => name === "preset");
  const above = [...subject, ...(preset ? [preset] : [])];
  const others = root.fields.filter((field) => !SUBJECT.includes(field.pointer));
  const changedCount = Object.keys(body).length - 1;
  const form = {
    entered,
    faults: new Map([...told, ...needed]),
    resolved: plan?.spec,
    suggestions: suggestions(graphs?.items, sets?.items, info?.presets),
    remarks: { "/train/preset": "In the list, each stands with the epochs that it trains for; thousands of them may take hours." },
    onEnter: (pointer: string, text: string) => setEntered((before) => ({ ...before, [pointer]: text })),
  };

  return (
    <View title="New job" back={BACK}>
      <form
        ref={element}
        class="columns wide-left new-job"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (lacking.length > 0) {
            // What is sought may hide what is needed.
            setSought("");
            complain();
          } else act();
        }}
      >
        <div class="stack">
          <Panel title="What">
            <div class="fields panel-body">
              <FormField name="Kind" hint={root.description.split("\n\n")[0]}>
                {(control) => (
                  <select {...control} value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
                    {[USUAL, ...[...kinds.keys()].filter((name) => name !== USUAL)].map((name) => (
                      <option key={name}>{name}</option>
                    ))}
                  </select>
                )}
              </FormField>
              {above.map((field) => (
                <FieldRow key={field.pointer} field={field} form={form} />
              ))}
            </div>
            {graphs && graphs.items.length === 0 && (
              <Empty title="There is no graph yet">
                <p>
                  A job is about a graph. <a href="#/graphs?new=1">Register one</a>
                </p>
              </Empty>
            )}
          </Panel>
          <Panel
            title="Settings"
            actions={
              <input
                type="search"
                class="find"
                aria-label="Find a setting"
                placeholder="Find a setting"
                value={sought}
                onInput={(event) => setSought(event.currentTarget.value)}
              />
            }
          >
            {sought.trim() ? (
              <FoundFields fields={allFields(root).filter((field) => !above.includes(field))} sought={sought} form={form} />
            ) : (
              <div class="groups">
                {root.groups.map((group) => (
                  <GroupFields key={group.pointer} group={group} form={form} without={preset?.pointer} />
                ))}
                <GroupFields group={{ ...root, name: "job", description: "", fields: others, groups: [] }} form={form} />
              </div>
            )}
          </Panel>
        </div>
        <div class="stack sticky">
          <Panel title="Before it starts">
            <div class="panel-body">
              {lacking.length > 0 ? (
                <p class="soft">Choose {lacking.map(wanted).join(" and ")} to see what it would take.</p>
              ) : (
                <Estimate plan={plan} />
              )}
              {shown && (beside || lacking.length === 0) && <ProblemNote problem={shown} />}
              <button class="primary submit" aria-disabled={busy}>
                Submit {kind}
              </button>
              <details class="body-shown">
                <summary>Request ({changedCount === 1 ? "1 field" : `${changedCount} fields`})</summary>
                <pre class="text" tabIndex={0} role="region" aria-label="The request">
                  {JSON.stringify(body, null, 2)}
                </pre>
              </details>
            </div>
          </Panel>
        </div>
      </form>
    </View>
  );
}

/** What is to be chosen or given yet, with its article. */
function wanted({ pointer, name }: Field): string {
  return WANTED[pointer] ?? `a value for ${name.replaceAll("_", " ")}`;
}

/** What the server would do with a request, asked when nothing was typed for a moment. */
function useDryRun(body: Record<string, unknown>, whole: boolean) {
  const [state, setState] = useState<{ plan?: DryRun; refusal: Problem | null }>({ refusal: null });
  useEffect(() => {
    if (!whole) {
      setState({ refusal: null });
      return undefined;
    }
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const plan = await post<DryRun>("/v1/jobs?dry_run=true", body);
        if (current) setState({ plan, refusal: null });
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        // Figures of another request would mislead.
        if (current) setState({ refusal: error });
      }
    }, QUIET_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [body, whole]);
  return state;
}

function suggestions(
  graphs: Graph[] | undefined,
  sets: Embedding[] | undefined,
  presets: Info["presets"] | undefined,
): Record<string, Suggestion[]> {
  const named = graphs?.map(({ id, name, state }) => ({
    value: id,
    label: [name, shortId(id), state === "ready" ? "" : "not ingested"].filter(Boolean).join(" · "),
  }));
  return {
    "/graph": named ?? [],
    "/previous/graph": named ?? [],
    "/embedding": sets?.map((set) => ({ value: set.id, label: setLabel(set) })) ?? [],
    "/train/preset": Object.entries(presets ?? {}).map(([value, { epochs }]) => ({
      value,
      label: `${value} · ${number(epochs)} epochs`,
    })),
  };
}
