// What a stage's summary comes to, in few words: what it made and how well, not how it is kept.

import { figure, number, plural, quantity } from "../format";

/** A part of a summary: where it stands, and the words for its value, or none where it says nothing. */
type Part = [path: string, words: (value: never) => string | false];

const count = (one: string, many?: string) => (value: number) => plural(value, one, many);
const taken = (done: string) => (value: number) => `${done} ${value > 0 ? `in ${figure(value)} s` : "at once"}`;

const INDICES: Record<string, string> = { exact: "exact search", hnsw: "HNSW", ivf: "IVF" };

const PARTS: Part[] = [
  ["index", (kind: string) => INDICES[kind] ?? kind],
  ["recall", ({ k, value }: { k: number; value: number }) => k > 0 && `recall@${k} ${figure(value)}`],
  ["counts.nodes", count("node")],
  ["counts.edges", count("edge")],
  ["counts.dim", count("dimension")],
  ["labels.classes", count("class", "classes")],
  ["ppr.counts.nodes", (rows: number) => `PPR rows of ${plural(rows, "node")}`],
  ["ppr.counts.exact", (rows: number) => `${number(rows)} of them exact`],
  ["degree_weights.counts.nodes", (nodes: number) => `degree weights of ${plural(nodes, "node")}`],
  ["training.epochs", count("epoch")],
  ["training.steps", count("step")],
  ["training.stopped_early", (early: boolean) => early && "stopped early"],
  ["training.seconds", taken("trained")],
  ["effective_rank", (rank: number) => `effective rank ${figure(rank)}`],
  ["collapsed", (collapsed: boolean) => collapsed && "collapsed"],
  ["test_accuracy", scores("test accuracy")],
  ["test_auc.random", scores("test AUC with random negatives")],
  ["test_auc.hard", scores("test AUC with hard negatives")],
  ["build_seconds", taken("built")],
  ["projection.counts.points", (points: number) => `${plural(points, "point")} of the map`],
];

/** Parts that there are, in one line; of a summary of none of them nothing. */
export function found(summary: unknown): string {
  return PARTS.map(([path, words]) => {
    const value = path.split(".").reduce<unknown>((record, name) => (Object(record) as Record<string, unknown>)[name], summary);
    return value !== undefined && value !== null && words(value as never);
  })
    .filter(Boolean)
    .join(", ");
}

/** `test accuracy rgrl 0.8312`, of each that has one. */
function scores(name: string) {
  return (values: Record<string, number | null>) => {
    const there = Object.entries(values).flatMap(([whose, value]) =>
      typeof value === "number" ? [`${whose.replaceAll("_", " ")} ${quantity(value)}`] : [],
    );
    return there.length > 0 && `${name} ${there.join(", ")}`;
  };
}
