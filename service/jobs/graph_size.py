"""How large a graph is: by its bundle's counts, or, before there are any, by what its source's files say of themselves.

Nothing is read but Parquet footers, headers inside an npz, and a few pieces of CSV files, all on this machine.
"""

from __future__ import annotations

import csv
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.meant_columns import is_feature_cell, is_feature_type, is_number, meant_columns
from service.store import Graph

__all__ = ["GraphSize", "edge_tables", "graph_size", "missing_column", "table_bytes", "table_columns"]

ARCS_A_NODE = 10
"""Taken where no file tells the number of nodes."""
HEADER_BYTES = 64 * 1024
PIECE_BYTES = 16 * 1024
MOST_PARTS = 1000
CSV_PIECES = 16
_IDS = ("id", "node_id")
_LABELS = ("label", "y")
_NODE_COLUMNS = ("node_id", "features", "label", "split", "attributes")
_EDGE_COLUMNS = ("source", "target", "weight")


@dataclass(frozen=True)
class GraphSize:
    """N nodes, A arcs, F feature columns and Z stored feature values.

    ``read_bytes`` is what an ingest has before it as plain values; ``guessed`` where files told it and no bundle.
    """

    nodes: int
    arcs: int
    columns: int
    values: int
    dense: bool = True
    value_bytes: int = 4
    read_bytes: int = 0
    guessed: bool = False

    @property
    def feature_bytes(self) -> int:
        """Of the features in a bundle: a matrix, or rows of values, each with its column."""
        return self.values * (self.value_bytes + (0 if self.dense else 4))

    @property
    def bytes(self) -> int:
        """Of topology and features."""
        return 8 * self.nodes + 4 * self.arcs + self.feature_bytes


def graph_size(graph: Graph) -> GraphSize | None:
    """None where nothing can be told before the graph is ingested: data sets by name, URIs, files that are gone."""
    width = 2 if graph.feature_dtype == "float16" else 4
    if graph.counts is not None:
        features = graph.features or {}
        columns, nodes = int(features.get("columns") or 0), graph.counts["nodes"]
        dense = features.get("layout", "dense") == "dense"
        values = round(nodes * columns * (1.0 if dense else float(features.get("density") or 0.0)))
        return GraphSize(nodes, graph.counts["arcs"], columns, values, dense, width)
    source = graph.source or {}
    twice = 2 if graph.direction == "undirected" else 1
    try:
        match source.get("kind"):
            case "tables":
                return _of_tables(source, twice, width)
            case "npz":
                return _of_npz(source, twice, width)
    except (OSError, EOFError, ValueError, KeyError, IndexError, pa.ArrowException, csv.Error, zipfile.BadZipFile):
        return None
    return None


def table_bytes(name: str) -> int:
    """Of a table's values, three times what is packed; 0 where the table is not of this machine."""
    path = Path(name)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size * (1 if file.suffix == ".csv" else 3) for file in files)


def edge_tables(source: dict[str, Any]) -> list[str]:
    """The names of a source's edge tables: one, or one of each relation; none of another kind of source."""
    return [source["edges"]] if source.get("edges") else list((source.get("relations") or {}).values())


def table_columns(name: str) -> list[str]:
    """The columns of a table in their order; none where nothing can be told here: URIs, files that are gone."""
    table = _readable(name)
    return [] if table is None else list(table.numbers)


def missing_column(source: dict[str, Any]) -> tuple[str, str, list[str]] | None:
    """The first option of a table source that names a column which its table has not, that, and the columns it has,
    those that may be meant first.

    None where all are there, or nothing can be told here: other kinds of source, URIs, files that are gone.
    """
    if source.get("kind") != "tables":
        return None
    nodes = [source["nodes"]] if source.get("nodes") else []
    for tables, options in ((nodes, _NODE_COLUMNS), (edge_tables(source), _EDGE_COLUMNS)):
        given = [option for option in options if source.get(option)]
        # Reading them is for nothing where no column is named.
        found = [table for table in map(_readable, tables if given else []) if table is not None]
        for option, table in ((option, table) for option in given for table in found):
            named = source.get(option)
            for name in [named] if isinstance(named, str) else named or []:
                if name not in table.numbers:
                    return option, name, meant_columns(name, list(table.numbers), table.features)
    return None


@dataclass(frozen=True)
class _Table:
    """Rows; by column, how many numbers it holds (0: text), whether they are numbers of words, and whether it is most
    likely of features; the span of integers of a column that tells it.
    """

    rows: int
    numbers: dict[str, int]
    words: frozenset[str]
    features: frozenset[str]
    spans: dict[str, tuple[int, int]]


def _of_tables(source: dict[str, Any], twice: int, width: int) -> GraphSize:
    edges = [_table(Path(name)) for name in edge_tables(source)]
    arcs = twice * sum(table.rows for table in edges)
    if source.get("nodes") is None:
        nodes = max(min(arcs // ARCS_A_NODE, *(_span(table) for table in edges)), 1)
        return GraphSize(nodes, arcs, 0, 0, read_bytes=8 * arcs, guessed=True)
    table = _table(Path(source["nodes"]))
    features = _features(source, table.numbers)
    values = sum(table.numbers[name] for name in features)
    dense = not table.words & set(features)
    columns = -(-values // max(table.rows, 1))
    return GraphSize(table.rows, arcs, columns, values, dense, width, 8 * arcs + width * values, guessed=True)


def _span(edges: _Table) -> int:
    """How many integers there are from the smallest to the largest id that an edge table says its columns hold."""
    ends = list(edges.spans.values())[:2]
    return max(high for _, high in ends) - min(low for low, _ in ends) + 1 if len(ends) == 2 else edges.rows


def _features(source: dict[str, Any], numbers: dict[str, int]) -> list[str]:
    """Columns that an ingest takes for features, as far as names and types tell."""
    if source.get("features") is not None:
        return [name for name in source["features"] if name in numbers]
    named = source.get("node_id") or next((name for name in _IDS if name in numbers), next(iter(numbers)))
    label = source.get("label") or next((name for name in _LABELS if name in numbers), None)
    others = {named, label, source.get("split"), *source.get("attributes", [])}
    return [name for name, held in numbers.items() if held and name not in others]


def _readable(name: str) -> _Table | None:
    try:
        return _table(Path(name))
    except (OSError, EOFError, ValueError, KeyError, IndexError, pa.ArrowException, csv.Error):
        return None


def _table(path: Path) -> _Table:
    parts = [path] if path.is_file() else _parts(path)
    return _parquet(parts) if parts[0].suffix.lower() == ".parquet" else _csv(parts)


def _parts(folder: Path) -> list[Path]:
    parts = [file for file in folder.iterdir() if file.suffix.lower() in {".parquet", ".csv"}]
    parts = sorted(file for file in parts if file.is_file() and not file.name.startswith((".", "_")))
    if len(parts) > MOST_PARTS:
        raise ValueError("too many parts to look at each")
    return parts


def _parquet(parts: list[Path]) -> _Table:
    rows, numbers, spans = 0, dict[str, int](), dict[str, tuple[int, int]]()
    words, features = set[str](), set[str]()
    for part in parts:
        file = pq.read_metadata(part)
        types = {field.name: field.type for field in file.schema.to_arrow_schema()}
        words |= {
            name for name, kind in types.items() if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type)
        }
        features |= {name for name, kind in types.items() if is_feature_type(kind)}
        rows += file.num_rows
        for group in range(file.num_row_groups):
            for number in range(file.num_columns):
                chunk = file.row_group(group).column(number)
                name, text = chunk.path_in_schema.split(".")[0], chunk.physical_type == "BYTE_ARRAY"
                numbers[name] = numbers.get(name, 0) + (0 if text else chunk.num_values)
                told = chunk.statistics
                if told is not None and told.has_min_max and isinstance(told.min, int):
                    low, high = spans.get(name, (told.min, told.max))
                    spans[name] = min(low, told.min), max(high, told.max)
    return _Table(rows, numbers, frozenset(words), frozenset(features), spans)


def _csv(parts: list[Path]) -> _Table:
    """As many rows a byte as in pieces that lie evenly over the parts, one after the other."""
    with parts[0].open("rb") as file:
        first = file.read(HEADER_BYTES).decode("utf-8-sig", "replace").splitlines()
    names, cells = ([cell.strip() for cell in line] for line in csv.reader(first[:2]))
    sizes = [part.stat().st_size for part in parts]
    total = sum(sizes)
    starts = [total * (2 * piece + 1) // (2 * CSV_PIECES) for piece in range(CSV_PIECES)]
    rows = round(total * sum(_rows_a_byte(parts, sizes, start) for start in starts) / CSV_PIECES) - len(parts)
    numbers = {name: rows * is_number(cell) for name, cell in zip(names, cells, strict=False)}
    features = frozenset(name for name, cell in zip(names, cells, strict=False) if is_feature_cell(cell))
    return _Table(max(rows, 1), numbers, frozenset(), features, {})


def _rows_a_byte(parts: list[Path], sizes: list[int], start: int) -> float:
    """Around byte ``start`` of all parts in a row, by the whole lines of a piece; of a small part, all of them."""
    for part, size in zip(parts, sizes, strict=True):
        if start < size:
            with part.open("rb") as file:
                offset = min(start, max(size - PIECE_BYTES, 0))
                file.seek(offset)
                lines = file.read(PIECE_BYTES).splitlines(keepends=True)
            whole = [len(line) for line in lines[offset > 0 :] if line.endswith(b"\n")] or [len(line) for line in lines]
            return len(whole) / sum(whole)
        start -= size
    raise IndexError(start)


def _of_npz(source: dict[str, Any], twice: int, width: int) -> GraphSize:
    with zipfile.ZipFile(source["path"]) as archive:
        files = {name.removesuffix(".npy"): name for name in archive.namelist()}
        groups = [match[1] for name in files if (match := re.fullmatch(r"(adj(?:_.+)?)_indptr", name))]
        if source.get("relation") is not None:
            groups = [f"adj_{source['relation']}"]
        nodes = _shape(archive, files[f"{groups[0]}_indptr"])[0] - 1
        arcs = twice * sum(_shape(archive, files[f"{group}_indices"])[0] for group in groups)
        if "attr_data" in files:
            values, dense = _shape(archive, files["attr_data"])[0], False
            with archive.open(files["attr_shape"]) as file:
                columns = int(np.lib.format.read_array(file, allow_pickle=False)[1])
        else:
            values, columns, dense = 0, 0, True
    # All of the file's arrays are in memory at once, with eight bytes for a number.
    return GraphSize(nodes, arcs, columns, values, dense, width, 8 * arcs + 8 * values, guessed=True)


def _shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return tuple(read(file)[0])
