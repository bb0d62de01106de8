// How compared jobs differ: in how good their embedding sets are, and in the settings that made them so.

import { type ComponentChildren, Fragment } from "preact";

import type { Embedding, Job } from "../api/types";
import { seriesColor } from "../components/chart";
import { Panel } from "../components/view";
import { headline, ownAccuracy, percent } from "../embeddings/facts";
import { written } from "../forms/schema";
import { figure } from "../format";

export interface Differing {
  name: string;
  spec: Job["spec"];
  /** Null while there is none. */
  set: Embedding | null;
}

/** Something of each job, null where it has none. */
interface Row {
  name: string;
  values: (string | null)[];
}

export function Differences({ jobs }: { jobs: Differing[] }) {
  const results = [
    { name: "Test accuracy", values: jobs.map(({ set }) => told(set && ownAccuracy(set), percent)) },
    { name: "Effective rank", values: jobs.map(({ set }) => told(set && headline(set)?.effective_rank, figure)) },
  ].filter(({ values }) => values.some((value) => value !== null));
  const settings = differing(jobs.map(({ spec }) => spec));
  return (
    <Panel title="Results and settings">
      {results.length + settings.length > 0 && (
        <div class="table-frame" tabIndex={0} role="region" aria-label="How they differ">
          <table class="differences">
            <caption class="hidden">Results, and the settings that differ</caption>
            <thead>
              <tr>
                <th scope="col">
                  <span class="hidden">Result or setting</span>
                </th>
                {jobs.map(({ name }, position) => (
                  <th key={position} scope="col">
                    <span class="key">
                      <i style={{ background: `var(${seriesColor(position)})` }} />
                      {name}
                    </span>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {results.map((row) => (
                <Line key={row.name} row={row} head={row.name} />
              ))}
              {settings.map((row) => (
                <Line key={row.name} row={row} head={<Dotted name={row.name} />} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {settings.length === 0 && <p class="panel-body soft">No setting differs.</p>}
    </Panel>
  );
}

function Line({ row, head }: { row: Row; head: ComponentChildren }) {
  return (
    <tr>
      <th scope="row">{head}</th>
      {row.values.map((value, position) => (
        <td key={position}>{value ?? "–"}</td>
      ))}
    </tr>
  );
}

/** A name that is broken behind a dot where there is little room. */
function Dotted({ name }: { name: string }) {
  return (
    <code>
      {name.split(".").map((step, position) => (
        <Fragment key={position}>
          {position > 0 && (
            <>
              .<wbr />
            </>
          )}
          {step}
        </Fragment>
      ))}
    </code>
  );
}

function told(value: number | null | undefined, words: (value: number) => string): string | null {
  return value === null || value === undefined ? null : words(value);
}

/** Settings that are not the same in all jobs that have the stage they are of. */
function differing(specs: Job["spec"][]): Row[] {
  const all = specs.map((spec) => new Map(dotted(spec)));
  const names = new Set(all.flatMap((settings) => [...settings.keys()]));
  return [...names]
    .map((name) => ({ name, values: all.map((settings) => settings.get(name) ?? null) }))
    .filter(({ name, values }) => {
      const stage = name.split(".")[0]!;
      return new Set(values.filter((_, position) => stage in specs[position]!)).size > 1;
    });
}

/** Each setting by its dotted name, such as `train.run.epochs`. */
function dotted(settings: unknown, name = ""): [string, string][] {
  if (typeof settings !== "object" || settings === null || Array.isArray(settings)) return [[name, written(settings) || "none"]];
  return Object.entries(settings).flatMap(([key, value]) => dotted(value, name ? `${name}.${key}` : key));
}
