"""Neighbour sampling: the subgraph that an L-layer encoder needs for a set of seed nodes.

GraphSAGE's sampling (Hamilton et al., 2017), on the memory-mapped CSR. Every node is expanded once, at the hop where it
first appears, so all layers share one CSR and the deeper layers use a prefix of its rows. Work and memory follow the
nodes touched, never the size of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from preprocessing.array_types import Float32Array
from preprocessing.bundle import Topology
from preprocessing.errors import InputError
from trainer.sampler_draws import draw, measure
from trainer.sampler_positions import Positions

__all__ = ["NeighborSampler", "NumbaSampler", "Sample", "edge_weights", "sample"]


@dataclass(frozen=True)
class Sample:
    """A sampled subgraph in hop order.

    ``nodes`` [n] int64: seeds first, in the order given, then hop by hop, each once. ``hop_ends`` [L+1]: nodes after
    the seeds, hop 1, …, hop L. ``indptr`` [hop_ends[L−1]+1] int64 and ``indices`` [E] int32: a CSR over the expanded
    nodes whose columns are positions in ``nodes``. Outputs for the first ``hop_ends[j]`` nodes use that many rows and
    read the first ``hop_ends[j+1]`` nodes. A neighbour drawn more than once has as many entries, side by side.
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


@dataclass(frozen=True)
class NumbaSampler:
    """Compiled kernels that hold no interpreter lock: call it from as many threads as there are cores.

    ``replace`` draws ``fan_out[h]`` times from every row that has a neighbour, however few it has. ``weighted`` draws
    in proportion to the edge weights; without ``replace`` one after the other from those that are left.
    """

    replace: bool = False
    weighted: bool = False
    name: ClassVar[str] = "numba"

    def sample(self, topology: Topology, seeds: npt.NDArray[np.int64], fan_out: Sequence[int], rng_seed: int) -> Sample:
        """Sample ``fan_out[h]`` neighbours of every node first seen at hop h; −1 takes all of them.

        ``seeds`` [S] are distinct rows of the topology (a duplicate is the caller's error). The same arguments give
        the same sample. ``InputError`` where edge weights are to be followed and there are none.
        """
        weights = edge_weights(topology) if self.weighted else _NO_WEIGHTS
        positions = Positions(seeds)
        hop_ends = [len(seeds)]
        row_ends, columns = [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
        random_state = np.array([rng_seed], dtype=np.uint64)
        expanded = entries = 0
        for width in fan_out:
            frontier = positions.nodes[expanded:]
            begins, degrees, ends = (np.empty(len(frontier), dtype=np.int64) for _ in range(3))
            count = measure(topology.indptr, frontier, width, self.replace, begins, degrees, ends)
            arcs = np.empty(count, dtype=np.int64)
            draw(begins, degrees, ends, width, self.replace, weights, arcs, random_state)
            expanded = len(positions.nodes)
            columns.append(positions.of(topology.indices, arcs))
            row_ends.append(ends + entries)
            hop_ends.append(len(positions.nodes))
            entries += count
        return Sample(positions.nodes, hop_ends, np.concatenate(row_ends), np.concatenate(columns))


sample = NumbaSampler().sample
_NO_WEIGHTS = np.empty(0, dtype=np.float32)


def edge_weights(topology: Topology) -> Float32Array:
    """Those of a topology, [arcs]; ``InputError`` where it has none."""
    if topology.weights is None:
        raise InputError(
            "the graph has no edge weights to sample neighbours by",
            given="batch.weighted = true",
            expected="edges with weights",
            remedy="batch.weighted = false, or ingest the edges with a weight column",
            pointer="/settings/batch/weighted",
        )
    return topology.weights
