"""What an encoder is: maps of single nodes between aggregations over neighbours.

The same two maps make a forward over the whole graph, a forward over sampled neighbourhoods, and layer-wise inference
chunk by chunk, so that all three give the same embeddings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from torch import Tensor, nn

from trainer.adjacency import Adjacency, SymmetricAggregator
from trainer.features import Features
from trainer.heard import heard
from trainer.mean_adjacency import MeanAggregator

__all__ = ["Aggregated", "Aggregator", "Encoder", "FeatureRows", "RelationEncoders", "State"]


class FeatureRows(Protocol):
    """Some nodes' features, in memory or not: all that an encoder does with them is to multiply by a weight."""

    def __matmul__(self, weight_FD: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class State:
    """Nodes between two layers: ``x_nD`` is what others hear of them by the next layer's weight, ``own`` [n, ·] each
    what they keep.
    """

    x_nD: Tensor
    own: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Aggregated:
    """R nodes at a layer: what they heard, A X W; what they kept; and their features."""

    heard_RD: Tensor
    own: Sequence[Tensor]
    x: FeatureRows


Aggregator = SymmetricAggregator | MeanAggregator


class Encoder(nn.Module, ABC):
    """Node features and one adjacency a layer to node embeddings.

    An encoder says by whose matrix embeddings are made, ``aggregator``; by which weights nodes hear (``weight``); and
    what happens to a node after it heard (``advance``).
    """

    aggregator: Aggregator
    layers: nn.ModuleList

    @property
    def num_layers(self) -> int:
        """How many adjacencies ``forward`` takes."""
        return len(self.layers)

    def relation(self, _number: int) -> Encoder:
        """The encoder of a multiplex graph's relation: this one for all of them."""
        return self

    @abstractmethod
    def weight(self, number: int) -> Tensor:
        """W [D, D'] of layer ``number``, from 0: its nodes hear A X W of others."""

    @abstractmethod
    def advance(self, number: int, nodes: Aggregated) -> State:
        """Some nodes after layer ``number``, from 0; after the last, ``x_nD`` are the embeddings."""

    def forward(self, x: Features, adjacencies: Sequence[Adjacency]) -> Tensor:
        """``adjacencies``: one a layer, the first heard first; their rows shrink to the nodes asked for."""
        first, *others = adjacencies
        heard_RD = x.heard(first, self.weight(0))
        state = self.advance(0, Aggregated(heard_RD, (), _Head(x, len(heard_RD))))
        for number, adjacency in enumerate(others, start=1):
            heard_RD = heard(adjacency, state.x_nD, self.weight(number))
            own = [kept[: len(heard_RD)] for kept in state.own]
            state = self.advance(number, Aggregated(heard_RD, own, _Head(x, len(heard_RD))))
        return state.x_nD


@dataclass(frozen=True)
class _Head:
    """The features of the first nodes, cut out when a layer asks for them."""

    x: Features
    rows: int

    def __matmul__(self, weight_FD: Tensor) -> Tensor:
        return self.x.head(self.rows) @ weight_FD


class RelationEncoders(nn.Module):
    """An encoder for each relation of a multiplex graph, in the bundle's order."""

    def __init__(self, encoders: Iterable[Encoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def relation(self, number: int) -> Encoder:
        """A relation's own."""
        return cast(Encoder, self.encoders[number])
