import { useQuery } from "../api/query";
import type { Items, Job } from "../api/types";
import { plural } from "../format";

export function JobsNow() {
  const { data } = useQuery<Items<Job>>("/v1/jobs?status=running", 2000);
  return <p>{data && plural(data.items.length, "job runs", "jobs run")}</p>;
}
