"""Numbering the nodes of a sample in the order in which they come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.array_types import Int64Array, IntArray
from preprocessing.cache_hints import prefetch

__all__ = ["Positions"]

UInt64Array = npt.NDArray[np.uint64]

_EMPTY = np.uint64(2**64 - 1)
_HALF = np.uint64(32)
_POSITION = np.uint64(2**32 - 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplying by it spreads neighbouring numbers (Knuth, TAOCP 3, 6.4)."""

AHEAD = 16
"""Searches whose slots are asked for: each begins at random in a table larger than the nearest cache."""


class Positions:
    """``nodes`` [n] int64, each once, and a hash table from a node to its position among them.

    A slot holds the low half of a node and its position, so that a search reads the table alone until it has found:
    8 bytes a slot and at most half of them taken, which for the usual batches stays in a core's own cache.
    """

    def __init__(self, seeds: Int64Array) -> None:
        """``seeds`` [S] stand first and are distinct."""
        self.nodes: Int64Array = np.array(seeds, dtype=np.int64)
        self._table: UInt64Array = np.empty(0, dtype=np.uint64)
        self._shift = 64

    def of(self, indices: IntArray, arcs: Int64Array) -> npt.NDArray[np.int32]:
        """Positions of the nodes at those places of ``indices``, [E]; new ones are appended to ``nodes``."""
        picked = np.empty(len(arcs), dtype=indices.dtype)
        # A loop of its own: its reads are of the whole graph's memory, and none waits for another.
        _gather(indices, arcs, picked)
        known, most = len(self.nodes), len(self.nodes) + len(arcs)
        bits = (2 * most).bit_length()
        if 1 << bits > len(self._table):
            self._table, self._shift = np.full(1 << bits, _EMPTY), 64 - bits
            _insert(self.nodes, self._table, self._shift)
        nodes = np.empty(most, dtype=np.int64)
        nodes[:known] = self.nodes
        columns = np.empty(len(arcs), dtype=np.int32)
        found = _number(picked, nodes, known, self._table, self._shift, columns)
        self.nodes = nodes[:found].copy()
        return columns


_INT32S, _INT64S = (types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.int64))
_TABLE = types.uint64[::1]


@njit(
    [
        types.void(_INT32S, _INT64S, types.int32[::1]),
        types.void(_INT64S, _INT64S, types.int64[::1]),
    ],
    nogil=True,
    cache=True,
)
def _gather(indices: IntArray, arcs: Int64Array, picked: IntArray) -> None:
    for place in range(len(arcs)):
        picked[place] = indices[arcs[place]]


@njit([types.int64(types.int64, types.int64)], nogil=True, cache=True, inline="always")
def _home(node: int, shift: int) -> int:
    """Where the search for a node starts: the upper bits, which all of the node's have a part in."""
    return int(np.int64((np.uint64(node) * _GOLDEN) >> np.uint64(shift)))


@njit([types.void(_INT64S, _TABLE, types.int64)], nogil=True, cache=True)
def _insert(nodes: Int64Array, table: UInt64Array, shift: int) -> None:
    """Distinct nodes into an empty table of 2^(64 − shift) slots."""
    for position in range(len(nodes)):
        slot = _home(nodes[position], shift)
        while table[slot] != _EMPTY:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = (np.uint64(nodes[position]) << _HALF) | np.uint64(position)


@njit(
    [
        types.int64(picked, types.int64[::1], types.int64, _TABLE, types.int64, types.int32[::1])
        for picked in (types.int32[::1], types.int64[::1])
    ],
    nogil=True,
    cache=True,
)
def _number(
    picked: IntArray, nodes: Int64Array, found: int, table: UInt64Array, shift: int, columns: npt.NDArray[np.int32]
) -> int:
    """Open addressing: ``nodes[:found]`` are in the table already; the answer is how many are now."""
    for place in range(len(picked)):
        prefetch(table, _home(np.int64(picked[min(place + AHEAD, len(picked) - 1)]), shift))
        node = np.int64(picked[place])
        key = np.uint64(node) << _HALF
        slot = _home(node, shift)
        while True:
            held = table[slot]
            if held == _EMPTY:
                table[slot] = key | np.uint64(found)
                nodes[found] = node
                columns[place] = found
                found += 1
                break
            position = np.int64(held & _POSITION)
            # Nodes of 2^32 and more may share a low half.
            if held ^ key <= _POSITION and nodes[position] == node:
                columns[place] = position
                break
            slot = (slot + 1) & (len(table) - 1)
    return found
