"""What every reader hands to ingest, whatever it read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from preprocessing.array_types import Float32Array, IntArray
from preprocessing.attributes import Attribute
from preprocessing.features import FeatureSource
from preprocessing.ids import IdMap
from preprocessing.labels import LabelSetSource, LabelSource
from preprocessing.splits import SplitCodes

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

    ``origin`` names the input in messages. ``union`` are the arcs of all relations together where they are known:
    weights of undirected relations, once each is symmetric, no longer add up to them.
    """

    origin: str
    ids: IdMap
    relations: dict[str, Arcs]
    features: FeatureSource | None
    labels: LabelSource | LabelSetSource | None
    notices: tuple[Notice, ...]
    split: SplitCodes | None = None
    union: Arcs | None = None
    attributes: tuple[Attribute, ...] = ()

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """The notices, and one of features that tell no node from another."""
        source = self.features
        if source is None or not source.constant:
            return self.notices
        widths = {name: end - first for name, (first, end) in source.names.items()}
        told = [
            f"'{name}'" if widths[name] == 1 else f"'{name}' ({count} of {widths[name]} columns)"
            for name, count in source.constant.items()
        ]
        message = f"features with one value in all nodes: {', '.join(told)}"
        return (*self.notices, Notice("features_constant", message))


def arcs_in_memory(source: IntArray, target: IntArray, weights: Float32Array | None = None) -> Arcs:
    """Arrays [E] as arcs."""

    def part(first: int) -> ArcBlock:
        rows = slice(first, first + _BLOCK)
        return source[rows], target[rows], None if weights is None else weights[rows]

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        return (partial(part, first) for first in range(0, len(source), _BLOCK))

    return Arcs(len(source), weights is not None, blocks)
