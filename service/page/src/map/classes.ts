// What points are coloured by: every point is of one class, and a class has a name and a colour.

import { plural } from "../format";
import { KINDS, OTHER, steps } from "./palette";

export interface Classes {
  readonly names: readonly string[];
  readonly counts: readonly number[];
  /** The class of each point. */
  readonly codes: Uint16Array;
  /** How the colours are chosen: by a scale, or each its own; `unknown` is the class of points without a value. */
  readonly scale: "kinds" | "steps";
  readonly unknown: number | null;
}

const NATURAL = new Intl.Collator("en", { numeric: true });

/**
 * The labels in the order of their names, `topic 2` before `topic 10`. Of more than there are colours, those of fewest
 * points are one class, the others.
 */
export function byLabel(labels: readonly (string | null)[]): Classes {
  const counts = new Map<string | null, number>();
  for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1);
  const without = counts.get(null);
  counts.delete(null);
  const ranked = [...counts.keys()].sort((one, other) => counts.get(other)! - counts.get(one)!) as string[];
  const left = Math.max(0, ranked.length - KINDS.length);
  const names = ranked.slice(0, KINDS.length).sort(NATURAL.compare);
  const places = new Map<string | null, number>(names.map((name, place) => [name, place]));
  if (left) names.push(`others (${plural(left, "label")})`);
  const rest = names.length - 1;
  if (without !== undefined) places.set(null, names.push("unknown") - 1);
  const codes = Uint16Array.from(labels, (label) => places.get(label) ?? rest);
  return counted(names, codes, "kinds", without === undefined ? null : names.length - 1);
}

/** Degrees 0, 1, 2–3, 4–7, 8–15, …, as in the report. */
export function byDegree(degrees: ArrayLike<number>): Classes {
  const bucket = (degree: number) => (degree === 0 ? 0 : Math.floor(Math.log2(degree)) + 1);
  const buckets = Uint16Array.from(degrees, bucket);
  const there = [...new Set(buckets)].sort((one, other) => one - other);
  const places = new Map(there.map((bucket, place) => [bucket, place]));
  const codes = buckets.map((bucket) => places.get(bucket)!);
  return counted(there.map(degreeRange), codes, "steps", null);
}

function degreeRange(bucket: number): string {
  const least = bucket === 0 ? 0 : 2 ** (bucket - 1);
  const most = bucket === 0 ? 0 : 2 ** bucket - 1;
  return least === most ? `${least}` : `${least}–${most}`;
}

/** All points alike. */
export function asOne(name: string, count: number): Classes {
  return counted([name], new Uint16Array(count), "kinds", null);
}

function counted(names: string[], codes: Uint16Array, scale: Classes["scale"], unknown: number | null): Classes {
  const counts = new Array<number>(names.length).fill(0);
  for (const code of codes) counts[code]! += 1;
  return { names, counts, codes, scale, unknown };
}

/** 0xRRGGBB by class. Kinds have colours of their own, what is of none of them is grey. */
export function colorsOf({ names, scale, unknown }: Classes, dark: boolean): number[] {
  if (scale === "steps") return steps(names.length, dark);
  return names.map((_, code) => (code === unknown ? OTHER : (KINDS[code] ?? OTHER))[dark ? 1 : 0]);
}
