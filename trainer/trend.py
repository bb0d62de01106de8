"""Whether losses that differ by chance from epoch to epoch have a trend."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Trend"]


@dataclass(frozen=True)
class Trend:
    """A line fitted to the losses of epochs 1 … ``count``: their mean, and sums of products of deviations from means.

    ``squares``: of the losses with themselves; ``products``: with their epochs (Welford, 1962).
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def after(self, loss: float) -> Trend:
        """With one more epoch."""
        count = self.count + 1
        mean = self.mean + (loss - self.mean) / count
        squares = self.squares + (loss - self.mean) * (loss - mean)
        # The epochs before have the mean count / 2.
        return Trend(count, mean, squares, self.products + count / 2 * (loss - mean))

    @property
    def deviation(self) -> float:
        """Standard deviation, as a share of the mean's size; 0 where all are equal."""
        if self.squares <= 0:
            return 0.0
        return math.sqrt(self.squares / self.count) / abs(self.mean) if self.mean else math.inf

    @property
    def t(self) -> float:
        """Student's t of the slope, from 3 epochs on: how many of its own standard errors it is from 0."""
        if self.squares <= 0:
            return 0.0
        epochs = self.count * (self.count**2 - 1) / 12
        slope = self.products / epochs
        residual = max(self.squares - slope * self.products, 0.0)
        error = math.sqrt(residual / (self.count - 2) / epochs)
        return slope / error if error else math.copysign(math.inf, slope)
