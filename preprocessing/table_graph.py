"""A graph from node and edge tables: columns chosen, ids brought into order, endpoints looked up, labels read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from preprocessing.errors import InputError
from preprocessing.feature_columns import choose_features, table_features, table_weights
from preprocessing.features import FeatureDtype, FeatureSource
from preprocessing.id_columns import IdColumn, id_kind, read_ids
from preprocessing.ids import IdKind
from preprocessing.input_files import InputFile
from preprocessing.labels import LabelSetSource, LabelSource, table_labels
from preprocessing.raw_graph import ArcBlock, Arcs, Notice, RawGraph
from preprocessing.settings import TableSource
from preprocessing.sorted_ids import sorted_ids
from preprocessing.splits import SplitCodes, table_split
from preprocessing.stage import Emitter
from preprocessing.string_lookup import StringLookup
from preprocessing.tables import BATCH_ROWS, Table, open_table

__all__ = ["read_tables"]

# Rows of ids, −1 for an unknown one.
Find = Callable[[Any], Int64Array]


@dataclass(frozen=True)
class _EdgeTable:
    """An edge table with its columns; ``weight`` is None where every edge weighs 1."""

    table: Table
    source: str
    target: str
    weight: str | None

    @property
    def ends(self) -> list[IdColumn]:
        return [(self.table, self.source), (self.table, self.target)]

    @property
    def unread(self) -> list[str]:
        return [name for name in self.table.types if name not in (self.source, self.target, self.weight)]


def read_tables(settings: TableSource, dtype: FeatureDtype, scratch: Path, memory: int, emitter: Emitter) -> RawGraph:
    """Read the tables, holding ``memory`` bytes at most and what else is needed under ``scratch``.

    ``InputError`` at the first fault; those of edges come when the arcs are read. Without a node table the nodes are
    the ids that edges name. What an earlier, killed run left in ``scratch`` is gone on from.
    """
    named = settings.relations or {"edges": str(settings.edges)}
    notices = list[Notice]()
    edges = {name: _edge_table(open_table(InputFile.at(path)), settings, notices) for name, path in named.items()}
    ends = [end for relation in edges.values() for end in relation.ends]
    features, labels, split = None, None, None
    if settings.nodes is None:
        kind = id_kind(None, ends)
        ids, _ = sorted_ids(lambda: _id_blocks(ends, kind, emitter), kind, scratch / "ids", memory)
    else:
        nodes = open_table(InputFile.at(settings.nodes))
        id_column = _column(nodes, settings.node_id, ("id", "node_id"), 0, "node id", notices, ("label", "y"))
        kind = id_kind((nodes, id_column), ends)
        ids, order = sorted_ids(
            lambda: _id_blocks([(nodes, id_column)], kind, emitter),
            kind,
            scratch / "ids",
            memory,
            partial(_repeated, nodes, id_column),
        )
        features, labels, split, unread = _attributes(nodes, id_column, settings, order, dtype, scratch, emitter)
        notices += unread
    notices += [notice for relation in edges.values() for notice in _unread(relation.table, relation.unread)]
    find = StringLookup(ids.column()).rows if kind == "string" else ids.rows
    relations = {name: _arcs(relation, kind, find, settings.nodes, emitter) for name, relation in edges.items()}
    origin = ", ".join(str(relation.table.path) for relation in edges.values())
    return RawGraph(origin, ids, relations, features, labels, tuple(notices), split)


def _edge_table(table: Table, settings: TableSource, notices: list[Notice]) -> _EdgeTable:
    sources, targets, weights = ("source", "src", "from"), ("target", "dst", "to"), ("weight", "w")
    source = _column(table, settings.source, sources, 0, "source", notices, (*targets, *weights))
    target = _column(table, settings.target, targets, 1, "target", notices, (*sources, *weights))
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
        weight = next((name for name in ("weight", "w") if name in table.types and name not in (source, target)), None)
    return _EdgeTable(table, source, target, weight)


def _column(
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


def _id_blocks(columns: Sequence[IdColumn], kind: IdKind, emitter: Emitter) -> Iterator[pa.Array]:
    for table, name in columns:
        for first, batch in table.watched([name], partial(emitter.progress, unit=f"ids of '{name}'")):
            yield pa.array(read_ids(table, name, batch.column(0), first, kind))


def _repeated(table: Table, name: str, node: int | str, before: int, row: int) -> InputError:
    return table.fault(
        "the node id comes twice",
        row=row,
        column=name,
        given=node,
        expected=f"every id once; it is also in {table.place(before)}",
        remedy="drop or rename one of the rows",
    )


def _attributes(
    nodes: Table,
    id_column: str,
    settings: TableSource,
    order: Int64Array,
    dtype: FeatureDtype,
    scratch: Path,
    emitter: Emitter,
) -> tuple[FeatureSource | None, LabelSource | LabelSetSource | None, SplitCodes | None, list[Notice]]:
    features = None if settings.features is None else list(dict.fromkeys(settings.features))
    label = settings.label
    if label is None:
        free = [name for name in ("label", "y") if name in nodes.types and name not in (id_column, *(features or ()))]
        label = free[0] if free else None
    taken = [id_column] if label is None else [id_column, nodes.require(label, "label")]
    if settings.split is not None:
        taken.append(nodes.require(settings.split, "split"))
    if features is None:
        features = choose_features(nodes, taken)
    chosen = [nodes.require(name, "feature") for name in features]
    if id_column in chosen:
        raise nodes.column_fault(
            "the node id cannot be a feature",
            id_column,
            expected="feature columns beside the id",
            remedy="leave the column out of the features, or name another node id column",
        )
    rank = mapped_npy(scratch / "rank.npy", np.int64, (len(order),))
    for first in range(0, len(order), BATCH_ROWS):
        part = order[first : first + BATCH_ROWS]
        rank[part] = np.arange(first, first + len(part))
    source, labels, split = None, None, None
    if chosen:
        source = table_features(nodes, chosen, rank, dtype, scratch, partial(emitter.progress, unit="feature rows"))
    if label is not None:
        labels = table_labels(nodes, label, rank, scratch, partial(emitter.progress, unit="labels"))
    if settings.split is not None:
        split = table_split(nodes, settings.split, rank, partial(emitter.progress, unit="parts of the split"))
    unread = [name for name in nodes.types if name not in (*taken, *chosen)]
    hint = "" if labels is not None else "; name one as the label to have it read"
    return source, labels, split, _unread(nodes, unread, hint)


def _arcs(edges: _EdgeTable, kind: IdKind, find: Find, nodes: str | None, emitter: Emitter) -> Arcs:
    """The table's edges as rows of nodes; ``InputError`` at the first edge to an unknown node, or a bad weight."""
    table, weight = edges.table, edges.weight
    columns = [edges.source, edges.target, *([weight] if weight is not None else [])]

    def looked_up(first: int, batch: pa.RecordBatch) -> ArcBlock:
        source, target = (_rows(table, columns[i], batch.column(i), first, kind, find, nodes) for i in range(2))
        return source, target, None if weight is None else table_weights(table, weight, batch.column(2), first)

    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        for first, batch in table.watched(columns, partial(emitter.progress, unit="edges")):
            yield partial(looked_up, first, batch)

    return Arcs(table.rows, weight is not None, blocks)


def _rows(
    table: Table, name: str, cells: pa.Array, first: int, kind: IdKind, find: Find, nodes: str | None
) -> Int64Array:
    rows = find(read_ids(table, name, cells, first, kind))
    if (rows < 0).any():
        at = int(np.argmax(rows < 0))
        raise table.fault(
            "the edge names an unknown node",
            row=first + at,
            column=name,
            given=cells[at].as_py(),
            expected=f"an id of {nodes}",
            remedy="add the node, drop the edge, or ingest without the node table",
        )
    return rows


def _unread(table: Table, columns: Sequence[str], hint: str = "") -> list[Notice]:
    if not columns:
        return []
    names = ", ".join(f"'{name}'" for name in columns)
    return [Notice("columns_unread", f"{table.path}: columns not used: {names}{hint}")]
