"""Mini-batches: query nodes, their anchors, and sampled neighbourhoods of both."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Bundle, Topology
from preprocessing.locality import near_order
from trainer.adjacency import PartAdjacency, SampledAdjacency
from trainer.anchors import Anchors
from trainer.augment import View, two_views
from trainer.centrality import drop_factors
from trainer.degrees import degrees_of
from trainer.encoders import training_aggregator
from trainer.feature_cache import HITS, ROWS, most_heard
from trainer.features import Features, FeatureStore
from trainer.heard import sums_first
from trainer.mean_adjacency import MeanSampledAdjacency
from trainer.objectives import AnchorSet, BankUse, Step
from trainer.part import part_of
from trainer.query_order import QueryOrder, queries_of
from trainer.randomness import Draw, Purpose
from trainer.relations import view_topologies
from trainer.sampler import NeighborSampler, Sample
from trainer.sampler_backends import new_sampler
from trainer.seeds import FEWEST_ROWS, SeedSet, seed_set
from trainer.settings import TrainSettings
from trainer.tally import Tally
from trainer.unread_rows import UnreadRows

__all__ = ["MiniBatch"]

DEFAULT_FAN_OUT = 10
_NOBODY = np.empty(0, dtype=np.int64)


class MiniBatch:
    """Queries in the epoch's order; their anchors and everyone's sampled neighbours come along.

    Both views drop edges and columns of one sampled neighbourhood. Seed nodes are the worker's queries first, then the
    anchors that are neither among them nor in the bank.
    """

    def __init__(
        self,
        bundle: Bundle,
        store: FeatureStore,
        settings: TrainSettings,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device,
        sampler: NeighborSampler | None = None,
        near_N: Int64Array | None = None,
    ) -> None:
        """``near_N`` is the bundle's locality order where it is at hand, for ``batch.order`` = ``near``."""
        self._settings = settings
        self._rank, self._world_size = rank, world_size
        self._device = device
        self._tally = Tally()
        self._topologies = view_topologies(bundle, settings.views)
        self._store = store
        if (cache := int(settings.batch.feature_cache_gib * 2**30)) > 0:
            self._store = store.holding(most_heard(self._topologies), cache, device, self._tally)
        self._factors = drop_factors(bundle.topology, store, device) if settings.augments_adaptively else None
        self._anchors = Anchors(bundle, settings.anchors) if settings.uses_anchors else None
        self._banked = settings.has_bank
        self._num_nodes = bundle.num_nodes
        self._aggregator = training_aggregator(settings.encoder)
        # Other encoders keep features of their own, other objectives and Half-Hop mix them: they need the rows.
        self._hears_alone = (
            settings.encoder.kind == "gcn" and settings.objective != "dgi" and not settings.augment.half_hop
        )
        self._first_width = settings.encoder.layers[0]
        self._fan_out = settings.batch.fan_out or [DEFAULT_FAN_OUT] * len(settings.encoder.layers)
        self._sampler: NeighborSampler = sampler or new_sampler(settings.batch)
        if settings.batch.order == "random":
            near_N = None
        elif near_N is None:
            near_N = near_order(bundle.topology)
        self._order = QueryOrder(bundle.num_nodes, settings.run.seed, near_N, settings.batch.chunk)

    @property
    def num_steps(self) -> int:
        """Enough for every node to be a query once, and a multiple of those that are accumulated; but none is empty."""
        accumulate = self._settings.optimizer.accumulate
        asked = -(-self._num_nodes // (self._settings.batch.size * self._world_size * accumulate))
        return min(asked, self._num_nodes // accumulate) * accumulate

    def told(self) -> dict[str, float]:
        """Seconds that threads spent on steps, and of those on sampling and on reading features; cache hits a row."""
        sums = self._tally.taken()
        rows, hits = sums.pop(ROWS, 0), sums.pop(HITS, 0)
        return sums | ({HITS: hits / rows} if rows else {})

    def step(self, epoch: int, number: int) -> Step:
        """Columns and global anchors are the same on every worker; neighbours and edges are each worker's own."""
        with self._tally.timed("making_s"):
            return self._step(epoch, number)

    def _step(self, epoch: int, number: int) -> Step:
        shared = Draw(self._settings.run.seed, epoch, number)
        own = Draw(self._settings.run.seed, epoch, number, self._rank)
        shares = self.queries(epoch, number)
        queries = shares[self._rank]
        if self._anchors is None:
            nodes, anchors = seed_set(queries, _NOBODY, _NOBODY), None
        else:
            nodes, anchors = self._with_anchors(self._anchors, shares, shared)
        views, query_views = self._views(nodes.seeds, max(len(queries), FEWEST_ROWS), shared, own)
        return Step(
            views=views,
            query_views=query_views,
            queries=slice(0, len(queries)),
            num_queries=sum(map(len, shares)),
            draw=own,
            anchors=anchors,
            bank=BankUse(nodes.read, shares) if self._banked else None,
        )

    def queries(self, epoch: int, number: int) -> list[Int64Array]:
        """The nodes that each worker asks about in a step."""
        return queries_of(self._order.of(epoch), number, self.num_steps, self._world_size)

    def _views(self, seeds: Int64Array, asked: int, shared: Draw, own: Draw) -> tuple[Sequence[View], Sequence[View]]:
        """Two dropped views of one sampled neighbourhood, or a sampled neighbourhood of each relation; and what the
        first ``asked`` seeds need of them.
        """
        with self._tally.timed("sampling_s"):
            samples = [
                self._sampler.sample(topology, seeds, self._fan_out, own.number(Purpose.NEIGHBORS))
                for topology in self._topologies
            ]
        sampled = [self._sampled(*pair) for pair in zip(self._topologies, samples, strict=True)]
        if self._settings.views == "relations":
            views: Sequence[View] = [
                _summed([View(features, adjacency.normalized())])[0] for features, adjacency in sampled
            ]
        else:
            ((features, adjacency),), (sample,) = sampled, samples
            factors = None if self._factors is None else self._factors.of(sample.nodes)
            augment = self._settings.augment
            views = _summed(two_views(features, adjacency.dropped, augment, shared, own, self._device, factors))
        if asked >= len(seeds):
            return views, views
        parts = [self._part(sample, *pair, asked) for sample, pair in zip(samples, sampled, strict=True)]
        return views, [part.of(view) for part, view in zip(itertools.cycle(parts), views, strict=False)]

    def _part(
        self, sample: Sample, features: Features, adjacency: SampledAdjacency | MeanSampledAdjacency, seeds: int
    ) -> _PartOfViews:
        part = part_of(sample, seeds)
        nodes = torch.from_numpy(part.nodes).to(self._device)
        return _PartOfViews(features.take(nodes), nodes, adjacency.part(part))

    def _sampled(self, topology: Topology, sample: Sample) -> tuple[Features, SampledAdjacency | MeanSampledAdjacency]:
        adjacency = self._aggregator.sampled(sample, degrees_of(topology, sample.nodes), self._device)
        hears_sums = self._hears_alone and sums_first(adjacency.patterns[0], self._store.num_columns, self._first_width)
        with self._tally.timed("features_s"):
            read = self._store.unread if hears_sums else self._store.rows
            return read(sample.nodes, self._device), adjacency

    def _with_anchors(self, stored: Anchors, shares: Sequence[Int64Array], draw: Draw) -> tuple[SeedSet, AnchorSet]:
        """Whom the step is about, and where among them the queries' anchors are; ``shares`` are every worker's
        queries.
        """
        anchors_G = stored.draw_global(draw)
        queries, before = shares[self._rank], sum(map(len, shares[: self._rank]))
        locals_TK, valid_TK = stored.locals_of(np.concatenate(shares))
        own = slice(before, before + len(queries))
        locals_QK, valid_QK = locals_TK[own], valid_TK[own]
        others = np.setdiff1d(np.concatenate([anchors_G, locals_QK[valid_QK]]), queries)
        in_bank = self._in_bank(others, draw)
        nodes = seed_set(queries, others[~in_bank], others[in_bank])
        position = nodes.positions()
        return nodes, AnchorSet(
            anchors_G=torch.from_numpy(position(anchors_G)).to(self._device),
            locals_QK=torch.from_numpy(np.where(valid_QK, position(locals_QK), 0)).to(self._device),
            valid_QK=torch.from_numpy(valid_QK).to(self._device),
            num_local=int(valid_TK.any(axis=1).sum()),
        )

    def _in_bank(self, nodes: Int64Array, draw: Draw) -> npt.NDArray[np.bool_]:
        """Which nodes a bank has by a step: in the first epoch those that were queries before, later all of them.

        That follows from the step's place alone, so no step waits for the one before it to be made.
        """
        if draw.epoch > 0 or not self._banked:
            return np.full(len(nodes), self._banked)
        asked: npt.NDArray[np.bool_] = (
            self._order.places(draw.epoch)[nodes] < self._num_nodes * draw.step // self.num_steps
        )
        return asked


@dataclass(frozen=True)
class _PartOfViews:
    """Rows as stored, which views of one neighbourhood scale and do not copy; ``nodes`` [m] are places in the whole."""

    features: Features
    nodes: Tensor
    adjacency: PartAdjacency

    def of(self, view: View) -> View:
        adjacencies = self.adjacency.of(view.adjacencies)
        sums_RF = view.features.sums_RF
        if sums_RF is not None:
            # Who is heard here is heard there, by as many.
            sums_RF = sums_RF[self.nodes[: adjacencies[0].shape[0]]]
        return View(replace(view.features, stored=self.features.stored, sums_RF=sums_RF), adjacencies)


def _summed(views: Sequence[View]) -> Sequence[View]:
    """Views of the same rows, with what their first layers hear of them where the rows are not read."""
    stored = views[0].features.stored
    if not isinstance(stored, UnreadRows):
        return views
    sums = stored.summed([view.adjacencies[0] for view in views])
    return [
        replace(view, features=replace(view.features, sums_RF=sums_RF))
        for view, sums_RF in zip(views, sums, strict=True)
    ]
