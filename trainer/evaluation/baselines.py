"""What embeddings must beat to mean anything: vectors that no training made, probed like the embeddings.

``raw_features``: the features as the encoder sees them. ``ppr_smoothed``: each node's features averaged over its PPR
neighbours, as SGC (Wu et al., 2019) smooths without training, with the diffusion S in place of powers of the adjacency.
``random_encoder``: the encoder before its first step, in eval mode.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from preprocessing.bundle import Bundle, PprRows
from trainer.embedding_set import EmbeddingSet
from trainer.evaluation.probe import ArrayRows
from trainer.features import Features, FeatureStore
from trainer.layer_arrays import LayerArrays
from trainer.relations import embed_bundle
from trainer.sparse import SparseMatrix

__all__ = ["PprSmoothed", "random_encoder"]

RANDOM_ENCODER_SEED = 0


class PprSmoothed:
    """Rows of S X, a row of S being a node's stored PPR scores over their sum; computed as they are asked for.

    A node without PPR neighbours keeps its own features. Rows come dense, [n, F], however sparse X is: they are read
    in parts and never all at once.
    """

    def __init__(self, features: FeatureStore, ppr: PprRows) -> None:
        self.features = features
        self.ppr = ppr

    @property
    def num_columns(self) -> int:
        """F."""
        return self.features.num_columns

    def rows(self, rows: npt.NDArray[np.int64], device: torch.device | str = "cpu") -> Features:
        """Some nodes, [n, F]. Rows of S sum to 1: what shifts and scales columns of X does the same to those of S X."""
        heard, diffusion = self._diffusion(rows)
        features = self.features.rows(heard, device)
        if isinstance(features.matrix, SparseMatrix):
            pattern, values = features.matrix.pattern, features.matrix.values
            parts = (values.cpu().numpy(), pattern.indices.cpu().numpy(), pattern.indptr.cpu().numpy())
            smoothed = (diffusion @ sparse.csr_array(parts, features.shape)).toarray()
        else:
            smoothed = diffusion @ features.matrix.cpu().numpy()
        return replace(features, stored=torch.from_numpy(smoothed).to(device))

    def _diffusion(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], sparse.csr_array]:
        """The nodes that these rows of S name, [m], and the rows over those nodes, [n, m]."""
        neighbors_nK = self.ppr.neighbors[rows].astype(np.int64)
        scores_nK = np.where(neighbors_nK >= 0, self.ppr.scores[rows], 0)
        alone = scores_nK.sum(axis=1) == 0
        neighbors_nK = np.where(scores_nK > 0, neighbors_nK, rows[:, None])
        scores_nK[alone, 0] = 1
        scores_nK /= scores_nK.sum(axis=1, keepdims=True)
        heard, positions = np.unique(neighbors_nK, return_inverse=True)
        indptr = np.arange(len(rows) + 1) * neighbors_nK.shape[1]
        return heard, sparse.csr_array((scores_nK.ravel(), positions.ravel(), indptr), (len(rows), len(heard)))


def random_encoder(
    bundle: Bundle, features: FeatureStore, embeddings: EmbeddingSet, directory: Path, device: torch.device | str
) -> ArrayRows:
    """Every node's vector from an untrained encoder of the same architecture, always the same one; [N, D]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_ENCODER_SEED)
        encoder = embeddings.model.new_encoder()
    arrays = LayerArrays(bundle.num_nodes, directory)
    (vectors_ND,) = arrays.of(embed_bundle(encoder, features, bundle, embeddings.model.views, arrays, device=device))
    return ArrayRows(vectors_ND)
