"""Two views of the same nodes: feature columns and edges dropped at random (METHOD, step 1; GRACE, BGRL), and edges
slowed down where asked (Half-Hop).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.adjacency import Adjacency
from trainer.centrality import DropFactors
from trainer.features import Features
from trainer.half_hop import half_hopped
from trainer.randomness import Draw, Purpose
from trainer.settings import AugmentSettings

__all__ = ["View", "two_views"]

FIRST = Purpose.FEATURES_1, Purpose.EDGES_1, Purpose.SLOW_NODES_1
SECOND = Purpose.FEATURES_2, Purpose.EDGES_2, Purpose.SLOW_NODES_2

DropEdges = Callable[[float | Tensor, torch.Generator], Sequence[Adjacency]]


@dataclass(frozen=True)
class View:
    """What an encoder takes: features and one adjacency a layer."""

    features: Features
    adjacencies: Sequence[Adjacency]


def two_views(
    features: Features,
    drop_edges: DropEdges,
    settings: AugmentSettings,
    columns_draw: Draw,
    edges_draw: Draw,
    device: torch.device,
    factors: DropFactors | None = None,
) -> tuple[View, View]:
    """``drop_edges(probability, generator)`` answers one adjacency a layer; a column is masked for all nodes alike.

    With ``factors`` for the adjacency's nodes, unimportant edges and columns are likelier to be dropped.
    """

    def view(drop_feature: float, drop_edge: float, purposes: tuple[Purpose, Purpose, Purpose]) -> View:
        columns, edges, slow_nodes = purposes
        drop_column = drop_feature if factors is None else factors.columns(drop_feature)
        drop_arc = drop_edge if factors is None else factors.edges(drop_edge)
        chance_F = torch.rand(features.shape[1], generator=columns_draw.torch(columns, device), device=device)
        masked = features.masked((chance_F >= drop_column).float())
        adjacencies = drop_edges(drop_arc, edges_draw.torch(edges, device))
        if settings.half_hop == 0:
            return View(masked, adjacencies)
        generator = edges_draw.torch(slow_nodes, device)
        return View(
            *half_hopped(masked, adjacencies[0], len(adjacencies), settings.half_hop, settings.half_hop_mix, generator)
        )

    return (
        view(settings.drop_feature_1, settings.drop_edge_1, FIRST),
        view(settings.drop_feature_2, settings.drop_edge_2, SECOND),
    )
