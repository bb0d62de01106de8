"""Edge tables: their columns chosen, their endpoints looked up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from preprocessing.array_types import Int64Array
from preprocessing.errors import InputError
from preprocessing.feature_columns import table_weights
from preprocessing.id_columns import IdColumn, read_ids
from preprocessing.ids import IdKind
from preprocessing.raw_graph import ArcBlock, Arcs, Notice
from preprocessing.settings import TableSource
from preprocessing.stage import Emitter
from preprocessing.tables import Table

__all__ = [
    "NODE_IDS",
    "EdgeTable",
    "Find",
    "Unknown",
    "check_no_nodes",
    "column_of",
    "edge_table",
    "table_arcs",
    "unread",
]

NODE_IDS = ("id", "node_id")
SOURCES, TARGETS = ("source", "src", "from"), ("target", "dst", "to")

# Rows of ids, −1 for an unknown one.
Find = Callable[[Any], Int64Array]
# First row of the table, sources and targets as rows of nodes, [B] each.
Check = Callable[[int, Int64Array, Int64Array], None]


class Unknown(NamedTuple):
    """What to say of an edge that names an unknown node."""

    expected: str
    remedy: str


@dataclass(frozen=True)
class EdgeTable:
    """An edge table with its columns; ``weight`` is None where every edge weighs 1."""

    table: Table
    source: str
    target: str
    weight: str | None

    @property
    def ends(self) -> list[IdColumn]:
        """Both columns of ids."""
        return [(self.table, self.source), (self.table, self.target)]

    @property
    def unread(self) -> list[str]:
        """The columns that are of no use."""
        return [name for name in self.table.types if name not in (self.source, self.target, self.weight)]


def edge_table(table: Table, settings: TableSource, notices: list[Notice]) -> EdgeTable:
    """The table with the columns that the settings name, or that are called as such columns usually are."""
    weights = ("weight", "w")
    if settings.source is None and settings.target is None:
        check_no_nodes(list(table.types), str(table.path))
    source = column_of(table, settings.source, SOURCES, 0, "source", notices, (*TARGETS, *weights))
    target = column_of(table, settings.target, TARGETS, 1, "target", notices, (*SOURCES, *weights))
    if source == target:
        raise InputError(
            "source and target are the same column",
            where=str(table.path),
            given=f"'{source}'",
            expected="two columns",
            remedy="name both columns in the settings",
        )
    weight = settings.weight
    if weight is not None:
        table.require(weight, "weight")
    else:
        weight = next((name for name in weights if name in table.types and name not in (source, target)), None)
    return EdgeTable(table, source, target, weight)


def check_no_nodes(columns: Collection[str], where: str) -> None:
    """``InputError`` for an edge table's columns without the usual ends that have a node table's ids.

    It is for a table whose ends nobody named: by their place such columns tell no more.
    """
    ids = [name for name in NODE_IDS if name in columns]
    if ids and not {*SOURCES, *TARGETS} & {*columns}:
        raise InputError(
            f"this looks like a node table, not like an edge table: it has a column '{ids[0]}', and none for the ends",
            where=where,
            given="columns " + ", ".join(f"'{name}'" for name in columns),
            expected="an edge table, with columns 'source' and 'target'",
            remedy="name the edge table here, and this one as the node table; if these are edges, name both columns",
        )


def column_of(
    table: Table,
    given: str | None,
    names: Sequence[str],
    position: int,
    meaning: str,
    notices: list[Notice],
    others: Sequence[str] = (),
) -> str:
    """The column given; else the first of the usual names; else, with a notice, the one at ``position``.

    Columns with the usual names of ``others`` are not taken by position.
    """
    if given is not None:
        return table.require(given, meaning)
    usual = [name for name in names if name in table.types]
    if usual:
        return usual[0]
    named = [name for name in table.types if name]
    if position >= len(named) or named[position] in others:
        return table.require(names[0], meaning)
    column = named[position]
    if not table.typed and column.lstrip("-").isdecimal():
        raise InputError(
            "the first line looks like data, not like column names",
            where=f"{table.path}, line 1",
            given=", ".join(table.types),
            expected="a header line",
            remedy=f"add a header, or name the {meaning} column in the settings to say that it is one",
        )
    known = ", ".join(names)
    message = f"{table.path}: no column is called {known}; '{column}' is taken as the {meaning}, by its place"
    notices.append(Notice("column_guessed", message))
    return column


def table_arcs(
    edges: EdgeTable, kind: IdKind, find: Find, unknown: Unknown, emitter: Emitter, check: Check | None = None
) -> Arcs:
    """The table's edges as rows of nodes; ``InputError`` at the first edge to an unknown node, or a bad weight.

    ``check`` may find fault with more.
    """
    table, weight = edges.table, edges.weight
    columns = [edges.source, edges.target, *([weight] if weight is not None else [])]

    def looked_up(first: int, batch: pa.RecordBatch) -> ArcBlock:
        source, target = (_rows(table, columns[i], batch.column(i), first, kind, find, unknown) for i in range(2))
        if check is not None:
            check(first, source, target)
        return source, target, None if weight is None else table_weights(table, weight, batch.column(2), first)

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        for first, batch in table.watched(columns, partial(emitter.progress, unit="edges")):
            yield partial(looked_up, first, batch)

    return Arcs(table.rows, weight is not None, blocks)


def _rows(
    table: Table, name: str, cells: pa.Array, first: int, kind: IdKind, find: Find, unknown: Unknown
) -> Int64Array:
    rows = find(read_ids(table, name, cells, first, kind))
    if (rows < 0).any():
        at = int(np.argmax(rows < 0))
        raise table.fault(
            "the edge names an unknown node",
            row=first + at,
            column=name,
            given=cells[at].as_py(),
            expected=unknown.expected,
            remedy=unknown.remedy,
        )
    return rows


def unread(table: Table, columns: Sequence[str], hint: str = "") -> list[Notice]:
    """That these columns are of no use, unless there are none."""
    if not columns:
        return []
    names = ", ".join(f"'{name}'" for name in columns)
    return [Notice("columns_unread", f"{table.path}: columns not used: {names}{hint}")]
