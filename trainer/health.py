"""What state a run is in, as its own figures tell: healthy, stalled or collapsed. No label is read.

* ``collapsed``: two looks in a row found embeddings that carry no information (``CollapseFigures.collapsed``); or the
  vectors that were made in the end carry none.
* ``stalled``, never moved: a quarter of the epochs are done, and losses differ by no more than random views make them
  differ, without a trend. Nothing is being learned. The first epoch does not count: where BatchNorm has running
  statistics, it alone is normalised by others.
* ``stalled``, no longer moves: the loss has been flat (``trainer.plateau``) for a quarter of the epochs, with a quarter
  or more still to come. It has converged or is stuck, and the epochs to come buy little. A run that flattens later is
  healthy: it converged by its end.

A run of fewer than 20 epochs has no loss curve to judge.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy.typing as npt

from trainer.evaluation.collapse import CollapseFigures, collapse_figures
from trainer.evaluation.model_selection import TOLERANCE, WINDOWS_A_RUN
from trainer.look import FEWEST_ROWS, MOST_ROWS
from trainer.plateau import Plateau
from trainer.trend import Trend

__all__ = ["Health", "State", "judge"]

MOST_NOISE = 0.05
"""Standard deviation over the mean: at a learning rate of 0, 0.0006 (grace) to 0.034 (cca_ssg) on Cora."""
LEAST_TREND = 4.0
"""Standard errors of a slope below which it may be chance."""
LOOKS = 2


@dataclass(frozen=True)
class State:
    """``healthy``, ``stalled`` or ``collapsed``, and for the last two why."""

    state: str
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As an event and a manifest tell it."""
        return asdict(self)


@dataclass(frozen=True)
class Health:
    """All that the state follows from; it goes on with a run that is resumed.

    ``trend`` is of the epochs' mean losses, from the second on. ``settled``: the loss has been flat at least once, so
    that an epoch may be chosen (``trainer.evaluation.model_selection``). ``still``: it no longer moves.
    ``collapsed`` counts looks in a row; ``rank`` and ``cosine`` are the last look's.
    """

    epoch: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    trend: Trend = field(default_factory=Trend)
    settled: bool = False
    still: bool = False
    collapsed: int = 0
    rank: float = 0.0
    cosine: float = 0.0

    def after(self, loss: float, epochs: int) -> Health:
        """With one more epoch of a run of so many, of this mean loss."""
        epoch, window = self.epoch + 1, max(1, epochs // WINDOWS_A_RUN)
        plateau = self.plateau.after(loss, window, TOLERANCE)
        flat = 4 * plateau.flat * window >= epochs
        return replace(
            self,
            epoch=epoch,
            plateau=plateau,
            trend=self.trend.after(loss) if self.epoch else self.trend,
            settled=self.settled or plateau.flat > 0,
            still=epochs >= WINDOWS_A_RUN and flat and (self.still or 4 * epoch <= 3 * epochs),
        )

    def looked(self, figures: CollapseFigures) -> Health:
        """With one more look."""
        collapsed = self.collapsed + 1 if figures.collapsed else 0
        return replace(self, collapsed=collapsed, rank=figures.effective_rank, cosine=figures.mean_cosine)

    def state(self, epochs: int) -> State:
        """The worst that holds, of a run of so many epochs."""
        if self.collapsed >= LOOKS:
            return _collapsed(self.rank, self.cosine)
        judged = self.epoch >= max(WINDOWS_A_RUN, epochs / 4)
        if judged and self.trend.deviation <= MOST_NOISE and abs(self.trend.t) < LEAST_TREND:
            return State(
                "stalled",
                f"the loss never moved: {self.trend.mean:.4g} ± {self.trend.deviation:.1%} over {self.epoch} epochs, "
                "without a trend, so nothing is being learned; raise optimizer.lr, or look at the features",
            )
        if self.still:
            flat = self.plateau.flat * max(1, epochs // WINDOWS_A_RUN)
            return State(
                "stalled",
                f"the loss no longer moves: flat for the last {flat} of {self.epoch} epochs, so the run has converged "
                "or is stuck; fewer epochs do, as run.stop.rule = plateau finds by itself",
            )
        return State("healthy")


def judge(vectors_ND: npt.NDArray[Any]) -> State | None:
    """``collapsed`` where the vectors that were made carry no information, by evenly spaced ones; else None, also where
    there are too few to tell.
    """
    if len(vectors_ND) < FEWEST_ROWS:
        return None
    figures = collapse_figures(vectors_ND[:: max(1, -(-len(vectors_ND) // MOST_ROWS))])
    return _collapsed(figures.effective_rank, figures.mean_cosine) if figures.collapsed else None


def _collapsed(rank: float, cosine: float) -> State:
    return State(
        "collapsed",
        f"the embeddings carry no information: their effective rank is {rank:.3g}, and two nodes' mean cosine "
        f"{cosine:.3g}; a lower optimizer.lr is the first to try, then features.transform = standardize",
    )
