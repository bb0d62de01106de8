// The API's schemas by short names; schema.d.ts is generated from docs/openapi.json by every build.

import type { components } from "./schema";

type Schemas = components["schemas"];

export type Alias = Schemas["AliasOut"];
export type ApiKey = Schemas["KeyAnswer"];
export type Degrees = Schemas["DegreesAnswer"];
export type DryRun = Schemas["DryRunAnswer"];
export type Embedding = Schemas["EmbeddingOut"];
export type Graph = Schemas["GraphAnswer"];
export type Info = Schemas["InfoAnswer"];
export type Job = Schemas["JobAnswer"];
export type JobEvent = Schemas["EventAnswer"];
export type JobKind = Job["kind"];
export type JobStatus = Job["status"];
export type Metrics = Schemas["MetricsAnswer"];
export type Neighbor = Schemas["Neighbor"];
export type NeighborsAnswer = Schemas["QueryOut"];
export type NewKey = Schemas["NewKeyAnswer"];
export type Node = Schemas["NodeAnswer"];
export type OwnKey = Schemas["OwnKeyAnswer"];
export type ProblemBody = Schemas["Problem"];
export type Ready = Schemas["ReadyAnswer"];
export type Scope = OwnKey["scopes"][number];

export interface Items<Item> {
  items: Item[];
  next_cursor: string | null;
}
