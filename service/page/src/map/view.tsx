// The map: points to look at, move about in and choose from, by mouse, touch and keyboard.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { useValue } from "../state";
import { isDark } from "../theme";
import { bounded, type Camera, fitted, panned, toPlane, toScreen, zoomed } from "./camera";
import { type Classes, colorsOf } from "./classes";
import { followGestures } from "./gestures";
import { MapButtons } from "./buttons";
import { Nearest } from "./nearest";
import { css, GROUND } from "./palette";
import type { Points } from "./points";
import { Scene } from "./scene";

/** A node marked beside the chosen one. */
export interface Mark {
  readonly point: number;
  readonly connected: boolean | null;
}

interface MapProps {
  points: Points;
  classes: Classes;
  hidden: ReadonlySet<number>;
  chosen: number | null;
  marks: readonly Mark[];
  /** A point to draw the eye to, such as that of the row under the mouse. */
  pointed: number | null;
  onChoose: (point: number | null) => void;
  describe: (point: number) => ComponentChildren;
}

// How far from a point a mouse, and a finger, may be.
const NEAR = { mouse: 9, pen: 14, touch: 22 };
const KEY_PAN = 60;
const KEY_ZOOM = 1.35;
// Marks are larger than points: they want more room around.
const CLOSER = 0.85;

export function MapView({ points, classes, hidden, chosen, marks, pointed, onChoose, describe }: MapProps) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<SVGSVGElement>(null);
  const scene = useRef<Scene | null>(null);
  const [looked, setLooked] = useState<{ point: number; left: number; top: number } | null>(null);
  const [keyed, setKeyed] = useState(false);
  const help = useId();
  const dark = useValue(isDark);
  const nearest = useMemo(() => new Nearest(points.x, points.y), [points]);
  const home = (): Camera => fitted(points.x, points.y, scene.current!.size);

  const place = () => {
    const { camera, size } = scene.current!;
    for (const mark of overlay.current!.querySelectorAll<SVGElement>("[data-point]")) {
      const [left, top] = at(Number(mark.dataset.point));
      if (mark.tagName === "g") mark.setAttribute("transform", `translate(${left} ${top})`);
      else {
        const [fromLeft, fromTop] = at(Number(mark.dataset.from));
        for (const [name, value] of [["x1", fromLeft], ["y1", fromTop], ["x2", left], ["y2", top]] as const)
          mark.setAttribute(name, String(value));
      }
    }
    function at(point: number) {
      return toScreen(camera, size, points.x[point]!, points.y[point]!);
    }
  };

  const find = (left: number, top: number, reach: number): number | null => {
    const { camera, size } = scene.current!;
    const [x, y] = toPlane(camera, size, left, top);
    return nearest.at(x, y, reach / camera.scale, (point) => !hidden.has(classes.codes[point]!));
  };
  const move = (camera: Camera) => {
    setLooked(null);
    scene.current!.move(camera);
  };
  const zoom = (factor: number, left?: number, top?: number) => {
    const { camera, size } = scene.current!;
    move(zoomed(camera, home(), size, factor, left ?? size.width / 2, top ?? size.height / 2));
  };
  const pan = (right: number, down: number) => move(panned(scene.current!.camera, right, down));
  const look = (left: number, top: number, reach: number) => {
    const point = find(left, top, reach);
    setLooked(point === null ? null : { point, left, top });
    return point;
  };
  /** What the cross in the middle, by which the keyboard chooses, is on. */
  const lookAtMiddle = () => {
    const { width, height } = scene.current!.size;
    return look(width / 2, height / 2, 40);
  };

  useLayoutEffect(() => {
    const made = new Scene(canvas.current!, points.x, points.y, (drawn) => {
      place();
      frame.current!.dataset.drawn = String(drawn);
    });
    scene.current = made;
    const fit = () => {
      const { clientWidth: width, clientHeight: height } = frame.current!;
      const first = made.size.width === 0;
      made.resize({ width, height }, Math.min(2, devicePixelRatio));
      if (first) made.show(home(), home());
    };
    fit();
    const watcher = new ResizeObserver(fit);
    watcher.observe(frame.current!);
    return () => {
      watcher.disconnect();
      made.end();
    };
  }, [points]);

  useLayoutEffect(() => scene.current!.setClasses(classes.codes), [points, classes]);
  useLayoutEffect(() => {
    const colors = colorsOf(classes, dark).map((color, code) => (hidden.has(code) ? null : color));
    scene.current!.setColors(colors, GROUND[dark ? 1 : 0], chosen !== null);
  }, [points, classes, hidden, dark, chosen !== null]);
  useLayoutEffect(place);

  // What is chosen elsewhere, in the list or by its id, comes into view.
  useEffect(() => {
    if (chosen === null) return;
    const { camera, size } = scene.current!;
    const [left, top] = toScreen(camera, size, points.x[chosen]!, points.y[chosen]!);
    const inside = left > 20 && top > 20 && left < size.width - 20 && top < size.height - 20;
    if (!inside) scene.current!.move({ ...camera, x: points.x[chosen]!, y: points.y[chosen]! });
  }, [points, chosen]);

  const acts = useRef({ pan, zoom, look, choose: (_left: number, _top: number, _reach: number) => {} });
  acts.current = { pan, zoom, look, choose: (left, top, reach) => onChoose(find(left, top, reach)) };
  useEffect(
    () =>
      followGestures(frame.current!, {
        pan: (right, down) => acts.current.pan(right, down),
        zoom: (factor, left, top) => acts.current.zoom(factor, left, top),
        look: (left, top, kind) => acts.current.look(left, top, NEAR[kind]),
        away: () => setLooked(null),
        choose: (left, top, kind) => acts.current.choose(left, top, NEAR[kind]),
      }),
    [],
  );

  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acted = byKey(event.key);
    if (!acted) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const byKey = (key: string): boolean => {
    const moves: Record<string, () => void> = {
      ArrowLeft: () => pan(KEY_PAN, 0),
      ArrowRight: () => pan(-KEY_PAN, 0),
      ArrowUp: () => pan(0, KEY_PAN),
      ArrowDown: () => pan(0, -KEY_PAN),
      "+": () => zoom(KEY_ZOOM),
      "=": () => zoom(KEY_ZOOM),
      "-": () => zoom(1 / KEY_ZOOM),
      "0": () => move(home()),
    };
    if (key === "Enter" || key === " ") onChoose(lookAtMiddle());
    else if (key === "Escape") onChoose(null);
    else if (moves[key]) {
      moves[key]();
      lookAtMiddle();
    } else return false;
    setKeyed(true);
    return true;
  };

  /** The chosen node and its neighbours. */
  const closer = () => {
    const shown = [chosen!, ...marks.map((mark) => mark.point)];
    const near = fitted(shown.map((point) => points.x[point]!), shown.map((point) => points.y[point]!), scene.current!.size);
    move({ ...near, scale: bounded(CLOSER * near.scale, home()) });
  };
  const colors = colorsOf(classes, dark);
  const fill = (point: number) => css(colors[classes.codes[point]!]!);
  const connected = marks.filter((mark) => mark.connected);

  return (
    <div class="map">
      <div
        ref={frame}
        class="map-frame"
        role="application"
        aria-roledescription="map"
        aria-label={`Map of ${points.ids.length.toLocaleString("en")} nodes`}
        aria-describedby={help}
        tabIndex={0}
        onKeyDown={press}
        onBlur={() => setKeyed(false)}
      >
        <canvas ref={canvas} />
        <svg ref={overlay} class="map-marks" aria-hidden="true">
          {chosen !== null &&
            connected.map(({ point }) => <line key={point} data-point={point} data-from={chosen} class="map-edge" />)}
          {marks.map(({ point, connected }) => (
            <g key={point} data-point={point} data-connected={String(connected)} class="map-mark">
              {connected ? (
                <rect x="-5" y="-5" width="10" height="10" fill={fill(point)} />
              ) : (
                <circle r="5.5" fill={fill(point)} />
              )}
            </g>
          ))}
          {chosen !== null && (
            <g key="chosen" data-point={chosen} class="map-chosen">
              <circle r="13" />
              <circle r="6.5" fill={fill(chosen)} />
            </g>
          )}
          {pointed !== null && (
            <g key="pointed" data-point={pointed} class="map-pointed">
              <circle r="10" />
            </g>
          )}
        </svg>
        {keyed && <div class="map-cross" aria-hidden="true" />}
        {looked && (
          <div class="map-tip" style={tip(looked, scene.current!.size.width)} data-id={points.ids[looked.point]}>
            {describe(looked.point)}
          </div>
        )}
      </div>
      <MapButtons
        onIn={() => zoom(KEY_ZOOM)}
        onOut={() => zoom(1 / KEY_ZOOM)}
        onHome={() => move(home())}
        onCloser={chosen === null ? null : closer}
      />
      <p id={help} class="hidden">
        Arrow keys move the map, plus and minus zoom, zero shows all. Enter chooses the node at the cross in the middle,
        Escape lets go of it. The lists beside the map tell the same.
      </p>
      <p class="hidden" role="status">
        {keyed && looked ? describe(looked.point) : ""}
      </p>
    </div>
  );
}

/** Beside the mouse, on the side with more room. */
function tip({ left, top }: { left: number; top: number }, width: number) {
  const across = left < width / 2 ? { left: `${left + 14}px` } : { right: `${width - left + 14}px` };
  return { ...across, top: `${Math.max(8, top - 12)}px` };
}
