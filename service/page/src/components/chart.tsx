// Curves over steps. The figures are in words beside it: the drawing itself is one picture to a screen reader.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { figure } from "../format";
import { useValue } from "../state";
import { color, isDark } from "../theme";

export interface Curve {
  name: string;
  steps: number[];
  values: (number | null)[];
}

export const SERIES = 8;

export function seriesColor(position: number): string {
  return `--series-${(position % SERIES) + 1}`;
}

interface ChartProps {
  label: string;
  curves: Curve[];
  height?: number;
  /** Equal ratios are equal heights; values that are not positive are left out. */
  log?: boolean;
}

export function Chart({ label, curves, height = 240, log = false }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useValue(isDark);
  const names = curves.map(({ name }) => name).join("\n");

  useEffect(() => {
    const element = frame.current!;
    const made = new uPlot(options(names.split("\n"), element.clientWidth, height, log), [[]], element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [names, height, log, dark]);

  useEffect(() => {
    plot.current?.setData(joined(curves, log));
  }, [curves, names, height, log, dark]);

  return <div ref={frame} class="chart" role="img" aria-label={label} style={{ height: `${height}px` }} />;
}

function joined(curves: Curve[], log: boolean): uPlot.AlignedData {
  if (curves.length === 0) return [[]];
  const shown = (value: number | null) => (log && value !== null && value <= 0 ? null : value);
  return uPlot.join(curves.map(({ steps, values }) => [steps, values.map(shown)] as uPlot.AlignedData));
}

function options(names: string[], width: number, height: number, log: boolean): uPlot.Options {
  const soft = color("--soft");
  const axis: uPlot.Axis = {
    stroke: soft,
    font: "11px Inter, sans-serif",
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height,
    padding: [12, 12, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false },
    plugins: [readout(names)],
    scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : "")) },
      { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : figure(tick))) },
    ],
    series: [
      {},
      ...names.map((name, position) => ({
        label: name,
        stroke: color(seriesColor(position)),
        width: 1.6,
        spanGaps: true,
        points: { show: false },
      })),
    ],
  };
}

/** What the curves are at the step under the pointer. */
function readout(names: string[]): uPlot.Plugin {
  const box = document.createElement("div");
  box.className = "chart-readout";
  box.hidden = true;
  return {
    hooks: {
      init: (plot) => plot.over.append(box),
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        box.hidden = at === null || at === undefined;
        if (at === null || at === undefined) return;
        const lines = names.flatMap((name, position) => {
          const value = plot.data[position + 1]?.[at];
          return value === null || value === undefined ? [] : [`${names.length > 1 ? `${name}: ` : ""}${figure(value)}`];
        });
        box.textContent = [`step ${plot.data[0]![at]}`, ...lines].join("\n");
        box.classList.toggle("left", (plot.cursor.left ?? 0) > plot.width / 2);
      },
    },
  };
}
