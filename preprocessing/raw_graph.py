"""What every reader hands to ingest, whatever it read."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from preprocessing.bundle import IntArray
from preprocessing.features import FeatureSource
from preprocessing.ids import IdMap

__all__ = ["Notice", "RawGraph"]


@dataclass(frozen=True)
class Notice:
    """Something the input holds that was not used; ingest reports it as a warning."""

    code: str
    message: str


@dataclass(frozen=True)
class RawGraph:
    """Nodes in row order and arcs as given, with repeats and self-loops.

    ``source`` and ``target`` [E] are rows of ``ids``; ``labels`` [N] is an Arrow array of strings or int64, null where
    a node has none. ``origin`` names the input in messages.
    """

    origin: str
    ids: IdMap
    source: IntArray
    target: IntArray
    features: FeatureSource | None
    labels: pa.Array | None
    notices: tuple[Notice, ...]
