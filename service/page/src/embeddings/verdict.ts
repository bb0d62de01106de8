// What the probe's scores come to: whether training has gained anything over what needs none, in one sentence.

import { scoreName } from "./facts";

/** Mean and deviation over the probe's splits, fractions of 1. */
export interface Score {
  test_mean: number;
  test_std: number;
}

/** As a subject of a sentence, and whether it is one thing. */
const NAMES: Record<string, [string, boolean]> = {
  raw_features: ["raw features", false],
  ppr_smoothed: ["PPR-smoothed features", false],
  random_encoder: ["the random encoder", true],
};

/**
 * Two scores are as good where they differ by no more than the larger of their deviations, or by less than is told of a
 * difference. Null where there is nothing to compare with.
 */
export function verdict(objective: string, own: Score, baselines: Record<string, Score | null>): string | null {
  const kinds: Record<"better" | "alike" | "worse", string[]> = { better: [], alike: [], worse: [] };
  let least = Infinity;
  let most = 0;
  let within = "within the spread of the splits";
  for (const [name, score] of Object.entries(baselines)) {
    if (!score) continue;
    const gain = own.test_mean - score.test_mean;
    // What was computed by another order of sums is no difference.
    const spread = Math.max(own.test_std, score.test_std) + 1e-9;
    const beyond = Math.abs(gain) > spread;
    if (beyond && tenths(Math.abs(gain)) < 1) within = "within 0.1 points or the spread of the splits";
    const kind = !beyond || tenths(Math.abs(gain)) < 1 ? "alike" : gain > 0 ? "worse" : "better";
    kinds[kind].push(name);
    if (kind === "worse") least = Math.min(least, gain);
    if (kind === "better") most = Math.max(most, -gain);
  }
  const trained = scoreName(objective);
  const clauses: string[] = [];
  if (kinds.better.length) {
    clauses.push(`${subject(kinds.better)} better than ${trained} by ${kinds.better.length > 1 ? "up to " : ""}${points(most)}`);
  }
  if (kinds.alike.length) clauses.push(`${subject(kinds.alike)} as good as ${trained} ${within}`);
  if (kinds.worse.length) {
    clauses.push(`${trained} is better than ${named(kinds.worse)} by ${kinds.worse.length > 1 ? "at least " : ""}${points(least)}`);
  }
  return clauses.length ? clauses.join("; ") : null;
}

function subject(names: string[]): string {
  const one = names.length === 1 && (NAMES[names[0]!]?.[1] ?? true);
  return `${named(names)} ${one ? "is" : "are"}`;
}

function named(names: string[]): string {
  const known = names.map((name) => NAMES[name]?.[0] ?? scoreName(name));
  return known.length < 2 ? known.join("") : `${known.slice(0, -1).join(", ")} and ${known.at(-1)}`;
}

/** Whole tenths of a point, rounded down: a difference is never told larger than it is. */
function tenths(share: number): number {
  return Math.floor(1000 * share + 1e-6);
}

function points(share: number): string {
  const text = (tenths(share) / 10).toFixed(1);
  return `${text} ${text === "1.0" ? "point" : "points"}`;
}
