// The training loss as a curve; its ends are told in words too.

import { useMemo } from "preact/hooks";

import { Chart } from "../components/chart";
import { figure } from "../format";

interface Loss {
  epoch: number;
  /** Null where it was no number. */
  loss: number | null;
}

export function LossCurve({ losses }: { losses: Loss[] }) {
  const curves = useMemo(
    () => [{ name: "loss", steps: losses.map(({ epoch }) => epoch), values: losses.map(({ loss }) => loss) }],
    [losses],
  );
  const known = losses.filter(({ loss }) => loss !== null);
  const [first, last] = [known[0], known.at(-1)];
  if (!first || !last || first === last) return null;
  const words = `Loss from ${figure(first.loss!)} in epoch ${first.epoch} to ${figure(last.loss!)} in epoch ${last.epoch}`;
  return (
    <figure class="loss">
      <figcaption>
        <h3>Training loss</h3>
        <p class="soft">{words}.</p>
      </figcaption>
      <Chart label={words} curves={curves} height={150} />
    </figure>
  );
}
