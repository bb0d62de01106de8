// The jobs there are, by status and kind; some of them chosen to be compared.

import { useState } from "preact/hooks";

import type { Job, JobKind } from "../api/types";
import { Needs } from "../components/needs";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, between, duration, plural, shortId } from "../format";
import { link, turn } from "../router";
import { Bar, STATUSES, standing, Status, trains } from "./status";

const KINDS: JobKind[] = ["pipeline", "ingest", "append", "preprocess", "train", "embed", "evaluate", "index"];

export function JobList({ query }: { query: URLSearchParams }) {
  const status = query.get("status") ?? "";
  const kind = query.get("kind") ?? "";
  const [chosen, setChosen] = useState<string[]>([]);
  const asked = new URLSearchParams();
  if (status) asked.set("status", status);
  if (kind) asked.set("kind", kind);
  const filter = (change: { status?: string; kind?: string }) => turn(link(["jobs"], { status, kind, ...change }));
  const filtered = Boolean(status || kind);

  const columns: Column<Job>[] = [
    {
      head: "Compare",
      mute: true,
      cell: (job) =>
        trains(job) && (
          <input
            type="checkbox"
            aria-label={`Compare ${job.name ?? job.id}`}
            checked={chosen.includes(job.id)}
            onChange={(event) => {
              const rest = chosen.filter((id) => id !== job.id);
              setChosen(event.currentTarget.checked ? [...rest, job.id] : rest);
            }}
          />
        ),
    },
    {
      head: "Job",
      cell: (job) => (
        <a href={link(["jobs", job.id])} title={job.id}>
          {job.name ?? shortId(job.id)}
        </a>
      ),
    },
    { head: "Kind", cell: (job) => job.kind, wide: true },
    { head: "Status", cell: (job) => <Status status={job.status} /> },
    {
      head: "Where it stands",
      wide: true,
      cell: (job) => (
        <div class="standing">
          <span>{standing(job)}</span>
          {job.status === "running" && <Bar job={job} />}
        </div>
      ),
    },
    { head: "Submitted", cell: (job) => ago(job.created_at), number: true, wide: true },
    {
      head: "Took",
      cell: (job) => (job.started_at ? duration(between(job.started_at, job.ended_at)) : "–"),
      number: true,
    },
  ];

  return (
    <View
      title="Jobs"
      actions={
        <Needs scope="write">
          <a class="button primary" href="#/jobs/new">
            New job
          </a>
        </Needs>
      }
    >
      <div class="filters">
        <select aria-label="Status" value={status} onChange={(event) => filter({ status: event.currentTarget.value })}>
          <option value="">Any status</option>
          {STATUSES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <select aria-label="Kind" value={kind} onChange={(event) => filter({ kind: event.currentTarget.value })}>
          <option value="">Any kind</option>
          {KINDS.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        {filtered && (
          <button type="button" onClick={() => filter({ status: "", kind: "" })}>
            Show all
          </button>
        )}
        {chosen.length > 0 && (
          <a class="button" href={link(["jobs", "compare"], { id: chosen })}>
            {`Compare ${plural(chosen.length, "job")}`}
          </a>
        )}
      </div>
      <ListTable<Job>
        caption="Jobs, newest first"
        path={`/v1/jobs?${asked}`}
        every={2000}
        columns={columns}
        rowKey={(job) => job.id}
        empty={
          filtered ? (
            <Empty title="No job is of this status and kind" />
          ) : (
            <Empty title="No jobs yet">
              <p>
                A job is a piece of work on a graph: the pipeline does everything from tables to an index.{" "}
                <a href="#/jobs/new">Submit the first one</a>, or by command: <code>rgrl jobs submit pipeline --graph PATH</code>
              </p>
            </Empty>
          )
        }
      />
    </View>
  );
}
