// A job or a graph that is known by its id: a link that bears its name, once that is known.

import { useQuery } from "../api/query";
import { shortId } from "../format";
import { link } from "../router";

export function Named({ of, id }: { of: "jobs" | "graphs"; id: string }) {
  const { data } = useQuery<{ name: string | null }>(`/v1/${of}/${encodeURIComponent(id)}`);
  return (
    <a href={link([of, id])} title={id}>
      {data?.name ?? shortId(id)}
    </a>
  );
}
