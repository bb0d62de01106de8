"""Which PPR rows of a changed graph may be kept from the bundle before the change, and by how much they can be off.

With S = t(I − (1−t)T)^{-1} before and S' after, S' − S = ((1−t)/t)·S'(T' − T)S, and no entry of S exceeds 1, so

    |S'_ij − S_ij| ≤ ((1−t)/t)·(S'q)_i   for every j,   with q_v = Σ_u |T'_vu − T_vu|.

S'q is one vector: the bounds of all rows cost some sixty passes over the edges, whatever has changed. Each pass adds
t(1−t)^k T'^k q; what the passes left out would add at row i is at most (1−t)^k·max(q/√d)·√d_i, because T'√d = √d.
In a component where q is zero everywhere nothing moves, and the bound is exactly zero.

A node that only one of the two graphs has counts in the other as isolated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.array_file import read_only
from preprocessing.array_types import Float32Array, Float64Array, Int64Array, IntArray
from preprocessing.bundle import Bundle, Topology

__all__ = ["Change", "compare", "row_bounds"]

_UNREAD = 0.01
"""The passes stop when what they leave out is this share of the tolerance."""
_ROUNDING = 1e-6
"""More than the relative error of a sum of 2^32 positive float64 terms, as a pass adds up."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Change:
    """``old_row`` [N'] is where a node of the new graph was before, −1 if it was not; ``new_row`` [N] the reverse.

    ``difference`` [N'] is q, the sum over the node's row of |T' − T|.
    """

    old_row: Int64Array
    new_row: Int64Array
    difference: Float64Array


def compare(old: Bundle, new: Bundle, self_loop: float) -> Change:
    """What the new graph changes; O(nodes + arcs) over the memory-mapped files of both."""
    old_row = old.ids.rows(new.ids.column())
    new_row = np.full(old.num_nodes, -1, dtype=np.int64)
    known = old_row >= 0
    new_row[old_row[known]] = np.flatnonzero(known)
    difference = np.zeros(new.num_nodes)
    before, after = _Side.of(old.symmetric, self_loop), _Side.of(new.symmetric, self_loop)
    _differ(before, after, old_row, new_row, self_loop, difference)
    return Change(old_row, new_row, difference)


def row_bounds(
    change: Change, new: Topology, teleport: float, self_loop: float, tolerance: float, progress: Progress
) -> Float64Array:
    """How far any entry of a row can have moved, [N'].

    Zero in components that nothing has changed; infinite for nodes that the graph before did not have.
    """
    side, damping = _Side.of(new, self_loop), 1 - teleport
    largest = side.root.max(initial=0.0)
    reach = np.divide(change.difference, side.root, out=np.zeros(len(side.root)), where=side.root > 0).max(initial=0.0)
    # What k passes leave out, times (1−t)/t, is at most (1−t)^(k+1)/t · reach · √d.
    wanted = _UNREAD * tolerance * teleport / max(reach * largest, np.finfo(np.float64).tiny)
    # Any number of passes gives true bounds, and a tolerance of 0 asks only which of them are 0.
    passes = max(int(np.ceil(np.log(wanted) / np.log(damping))), 1) if tolerance > 0 else 1
    term = teleport * change.difference
    bound, moved = term.copy(), np.empty_like(term)
    for number in range(passes):
        _walk(side, self_loop, damping, term, moved)
        term, moved = moved, term
        bound += term
        progress(number + 1, passes)
    bound += damping ** (passes + 1) * reach * side.root
    bound *= (1 + _ROUNDING) * damping / teleport
    bound[~_reached(side, change.difference)] = 0
    bound[change.old_row < 0] = np.inf
    return bound


class _Side(NamedTuple):
    """A graph as the kernels read it; ``weights`` is empty where every arc weighs 1, ``root`` [N] is √strength."""

    indptr: Int64Array
    indices: IntArray
    weights: Float32Array
    root: Float64Array

    @classmethod
    def of(cls, topology: Topology, self_loop: float) -> _Side:
        weights = np.empty(0, dtype=np.float32) if topology.weights is None else topology.weights
        root = np.sqrt(topology.strengths() + self_loop)
        return cls(read_only(topology.indptr), read_only(topology.indices), read_only(weights), root)


def _reached(side: _Side, difference: Float64Array) -> npt.NDArray[np.bool_]:
    """The nodes, [N'], of components in which something differs."""
    reached = difference > 0
    queue = np.empty(len(reached), dtype=np.int64)
    changed = np.flatnonzero(reached)
    queue[: len(changed)] = changed
    _spread(side, queue, len(changed), reached)
    return reached


_I8, _F8 = types.int64, types.float64
_OFFSETS, _WEIGHTS = types.Array(_I8, 1, "C", readonly=True), types.Array(types.float32, 1, "C", readonly=True)
_SIDES = [
    types.BaseTuple.from_types((_OFFSETS, types.Array(integer, 1, "C", readonly=True), _WEIGHTS, _F8[::1]), _Side)
    for integer in (types.int32, _I8)
]


@njit([_F8(side, _I8, _I8) for side in _SIDES], nogil=True, cache=True)
def _entry(side: _Side, place: int, row: int) -> float:
    """T at an arc of ``row``."""
    weight = float(side.weights[place]) if len(side.weights) > 0 else 1.0
    return float(weight / (side.root[row] * side.root[side.indices[place]]))


@njit(
    [types.void(old, new, _I8[::1], _I8[::1], _F8, _F8[::1]) for old in _SIDES for new in _SIDES],
    nogil=True,
    cache=True,
)
def _differ(
    old: _Side, new: _Side, old_row: Int64Array, new_row: Int64Array, self_loop: float, difference: Float64Array
) -> None:
    """Merge the rows of both graphs: ids ascend in both, and so do the rows of the nodes that both know."""
    size = len(difference)
    for node in range(size):
        total, before = 0.0, old_row[node]
        b, b_end = (old.indptr[before], old.indptr[before + 1]) if before >= 0 else (0, 0)
        a, a_end = new.indptr[node], new.indptr[node + 1]
        if self_loop > 0:
            # A node without neighbours, as a new node was before, has T_ii = 1.
            was = self_loop / old.root[before] ** 2 if before >= 0 else 1.0
            total += abs(self_loop / new.root[node] ** 2 - was)
        while a < a_end or b < b_end:
            there = new_row[old.indices[b]] if b < b_end else size
            here = new.indices[a] if a < a_end else size
            change = 0.0
            if there <= here:
                change -= _entry(old, b, before)
                b += 1
            if here <= there:
                change += _entry(new, a, node)
                a += 1
            total += abs(change)
        difference[node] = total


@njit([types.void(side, _F8, _F8, _F8[::1], _F8[::1]) for side in _SIDES], nogil=True, cache=True)
def _walk(side: _Side, self_loop: float, damping: float, vector: Float64Array, product: Float64Array) -> None:
    """``product`` = (1−t)·T·``vector``."""
    for row in range(len(vector)):
        product[row] = 0.0
        if side.root[row] > 0:
            product[row] = damping * self_loop / side.root[row] ** 2 * vector[row]
            for place in range(side.indptr[row], side.indptr[row + 1]):
                product[row] += damping * _entry(side, place, row) * vector[side.indices[place]]


@njit([types.void(side, _I8[::1], _I8, types.boolean[::1]) for side in _SIDES], nogil=True, cache=True)
def _spread(side: _Side, queue: Int64Array, filled: int, reached: npt.NDArray[np.bool_]) -> None:
    """Mark all that is connected with the first ``filled`` nodes of ``queue`` [N'], which are marked already."""
    done = 0
    while done < filled:
        row = queue[done]
        done += 1
        for place in range(side.indptr[row], side.indptr[row + 1]):
            node = side.indices[place]
            if not reached[node]:
                reached[node] = True
                queue[filled] = node
                filled += 1
