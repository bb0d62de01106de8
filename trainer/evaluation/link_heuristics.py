"""Scores of pairs that no training made: neighbours in common, and how alike raw features are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from scipy import sparse

from preprocessing.array_file import read_only
from preprocessing.array_types import Float64Array, Int64Array, IntArray
from preprocessing.bundle import Topology
from trainer.features import Features, FeatureStore
from trainer.sparse import SparseMatrix

__all__ = ["adamic_adar", "common_neighbors", "feature_cosines"]

CHUNK_ENTRIES = 1 << 23


def common_neighbors(graph: Topology, pairs_P2: Int64Array) -> Float64Array:
    """|Γ(u) ∩ Γ(v)|, [P]; ``graph`` undirected."""
    return _over_shared(graph, np.ones(graph.num_nodes), pairs_P2)


def adamic_adar(graph: Topology, pairs_P2: Int64Array) -> Float64Array:
    """Σ 1 / log deg(w) over w ∈ Γ(u) ∩ Γ(v), [P] (Adamic & Adar, 2003): who has few neighbours says more."""
    # Whom two nodes have in common has two neighbours or more.
    return _over_shared(graph, 1 / np.log(np.maximum(graph.degrees(), 2)), pairs_P2)


def feature_cosines(features: FeatureStore, pairs_P2: Int64Array) -> Float64Array:
    """The cosine of both nodes' features, as the encoder sees them, [P]; 0 where either has none."""
    step = max(1, CHUNK_ENTRIES // features.num_columns)
    parts = [pairs_P2[first : first + step] for first in range(0, len(pairs_P2), step)]
    return np.concatenate([_cosines(features.rows(part[:, 0]), features.rows(part[:, 1])) for part in parts])


def _over_shared(graph: Topology, weight_N: Float64Array, pairs_P2: Int64Array) -> Float64Array:
    indptr, indices = read_only(graph.indptr), read_only(graph.indices)
    sums_P: Float64Array = _shared(indptr, indices, weight_N, np.ascontiguousarray(pairs_P2))
    return sums_P


def _cosines(u_nF: Features, v_nF: Features) -> Float64Array:
    """With y = s ⊙ x and m = s ⊙ μ: ŷ·ẑ = y·z − y·m − z·m + m·m, so that sparse features stay sparse."""
    mean_F = np.zeros(u_nF.shape[1])
    if u_nF.shift_F is not None and u_nF.scale_F is not None:
        mean_F = (u_nF.shift_F * u_nF.scale_F).numpy().astype(np.float64)

    def dots(a_nF: Any, b_nF: Any) -> Float64Array:
        product = a_nF.multiply(b_nF) if sparse.issparse(a_nF) else a_nF * b_nF
        centred: Float64Array = product.sum(axis=1) - a_nF @ mean_F - b_nF @ mean_F + mean_F @ mean_F
        return centred

    u, v = _scaled(u_nF), _scaled(v_nF)
    lengths_n = np.sqrt(np.maximum(dots(u, u) * dots(v, v), 0))
    return np.divide(dots(u, v), lengths_n, out=np.zeros(len(lengths_n)), where=lengths_n > 0)


def _scaled(features_nF: Features) -> npt.NDArray[np.float64] | sparse.csr_array:
    matrix, scale_F = features_nF.matrix, np.ones(features_nF.shape[1])
    if features_nF.scale_F is not None:
        scale_F = features_nF.scale_F.numpy().astype(np.float64)
    if not isinstance(matrix, SparseMatrix):
        return matrix.numpy() * scale_F
    indices = matrix.pattern.indices.numpy()
    values = matrix.values.numpy() * scale_F[indices]
    return sparse.csr_array((values, indices, matrix.pattern.indptr.numpy()), features_nF.shape)


_I8, _F8 = types.int64, types.float64
_INDPTR = types.Array(_I8, 1, "C", readonly=True)
_INDICES = [types.Array(number, 1, "C", readonly=True) for number in (types.int32, types.int64)]


@njit([_F8[::1](_INDPTR, indices, _F8[::1], _I8[:, ::1]) for indices in _INDICES], nogil=True, cache=True)
def _shared(indptr: Int64Array, indices: IntArray, weight_N: Float64Array, pairs_P2: Int64Array) -> Float64Array:
    """The weights of both nodes' common neighbours, summed: two ascending rows, gone through side by side."""
    sums_P = np.zeros(len(pairs_P2))
    for pair in range(len(pairs_P2)):
        a, b = indptr[pairs_P2[pair, 0]], indptr[pairs_P2[pair, 1]]
        a_end, b_end = indptr[pairs_P2[pair, 0] + 1], indptr[pairs_P2[pair, 1] + 1]
        while a < a_end and b < b_end:
            if indices[a] == indices[b]:
                sums_P[pair] += weight_N[indices[a]]
            smaller = min(indices[a], indices[b])
            a += indices[a] == smaller
            b += indices[b] == smaller
    return sums_P
