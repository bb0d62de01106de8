"""A bundle as ingest reads an input: its edges, features, labels and split, for nodes that get other rows.

``rank`` [≥ N] says which: node i of the bundle becomes row ``rank[i]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from preprocessing.array_types import Int64Array
from preprocessing.bundle import PARTS, Bundle, DenseFeatures, SparseFeatures, Topology
from preprocessing.features import BLOCK_ROWS, Block
from preprocessing.labels import LabelSource
from preprocessing.raw_graph import ArcBlock, Arcs
from preprocessing.splits import SplitCodes
from preprocessing.topology import Direction

__all__ = ["feature_blocks", "feature_counts", "stored_arcs", "stored_labels", "stored_split"]

BLOCK_ARCS = 1 << 20


def stored_arcs(topology: Topology, rank: Int64Array, direction: Direction) -> Arcs:
    """The edges that make the topology again, under the same direction; an undirected one once."""

    def block(first: int) -> ArcBlock:
        last = min(first + BLOCK_ARCS, topology.num_arcs)
        begin = int(np.searchsorted(topology.indptr, first, side="right")) - 1
        end = int(np.searchsorted(topology.indptr, last, side="left"))
        bounds: Int64Array = np.clip(topology.indptr[begin : end + 1], first, last)
        hears = np.repeat(np.arange(begin, end), bounds[1:] - bounds[:-1])
        heard = topology.indices[first:last]
        weights = None if topology.weights is None else np.asarray(topology.weights[first:last])
        if direction == "undirected":
            once = hears < heard
            hears, heard, weights = hears[once], heard[once], None if weights is None else weights[once]
        source, target = rank[heard], rank[hears]
        # Ingest turns edges round for `reverse`; a bundle's rows are turned already.
        return (target, source, weights) if direction == "reverse" else (source, target, weights)

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        return (partial(block, first) for first in range(0, topology.num_arcs, BLOCK_ARCS))

    return Arcs(topology.num_arcs, topology.weights is not None, blocks)


def feature_blocks(features: DenseFeatures | SparseFeatures, rank: Int64Array) -> Iterator[Callable[[], Block]]:
    """The features, block by block; rows as ``rank`` has them."""

    def block(first: int) -> Block:
        last = min(first + BLOCK_ROWS, features.shape[0])
        if isinstance(features, DenseFeatures):
            return rank[first:last], np.asarray(features.values[first:last], dtype=np.float32)
        indptr = features.indptr[first : last + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        parts = (features.values[entries].astype(np.float32), np.array(features.indices[entries]), indptr - indptr[0])
        return rank[first:last], sp.csr_array(parts, shape=(last - first, features.shape[1]))

    return (partial(block, first) for first in range(0, features.shape[0], BLOCK_ROWS))


def feature_counts(features: DenseFeatures | SparseFeatures) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """How many entries are not zero, [B] for the rows from each first one on."""
    for first in range(0, features.shape[0], BLOCK_ROWS):
        if isinstance(features, DenseFeatures):
            yield first, np.count_nonzero(features.values[first : first + BLOCK_ROWS], axis=1).astype(np.int64)
        else:
            yield first, np.diff(features.indptr[first : first + BLOCK_ROWS + 1])


def stored_labels(bundle: Bundle) -> Iterator[LabelSource] | pa.Array | None:
    """One label a node, a block of rows after the other; or an array of lists [N]; or None."""
    path = bundle.path / "labels.parquet"
    if not path.exists():
        return None
    file = pq.ParquetFile(path)
    if pa.types.is_list(file.schema_arrow.field("label").type):
        return file.read()["label"].combine_chunks()
    return (LabelSource.of(batch.column("label")) for batch in file.iter_batches(columns=["label"]))


def stored_split(bundle: Bundle) -> SplitCodes | None:
    """A part's place in ``PARTS``, [N]; −1 for a node of no part."""
    if bundle.split is None:
        return None
    codes = np.full(bundle.num_nodes, -1, dtype=np.int8)
    for place, part in enumerate(PARTS):
        codes[getattr(bundle.split, part)] = place
    return codes
