"""GRACE: tell a node's other view from all other nodes of both views (Zhu et al., 2020).

GCA (Zhu et al., 2021) is the same objective on adaptively augmented views.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor, nn

from trainer.dense import RowsLinear
from trainer.encoders import Encoder, RelationEncoders
from trainer.objectives.base import Objective, Step
from trainer.objectives.contrast import contrast
from trainer.objectives.unit_rows import unit_rows
from trainer.settings import TrainSettings

__all__ = ["GraceObjective"]


class GraceObjective(Objective):
    """InfoNCE between projections of the views, the mean over queries and ordered pairs of views.

    A query's negatives are all other output rows of the encoder, in its own view and in the other. Workers of a full
    batch see the same rows, and their shares sum to the whole loss; in mini-batch the negatives are the worker's own
    rows, so that its share is a contrast within them. A step costs 12·Q·n·D operations an ordered pair, Q queries and n
    rows: quadratic in the nodes, in full batch.
    """

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__(online)
        width, hidden = settings.encoder.layers[-1], settings.encoder.predictor_hidden
        self.projector = nn.Sequential(RowsLinear(width, hidden), nn.ELU(), RowsLinear(hidden, width))
        self.tau = settings.loss.tau_contrast

    def forward(self, step: Step) -> Tensor:
        """(loss,)."""
        z_VnD = [unit_rows(self.projector(h_nD)) for h_nD in self.embeddings(step)]
        losses = [self._direction(one, other, step.queries) for one, other in permutations(z_VnD, 2)]
        return torch.stack(losses).mean(dim=0, keepdim=True) / step.num_queries

    def _direction(self, own_nD: Tensor, other_nD: Tensor, queries: slice) -> Tensor:
        """The sum over one view's queries; keys are the other view's rows, then its own."""
        nodes_Q = torch.arange(queries.start, queries.stop, device=own_nD.device)
        keys_KD = torch.cat([other_nD, own_nD])
        return contrast(own_nD[queries] / self.tau, keys_KD, nodes_Q, nodes_Q + len(own_nD))
