// What a job says, as it says it: its events by one stream, from the first on, gathered as a view shows them.

import { useEffect, useState } from "preact/hooks";

import { follow, type Message } from "../api/events";
import type { Job, JobEvent } from "../api/types";
import type { Curve } from "../components/chart";

/** The latest are kept: of a long training there are many. */
const KEPT = 300;

export interface Feed {
  /** All but figures and progress, the latest last. */
  events: JobEvent[];
  /** By the figure's name; a step done twice has its last value. */
  curves: Map<string, Curve>;
  progress: Job["progress"];
  ended: boolean;
}

/** `onStep` is called where the job itself has changed: with each stage, and in the end. */
export function useFeed(id: string, onStep: () => void): Feed {
  const [feed, setFeed] = useState<Feed>({ events: [], curves: new Map(), progress: null, ended: false });
  useEffect(() => {
    const stop = new AbortController();
    const figures = new Map<string, Map<number, number | null>>();
    follow(`/v1/jobs/${encodeURIComponent(id)}/events`, stop.signal, (messages) => {
      setFeed((before) => gathered(before, messages, figures));
      if (messages.some(({ type }) => type !== "progress" && type !== "metrics")) onStep();
    });
    return () => stop.abort();
  }, [id]);
  return feed;
}

function gathered(before: Feed, messages: Message[], figures: Map<string, Map<number, number | null>>): Feed {
  const { events, ...rest } = before;
  const next = { ...rest, events: [...events] };
  for (const { type, data } of messages) {
    if (type === "end") next.ended = true;
    else if (type === "progress") next.progress = { stage: data.stage, ...data.data };
    else if (type === "metrics") {
      for (const [name, value] of Object.entries<number | null>(data.data.values)) {
        if (!figures.has(name)) figures.set(name, new Map());
        figures.get(name)!.set(data.data.step, value);
      }
    } else next.events.push({ ...data, event: type });
  }
  next.events = next.events.slice(-KEPT);
  if (messages.some(({ type }) => type === "metrics")) next.curves = curves(figures);
  return next;
}

function curves(figures: Map<string, Map<number, number | null>>): Map<string, Curve> {
  return new Map(
    [...figures].map(([name, points]) => {
      const sorted = [...points].sort(([one], [other]) => one - other);
      return [name, { name, steps: sorted.map(([step]) => step), values: sorted.map(([, value]) => value) }];
    }),
  );
}
