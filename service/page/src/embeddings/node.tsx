// One node of a set: found by its id, with whom it is like, the connected marked apart, or left out.

import { useEffect, useId, useRef, useState } from "preact/hooks";

import { generation, post, Problem } from "../api/client";
import type { Embedding, Neighbor, NeighborsAnswer } from "../api/types";
import { Clip, isLong, Unfold } from "../components/clip";
import { useFocusAfter } from "../components/focus";
import { Loading, ProblemNote } from "../components/notes";
import { Icon } from "../components/icons";
import { number } from "../format";
import type { Points } from "../map/points";
import { useValue } from "../state";

/** Neighbours and the node they are of. */
export interface Found {
  node: string;
  results: Neighbor[];
}

interface NodeProps {
  set: Embedding;
  node: string | null;
  points: Points | null;
  onChoose: (id: string | undefined) => void;
  onFound: (found: Found | null) => void;
  onPoint: (id: string | null) => void;
}

const COUNTS = [10, 25, 50, 100];
const STRATEGIES: Record<string, string> = {
  exact: "exact search",
  exact_no_index: "exact search, the set has no index yet",
  exact_fallback: "exact search, the index could not return enough",
  hnsw: "HNSW index",
  ivf: "IVF index",
};

export function Node({ set, node, points, onChoose, onFound, onPoint }: NodeProps) {
  const [strangers, setStrangers] = useState(false);
  const [k, setK] = useState(COUNTS[0]!);
  const { answer, problem } = useNeighbors(set.id, node, k, strangers);
  const absent = problem?.errors.some(({ pointer }) => pointer.endsWith("/id"));
  useEffect(() => onFound(answer && node !== null ? { node, results: answer.results } : null), [answer]);
  return (
    <div class="explore-node">
      <Search node={node} onChoose={onChoose} />
      {node === null ? (
        <p class="node-none soft">
          Choose a node on the map, or find it by its id, to see whom it is most like.
        </p>
      ) : (
        <>
          <Card node={node} points={points} known={answer !== null} onLeave={() => onChoose(undefined)} />
          <div class="node-kinds" role="group" aria-label="Which neighbours">
            <button type="button" aria-pressed={!strangers} onClick={() => setStrangers(false)}>
              Nearest
            </button>
            <button type="button" aria-pressed={strangers} onClick={() => setStrangers(true)}>
              Not connected yet
            </button>
            <label>
              <span class="hidden">How many</span>
              <select value={k} onChange={(event) => setK(Number(event.currentTarget.value))}>
                {COUNTS.map((count) => (
                  <option key={count}>{count}</option>
                ))}
              </select>
            </label>
          </div>
          {absent ? (
            <p class="node-none" role="alert">{`There is no node ${node} in this set.`}</p>
          ) : (
            <ProblemNote problem={problem} />
          )}
          {!answer && !problem && <Loading lines={8} />}
          {answer && (
            <Neighbors
              caption={`${strangers ? "Nearest that share no edge with" : "Nearest to"} ${node}`}
              answer={answer}
              points={points}
              onChoose={onChoose}
              onPoint={onPoint}
            />
          )}
        </>
      )}
    </div>
  );
}

function Search({ node, onChoose }: { node: string | null; onChoose: (id: string) => void }) {
  const [text, setText] = useState(node ?? "");
  useEffect(() => setText(node ?? ""), [node]);
  const field = useRef<HTMLInputElement>(null);
  useFocusAfter(node === null, field);
  return (
    <form
      class="node-search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) onChoose(text.trim());
      }}
    >
      <label>
        <span class="hidden">Node id</span>
        <input
          ref={field}
          value={text}
          placeholder="Find a node by its id"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <button type="submit" aria-label="Find the node">
        <Icon name="search" />
      </button>
    </form>
  );
}

interface CardProps {
  node: string;
  points: Points | null;
  /** The set is known to have it. */
  known: boolean;
  onLeave: () => void;
}

function Card({ node, points, known, onLeave }: CardProps) {
  const point = points?.placeOf.get(node);
  const label = points?.labels && point !== undefined ? (points.labels[point] ?? "unknown") : null;
  const heading = useRef<HTMLHeadingElement>(null);
  useFocusAfter(node, heading);
  const facts: string[] = [];
  if (label !== null && !isLong(label)) facts.push(`Label ${label}`);
  if (points?.degrees && point !== undefined) facts.push(`degree ${number(points.degrees[point]!)}`);
  if (points && point === undefined && known) facts.push("Not among the points shown");
  return (
    <div class="node-card">
      <div>
        <h3 ref={heading} tabIndex={-1}>
          {node}
        </h3>
        <p class="soft">{facts.join(", ")}</p>
        {label !== null && isLong(label) && <Unfold text={`Label ${label}`} />}
      </div>
      <button type="button" class="icon-button" aria-label="Let go of the node" title="Let go of the node" onClick={onLeave}>
        <Icon name="close" />
      </button>
    </div>
  );
}

interface NeighborsProps {
  caption: string;
  answer: NeighborsAnswer;
  points: Points | null;
  onChoose: (id: string) => void;
  onPoint: (id: string | null) => void;
}

function Neighbors({ caption, answer, points, onChoose, onPoint }: NeighborsProps) {
  const note = useId();
  const labels = points?.labels;
  const labelOf = (id: string) => {
    const point = points!.placeOf.get(id);
    return point === undefined ? "not shown" : (labels![point] ?? "unknown");
  };
  return (
    <>
      <div class="node-list" tabIndex={0} role="region" aria-label={caption}>
        <table class="node-neighbors" aria-describedby={note}>
          <caption class="hidden">{caption}</caption>
          <thead>
            <tr>
              <th scope="col">Node</th>
              {labels && <th scope="col">Label</th>}
              <th scope="col">Edge</th>
              <th scope="col" class="number">
                Cosine
              </th>
            </tr>
          </thead>
          <tbody onMouseLeave={() => onPoint(null)}>
            {answer.results.map(({ id, score, connected }) => (
              <tr key={id} data-connected={String(connected)} onMouseEnter={() => onPoint(id)}>
                <td>
                  <button
                    type="button"
                    class="node-name"
                    onClick={() => onChoose(id)}
                    onFocus={() => onPoint(id)}
                    onBlur={() => onPoint(null)}
                  >
                    {id}
                  </button>
                </td>
                {labels && (
                  <td class="soft">
                    <Clip text={labelOf(id)} />
                  </td>
                )}
                <td>
                  <Edge connected={connected} />
                </td>
                <td class="number">
                  <span class="node-score" style={{ "--share": Math.max(0, score) }}>
                    {score.toFixed(4)}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p id={note} class="soft node-note">
        By {STRATEGIES[answer.strategy] ?? answer.strategy}
        {!answer.complete && `; only ${answer.returned} nodes may be returned`}.
      </p>
    </>
  );
}

function Edge({ connected }: { connected: boolean | null }) {
  if (connected === null) return <span class="soft">unknown</span>;
  return <span class={connected ? "edge" : "edge none"}>{connected ? "Connected" : "None"}</span>;
}

function useNeighbors(ref: string, node: string | null, k: number, strangers: boolean) {
  const question = JSON.stringify([ref, node, k, strangers]);
  const [state, setState] = useState<{ question: string; answer: NeighborsAnswer | null; problem: Problem | null }>({
    question,
    answer: null,
    problem: null,
  });
  const asked = useValue(generation);
  useEffect(() => {
    if (node === null) return undefined;
    let left = false;
    const body = { queries: [{ id: node }], k, exclude: { connected: strangers } };
    post<{ answers: NeighborsAnswer[] }>(`/v1/embeddings/${encodeURIComponent(ref)}/neighbors`, body).then(
      ({ answers: [answer] }) => {
        if (!left) setState({ question, answer: answer!, problem: null });
      },
      (error) => {
        if (!(error instanceof Problem)) throw error;
        if (!left && error.status !== 401) setState({ question, answer: null, problem: error });
      },
    );
    return () => {
      left = true;
    };
  }, [question, asked]);
  return state.question === question ? state : { answer: null, problem: null };
}
