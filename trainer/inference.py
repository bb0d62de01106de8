"""Layer-wise inference: every node's embedding, on the whole graph as it is.

A layer at a time, in chunks of rows: what a node is heard by is made once, then each chunk of rows aggregates what its
neighbours are heard by. Every edge is read once a layer; features are read once, and again by layers that look at them
again. What must be kept between layers is [N, width], in memory or in unlinked files. Sampling would give each node a
different, noisy embedding.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Topology
from preprocessing.stage import Emitter
from trainer.dense import rows_times
from trainer.encoders import Encoder
from trainer.encoders.base import Aggregated, State
from trainer.features import FeatureStore
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["embed", "scratch"]

# A chunk has as many rows as have this many neighbours and activations (64 MiB of float32), but at least one.
CHUNK_ENTRIES = 1 << 24
# Activations up to this size stay in memory.
MEMORY_BYTES = 1 << 30

FloatArray = npt.NDArray[np.float32]


def scratch(shape: tuple[int, ...], directory: Path) -> FloatArray:
    """An array in memory, or past ``MEMORY_BYTES`` in a file of ``directory`` that no name leads to."""
    if 4 * math.prod(shape) <= MEMORY_BYTES:
        return np.empty(shape, dtype=np.float32)
    with tempfile.TemporaryFile(dir=directory) as file:
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


@torch.no_grad()
def embed(
    encoder: Encoder,
    features: FeatureStore,
    topology: Topology,
    out_ND: FloatArray,
    *,
    directory: Path,
    device: torch.device | str = "cpu",
    emitter: Emitter | None = None,
) -> None:
    """Write the embedding of every node into ``out_ND``, whose row order is the topology's.

    ``encoder`` is moved to ``device`` and put in eval mode. ``directory`` is where activations go that are too large
    for memory. Peak memory beside those, the node degrees and the output is a small multiple of ``CHUNK_ENTRIES``.
    """
    encoder = encoder.to(device).eval()
    nodes, degree_N = topology.num_nodes, torch.from_numpy(topology.degrees())
    states = _States(nodes, directory)
    step = max(1, CHUNK_ENTRIES // features.num_columns)
    for first in range(0, nodes, step):
        rows = slice(first, min(first + step, nodes))
        states.write(rows, State(_StoredRows(features, rows, device) @ encoder.weight(0)))
    for number in range(encoder.num_layers):
        following = _States(nodes, directory, heard_ND=out_ND if number + 1 == encoder.num_layers else None)
        for first, last in _chunks(topology, 2 * states.width):
            rows = slice(first, last)
            chunk = Aggregated(
                _aggregate(states.arrays[0], topology, degree_N, rows, encoder, device),
                [torch.from_numpy(array[rows]).to(device) for array in states.arrays[1:]],
                _StoredRows(features, rows, device),
            )
            state = encoder.advance(number, chunk)
            if number + 1 < encoder.num_layers:
                state = State(rows_times(state.x_nD, encoder.weight(number + 1)), state.own)
            following.write(rows, state)
            if emitter is not None:
                emitter.progress(number * nodes + last, encoder.num_layers * nodes, "nodes and layers embedded")
        states = following


class _States:
    """All nodes between two layers: what they are heard by, [N, D], then what each keeps, [N, ·]."""

    def __init__(self, nodes: int, directory: Path, heard_ND: FloatArray | None = None) -> None:
        self.nodes, self.directory = nodes, directory
        self.arrays = [] if heard_ND is None else [heard_ND]

    @property
    def width(self) -> int:
        """Numbers a node."""
        return sum(array.shape[1] for array in self.arrays)

    def write(self, rows: slice, state: State) -> None:
        """Some nodes; the first to come tell how much there is to a node."""
        parts = (state.x_nD, *state.own)
        for part in parts[len(self.arrays) :]:
            self.arrays.append(scratch((self.nodes, part.shape[1]), self.directory))
        for array, part in zip(self.arrays, parts, strict=True):
            array[rows] = part.cpu().numpy()


@dataclass(frozen=True)
class _StoredRows:
    """Features of a run of nodes, read when they are multiplied, at most ``CHUNK_ENTRIES`` numbers at once."""

    features: FeatureStore
    rows: slice
    device: torch.device | str

    def __matmul__(self, weight_FD: Tensor) -> Tensor:
        step = max(1, CHUNK_ENTRIES // self.features.num_columns)
        parts = np.split(
            np.arange(self.rows.start, self.rows.stop), range(step, self.rows.stop - self.rows.start, step)
        )
        return torch.cat([self.features.rows(part, self.device) @ weight_FD for part in parts])


def _chunks(topology: Topology, width: int) -> Iterator[tuple[int, int]]:
    """Runs of rows (first, last) with at most ``CHUNK_ENTRIES`` neighbours and activations, ``width`` a row."""
    first, nodes, indptr = 0, topology.num_nodes, topology.indptr
    while first < nodes:
        candidates = range(first + 1, nodes + 1)
        last = first + max(
            1, bisect_right(candidates, CHUNK_ENTRIES, key=lambda end: _entries(indptr, first, end, width))
        )
        yield first, last
        first = last


def _entries(indptr: npt.NDArray[np.int64], first: int, last: int, width: int) -> int:
    return int(indptr[last] - indptr[first]) + (last - first) * width


def _aggregate(
    heard_ND: FloatArray,
    topology: Topology,
    degree_N: Tensor,
    rows: slice,
    encoder: Encoder,
    device: torch.device | str,
) -> Tensor:
    """Some rows of A times ``heard_ND``, A as the encoder's whole adjacency has it: [R, D] on ``device``.

    Only the rows that a chunk hears of travel to another device.
    """
    begin, end = topology.indptr[rows.start], topology.indptr[rows.stop]
    indptr = torch.from_numpy(topology.indptr[rows.start : rows.stop + 1] - begin)
    indices = torch.from_numpy(np.array(topology.indices[begin:end], dtype=np.int32))
    weight_E, own_R = encoder.aggregator.weights(degree_N, rows, indptr, indices)
    heard = torch.from_numpy(heard_ND)
    own_RD = heard[rows].to(device) * own_R[:, None].to(device)
    if torch.device(device).type != "cpu":
        needed, local = torch.unique(indices.to(device), return_inverse=True)
        heard, indices = heard[needed.cpu()].to(device), local.to(torch.int32)
    pattern = Pattern(indptr.to(device), indices, len(heard))
    return SparseMatrix(pattern, weight_E.to(device)).matmul(heard) + own_RD
