// The training loss as a curve; its ends are told in words too.

import { figure } from "../format";

const WIDTH = 600;
const HEIGHT = 110;

export function LossCurve({ losses }: { losses: { epoch: number; loss: number | null }[] }) {
  const known = losses.filter((entry): entry is { epoch: number; loss: number } => entry.loss !== null);
  const first = known[0];
  const last = known.at(-1);
  if (!first || !last || known.length < 2) return null;
  const least = Math.min(...known.map(({ loss }) => loss));
  const most = Math.max(...known.map(({ loss }) => loss));
  const line = known.map(({ epoch, loss }) => {
    const across = (WIDTH * (epoch - first.epoch)) / (last.epoch - first.epoch || 1);
    const down = HEIGHT - (HEIGHT * (loss - least)) / (most - least || 1);
    return `${across.toFixed(1)},${down.toFixed(1)}`;
  });
  const words = `Loss from ${figure(first.loss)} in epoch ${first.epoch} to ${figure(last.loss)} in epoch ${last.epoch}`;
  return (
    <figure class="loss">
      <figcaption>
        <h3>Training loss</h3>
        <p class="soft">{words}.</p>
      </figcaption>
      <div class="loss-frame">
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
          <polyline points={line.join(" ")} />
        </svg>
        <span class="loss-most">{figure(most)}</span>
        <span class="loss-least">{figure(least)}</span>
      </div>
    </figure>
  );
}
