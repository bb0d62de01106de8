"""Membership in ascending rows, as a graph's adjacency lies in its file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.array_types import IntArray

__all__ = ["contains"]


def contains(rows: IntArray, wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of ``wanted`` [n] are among the ascending ``rows``: a binary search each."""
    if len(rows) <= 1:
        return wanted == rows if len(rows) else np.zeros(len(wanted), dtype=np.bool_)
    # Of one type: numpy would convert all of ``rows`` else. Every row fits: it is one of the same graph.
    wanted = wanted.astype(rows.dtype, copy=False)
    hits: npt.NDArray[np.bool_] = rows.take(rows.searchsorted(wanted), mode="clip") == wanted
    return hits
