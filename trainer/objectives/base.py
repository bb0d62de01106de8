"""What an objective is: networks, a training step's loss in one forward, and what follows the optimizer's step.

All views go through the one ``forward``: DistributedDataParallel allows no second forward before the backward where
there is BatchNorm. Each view is a pass of its own, so BatchNorm never mixes the views' statistics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from preprocessing.array_types import Int64Array
from trainer.augment import View
from trainer.encoders import Encoder, RelationEncoders
from trainer.look import Look
from trainer.randomness import Draw

__all__ = ["AnchorSet", "BankUse", "Objective", "Step", "encoded"]


@dataclass(frozen=True)
class AnchorSet:
    """Whom this step's queries are compared with; positions count the encoder's output rows.

    ``anchors_G`` are shared by all queries, ``locals_QK`` each query's own; ``valid_QK`` is false where a query has
    none. ``num_local`` counts all workers' queries with a local anchor: the local loss is a mean over them.
    ``stored_VmD`` are every view's targets of anchors that are read and not computed; their positions follow the
    encoder's rows.
    """

    anchors_G: Tensor
    locals_QK: Tensor
    valid_QK: Tensor
    num_local: int
    stored_VmD: Tensor | None = None


@dataclass(frozen=True)
class BankUse:
    """What a step has to do with the bank of target embeddings: ``read`` [m] are the nodes of
    ``AnchorSet.stored_VmD``, ``asked`` every worker's queries, whose targets are stored.
    """

    read: Int64Array
    asked: Sequence[Int64Array]


@dataclass(frozen=True)
class Step:
    """One training step of one worker.

    ``views`` are of all that the step is about: all nodes in full batch, in mini-batch the worker's queries and then
    whatever anchors there are. ``query_views`` are the same views as far as the queries need them. ``queries`` is a run
    of positions, perhaps empty, among an encoder's output rows for either; ``num_queries`` counts all workers'
    queries: the loss is a mean over them. ``draw`` is where the objective's own randomness comes from. ``anchors`` is
    None for an objective that compares with none, ``bank`` where targets are not stored.
    """

    views: Sequence[View]
    query_views: Sequence[View]
    queries: slice
    num_queries: int
    draw: Draw
    anchors: AnchorSet | None = None
    bank: BankUse | None = None

    @property
    def share(self) -> float:
        """This worker's part of all queries."""
        own: int = self.queries.stop - self.queries.start
        return own / self.num_queries


class Objective(nn.Module, ABC):
    """An online encoder and what it is trained towards.

    ``forward(step)`` answers this worker's share of the losses named by ``loss_names``, [P]; over all workers the
    shares sum to the whole. The first is the one to minimise. ``look``, where there is one, is left rows of the step.
    """

    loss_names: ClassVar[Sequence[str]] = ("loss",)

    def __init__(self, online: Encoder | RelationEncoders) -> None:
        super().__init__()
        self.online = online
        self.look: Look | None = None

    def embeddings(self, step: Step) -> list[Tensor]:
        """The online encoder's output for what the queries need of every view, [n, D] each."""
        h_VnD = encoded(self.online, step.query_views)
        if self.look is not None:
            self.look.embedded(h_VnD[0], step.queries)
        return h_VnD

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """The losses of a step."""

    def update_target(self, decay: float) -> None:
        """What follows the optimizer's step: nothing, for an objective without a target network."""


def encoded(encoder: Encoder | RelationEncoders, views: Sequence[View]) -> list[Tensor]:
    """An encoder's output for every view, [n, D] each; where every relation has its encoder, by the view's own."""
    return [encoder.relation(i)(view.features, view.adjacencies) for i, view in enumerate(views)]
