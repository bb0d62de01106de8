"""Random numbers for kernels: SplitMix64 (Steele et al., 2014), whose whole state is one number that a seed can be."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

__all__ = ["State", "below", "uniform"]

State = npt.NDArray[np.uint64]
"""One uint64, [1]: a kernel's generator."""


@njit([types.uint64(types.uint64[::1])], nogil=True, cache=True)
def _next(state: State) -> np.uint64:
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z: np.uint64 = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit([types.float64(types.uint64[::1])], nogil=True, cache=True)
def uniform(state: State) -> float:
    """A number of [0, 1), a multiple of 2^-53."""
    return float(np.float64(_next(state) >> np.uint64(11)) * 2.0**-53)


@njit([types.int64(types.uint64[::1], types.int64)], nogil=True, cache=True)
def below(state: State, end: int) -> int:
    """An integer of [0, end), even to end · 2^-53."""
    return int(end * uniform(state))
