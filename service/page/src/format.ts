// Figures, times and sizes as people read them.

import type { Embedding } from "./api/types";

export function number(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 2 });
}

/** Four figures, whatever the size: 0.01234, 12.34, 1.234e-7. */
export function figure(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

/** A count with its thousands set apart, a measure by four figures. */
export function quantity(value: number): string {
  return Number.isInteger(value) ? number(value) : figure(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Seconds from one moment to another, or to now. */
export function between(start: string, end: string | null): number {
  return Math.max(0, ((end ? Date.parse(end) : Date.now()) - Date.parse(start)) / 1000);
}

export function ago(moment: string): string {
  const seconds = between(moment, null);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(moment).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

export function moment(text: string): string {
  return new Date(text).toLocaleString("en", { dateStyle: "medium", timeStyle: "medium", hour12: false });
}

/** An id is long and sorts by time: its end tells it from the others. */
export function shortId(id: string): string {
  const [kind, rest = ""] = id.split("_");
  return rest.length > 8 ? `${kind}_…${rest.slice(-6)}` : id;
}

/** What an embedding set is called: by its own name, its job's, or its graph's. */
export function setName(set: Pick<Embedding, "name" | "job_name" | "graph_name">): string | null {
  return set.name ?? set.job_name ?? set.graph_name;
}

/** An embedding set where one is chosen from many. */
export function setLabel(set: Embedding): string {
  return [setName(set), ...set.aliases, shortId(set.id)].filter(Boolean).join(" · ");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}
