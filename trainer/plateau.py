"""When a loss has stopped changing: the rule that ends a run early, and the first half of a choice without labels.

Losses are averaged over windows of epochs. A window is flat when its mean differs from the one before by no more than a
share of all the distance that such means have covered so far; neither the loss's scale nor its sign matters. The run is
on its plateau after enough flat windows in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Plateau"]


@dataclass(frozen=True)
class Plateau:
    """Everything that the rule remembers of the epochs so far.

    ``total`` and ``epochs`` are of the window in progress, ``mean`` of the last whole one; ``lowest`` and ``highest``
    are means too, once there is one. ``flat`` counts flat windows in a row.
    """

    total: float = 0.0
    epochs: int = 0
    mean: float | None = None
    lowest: float = 0.0
    highest: float = 0.0
    flat: int = 0

    def after(self, loss: float, window: int, tolerance: float) -> Plateau:
        """With one more epoch, of this loss; a window is ``window`` epochs."""
        counted = replace(self, total=self.total + loss, epochs=self.epochs + 1)
        return counted if counted.epochs < window else counted._closed(tolerance)

    def _closed(self, tolerance: float) -> Plateau:
        mean = self.total / self.epochs
        if self.mean is None:
            return Plateau(mean=mean, lowest=mean, highest=mean)
        lowest, highest = min(self.lowest, mean), max(self.highest, mean)
        flat = abs(mean - self.mean) <= tolerance * (highest - lowest)
        return Plateau(mean=mean, lowest=lowest, highest=highest, flat=self.flat + 1 if flat else 0)
