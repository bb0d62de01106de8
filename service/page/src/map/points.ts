// The map of an embedding set as it comes from the API: an Arrow stream, a row a point.

import { tableFromIPC } from "apache-arrow";

import { send } from "../api/client";

/** How points are placed, as people write it. */
export const METHODS: Record<string, string> = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };

export interface Points {
  /** The set, whatever alias it was asked for by. */
  readonly embedding: string;
  readonly method: string;
  /** How many nodes the set has; the points may be a sample of them. */
  readonly nodes: number;
  readonly ids: readonly string[];
  readonly x: Float32Array;
  readonly y: Float32Array;
  readonly labels: readonly (string | null)[] | null;
  readonly degrees: readonly number[] | null;
  readonly graphMissing: string | null;
  /** The point of a node, if it is on the map. */
  readonly placeOf: ReadonlyMap<string, number>;
}

export async function fetchPoints(ref: string, signal: AbortSignal): Promise<Points> {
  const headers = { Accept: "application/vnd.apache.arrow.stream" };
  const response = await send(`/v1/embeddings/${encodeURIComponent(ref)}/projection`, { headers, signal });
  const table = tableFromIPC(new Uint8Array(await response.arrayBuffer()));
  const facts = table.schema.metadata;
  const ids = [...table.getChild("id")!] as string[];
  const labels = table.getChild("label");
  const degrees = table.getChild("degree");
  return {
    embedding: facts.get("embedding")!,
    method: facts.get("method")!,
    nodes: Number(facts.get("nodes")),
    ids,
    x: table.getChild("x")!.toArray() as Float32Array,
    y: table.getChild("y")!.toArray() as Float32Array,
    labels: labels && ([...labels] as (string | null)[]),
    degrees: degrees && Array.from(degrees.toArray() as BigInt64Array, Number),
    graphMissing: facts.get("graph_missing") ?? null,
    placeOf: new Map(ids.map((id, point) => [id, point])),
  };
}
