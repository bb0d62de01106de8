"""Features of new nodes, as the graph would hold them, and of the known nodes around them, as the encoder sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.bundle import DenseFeatures, SparseFeatures
from preprocessing.errors import InputError
from service.search.new_node_schemas import NewNode

__all__ = ["FeatureTransform", "Rows", "new_features"]

Matrix: TypeAlias = Any  # Float32Array or sp.csr_array, of which mypy knows nothing
Stored = DenseFeatures | SparseFeatures

CHUNK_NUMBERS = 1 << 22
"""Numbers of features that are in memory at a time (16 MiB)."""


@dataclass(frozen=True)
class FeatureTransform:
    """What happens to features before the first layer: x > 0 becomes 1, or (x − shift) · scale, [F] each."""

    binarize: bool = False
    shift_F: Float32Array | None = None
    scale_F: Float32Array | None = None

    def times(self, stored_nF: Matrix, weight_FD: Float32Array) -> Float32Array:
        """Transformed features times a weight, [n, D]."""
        if self.binarize:
            stored_nF = _binarized(stored_nF)
        scaled_FD = weight_FD if self.scale_F is None else self.scale_F[:, None] * weight_FD
        product_nD: Float32Array = stored_nF @ scaled_FD
        if self.shift_F is not None:
            product_nD -= self.shift_F @ scaled_FD
        return product_nD


@dataclass(frozen=True)
class Rows:
    """New nodes, [M, F], and then ``known`` rows of the graph."""

    new: Matrix
    stored: Stored
    known: Int64Array
    transform: FeatureTransform

    def times(self, weight_FD: Float32Array, rows: int) -> Float32Array:
        """The first ``rows`` nodes' features times a weight, [rows, D]; read a chunk at a time."""
        new = self.new.shape[0]
        product_nD = np.empty((rows, weight_FD.shape[1]), dtype=np.float32)
        product_nD[:new] = self.transform.times(self.new, weight_FD)
        first = new
        while first < rows:
            known = self.known[first - new : rows - new]
            known = known[: _fitting(self.stored, known)]
            product_nD[first : first + len(known)] = self.transform.times(_read(self.stored, known), weight_FD)
            first += len(known)
        return product_nD


def new_features(nodes: Sequence[NewNode], stored: Stored) -> Matrix:
    """Those that ``nodes`` bring along, [M, F], rounded to the type that the graph stores, in its layout.

    ``InputError`` with a pointer where a node has none, or not as many columns, or a number too large for the type.
    """
    columns = stored.shape[1]
    places: list[npt.NDArray[np.int64]] = []
    values: list[npt.NDArray[np.float64]] = []
    for number, node in enumerate(nodes):
        pointer = f"/nodes/{number}/features"
        row = np.array(_values(node, columns, pointer), dtype=np.float64)
        if isinstance(node.features, list):
            filled = np.flatnonzero(row)
            row = row[filled]
        else:
            assert node.features is not None
            filled = np.array(node.features.columns, dtype=np.int64)
        with np.errstate(over="ignore"):
            held = row.astype(stored.values.dtype)
        if not np.isfinite(held).all():
            raise InputError(
                "a feature is larger than the graph's features can be",
                expected=f"numbers that {stored.values.dtype} holds",
                pointer=pointer,
            )
        places.append(filled)
        values.append(held)
    indptr = np.cumsum([0, *(len(filled) for filled in places)])
    parts = (np.concatenate(values).astype(np.float32), np.concatenate(places), indptr)
    matrix: Matrix = sp.csr_array(parts, shape=(len(nodes), columns))
    return matrix if isinstance(stored, SparseFeatures) else matrix.toarray()


def _binarized(stored_nF: Any) -> Matrix:
    ones: Matrix = (stored_nF > 0).astype(np.float32)
    return ones


def _values(node: NewNode, columns: int, pointer: str) -> list[float]:
    features = node.features
    if features is None:
        raise InputError(
            "the node has no features, and the graph's nodes have",
            expected=f"{columns} numbers, or some columns and their values",
            pointer=pointer,
        )
    if isinstance(features, list):
        if len(features) != columns:
            raise InputError(
                "the node has another number of features than the graph's nodes",
                given=len(features),
                expected=f"{columns} numbers",
                pointer=pointer,
            )
        return features
    if max(features.columns, default=0) >= columns:
        raise InputError(
            "there is no such feature column",
            given=max(features.columns),
            expected=f"columns from 0 to {columns - 1}",
            pointer=f"{pointer}/columns",
        )
    return features.values


def _fitting(stored: Stored, rows: Int64Array) -> int:
    """How many of ``rows`` hold ``CHUNK_NUMBERS`` together; one at least."""
    if isinstance(stored, DenseFeatures):
        return max(1, CHUNK_NUMBERS // stored.shape[1])
    sizes = np.cumsum(stored.indptr[rows + 1] - stored.indptr[rows])
    return max(1, int(np.searchsorted(sizes, CHUNK_NUMBERS, side="right")))


def _read(stored: Stored, rows: Int64Array) -> Matrix:
    """Stored rows, as float32."""
    if isinstance(stored, DenseFeatures):
        return np.asarray(stored.values[rows], dtype=np.float32)
    starts = stored.indptr[rows]
    lengths = stored.indptr[rows + 1] - starts
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
    parts: tuple[Any, ...] = (stored.values[places].astype(np.float32), stored.indices[places], indptr)
    matrix: Matrix = sp.csr_array(parts, shape=(len(rows), stored.shape[1]))
    return matrix
