"""BGRL: predict the target's embedding of the same node in the other view (Thakoor et al., 2022)."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from trainer.objectives.base import Step
from trainer.objectives.bootstrap import BootstrapObjective

__all__ = ["BgrlObjective"]


class BgrlObjective(BootstrapObjective):
    """The mean over queries of 2 − 2 cos(z_i, h_i), z of one view and h of the other, summed over ordered pairs."""

    def forward(self, step: Step) -> Tensor:
        """(loss,)."""
        z_VQD, h_VnD = self.both(step)
        losses = [
            (2 - 2 * (z_VQD[one] * h_VnD[other][step.queries]).sum(dim=1)).sum()
            for one, other in permutations(range(len(step.views)), 2)
        ]
        return torch.stack(losses).sum(dim=0, keepdim=True) / step.num_queries
