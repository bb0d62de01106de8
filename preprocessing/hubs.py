"""The order in which a hub reaches its neighbours.

A push of node v adds mass·w to a neighbour, where a push threshold and a score are measured by the neighbour's degree:
what a hub passes on says something to neighbours of great w/d, and almost nothing to the others, which are most. So
the arcs of a hub stand by descending w/d, and a push walks as many of them as matter (*approximate graph propagation*,
Wang et al., 2021). What it does not walk stays in the bound of the row's error.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from preprocessing.array_types import Float32Array, Float64Array, IntArray
from preprocessing.settings import PprSettings

__all__ = ["HUB_ARCS", "hub_arcs", "order_by_reach"]

HUB_ARCS = 128
"""A hub has more. Of 16 to 256 the best on R-MAT 2^20; graphs of few hubs hardly tell them apart."""

_FLOAT32S, _FLOAT64S = (types.Array(number, 1, "C", readonly=True) for number in (types.float32, types.float64))


def hub_arcs(settings: PprSettings) -> int:
    """How many arcs a node has at most that always walks all of them."""
    return HUB_ARCS if settings.hub_cap is None else min(HUB_ARCS, settings.hub_cap)


@njit(
    [types.void(integer[::1], types.float32[::1], _FLOAT64S) for integer in (types.int32, types.int64)],
    nogil=True,
    cache=True,
)
def order_by_reach(neighbors: IntArray, weights: Float32Array, degree: Float64Array) -> None:
    """Put a node's arcs by descending w/d, equal ones as they stand; an unweighted graph has no ``weights``.

    ``degree`` [N] is that of all nodes, the self-loop included.
    """
    key = degree[neighbors]
    if len(weights) > 0:
        key /= weights
    by_reach = np.argsort(key, kind="mergesort")
    neighbors[:] = neighbors[by_reach]
    if len(weights) > 0:
        weights[:] = weights[by_reach]
