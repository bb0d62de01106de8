"""In what order an epoch asks about the nodes: each once, over all workers.

``random``: any order. ``near``: chunks of the locality order, shuffled anew every epoch, as Cluster-GCN's batches of
several clusters (Chiang et al., 2019). A query's neighbours and local anchors are then often queries of the same batch,
and since a batch has chunks from many places, BatchNorm's statistics are not those of one community.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Bundle
from preprocessing.locality import inverse, near_order
from trainer.randomness import Draw, Purpose

__all__ = ["QueryOrder", "locality_order", "queries_of"]


class QueryOrder:
    """The order of every epoch, a function of the seed and the epoch alone; the last one asked for is kept, 8N bytes.

    ``near_N`` is the locality order to cut into chunks of ``chunk`` nodes; None for a random order.
    """

    def __init__(self, num_nodes: int, seed: int, near_N: Int64Array | None, chunk: int) -> None:
        self._num_nodes, self._seed = num_nodes, seed
        # A plain view: slices of a numpy.memmap take a microsecond each to make.
        self._near_N, self._chunk = None if near_N is None else np.asarray(near_N), chunk
        self._kept: _Epoch | None = None

    def of(self, epoch: int) -> Int64Array:
        """[N]."""
        return self._of(epoch).order_N

    def places(self, epoch: int) -> Int64Array:
        """Where every node stands in an epoch's order, [N]: made once, and given up with the order."""
        return self._of(epoch).places

    def _of(self, epoch: int) -> _Epoch:
        kept = self._kept
        if kept is None or kept.epoch != epoch:
            kept = self._kept = _Epoch(epoch, self._made(Draw(self._seed, epoch).numpy(Purpose.QUERY_ORDER)))
        return kept

    def _made(self, rng: np.random.Generator) -> Int64Array:
        if self._near_N is None:
            return rng.permutation(self._num_nodes)
        # Where the first cut is changes too, or the same nodes would always be together.
        first = rng.integers(self._chunk)
        chunks = np.split(self._near_N, np.arange(first, self._num_nodes, self._chunk))
        return np.concatenate([chunks[i] for i in rng.permutation(len(chunks))])


@dataclass(frozen=True)
class _Epoch:
    epoch: int
    order_N: Int64Array

    @cached_property
    def places(self) -> Int64Array:
        return inverse(self.order_N)


def queries_of(order_N: Int64Array, number: int, num_steps: int, world_size: int) -> list[Int64Array]:
    """Every worker's queries in step ``number`` of ``num_steps``. All batches of an epoch are of one size, give or
    take one: a last batch of few queries would weigh them more and have poor statistics.
    """
    ends = len(order_N) * np.arange(number * world_size, (number + 1) * world_size + 1) // (num_steps * world_size)
    return [order_N[begin:end] for begin, end in itertools.pairwise(ends)]


def locality_order(bundle: Bundle, folder: Path) -> Int64Array:
    """The bundle's nodes such that neighbours stand near each other, [N], memory-mapped: a file of ``folder`` that is
    made where it is missing, O(N log N + arcs), by however many processes at once.
    """
    file = folder / f"near-order-{bundle.content_hash[:16]}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{file.stem}-", delete=False) as partial:
            np.save(partial, near_order(bundle.topology))
        Path(partial.name).replace(file)
    order_N: Int64Array = np.load(file, mmap_mode="r", allow_pickle=False)
    return order_N
