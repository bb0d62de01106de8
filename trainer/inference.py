"""Layer-wise inference: every node's embedding, on the whole graph as it is.

A layer at a time, in chunks of rows: what a layer hears is projected once for every node, then each chunk of rows
aggregates its neighbours' projections. Every edge is read once a layer, every feature once; what must be kept between
layers are projections [N, width], in memory or in an unlinked file. Sampling would give each node a different, noisy
embedding.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Topology
from preprocessing.stage import Emitter
from trainer.encoders.gcn import GcnEncoder, GcnLayer
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
    encoder: GcnEncoder,
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
    layers = [cast(GcnLayer, layer) for layer in encoder.layers]
    nodes = topology.num_nodes
    root_N = torch.from_numpy(topology.degrees() + 1).to(torch.float32).rsqrt()

    heard_ND = scratch((nodes, layers[0].weight.shape[1]), directory)
    step = max(1, CHUNK_ENTRIES // features.num_columns)
    for first in range(0, nodes, step):
        rows = np.arange(first, min(first + step, nodes))
        heard_ND[rows[0] : rows[-1] + 1] = (features.rows(rows, device) @ layers[0].weight).cpu().numpy()
    for i, layer in enumerate(layers):
        following = layers[i + 1] if i + 1 < len(layers) else None
        result_ND = out_ND if following is None else scratch((nodes, following.weight.shape[1]), directory)
        for first, last in _chunks(topology, layer.weight.shape[1] + result_ND.shape[1]):
            hidden_RD = layer.activate(_aggregate(torch.from_numpy(heard_ND), topology, root_N, first, last, device))
            result_RD = hidden_RD if following is None else hidden_RD @ following.weight
            result_ND[first:last] = result_RD.cpu().numpy()
            if emitter is not None:
                emitter.progress(i * nodes + last, len(layers) * nodes, "nodes and layers embedded")
        heard_ND = result_ND


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
    heard_ND: Tensor, topology: Topology, root_N: Tensor, first: int, last: int, device: torch.device | str
) -> Tensor:
    """Rows first to last of A times ``heard_ND``, A as ``GraphAdjacency.normalized`` has it: [R, D] on ``device``.

    Only the rows that a chunk hears of travel to another device.
    """
    begin, end = topology.indptr[first], topology.indptr[last]
    indptr = torch.from_numpy(topology.indptr[first : last + 1] - begin)
    indices = torch.from_numpy(np.array(topology.indices[begin:end], dtype=np.int32))
    root_R = root_N[first:last]
    values = torch.repeat_interleave(root_R, indptr.diff()) * root_N[indices]
    own_RD = heard_ND[first:last].to(device) * root_R.square()[:, None].to(device)
    if torch.device(device).type != "cpu":
        needed, local = torch.unique(indices.to(device), return_inverse=True)
        heard_ND, indices = heard_ND[needed.cpu()].to(device), local.to(torch.int32)
    pattern = Pattern(indptr.to(device), indices, len(heard_ND))
    return SparseMatrix(pattern, values.to(device)).matmul(heard_ND) + own_RD
