"""A graph from node and edge tables: columns chosen, ids brought into order, endpoints looked up, labels read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from preprocessing.attribute_columns import table_attribute
from preprocessing.attributes import Attribute
from preprocessing.edge_tables import NODE_IDS, Unknown, column_of, edge_table, table_arcs, unread
from preprocessing.errors import InputError
from preprocessing.feature_columns import choose_features, table_features
from preprocessing.features import FeatureDtype, FeatureSource
from preprocessing.id_columns import IdColumn, id_kind, read_ids
from preprocessing.ids import IdKind
from preprocessing.input_files import InputFile
from preprocessing.labels import LabelSetSource, LabelSource, table_labels
from preprocessing.raw_graph import Notice, RawGraph
from preprocessing.settings import TableSource
from preprocessing.sorted_ids import sorted_ids
from preprocessing.splits import SplitCodes, table_split
from preprocessing.stage import Emitter
from preprocessing.string_lookup import StringLookup
from preprocessing.tables import BATCH_ROWS, Table, open_table

__all__ = ["id_blocks", "read_tables", "repeated_id"]


def read_tables(settings: TableSource, dtype: FeatureDtype, scratch: Path, memory: int, emitter: Emitter) -> RawGraph:
    """Read the tables, holding ``memory`` bytes at most and what else is needed under ``scratch``.

    ``InputError`` at the first fault; those of edges come when the arcs are read. Without a node table the nodes are
    the ids that edges name. What an earlier, killed run left in ``scratch`` is gone on from.
    """
    named = settings.relations or {"edges": str(settings.edges)}
    notices = list[Notice]()
    edges = {name: edge_table(open_table(InputFile.at(path)), settings, notices) for name, path in named.items()}
    ends = [end for relation in edges.values() for end in relation.ends]
    features, labels, split = None, None, None
    attributes = tuple[Attribute, ...]()
    if settings.nodes is None:
        kind = id_kind(None, ends)
        ids, _ = sorted_ids(lambda: id_blocks(ends, kind, emitter), kind, scratch / "ids", memory)
    else:
        nodes = open_table(InputFile.at(settings.nodes))
        id_column = column_of(nodes, settings.node_id, NODE_IDS, 0, "node id", notices, ("label", "y"))
        kind = id_kind((nodes, id_column), ends)
        ids, order = sorted_ids(
            lambda: id_blocks([(nodes, id_column)], kind, emitter),
            kind,
            scratch / "ids",
            memory,
            partial(repeated_id, nodes, id_column),
        )
        rank = _rank(order, scratch)
        features, labels, split, notes = _node_columns(nodes, id_column, settings, rank, dtype, scratch, emitter)
        notices += notes
        attributes = tuple(
            table_attribute(
                nodes,
                nodes.require(name, "attribute"),
                rank,
                scratch / f"attribute-{number}.npy",
                partial(emitter.progress, unit=f"attributes '{name}'"),
            )
            for number, name in enumerate(settings.attributes)
        )
    notices += [notice for relation in edges.values() for notice in unread(relation.table, relation.unread)]
    find = StringLookup(ids.column()).rows if kind == "string" else ids.rows
    unknown = Unknown(f"an id of {settings.nodes}", "add the node, drop the edge, or ingest without the node table")
    relations = {name: table_arcs(relation, kind, find, unknown, emitter) for name, relation in edges.items()}
    origin = ", ".join(str(relation.table.path) for relation in edges.values())
    return RawGraph(origin, ids, relations, features, labels, tuple(notices), split, attributes=attributes)


def id_blocks(columns: Sequence[IdColumn], kind: IdKind, emitter: Emitter) -> Iterator[pa.Array]:
    """All ids of some columns, checked."""
    for table, name in columns:
        for first, batch in table.watched([name], partial(emitter.progress, unit=f"ids of '{name}'")):
            yield pa.array(read_ids(table, name, batch.column(0), first, kind))


def repeated_id(table: Table, name: str, node: int | str, before: int, row: int) -> InputError:
    """The error of a node that is in two rows of a table."""
    return table.fault(
        "the node id comes twice",
        row=row,
        column=name,
        given=node,
        expected=f"every id once; it is also in {table.place(before)}",
        remedy="drop or rename one of the rows",
    )


def _rank(order: Int64Array, scratch: Path) -> Int64Array:
    """The row of each row of the table, ``order`` turned round."""
    rank: Int64Array = mapped_npy(scratch / "rank.npy", np.int64, (len(order),))
    for first in range(0, len(order), BATCH_ROWS):
        part = order[first : first + BATCH_ROWS]
        rank[part] = np.arange(first, first + len(part))
    return rank


def _node_columns(
    nodes: Table,
    id_column: str,
    settings: TableSource,
    rank: Int64Array,
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
        features = choose_features(nodes, [*taken, *settings.attributes])
    chosen = [nodes.require(name, "feature") for name in features]
    if id_column in chosen:
        raise nodes.column_fault(
            "the node id cannot be a feature",
            id_column,
            expected="feature columns beside the id",
            remedy="leave the column out of the features, or name another node id column",
        )
    source, labels, split = None, None, None
    if chosen:
        source = table_features(nodes, chosen, rank, dtype, scratch, partial(emitter.progress, unit="feature rows"))
    if label is not None:
        labels = table_labels(nodes, label, rank, scratch, partial(emitter.progress, unit="labels"))
    if settings.split is not None:
        split = table_split(nodes, settings.split, rank, partial(emitter.progress, unit="parts of the split"))
    others = [name for name in nodes.types if name not in (*taken, *chosen, *settings.attributes)]
    hint = "" if labels is not None else "; name one as the label to have it read"
    return source, labels, split, unread(nodes, others, hint)
