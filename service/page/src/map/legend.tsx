// What the colours mean; a class that is not ticked is not drawn.

import { Clip } from "../components/clip";
import { number } from "../format";
import { useValue } from "../state";
import { isDark } from "../theme";
import { type Classes, colorsOf } from "./classes";
import { css } from "./palette";

interface LegendProps {
  classes: Classes;
  hidden: ReadonlySet<number>;
  onHide: (hidden: ReadonlySet<number>) => void;
}

export function Legend({ classes, hidden, onHide }: LegendProps) {
  const colors = colorsOf(classes, useValue(isDark));
  const toggle = (code: number) => {
    const next = new Set(hidden);
    if (!next.delete(code)) next.add(code);
    onHide(next);
  };
  return (
    <fieldset class="legend">
      <legend class="hidden">Classes shown</legend>
      {classes.names.map((name, code) => (
        <label key={code} class="legend-class">
          <input type="checkbox" checked={!hidden.has(code)} onChange={() => toggle(code)} />
          <span class="legend-swatch" style={{ background: css(colors[code]!) }} />
          <span class="legend-name">
            <Clip text={name} />
          </span>
          <span class="soft">{number(classes.counts[code]!)}</span>
        </label>
      ))}
      {classes.names.length > 2 && (
        <span class="legend-all">
          <button type="button" disabled={hidden.size === 0} onClick={() => onHide(new Set())}>
            All
          </button>
          <button
            type="button"
            disabled={hidden.size === classes.names.length}
            onClick={() => onHide(new Set(classes.names.keys()))}
          >
            None
          </button>
        </span>
      )}
    </fieldset>
  );
}
