"""What state a run is in, as its own figures tell: healthy, stalled or collapsed. No label is read.

* ``collapsed``: two looks in a row found embeddings that carry no information (``CollapseFigures.collapsed``).
* ``stalled``, never moved: a quarter of the epochs are done, and the loss is what it was, to a thousandth. Nothing is
  being learned.
* ``stalled``, no longer moves: the loss has been flat (``trainer.plateau``) for a quarter of the epochs, with a quarter
  or more still to come. It has converged or is stuck, and the epochs to come buy little. A run that flattens later is
  healthy: it converged by its end.

A run of fewer than 20 epochs has no loss curve to judge.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainer.evaluation.collapse import CollapseFigures
from trainer.evaluation.model_selection import TOLERANCE, WINDOWS_A_RUN
from trainer.plateau import Plateau

__all__ = ["Health", "State"]

NEVER_MOVED = 1e-3
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

    ``lowest`` and ``highest`` are of the epochs' mean losses. ``settled``: the loss has been flat at least once, so
    that an epoch may be chosen (``trainer.evaluation.model_selection``). ``still``: it no longer moves.
    ``collapsed`` counts looks in a row; ``rank`` and ``cosine`` are the last look's.
    """

    epoch: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    lowest: float = 0.0
    highest: float = 0.0
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
            lowest=min(self.lowest, loss) if self.epoch else loss,
            highest=max(self.highest, loss) if self.epoch else loss,
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
            return State(
                "collapsed",
                f"the embeddings carry no information: their effective rank is {self.rank:.3g}, and two nodes' mean "
                f"cosine {self.cosine:.3g}; a lower optimizer.lr is the first to try",
            )
        judged = epochs >= WINDOWS_A_RUN and 4 * self.epoch >= epochs
        if judged and self.highest - self.lowest <= NEVER_MOVED * max(abs(self.lowest), abs(self.highest)):
            return State(
                "stalled",
                f"the loss never moved: {self.lowest:.6g} to {self.highest:.6g} over {self.epoch} epochs, so nothing "
                "is being learned; raise optimizer.lr, or look at the features",
            )
        if self.still:
            flat = self.plateau.flat * max(1, epochs // WINDOWS_A_RUN)
            return State(
                "stalled",
                f"the loss no longer moves: flat for the last {flat} of {self.epoch} epochs, so the run has converged "
                "or is stuck; fewer epochs do, as run.stop.rule = plateau finds by itself",
            )
        return State("healthy")
