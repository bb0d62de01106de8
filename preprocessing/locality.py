"""Nodes renumbered so that what a push touches lies close together in memory.

A row of S hardly leaves the surroundings of its node: where neighbours have near numbers, the arcs it reads and the
records it writes share cache lines and pages, and so do those of the next row. Communities by label propagation
(Raghavan et al., 2007) of a bounded size stand one after the other, inside and among themselves in breadth-first order
(Cuthill and McKee, 1969, without their sort by degree); where the numbers that a graph came with are nearer, they stay.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from preprocessing.array_file import mapped_npy, read_only
from preprocessing.array_types import Float32Array, Float64Array, Int64Array, IntArray
from preprocessing.bundle import Topology
from preprocessing.hubs import hub_arcs, order_by_reach
from preprocessing.settings import PprSettings

__all__ = ["Renumbered", "inverse", "near_order", "opened", "renumber", "reordered"]


ROUNDS, COMMUNITY, SAMPLE = 4, 2000, 100_000
"""Rounds of label propagation, nodes in a community at most, and nodes that tell how good an order is."""


class Renumbered(NamedTuple):
    """A graph of which node v is ``order[v]`` of the graph that it came from.

    Rows ascend; those of hubs, which have more arcs than ``hub_arcs`` says, stand by ``order_by_reach``.
    """

    topology: Topology
    order: Int64Array


def renumber(topology: Topology, settings: PprSettings, threads: int, folder: Path | None = None) -> Renumbered:
    """The graph in an order of near neighbours: O(N log N + arcs log degree).

    With a ``folder``, made anew if it is not whole, the arrays are memory-mapped files there, which cost no memory that
    cannot be given back; ``opened`` finds them again.
    """
    order = near_order(topology)
    degree, most = topology.strengths()[order].astype(np.float64) + float(settings.self_loops), hub_arcs(settings)
    if folder is None:
        return Renumbered(_gathered(topology, order, degree, most, threads, None), order)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    part = _gathered(topology, order, degree, most, threads, partial)
    np.save(partial / "indptr.npy", part.indptr)
    np.save(partial / "order.npy", order)
    partial.replace(folder)
    return opened(folder)


def opened(folder: Path) -> Renumbered:
    """What ``renumber`` has written there."""
    weights = folder / "weights.npy"
    indptr, indices, order = (_mapped(folder / f"{name}.npy") for name in ("indptr", "indices", "order"))
    return Renumbered(Topology(indptr, indices, _mapped(weights) if weights.exists() else None), order)


def _mapped(file: Path) -> Any:
    return np.load(file, mmap_mode="r", allow_pickle=False)


def near_order(topology: Topology) -> Int64Array:
    """The nodes, [N], such that neighbours stand near each other."""
    arcs, size = (read_only(topology.indptr), read_only(topology.indices)), topology.num_nodes
    order = np.empty(size, dtype=np.int64)
    _search(*arcs, np.zeros(size, dtype=np.uint8), order)
    labels = np.arange(size)
    for _ in range(ROUNDS):
        _propagate(*arcs, order, labels, np.bincount(labels, minlength=size), np.zeros(size, dtype=np.int32))
    _, first, place = np.unique(labels[order], return_index=True, return_inverse=True)
    order = order[np.argsort(first[place], kind="stable")]
    as_it_came = np.arange(size)
    return min(as_it_came, order, key=lambda candidate: _spread(*arcs, inverse(candidate), max(size // SAMPLE, 1)))


def inverse(order: Int64Array) -> Int64Array:
    """Where each node stands in the order, [N]."""
    rank = np.empty_like(order, subok=False)
    rank[order] = np.arange(len(order))
    return rank


def reordered(topology: Topology, order: Int64Array) -> Topology:
    """The graph of which node v is ``order[v]`` of this one; rows ascend."""
    return _gathered(topology, order, np.empty(0), topology.num_arcs, 1, None)


def _gathered(
    topology: Topology, order: Int64Array, degree: Float64Array, most: int, threads: int, folder: Path | None
) -> Topology:
    """The rows in their order, by their new numbers; those of more than ``most`` arcs by the reach of ``degree``."""
    indptr = np.zeros(topology.num_nodes + 1, dtype=np.int64)
    np.cumsum(topology.degrees()[order], out=indptr[1:])
    weighted = topology.weights is not None
    indices: IntArray = _room("indices", topology.indices.dtype, topology.num_arcs, folder)
    weights: Float32Array = _room("weights", np.float32, topology.num_arcs if weighted else 0, folder)
    rank = inverse(order).astype(topology.indices.dtype)
    old_weights = np.empty(0, dtype=np.float32) if topology.weights is None else topology.weights
    old = read_only(topology.indptr), read_only(topology.indices), read_only(old_weights)
    # Ranges of equally many arcs, each a thread's.
    bounds = np.searchsorted(indptr, np.linspace(0, topology.num_arcs, threads + 1)[1:-1]).tolist()
    ranges = zip([0, *bounds], [*bounds, topology.num_nodes], strict=True)
    with ThreadPoolExecutor(threads, thread_name_prefix="renumber") as pool:
        for _ in pool.map(
            lambda part: _gather(*old, order, rank, read_only(degree), most, *part, indptr, indices, weights), ranges
        ):
            continue
    return Topology(indptr, indices, weights if weighted else None)


def _room(name: str, dtype: npt.DTypeLike, size: int, folder: Path | None) -> npt.NDArray[Any]:
    """A flat array to write."""
    if folder is None or (name == "weights" and size == 0):
        return np.empty(size, dtype=dtype)
    return np.asarray(mapped_npy(folder / f"{name}.npy", dtype, (size,)))


_I8 = types.int64
_INT64S, _FLOAT32S = (types.Array(number, 1, "C", readonly=True) for number in (_I8, types.float32))
_INTEGERS = [types.int32, _I8]


@njit(
    [
        types.void(_INT64S, types.Array(integer, 1, "C", readonly=True), types.uint8[::1], _I8[::1])
        for integer in _INTEGERS
    ],
    nogil=True,
    cache=True,
)
def _search(indptr: Int64Array, indices: IntArray, met: npt.NDArray[np.uint8], order: Int64Array) -> None:
    """``order`` is the queue itself: what stands before ``head`` has been walked on from."""
    head, tail = 0, 0
    for first in range(len(order)):
        if met[first]:
            continue
        met[first] = 1
        order[tail] = first
        tail += 1
        while head < tail:
            node = order[head]
            head += 1
            for place in range(indptr[node], indptr[node + 1]):
                neighbor = indices[place]
                if not met[neighbor]:
                    met[neighbor] = 1
                    order[tail] = neighbor
                    tail += 1


@njit(
    [
        types.void(_INT64S, types.Array(integer, 1, "C", readonly=True), _I8[::1], _I8[::1], _I8[::1], types.int32[::1])
        for integer in _INTEGERS
    ],
    nogil=True,
    cache=True,
)
def _propagate(
    indptr: Int64Array,
    indices: IntArray,
    order: Int64Array,
    labels: Int64Array,
    sizes: Int64Array,
    votes: npt.NDArray[np.int32],
) -> None:
    """Give each node the commonest label among its neighbours, of those with room, unless its own is as common."""
    for node in order:
        begin, end, own = indptr[node], indptr[node + 1], labels[node]
        for place in range(begin, end):
            votes[labels[indices[place]]] += 1
        best, most = own, votes[own]
        for place in range(begin, end):
            label = labels[indices[place]]
            if votes[label] > most and sizes[label] < COMMUNITY:
                best, most = label, votes[label]
        for place in range(begin, end):
            votes[labels[indices[place]]] = 0
        sizes[own] -= 1
        sizes[best] += 1
        labels[node] = best


@njit(
    [types.float64(_INT64S, types.Array(integer, 1, "C", readonly=True), _I8[::1], _I8) for integer in _INTEGERS],
    nogil=True,
    cache=True,
)
def _spread(indptr: Int64Array, indices: IntArray, rank: Int64Array, step: int) -> float:
    """How far apart neighbours stand: the mean of log2(1 + distance) over the arcs of every ``step``-th node."""
    total, arcs = 0.0, 0
    for node in range(0, len(rank), step):
        for place in range(indptr[node], indptr[node + 1]):
            total += np.log2(1.0 + abs(rank[node] - rank[indices[place]]))
        arcs += indptr[node + 1] - indptr[node]
    return total / max(arcs, 1)


@njit(
    [
        types.void(
            _INT64S,
            types.Array(integer, 1, "C", readonly=True),
            _FLOAT32S,
            _I8[::1],
            integer[::1],
            types.Array(types.float64, 1, "C", readonly=True),
            _I8,
            _I8,
            _I8,
            _I8[::1],
            integer[::1],
            types.float32[::1],
        )
        for integer in _INTEGERS
    ],
    nogil=True,
    cache=True,
)
def _gather(
    old_indptr: Int64Array,
    old_indices: IntArray,
    old_weights: Float32Array,
    order: Int64Array,
    rank: IntArray,
    degree: Float64Array,
    most: int,
    begin: int,
    end: int,
    indptr: Int64Array,
    indices: IntArray,
    weights: Float32Array,
) -> None:
    """Fill the rows of a range of nodes."""
    for node in range(begin, end):
        first, size = old_indptr[order[node]], indptr[node + 1] - indptr[node]
        row = indices[indptr[node] : indptr[node + 1]]
        for place in range(size):
            row[place] = rank[old_indices[first + place]]
        if len(old_weights) > 0:
            by_number = np.argsort(row)
            for place in range(size):
                weights[indptr[node] + place] = old_weights[first + by_number[place]]
        row.sort()
        if size > most:
            of_row = slice(indptr[node], indptr[node + 1]) if len(old_weights) > 0 else slice(0, 0)
            order_by_reach(row, weights[of_row], degree)
