"""Logistic regression on pairs of frozen vectors: which pairs are edges.

Adam from Xavier-uniform weights on all pairs at once, as the probe of nodes; the gradient of a linear classifier is
known, so pairs are gone through in chunks and none needs a graph of operations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from preprocessing.array_types import Int64Array
from trainer.evaluation.probe import ArrayRows, initial_weights
from trainer.settings import EvaluateSettings, LinkSettings

__all__ = ["PairClassifier", "pair_features"]

CHUNK_BYTES = 4 << 20
HELD_BYTES = 512 << 20
"""Features of training pairs up to this size are computed once, larger ones in every step."""


def pair_features(vectors: ArrayRows, pairs_P2: Int64Array, settings: LinkSettings, device: str = "cpu") -> Tensor:
    """What the classifier sees of each pair, [P, D], for ``concat`` [P, 2D]."""
    u_PD, v_PD = (vectors.rows(pairs_P2[:, side], device).matrix for side in (0, 1))
    assert isinstance(u_PD, Tensor)
    assert isinstance(v_PD, Tensor)
    if settings.normalize:
        u_PD, v_PD = normalize(u_PD), normalize(v_PD)
    match settings.features:
        case "hadamard":
            return u_PD * v_PD
        case "concat":
            return torch.cat([u_PD, v_PD], dim=1)
        case "l1":
            return (u_PD - v_PD).abs()
        case "l2":
            return (u_PD - v_PD).square()


class PairClassifier:
    """A weight for each feature of a pair, and a bias."""

    def __init__(self, vectors: ArrayRows, settings: EvaluateSettings, device: str) -> None:
        self._vectors, self._settings, self._device = vectors, settings, device
        width = vectors.num_columns * (2 if settings.links.features == "concat" else 1)
        self.weight_D = initial_weights(1, width, 1, settings.seed)[0, :, 0].to(device)
        self.bias = torch.zeros((), device=device)

    @torch.no_grad()
    def fit(self, edges_E2: Int64Array, negatives_M2: Int64Array) -> None:
        """Minimise the mean cross entropy of both together."""
        pairs_P2 = np.concatenate([edges_E2, negatives_M2])
        labels_P = torch.arange(len(pairs_P2), device=self._device) < len(edges_E2)
        fits = 4 * len(pairs_P2) * len(self.weight_D) <= HELD_BYTES
        held = list(self._chunks(pairs_P2)) if fits else None
        optimizer = torch.optim.Adam([self.weight_D, self.bias], lr=self._settings.lr)
        for _ in range(self._settings.steps):
            self.weight_D.grad, self.bias.grad = torch.zeros_like(self.weight_D), torch.zeros_like(self.bias)
            first = 0
            for features_CD in held or self._chunks(pairs_P2):
                labels_C = labels_P[first : first + len(features_CD)]
                residual_C = (torch.sigmoid(self._logits(features_CD)) - labels_C.float()) / len(pairs_P2)
                self.weight_D.grad += residual_C @ features_CD
                self.bias.grad += residual_C.sum()
                first += len(features_CD)
            optimizer.step()

    @torch.no_grad()
    def scores(self, pairs_P2: Int64Array) -> npt.NDArray[np.float32]:
        """Log odds of an edge, [P]."""
        logits = [self._logits(features_CD) for features_CD in self._chunks(pairs_P2)]
        return torch.cat(logits).cpu().numpy()

    def _logits(self, features_CD: Tensor) -> Tensor:
        return features_CD @ self.weight_D + self.bias

    def _chunks(self, pairs_P2: Int64Array) -> Iterator[Tensor]:
        step = max(1, CHUNK_BYTES // (4 * len(self.weight_D)))
        for first in range(0, len(pairs_P2), step):
            yield pair_features(self._vectors, pairs_P2[first : first + step], self._settings.links, self._device)
