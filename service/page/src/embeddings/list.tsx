// What there is to look up and search.

import type { Embedding } from "../api/types";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, number, setName, shortId } from "../format";
import { link } from "../router";
import { Health, indexOf, ownAccuracy, percent, recallText } from "./facts";

const COLUMNS: Column<Embedding>[] = [
  {
    head: "Set",
    cell: (set) => (
      <>
        <a href={link(["embeddings", set.id])}>{setName(set) ?? shortId(set.id)}</a>
        {setName(set) && <span class="soft"> {shortId(set.id)}</span>}
      </>
    ),
  },
  {
    head: "Aliases",
    cell: (set) => set.aliases.map((alias) => <span class="chip" key={alias}>{alias}</span>),
    wide: true,
  },
  { head: "Nodes", cell: (set) => number(set.counts.nodes!), number: true },
  { head: "Dim", cell: (set) => set.counts.dim, number: true, wide: true },
  { head: "Index", cell: (set) => indexOf(set)?.index ?? "none", wide: true },
  { head: "Recall", cell: (set) => recallText(set) ?? "–", number: true, wide: true },
  {
    head: "Accuracy",
    cell: (set) => {
      const accuracy = ownAccuracy(set);
      return accuracy === null ? "–" : percent(accuracy);
    },
    number: true,
    wide: true,
  },
  { head: "Health", cell: (set) => <Health set={set} /> },
  { head: "Made", cell: (set) => ago(set.created_at), number: true, wide: true },
];

export function EmbeddingList() {
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
