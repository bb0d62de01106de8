"""Measured recall of a search: how many of the true nearest neighbours it returns.

The truth is a brute force of its own, in float64, that shares nothing with the search it checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["measured_recall", "true_scores"]

BLOCK_ROWS = 4096
# Two neighbours closer than this to the query are a tie, and either is right.
TIE = 1e-6


def true_scores(
    vectors: npt.NDArray[Any], sample: npt.NDArray[np.int64], k: int, progress: Callable[[int], None]
) -> npt.NDArray[np.float64]:
    """The ``k`` largest cosines [S, k] of each sampled row to all other rows, largest first.

    ``progress`` is told how many rows have been compared.
    """
    queries_SD = _unit(vectors[sample])
    best_Sk = np.full((len(sample), k), -np.inf)
    for start in range(0, len(vectors), BLOCK_ROWS):
        block_BD = _unit(vectors[start : start + BLOCK_ROWS])
        scores_SB = queries_SD @ block_BD.T
        own = np.flatnonzero((sample >= start) & (sample < start + len(block_BD)))
        scores_SB[own, sample[own] - start] = -np.inf
        both = np.concatenate((best_Sk, scores_SB), axis=1)
        best_Sk = np.partition(both, both.shape[1] - k, axis=1)[:, -k:]
        progress(start + len(block_BD))
    return -np.sort(-best_Sk, axis=1)


def measured_recall(
    vectors: npt.NDArray[Any],
    search: Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]],
    sample: npt.NDArray[np.int64],
    k: int,
    progress: Callable[[int], None],
) -> float:
    """Share of the ``k`` nearest that ``search`` returns, over the sampled rows, ties counted for either.

    ``search`` takes the sampled unit vectors [S, D] and their rows [S], which it must leave out, and returns the rows
    it found for each.
    """
    truth_Sk = true_scores(vectors, sample, k, progress)
    queries_SD = _unit(vectors[sample])
    hits = 0
    for query, found, truth in zip(queries_SD, search(queries_SD, sample), truth_Sk, strict=True):
        hits += int(np.count_nonzero(_unit(vectors[found]) @ query >= truth[-1] - TIE))
    return hits / (k * len(sample))


def _unit(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    scaled: npt.NDArray[np.float64] = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return scaled
