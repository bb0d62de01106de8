"""Neighbour sampling: the subgraph that an L-layer encoder needs for a set of seed nodes.

GraphSAGE's uniform sampling without replacement (Hamilton et al., 2017), on the memory-mapped CSR. Every node is
expanded once, at the hop where it first appears, so all layers share one CSR and the deeper layers use a prefix of
its rows. Work and memory follow the nodes touched, never the size of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from preprocessing.array_types import IntArray
from preprocessing.bundle import Topology

__all__ = ["NeighborSampler", "NumbaSampler", "Sample", "sample"]


@dataclass(frozen=True)
class Sample:
    """A sampled subgraph in hop order.

    ``nodes`` [n] int64: seeds first, in the order given, then hop by hop, each once. ``hop_ends`` [L+1]: nodes after
    the seeds, hop 1, …, hop L. ``indptr`` [hop_ends[L−1]+1] int64 and ``indices`` [E] int32: a CSR over the expanded
    nodes whose columns are positions in ``nodes``. Outputs for the first ``hop_ends[j]`` nodes use that many rows and
    read the first ``hop_ends[j+1]`` nodes.
    """

    nodes: npt.NDArray[np.int64]
    hop_ends: list[int]
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]


class NeighborSampler(Protocol):
    """What a back end offers."""

    @property
    def name(self) -> str:
        """The back end, as the run's record calls it."""

    def sample(self, topology: Topology, seeds: npt.NDArray[np.int64], fan_out: Sequence[int], rng_seed: int) -> Sample:
        """A subgraph around ``seeds``, ``fan_out[h]`` neighbours of every node first seen at hop h; −1 for all."""


class NumbaSampler:
    """Compiled kernels that hold no interpreter lock: call it from as many threads as there are cores."""

    name = "numba"

    def sample(self, topology: Topology, seeds: npt.NDArray[np.int64], fan_out: Sequence[int], rng_seed: int) -> Sample:
        """Sample ``fan_out[h]`` neighbours of every node first seen at hop h; −1 takes all of them.

        ``seeds`` [S] are distinct rows of the topology (a duplicate is the caller's error). The same arguments give
        the same sample.
        """
        nodes = np.ascontiguousarray(seeds, dtype=np.int64)
        hop_ends = [len(nodes)]
        indptr = np.zeros(1, dtype=np.int64)
        positions: list[npt.NDArray[np.int32]] = []
        random_state = np.array([rng_seed], dtype=np.uint64)
        for width in fan_out:
            frontier = nodes[len(indptr) - 1 :]
            row_ends = indptr[-1] + _count(topology.indptr, frontier, width)
            picked = np.empty(int(row_ends[-1] - indptr[-1]) if len(frontier) else 0, dtype=np.int64)
            _pick(topology.indptr, topology.indices, frontier, row_ends - indptr[-1], picked, random_state)
            local, fresh = _renumber(nodes, picked)
            nodes = np.concatenate([nodes, fresh])
            indptr = np.concatenate([indptr, row_ends])
            positions.append(local)
            hop_ends.append(len(nodes))
        return Sample(nodes, hop_ends, indptr, np.concatenate(positions))


sample = NumbaSampler().sample


def _count(indptr: npt.NDArray[np.int64], frontier: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Where the picks of each frontier node end, counted from the first."""
    degrees = indptr[frontier + 1] - indptr[frontier]
    return np.cumsum(degrees if width == -1 else np.minimum(degrees, width))


def _renumber(
    nodes: npt.NDArray[np.int64], picked: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Positions of ``picked`` in ``nodes`` followed by the nodes not seen before, and those nodes."""
    slots = 1 << (2 * (len(nodes) + len(picked))).bit_length()
    table = np.full(slots, -1, dtype=np.int32)
    local = np.empty(len(picked), dtype=np.int32)
    merged = np.empty(len(nodes) + len(picked), dtype=np.int64)
    merged[: len(nodes)] = nodes
    total = _look_up(merged, len(nodes), picked, table, local)
    return local, merged[len(nodes) : total]


_INT32S = types.Array(types.int32, 1, "C", readonly=True)
_INT64S = types.Array(types.int64, 1, "C", readonly=True)


@numba.njit("uint64(uint64[::1])", nogil=True, cache=True, inline="always")
def _next(state: npt.NDArray[np.uint64]) -> np.uint64:
    """SplitMix64 (Steele et al., 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z: np.uint64 = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(
    [
        types.void(_INT64S, column, _INT64S, _INT64S, types.int64[::1], types.uint64[::1])
        for column in (_INT32S, _INT64S)
    ],
    nogil=True,
    cache=True,
)
def _pick(
    indptr: npt.NDArray[np.int64],
    indices: IntArray,
    frontier: npt.NDArray[np.int64],
    row_ends: npt.NDArray[np.int64],
    picked: npt.NDArray[np.int64],
    random_state: npt.NDArray[np.uint64],
) -> None:
    """Fill ``picked`` row by row: the whole row, or a uniform subset by Floyd's algorithm.

    Floyd's (Bentley and Floyd, 1987) draws once a pick and looks through the earlier picks of the row: fan-outs are
    tens, and a hub costs no more than any other node.
    """
    begin = 0
    for i in range(len(frontier)):
        first = indptr[frontier[i]]
        degree = indptr[frontier[i] + 1] - first
        count = row_ends[i] - begin
        if count == degree:
            for j in range(degree):
                picked[begin + j] = indices[first + j]
        else:
            for j in range(count):
                last = degree - count + j
                draw = _next(random_state) >> np.uint64(32)
                offset = np.int64((draw * np.uint64(last + 1)) >> np.uint64(32))
                neighbor = np.int64(indices[first + offset])
                for earlier in range(begin, begin + j):
                    if picked[earlier] == neighbor:
                        neighbor = np.int64(indices[first + last])
                        break
                picked[begin + j] = neighbor
        begin = row_ends[i]


@numba.njit(
    types.int64(types.int64[::1], types.int64, _INT64S, types.int32[::1], types.int32[::1]), nogil=True, cache=True
)
def _look_up(
    merged: npt.NDArray[np.int64],
    known: int,
    picked: npt.NDArray[np.int64],
    table: npt.NDArray[np.int32],
    local: npt.NDArray[np.int32],
) -> int:
    """Open addressing from node to position: ``merged[:known]`` are there already, the answer is how many there are."""
    mask = len(table) - 1
    total = 0
    for i in range(known + len(picked)):
        node = merged[i] if i < known else picked[i - known]
        slot = np.int64((np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while table[slot] >= 0 and merged[table[slot]] != node:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = total
            merged[total] = node
            total += 1
        if i >= known:
            local[i - known] = table[slot]
    return total
