// Places of the page: `#/jobs/job_1?tab=log`. What comes before the `#` is the server's alone.

import { State, useValue } from "./state";

export interface Place {
  /** Decoded parts, the view's name first; empty for the overview. */
  path: string[];
  query: URLSearchParams;
}

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** An address typed by hand may hold a `%` that means nothing. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const place = new State<Place>(read());
addEventListener("hashchange", () => place.set(read()));

export function usePlace(): Place {
  return useValue(place);
}

/** The address of a place; parts are escaped, empty parameters left out. */
export function link(path: string[], query: Record<string, string | string[] | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one) parameters.append(name, one);
  }
  const text = parameters.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(address: string): void {
  location.hash = address;
}

/** Go without leaving a step to come back to: for filters and tabs. */
export function turn(address: string): void {
  history.replaceState(null, "", address);
  place.set(read());
}
