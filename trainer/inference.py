"""Layer-wise inference: every node's embedding, on the whole graph as it is.

A layer at a time, in chunks of rows: what a node is heard by is made once, then each chunk of rows aggregates what its
neighbours are heard by. Every edge is read once a layer; features are read once, and again by layers that look at them
again. What must be kept between layers is [N, width] (``layer_arrays``); a process that was killed left its chunks, and
the next one takes the same, so that both together make the bytes that one would have made. Sampling would give each
node a different, noisy embedding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.array_types import Float32Array
from preprocessing.bundle import Topology
from trainer.dense import rows_times
from trainer.encoders import Encoder
from trainer.encoders.base import Aggregated
from trainer.features import FeatureStore
from trainer.layer_arrays import LayerArrays
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["embed"]

# A chunk has as many rows as have this many neighbours and activations (64 MiB of float32), but at least one.
CHUNK_ENTRIES = 1 << 24


@torch.no_grad()
def embed(
    encoder: Encoder,
    features: FeatureStore,
    topology: Topology,
    arrays: LayerArrays,
    first_step: int = 0,
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Embed every node; the answer is the step whose one array, [N, D], has the embeddings, in the topology's order.

    The steps are ``first_step`` and one a layer after it. ``encoder`` is moved to ``device`` and put in eval mode.
    ``progress`` hears how many rows of all layers are done. Peak memory beside ``arrays`` is a small multiple of
    ``CHUNK_ENTRIES``.
    """
    encoder, nodes = encoder.to(device).eval(), topology.num_nodes
    length = max(1, CHUNK_ENTRIES // features.num_columns)
    weight = encoder.weight(0)
    kept_by = torch.eye(len(weight), device=device) if _widens(weight) else weight
    for first in range(arrays.done(first_step), nodes, length):
        rows = slice(first, min(first + length, nodes))
        arrays.write(first_step, rows, [(_StoredRows(features, rows, device) @ kept_by).cpu().numpy()])
    for number in range(encoder.num_layers):
        before, step, weight = first_step + number, first_step + number + 1, encoder.weight(number)
        if (done := arrays.done(step)) < nodes:
            heard_ND, *own = arrays.of(before)
            width = max(weight.shape) + sum(kept.shape[1] for kept in own)
            for first, last in _chunks(topology, 2 * width, done):
                rows = slice(first, last)
                heard_RD = _aggregate(heard_ND, topology, rows, encoder, device)
                chunk = Aggregated(
                    rows_times(heard_RD, weight) if _widens(weight) else heard_RD,
                    [torch.from_numpy(kept[rows]).to(device) for kept in own],
                    _StoredRows(features, rows, device),
                )
                state = encoder.advance(number, chunk)
                arrays.write(
                    step, rows, [part.cpu().numpy() for part in (_kept(encoder, number + 1, state.x_nD), *state.own)]
                )
                progress(number * nodes + last)
        arrays.drop(before)
    return first_step + encoder.num_layers


def _kept(encoder: Encoder, number: int, x_RD: Tensor) -> Tensor:
    """What layer ``number`` hears of: X W, but X where W widens it, so that the narrower is kept and read by edge."""
    if number == encoder.num_layers or _widens(encoder.weight(number)):
        return x_RD
    return rows_times(x_RD, encoder.weight(number))


def _widens(weight: Tensor) -> bool:
    columns, width = weight.shape
    return columns < width


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


def _chunks(topology: Topology, width: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Runs of rows from ``first``, (first, last), of at most ``CHUNK_ENTRIES`` neighbours and activations each.

    ``width`` activations are a row's. From an end of a run on, the runs are those that would have followed.
    """
    nodes, indptr = topology.num_nodes, topology.indptr
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
    heard_ND: Float32Array,
    topology: Topology,
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
    weight_E, own_R = encoder.aggregator.weights(topology, indptr, indices)
    heard = torch.from_numpy(heard_ND)
    own_RD = heard[rows].to(device) * own_R[:, None].to(device)
    if torch.device(device).type != "cpu":
        needed, local = torch.unique(indices.to(device), return_inverse=True)
        heard, indices = heard[needed.cpu()].to(device), local.to(torch.int32)
    pattern = Pattern(indptr.to(device), indices, len(heard))
    return SparseMatrix(pattern, weight_E.to(device)).matmul(heard) + own_RD
