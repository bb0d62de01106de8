"""Node features on their way to the first layer.

Features stay as they are stored, dense or sparse, up to the product with the first weight W. Masked columns and
standardisation are moved onto W, ((X − 1μᵀ) diag(m/σ)) W = X (m/σ ⊙ W) − 1 μᵀ (m/σ ⊙ W), or into the values of a sparse
X, whose masked entries then cost nothing. A dense X is never copied for a view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Bundle, DenseFeatures, PprRows, SparseFeatures
from trainer.dense import rows_times
from trainer.heard import sums_first
from trainer.randomness import mixed
from trainer.settings import FeatureSettings
from trainer.sparse import Pattern, SparseMatrix
from trainer.zeroed import Source, Zeroed

__all__ = ["HASHED_COLUMNS", "FeatureStore", "Features", "Standardization", "load_features"]

HASHED_COLUMNS = 128
CHUNK_ROWS = 65_536


@dataclass(frozen=True)
class Features:
    """n nodes' features on a device: ``x @ weight_FD`` is [n, D], differentiable in the weight.

    ``scale_F`` multiplies columns (a view's mask, 1/σ); ``shift_F`` is taken from every row first (μ). ``mixes`` are
    multiplied by from the left, one after the other, and decide the rows.
    """

    matrix: SparseMatrix | Tensor
    scale_F: Tensor | None = None
    shift_F: Tensor | None = None
    mixes: tuple[SparseMatrix, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, F)."""
        rows, columns = self.matrix.shape
        return self.mixes[-1].shape[0] if self.mixes else rows, columns

    def masked(self, keep_F: Tensor) -> Features:
        """A view that sees the columns where ``keep_F`` is 1 and zeros elsewhere."""
        return replace(self, scale_F=keep_F if self.scale_F is None else keep_F * self.scale_F)

    def mixed(self, mix: SparseMatrix) -> Features:
        """R nodes whose features are mixes of these, by an R×n matrix."""
        return replace(self, mixes=(*self.mixes, mix))

    def head(self, rows: int) -> Features:
        """The first nodes, [rows, F]."""
        if rows == self.shape[0]:
            return self
        if self.mixes:
            *others, last = self.mixes
            return replace(self, mixes=(*others, last.head(rows)))
        matrix = self.matrix
        return replace(self, matrix=matrix[:rows] if isinstance(matrix, Tensor) else matrix.head(rows))

    def take(self, row_R: Tensor) -> Features:
        """Some nodes, [R, F], in the order given."""
        assert not self.mixes
        matrix = self.matrix
        return replace(self, matrix=matrix[row_R] if isinstance(matrix, Tensor) else matrix.take(row_R))

    def heard(self, adjacency: SparseMatrix, weight_FD: Tensor) -> Tensor:
        """A X W, [R, D], differentiable in the weight: what R nodes hear of these.

        Where A X comes first, the way back passes no adjacency: features take no gradient.
        """
        if not isinstance(self.matrix, Tensor) or self.mixes or not sums_first(adjacency, *weight_FD.shape):
            return adjacency.matmul(self @ weight_FD)
        scaled_FD = weight_FD if self.scale_F is None else self.scale_F[:, None] * weight_FD
        product_RD = rows_times(adjacency.matmul(self.matrix), scaled_FD)
        if self.shift_F is not None:
            sum_R1 = adjacency.matmul(torch.ones(len(self.matrix), 1, device=self.matrix.device))
            product_RD = product_RD - sum_R1 * (self.shift_F @ scaled_FD)
        return product_RD

    def __matmul__(self, weight_FD: Tensor) -> Tensor:
        scaled_FD = weight_FD if self.scale_F is None else self.scale_F[:, None] * weight_FD
        if isinstance(self.matrix, Tensor):
            product_nD = rows_times(self.matrix, scaled_FD)
        else:
            product_nD = self._scaled.matmul(weight_FD)
        if self.shift_F is not None:
            product_nD = product_nD - self.shift_F @ scaled_FD
        for mix in self.mixes:
            product_nD = mix.matmul(product_nD)
        return product_nD

    @cached_property
    def _scaled(self) -> SparseMatrix:
        """The sparse matrix with the scale in its values: a view is multiplied by several weights."""
        assert isinstance(self.matrix, SparseMatrix)
        return self.matrix if self.scale_F is None else self.matrix.scaled(self.scale_F)


@dataclass(frozen=True)
class Standardization:
    """Each column's mean in a graph, ``shift_F``, and one over its deviation, ``scale_F`` (1 for a constant column)."""

    shift_F: Tensor
    scale_F: Tensor


class FeatureStore:
    """The features of a bundle, read by row from the memory map, transformed on the fly."""

    def __init__(
        self,
        source: Source,
        num_nodes: int,
        settings: FeatureSettings,
        standardization: Standardization | None = None,
    ) -> None:
        """Features are standardised by their own columns, or as a ``standardization`` given says."""
        self.num_nodes = num_nodes
        self._source = source
        self._binarize = settings.transform == "binarize"
        self.standardization: Standardization | None = None
        if settings.transform == "standardize":
            self.standardization = standardization or _standardization(source, num_nodes)

    @property
    def num_columns(self) -> int:
        """F: the first layer's input width."""
        return self._source.num_columns

    def rows(self, rows: npt.NDArray[np.int64], device: torch.device | str = "cpu") -> Features:
        """Some nodes, [n, F], in the order given, in memory on ``device``."""
        matrix = self._source.read(rows, device)
        if self._binarize:
            matrix = (
                (matrix > 0).float()
                if isinstance(matrix, Tensor)
                else replace(matrix, values=(matrix.values > 0).float())
            )
        if (columns := self.standardization) is None:
            return Features(matrix)
        return Features(matrix, columns.scale_F.to(device), columns.shift_F.to(device))


def load_features(
    bundle: Bundle, settings: FeatureSettings, standardization: Standardization | None = None
) -> FeatureStore:
    """The bundle's features; for a graph without any, features hashed from its PPR rows (``_HashedSource``).

    ``standardization`` is that of another graph, where they shall mean what they mean there.
    """
    source: Source
    match bundle.features:
        case DenseFeatures() as dense:
            source = _DenseSource(dense)
        case SparseFeatures() as sparse:
            source = _SparseSource(sparse)
        case None:
            source = _HashedSource(bundle.ppr())
    if settings.zeroed > 0:
        source = Zeroed(source, settings.zeroed, settings.zeroed_seed)
    return FeatureStore(source, bundle.num_nodes, settings, standardization)


class _DenseSource:
    def __init__(self, features: DenseFeatures) -> None:
        self._values = features.values
        self.num_columns = features.shape[1]

    def read(self, rows: npt.NDArray[np.int64], device: torch.device | str) -> Tensor:
        return torch.from_numpy(np.asarray(self._values[rows], dtype=np.float32)).to(device)


class _SparseSource:
    def __init__(self, features: SparseFeatures) -> None:
        self._features = features
        self.num_columns = features.shape[1]

    def read(self, rows: npt.NDArray[np.int64], device: torch.device | str) -> SparseMatrix:
        stored = self._features
        starts = stored.indptr[rows]
        lengths = stored.indptr[rows + 1] - starts
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
        return _sparse(indptr, stored.indices[entries], stored.values[entries], self.num_columns, device)


class _HashedSource:
    """X = S H: the stored PPR rows S times a fixed random sign matrix H with one ±1 a row (a count sketch).

    Nodes that are close in the graph share PPR neighbours and so have similar features. A node's column and sign
    depend on its row alone, so the features do not change between runs.
    """

    num_columns = HASHED_COLUMNS

    def __init__(self, ppr: PprRows) -> None:
        self._ppr = ppr

    def read(self, rows: npt.NDArray[np.int64], device: torch.device | str) -> SparseMatrix:
        neighbors, scores = self._ppr.neighbors[rows], self._ppr.scores[rows]
        present = neighbors >= 0
        bits = mixed(neighbors[present])
        signs = np.where(bits >> np.uint64(63), np.float32(-1), np.float32(1))
        indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        columns = (bits % np.uint64(HASHED_COLUMNS)).astype(np.int32)
        return _sparse(indptr, columns, signs * scores[present], HASHED_COLUMNS, device)


def _sparse(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    num_columns: int,
    device: torch.device | str,
) -> SparseMatrix:
    pattern = Pattern(
        torch.from_numpy(indptr).to(device),
        torch.from_numpy(np.array(indices, dtype=np.int32)).to(device),
        num_columns,
    )
    return SparseMatrix(pattern, torch.from_numpy(np.array(values, dtype=np.float32)).to(device))


def _standardization(source: Source, num_nodes: int) -> Standardization:
    """Each column's mean, and one over its deviation (1 for a constant column); streamed, two passes, in float64."""
    mean_F = _column_sums(source, num_nodes, None) / num_nodes
    variance_F = _column_sums(source, num_nodes, mean_F) / num_nodes
    scale_F = np.where(variance_F > 0, 1 / np.sqrt(np.where(variance_F > 0, variance_F, 1)), 1)
    return Standardization(torch.from_numpy(mean_F.astype(np.float32)), torch.from_numpy(scale_F.astype(np.float32)))


def _column_sums(source: Source, num_nodes: int, mean_F: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
    """Sums of the columns or, given their means, of the squared differences from them; [F]."""
    total_F = np.zeros(source.num_columns)
    for first in range(0, num_nodes, CHUNK_ROWS):
        rows = np.arange(first, min(first + CHUNK_ROWS, num_nodes))
        part = source.read(rows, "cpu")
        if isinstance(part, Tensor):
            values = part.numpy().astype(np.float64)
            total_F += values.sum(axis=0) if mean_F is None else np.square(values - mean_F).sum(axis=0)
            continue
        columns, entries = part.pattern.indices.numpy(), part.values.numpy().astype(np.float64)
        if mean_F is None:
            total_F += np.bincount(columns, entries, source.num_columns)
        else:
            stored = np.bincount(columns, minlength=source.num_columns)
            total_F += np.bincount(columns, np.square(entries - mean_F[columns]), source.num_columns)
            total_F += (len(rows) - stored) * np.square(mean_F)
    return total_F
