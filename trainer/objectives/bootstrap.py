"""An online network that learns from a slowly following copy of itself (BYOL; Grill et al., 2020)."""

from __future__ import annotations

import copy
from itertools import permutations

import torch
from torch import Tensor, nn

from trainer.activation import affine_prelu
from trainer.dense import rows_times
from trainer.encoders import Encoder, RelationEncoders
from trainer.objectives.base import Objective, Step, encoded
from trainer.objectives.unit_rows import unit_rows
from trainer.settings import TrainSettings

__all__ = ["BootstrapObjective", "Predictor"]


class BootstrapObjective(Objective):
    """Encoder f_θ and predictor g_θ online, encoder f_ξ as the target (paper, Fig. 3)."""

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__(online)
        self.predictor = Predictor(settings.encoder.layers[-1], settings.encoder.predictor_hidden)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def predictions(self, step: Step) -> list[Tensor]:
        """z of every view's queries, [Q, D] each, of length 1; all views pass the predictor together."""
        h_VQD = torch.stack([h_nD[step.queries] for h_nD in self.embeddings(step)])
        return list(unit_rows(self.predictor(h_VQD.flatten(0, 1))).view_as(h_VQD))

    @torch.no_grad()
    def targets(self, step: Step) -> list[Tensor]:
        """h of every view's nodes, [n, D] each, of length 1, without gradient."""
        return [unit_rows(hidden_nD) for hidden_nD in encoded(self.target, step.views)]

    def both(self, step: Step) -> tuple[list[Tensor], list[Tensor]]:
        """Predictions and targets."""
        z_VQD, h_VnD = self.predictions(step), self.targets(step)
        if self.look is not None:
            for one, other in permutations(range(len(step.views)), 2):
                self.look.compared(z_VQD[one], h_VnD[other][step.queries])
        return z_VQD, h_VnD

    @torch.no_grad()
    def update_target(self, decay: float) -> None:
        """ξ ← γ ξ + (1−γ) θ, parameters only: the target's BatchNorm statistics come from its own forwards."""
        for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            target.mul_(decay).add_(online, alpha=1 - decay)


class Predictor(nn.Module):
    """Linear → PReLU → Linear, [Q, D] to [Q, D]."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.activation = nn.PReLU()
        self.out = nn.Linear(hidden, width)
        for linear in (self.hidden, self.out):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.constant_(linear.bias, 0.01)

    def forward(self, x_QD: Tensor) -> Tensor:
        """The prediction."""
        bias_H = self.hidden.bias
        hidden_QH = rows_times(x_QD, self.hidden.weight.T)
        hidden_QH = affine_prelu(hidden_QH, torch.ones_like(bias_H), bias_H, self.activation.weight)
        return rows_times(hidden_QH, self.out.weight.T, self.out.bias)
