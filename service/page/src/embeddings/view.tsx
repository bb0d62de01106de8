// Embedding sets: all of them, or one.

import type { PlaceProps } from "../app";
import { EmbeddingList } from "./list";
import { EmbeddingSet } from "./set";
import "./embeddings.css";

export function Embeddings({ path: [ref], query }: PlaceProps) {
  return ref === undefined ? <EmbeddingList /> : <EmbeddingSet reference={ref} query={query} />;
}
