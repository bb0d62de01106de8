"""Columns of the node table read as attributes: of one type each, and every value checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from preprocessing.attributes import NO_INTEGER, Attribute, AttributeType, in_order, value_dtype
from preprocessing.id_columns import SPELLED_INT, fits_int64
from preprocessing.numbering import numbered
from preprocessing.tables import Progress, Table

__all__ = ["table_attribute"]

MAX_STRINGS = 1 << 20
# No digits after a leading zero: such are codes, as 01234 is.
_NUMBER = r"^[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
_BOOLEAN = r"^(?i:true|false)$"
_EXPECTED = "numbers, booleans or strings, null where a node has none"


def table_attribute(
    table: Table, name: str, rank: Int64Array, file: Path, progress: Progress, known: AttributeType | None = None
) -> Attribute:
    """A column of the node table; row r of the table is node ``rank[r]``. The values lie in ``file``.

    ``known`` is the type that the column must have. A CSV's column is of the first of integer, number and boolean that
    all its cells spell, else string. ``InputError`` for another type, and for a value that its type does not hold.
    """
    found = _type(table, name) if table.typed else known or _spelled(table, name)
    if found is None or (known is not None and found != known and (known, found) != ("number", "integer")):
        raise table.column_fault(
            "this column can be no attribute" if found is None else "the attribute is of another type than the graph's",
            name,
            expected=_EXPECTED if known is None else f"values of type {known}",
            remedy="convert the column, or leave it out of the attributes",
        )
    kind = known or found
    values = mapped_npy(file, value_dtype(kind), (len(rank),))
    code_of: dict[str, int] = {}
    for first, batch in table.watched([name], progress):
        cells = batch.column(0)
        rows = rank[first : first + batch.num_rows]
        if kind == "string":
            values[rows] = _codes(table, name, cells, code_of)
        else:
            values[rows] = _numbers(table, name, cells, first, kind)
    return in_order(name, values, code_of) if kind == "string" else Attribute(name, kind, values)


def _type(table: Table, name: str) -> AttributeType | None:
    kind = table.types[name]
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_boolean(kind):
        return "boolean"
    if pt.is_integer(kind):
        return "integer"
    if pt.is_floating(kind) or pt.is_decimal(kind):
        return "number"
    return "string" if pt.is_string(kind) or pt.is_large_string(kind) else None


def _spelled(table: Table, name: str) -> AttributeType:
    spellings: dict[AttributeType, Callable[[Any], bool]] = {
        "integer": lambda cells: _all_match(cells, SPELLED_INT) and fits_int64(cells),
        "number": lambda cells: _all_match(cells, _NUMBER),
        "boolean": lambda cells: _all_match(cells, _BOOLEAN),
    }
    empty = True
    for _, batch in table.batches([name]):
        cells = batch.column(0)
        empty = empty and cells.null_count == len(cells)
        spellings = {kind: fits for kind, fits in spellings.items() if fits(cells)}
    return "string" if empty else next(iter(spellings), "string")


def _all_match(cells: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern), min_count=0).as_py())


def _codes(table: Table, name: str, cells: Any, code_of: dict[str, int]) -> npt.NDArray[np.int32]:
    codes = numbered(cells, code_of)
    if len(code_of) > MAX_STRINGS:
        raise table.column_fault(
            f"this column has more than {MAX_STRINGS:,} different strings",
            name,
            expected="values that many nodes share, for queries to filter by",
            remedy="leave the column out of the attributes",
        )
    return codes


def _numbers(table: Table, name: str, cells: Any, first: int, kind: AttributeType) -> npt.NDArray[Any]:
    if pt.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if kind == "boolean":
        return np.asarray(cells.cast(pa.bool_()).cast(pa.int8()).fill_null(-1))
    if kind == "number":
        if not table.typed:
            _refuse_text(table, name, cells, first, _NUMBER)
            cells = pc.utf8_ltrim(cells, "+")
        # An integer past 2^53 is rounded, as it is wherever it is read as a number.
        return np.asarray(cells.cast(pa.float64(), safe=False).fill_null(np.nan))
    if not table.typed:
        _refuse_text(table, name, cells, first, SPELLED_INT)
    try:
        values = np.asarray(cells.cast(pa.int64()).fill_null(NO_INTEGER))
        lost = (values == NO_INTEGER) & np.asarray(cells.is_valid())
    except pa.ArrowInvalid:
        lost = np.array([not fits_int64(cells.slice(row, 1)) for row in range(len(cells))])
    if lost.any():
        row = int(np.argmax(lost))
        raise table.fault(
            "the attribute is no 64-bit integer",
            row=first + row,
            column=name,
            given=cells[row].as_py(),
            expected="an integer above -2^63 and below 2^63",
            remedy="correct the value, or store the column as float64 or as strings",
        )
    return values


def _refuse_text(table: Table, name: str, cells: Any, first: int, pattern: str) -> None:
    odd = np.asarray(pc.fill_null(pc.invert(pc.match_substring_regex(cells, pattern)), False))
    if odd.any():
        row = int(np.argmax(odd))
        raise table.fault(
            "the attribute is of another type than the graph's",
            row=first + row,
            column=name,
            given=repr(cells[row].as_py()),
            expected="a number, as the graph's attribute holds",
            remedy="correct the value, or leave the cell empty",
        )
