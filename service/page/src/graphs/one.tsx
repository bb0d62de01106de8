// One graph: its counts, degrees, how its edges are read, what ingest warned of, and its nodes one by one.

import { useState } from "preact/hooks";

import { changed, get, send } from "../api/client";
import { useAll, useQuery } from "../api/query";
import type { Degrees, Embedding, Graph, Node } from "../api/types";
import { confirm, useAction } from "../components/dialog";
import { Gone } from "../components/gone";
import { Needs } from "../components/needs";
import { Empty, Loading, Note, ProblemNote, sentence } from "../components/notes";
import { tell } from "../components/toasts";
import { Copy, type Fact, Facts, Panel, View } from "../components/view";
import { figure, moment, number, quantity, setLabel, shortId } from "../format";
import { go, link } from "../router";
import { GraphState } from "./list";

const BACK: [string, string] = ["Graphs", "#/graphs"];
/** What `direction` means for who hears from whom. */
const DIRECTIONS: Record<string, string> = {
  undirected: "undirected: both ends of an edge hear from each other",
  directed: "directed: a target hears from its source",
  reverse: "reverse: a source hears from its target",
};
const COUNTS: [string, string][] = [
  ["nodes", "Nodes"],
  ["edges", "Edges"],
  ["arcs", "Arcs stored"],
  ["isolated", "Isolated"],
  ["duplicate_edges", "Duplicates"],
  ["self_loops", "Self-loops"],
  ["reciprocal_edges", "Reciprocal"],
  ["given", "Rows given"],
];

export function OneGraph({ id }: { id: string }) {
  const { data: graph, problem } = useQuery<Graph>(`/v1/graphs/${encodeURIComponent(id)}`, 5000);
  const name = graph?.name ?? shortId(id);
  if (problem?.status === 404) return <Gone what="graph" name={name} back={BACK} />;
  if (!graph) {
    return (
      <View title={name} back={BACK}>
        {problem ? <ProblemNote problem={problem} /> : <Loading lines={8} />}
      </View>
    );
  }
  const ready = graph.state === "ready";
  return (
    <View title={name} beside={<GraphState graph={graph} />} back={BACK} actions={<Actions graph={graph} name={name} />}>
      <ProblemNote problem={problem} />
      {!ready && (
        <Note kind="info">
          <p>
            Its tables are not read yet. <a href={link(["jobs", "new"], { graph: id })}>A pipeline</a> reads them, trains and
            makes it searchable; <a href={link(["jobs", "new"], { graph: id, kind: "ingest" })}>an ingest job</a> reads them
            alone.
          </p>
        </Note>
      )}
      {graph.counts && <Counts counts={graph.counts} />}
      <div class="columns">
        <div class="stack">
          {ready && <DegreePanel id={id} />}
          <Panel title="Warnings">
            {graph.warnings.length ? (
              <ul class="warnings">
                {graph.warnings.map((warning, position) => (
                  <li key={position}>{warned(warning)}</li>
                ))}
              </ul>
            ) : (
              <p class="panel-body soft">{ready ? "Ingest found nothing to warn of." : "None before it is ingested."}</p>
            )}
          </Panel>
        </div>
        <div class="stack">
          <Panel title="About">
            <Facts facts={facts(graph)} />
          </Panel>
          <Sets graph={id} />
          {ready && <NodePanel id={id} />}
        </div>
      </div>
    </View>
  );
}

function Actions({ graph, name }: { graph: Graph; name: string }) {
  const remove = () =>
    confirm({
      title: `Delete ${name}?`,
      text:
        graph.source === null
          ? "It is forgotten here; its bundle stays where it lies."
          : "It is forgotten, and the bundle that this server made of it is removed; its tables stay.",
      action: "Delete graph",
      run: async () => {
        await send(`/v1/graphs/${encodeURIComponent(graph.id)}`, { method: "DELETE" });
        changed();
        tell(`Deleted ${name}`);
        go("#/graphs");
      },
    });
  return (
    <Needs scope="write">
      <button type="button" class="danger" onClick={remove}>
        Delete
      </button>
      <a class="button primary" href={link(["jobs", "new"], { graph: graph.id })}>
        New job
      </a>
    </Needs>
  );
}

function Counts({ counts }: { counts: Record<string, number> }) {
  const known = COUNTS.filter(([key]) => counts[key] !== undefined);
  const others = Object.keys(counts).filter((key) => !COUNTS.some(([known]) => known === key));
  return (
    <dl class="tiles">
      {[...known, ...others.map((key): [string, string] => [key, key.replaceAll("_", " ")])].map(([key, name]) => (
        <div class="tile" key={key}>
          <dt>{name}</dt>
          <dd>{number(counts[key] ?? 0)}</dd>
        </div>
      ))}
    </dl>
  );
}

function facts(graph: Graph): Fact[] {
  return [
    ["Id", <Copy text={graph.id} />],
    ["Direction", DIRECTIONS[graph.direction] ?? graph.direction],
    ["Features", graph.features && features(graph.features)],
    ["Labels", graph.labels ? described(graph.labels) : graph.counts && "none"],
    ["Source", graph.source ? described(graph.source) : "a bundle made elsewhere"],
    ["Bundle", <code>{graph.bundle}</code>],
    ["Registered", moment(graph.created_at)],
  ];
}

/** A warning is a text, or has one with a code. */
function warned(warning: unknown): string {
  if (typeof warning === "string") return warning;
  const message = (warning as { message?: unknown } | null)?.message;
  return typeof message === "string" ? sentence(message) : JSON.stringify(warning);
}

/** What is there of it, in its own words. */
function described(record: Record<string, unknown>) {
  const told = Object.entries(record).filter(([, value]) => value !== null && value !== "" && !isEmpty(value));
  return told.map(([name, value]) => (
    <span class="described" key={name}>
      {name.replaceAll("_", " ")}{" "}
      <code>{typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? quantity(value) : String(value)}</code>
    </span>
  ));
}

/** A table of many plain columns names each of them; here the first and the last do. */
function features({ names, ...others }: Record<string, unknown>) {
  const columns = typeof names === "object" && names !== null ? Object.keys(names) : [];
  const named = columns.length > 4 ? `${columns.slice(0, 2).join(", ")}, … ${columns.at(-1)}` : columns.join(", ");
  return described({ ...others, ...(columns.length > 0 && { columns: `${number(columns.length)}: ${named}` }) });
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

function DegreePanel({ id }: { id: string }) {
  const { data, problem } = useQuery<Degrees>(`/v1/graphs/${encodeURIComponent(id)}/degrees`);
  const most = Math.max(1, ...(data?.buckets.map(({ nodes }) => nodes) ?? []));
  const all = data?.buckets.reduce((sum, { nodes }) => sum + nodes, 0) ?? 0;
  return (
    <Panel
      title="Degrees"
      actions={data && <span class="soft figures">{`mean ${figure(data.mean)}, largest ${number(data.max)}`}</span>}
    >
      <ProblemNote problem={problem} />
      {!data && !problem && <Loading lines={6} />}
      {data && (
        <table class="histogram">
          <caption class="hidden">Nodes by their number of neighbours</caption>
          <thead class="hidden">
            <tr>
              <th scope="col">Neighbours</th>
              <th scope="col">Share</th>
              <th scope="col">Nodes</th>
            </tr>
          </thead>
          <tbody>
            {data.buckets.map(({ low, high, nodes }) => (
              <tr key={low}>
                <th scope="row" class="number">
                  {low === high ? number(low) : `${number(low)}–${number(Math.min(high, data.max))}`}
                </th>
                <td title={`${figure((100 * nodes) / Math.max(all, 1))} %`}>
                  {nodes > 0 && <div class="histogram-bar" style={{ width: `${(100 * nodes) / most}%` }} />}
                </td>
                <td class="number">{number(nodes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Sets({ graph }: { graph: string }) {
  const { data } = useAll<Embedding>(`/v1/embeddings?graph=${encodeURIComponent(graph)}&limit=200`, 10_000);
  const sets = data?.items ?? [];
  return (
    <Panel title="Embedding sets">
      {sets.length === 0 ? (
        <p class="panel-body soft">{data ? "None of this graph yet." : ""}</p>
      ) : (
        <ul class="links">
          {sets.map((set) => (
            <li key={set.id}>
              <a href={link(["embeddings", set.id])}>{setLabel(set)}</a>
              <span class="soft figures">{number(set.counts.dim ?? 0)} dimensions</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function NodePanel({ id }: { id: string }) {
  const [sought, setSought] = useState("");
  const [node, setNode] = useState<Node | null>(null);
  const { busy, problem, act } = useAction(async () => {
    setNode(null);
    setNode(await get<Node>(`/v1/graphs/${encodeURIComponent(id)}/nodes/${encodeURIComponent(sought)}`));
  });
  return (
    <Panel title="A node">
      <form
        class="panel-body look-up"
        onSubmit={(event) => {
          event.preventDefault();
          act();
        }}
      >
        <input
          required
          aria-label="Id of a node"
          placeholder="Id of a node"
          autocomplete="off"
          value={sought}
          onInput={(event) => setSought(event.currentTarget.value)}
        />
        <button aria-disabled={busy}>Look up</button>
      </form>
      <div class="node" aria-live="polite">
        <ProblemNote problem={problem} />
        {node && (
          <Facts
            facts={[
              ["Degree", number(node.degree)],
              ["Hears from", `${number(node.neighbors.total)} nodes${node.neighbors.sample.length ? ", among them" : ""}`],
              ["", <span class="ids">{node.neighbors.sample.map((one) => <code key={one}>{one}</code>)}</span>],
              ["Nearest by PPR", node.ppr ? ppr(node.ppr.entries) : node.ppr_missing],
            ]}
          />
        )}
        {!node && !problem && <Empty title="Degree, neighbours and PageRank of a node" />}
      </div>
    </Panel>
  );
}

function ppr(entries: { id: string; score: number }[]) {
  return (
    <span class="ids">
      {entries.map(({ id, score }) => (
        <span key={id}>
          <code>{id}</code> <span class="soft">{figure(score)}</span>
        </span>
      ))}
    </span>
  );
}
