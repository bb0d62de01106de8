"""``links.parquet`` of a bundle of training edges: the pairs that link prediction is trained and measured on.

Columns ``source`` < ``target`` (rows of the bundle), ``label`` (1: an edge of the whole graph), ``part`` (``train``,
``validation``, ``test``) and ``negatives`` (``random``, ``hard``; null for edges, which stand against both).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.array_types import Int64Array
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError

__all__ = ["LINKS", "NEGATIVES", "PARTS", "read_links", "write_links"]

LINKS = "links.parquet"
PARTS = ("train", "validation", "test")
NEGATIVES = ("random", "hard")

_BLOCK = 1 << 20
_WORDS = pa.dictionary(pa.int8(), pa.string())
_SCHEMA = pa.schema(
    [("source", pa.int64()), ("target", pa.int64()), ("label", pa.int8()), ("part", _WORDS), ("negatives", _WORDS)]
)

Links = Mapping[tuple[str, str | None], Int64Array]
"""Pairs [n, 2] by part and kind of negative, None for edges."""


def write_links(directory: Path, links: Links) -> None:
    """Write pairs, those of a part and kind after one another in the order given."""
    with pq.ParquetWriter(directory / LINKS, _SCHEMA, compression="zstd") as writer:
        for (part, negatives), pairs in links.items():
            for first in range(0, len(pairs), _BLOCK):
                writer.write_table(_table(pairs[first : first + _BLOCK], part, negatives))


def read_links(bundle: Bundle) -> dict[tuple[str, str | None], Int64Array]:
    """What ``write_links`` was given; ``ArtifactError`` where the bundle's edges were never split."""
    if "edge_split" not in bundle.manifest:
        raise ArtifactError(
            "the bundle holds no pairs for link prediction",
            given=bundle.path,
            expected="a bundle that split-edges made, and embeddings trained on it",
            remedy=f"rgrl split-edges {bundle.path} OUT, then preprocess OUT and train on it",
        )
    table = pq.read_table(bundle.path / LINKS)
    pairs = np.stack([table["source"].to_numpy(), table["target"].to_numpy()], axis=1)
    chosen: dict[tuple[str, str | None], Int64Array] = {}
    for part in PARTS:
        for negatives in (None, *NEGATIVES):
            kind = pc.is_null(table["negatives"]) if negatives is None else pc.equal(table["negatives"], negatives)
            chosen[part, negatives] = pairs[_mask(pc.and_(pc.equal(table["part"], part), pc.fill_null(kind, False)))]
    return chosen


def _table(pairs: Int64Array, part: str, negatives: str | None) -> pa.Table:
    def word(options: tuple[str, ...], value: str | None) -> pa.Array:
        codes = np.full(len(pairs), 0 if value is None else options.index(value), dtype=np.int8)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=np.full(len(pairs), value is None)), list(options))

    labels = np.full(len(pairs), negatives is None, dtype=np.int8)
    columns = [pairs[:, 0], pairs[:, 1], labels, word(PARTS, part), word(NEGATIVES, negatives)]
    return pa.table(columns, schema=_SCHEMA)


def _mask(chosen: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[Any] = chosen.to_numpy()
    return mask.astype(np.bool_)
