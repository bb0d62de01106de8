// What the page's key may do, as the server tells it; a server without keys lets everyone do everything.

import { useEffect } from "preact/hooks";

import { State, useValue } from "../state";
import { useQuery } from "./query";
import type { OwnKey, Scope } from "./types";

const own = new State<OwnKey | null>(null);

/** Asked once, by the frame of all views. */
export function useAskOwnKey(): void {
  const { data } = useQuery<OwnKey>("/v1/key");
  useEffect(() => own.set(data ?? null), [data]);
}

/** Null until the server has answered. */
export function useOwnKey(): OwnKey | null {
  return useValue(own);
}

/** Whether the key has the scope; true until that is known. */
export function useMay(scope: Scope): boolean {
  const key = useOwnKey();
  return key === null || key.scopes.includes(scope);
}
