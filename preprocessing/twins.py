"""Twin nodes: pairs with the same neighbours, each other apart.

Exchanging two twins leaves the graph as it is, so every other node's row of S gives them one score. The proof of a
top-K set needs to know such exact ties: no push, however long, separates them. Weighted arcs must agree in weight.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.array_types import Float32Array, Int64Array, IntArray
from preprocessing.bundle import Topology

__all__ = ["twin_leaders"]

LEADERS = 8

_INT64S, _FLOAT32S = (types.Array(number, 1, "C", readonly=True) for number in (types.int64, types.float32))
_INTEGERS = [types.Array(integer, 1, "C", readonly=True) for integer in (types.int32, types.int64)]
_ARCS = [(_INT64S, indices, _FLOAT32S) for indices in _INTEGERS]


def twin_leaders(topology: Topology) -> IntArray:
    """The first node of every node's class, [N], of the dtype of ``indices``; −1 marks a node without a twin.

    Nodes of equal neighbourhood hash are compared with the first of them, neighbour by neighbour: a collision of hashes
    can hide a twin but never invents one. O(arcs + N log N).
    """
    indptr, indices = np.asarray(topology.indptr), np.asarray(topology.indices)
    weights = np.empty(0, dtype=np.float32) if topology.weights is None else np.asarray(topology.weights)
    open_hash = np.empty(topology.num_nodes, dtype=np.uint64)
    closed_hash = np.empty(topology.num_nodes, dtype=np.uint64)
    _hash_neighborhoods(indptr, indices, open_hash, closed_hash)
    leaders = np.full(topology.num_nodes, -1, dtype=indices.dtype)
    for key in (open_hash, closed_hash):
        _match(indptr, indices, weights, key, np.argsort(key, kind="stable"), leaders)
    return leaders


@njit("uint64(uint64)", nogil=True, cache=True)
def _mix(value: np.uint64) -> np.uint64:
    """SplitMix64's step (Steele et al., 2014), so that sums of small integers do not collide."""
    z: np.uint64 = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit([types.void(*arcs[:2], types.uint64[::1], types.uint64[::1]) for arcs in _ARCS], nogil=True, cache=True)
def _hash_neighborhoods(
    indptr: Int64Array,
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


@njit([types.boolean(*arcs, types.int64, types.int64) for arcs in _ARCS], nogil=True, cache=True)
def _are_twins(indptr: Int64Array, indices: IntArray, weights: Float32Array, a: int, b: int) -> bool:
    """Whether the neighbourhoods of a and b, ordered alike, are equal once a and b themselves are left out."""
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
        if indices[i] != indices[j] or (len(weights) > 0 and weights[i] != weights[j]):
            return False
        i += 1
        j += 1


@njit(
    [types.void(*arcs, types.uint64[::1], types.int64[::1], types.Array(arcs[1].dtype, 1, "C")) for arcs in _ARCS],
    nogil=True,
    cache=True,
)
def _match(
    indptr: Int64Array,
    indices: IntArray,
    weights: Float32Array,
    key: npt.NDArray[np.uint64],
    order: Int64Array,
    leaders: IntArray,
) -> None:
    """Find the classes among the runs of equal keys in ``order``, whose nodes ascend within a run.

    A run of one neighbourhood holds several classes where weights differ. The first ``LEADERS`` of its nodes may lead
    one, so that a run costs no more than its length: a class past them stays unfound, and its ties unproved.
    """
    first = 0
    while first < len(order):
        end = first + 1
        while end < len(order) and key[order[end]] == key[order[first]]:
            end += 1
        for lead in range(first, min(end, first + LEADERS)):
            leader = order[lead]
            if leaders[leader] >= 0:
                continue
            for place in range(lead + 1, end):
                node = order[place]
                if leaders[node] < 0 and _are_twins(indptr, indices, weights, leader, node):
                    leaders[leader] = leader
                    leaders[node] = leader
        first = end
