"""An online network that learns from a slowly following copy of itself (BYOL; Grill et al., 2020)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from trainer.encoders import Encoder, RelationEncoders
from trainer.objectives.base import Objective, Step
from trainer.settings import TrainSettings

__all__ = ["BootstrapObjective"]


class BootstrapObjective(Objective):
    """Encoder f_θ and predictor g_θ online, encoder f_ξ as the target (paper, Fig. 3)."""

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__()
        self.online = online
        self.predictor = _predictor(settings.encoder.layers[-1], settings.encoder.predictor_hidden)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def predictions(self, step: Step) -> list[Tensor]:
        """z of every view's queries, [Q, D] each, of length 1."""
        return [normalize(self.predictor(hidden_nD[step.queries])) for hidden_nD in _encoded(self.online, step)]

    @torch.no_grad()
    def targets(self, step: Step) -> list[Tensor]:
        """h of every view's nodes, [n, D] each, of length 1, without gradient."""
        return [normalize(hidden_nD) for hidden_nD in _encoded(self.target, step)]

    @torch.no_grad()
    def update_target(self, decay: float) -> None:
        """ξ ← γ ξ + (1−γ) θ, parameters only: the target's BatchNorm statistics come from its own forwards."""
        for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            target.mul_(decay).add_(online, alpha=1 - decay)


def _encoded(encoder: Encoder | RelationEncoders, step: Step) -> list[Tensor]:
    return [encoder.relation(i)(view.features, view.adjacencies) for i, view in enumerate(step.views)]


def _predictor(width: int, hidden: int) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(width, hidden), nn.PReLU(), nn.Linear(hidden, width))
    for module in layers:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.constant_(module.bias, 0.01)
    return layers
