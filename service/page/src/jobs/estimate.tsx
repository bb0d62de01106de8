// What a job would take, against what the server has.

import type { DryRun } from "../api/types";
import { Loading } from "../components/notes";
import { bytes, duration, number } from "../format";

export function Estimate({ plan }: { plan: DryRun | undefined }) {
  if (!plan) return <Loading lines={4} />;
  const { estimate, resources, available } = plan;
  return (
    <div class="estimate" aria-live="polite">
      <p>
        {plan.stages.map((stage, position) => (
          <span key={stage}>
            {position > 0 && <span class="soft"> → </span>}
            {stage}
          </span>
        ))}
      </p>
      <dl>
        <Row name="Time" value={estimate.seconds === null ? "unknown" : `about ${duration(estimate.seconds)}`} />
        <Row
          name="Memory"
          value={estimate.memory_bytes === null ? "unknown" : bytes(resources.memory_bytes)}
          of={bytes(available.memory_bytes)}
          part={resources.memory_bytes / available.memory_bytes}
        />
        <Row
          name="Disk"
          value={estimate.disk_bytes === null ? "unknown" : bytes(resources.disk_bytes + resources.bundle_bytes)}
          of={bytes(available.disk_bytes)}
          part={(resources.disk_bytes + resources.bundle_bytes) / available.disk_bytes}
        />
        <Row
          name="Cores"
          value={number(resources.cores)}
          of={number(available.cores)}
          part={resources.cores / available.cores}
        />
        {available.gpus > 0 && <Row name="GPUs" value={number(resources.gpus)} of={number(available.gpus)} part={resources.gpus / available.gpus} />}
      </dl>
      <p class="soft">{estimate.basis}</p>
    </div>
  );
}

function Row({ name, value, of, part }: { name: string; value: string; of?: string; part?: number }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        {of && <span class="soft"> of {of}</span>}
      </dd>
      {part !== undefined && (
        <dd class="bar" aria-hidden="true">
          <div style={{ width: `${Math.min(100, Math.max(part * 100, 1))}%` }} />
        </dd>
      )}
    </div>
  );
}
