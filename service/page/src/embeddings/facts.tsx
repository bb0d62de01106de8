// What is told of a set wherever it is shown: its health, its index, its accuracy.

import type { Embedding } from "../api/types";
import { figure, number } from "../format";

/** The headline figures of evaluate, as the API hands them on; older reports have none of them. */
interface Headline {
  objective?: string;
  collapsed?: boolean;
  effective_rank?: number;
  test_accuracy?: Record<string, number | null> | null;
  notes?: string[];
}

/** The summary of the index stage. */
interface IndexSummary {
  index?: string;
  recall?: { k: number; value: number; queries?: number } | null;
  projection?: { method: string; counts: { nodes: number; points: number } } | null;
}

export function headline(set: Embedding): Headline | null {
  return set.report as Headline | null;
}

export function indexOf(set: Embedding): IndexSummary | null {
  return set.index as IndexSummary | null;
}

/** As the scores of a report are named; what is not here is a training objective. */
export const BASELINES: Record<string, string> = {
  raw_features: "Raw features",
  ppr_smoothed: "PPR-smoothed features",
  random_encoder: "Random encoder",
  common_neighbors: "Common neighbours",
  adamic_adar: "Adamic–Adar",
};

/** The training objectives as people write them. */
export function scoreName(name: string): string {
  return BASELINES[name] ?? name.toUpperCase().replace("_", "-");
}

/** Of this set's own vectors, not of a baseline. */
export function ownAccuracy(set: Embedding): number | null {
  const scores = headline(set)?.test_accuracy ?? {};
  const own = Object.keys(scores).find((name) => !(name in BASELINES));
  return own === undefined ? null : (scores[own] ?? null);
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

export function Health({ set }: { set: Embedding }) {
  const report = headline(set);
  const health = report?.collapsed === undefined ? "unknown" : report.collapsed ? "collapsed" : "sound";
  return (
    <span class="soundness" data-soundness={health}>
      {health === "unknown" ? "Not evaluated" : health === "sound" ? "Sound" : "Collapsed"}
    </span>
  );
}

export function recallText(set: Embedding): string | null {
  const recall = indexOf(set)?.recall;
  return recall ? figure(recall.value) : null;
}

export function size(set: Embedding): string {
  return `${number(set.counts.nodes!)} × ${number(set.counts.dim!)}`;
}
