// Embedding sets: what there is to look up and search.

import type { PlaceProps } from "../app";
import type { Embedding } from "../api/types";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, number, shortId } from "../format";
import { link } from "../router";

const COLUMNS: Column<Embedding>[] = [
  { head: "Set", cell: (set) => <a href={link(["embeddings", set.id])}>{set.aliases[0] ?? shortId(set.id)}</a> },
  { head: "Graph", cell: (set) => <a href={link(["graphs", set.graph])}>{shortId(set.graph)}</a>, wide: true },
  { head: "Nodes", cell: (set) => number(set.counts.nodes ?? 0), number: true },
  { head: "Made", cell: (set) => ago(set.created_at), number: true },
];

export function Embeddings(_: PlaceProps) {
  return (
    <View title="Embeddings">
      <ListTable<Embedding>
        caption="Embedding sets, newest first"
        path="/v1/embeddings"
        every={10_000}
        columns={COLUMNS}
        rowKey={(set) => set.id}
        empty={
          <Empty title="No embedding sets yet">
            <p>
              A pipeline job makes one from a graph. <a href="#/jobs/new">Submit a job</a>
            </p>
          </Empty>
        }
      />
    </View>
  );
}
