"""CCA-SSG: views that agree, in columns that do not repeat each other (Zhang et al., 2021)."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from trainer.encoders import Encoder, RelationEncoders
from trainer.objectives.base import Objective, Step
from trainer.settings import TrainSettings

__all__ = ["CcaSsgObjective"]

EPSILON = 1e-5
"""Added to a column's variance: a constant column stays 0."""


class CcaSsgObjective(Objective):
    """Eqn. 5: ½‖Z_1 − Z_2‖² + λ (‖Z_1ᵀZ_1 − I‖² + ‖Z_2ᵀZ_2 − I‖²), Z the standardised columns over √n.

    The half is the authors' code's, and their λ counts on it. With more views, the mean over pairs of them.

    Columns are standardised and correlated over all output rows of the encoder. Workers of a full batch see the same
    rows, and their shares sum to the whole loss; in mini-batch a worker's statistics are of its own rows, its
    decorrelation weighted by its part of the queries.
    """

    loss_names = ("loss", "loss_invariance", "loss_decorrelation")

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__(online)
        self.decorrelation = settings.loss.decorrelation

    def forward(self, step: Step) -> Tensor:
        """(loss, its invariance, its decorrelation before λ)."""
        z_VnD = [_standardized(h_nD) for h_nD in self.embeddings(step)]
        excess_V = [_excess(z_nD) for z_nD in z_VnD]
        pairs = [
            torch.stack(
                [
                    (z_VnD[one] - z_VnD[other])[step.queries].square().sum() / (2 * step.num_queries),
                    step.share * (excess_V[one] + excess_V[other]),
                ]
            )
            for one, other in combinations(range(len(step.views)), 2)
        ]
        invariance, decorrelation = torch.stack(pairs).mean(dim=0)
        return torch.stack([invariance + self.decorrelation * decorrelation, invariance, decorrelation])


def _standardized(h_nD: Tensor) -> Tensor:
    variance_D, mean_D = torch.var_mean(h_nD, dim=0, correction=0)
    return (h_nD - mean_D) * (variance_D + EPSILON).rsqrt()


def _excess(z_nD: Tensor) -> Tensor:
    """‖C − I‖² of the columns' correlations C."""
    correlation_DD = z_nD.T @ z_nD / len(z_nD)
    return (correlation_DD - torch.eye(len(correlation_DD), device=z_nD.device)).square().sum()
