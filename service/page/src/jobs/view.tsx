// Jobs: the list, one job, a new one, and several compared.

import type { PlaceProps } from "../app";
import { JobList } from "./list";

export function Jobs({ query }: PlaceProps) {
  return <JobList query={query} />;
}
