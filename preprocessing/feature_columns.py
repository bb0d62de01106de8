"""Feature columns of a node table.

A column of numbers or booleans is one feature. A list of floats, and any list whose type fixes its length, is a vector.
A list of integers is a bag of word numbers: one feature a word, 1 where the row names it (a type cannot tell a short
vector of integers from words; store such a vector as floats). A column of text is read as numbers if at least half of
its first values are, or if it was asked for by name: then text among its numbers is a fault, not a reason to drop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import scipy.sparse as sp

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.errors import InputError
from preprocessing.features import BLOCK_ROWS, Block, FeatureDtype, FeatureSource, rounded
from preprocessing.journal import Journal
from preprocessing.prefetch import ahead
from preprocessing.tables import Progress, Table

__all__ = ["choose_features", "table_features", "table_weights"]

Kind = Literal["number", "text", "vector", "words"]
# Fault at a row of the batch: problem, row, given.
Fault = Callable[[str, int, object], InputError]

_NUMBER = r"(?i)^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^[+-]?(nan|inf|infinity)$|^(true|false)$"
_INDEX_OF_PANDAS = r"__index_level_\d+__"
_LARGEST_WORD = 2**31 - 2
_EXPECTED: dict[Kind, str] = {
    "number": "a finite number in every row",
    "text": "a finite number in every row",
    "vector": "a list of as many finite numbers in every row",
    "words": f"a list of word numbers, 0 to {_LARGEST_WORD}, in every row",
}


def choose_features(table: Table, taken: Sequence[str]) -> list[str]:
    """The columns that can be features, of all but the ``taken``; columns without a name, as pandas leaves, cannot."""
    kinds = {
        name: _kind(kind)
        for name, kind in table.types.items()
        if name and name not in taken and not re.fullmatch(_INDEX_OF_PANDAS, name)
    }
    numeric = _texts_of_numbers(table, [name for name, kind in kinds.items() if kind == "text"])
    return [name for name, kind in kinds.items() if kind is not None and (kind != "text" or name in numeric)]


def table_features(
    table: Table,
    names: Sequence[str],
    rank: Int64Array,
    dtype: FeatureDtype,
    scratch: Path,
    progress: Progress,
    required: Sequence[int] | None = None,
) -> FeatureSource:
    """The columns ``names`` as features; row r of the table becomes row ``rank[r]``.

    ``required`` are the widths that the columns must have; of words, those that they may not exceed. One reading checks
    every value and counts, so that the next can write in place; what it found is kept in ``scratch``, where a build
    that was killed later finds it.
    """
    columns = [_Column(table, name, _required_kind(table, name), dtype) for name in names]
    checked = Journal(scratch / "features-checked.json")
    if not checked.state:
        nonzeros = mapped_npy(scratch / "nonzeros.npy", np.int64, (len(rank),))
        checked.record(**_checked(table, columns, rank, nonzeros, progress))
    nonzeros = np.load(scratch / "nonzeros.npy", mmap_mode="r", allow_pickle=False)
    widths, constant = checked.state["widths"], checked.state["constant"]
    if required is not None:
        widths = [_fitting(column, *pair) for column, *pair in zip(columns, widths, required, strict=True)]
    ends = np.cumsum(widths).tolist()
    if not 0 < ends[-1] <= _LARGEST_WORD:
        raise InputError(
            "the features have too many columns, or none",
            where=str(table.path),
            given=f"{ends[-1]} columns",
            expected=f"1 to {_LARGEST_WORD}",
            remedy="number the words from 0 without gaps, or leave out the features",
        )

    def block(first: int, batch: pa.RecordBatch) -> Block:
        parts = [column.values(batch.column(i), first, widths[i]) for i, column in enumerate(columns)]
        return rank[first : first + batch.num_rows], _beside(parts, widths)

    def blocks() -> Iterator[Callable[[], Block]]:
        return (partial(block, first, batch) for first, batch in table.batches(names, BLOCK_ROWS))

    ranges = {name: (end - width, end) for name, width, end in zip(names, widths, ends, strict=True)}
    return FeatureSource(ends[-1], nonzeros, ranges, constant, blocks)


def _fitting(column: _Column, width: int, required: int) -> int:
    """``required``; ``InputError`` for a column that is not so wide."""
    words = column.kind == "words"
    if width == required or (words and width < required):
        return required
    raise InputError(
        "the feature column is wider than the graph's" if width > required else "the feature column is too narrow",
        where=f"{column.table.path}, column '{column.name}'",
        given=f"word number {width - 1}" if words else f"{width} numbers a row",
        expected=f"word numbers from 0 to {required - 1}" if words else f"{required} numbers a row",
        remedy="correct the column, or ingest the old tables and the new ones together",
    )


def _checked(
    table: Table, columns: Sequence[_Column], rank: Int64Array, nonzeros: Int64Array, progress: Progress
) -> dict[str, Any]:
    """Width of every column, and how many of its features are constant, where any; fills in ``nonzeros``.

    Words are not looked at for constants: there may be more of them than memory.
    """
    widths = [0] * len(columns)
    low, high = dict[int, Float32Array](), dict[int, Float32Array]()
    with closing(ahead(table.watched([column.name for column in columns], progress, BLOCK_ROWS))) as batches:
        for first, batch in batches:
            rows = rank[first : first + batch.num_rows]
            for i, column in enumerate(columns):
                values = column.values(batch.column(i), first, widths[i])
                widths[i] = max(widths[i], values.shape[1])
                nonzeros[rows] += _entries(values)
                if isinstance(values, np.ndarray):
                    low[i] = np.minimum(low.get(i, np.inf), values.min(axis=0))
                    high[i] = np.maximum(high.get(i, -np.inf), values.max(axis=0))
    same = {columns[i].name: int(np.count_nonzero(low[i] == high[i])) for i in low}
    return {"widths": widths, "constant": {name: count for name, count in same.items() if count}}


def table_weights(table: Table, name: str, cells: pa.Array, first: int) -> Float32Array:
    """Cells that start at row ``first`` as weights of edges; ``InputError`` unless finite in float32, and positive."""
    kind = _required_kind(table, name)
    if kind not in ("number", "text"):
        raise table.column_fault(
            "this column can hold no weights", name, expected="one number a row", remedy="name another weight column"
        )
    weights = _Column(table, name, kind, "float32", "correct the weight, or drop the edge").values(cells, first, 1)
    assert isinstance(weights, np.ndarray)
    if not (weights > 0).all():
        row = _first(~(weights[:, 0] > 0))
        raise table.fault(
            "the weight is not positive",
            row=first + row,
            column=name,
            given=cells[row].as_py(),
            expected="a positive number in every row, 1.2e-38 at least",
            remedy="drop the edge, or shift or scale the weights",
        )
    return weights[:, 0]


def _entries(values: Float32Array | sp.csr_array) -> npt.NDArray[Any]:
    return np.count_nonzero(values, axis=1) if isinstance(values, np.ndarray) else np.diff(values.indptr)


def _beside(parts: list[Float32Array | sp.csr_array], widths: list[int]) -> Float32Array | sp.csr_array:
    """The parts of a block side by side, each at its full width: CSR if one of them is."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts, axis=1)
    for part, width in zip(parts, widths, strict=True):
        if not isinstance(part, np.ndarray):
            part.resize((part.shape[0], width))
    return sp.hstack(parts, format="csr")


@dataclass(frozen=True)
class _Column:
    table: Table
    name: str
    kind: Kind
    dtype: FeatureDtype
    remedy: str = "correct the value, or leave the column out of the features"

    def values(self, cells: pa.Array, first: int, width: int) -> Float32Array | sp.csr_array:
        """Checked values [B, width] of a batch that starts at row ``first``; words come in CSR, as wide as they need.

        ``width`` is that of the rows before, 0 if there are none.
        """
        fault = partial(self._fault, first)
        if pt.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        if cells.null_count:
            raise fault("the value is missing", _first(cells.is_null()), "null")
        match self.kind:
            case "words":
                return _words(cells, fault)
            case "vector":
                return _vector(cells, width, self.dtype, fault)
            case _:
                return _scalars(
                    cells, _parsed(cells, fault) if self.kind == "text" else _numbers(cells), self.dtype, fault
                )

    def _fault(self, first: int, problem: str, row: int, given: object) -> InputError:
        return self.table.fault(
            problem,
            row=first + row,
            column=self.name,
            given=given,
            expected=_EXPECTED[self.kind] + (f" that {self.dtype} holds" if self.kind != "words" else ""),
            remedy=self.remedy,
        )


def _kind(kind: pa.DataType) -> Kind | None:
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if _is_number(kind):
        return "number"
    if pt.is_string(kind) or pt.is_large_string(kind):
        return "text"
    if (pt.is_list(kind) or pt.is_large_list(kind)) and pt.is_integer(kind.value_type):
        return "words"
    if (pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)) and _is_number(kind.value_type):
        return "vector"
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind))


def _required_kind(table: Table, name: str) -> Kind:
    kind = _kind(table.types[name])
    if kind is None:
        raise table.column_fault(
            "this column can be no feature",
            name,
            expected="numbers, booleans, lists of numbers, or lists of word numbers",
            remedy="convert the column, or leave it out of the features",
        )
    return kind


def _texts_of_numbers(table: Table, names: Sequence[str]) -> list[str]:
    """The text columns of which at least half of the values that the first block holds are numbers."""
    block = next((batch for _, batch in table.batches(names, BLOCK_ROWS)), None) if names else None
    if block is None:
        return []
    return [name for name in names if _half_numbers(pc.drop_null(block[name]))]


def _half_numbers(cells: pa.Array) -> bool:
    if pt.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    readable = pc.match_substring_regex(pc.utf8_trim_whitespace(cells), _NUMBER)
    return len(cells) > 0 and 2 * readable.true_count >= len(cells)


def _parsed(cells: pa.Array, fault: Fault) -> npt.NDArray[Any]:
    text = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
    readable = pc.match_substring_regex(text, _NUMBER)
    if not pc.all(readable).as_py():
        row = _first(pc.invert(readable))
        raise fault("there is text in a column of numbers", row, repr(cells[row].as_py()))
    text = pc.if_else(pc.equal(text, "true"), "1", pc.if_else(pc.equal(text, "false"), "0", text))
    return np.asarray(pc.utf8_ltrim(text, "+").cast(pa.float64()))


def _scalars(cells: pa.Array, numbers: npt.NDArray[Any], dtype: FeatureDtype, fault: Fault) -> Float32Array:
    values = rounded(numbers, dtype)
    if not np.isfinite(values).all():
        row = _first(~np.isfinite(values))
        raise fault("the value is not a finite number", row, cells[row].as_py())
    return values.reshape(-1, 1)


def _vector(cells: pa.Array, width: int, dtype: FeatureDtype, fault: Fault) -> Float32Array:
    lengths = np.asarray(pc.list_value_length(cells))
    width = width or int(lengths[0])
    if (lengths != width).any() or width == 0:
        row = 0 if width == 0 else _first(lengths != width)
        raise fault(
            "the feature vectors are empty" if width == 0 else "the feature vectors are ragged",
            row,
            f"{lengths[row]} numbers here, {width} in the first row",
        )
    flat = cells.flatten()
    if flat.null_count:
        row, position = divmod(_first(flat.is_null()), width)
        raise fault(f"a feature is missing (number {position + 1} of the list)", row, "null")
    values = rounded(_numbers(flat), dtype)
    if not np.isfinite(values).all():
        row, position = divmod(_first(~np.isfinite(values)), width)
        given = flat[row * width + position].as_py()
        raise fault(f"a feature is not a finite number (number {position + 1} of the list)", row, given)
    return values.reshape(-1, width)


def _words(cells: pa.Array, fault: Fault) -> sp.csr_array:
    indptr = np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(cells)), dtype=np.int64)])
    flat = cells.flatten()
    if flat.null_count:
        row = int(np.searchsorted(indptr, _first(flat.is_null()), side="right")) - 1
        raise fault("a word number is missing", row, "null in the list")
    words = flat.to_numpy(zero_copy_only=False)
    wrong = (words < 0) | (words > _LARGEST_WORD)
    if wrong.any():
        row = int(np.searchsorted(indptr, _first(wrong), side="right")) - 1
        raise fault("a word number is out of range", row, words[_first(wrong)])
    width = int(words.max()) + 1 if len(words) else 0
    # A copy, because sorting works in place and Arrow's memory is read-only.
    columns = np.array(words, dtype=np.int64)
    bags = sp.csr_array((np.ones(len(words), np.float32), columns, indptr), shape=(len(cells), width))
    bags.sum_duplicates()
    bags.data[:] = 1
    return bags


def _numbers(cells: pa.Array) -> npt.NDArray[Any]:
    if pt.is_decimal(cells.type):
        cells = cells.cast(pa.float64())
    return np.asarray(cells.to_numpy(zero_copy_only=False))


def _first(mask: npt.NDArray[np.bool_] | pa.Array) -> int:
    return int(np.argmax(np.asarray(mask)))
