"""Full batch: every node in every step, the paper's own training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Bundle
from preprocessing.locality import inverse, near_order, reordered
from trainer.adjacency import Adjacency
from trainer.anchors import Anchors
from trainer.augment import View, two_views
from trainer.centrality import drop_factors
from trainer.encoders import training_aggregator
from trainer.features import FeatureStore
from trainer.objectives import AnchorSet, Step
from trainer.randomness import Draw
from trainer.relations import view_topologies
from trainer.settings import TrainSettings

__all__ = ["FullBatch"]


class FullBatch:
    """Every node in every step: the paper's own training.

    ``order`` [N] tells which node each row is. Neighbours stand near each other, so that a product with the adjacency
    finds their rows in a nearer cache.
    """

    num_steps = 1

    def __init__(
        self,
        bundle: Bundle,
        store: FeatureStore,
        settings: TrainSettings,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device,
    ) -> None:
        self._settings = settings
        self._device = device
        self.order = near_order(bundle.topology)
        self._features = store.rows(self.order, device)
        aggregator = training_aggregator(settings.encoder)
        self._adjacencies = [
            aggregator.whole(reordered(topology, self.order), device)
            for topology in view_topologies(bundle, settings.views)
        ]
        adaptive = settings.augments_adaptively
        self._factors = drop_factors(bundle.topology, store, device).of(self.order) if adaptive else None
        self._num_nodes = bundle.num_nodes
        self._queries = slice(self._num_nodes * rank // world_size, self._num_nodes * (rank + 1) // world_size)
        uses_anchors = settings.uses_anchors
        self._anchors = _QueryAnchors(bundle, settings, self._queries, self.order, device) if uses_anchors else None

    def step(self, epoch: int, number: int) -> Step:
        """Views and anchors are the same on every worker."""
        draw = Draw(self._settings.run.seed, epoch, number)
        views = self._views(draw)
        return Step(
            views=views,
            query_views=views,
            queries=self._queries,
            num_queries=self._num_nodes,
            draw=draw,
            anchors=None if self._anchors is None else self._anchors.of(draw),
        )

    def told(self) -> dict[str, float]:
        """Nothing: data are made once."""
        return {}

    def _views(self, draw: Draw) -> Sequence[View]:
        if self._settings.views == "relations":
            return self._relation_views
        augment = self._settings.augment
        return two_views(self._features, self._drop, augment, draw, draw, self._device, self._factors)

    @cached_property
    def _relation_views(self) -> list[View]:
        layers = len(self._settings.encoder.layers)
        return [View(self._features, [adjacency.normalized()] * layers) for adjacency in self._adjacencies]

    def _drop(self, probability: float | Tensor, generator: torch.Generator) -> list[Adjacency]:
        return [self._adjacencies[0].dropped(probability, generator)] * len(self._settings.encoder.layers)


class _QueryAnchors:
    """The anchors of a full batch: a worker's queries, and so their locals, stay the same."""

    def __init__(
        self, bundle: Bundle, settings: TrainSettings, queries: slice, order: Int64Array, device: torch.device
    ) -> None:
        self._anchors = Anchors(bundle, settings.anchors)
        self._device = device
        self._rank = inverse(order)
        locals_NK, valid_NK = self._anchors.locals_of(order)
        self._locals_QK = torch.from_numpy(self._rank[locals_NK[queries]]).to(device)
        self._valid_QK = torch.from_numpy(valid_NK[queries]).to(device)
        self._num_local = int(valid_NK.any(axis=1).sum())

    def of(self, draw: Draw) -> AnchorSet:
        """Those of a step."""
        return AnchorSet(
            anchors_G=torch.from_numpy(self._rank[self._anchors.draw_global(draw)]).to(self._device),
            locals_QK=self._locals_QK,
            valid_QK=self._valid_QK,
            num_local=self._num_local,
        )
