"""Labels on their way to the bundle: a code a node into the distinct labels, so that only these are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from preprocessing.id_columns import SPELLED_INT, fits_int64
from preprocessing.numbering import numbered
from preprocessing.tables import BATCH_ROWS, Progress, Table

__all__ = ["LabelSetSource", "LabelSource", "table_labels", "write_labels"]

MAX_LABELS = 1 << 20


@dataclass(frozen=True)
class LabelSource:
    """codes [N], −1 where a node has none, into the distinct ``names``, an Arrow array of strings or int64."""

    codes: npt.NDArray[np.int32]
    names: Any

    @classmethod
    def of(cls, labels: pa.Array) -> LabelSource:
        """Labels [N] in row order, null where a node has none."""
        encoded = labels.dictionary_encode()
        return cls(np.asarray(encoded.indices.fill_null(-1)).astype(np.int32), encoded.dictionary)


@dataclass(frozen=True)
class LabelSetSource:
    """Any number of labels a node, an Arrow array of lists [N]; null where nothing is known of a node."""

    sets: Any

    @classmethod
    def of(cls, members_NC: npt.NDArray[np.bool_]) -> LabelSetSource:
        """Labels named by their column."""
        rows, columns = np.nonzero(members_NC)
        ends = np.searchsorted(rows, np.arange(len(members_NC) + 1))
        return cls(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(columns, pa.int64())))


def table_labels(
    table: Table, column: str, rank: Int64Array, scratch: Path, progress: Progress
) -> LabelSource | LabelSetSource:
    """A column of strings or integers, or of lists of them; row r of the table is node ``rank[r]``.

    Codes lie in ``scratch``, lists in memory. ``InputError`` for a column of another type, or of too many labels to be
    classes. Text that spells integers throughout a CSV is integers.
    """
    kind = table.types[column]
    if pt.is_list(kind) and (pt.is_integer(kind.value_type) or pt.is_string(kind.value_type)):
        sets = pa.chunked_array([batch.column(0) for _, batch in table.watched([column], progress)], kind)
        return LabelSetSource(sets.combine_chunks().take(pa.array(np.argsort(rank))))
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if not (pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind)):
        raise table.column_fault(
            "this column can be no label",
            column,
            expected="strings or integers or lists of them, null where a node has no label",
            remedy="convert the column to one class a node, or name another label column",
        )
    codes = mapped_npy(scratch / "labels.npy", np.int32, (len(rank),))
    code_of: dict[int | str, int] = {}
    for first, batch in table.watched([column], progress):
        numbers = numbered(batch.column(0), code_of)
        if len(code_of) > MAX_LABELS:
            raise table.column_fault(
                f"this column has more than {MAX_LABELS:,} different labels",
                column,
                expected="one class a node",
                remedy="name another label column, or rename this one if it holds names of nodes",
            )
        codes[rank[first : first + batch.num_rows]] = numbers
    names = pa.array(list(code_of), kind)
    whole_numbers = pt.is_integer(kind) or (
        not table.typed and pc.all(pc.match_substring_regex(names, SPELLED_INT)).as_py()
    )
    return LabelSource(codes, names.cast(pa.int64() if whole_numbers and fits_int64(names) else pa.string()))


def write_labels(labels: LabelSource | LabelSetSource, file: Path) -> dict[str, int]:
    """Write ``labels.parquet`` (column ``label``, by row); the answer is their entry in the manifest."""
    if isinstance(labels, LabelSetSource):
        pq.write_table(pa.table({"label": labels.sets}), file)
        classes = pc.count_distinct(labels.sets.flatten()).as_py()
        return {"classes": classes, "labelled": len(labels.sets) - labels.sets.null_count}
    labelled, seen = 0, np.zeros(len(labels.names), dtype=np.bool_)
    with pq.ParquetWriter(file, pa.schema({"label": labels.names.type})) as writer:
        for codes in _blocks(labels.codes):
            present = codes >= 0
            labelled += int(np.count_nonzero(present))
            seen[codes[present]] = True
            column = labels.names.take(pa.array(codes, mask=~present))
            writer.write_batch(pa.record_batch({"label": column}))
    return {"classes": int(np.count_nonzero(seen)), "labelled": labelled}


def _blocks(codes: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int32]]:
    for first in range(0, len(codes), BATCH_ROWS):
        yield np.asarray(codes[first : first + BATCH_ROWS])
