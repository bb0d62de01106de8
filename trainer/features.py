"""Node features on their way to the first layer.

Features stay as they are stored, dense or sparse, up to the product with the first weight W. Masked columns and
standardisation are moved onto W, ((X − 1μᵀ) diag(m/σ)) W = X (m/σ ⊙ W) − 1 μᵀ (m/σ ⊙ W), or into the values of a sparse
X, whose masked entries then cost nothing. A dense X is never copied for a view.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Bundle, DenseFeatures, PprRows, SparseFeatures
from trainer.dense import rows_times
from trainer.feature_cache import CachedRows
from trainer.heard import sums_first
from trainer.precision import rounds_products
from trainer.randomness import mixed
from trainer.row_reader import RowReader
from trainer.settings import FeatureSettings
from trainer.sparse import Pattern, SparseMatrix
from trainer.tally import Tally
from trainer.unread_rows import UnreadRows
from trainer.zeroed import Source, Zeroed

__all__ = ["HASHED_COLUMNS", "FeatureStore", "Features", "Standardization", "load_features"]

HASHED_COLUMNS = 128
CHUNK_ROWS = 65_536


@dataclass(frozen=True)
class Features:
    """n nodes' features on a device: ``x @ weight_FD`` is [n, D], differentiable in the weight.

    ``scale_F`` multiplies columns (a view's mask, 1/σ); ``shift_F`` is taken from every row first (μ). ``mixes`` are
    multiplied by from the left, one after the other, and decide the rows. ``sums_RF`` is what the first layer's nodes
    hear of the stored rows, where it is known already.
    """

    stored: SparseMatrix | Tensor | UnreadRows
    scale_F: Tensor | None = None
    shift_F: Tensor | None = None
    mixes: tuple[SparseMatrix, ...] = ()
    sums_RF: Tensor | None = None

    @property
    def matrix(self) -> SparseMatrix | Tensor:
        """The stored rows, in memory."""
        return self.stored.read if isinstance(self.stored, UnreadRows) else self.stored

    @property
    def shape(self) -> tuple[int, int]:
        """(n, F)."""
        rows, columns = self.stored.shape
        return self.mixes[-1].shape[0] if self.mixes else rows, columns

    def masked(self, keep_F: Tensor) -> Features:
        """A view that sees the columns where ``keep_F`` is 1 and zeros elsewhere."""
        return replace(self, scale_F=keep_F if self.scale_F is None else keep_F * self.scale_F)

    def mixed(self, mix: SparseMatrix) -> Features:
        """R nodes whose features are mixes of these, by an R×n matrix."""
        return replace(self, mixes=(*self.mixes, mix), sums_RF=None)

    def head(self, rows: int) -> Features:
        """The first nodes, [rows, F]."""
        if rows == self.shape[0]:
            return self
        if self.mixes:
            *others, last = self.mixes
            return replace(self, mixes=(*others, last.head(rows)))
        stored = self.stored
        return replace(
            self, stored=stored.head(rows) if isinstance(stored, SparseMatrix) else stored[:rows], sums_RF=None
        )

    def take(self, row_R: Tensor) -> Features:
        """Some nodes, [R, F], in the order given."""
        assert not self.mixes
        stored = self.stored
        return replace(
            self, stored=stored.take(row_R) if isinstance(stored, SparseMatrix) else stored[row_R], sums_RF=None
        )

    def heard(self, adjacency: SparseMatrix, weight_FD: Tensor) -> Tensor:
        """A X W, [R, D], differentiable in the weight: what R nodes hear of these.

        Where A X comes first, the way back passes no adjacency: features take no gradient.
        """
        heard_RF = self.sums_RF
        if heard_RF is None:
            matrix = self.matrix
            if not isinstance(matrix, Tensor) or self.mixes or not sums_first(adjacency.pattern, *weight_FD.shape):
                return adjacency.matmul(self @ weight_FD)
            heard_RF = adjacency.matmul(matrix)
        scaled_FD = weight_FD if self.scale_F is None else self.scale_F[:, None] * weight_FD
        if self.shift_F is not None:
            sum_R1 = adjacency.matmul(torch.ones(adjacency.shape[1], 1, device=heard_RF.device))
            heard_RF = heard_RF - sum_R1 * self.shift_F
        return rows_times(heard_RF, scaled_FD)

    def __matmul__(self, weight_FD: Tensor) -> Tensor:
        product_nD = self._stored_times(weight_FD)
        for mix in self.mixes:
            product_nD = mix.matmul(product_nD)
        return product_nD

    def _stored_times(self, weight_FD: Tensor) -> Tensor:
        matrix, shift_F = self.matrix, self.shift_F
        scaled_FD = weight_FD if self.scale_F is None else self.scale_F[:, None] * weight_FD
        if isinstance(matrix, Tensor) and shift_F is not None and rounds_products():
            # Rounded before the mean is taken off, a column far from zero would lose what it tells.
            return rows_times(matrix - shift_F, scaled_FD)
        product_nD = rows_times(matrix, scaled_FD) if isinstance(matrix, Tensor) else self._scaled.matmul(weight_FD)
        return product_nD if shift_F is None else product_nD - shift_F @ scaled_FD

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

    def holding(self, order: Int64Array, limit: int, device: torch.device | str, tally: Tally) -> FeatureStore:
        """The same, of which ``device`` holds the first nodes of ``order`` in ``limit`` bytes (``CachedRows``)."""
        store = copy(self)
        store._source = CachedRows(self._source, order, limit, device, tally)
        return store

    def rows(self, rows: npt.NDArray[np.int64], device: torch.device | str = "cpu") -> Features:
        """Some nodes, [n, F], in the order given, in memory on ``device``."""
        matrix = self._source.read(rows, device)
        if isinstance(matrix, Tensor):
            matrix = self._entries(matrix)
        else:
            matrix = replace(matrix, values=self._entries(matrix.values))
        return self._standardized(matrix, device)

    def unread(self, rows: Int64Array, device: torch.device | str) -> Features:
        """As ``rows``; where the rows are numbers that can be summed as they are stored, none is read yet."""
        if torch.device(device).type != "cpu" or not isinstance(self._source, _DenseSource) or self._binarize:
            return self.rows(rows, device)
        unread = self._source.unread(rows)
        return self.rows(rows, device) if unread is None else self._standardized(unread, device)

    def _standardized(self, stored: SparseMatrix | Tensor | UnreadRows, device: torch.device | str) -> Features:
        if (columns := self.standardization) is None:
            return Features(stored)
        return Features(stored, columns.scale_F.to(device), columns.shift_F.to(device))

    def _entries(self, stored: Tensor) -> Tensor:
        return ((stored > 0) if self._binarize else stored).float()


def load_features(
    bundle: Bundle, settings: FeatureSettings, standardization: Standardization | None = None
) -> FeatureStore:
    """The bundle's features; for a graph without any, features hashed from its PPR rows (``_HashedSource``).

    ``standardization`` is that of another graph, where they shall mean what they mean there.
    """
    source: Source
    match bundle.features:
        case DenseFeatures() as dense:
            source = _DenseSource(dense, settings.read_threads)
        case SparseFeatures() as sparse:
            source = _SparseSource(sparse, settings.read_threads)
        case None:
            source = _HashedSource(bundle.ppr())
    if settings.zeroed > 0:
        source = Zeroed(source, settings.zeroed, settings.zeroed_seed)
    return FeatureStore(source, bundle.num_nodes, settings, standardization)


class _DenseSource:
    def __init__(self, features: DenseFeatures, threads: int = 1) -> None:
        self._values, self._reader = features.values, RowReader(threads)
        self.num_columns = features.shape[1]

    def read(self, rows: npt.NDArray[np.int64], device: torch.device | str) -> Tensor:
        return self._reader.dense(self._values, rows, device)

    def unread(self, rows: Int64Array) -> UnreadRows | None:
        """None where values are not float32."""
        return (
            None
            if self._values.dtype != np.float32
            else UnreadRows(self._values, rows, partial(self.read, device="cpu"))
        )


class _SparseSource:
    def __init__(self, features: SparseFeatures, threads: int = 1) -> None:
        self._features, self._reader = features, RowReader(threads)
        self.num_columns = features.shape[1]

    def read(self, rows: npt.NDArray[np.int64], device: torch.device | str) -> SparseMatrix:
        return self._reader.sparse(self._features, rows, device)


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
        pattern = Pattern(torch.from_numpy(indptr).to(device), torch.from_numpy(columns).to(device), HASHED_COLUMNS)
        return SparseMatrix(pattern, torch.from_numpy(signs * scores[present]).to(device))


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
