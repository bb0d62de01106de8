"""Node and edge tables on disk: Parquet or CSV by suffix, or a directory of parts, read in batches.

A Parquet column has a type; a CSV cell is text, trimmed of spaces, and an empty one is null. Faults are told as a
person finds them: a Parquet file's first row is row 1, a CSV's header is line 1.
"""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from preprocessing.errors import InputError
from preprocessing.input_files import InputFile
from preprocessing.meant_columns import is_feature_cell, is_feature_type, listed, meant_columns

__all__ = ["Progress", "Table", "open_table", "table_files"]

BATCH_ROWS = 1 << 20
READ_BYTES = 1 << 25
"""Read ahead of a Parquet file, all columns together: a row group may be larger than the memory."""
SAMPLE_BYTES = 1 << 24
"""Of a CSV, whose lines tell about how many rows it has."""

Progress = Callable[[int, int], None]


class Table(ABC):
    """Columns by name, in file order, over one or more part files."""

    typed: ClassVar[bool]

    def __init__(self, path: InputFile, parts: Sequence[InputFile], types: dict[str, pa.DataType], rows: int) -> None:
        """``rows`` may be an estimate: it serves progress bars only."""
        self.path = path
        self.parts = parts
        self.types = types
        self.rows = rows

    @abstractmethod
    def batches(self, columns: Sequence[str], size: int = BATCH_ROWS) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of at most ``size`` rows, each with the number of its first row, from 0 over all parts."""

    @abstractmethod
    def place(self, row: int) -> str:
        """File and row, as a person counts it there, of row ``row`` (from 0 over all parts)."""

    @abstractmethod
    def likely_features(self) -> set[str]:
        """The columns that by their types, or their first row, hold features and neither ids nor labels."""

    def watched(
        self, columns: Sequence[str], progress: Progress, size: int = BATCH_ROWS
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """``batches``, with the rows that are done reported after each."""
        done = 0
        for first, batch in self.batches(columns, size):
            yield first, batch
            done = first + batch.num_rows
            progress(done, max(self.rows, done + 1))
        progress(done, done)

    def fault(
        self, problem: str, *, row: int, column: str, given: object = None, expected: str, remedy: str
    ) -> InputError:
        """The error of one cell."""
        where = f"{self.place(row)}, column '{column}'"
        return InputError(problem, where=where, given=given, expected=expected, remedy=remedy)

    def column_fault(self, problem: str, column: str, *, expected: str, remedy: str) -> InputError:
        """The error of a whole column: its type is what was given."""
        where = f"{self.path}, column '{column}'"
        given = f"a column of type {self.types[column]}"
        return InputError(problem, where=where, given=given, expected=expected, remedy=remedy)

    def require(self, column: str, meaning: str) -> str:
        """``column`` itself, or the error that lists the columns there are."""
        if column not in self.types:
            there_are = meant_columns(column, list(self.types), self.likely_features())
            raise InputError(
                f"there is no column '{column}' for the {meaning}",
                where=str(self.path),
                given="columns " + listed([f"'{name}'" for name in there_are]),
                expected=f"a column '{column}'",
                remedy=f"name the {meaning} column in the settings, or rename it in the table",
            )
        return column


class _ParquetTable(Table):
    typed = True

    def likely_features(self) -> set[str]:
        return {name for name, kind in self.types.items() if is_feature_type(kind)}

    def batches(self, columns: Sequence[str], size: int = BATCH_ROWS) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = 0
        for part in self.parts:
            try:
                buffer = max(READ_BYTES // len(columns), 1 << 16)
                with (
                    part.open() as source,
                    pq.ParquetFile(source, buffer_size=buffer, page_checksum_verification=True) as file,
                ):
                    for batch in file.iter_batches(batch_size=size, columns=list(columns)):
                        yield first, batch.select(columns)
                        first += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                _raise_unreadable(part, error)

    def place(self, row: int) -> str:
        for part in self.parts:
            with part.open() as source:
                count = pq.read_metadata(source).num_rows
            if row < count:
                return f"{part}, row {row + 1} (the first row is 1)"
            row -= count
        raise IndexError(row)


class _CsvTable(Table):
    typed = False

    def likely_features(self) -> set[str]:
        for _, batch in self.batches(list(self.types), 1):
            return {name for name, cell in batch.to_pylist()[0].items() if cell is not None and is_feature_cell(cell)}
        return set()

    def batches(self, columns: Sequence[str], size: int = BATCH_ROWS) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = 0
        for part in self.parts:
            try:
                # The header's own spelling: its names may be padded, as the cells may.
                spelling = {name.strip(): name for name in _open_csv(part).schema.names}
                with _open_csv(part, [spelling[name] for name in columns]) as reader:
                    for block in reader:
                        cells = [_cells(block.column(i)) for i in range(len(columns))]
                        whole = pa.record_batch(cells, names=list(columns))
                        for offset in range(0, whole.num_rows, size):
                            batch = whole.slice(offset, size)
                            yield first, batch
                            first += batch.num_rows
            except (pa.ArrowException, UnicodeError) as error:
                raise _csv_fault(part, error) from error

    def place(self, row: int) -> str:
        for part in self.parts:
            for line, _ in _records(part, skip=1):
                if row == 0:
                    return f"{part}, line {line} (the header is line 1)"
                row -= 1
        raise IndexError(row)


def table_files(path: InputFile) -> list[InputFile]:
    """The table's files: itself, or a directory's parts in natural order (part-2 before part-10)."""
    if not path.is_folder():
        return [path.existing()]
    parts = path.files(lambda name: name.lower().endswith(tuple(_OPENERS)) and not name.startswith((".", "_")))
    if len({part.suffix for part in parts}) != 1:
        raise InputError(
            "the directory is not one table",
            where=str(path),
            given="no part" if not parts else "Parquet and CSV parts",
            expected="parts that are all .parquet or all .csv",
            remedy="name a file, or a directory with the parts of one table",
        )
    return sorted(parts, key=lambda part: [int(run) if run.isdigit() else run for run in re.split(r"(\d+)", part.base)])


def open_table(path: InputFile) -> Table:
    """The table at ``path``; ``InputError`` when it is absent, unreadable, without rows, or its parts disagree."""
    parts = table_files(path)
    opener = _OPENERS.get(parts[0].suffix)
    if opener is None:
        raise InputError(
            "this is no table by its suffix",
            where=str(path),
            given=path.suffix or "no suffix",
            expected=".parquet or .csv",
            remedy="convert the table, or name its file by what it holds",
        )
    table = opener(path, parts)
    if not table.types or next(table.batches(list(table.types)[:1], size=1), None) is None:
        raise InputError(
            "the table is empty", where=str(path), given="no rows", expected="at least one row", remedy="check the file"
        )
    return table


def _open_parquet_table(path: InputFile, parts: Sequence[InputFile]) -> Table:
    types: dict[str, pa.DataType] = {}
    rows = 0
    for part in parts:
        try:
            with part.open() as source, pq.ParquetFile(source) as file:
                schema, count = file.schema_arrow, file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            _raise_unreadable(part, error)
        rows += count
        types = _same_columns(part, types, schema.names, schema.types)
    return _ParquetTable(path, parts, types, rows)


def _open_csv_table(path: InputFile, parts: Sequence[InputFile]) -> Table:
    types: dict[str, pa.DataType] = {}
    rows = 0
    for part in parts:
        try:
            names = [name.strip() for name in _open_csv(part).schema.names]
        except (pa.ArrowException, UnicodeError) as error:
            raise _csv_fault(part, error) from error
        if len(names) == 1 and (separator := re.search(r"[;|\t]", names[0])):
            raise InputError(
                "the fields are not separated by commas",
                where=f"{part}, line 1 (the header is line 1)",
                given=f"{names[0][:200]!r}, which looks separated by {separator[0]!r}",
                expected="fields separated by commas",
                remedy="write the CSV with commas, or as Parquet",
            )
        types = _same_columns(part, types, names, [pa.string()] * len(names))
        with part.open() as file:
            sample = file.read(SAMPLE_BYTES)
            rows += max(sample.count(b"\n") * file.size() // max(len(sample), 1) - 1, 0)
    return _CsvTable(path, parts, types, rows)


_OPENERS = {".parquet": _open_parquet_table, ".csv": _open_csv_table}


def _same_columns(
    part: InputFile, before: dict[str, pa.DataType], names: list[str], types: list[pa.DataType]
) -> dict[str, pa.DataType]:
    """The part's columns, when their names are unique and equal, with their types, to those of the parts before."""
    columns = dict(zip(names, types, strict=True))
    if len(columns) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            "two columns have one name",
            where=str(part),
            given=f"'{twice}'",
            expected="every column name once",
            remedy="rename one of them",
        )
    if before and columns != before:
        name = next(name for name in [*before, *columns] if before.get(name) != columns.get(name))
        raise InputError(
            "the parts of the table disagree",
            where=f"{part}, column '{name}'",
            given=f"type {columns.get(name, 'absent')}",
            expected=f"type {before.get(name, 'absent')}, as in the parts before it",
            remedy="write all parts with the same columns",
        )
    return before or columns


def _raise_unreadable(part: InputFile, error: Exception) -> NoReturn:
    raise InputError(
        f"the file is no Parquet, or it is truncated or damaged ({str(error).splitlines()[0]})",
        where=str(part),
        expected="a whole Parquet file",
        remedy="write or copy it again",
    ) from error


def _open_csv(part: InputFile, columns: list[str] | None = None) -> pa_csv.CSVStreamingReader:
    return pa_csv.open_csv(
        part.open(),
        read_options=pa_csv.ReadOptions(block_size=1 << 23),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            include_columns=columns, column_types=dict.fromkeys(columns or [], pa.string())
        ),
    )


def _cells(column: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), None, trimmed)


def _records(part: InputFile, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of every record but the first ``skip``; bytes that are no UTF-8 come as lone surrogates."""
    with io.TextIOWrapper(part.open(), encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        line = 1
        for record in reader:
            if record and skip == 0:
                yield line, record
            elif record:
                skip -= 1
            line = reader.line_num + 1


def _csv_fault(part: InputFile, error: Exception) -> InputError:
    """What is wrong with a CSV that the reader refused, found again with the line it is on."""
    width = 0
    for line, record in _records(part):
        where = f"{part}, line {line} (the header is line 1)"
        text = ",".join(record)
        if any("\udc80" <= mark <= "\udcff" for mark in text):
            return InputError(
                "the text is not UTF-8", where=where, expected="UTF-8", remedy="convert the file to UTF-8"
            )
        width = width or len(record)
        if len(record) != width:
            return InputError(
                "a row has the wrong number of fields",
                where=where,
                given=f"{len(record)} fields: {text[:200]}",
                expected=f"{width} fields, as the header has",
                remedy="correct the row; quote a field that holds a comma",
            )
    return InputError(
        f"the CSV cannot be read ({error})",
        where=str(part),
        expected="a header line, then one line a row",
        remedy="check the file",
    )
