"""Rows of twins: exchanging two twins leaves the graph as it is, so their rows are each other's with the two exchanged.

That holds to the last digit for every claim of a row too. Among twins of equal score the kernels keep the smallest row
numbers; so does a copy.
"""

from __future__ import annotations

import numpy as np

from preprocessing.array_types import Int64Array, IntArray
from preprocessing.workspace import Rows

__all__ = ["copy_twin_rows", "distinct_rows"]


def distinct_rows(nodes: Int64Array, leaders: IntArray) -> tuple[Int64Array, Int64Array]:
    """The first of every twin class among ``nodes``, ascending, and for each node the place of its own among them."""
    leader = leaders[nodes]
    _, first, place = np.unique(np.where(leader < 0, nodes, leader), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return nodes[first[order]], rank[place]


def copy_twin_rows(
    nodes: Int64Array, leaders: IntArray, sources: Int64Array, place: Int64Array, computed: Rows, rows: Rows
) -> None:
    """Fill the rows of ``nodes`` from those of ``sources``, as ``distinct_rows`` has paired them."""
    for column in range(len(rows)):
        rows[column][:] = computed[column][place]
    copies = np.flatnonzero(sources[place] != nodes)
    kept, own, twin = rows.neighbors[copies], nodes[copies, None], sources[place[copies], None]
    exchanged = np.where(kept == twin, own, np.where(kept == own, twin, kept))
    # Where a tie has left the node itself out of its twin's row, that twin is the rival of those kept in its stead.
    of_class = (kept >= 0) & (kept != twin) & (leaders[kept] == leaders[own])
    last = np.where(of_class, kept, -1).max(axis=1, keepdims=True, initial=-1)
    rival = (last > twin) & ~(kept == own).any(axis=1, keepdims=True)
    exchanged = np.where(rival & (kept == last), twin, exchanged)
    # By score, then by row number; −1 is the largest unsigned number, so the padding stays last.
    order = np.lexsort((exchanged.view(np.uint64), -rows.scores[copies]), axis=1)
    rows.neighbors[copies] = np.take_along_axis(exchanged, order, axis=1)
    rows.scores[copies] = np.take_along_axis(rows.scores[copies], order, axis=1)
