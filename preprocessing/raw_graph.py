"""What every reader hands to ingest, whatever it read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from preprocessing.bundle import Float32Array, IntArray
from preprocessing.features import FeatureSource
from preprocessing.ids import IdMap

__all__ = ["ArcBlock", "Arcs", "Notice", "RawGraph", "arcs_in_memory"]

ArcBlock = tuple[IntArray, IntArray, Float32Array | None]
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Notice:
    """Something the input holds that was not used; ingest reports it as a warning."""

    code: str
    message: str


@dataclass(frozen=True)
class Arcs:
    """Arcs as given, with repeats and self-loops, to be read in blocks.

    ``blocks()`` yields for every block a function that looks it up: sources, targets (rows of nodes, [B] each) and
    weights [B] (None unless ``weighted``), or ``InputError``. A block whose function is not called costs its reading
    alone. ``expected`` is how many arcs there are, or an estimate.
    """

    expected: int
    weighted: bool
    blocks: Callable[[], Iterator[Callable[[], ArcBlock]]]


@dataclass(frozen=True)
class RawGraph:
    """Nodes in row order and arcs by relation; a graph of one relation has one, of whatever name.

    ``labels`` [N] is an Arrow array of strings or int64, null where a node has none. ``origin`` names the input in
    messages.
    """

    origin: str
    ids: IdMap
    relations: dict[str, Arcs]
    features: FeatureSource | None
    labels: pa.Array | None
    notices: tuple[Notice, ...]


def arcs_in_memory(source: IntArray, target: IntArray, weights: Float32Array | None = None) -> Arcs:
    """Arrays [E] as arcs."""

    def part(first: int) -> ArcBlock:
        rows = slice(first, first + _BLOCK)
        return source[rows], target[rows], None if weights is None else weights[rows]

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        return (partial(part, first) for first in range(0, len(source), _BLOCK))

    return Arcs(len(source), weights is not None, blocks)
