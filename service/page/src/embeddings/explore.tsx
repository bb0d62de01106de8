// The map with what belongs to it: what it is coloured by, its legend, and the chosen node's neighbours.

import { useEffect, useMemo, useState } from "preact/hooks";

import { generation, Problem } from "../api/client";
import type { Embedding } from "../api/types";
import { Clip } from "../components/clip";
import { Empty, Loading, Note, ProblemNote, sentence } from "../components/notes";
import { Panel } from "../components/view";
import { number, shortId } from "../format";
import { asOne, byDegree, byLabel, type Classes } from "../map/classes";
import { Legend } from "../map/legend";
import { fetchPoints, METHODS, type Points } from "../map/points";
import { MapView, type Mark } from "../map/view";
import { link, turn } from "../router";
import { useValue } from "../state";
import { type Found, Node } from "./node";

type Coloring = "label" | "degree" | "job" | "none";

const COLORINGS: Record<Coloring, string> = { label: "Label", degree: "Degree", job: "Job", none: "Nothing" };

/** `reference` is what the address calls the set by, its id or an alias: another one would be another place. */
export function Explore(props: { set: Embedding; reference: string; query: URLSearchParams }) {
  const { set, reference, query } = props;
  const { points, problem } = usePoints(set.id);
  const [found, setFound] = useState<Found | null>(null);
  const [pointed, setPointed] = useState<string | null>(null);
  const node = query.get("node");
  const offered = useMemo(() => (points ? coloringsOf(points, set) : []), [points, set.job]);
  const coloring = offered.find((name) => name === query.get("color")) ?? offered[0] ?? "none";
  const classes = useMemo(() => points && classesOf(points, coloring, set), [points, coloring, set.id]);
  const turnTo = (changes: Record<string, string | undefined>) =>
    turn(link(["embeddings", reference], { ...Object.fromEntries(query), ...changes }));

  const marks = useMemo((): Mark[] => {
    if (!points || found === null || found.node !== node) return [];
    return found.results.flatMap(({ id, connected }) => {
      const point = points.placeOf.get(id);
      return point === undefined ? [] : [{ point, connected }];
    });
  }, [points, found, node]);
  const placeOf = (id: string | null) => (id === null ? null : (points?.placeOf.get(id) ?? null));

  return (
    <Panel
      title="Map"
      class="explore"
      actions={
        offered.length > 0 && (
          <label class="explore-color">
            <span>Colour by</span>
            <select value={coloring} onChange={(event) => turnTo({ color: event.currentTarget.value })}>
              {offered.map((name) => (
                <option key={name} value={name}>
                  {COLORINGS[name]}
                </option>
              ))}
            </select>
          </label>
        )
      }
    >
      <div class="explore-body">
        <div class="explore-map">
          {problem?.status === 409 ? (
            <Empty title="No map of this set">
              <p>{sentence(problem.message)}</p>
              {problem.remedy && <p>{sentence(problem.remedy)}</p>}
            </Empty>
          ) : (
            <ProblemNote problem={problem} />
          )}
          {!points && !problem && <Loading lines={12} />}
          {points && classes && (
            <Drawn
              // Which classes are hidden belongs to what the map is coloured by.
              key={coloring}
              points={points}
              classes={classes}
              chosen={placeOf(node)}
              marks={marks}
              pointed={placeOf(pointed)}
              onChoose={(point) => turnTo({ node: point === null ? undefined : points.ids[point] })}
            />
          )}
        </div>
        <Node
          set={set}
          node={node}
          points={points}
          onChoose={(id) => turnTo({ node: id })}
          onFound={setFound}
          onPoint={setPointed}
        />
      </div>
    </Panel>
  );
}

// So many can be drawn in every frame by any machine.
const ALL_IN_MOTION = 20_000;

interface DrawnProps {
  points: Points;
  classes: Classes;
  chosen: number | null;
  marks: readonly Mark[];
  pointed: number | null;
  onChoose: (point: number | null) => void;
}

function Drawn({ points, classes, ...rest }: DrawnProps) {
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const describe = (point: number) => (
    <>
      <strong>{points.ids[point]}</strong>
      {points.labels && (
        <span>
          Label <Clip text={points.labels[point] ?? "unknown"} />
        </span>
      )}
      {points.degrees && <span>Degree {number(points.degrees[point]!)}</span>}
    </>
  );
  return (
    <>
      {points.graphMissing && (
        <Note kind="warn">
          <p>No labels, degrees or edges here: {points.graphMissing}.</p>
        </Note>
      )}
      <MapView points={points} classes={classes} hidden={hidden} describe={describe} {...rest} />
      <div class="explore-foot">
        <Legend classes={classes} hidden={hidden} onHide={setHidden} />
        <p class="soft">
          {points.ids.length < points.nodes
            ? `A sample of ${number(points.ids.length)} of ${number(points.nodes)} nodes is shown`
            : `All ${number(points.nodes)} nodes are shown`}
          , placed by {METHODS[points.method] ?? points.method}
          {points.ids.length > ALL_IN_MOTION && "; while the map moves, as many as there is time for"}.
        </p>
      </div>
    </>
  );
}

function coloringsOf(points: Points, set: Embedding): Coloring[] {
  const offered: Coloring[] = [];
  if (points.labels?.some((label) => label !== null)) offered.push("label");
  if (points.degrees) offered.push("degree");
  if (set.job) offered.push("job");
  return [...offered, "none"];
}

function classesOf(points: Points, coloring: Coloring, set: Embedding): Classes {
  if (coloring === "label" && points.labels) return byLabel(points.labels);
  if (coloring === "degree" && points.degrees) return byDegree(points.degrees);
  return asOne(coloring === "job" && set.job ? shortId(set.job) : "Nodes", points.ids.length);
}

function usePoints(ref: string): { points: Points | null; problem: Problem | null } {
  const [state, setState] = useState<{ points: Points | null; problem: Problem | null }>({ points: null, problem: null });
  const asked = useValue(generation);
  useEffect(() => {
    if (state.points?.embedding === ref) return undefined;
    const stop = new AbortController();
    fetchPoints(ref, stop.signal).then(
      (points) => setState({ points, problem: null }),
      (error) => {
        if (stop.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        if (error.status !== 401) setState({ points: null, problem: error });
      },
    );
    return () => stop.abort();
  }, [ref, asked]);
  return state;
}
