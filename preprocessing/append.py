"""The append stage: a bundle and tables of new nodes and edges to the bundle of both.

Its files are those that ingest makes of the old tables and the new ones together, byte for byte: the bundle is read in
the place of the old tables. The manifest's counts of edges differ: of the old ones only the distinct are left to count.
Where edges have weights, one that the graph has already is refused: ingest would add its weight up with those of the
old tables, of which the bundle keeps but the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, types

from preprocessing.appended_nodes import (
    NewNodes,
    appended_attributes,
    appended_features,
    appended_labels,
    appended_split,
)
from preprocessing.array_file import mapped_npy, read_only
from preprocessing.array_types import Int64Array, IntArray
from preprocessing.artifact import fingerprint
from preprocessing.bundle import Bundle, Topology
from preprocessing.edge_tables import EdgeTable, Unknown, edge_table, table_arcs, unread
from preprocessing.errors import InputError
from preprocessing.id_columns import require_kind
from preprocessing.ids import IdMap
from preprocessing.ingest import SHARES, input_stamps, make_bundle
from preprocessing.input_files import InputFile
from preprocessing.raw_graph import ArcBlock, Arcs, Notice, RawGraph
from preprocessing.settings import AppendSettings, GraphSettings, Settings, TableSource
from preprocessing.sorted_ids import sorted_ids
from preprocessing.stage import Emitter
from preprocessing.stored_graph import stored_arcs
from preprocessing.string_lookup import StringLookup
from preprocessing.table_graph import id_blocks, repeated_id
from preprocessing.tables import BATCH_ROWS, open_table
from preprocessing.topology import Direction

__all__ = ["append"]


class _Spec(Settings):
    bundle: Path
    out: Path
    settings: AppendSettings


def append(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Stage ``append``: ``{"bundle": PATH, "out": PATH, "settings": AppendSettings}`` to a bundle; returns its counts.

    Columns that are not named are those that the bundle was made with. ``InputError`` for a node that is there already
    or comes twice, an edge to an unknown node, and tables of other columns; then nothing is left on disk.
    """
    request = _Spec.model_validate(spec)
    bundle = Bundle(request.bundle)
    told = bundle.manifest["settings"]
    tables = _with_columns(request.settings.source, told["source"])
    settings = GraphSettings(
        direction=told["direction"], feature_dtype=told["feature_dtype"], memory=request.settings.memory
    )
    source = tables.model_dump() | {"kind": "appended", "bundle": bundle.content_hash}

    def read(scratch: Path) -> RawGraph:
        return _Appended(bundle, request.settings.source, tables, settings, scratch, emitter).graph()

    return make_bundle(
        request.out, read, settings, source, fingerprint("append", source, input_stamps(tables)), emitter
    )


def _with_columns(tables: TableSource, before: Mapping[str, Any]) -> TableSource:
    names = ["source", "target", "weight", *(["node_id", "label", "split"] if tables.nodes is not None else [])]
    known = {name: before.get(name) for name in names if getattr(tables, name) is None}
    return tables.model_copy(update={name: column for name, column in known.items() if isinstance(column, str)})


@dataclass
class _Appended:
    """The old graph and the tables, being read; an old node's number is its row, the new ones' follow.

    ``tables`` names the columns that ``given`` leaves to the bundle, too.
    """

    bundle: Bundle
    given: TableSource
    tables: TableSource
    settings: GraphSettings
    scratch: Path
    emitter: Emitter

    def graph(self) -> RawGraph:
        bundle, notices = self.bundle, list[Notice]()
        edges = self._edge_tables(notices)
        nodes = None if self.tables.nodes is None else NewNodes.open(bundle, self.tables, self.given, notices)
        new_ids = [] if nodes is None else [nodes.ids]
        require_kind([*new_ids, *(end for table in edges.values() for end in table.ends)], bundle.ids.kind, bundle.path)

        def every_id() -> Iterator[pa.Array]:
            old = bundle.ids.column()
            for first in range(0, len(old), BATCH_ROWS):
                yield old.slice(first, BATCH_ROWS)
            yield from id_blocks(new_ids, bundle.ids.kind, self.emitter)

        ids, number = sorted_ids(
            every_id,
            bundle.ids.kind,
            self.scratch / "ids",
            self.settings.memory // SHARES,
            partial(_repeated, bundle, nodes),
        )
        rank = mapped_npy(self.scratch / "rank.npy", np.int64, (len(number),))
        for first in range(0, len(number), BATCH_ROWS):
            part = number[first : first + BATCH_ROWS]
            rank[part] = np.arange(first, first + len(part))
        direction = self.settings.direction
        old = {name: stored_arcs(self._topology(name), rank, direction) for name in bundle.relations or edges}
        new = self._new_arcs(edges, ids, number)
        # Weights of undirected relations, once each is symmetric, do not add up to those of all together.
        union = [stored_arcs(bundle.topology, rank, direction), *new.values()]
        notices += [notice for table in edges.values() for notice in unread(table.table, table.unread)]
        place = (self.scratch, self.emitter)
        return RawGraph(
            f"{bundle.path}, {', '.join(str(table.table.path) for table in edges.values())}",
            ids,
            {name: _joined([arcs, new[name]] if name in new else [arcs]) for name, arcs in old.items()},
            appended_features(bundle, nodes, rank, *place),
            appended_labels(bundle, nodes, rank, number, *place),
            tuple(notices),
            appended_split(bundle, nodes, rank, self.emitter),
            _joined(union),
            appended_attributes(bundle, nodes, rank, *place),
        )

    def _edge_tables(self, notices: list[Notice]) -> dict[str, EdgeTable]:
        """The new edges by relation; a graph of one kind of edges has one, whatever its name."""
        known = self.bundle.relations
        named = self.tables.relations or {"edges": str(self.tables.edges)}
        if bool(known) != bool(self.tables.relations) or not set(named) <= set(known or named):
            raise InputError(
                "the new edges are of other relations than the graph's",
                where=str(self.bundle.path),
                given=", ".join(self.tables.relations) or "edges of no relation",
                expected="relations of " + ", ".join(known) if known else "one table of edges, `edges`",
                remedy="name the tables by their relations" if known else "give the table as `edges`",
            )
        tables = {
            name: edge_table(open_table(InputFile.at(path)), self.tables, notices) for name, path in named.items()
        }
        for name, table in tables.items():
            weighted = self._topology(name).weights is not None
            if weighted != (table.weight is not None):
                raise InputError(
                    "the new edges have weights and the graph's have none"
                    if table.weight is not None
                    else "the graph's edges have weights and the new ones have none",
                    where=str(table.table.path),
                    given="columns " + ", ".join(f"'{column}'" for column in table.table.types),
                    expected="a weight column" if weighted else "edges without weights",
                    remedy="name the weight column, or add one" if weighted else "drop or rename the column",
                )
        return tables

    def _topology(self, relation: str) -> Topology:
        return self.bundle.relation(relation) if self.bundle.relations else self.bundle.topology

    def _new_arcs(self, edges: Mapping[str, EdgeTable], ids: IdMap, number: Int64Array) -> dict[str, Arcs]:
        find = StringLookup(ids.column()).rows if ids.kind == "string" else ids.rows
        also = "" if self.tables.nodes is None else f", or of {self.tables.nodes}"
        unknown = Unknown(f"an id of {self.bundle.path}{also}", "add the node to the new nodes, or drop the edge")
        weighted = self.bundle.topology.weights is not None
        return {
            name: table_arcs(
                edge,
                ids.kind,
                find,
                unknown,
                self.emitter,
                partial(self._refuse_known, edge, number) if weighted else None,
            )
            for name, edge in edges.items()
        }

    def _refuse_known(
        self, edges: EdgeTable, number: Int64Array, first: int, source: Int64Array, target: Int64Array
    ) -> None:
        """``InputError`` at the first of some edges, rows from ``first`` on, that the graph has already."""
        known = _known(self.bundle.topology, self.settings.direction, number[source], number[target])
        if known.any():
            row = int(np.argmax(known))
            ends = self.bundle.ids.external([number[source[row]], number[target[row]]])
            raise edges.table.fault(
                "the graph has this edge already, and of its weight only the sum is known",
                row=first + row,
                column=edges.target,
                given=f"the edge from {ends[0]} to {ends[1]}",
                expected="edges that the graph has not, for its edges have weights",
                remedy="drop the edge, or ingest the old tables and the new ones together",
            )


def _joined(parts: list[Arcs]) -> Arcs:
    def blocks() -> Iterator[Callable[[], ArcBlock]]:
        return chain.from_iterable(part.blocks() for part in parts)

    return Arcs(sum(part.expected for part in parts), any(part.weighted for part in parts), blocks)


def _repeated(bundle: Bundle, nodes: NewNodes | None, node: int | str, before: int, row: int) -> InputError:
    assert nodes is not None  # a bundle's own ids are distinct
    table, column = nodes.ids
    if before >= bundle.num_nodes:
        return repeated_id(table, column, node, before - bundle.num_nodes, row - bundle.num_nodes)
    return table.fault(
        "the graph has this node already",
        row=row - bundle.num_nodes,
        column=column,
        given=node,
        expected=f"ids that {bundle.path} has not",
        remedy="drop the row, or give the node another id; to change a node, ingest the tables again",
    )


def _known(topology: Topology, direction: Direction, source: Int64Array, target: Int64Array) -> npt.NDArray[np.bool_]:
    """Which edges the topology has, [B]; numbers past its nodes are of new ones."""
    heard, hears = (target, source) if direction == "reverse" else (source, target)
    found = np.zeros(len(source), dtype=np.bool_)
    _look(read_only(topology.indptr), read_only(topology.indices), hears, heard, found)
    return found


_I8S = types.Array(types.int64, 1, "C", readonly=True)


@njit(
    [
        types.void(
            _I8S, types.Array(index, 1, "C", readonly=True), types.int64[::1], types.int64[::1], types.boolean[::1]
        )
        for index in (types.int32, types.int64)
    ],
    nogil=True,
    cache=True,
)
def _look(
    indptr: Int64Array, indices: IntArray, hears: Int64Array, heard: Int64Array, found: npt.NDArray[np.bool_]
) -> None:
    nodes = len(indptr) - 1
    for edge in range(len(hears)):
        if hears[edge] < nodes and heard[edge] < nodes:
            low, high = indptr[hears[edge]], indptr[hears[edge] + 1]
            end = high
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < heard[edge]:
                    low = middle + 1
                else:
                    high = middle
            found[edge] = low < end and indices[low] == heard[edge]
