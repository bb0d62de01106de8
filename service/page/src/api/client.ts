// The API: JSON requests with the key they carry, and what went wrong as one message with its remedy.

import { State } from "../state";
import type { ProblemBody } from "./types";

const STORED = "rgrl-key";
/** What a header can hold: with any other character, fetch refuses to send at all. */
const KEY = /^[!-~]+$/;
let key = stored();

/** Why a key is asked for, while one is. */
export const keyWanted = new State<string | null>(null);
/** Whether the last request reached the server. */
export const reached = new State(true);
/** Grows whenever what was asked before may have changed: a key was given, or something was written. */
export const generation = new State(0);

export function changed(): void {
  generation.set(generation.value + 1);
}

function stored(): string | null {
  const value = sessionStorage.getItem(STORED);
  return value !== null && KEY.test(value) ? value : null;
}

/** Go on with this key; what can be none is asked for again. */
export function useKey(value: string): void {
  if (!KEY.test(value)) {
    keyWanted.set("This is no API key: one has only letters, digits and signs of ASCII. Copy it again, whole.");
    return;
  }
  key = value;
  sessionStorage.setItem(STORED, value);
  keyWanted.set(null);
  changed();
}

export function forgetKey(): void {
  key = null;
  sessionStorage.removeItem(STORED);
  changed();
}

export function hasKey(): boolean {
  return key !== null;
}

/** A refusal. `status` is 0 where the server did not answer at all. */
export class Problem extends Error {
  readonly remedy: string | null;
  readonly errors: ProblemBody["errors"];

  /** `body` may be anything: a proxy before the server refuses in words of its own. */
  constructor(
    readonly status: number,
    body: unknown,
  ) {
    const { detail, remedy, errors }: Record<string, unknown> = Object(body);
    super(isText(detail) ? detail : `The server answered with status ${status}.`);
    this.remedy = isText(remedy) ? remedy : null;
    this.errors = Array.isArray(errors) ? errors.filter((one) => isText(one?.pointer) && isText(one?.detail)) : [];
  }
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

export interface Options {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Send a request; the answer is one of success. A `Problem` otherwise, an `AbortError` after `signal`. */
export async function send(path: string, { method = "GET", body, headers = {}, signal }: Options = {}): Promise<Response> {
  const used = key;
  const sent: Record<string, string> = { ...headers };
  if (used) sent.Authorization = `Bearer ${used}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response: Response;
  try {
    const text = body === undefined ? null : JSON.stringify(body);
    response = await fetch(path, { method, headers: sent, body: text, signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw error;
    reached.set(false);
    throw new Problem(0, {
      detail: "the server does not answer",
      remedy: "look whether rgrl serve runs and this machine reaches it; the page goes on asking",
    });
  }
  reached.set(true);
  if (response.ok) return response;
  const problem = new Problem(response.status, await response.json().catch(() => null));
  // What refuses a key that another has taken the place of since is no word on that one.
  if (problem.status === 401 && used === key) keyWanted.set(key === null ? "This server needs an API key." : problem.message);
  throw problem;
}

export async function get<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  return read(await send(path, signal ? { signal } : {}), signal);
}

export async function post<Answer>(path: string, body?: unknown): Promise<Answer> {
  return read(await send(path, { method: "POST", body }));
}

/** The JSON of a success; a `Problem` where it is none. */
export async function read(response: Response, signal?: AbortSignal): Promise<any> {
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(response.status, {
      detail: `the answer of status ${response.status} is no JSON`,
      remedy: "look whether a proxy before the server answers in its place",
    });
  }
}
