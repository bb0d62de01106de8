"""Random draws without state: every one has a generator of its own, seeded by what it is for.

A resumed run therefore draws what the undisturbed run would have drawn, and workers that must agree draw alike
without a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Draw", "Purpose", "mixed"]


class Purpose(IntEnum):
    """What a draw is for; the numbers are part of a run's identity."""

    FEATURES_1 = 1
    FEATURES_2 = 2
    EDGES_1 = 3
    EDGES_2 = 4
    ANCHORS = 5
    QUERY_ORDER = 6
    NEIGHBORS = 7
    PARAMETERS = 8
    CORRUPTION = 9
    SLOW_NODES_1 = 10
    SLOW_NODES_2 = 11


@dataclass(frozen=True)
class Draw:
    """A place in a run; ``rank`` is left at 0 for draws that all workers share."""

    seed: int
    epoch: int = 0
    step: int = 0
    rank: int = 0

    def number(self, purpose: Purpose) -> int:
        """A seed below 2^63."""
        entropy = np.random.SeedSequence([self.seed, self.epoch, self.step, self.rank, purpose])
        return int(entropy.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def numpy(self, purpose: Purpose) -> np.random.Generator:
        """A fresh numpy generator."""
        return np.random.default_rng(self.number(purpose))

    def torch(self, purpose: Purpose, device: torch.device) -> torch.Generator:
        """A fresh torch generator on ``device``."""
        return torch.Generator(device).manual_seed(self.number(purpose))


def mixed(numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele et al., 2014): 64 well mixed bits a number, always the same."""
    bits = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    whole: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return whole
