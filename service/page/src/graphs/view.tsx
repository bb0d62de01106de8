// Graphs: the list, and one.

import type { PlaceProps } from "../app";
import { GraphList } from "./list";
import { OneGraph } from "./one";

export function Graphs({ path: [id], query }: PlaceProps) {
  return id === undefined ? <GraphList query={query} /> : <OneGraph id={id} />;
}
