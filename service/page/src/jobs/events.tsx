// What has happened to a job, latest first: when, in which stage, and what, in plain words.

import type { JobEvent } from "../api/types";
import { sentence } from "../components/notes";
import { type Column, Table } from "../components/table";
import { moment, quantity } from "../format";
import { found } from "./results";

const COLUMNS: Column<JobEvent>[] = [
  {
    head: "Time",
    cell: ({ at }) => (
      <span class="nowrap" title={moment(at)}>
        {new Date(at).toLocaleTimeString("en", { hour12: false })}
      </span>
    ),
  },
  { head: "Stage", cell: ({ stage }) => <span class="nowrap">{stage ?? ""}</span>, wide: true },
  { head: "Message", cell: told },
];

export function Events({ events }: { events: JobEvent[] }) {
  // The runner tells a stage's begin, and so does the step of the job that follows from it.
  const shown = events.filter(({ event, stage }, position) => {
    const next = events[position + 1];
    return !(event === "transition" && next?.event === "stage" && next.stage === stage);
  });
  if (shown.length === 0) return <p class="panel-body soft">Nothing has happened yet.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Events, latest first">
      <Table caption="Events, latest first" columns={COLUMNS} rows={shown.toReversed()} rowKey={(event) => String(event.id)} />
    </div>
  );
}

const STATUSES: Record<string, string> = {
  queued: "It was queued.",
  running: "It was started.",
  cancelling: "It was asked to end.",
  succeeded: "It succeeded.",
  failed: "It failed.",
  cancelled: "It was cancelled.",
};

/** What preprocessing/stage.py and the job store say, as sentences; of what is not known here, its figures. */
function told({ event, stage, data }: JobEvent): string {
  const text = (name: string) => (typeof data[name] === "string" ? sentence(data[name]) : "");
  if (event === "transition") return STATUSES[String(data.status)] ?? sentence(String(data.status));
  if (event === "stage") return `${titled(stage ?? "a stage")} began.`;
  if (event === "warning") return `Warning: ${text("message")}`;
  if (event === "health") return `${titled(String(data.state))}${data.reason ? `: ${text("reason")}` : "."}`;
  if (event === "error") return fault(data.error);
  if (event === "retry") return `${fault(data.error)} The next try is at ${moment(String(data.retry_at))}.`;
  if (event === "result") return [`${titled(stage ?? "it")} is done.`, sentence(found(data.summary))].filter(Boolean).join(" ");
  return [`${titled(event)}.`, figures(data)].filter(Boolean).join(" ");
}

function titled(name: string): string {
  return name[0]!.toUpperCase() + name.slice(1).replaceAll("_", " ");
}

function fault(error: unknown): string {
  const { message, remedy }: { message?: unknown; remedy?: unknown } = Object(error);
  return [message, remedy]
    .filter((part) => typeof part === "string")
    .map(sentence)
    .join(" ")
    .replaceAll("`", "");
}

/** Names and values of a record and of those in it: `nodes 2,708, test accuracy rgrl 0.8312`. */
function figures(record: unknown): string {
  const parts = listed(record, []);
  return parts.length ? sentence(parts.join(", ")) : "";
}

function listed(value: unknown, path: string[]): string[] {
  if (value === null || value === undefined || value === "") return [];
  if (Array.isArray(value)) return value.length ? [named(path, value.map(String).join(" and "))] : [];
  if (typeof value === "object") return Object.entries(value).flatMap(([name, one]) => listed(one, [...path, name]));
  if (typeof value === "boolean") return [named(path, value ? "yes" : "no")];
  return [named(path, typeof value === "number" ? quantity(value) : String(value))];
}

function named(path: string[], value: string): string {
  return `${path.join(" ").replaceAll("_", " ")} ${value}`;
}
