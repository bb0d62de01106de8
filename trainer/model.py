"""The online and target networks, and one training step's loss in one forward.

Both views go through the one ``forward``: DistributedDataParallel allows no second forward before the backward where
there is BatchNorm. Each view is a pass of its own, so BatchNorm never mixes the views' statistics.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from trainer.augment import View
from trainer.encoders import GcnEncoder
from trainer.objective import global_divergence, local_divergence
from trainer.settings import TrainSettings

__all__ = ["Losses", "RgrlModel", "Step"]


@dataclass(frozen=True)
class Step:
    """One training step of one worker. Positions count the encoder's output rows.

    ``queries`` is a run of positions, perhaps empty. ``anchors_G`` are the shared anchors, ``locals_QK`` each query's
    own; ``valid_QK`` is false where a query has none. ``num_queries`` and ``num_local`` count all workers' queries
    and those of them with a local anchor: the loss is a mean over them.
    """

    views: tuple[View, View]
    queries: slice
    anchors_G: Tensor
    locals_QK: Tensor
    valid_QK: Tensor
    num_queries: int
    num_local: int


Losses = tuple[Tensor, Tensor, Tensor]
"""(loss, its global part, its local part)."""


class RgrlModel(nn.Module):
    """RGRL's networks: encoder f_θ and predictor g_θ online, encoder f_ξ as the target (paper, Fig. 3)."""

    def __init__(self, in_dim: int, settings: TrainSettings) -> None:
        super().__init__()
        encoder = settings.encoder
        self.loss_settings = settings.loss
        self.online = GcnEncoder(in_dim, encoder.layers, encoder.batch_norm_momentum)
        self.predictor = _predictor(encoder.layers[-1], encoder.predictor_hidden)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, step: Step) -> Losses:
        """This worker's share of the loss: over all workers the shares sum to the whole."""
        first, second = step.views
        z_1 = self.predictor(self.online(first.features, first.adjacencies)[step.queries])
        z_2 = self.predictor(self.online(second.features, second.adjacencies)[step.queries])
        with torch.no_grad():
            h_1 = normalize(self.target(first.features, first.adjacencies))
            h_2 = normalize(self.target(second.features, second.adjacencies))
        global_12, local_12 = self._direction(z_1, h_2, step)
        global_21, local_21 = self._direction(z_2, h_1, step)
        global_loss, local_loss = global_12 + global_21, local_12 + local_21
        return global_loss + self.loss_settings.local_weight * local_loss, global_loss, local_loss

    def _direction(self, z_QD: Tensor, h_nD: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        z_QD, h_QD = normalize(z_QD), h_nD[step.queries]
        global_Q = global_divergence(z_QD, h_QD, h_nD[step.anchors_G], self.loss_settings)
        local_Q = local_divergence(z_QD, h_QD, h_nD[step.locals_QK], step.valid_QK, self.loss_settings)
        counted_Q = step.valid_QK.any(dim=1)
        return global_Q.sum() / step.num_queries, (local_Q * counted_Q).sum() / max(step.num_local, 1)

    @torch.no_grad()
    def update_target(self, decay: float) -> None:
        """ξ ← γ ξ + (1−γ) θ, parameters only: the target's BatchNorm statistics come from its own forwards."""
        for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            target.mul_(decay).add_(online, alpha=1 - decay)


def _predictor(width: int, hidden: int) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(width, hidden), nn.PReLU(), nn.Linear(hidden, width))
    for module in layers:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.constant_(module.bias, 0.01)
    return layers
