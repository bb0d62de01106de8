// One embedding set: its figures, its map, and how good it is.

import { useQuery } from "../api/query";
import type { Embedding } from "../api/types";
import { Gone } from "../components/gone";
import { Loading, ProblemNote } from "../components/notes";
import { Copy, Facts, Panel, View } from "../components/view";
import { figure, moment, number, setName, shortId } from "../format";
import { link } from "../router";
import { METHODS } from "../map/points";
import { Explore } from "./explore";
import { Health, headline, indexOf, ownAccuracy, percent } from "./facts";
import { Quality } from "./quality";

const BACK: [string, string] = ["Embeddings", "#/embeddings"];

export function EmbeddingSet({ reference, query }: { reference: string; query: URLSearchParams }) {
  const { data: set, problem } = useQuery<Embedding>(`/v1/embeddings/${encodeURIComponent(reference)}`, 5000);
  if (problem?.status === 404) return <Gone what="embedding set" name={reference} back={BACK} />;
  const title = set ? (set.name ?? set.aliases[0] ?? setName(set) ?? shortId(set.id)) : reference;
  return (
    <View
      title={title}
      back={BACK}
      beside={
        set?.aliases
          .filter((alias) => alias !== title)
          .map((alias) => (
            <span key={alias} class="chip">
              {alias}
            </span>
          ))
      }
    >
      <ProblemNote problem={problem} />
      {!set && !problem && <Loading lines={8} />}
      {set && (
        <>
          <Tiles set={set} />
          <Explore set={set} reference={reference} query={query} />
          <Quality set={set} />
          <Panel title="About this set" class="about">
            <Facts
              facts={[
                ["Id", <Copy text={set.id} />],
                ["Graph", <a href={link(["graphs", set.graph])}>{set.graph_name ?? shortId(set.graph)}</a>],
                ["Job", set.job && <a href={link(["jobs", set.job])}>{set.job_name ?? shortId(set.job)}</a>],
                ["Made", moment(set.created_at)],
                ["Index", indexed(set)],
                ["Map", mapOf(set)],
                ["Folder", <code>{set.path}</code>],
              ]}
            />
          </Panel>
        </>
      )}
    </View>
  );
}

function indexed(set: Embedding): string {
  const { index, recall } = indexOf(set) ?? {};
  if (!index) return "none yet";
  return `${index}, ${recall ? `recall@${recall.k} ${figure(recall.value)}` : "its recall not measured"}`;
}

function mapOf(set: Embedding): string {
  const map = indexOf(set)?.projection;
  return map ? `${METHODS[map.method] ?? map.method}, ${number(map.counts.points)} points` : "none";
}

function Tiles({ set }: { set: Embedding }) {
  const recall = indexOf(set)?.recall;
  const accuracy = ownAccuracy(set);
  const rank = headline(set)?.effective_rank;
  return (
    <dl class="tiles">
      <div class="tile">
        <dt>Nodes</dt>
        <dd>{number(set.counts.nodes!)}</dd>
      </div>
      <div class="tile">
        <dt>Dimensions</dt>
        <dd>{set.counts.dim}</dd>
      </div>
      {accuracy !== null && (
        <div class="tile">
          <dt>Test accuracy</dt>
          <dd>{percent(accuracy)}</dd>
        </div>
      )}
      {rank !== undefined && (
        <div class="tile">
          <dt>Effective rank</dt>
          <dd>
            {figure(rank)} <small>of {set.counts.dim}</small>
          </dd>
        </div>
      )}
      {recall && (
        <div class="tile">
          <dt>Index recall@{recall.k}</dt>
          <dd>{figure(recall.value)}</dd>
        </div>
      )}
      <div class="tile">
        <dt>Health</dt>
        <dd>
          <Health set={set} />
        </dd>
      </div>
    </dl>
  );
}
