"""Which checkpoint is the best so far by a measure that reads no label.

The rule is that of ``trainer.evaluation.model_selection``, followed as checkpoints come: what it chooses of all of them
is always what it chose before or the newest, so the others need not be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Best"]


@dataclass(frozen=True)
class Best:
    """The checkpoint of ``step``, of effective rank ``rank``; ``highest`` is the largest rank of all so far.

    ``eligible``: the loss had been flat by then. ``final``: no later one can take its place.
    """

    step: int | None = None
    rank: float = 0.0
    highest: float = 0.0
    eligible: bool = False
    final: bool = False

    def after(self, step: int, rank: float, *, settled: bool) -> Best:
        """With one more checkpoint; ``settled``: the loss has been flat by now."""
        highest = max(self.highest, rank)
        newest = Best(step, rank, highest, eligible=settled, final=settled and rank >= self.highest)
        if not self.final and (newest.final or not self.eligible or rank > self.rank):
            return newest
        return replace(self, highest=highest)
