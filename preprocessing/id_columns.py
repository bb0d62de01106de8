"""Id columns of tables: one kind for the whole graph, and every value checked.

A Parquet column says its kind. A CSV is text: its ids follow the Parquet table beside it; without one they are integers
if every id of the node table (without a node table: of both edge columns) is spelled as an int64, else strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from preprocessing.array_types import Int64Array
from preprocessing.ids import IdKind
from preprocessing.tables import Table

__all__ = ["SPELLED_INT", "IdColumn", "fits_int64", "id_kind", "read_ids", "require_kind"]

IdColumn = tuple[Table, str]

# The spelling that ``str(int)`` gives back: ids are looked up by their text.
SPELLED_INT = r"^(0|-?[1-9]\d{0,18})$"
_DECIMAL = r"^-?\d+\.\d*$"
_ACCEPTED = "integers (up to 64 bits) or strings"


def id_kind(nodes: IdColumn | None, edges: Sequence[IdColumn]) -> IdKind:
    """The kind of all ids; ``InputError`` for a column that can hold none, or when two columns disagree."""
    columns = [*([nodes] if nodes else []), *edges]
    declared = [(table, name, _declared(table, name)) for table, name in columns if table.typed]
    if not declared:
        deciding = [nodes] if nodes else edges
        return "int64" if all(_all_integers(table, name) for table, name in deciding) else "string"
    first_table, first_name, kind = declared[0]
    for table, name, other in declared[1:]:
        if other != kind:
            raise table.column_fault(
                "the ids of two columns are of different types",
                name,
                expected=f"{kind} ids, as column '{first_name}' of {first_table.path} has",
                remedy="convert one of the columns",
            )
    return kind


def require_kind(columns: Sequence[IdColumn], kind: IdKind, whose: object) -> None:
    """``InputError`` for a column whose type says that its ids are of another kind than those of ``whose``."""
    for table, name in columns:
        if table.typed and _declared(table, name) != kind:
            raise table.column_fault(
                "the ids are of another type than the graph's",
                name,
                expected=f"{kind} ids, as {whose} has",
                remedy="convert the column",
            )


def read_ids(table: Table, name: str, cells: pa.Array | pa.ChunkedArray, first: int, kind: IdKind) -> Int64Array | Any:
    """Cells that start at row ``first`` as ids: an int64 array, or an Arrow ``large_string`` array."""
    if cells.null_count:
        raise table.fault(
            "an id is missing",
            row=first + _first(cells.is_null()),
            column=name,
            given="null",
            expected="an id in every row",
            remedy="give the id, or drop the row",
        )
    if kind == "string":
        texts = _joined(cells.cast(pa.large_string()))
        if not _is_utf8(texts):
            row = _halved(texts, _is_utf8)
            raise table.fault(
                "the id is no text",
                row=first + row,
                column=name,
                given=texts.cast(pa.large_binary())[row].as_py(),
                expected="text in UTF-8",
                remedy="correct the id, or drop the row",
            )
        unusable = pc.or_(pc.equal(texts, ""), pc.match_substring(texts, "\0"))
        if pc.any(unusable).as_py():
            row = _first(unusable)
            raise table.fault(
                "the id is empty, or holds a NUL character",
                row=first + row,
                column=name,
                given=repr(texts[row].as_py()),
                expected="text that a look-up can name",
                remedy="correct the id, or drop the row",
            )
        return texts
    if not fits_int64(cells):
        row = _halved(cells, fits_int64)
        raise table.fault(
            "the id is no 64-bit integer",
            row=first + row,
            column=name,
            given=cells[row].as_py(),
            expected="an integer from -2^63 to 2^63-1, as the other ids are",
            remedy="correct the id, or store all ids as strings",
        )
    return np.asarray(_joined(cells).cast(pa.int64()))


def _declared(table: Table, name: str) -> IdKind:
    kind = table.types[name]
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_integer(kind):
        return "int64"
    if pt.is_string(kind) or pt.is_large_string(kind):
        return "string"
    raise table.column_fault(
        "this column can hold no ids", name, expected=_ACCEPTED, remedy="convert the column to int64 or string"
    )


def _all_integers(table: Table, name: str) -> bool:
    """Whether every id of a text column is an integer; decimal numbers are refused, for 1.0 and 1 would differ."""
    for first, batch in table.batches([name]):
        cells = batch.column(0)
        odd = pc.fill_null(pc.invert(pc.match_substring_regex(cells, SPELLED_INT)), False)
        if pc.any(odd).as_py():
            row = _first(odd)
            value = cells[row].as_py()
            if pc.match_substring_regex(value, _DECIMAL).as_py():
                raise table.fault(
                    "the id is a decimal number",
                    row=first + row,
                    column=name,
                    given=value,
                    expected=_ACCEPTED,
                    remedy="write the ids as integers; missing ids often make a column decimal",
                )
            return False
        if not fits_int64(cells):
            return False
    return True


def _halved(cells: pa.Array | pa.ChunkedArray, fit: Callable[[Any], bool]) -> int:
    """The first cell that does not fit, by halving: one of them does not."""
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        if fit(cells.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def fits_int64(cells: pa.Array | pa.ChunkedArray) -> bool:
    """Whether every cell, a number or its text, is an int64."""
    try:
        cells.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _joined(cells: pa.Array | pa.ChunkedArray) -> pa.Array:
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _first(mask: pa.Array | pa.ChunkedArray) -> int:
    return int(np.argmax(np.asarray(mask)))
