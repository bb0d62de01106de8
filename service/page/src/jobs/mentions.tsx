// The server's words about jobs: each job's id in them is a link that bears its name.

import { useQuery } from "../api/query";
import type { Job } from "../api/types";
import { shortId } from "../format";
import { link } from "../router";

export function Mentions({ text }: { text: string }) {
  return <>{text.split(/(job_\w+)/).map((part, position) => (position % 2 ? <NamedJob key={part} id={part} /> : part))}</>;
}

function NamedJob({ id }: { id: string }) {
  const { data } = useQuery<Job>(`/v1/jobs/${id}`);
  return (
    <a href={link(["jobs", id])} title={id}>
      {data?.name ?? shortId(id)}
    </a>
  );
}
