"""Two views of the same nodes: feature columns and edges dropped at random (METHOD, step 1; GRACE, BGRL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from trainer.adjacency import Adjacency
from trainer.features import Features
from trainer.randomness import Draw, Purpose
from trainer.settings import AugmentSettings

__all__ = ["View", "two_views"]

DropEdges = Callable[[float, torch.Generator], Sequence[Adjacency]]


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
) -> tuple[View, View]:
    """``drop_edges(probability, generator)`` answers one adjacency a layer; a column is masked for all nodes alike."""

    def view(drop_feature: float, drop_edge: float, columns: Purpose, edges: Purpose) -> View:
        chance_F = torch.rand(features.shape[1], generator=columns_draw.torch(columns, device), device=device)
        masked = features.masked((chance_F >= drop_feature).float())
        return View(masked, drop_edges(drop_edge, edges_draw.torch(edges, device)))

    return (
        view(settings.drop_feature_1, settings.drop_edge_1, Purpose.FEATURES_1, Purpose.EDGES_1),
        view(settings.drop_feature_2, settings.drop_edge_2, Purpose.FEATURES_2, Purpose.EDGES_2),
    )
