import type { Graph } from "../api/types";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, number, shortId } from "../format";
import { link } from "../router";

const COLUMNS: Column<Graph>[] = [
  { head: "Graph", cell: (graph) => <a href={link(["graphs", graph.id])}>{graph.name ?? shortId(graph.id)}</a> },
  { head: "Nodes", cell: (graph) => (graph.counts ? number(graph.counts.nodes ?? 0) : "–"), number: true },
  { head: "Registered", cell: (graph) => ago(graph.created_at), number: true },
];

export function Graphs() {
  return (
    <View title="Graphs">
      <ListTable<Graph>
        caption="Graphs, newest first"
        path="/v1/graphs"
        every={10_000}
        columns={COLUMNS}
        rowKey={(graph) => graph.id}
        empty={<Empty title="No graphs yet" />}
      />
    </View>
  );
}
