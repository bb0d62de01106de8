// A job's status, and how far it is.

import type { Job } from "../api/types";
import { duration, figure, number } from "../format";

export const STATUSES: Job["status"][] = ["queued", "running", "cancelling", "succeeded", "failed", "cancelled"];

export function isActive(job: Pick<Job, "status">): boolean {
  return job.status === "queued" || job.status === "running" || job.status === "cancelling";
}

/** Whether there are figures of it over its steps. */
export function trains({ kind }: Pick<Job, "kind">): boolean {
  return kind === "pipeline" || kind === "train";
}

export function Status({ status }: { status: Job["status"] }) {
  return (
    <span class="status" data-status={status}>
      {status}
    </span>
  );
}

/** The phase and how much of it is done, in words; or why it stands still. */
export function progressWords({ phase, progress }: Pick<Job, "phase" | "progress">): string {
  if (!progress || progress.stage !== phase) return phase ?? "starting";
  if (progress.compiling) return `${phase}: kernels are being compiled, once for this version`;
  const left = progress.eta_s === null ? "" : `, ${duration(progress.eta_s)} left`;
  return `${phase} ${number(progress.done)} of ${number(progress.total)} ${progress.unit}${left}`;
}

/** How fast it goes; nothing of what has not moved yet, nor of a part of few steps, which tells no time left. */
export function speed({ phase, progress }: Pick<Job, "phase" | "progress">): string {
  if (!progress || progress.stage !== phase || progress.compiling || !progress.rate || progress.eta_s === null) return "";
  return `${figure(progress.rate)} ${progress.unit} a second`;
}

export function Bar({ job }: { job: Pick<Job, "phase" | "progress"> }) {
  const { progress, phase } = job;
  const part = progress && progress.stage === phase && progress.total ? progress.done / progress.total : 0;
  return (
    <div
      class="bar"
      role="progressbar"
      aria-label={`Progress of ${phase ?? "the job"}`}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(part * 100)}
    >
      <div style={{ width: `${part * 100}%` }} />
    </div>
  );
}

/** Where a job stands, in the words of a line of a list. */
export function standing(job: Job): string {
  if (job.status === "queued") return job.waiting_for ? `waits for ${job.waiting_for.code}` : "waits";
  if (job.status === "running") return progressWords(job);
  if (job.status === "failed") return job.error?.message ?? "";
  return "";
}
