// What a view asks for: kept while it is asked for anew, asked again as time goes by, after a write, and after the
// server was away.

import { useEffect, useRef, useState } from "preact/hooks";

import { generation, get, Problem } from "./client";
import type { Items } from "./types";

const RETRY_MS = 2000;
// The last answer of each path: a view that was open before shows it at once, while it asks again.
const answers = new Map<string, unknown>();

export interface Query<Answer> {
  /** Undefined until the first answer. */
  data: Answer | undefined;
  /** Why the last request failed; what came before it stays in `data`. */
  problem: Problem | null;
  refresh: () => void;
}

/** Ask `path` now and every `every` milliseconds while the page is looked at; nothing while `path` is null. */
export function useQuery<Answer>(path: string | null, every = 0): Query<Answer> {
  return useAsked(path, every, (signal) => get<Answer>(path!, signal));
}

/** A whole list, however many pages it has. */
export function useAll<Item>(path: string, every = 0): Query<Items<Item>> {
  return useItems(path, Infinity, every);
}

/** The first `pages` pages of a list as one. */
export function useItems<Item>(path: string, pages: number, every = 0): Query<Items<Item>> {
  return useAsked(`${path}#${pages}`, every, async (signal) => {
    const items: Item[] = [];
    let cursor: string | null = null;
    for (let page = 0; page < pages; page += 1) {
      const join: string = path.includes("?") ? "&" : "?";
      const found: Items<Item> = await get(cursor ? `${path}${join}cursor=${encodeURIComponent(cursor)}` : path, signal);
      items.push(...found.items);
      cursor = found.next_cursor;
      if (cursor === null) break;
    }
    return { items, next_cursor: cursor };
  });
}

/** Ask a `question` of several requests; `name` tells it from others, and is another where the question is. */
export function useAsked<Answer>(
  name: string | null,
  every: number,
  question: (signal: AbortSignal) => Promise<Answer>,
): Query<Answer> {
  const [state, setState] = useState<{ name: string | null; data?: Answer; problem: Problem | null }>({
    name,
    problem: null,
  });
  const ask = useRef(() => {});

  useEffect(() => {
    if (name === null) return undefined;
    const stop = new AbortController();
    let timer = 0;
    let round = 0;
    ask.current = async () => {
      clearTimeout(timer);
      round += 1;
      const mine = round;
      let wait = every;
      try {
        const data = await question(stop.signal);
        if (mine !== round || stop.signal.aborted) return;
        answers.set(name, data);
        setState({ name, data, problem: null });
      } catch (error) {
        if (stop.signal.aborted || mine !== round) return;
        if (!(error instanceof Problem)) throw error;
        // A key is being asked for, or the page says that the server is away: what is shown stays. Without a key,
        // nothing is asked until one is given.
        if (error.status === 401) wait = 0;
        // What is gone is not asked for again, nor shown as it was.
        const gone = error.status === 404;
        if (gone) {
          wait = 0;
          answers.delete(name);
        }
        const shown = error.status === 0 || error.status === 401 ? null : error;
        setState((before) => (gone ? { name, problem: shown } : { ...before, name, problem: shown }));
        if (error.status === 0 || error.status === 429 || error.status >= 500) wait = RETRY_MS;
      }
      if (wait && !document.hidden) timer = window.setTimeout(ask.current, wait);
    };
    const back = () => {
      if (!document.hidden) ask.current();
    };
    document.addEventListener("visibilitychange", back);
    const leave = generation.follow(() => ask.current());
    ask.current();
    return () => {
      stop.abort();
      clearTimeout(timer);
      leave();
      document.removeEventListener("visibilitychange", back);
    };
  }, [name, every]);

  // What was kept under another name is not the answer to this one.
  const mine = state.name === name ? state : { data: undefined, problem: null };
  const kept = name === null ? undefined : (answers.get(name) as Answer | undefined);
  return { data: mine.data ?? kept, problem: mine.problem, refresh: () => ask.current() };
}
