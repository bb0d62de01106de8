// What the machine is doing now, and what wants looking at.

import type { ComponentChildren } from "preact";

import { useQuery } from "../api/query";
import type { Alias, Embedding, Graph, Info, Items, Job, Ready } from "../api/types";
import { Needs } from "../components/needs";
import { Empty, Loading, Note, sentence } from "../components/notes";
import { Facts, Panel, View } from "../components/view";
import { ago, between, bytes, duration, shortId } from "../format";
import { Mentions } from "../jobs/mentions";
import { Bar, progressWords, Status } from "../jobs/status";
import { link } from "../router";

const LIVE_MS = 2000;
const CALM_MS = 10_000;

export function Overview() {
  const { data: jobs } = useQuery<Items<Job>>("/v1/jobs?limit=50", LIVE_MS);
  // Of the many jobs since, one of these may be the oldest.
  const { data: active } = useQuery<Items<Job>>(
    "/v1/jobs?status=running&status=cancelling&status=queued&limit=100",
    LIVE_MS,
  );
  const { data: graphs } = useQuery<Items<Graph>>("/v1/graphs?limit=200", CALM_MS);
  const { data: sets } = useQuery<Items<Embedding>>("/v1/embeddings?limit=200", CALM_MS);
  const { data: aliases } = useQuery<Items<Alias>>("/v1/aliases", CALM_MS);
  const { data: ready } = useQuery<Ready>("/readyz", CALM_MS);
  const running = active?.items.filter(({ status }) => status !== "queued") ?? [];
  // The oldest starts first, save for its priority.
  const queued = active?.items.filter(({ status }) => status === "queued").toSorted(sooner) ?? [];
  const ended = jobs?.items.filter(({ ended_at }) => ended_at) ?? [];
  const failed = ended.filter(({ status }) => status === "failed");
  const begins = graphs?.items.length === 0 && jobs?.items.length === 0;

  return (
    <View
      title="Overview"
      actions={
        <Needs scope="write">
          <a class="button primary" href="#/jobs/new">
            New job
          </a>
        </Needs>
      }
    >
      {ready?.causes.map((cause) => (
        <Note kind="warn" key={cause}>
          {sentence(cause)}
        </Note>
      ))}
      <ul class="tiles">
        <Tile name="Running" value={active && running.length} address={link(["jobs"], { status: "running" })} />
        <Tile name="Queued" value={active && queued.length} address={link(["jobs"], { status: "queued" })} />
        <Tile name="Failed lately" value={jobs && failed.length} address={link(["jobs"], { status: "failed" })} />
        <Tile name="Graphs" value={counted(graphs)} address="#/graphs" />
        <Tile name="Embedding sets" value={counted(sets)} address="#/embeddings" />
        <Tile name="Aliases" value={counted(aliases)} address="#/aliases" />
      </ul>
      <div class="columns wide-left">
        <div class="stack">
          {begins ? (
            <Begin />
          ) : (
            <Panel title="Running now">
              {!active && <Loading lines={3} />}
              {active && running.length === 0 && (
                <Empty title="Nothing runs">
                  <p>{queued.length ? "The next job starts in a moment, or says below what it waits for." : "The machine is free."}</p>
                </Empty>
              )}
              {running.length > 0 && (
                <ul class="cards">
                  {running.map((job) => (
                    <Running key={job.id} job={job} />
                  ))}
                </ul>
              )}
            </Panel>
          )}
          {queued.length > 0 && (
            <Panel title="Queued">
              <ul class="links">
                {queued.slice(0, 8).map((job) => (
                  <li key={job.id}>
                    <JobLink job={job} />
                    <span class="soft">
                      <Mentions text={job.waiting_for?.detail ?? "waits"} />
                    </span>
                  </li>
                ))}
              </ul>
            </Panel>
          )}
          {ended.length > 0 && (
            <Panel title="Ended lately">
              <ul class="links">
                {ended.slice(0, 8).map((job) => (
                  <li key={job.id}>
                    <Status status={job.status} />
                    <JobLink job={job} />
                    <span class="soft grow">{job.error?.message}</span>
                    <span class="soft figures nowrap">{job.ended_at && ago(job.ended_at)}</span>
                  </li>
                ))}
              </ul>
            </Panel>
          )}
        </div>
        <Machine ready={ready} />
      </div>
    </View>
  );
}

function sooner(one: Job, other: Job): number {
  return other.priority - one.priority || Date.parse(one.created_at) - Date.parse(other.created_at);
}

function counted(list: Items<unknown> | undefined): string | undefined {
  return list && `${list.items.length}${list.next_cursor ? "+" : ""}`;
}

function Tile({ name, value, address }: { name: string; value: ComponentChildren; address: string }) {
  return (
    <li>
      <a class="tile" href={address}>
        <span>{name}</span>
        <strong>{value ?? "\u00a0"}</strong>
      </a>
    </li>
  );
}

function JobLink({ job }: { job: Job }) {
  return (
    <a class="strong" href={link(["jobs", job.id])} title={job.id}>
      {job.name ?? `${job.kind} ${shortId(job.id)}`}
    </a>
  );
}

function Running({ job }: { job: Job }) {
  return (
    <li>
      <p>
        <JobLink job={job} />
        <span class="soft figures">{job.started_at && duration(between(job.started_at, null))}</span>
      </p>
      <Bar job={job} />
      <p class="soft figures">
        <span>{progressWords(job)}</span>
        {job.health?.reason && <span>{job.health.state}</span>}
      </p>
    </li>
  );
}

/** The first steps, while there is nothing. */
function Begin() {
  return (
    <Panel title="Begin here">
      <ol class="steps">
        <li>
          <a href="#/graphs?new=1">Register a graph</a>
          <p>By the path of its edge and node tables, under a data root of this server.</p>
        </li>
        <li>
          <a href="#/jobs/new">Submit a pipeline</a>
          <p>It reads the tables, trains, evaluates, and makes the result searchable. What it takes is told before.</p>
        </li>
        <li>
          <a href="#/embeddings">Look at the map</a>
          <p>Every node in two dimensions, its nearest, and whom it is not connected to yet.</p>
        </li>
      </ol>
    </Panel>
  );
}

function Machine({ ready }: { ready: Ready | undefined }) {
  const { data: info } = useQuery<Info>("/v1/info");
  return (
    <Panel title="This server">
      {!info && <Loading lines={6} />}
      {info && (
        <Facts
          facts={[
            ["State", ready && <Health status={ready.status} />],
            ["Cores", info.machine.cores],
            ["Memory", bytes(info.machine.memory)],
            ["GPUs", info.machine.gpus || "none"],
            ["Jobs at a time", info.limits.max_running],
            ["Samplers", info.samplers.join(", ")],
            ["Version", <code>{info.version}</code>],
            ["Python", info.python],
            ["torch", info.packages.torch ?? "not installed"],
            ["faiss", info.packages["faiss-cpu"] ?? "not installed"],
          ]}
        />
      )}
    </Panel>
  );
}

function Health({ status }: { status: Ready["status"] }) {
  return (
    <span class="status" data-status={status === "ok" ? "succeeded" : "cancelling"}>
      {status}
    </span>
  );
}
