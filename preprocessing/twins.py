"""Twin nodes: pairs with the same neighbours, each other apart.

Exchanging two twins leaves the graph as it is, so every other node's row of S gives them one score. The proof of a
top-K set needs to know such exact ties: no push, however long, separates them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.bundle import IntArray, Topology

__all__ = ["twin_classes"]

_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_INTEGERS = [types.Array(integer, 1, "C", readonly=True) for integer in (types.int32, types.int64)]


def twin_classes(topology: Topology) -> npt.NDArray[np.int64]:
    """The class of every node, [N]: classes count from 0, and −1 marks a node without a twin.

    Nodes of equal neighbourhood hash are compared with the first of them, neighbour by neighbour: a collision of hashes
    can hide a twin but never invents one. O(arcs + N log N).
    """
    indptr, indices = np.asarray(topology.indptr), np.asarray(topology.indices)
    open_hash = np.empty(topology.num_nodes, dtype=np.uint64)
    closed_hash = np.empty(topology.num_nodes, dtype=np.uint64)
    _hash_neighborhoods(indptr, indices, open_hash, closed_hash)
    classes = np.full(topology.num_nodes, -1, dtype=np.int64)
    count = 0
    for key in (open_hash, closed_hash):
        count = _match(indptr, indices, key, np.argsort(key, kind="stable"), classes, count)
    return classes


@njit("uint64(uint64)", nogil=True, cache=True)
def _mix(value: np.uint64) -> np.uint64:
    """SplitMix64's step (Steele et al., 2014), so that sums of small integers do not collide."""
    z: np.uint64 = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(
    [types.void(_INT64S, indices, types.uint64[::1], types.uint64[::1]) for indices in _INTEGERS],
    nogil=True,
    cache=True,
)
def _hash_neighborhoods(
    indptr: npt.NDArray[np.int64],
    indices: IntArray,
    open_hash: npt.NDArray[np.uint64],
    closed_hash: npt.NDArray[np.uint64],
) -> None:
    """Sums of mixed neighbours, without the node and with it: sets in any order, so equal sets have equal hashes."""
    for node in range(len(indptr) - 1):
        total = np.uint64(0)
        for place in range(indptr[node], indptr[node + 1]):
            total += _mix(np.uint64(indices[place]))
        open_hash[node] = total
        closed_hash[node] = total + _mix(np.uint64(node))


@njit([types.boolean(_INT64S, indices, types.int64, types.int64) for indices in _INTEGERS], nogil=True, cache=True)
def _are_twins(indptr: npt.NDArray[np.int64], indices: IntArray, a: int, b: int) -> bool:
    """Whether the ascending neighbourhoods of a and b are equal once a and b themselves are left out."""
    i, j = indptr[a], indptr[b]
    if indptr[a + 1] - i != indptr[b + 1] - j:
        return False
    while True:
        if i < indptr[a + 1] and indices[i] == b:
            i += 1
        if j < indptr[b + 1] and indices[j] == a:
            j += 1
        if i == indptr[a + 1] or j == indptr[b + 1]:
            return bool(i == indptr[a + 1] and j == indptr[b + 1])
        if indices[i] != indices[j]:
            return False
        i += 1
        j += 1


@njit(
    [
        types.int64(_INT64S, indices, types.uint64[::1], types.int64[::1], types.int64[::1], types.int64)
        for indices in _INTEGERS
    ],
    nogil=True,
    cache=True,
)
def _match(
    indptr: npt.NDArray[np.int64],
    indices: IntArray,
    key: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int64],
    classes: npt.NDArray[np.int64],
    count: int,
) -> int:
    """Number the classes among the runs of equal keys in ``order``, from ``count`` on; the answer is the new count."""
    first = 0
    for place in range(1, len(order)):
        if key[order[place]] != key[order[first]]:
            first = place
        elif _are_twins(indptr, indices, order[first], order[place]):
            if classes[order[first]] < 0:
                classes[order[first]] = count
                count += 1
            classes[order[place]] = classes[order[first]]
    return count
