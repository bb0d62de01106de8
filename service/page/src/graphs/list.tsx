// The graphs there are, and the way to register one.

import { useState } from "preact/hooks";

import { useMay } from "../api/own-key";
import type { Graph } from "../api/types";
import { Needs } from "../components/needs";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, number, plural, shortId } from "../format";
import { link } from "../router";
import { Register } from "./register";

const COLUMNS: Column<Graph>[] = [
  {
    head: "Graph",
    cell: (graph) => (
      <a href={link(["graphs", graph.id])} title={graph.id}>
        {graph.name ?? shortId(graph.id)}
      </a>
    ),
  },
  { head: "State", cell: (graph) => <GraphState graph={graph} /> },
  { head: "Nodes", cell: (graph) => (graph.counts ? number(graph.counts.nodes ?? 0) : "–"), number: true },
  { head: "Edges", cell: (graph) => (graph.counts ? number(graph.counts.edges ?? 0) : "–"), number: true, wide: true },
  { head: "Direction", cell: (graph) => graph.direction, wide: true },
  { head: "Warnings", cell: (graph) => (graph.warnings.length ? plural(graph.warnings.length, "warning") : ""), wide: true },
  { head: "Registered", cell: (graph) => ago(graph.created_at), number: true, wide: true },
];

export function GraphState({ graph }: { graph: Graph }) {
  return graph.state === "ready" ? (
    <span class="status" data-status="succeeded">
      ready
    </span>
  ) : (
    <span class="status" data-status="queued">
      not ingested
    </span>
  );
}

export function GraphList({ query }: { query: URLSearchParams }) {
  const [open, setOpen] = useState(query.has("new"));
  const allowed = useMay("write");
  const register = (
    <Needs scope="write">
      <button type="button" class="primary" onClick={() => setOpen(true)}>
        Register graph
      </button>
    </Needs>
  );
  return (
    <View title="Graphs" actions={register}>
      <ListTable<Graph>
        caption="Graphs, newest first"
        path="/v1/graphs"
        every={5000}
        columns={COLUMNS}
        rowKey={(graph) => graph.id}
        empty={
          <Empty title="No graphs yet">
            <p>
              A graph is registered by the path of its tables, under a data root of the server (<code>rgrl serve --data-root
              DIR</code>); a pipeline job reads them. A bundle that <code>rgrl ingest</code> made is ready at once.
            </p>
          </Empty>
        }
      />
      {open && allowed && <Register onClose={() => setOpen(false)} />}
    </View>
  );
}
