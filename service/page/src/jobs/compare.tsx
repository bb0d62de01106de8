// Figures of several jobs over each other, and how the jobs differ.

import { useRef, useState } from "preact/hooks";

import { get, Problem } from "../api/client";
import { useAsked, useQuery } from "../api/query";
import type { Embedding, Items, Job, Metrics } from "../api/types";
import { Chart, type Curve, SERIES, seriesColor } from "../components/chart";
import { Empty, Loading, Note, ProblemNote } from "../components/notes";
import { type Column, Table } from "../components/table";
import { Panel, View } from "../components/view";
import { figure, shortId } from "../format";
import { link, turn } from "../router";
import { Differences } from "./differences";
import { Status } from "./status";

const POINTS = 600;

interface Compared {
  job: Job;
  series: Metrics["series"];
  set: Embedding | null;
}

export function Compare({ query }: { query: URLSearchParams }) {
  const ids = [...new Set(query.getAll("id"))].slice(0, SERIES);
  const [figureName, setFigure] = useState("loss");
  const [log, setLog] = useState(false);
  const gone = useRef(new Set<string>()).current;
  const { data, problem } = useAsked<Compared[]>(`compare ${ids.join(" ")}`, 4000, async (signal) => {
    const there = ids.filter((id) => !gone.has(id));
    const found = await Promise.all(there.map((id) => compared(id, signal)));
    there.filter((_, position) => found[position] === null).forEach((id) => gone.add(id));
    return found.filter((one) => one !== null);
  });
  const [last, setLast] = useState(data);
  if (data && data !== last) setLast(data);
  // While others are asked for, those that stay are shown.
  const kept = last?.filter(({ job }) => ids.includes(job.id)) ?? [];
  const shown = data ?? (kept.length > 0 ? kept : undefined);
  const missed = ids.filter((id) => gone.has(id));
  const { data: others } = useQuery<Items<Job>>("/v1/jobs?limit=100&kind=train&kind=pipeline");
  const show = (wanted: string[]) => turn(link(["jobs", "compare"], { id: wanted }));
  const names = [...new Set(shown?.flatMap(({ series }) => series.map(({ name }) => name)))];
  const name = names.includes(figureName) ? figureName : (names[0] ?? "");
  const rows = (shown ?? []).map(({ job, series, set }, position) => {
    const found = series.find((one) => one.name === name);
    const curve = { name: job.name ?? shortId(job.id), steps: found?.steps ?? [], values: found?.values ?? [] };
    return { job, set, curve, position };
  });

  return (
    <View
      title="Compare"
      back={["Jobs", "#/jobs"]}
      actions={
        <select
          aria-label="Add a job"
          value=""
          disabled={ids.length >= SERIES}
          onChange={(event) => show([...ids, event.currentTarget.value])}
        >
          <option value="">Add a job …</option>
          {others?.items
            .filter(({ id }) => !ids.includes(id))
            .map((job) => (
              <option key={job.id} value={job.id}>
                {[job.name, shortId(job.id), job.status].filter(Boolean).join(" · ")}
              </option>
            ))}
        </select>
      }
    >
      <ProblemNote problem={problem} />
      {ids.length === 0 && (
        <Empty title="No job is chosen">
          <p>Add jobs above, or tick them in the list of jobs.</p>
        </Empty>
      )}
      {ids.length >= SERIES && <Note kind="info">More than {SERIES} curves could not be told apart.</Note>}
      {missed.length > 0 && (
        <Note kind="warn">
          {missed.map(shortId).join(", ")} {missed.length === 1 ? "is" : "are"} gone: deleted, or never there.{" "}
          <a href={link(["jobs", "compare"], { id: ids.filter((id) => !gone.has(id)) })}>Compare the others alone</a>
        </Note>
      )}
      {ids.length > 0 && !shown && !problem && <Loading lines={8} />}
      {shown && ids.length > 0 && (
        <>
          <Panel
            title="Figures"
            actions={
              <div class="panel-tools">
                <label class="check">
                  <input type="checkbox" checked={log} onChange={(event) => setLog(event.currentTarget.checked)} />
                  Log
                </label>
                {names.length > 0 && (
                  <select aria-label="Figure" value={name} onChange={(event) => setFigure(event.currentTarget.value)}>
                    {names.map((one) => (
                      <option key={one}>{one}</option>
                    ))}
                  </select>
                )}
              </div>
            }
          >
            {names.length > 0 ? (
              <Chart
                label={`${name} of ${rows.map(({ curve }) => curve.name).join(", ")}`}
                curves={rows.map(({ curve }) => curve)}
                height={360}
                log={log}
              />
            ) : (
              <Empty title="None of these jobs has reported a figure" />
            )}
          </Panel>
          <Panel title="Jobs">
            <Table
              caption="Compared jobs"
              columns={columns((id) => show(ids.filter((other) => other !== id)))}
              rows={rows}
              rowKey={({ job }) => job.id}
            />
          </Panel>
          {rows.length > 1 && (
            <Differences jobs={rows.map(({ job, set, curve }) => ({ name: curve.name, spec: job.spec, set }))} />
          )}
        </>
      )}
    </View>
  );
}

/** Null for a job that there is not. */
async function compared(id: string, signal: AbortSignal): Promise<Compared | null> {
  const address = `/v1/jobs/${encodeURIComponent(id)}`;
  const found = await unlessGone(
    Promise.all([get<Job>(address, signal), get<Metrics>(`${address}/metrics?max_points=${POINTS}`, signal)]),
  );
  if (!found) return null;
  const [job, { series }] = found;
  const set = job.embedding ? await unlessGone(get<Embedding>(`/v1/embeddings/${job.embedding}`, signal)) : null;
  return { job, series, set };
}

async function unlessGone<Answer>(asked: Promise<Answer>): Promise<Answer | null> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

interface Row {
  job: Job;
  set: Embedding | null;
  curve: Curve;
  position: number;
}

function columns(drop: (id: string) => void): Column<Row>[] {
  const known = ({ values }: Curve) => values.filter((value) => value !== null);
  return [
    {
      head: "Job",
      cell: ({ job, curve, position }) => (
        <a class="key" href={link(["jobs", job.id])}>
          <i style={{ background: `var(${seriesColor(position)})` }} />
          {curve.name}
        </a>
      ),
    },
    { head: "Status", cell: ({ job }) => <Status status={job.status} />, wide: true },
    { head: "Steps", cell: ({ curve }) => curve.steps.at(-1) ?? "–", number: true, wide: true },
    { head: "Least", cell: ({ curve }) => (known(curve).length ? figure(Math.min(...known(curve))) : "–"), number: true },
    { head: "Last", cell: ({ curve }) => (known(curve).length ? figure(known(curve).at(-1)!) : "–"), number: true },
    {
      head: "Actions",
      mute: true,
      number: true,
      cell: ({ job, curve }) => (
        <button type="button" aria-label={`Leave out ${curve.name}`} onClick={() => drop(job.id)}>
          Leave out
        </button>
      ),
    },
  ];
}
