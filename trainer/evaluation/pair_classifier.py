"""Logistic regression on pairs of frozen vectors: which pairs are edges.

Features are standardised, weights penalised as scikit-learn's are by default (C = 1), and L-BFGS goes on to the
optimum: products of unit vectors are so small that a hundred steps of Adam leave the classifier half trained. The
gradient of a linear classifier is known, so pairs are gone through in chunks and none needs a graph of operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from preprocessing.array_types import Int64Array
from trainer.evaluation.probe import ArrayRows
from trainer.settings import LinkSettings

__all__ = ["PairClassifier", "pair_features"]

CHUNK_BYTES = 4 << 20
HELD_BYTES = 512 << 20
"""Features of training pairs up to this size are computed once, larger ones in every step."""
SAME = 1e-12
"""Share of a feature's mean square below which its variance is a matter of rounding."""


def pair_features(vectors: ArrayRows, pairs_P2: Int64Array, settings: LinkSettings, device: str = "cpu") -> Tensor:
    """What the classifier sees of each pair, [P, D], for ``concat`` and ``hadamard_l1`` [P, 2D]."""
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
        case "hadamard_l1":
            return torch.cat([u_PD * v_PD, (u_PD - v_PD).abs()], dim=1)


class PairClassifier:
    """A weight for each feature of a pair, standardised over the training pairs, and a bias."""

    def __init__(self, vectors: ArrayRows, settings: LinkSettings, device: str) -> None:
        self._vectors, self._settings, self._device = vectors, settings, device
        width = vectors.num_columns * (2 if settings.features in ("concat", "hadamard_l1") else 1)
        self._center_D, self._spread_D = (torch.zeros(width, dtype=torch.float64, device=device) for _ in range(2))
        self._weight_D = torch.zeros_like(self._center_D)
        self._bias = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def fit(self, edges_E2: Int64Array, negatives_M2: Int64Array) -> None:
        """Minimise the cross entropy of all P pairs together plus ‖w‖²/2, from zero, until nothing is gained."""
        pairs_P2 = np.concatenate([edges_E2, negatives_M2])
        labels_P = torch.arange(len(pairs_P2), device=self._device) < len(edges_E2)
        fits = 4 * len(pairs_P2) * len(self._weight_D) <= HELD_BYTES
        held = list(self._chunks(pairs_P2)) if fits else None
        self._standardize(held or self._chunks(pairs_P2), len(pairs_P2))
        optimizer = torch.optim.LBFGS(
            [self._weight_D, self._bias], max_iter=self._settings.iterations, line_search_fn="strong_wolfe"
        )

        def objective() -> Tensor:
            """The loss over P; its gradient goes to the parameters."""
            loss, bias_gradient = (torch.zeros_like(self._bias) for _ in range(2))
            slope_gradient_D = torch.zeros_like(self._weight_D)
            first = 0
            for features_CD in held or self._chunks(pairs_P2):
                labels_C = labels_P[first : first + len(features_CD)]
                logits_C = self._logits(features_CD)
                loss += softplus(torch.where(labels_C, -logits_C, logits_C)).sum()
                residual_C = torch.sigmoid(logits_C) - labels_C.float()
                slope_gradient_D += residual_C @ features_CD
                bias_gradient += residual_C.sum()
                first += len(features_CD)
            weight_gradient_D = (slope_gradient_D - bias_gradient * self._center_D) / self._spread_D
            self._weight_D.grad = (weight_gradient_D + self._weight_D) / len(pairs_P2)
            self._bias.grad = bias_gradient / len(pairs_P2)
            return (loss + self._weight_D.square().sum() / 2) / len(pairs_P2)

        optimizer.step(objective)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def scores(self, pairs_P2: Int64Array) -> npt.NDArray[np.float32]:
        """Log odds of an edge, [P]."""
        logits = [self._logits(features_CD) for features_CD in self._chunks(pairs_P2)]
        return torch.cat(logits).cpu().numpy()

    def _standardize(self, chunks: Iterable[Tensor], pairs: int) -> None:
        """Means and deviations of the features; 1 for the deviation of a feature that is the same in all pairs."""
        squares_D = torch.zeros_like(self._center_D)
        for features_CD in chunks:
            self._center_D += features_CD.sum(dim=0, dtype=torch.float64) / pairs
            squares_D += features_CD.double().square().sum(dim=0) / pairs
        variance_D = squares_D - self._center_D.square()
        varied_D = variance_D > SAME * squares_D
        self._spread_D = torch.where(varied_D, variance_D, 1).sqrt()

    def _logits(self, features_CD: Tensor) -> Tensor:
        slope_D = self._weight_D / self._spread_D
        return features_CD @ slope_D.float() + (self._bias - slope_D @ self._center_D).float()

    def _chunks(self, pairs_P2: Int64Array) -> Iterator[Tensor]:
        step = max(1, CHUNK_BYTES // (4 * len(self._weight_D)))
        for first in range(0, len(pairs_P2), step):
            yield pair_features(self._vectors, pairs_P2[first : first + step], self._settings, self._device)
