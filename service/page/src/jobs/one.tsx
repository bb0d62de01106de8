// One job, live: where it is, how its figures run, what it prints, and why it failed where it did.

import { useState } from "preact/hooks";

import { changed, post, send } from "../api/client";
import { useQuery } from "../api/query";
import type { Job } from "../api/types";
import { Chart } from "../components/chart";
import { confirm } from "../components/dialog";
import { Gone } from "../components/gone";
import { Named } from "../components/named";
import { Needs } from "../components/needs";
import { Empty, Loading, Note, ProblemNote, sentence, Words } from "../components/notes";
import { tell } from "../components/toasts";
import { Copy, type Fact, Facts, Panel, View } from "../components/view";
import { ago, between, bytes, duration, figure, moment, shortId } from "../format";
import { go, link } from "../router";
import { Events } from "./events";
import { useFeed, type Feed } from "./feed";
import { Log } from "./log";
import { Mentions } from "./mentions";
import { Bar, isActive, progressWords, speed, Status, trains } from "./status";

const BACK: [string, string] = ["Jobs", "#/jobs"];

export function OneJob({ id }: { id: string }) {
  const address = `/v1/jobs/${encodeURIComponent(id)}`;
  const { data: job, problem, refresh } = useQuery<Job>(address, 3000);
  const feed = useFeed(id, refresh);
  if (problem?.status === 404) return <Gone what="job" name={shortId(id)} back={BACK} />;
  if (!job) {
    return (
      <View title={shortId(id)} back={BACK}>
        {problem ? <ProblemNote problem={problem} /> : <Loading lines={8} />}
      </View>
    );
  }
  const live = asOfNow(job, feed.progress);
  return (
    <View title={job.name ?? shortId(job.id)} beside={<Status status={job.status} />} back={BACK} actions={<Actions job={job} />}>
      <ProblemNote problem={problem} />
      <Now job={live} />
      <div class="columns wide-left">
        <div class="stack">
          {trains(job) && <Figures feed={feed} job={live} />}
          <Panel title="Log">
            <Log job={live} />
          </Panel>
          <Panel title="Events">
            <Events events={feed.events} />
          </Panel>
        </div>
        <div class="stack">
          <Panel title="About">
            <Facts facts={facts(job)} />
          </Panel>
          <Panel title="Phases">
            <Phases job={job} />
          </Panel>
          <Panel title="Settings">
            <Settings spec={job.spec} />
          </Panel>
        </div>
      </div>
    </View>
  );
}

/** The job with the progress that it has told since it was asked for. */
function asOfNow(job: Job, progress: Job["progress"]): Job {
  if (!isActive(job) || !progress || progress.stage !== job.phase) return job;
  return { ...job, progress: { ...progress, compiling: Boolean(job.progress?.compiling) && !progress.rate } };
}

function Actions({ job }: { job: Job }) {
  const address = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const name = job.name ?? shortId(job.id);
  const cancel = () =>
    job.status !== "cancelling" &&
    confirm({
      title: `Cancel ${name}?`,
      text: "It is asked to end now. What its stages have made so far is not kept.",
      action: "Cancel job",
      run: async () => {
        await post(`${address}/cancel`);
        changed();
        tell(`${name} is asked to end`);
      },
    });
  const remove = () =>
    confirm({
      title: `Delete ${name}?`,
      text: "Its events, log and checkpoints go. What it made, such as an embedding set, stays.",
      action: "Delete job",
      run: async () => {
        await send(address, { method: "DELETE" });
        changed();
        tell(`Deleted ${name}`);
        go("#/jobs");
      },
    });
  return (
    <>
      {job.status === "succeeded" && job.embedding && (
        <a class="button primary" href={link(["embeddings", job.embedding])}>
          {job.transitions.some(({ phase }) => phase === "index") ? "See the map" : "See the embedding set"}
        </a>
      )}
      {trains(job) && (
        <a class="button" href={link(["jobs", "compare"], { id: job.id })}>
          Compare
        </a>
      )}
      <Needs scope="write">
        <a class="button" href={link(["jobs", "new"], { from: job.id })}>
          Run again
        </a>
        {isActive(job) ? (
          <button type="button" class="danger" aria-disabled={job.status === "cancelling"} onClick={cancel}>
            Cancel
          </button>
        ) : (
          <button type="button" class="danger" onClick={remove}>
            Delete
          </button>
        )}
      </Needs>
    </>
  );
}

/** The present moment of a job, or how it ended. */
function Now({ job }: { job: Job }) {
  return (
    <div class="now">
      {job.status === "queued" && (
        <Note kind="info">
          <p>
            {job.waiting_for ? <Mentions text={sentence(`waits: ${job.waiting_for.detail}`)} /> : "It starts in a moment."}
          </p>
          {job.retry_at && <p>The next try is at {moment(job.retry_at)}.</p>}
        </Note>
      )}
      {(job.status === "running" || job.status === "cancelling") && (
        <div class="now-running">
          <p aria-live="off">
            <strong>{progressWords(job)}</strong>
            <span class="soft">{speed(job)}</span>
          </p>
          <Bar job={job} />
        </div>
      )}
      {job.silent_since && <Note kind="warn">Nothing was heard of it since {moment(job.silent_since)}.</Note>}
      {job.health?.reason && (
        <Note kind="warn">
          <p>
            <strong>{job.health.state}</strong>: {job.health.reason}
          </p>
        </Note>
      )}
      {job.error && <Failure error={job.error} />}
    </div>
  );
}

function Failure({ error }: { error: NonNullable<Job["error"]> }) {
  const told: Fact[] = [
    ["Where", error.where],
    ["Given", error.given],
    ["Expected", error.expected],
    ["Phase", error.phase],
    ["Signal", error.signal],
    ["Code", <code>{error.code}</code>],
  ];
  return (
    <section class="failure" aria-label="Why it failed">
      <Note kind="bad">
        <p>
          <strong>
            <Words text={error.message} />
          </strong>
        </p>
        {error.remedy && (
          <p>
            <Words text={error.remedy} />
          </p>
        )}
      </Note>
      <Facts facts={told} />
    </section>
  );
}

function Figures({ feed, job }: { feed: Feed; job: Job }) {
  const names = [...feed.curves.keys()];
  const [chosen, setChosen] = useState("");
  const [log, setLog] = useState(false);
  const name = names.includes(chosen) ? chosen : names.includes("loss") ? "loss" : (names[0] ?? "");
  const curve = feed.curves.get(name);
  const last = curve?.values.findLast((value) => value !== null);
  return (
    <Panel
      title="Figures"
      actions={
        curve && (
          <div class="panel-tools">
            <strong class="figures">{last === undefined || last === null ? "" : figure(last)}</strong>
            <label class="check">
              <input type="checkbox" checked={log} onChange={(event) => setLog(event.currentTarget.checked)} />
              Log
            </label>
            <select aria-label="Figure" value={name} onChange={(event) => setChosen(event.currentTarget.value)}>
              {names.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </div>
        )
      }
    >
      {curve ? (
        <Chart
          label={`${name} over ${curve.steps.length} steps, last ${last === undefined || last === null ? "unknown" : figure(last)}`}
          curves={[curve]}
          log={log}
        />
      ) : (
        <div class="chart-none">
          <Empty title={isActive(job) ? "No figures so far" : "This job reported no figures"}>
            {isActive(job) && <p>Training reports its loss after the first epoch.</p>}
          </Empty>
        </div>
      )}
    </Panel>
  );
}

function facts(job: Job): Fact[] {
  const given = job.resources;
  return [
    ["Id", <Copy text={job.id} />],
    ["Kind", job.kind],
    ["Graph", <Named of="graphs" id={job.graph} />],
    ["Encoder", job.encoder && <a href={link(["embeddings", job.encoder])}>{shortId(job.encoder)}</a>],
    ["Embedding set", job.embedding && <a href={link(["embeddings", job.embedding])}>{shortId(job.embedding)}</a>],
    ["New graph", job.new_graph && <Named of="graphs" id={job.new_graph} />],
    ["Alias", job.alias && alias(job.alias, job)],
    ["Submitted", <span title={moment(job.created_at)}>{ago(job.created_at)}</span>],
    ["Took", job.started_at && duration(between(job.started_at, job.ended_at))],
    ["Attempt", job.attempt > 1 ? job.attempt : null],
    ["Priority", job.priority || null],
    ["Time limit", job.timeout_s && duration(job.timeout_s)],
    ["Cores", given?.cores],
    ["GPUs", given?.gpus || null],
    ["Memory", given && bytes(given.memory_bytes)],
    ["Disk", given && bytes(given.disk_bytes + given.bundle_bytes)],
    ...Object.entries(job.labels).map(([name, value]): Fact => [name, value]),
  ];
}

/** It is pointed at the set by the job's success, and by nothing before. */
function alias(name: string, job: Job) {
  if (job.status === "succeeded") return <a href={link(["embeddings", name])}>{name}</a>;
  return `${name}, ${isActive(job) ? "when it has succeeded" : "which it left as it was"}`;
}

/** How a phase ended, by the status after it; it was done where the job ran on. */
function ended(next: Job["status"] | undefined): Job["status"] {
  if (next === undefined) return "running";
  if (next === "cancelling") return "cancelled";
  return next === "running" ? "succeeded" : next;
}

/** Each phase and how long it took, of the last attempt. */
function Phases({ job }: { job: Job }) {
  const steps = job.transitions.filter((step) => step.attempt === job.attempt || step.phase === null);
  const phases = steps.flatMap((step, position) => {
    if (!step.phase || step.status !== "running") return [];
    const next = steps.slice(position + 1).find((later) => later.phase !== step.phase || later.status !== "running");
    return [{ phase: step.phase, from: step.at, to: next?.at ?? null, how: ended(next?.status) }];
  });
  if (phases.length === 0) return <p class="panel-body soft">It has not started.</p>;
  return (
    <ol class="phases">
      {phases.map(({ phase, from, to, how }) => (
        <li key={phase + from}>
          <span class="status" data-status={how}>
            {phase}
          </span>
          <span class="soft figures">{duration(between(from, to))}</span>
        </li>
      ))}
    </ol>
  );
}

function Settings({ spec }: { spec: Record<string, unknown> }) {
  return (
    <div class="settings">
      {Object.entries(spec).map(([stage, settings]) => (
        <details key={stage}>
          <summary>{stage}</summary>
          <pre class="text" tabIndex={0} role="region" aria-label={`Settings of ${stage}`}>
            {JSON.stringify(settings, null, 2)}
          </pre>
        </details>
      ))}
      {Object.keys(spec).length === 0 && <p class="panel-body soft">This kind of job has none.</p>}
    </div>
  );
}
