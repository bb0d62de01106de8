"""RGRL: keep every query's similarities to its anchors, across views (paper, Sec. 4)."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from trainer.encoders import Encoder, RelationEncoders
from trainer.objectives.base import AnchorSet, Step
from trainer.objectives.bootstrap import BootstrapObjective
from trainer.objectives.relational import global_divergence, local_divergence
from trainer.settings import TrainSettings

__all__ = ["RgrlObjective"]


class RgrlObjective(BootstrapObjective):
    """The global and the local relational loss, summed over ordered pairs of views.

    ``query_targets_QVD`` are the target's embeddings of the last step's queries, for a bank where there is one.
    """

    loss_names = ("loss", "loss_global", "loss_local")
    query_targets_QVD: Tensor

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__(online, settings)
        self.loss_settings = settings.loss

    def forward(self, step: Step) -> Tensor:
        """(loss, its global part, its local part)."""
        assert step.anchors is not None
        z_VQD, h_VnD = self.both(step)
        if step.bank is not None:
            self.query_targets_QVD = torch.stack([h_nD[step.queries] for h_nD in h_VnD], dim=1)
        if step.anchors.stored_VmD is not None:
            h_VnD = [torch.cat(pair) for pair in zip(h_VnD, step.anchors.stored_VmD, strict=True)]
        pairs = [
            self._direction(z_VQD[one], h_VnD[other], step, step.anchors)
            for one, other in permutations(range(len(step.views)), 2)
        ]
        global_loss, local_loss = torch.stack(pairs).sum(dim=0)
        weights = self.loss_settings
        loss = weights.global_weight * global_loss + weights.local_weight * local_loss
        return torch.stack([loss, global_loss, local_loss])

    def _direction(self, z_QD: Tensor, h_nD: Tensor, step: Step, anchors: AnchorSet) -> Tensor:
        """The global and the local loss of one view's queries against the other's targets, [2]."""
        h_QD = h_nD[step.queries]
        global_Q = global_divergence(z_QD, h_QD, h_nD[anchors.anchors_G], self.loss_settings)
        local_Q = local_divergence(z_QD, h_QD, h_nD, anchors.locals_QK, anchors.valid_QK, self.loss_settings)
        counted_Q = anchors.valid_QK.any(dim=1)
        return torch.stack([global_Q.sum() / step.num_queries, (local_Q * counted_Q).sum() / max(anchors.num_local, 1)])
