// Jobs: the list, one job, a new one, and several compared.

import type { PlaceProps } from "../app";
import { Compare } from "./compare";
import { JobList } from "./list";
import { NewJob } from "./new";
import { OneJob } from "./one";

export function Jobs({ path: [id], query }: PlaceProps) {
  if (id === undefined) return <JobList query={query} />;
  if (id === "new") return <NewJob query={query} />;
  if (id === "compare") return <Compare query={query} />;
  return <OneJob id={id} />;
}
