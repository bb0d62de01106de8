"""DGI: tell nodes of the graph from nodes of a corrupted one, by a summary of the graph (Veličković et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from trainer.encoders import Encoder, RelationEncoders
from trainer.features import Features
from trainer.objectives.base import Objective, Step
from trainer.objectives.batch_statistics import normalizing_by, recording
from trainer.randomness import Purpose
from trainer.settings import TrainSettings
from trainer.sparse import Pattern, SparseMatrix

__all__ = ["DgiObjective"]


class DgiObjective(Objective):
    """Binary cross entropy of the discriminator hᵀ M s: h of the graph against h of the graph with permuted features.

    The summary s is the sigmoid of the mean over the encoder's output rows: all nodes in full batch, where workers'
    shares sum to the whole loss, and in mini-batch the worker's own rows. The mean over views: DGI itself augments
    nothing, which is this with all drop probabilities 0.

    Corrupted nodes are normalised by the real ones' statistics. By their own they would look like real ones in the
    mean, which is what the discriminator goes by.
    """

    def __init__(self, online: Encoder | RelationEncoders, settings: TrainSettings) -> None:
        super().__init__(online)
        width = settings.encoder.layers[-1]
        self.discriminator = nn.Parameter(torch.empty(width, width))
        nn.init.xavier_uniform_(self.discriminator)

    def forward(self, step: Step) -> Tensor:
        """(loss,)."""
        generator = step.draw.torch(Purpose.CORRUPTION, self.discriminator.device)
        losses = []
        for number, view in enumerate(step.views):
            encoder = self.online.relation(number)
            with recording(encoder) as statistics:
                real_nD = encoder(view.features, view.adjacencies)
            if self.look is not None and number == 0:
                self.look.embedded(real_nD, step.queries)
            with normalizing_by(statistics):
                corrupt_nD = encoder(_permuted(view.features, generator), view.adjacencies)
            direction_D = self.discriminator @ torch.sigmoid(real_nD.mean(dim=0))
            # −log σ(x) = softplus(−x), and −log (1 − σ(x)) = softplus(x).
            real_Q, corrupt_Q = real_nD[step.queries] @ direction_D, corrupt_nD[step.queries] @ direction_D
            losses.append((softplus(-real_Q) + softplus(corrupt_Q)).sum())
        return torch.stack(losses).mean(dim=0, keepdim=True) / (2 * step.num_queries)


def _permuted(features: Features, generator: torch.Generator) -> Features:
    """The same rows in random order: P (X W), and never a copy of X."""
    count = features.shape[0]
    order_n = torch.randperm(count, generator=generator, device=generator.device, dtype=torch.int32)
    pattern = Pattern(torch.arange(count + 1, device=generator.device), order_n, count)
    return features.mixed(SparseMatrix(pattern, torch.ones(count, device=generator.device)))
