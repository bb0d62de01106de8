// The end of what a job printed; it stays at the end, unless one has scrolled up to read.

import { useLayoutEffect, useRef } from "preact/hooks";

import { useQuery } from "../api/query";
import type { Job } from "../api/types";
import { ProblemNote } from "../components/notes";
import { isActive } from "./status";

const LINES = 400;
const NEAR_PX = 40;

export function Log({ job }: { job: Job }) {
  const every = isActive(job) ? 2000 : 0;
  // Asked once more when the job has ended: its last lines came after the last look.
  const path = `/v1/jobs/${encodeURIComponent(job.id)}/logs?tail=${LINES}`;
  const { data, problem } = useQuery<{ lines: string[] }>(path, every);
  const text = data?.lines.join("\n") ?? "";
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return (
    <>
      <ProblemNote problem={problem} />
      <pre
        ref={box}
        class={isActive(job) ? "text log live" : "text log"}
        tabIndex={0}
        role="region"
        aria-label="End of the log"
        onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
          atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
        }}
      >
        {text.trim() ? text : data && (isActive(job) ? "Nothing was logged yet." : "Nothing was logged.")}
      </pre>
    </>
  );
}
