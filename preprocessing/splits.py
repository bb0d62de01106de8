"""A published split on its way to the bundle: which nodes train, validate and test a classifier of the embeddings.

``splits.parquet`` holds it by row, column ``split``: train, validation, test, or null for a node of no part. Evaluation
reads it; training does where it is to see nothing but the nodes of one part.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from preprocessing.array_types import Int64Array
from preprocessing.bundle import PARTS
from preprocessing.errors import InputError
from preprocessing.tables import Progress, Table

__all__ = ["MASKS", "SplitCodes", "from_masks", "table_split", "write_split"]

SplitCodes = npt.NDArray[np.int8]
"""A part's place in ``PARTS``, [N]; −1 for a node of no part."""

MASKS = ("train_mask", "val_mask", "test_mask")
_SPELLINGS = {"train": 0, "validation": 1, "valid": 1, "val": 1, "test": 2}


def from_masks(masks: Mapping[str, npt.NDArray[np.bool_]], where: str) -> SplitCodes:
    """Three masks [N] in the order of ``PARTS``; ``InputError`` where a node is in two."""
    together = np.stack(list(masks.values()))
    twice = together.sum(axis=0) > 1
    if twice.any():
        raise InputError(
            f"node {int(np.argmax(twice))} (from 0) is in two parts of the split",
            where=where,
            given=", ".join(masks),
            expected="masks without a common node",
            remedy="correct the masks, or leave them out",
        )
    return np.where(together.any(axis=0), together.argmax(axis=0), -1).astype(np.int8)


def table_split(table: Table, column: str, rank: Int64Array, progress: Progress) -> SplitCodes:
    """A column of text; row r of the table is node ``rank[r]``. ``InputError`` for another type or another word."""
    kind = table.types[column]
    if not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_dictionary(kind)):
        raise table.column_fault(
            "this column can be no split", column, expected=f"text: {', '.join(PARTS)}", remedy="name another column"
        )
    codes = np.full(len(rank), -1, dtype=np.int8)
    for first, batch in table.watched([column], progress):
        cells = batch.column(0)
        encoded = cells if pt.is_dictionary(cells.type) else cells.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        place = np.asarray(encoded.indices.fill_null(len(words)))
        unknown = np.isin(place, [i for i, word in enumerate(words) if word not in _SPELLINGS])
        if unknown.any():
            row = int(np.argmax(unknown))
            raise table.fault(
                "no part of a split is called so",
                row=first + row,
                column=column,
                given=words[place[row]],
                expected=f"one of {', '.join(_SPELLINGS)}, or nothing",
                remedy="rename it, or name another split column",
            )
        part = np.array([*(_SPELLINGS.get(word, -1) for word in words), -1], dtype=np.int8)
        codes[rank[first : first + batch.num_rows]] = part[place]
    return codes


def write_split(codes: SplitCodes, file: Path) -> dict[str, int]:
    """Write ``splits.parquet``; the answer is how many nodes each part has."""
    column = pa.array(PARTS, pa.string()).take(pa.array(codes, mask=codes < 0))
    pq.write_table(pa.table({"split": column}), file)
    return {part: int(np.count_nonzero(codes == i)) for i, part in enumerate(PARTS)}
