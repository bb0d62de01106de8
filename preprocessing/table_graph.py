"""A graph from node and edge tables: columns chosen, ids brought into order, endpoints looked up, labels read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from preprocessing.bundle import Int64Array, IntArray
from preprocessing.errors import InputError
from preprocessing.feature_columns import choose_features, table_features
from preprocessing.features import FeatureDtype, FeatureSource
from preprocessing.id_columns import SPELLED_INT, IdColumn, fits_int64, id_kind, read_ids
from preprocessing.ids import IdKind, IdMap
from preprocessing.raw_graph import Notice, RawGraph
from preprocessing.settings import TableSource
from preprocessing.stage import Emitter
from preprocessing.tables import Table, open_table
from preprocessing.topology import index_dtype

__all__ = ["read_tables"]


def read_tables(settings: TableSource, dtype: FeatureDtype, emitter: Emitter) -> RawGraph:
    """Read the tables; ``InputError`` at the first fault. Without a node table the nodes are the ids edges name."""
    edges = open_table(Path(settings.edges))
    source = _column(edges, settings.source, ("source", "src", "from"), 0, "source")
    target = _column(edges, settings.target, ("target", "dst", "to"), 1, "target")
    if source == target:
        raise InputError(
            "source and target are the same column",
            where=str(edges.path),
            given=f"'{source}'",
            expected="two columns",
            remedy="name both columns in the settings",
        )
    ends = [(edges, source), (edges, target)]
    features, labels, notices = None, None, list[Notice]()
    if settings.nodes is None:
        kind = id_kind(None, ends)
        ids = IdMap(_named_by_edges(edges, [source, target], kind, emitter))
    else:
        nodes = open_table(Path(settings.nodes))
        id_column = _column(nodes, settings.node_id, ("id", "node_id"), 0, "node id")
        kind = id_kind((nodes, id_column), ends)
        ids, order = _node_ids((nodes, id_column), kind, emitter)
        features, labels, notices = _attributes(nodes, id_column, settings, order, dtype, emitter)
    sources, targets = _endpoints(edges, [source, target], kind, ids, settings.nodes, emitter)
    unread = [name for name in edges.types if name not in (source, target)]
    return RawGraph(str(edges.path), ids, sources, targets, features, labels, (*notices, *_unread(edges, unread)))


def _column(table: Table, given: str | None, names: Sequence[str], position: int, meaning: str) -> str:
    """The column given; else the first of the usual names; else the one at ``position``."""
    if given is not None:
        return table.require(given, meaning)
    usual = [name for name in names if name in table.types]
    named = [name for name in table.types if name]
    if not usual and position >= len(named):
        return table.require(names[0], meaning)
    column = usual[0] if usual else named[position]
    if not table.typed and not usual and column.lstrip("-").isdecimal():
        raise InputError(
            "the first line looks like data, not like column names",
            where=f"{table.path}, line 1",
            given=", ".join(table.types),
            expected="a header line",
            remedy=f"add a header, or name the {meaning} column in the settings to say that it is one",
        )
    return column


def _named_by_edges(edges: Table, columns: list[str], kind: IdKind, emitter: Emitter) -> Int64Array | Any:
    """Distinct ids of both columns, ascending."""
    distinct: list[pa.Array] = []
    for first, batch in edges.batches(columns):
        for i, name in enumerate(columns):
            distinct.append(pc.unique(pa.array(read_ids(edges, name, batch.column(i), first, kind))))
        emitter.progress(first + batch.num_rows, max(edges.rows, first + batch.num_rows), "rows")
    found = pc.unique(pa.chunked_array(distinct))
    ascending = found.take(pc.sort_indices(found))
    return np.asarray(ascending) if kind == "int64" else ascending


def _node_ids(nodes: IdColumn, kind: IdKind, emitter: Emitter) -> tuple[IdMap, Int64Array]:
    """The map, and the table's row of every node, [N]; ``InputError`` when an id comes twice."""
    table, name = nodes
    cells = table.column(name, lambda done, total: emitter.progress(done, total, "rows"))
    ids = read_ids(table, name, cells, 0, kind)
    ids = pa.array(ids)
    order = np.asarray(pc.sort_indices(ids)).astype(np.int64)
    ascending = ids.take(pa.array(order))
    repeated = np.asarray(pc.equal(ascending.slice(1), ascending.slice(0, len(ascending) - 1)))
    if repeated.any():
        at = int(np.argmax(repeated))
        before, row = sorted(order[at : at + 2].tolist())
        raise table.fault(
            "the node id comes twice",
            row=row,
            column=name,
            given=ids[row].as_py(),
            expected=f"every id once; it is also in {table.place(before)}",
            remedy="drop or rename one of the rows",
        )
    return IdMap(np.asarray(ascending) if kind == "int64" else ascending), order


def _attributes(
    nodes: Table, id_column: str, settings: TableSource, order: Int64Array, dtype: FeatureDtype, emitter: Emitter
) -> tuple[FeatureSource | None, pa.Array | None, list[Notice]]:
    features = None if settings.features is None else list(dict.fromkeys(settings.features))
    label = settings.label
    if label is None:
        free = [name for name in ("label", "y") if name in nodes.types and name not in (id_column, *(features or ()))]
        label = free[0] if free else None
    taken = [id_column] if label is None else [id_column, nodes.require(label, "label")]
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
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    source = None
    if chosen:
        source = table_features(
            nodes, chosen, rank, dtype, lambda done, total: emitter.progress(done, total, "feature rows")
        )
    labels = None if label is None else _labels(nodes, label, order, emitter)
    unread = [name for name in nodes.types if name not in (*taken, *chosen)]
    hint = "" if labels is not None else "; name one as the label to have it read"
    return source, labels, _unread(nodes, unread, hint)


def _labels(nodes: Table, column: str, order: Int64Array, emitter: Emitter) -> pa.Array:
    """Labels in row order, strings or int64; text that spells integers throughout a CSV is integers."""
    cells = nodes.column(column, lambda done, total: emitter.progress(done, total, "rows")).combine_chunks()
    if pt.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if not (pt.is_integer(cells.type) or pt.is_string(cells.type) or pt.is_large_string(cells.type)):
        raise nodes.column_fault(
            "this column can be no label",
            column,
            expected="strings or integers, null where a node has no label",
            remedy="convert the column to one class a node, or name another label column",
        )
    labels = cells.take(pa.array(order))
    whole_numbers = pt.is_integer(labels.type) or (
        not nodes.typed and pc.all(pc.match_substring_regex(labels, SPELLED_INT)).as_py()
    )
    return labels.cast(pa.int64() if whole_numbers and fits_int64(labels) else pa.string())


def _endpoints(
    edges: Table, columns: list[str], kind: IdKind, ids: IdMap, nodes: str | None, emitter: Emitter
) -> tuple[IntArray, IntArray]:
    """Rows of the sources and the targets, [E] each; ``InputError`` at the first edge to an unknown node."""
    dtype = index_dtype(len(ids))
    chunks: tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]] = ([], [])
    for first, batch in edges.batches(columns):
        for i, name in enumerate(columns):
            given = read_ids(edges, name, batch.column(i), first, kind)
            rows = ids.rows(given)
            if (rows < 0).any():
                at = int(np.argmax(rows < 0))
                raise edges.fault(
                    "the edge names an unknown node",
                    row=first + at,
                    column=name,
                    given=batch.column(i)[at].as_py(),
                    expected=f"an id of {nodes}",
                    remedy="add the node, drop the edge, or ingest without the node table",
                )
            chunks[i].append(rows.astype(dtype))
        emitter.progress(first + batch.num_rows, max(edges.rows, first + batch.num_rows), "edges")
    return np.concatenate(chunks[0]), np.concatenate(chunks[1])


def _unread(table: Table, columns: Sequence[str], hint: str = "") -> list[Notice]:
    if not columns:
        return []
    names = ", ".join(f"'{name}'" for name in columns)
    return [Notice("columns_unread", f"{table.path}: columns not used: {names}{hint}")]
