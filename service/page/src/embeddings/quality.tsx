// How good a set is: what evaluate found, beside what costs no training.

import { useQuery } from "../api/query";
import type { Embedding } from "../api/types";
import { Empty, Loading, Note, ProblemNote, sentence } from "../components/notes";
import { Facts, Panel } from "../components/view";
import { figure, plural } from "../format";
import { BASELINES, percent, scoreName } from "./facts";
import { LossCurve } from "./loss";
import { type Score, verdict } from "./verdict";

interface LinkScore {
  test_auc: number | null;
}

/** What trainer/evaluation/evaluate.py writes, as far as it is shown. */
export interface Report {
  objective: string;
  epochs: number;
  notes: string[];
  probe: {
    protocol: { metric: string; splits: number; split: string };
    trained: { last: Score };
    baselines: Record<string, Score | null>;
  } | null;
  degree_buckets: { min_degree: number; max_degree: number; nodes: number; error_rate: number }[];
  links: {
    trained: { last: Record<(typeof NEGATIVES)[number], LinkScore | null> };
    baselines: Record<string, Record<(typeof NEGATIVES)[number], LinkScore | null> | null>;
  } | null;
  collapse: {
    effective_rank: number;
    dim: number;
    std_mean: number;
    std_even: number;
    idle_share: number;
    mean_cosine: number;
    collapsed: boolean;
    rule: string;
  };
  losses: { epoch: number; loss: number | null }[];
}

/** A share of fewer nodes says little. */
const FEW = 10;
const NEGATIVES = ["random", "hard"] as const;

export function Quality({ set }: { set: Embedding }) {
  const { data: report, problem } = useQuery<Report>(set.report ? `/v1/embeddings/${set.id}/report` : null);
  return (
    <Panel title="Quality" class="quality">
      {!set.report && (
        <Empty title="Not evaluated">
          <p>An evaluate job, or rgrl evaluate, tells how good these embeddings are.</p>
        </Empty>
      )}
      <ProblemNote problem={problem} />
      {set.report && !report && !problem && <Loading lines={8} />}
      {report && <Found report={report} />}
    </Panel>
  );
}

function Found({ report }: { report: Report }) {
  const { notes, probe, links, degree_buckets: buckets } = report;
  const found = probe && verdict(report.objective, probe.trained.last, probe.baselines);
  return (
    <div class="quality-body">
      {found && <p class="quality-verdict">{sentence(found)}</p>}
      {notes.length > 0 && (
        <Note kind="info">
          {notes.map((note) => (
            <p key={note}>{sentence(note)}</p>
          ))}
        </Note>
      )}
      <div class="quality-part">
        {probe && (
          <Bars
            title={`Test ${probe.protocol.metric} of a linear probe`}
            below={`Mean of ${plural(probe.protocol.splits, "split")} (${probe.protocol.split}).`}
            rows={scores(report.objective, probe.trained.last, probe.baselines).map(([name, score]) => ({
              name: scoreName(name),
              own: !(name in BASELINES),
              share: score?.test_mean ?? null,
              text: score ? `${percent(score.test_mean)} ± ${(100 * score.test_std).toFixed(1)}` : "–",
            }))}
          />
        )}
        {links &&
          NEGATIVES.map((kind) => (
            <Bars
              key={kind}
              title={`Test AUC of held-out edges, ${kind} negatives`}
              rows={scores(report.objective, links.trained.last, links.baselines).map(([name, score]) => {
                const auc = score?.[kind]?.test_auc ?? null;
                return {
                  name: scoreName(name),
                  own: !(name in BASELINES),
                  share: auc,
                  text: auc === null ? "–" : percent(auc),
                };
              })}
            />
          ))}
        <LossCurve losses={report.losses} />
      </div>
      <div class="quality-part">
        {buckets.length > 0 && (
          <Bars
            title="Error rate by degree"
            below={[
              "Of the same probe: an encoder that neglects nodes of few edges shows here.",
              buckets.some(({ nodes }) => nodes < FEW) && `What is pale is of fewer than ${FEW} nodes: so few say little.`,
            ]
              .filter(Boolean)
              .join(" ")}
            rows={buckets.map(({ min_degree, max_degree, nodes, error_rate }) => ({
              name: min_degree === max_degree ? `${min_degree}` : `${min_degree}–${max_degree}`,
              beside: plural(nodes, "node"),
              own: nodes >= FEW,
              few: nodes < FEW,
              share: error_rate,
              text: percent(error_rate),
            }))}
          />
        )}
        <Collapse report={report} />
      </div>
    </div>
  );
}

/** This set's own score first. */
function scores<Of>(objective: string, own: Of, baselines: Record<string, Of | null>): [string, Of | null][] {
  return [[objective, own], ...Object.entries(baselines)];
}

function Collapse({ report: { collapse } }: { report: Report }) {
  return (
    <div>
      <h3>Collapse</h3>
      {collapse.collapsed && (
        <Note kind="bad">
          <p>The embeddings carry next to no information ({collapse.rule}).</p>
        </Note>
      )}
      <Facts
        facts={[
          ["Effective rank", `${figure(collapse.effective_rank)} of ${collapse.dim}`],
          ["Mean cosine of two nodes", figure(collapse.mean_cosine)],
          ["Spread of a dimension", `${figure(collapse.std_mean)}, where even is ${figure(collapse.std_even)}`],
          ["Idle dimensions", percent(collapse.idle_share)],
        ]}
      />
    </div>
  );
}

interface Row {
  name: string;
  beside?: string;
  own: boolean;
  /** Of too few to say much. */
  few?: boolean;
  /** 0 to 1, null where there is none. */
  share: number | null;
  text: string;
}

function Bars({ title, rows, below }: { title: string; rows: Row[]; below?: string }) {
  return (
    <div>
      <table class="bars">
        <caption>{title}</caption>
        <tbody>
          {rows.map(({ name, beside, own, few, share, text }) => (
            <tr key={name} class={few ? "few" : own ? "own" : ""}>
              <th scope="row">
                {name} {beside && <span class="soft">{beside}</span>}
              </th>
              <td class="bars-bar">{share !== null && <div style={{ width: `${100 * share}%` }} />}</td>
              <td class="number">{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {below && <p class="soft">{below}</p>}
    </div>
  );
}
