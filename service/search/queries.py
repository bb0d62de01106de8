"""What a client asks of an embedding set, checked and turned into vectors and rows.

A query is a node, a vector, or a weighted sum of nodes (each taken at length 1, so a weight means the same for all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, StrictInt, StrictStr, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from preprocessing.array_types import Float64Array, Int64Array, IntArray
from preprocessing.bundle import Topology
from preprocessing.errors import ArtifactError, InputError
from service.schemas import Many, RequestPart
from service.search.embedding_set import EmbeddingSet
from service.search.exact import pair_cosines, unit
from service.search.filter_schemas import Filter
from service.search.index_settings import MAX_EFFORT
from service.search.neighbors import Neighbors, nearest
from service.search.sorted_rows import contains

__all__ = [
    "Exclude",
    "NeighborQuery",
    "NodeId",
    "NodeIds",
    "PairScore",
    "QueryAnswer",
    "Search",
    "find_neighbors",
    "score_pairs",
]


NodeId = StrictStr | StrictInt


def _of_ids(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # Seen at a glance, where trying every kind on every id takes five times as long.
    if type(value) is list and value:
        if set(map(type, value)) <= {int, str}:
            return value
        # The first that is none is told: every kind tried on every id takes seconds, too.
        validate(value[: next(place for place, one in enumerate(value) if type(one) not in (int, str)) + 1])
    return validate(value)


NodeIds = Annotated[list[NodeId], Field(min_length=1), WrapValidator(_of_ids)]


class WeightedId(RequestPart):
    """A node and its share in a query."""

    id: NodeId
    weight: float = 1.0


class NeighborQuery(RequestPart):
    """Exactly one of: a node's ``id``, a ``vector``, or several nodes (``ids``) with weights."""

    id: NodeId | None = None
    vector: Many[float] | None = Field(None, description="As long as the set's vectors; its length does not matter.")
    ids: Many[WeightedId] | None = Field(None, min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _one_kind(self) -> NeighborQuery:
        if (self.id is None) + (self.vector is None) + (self.ids is None) != 2:
            raise ValueError("a query has exactly one of: id, vector, ids")
        return self


class Exclude(RequestPart):
    """Nodes that no answer may hold."""

    self_: bool = Field(True, alias="self", description="The nodes a query is made of.")
    connected: bool = Field(False, description="Nodes that share an edge with a node the query is made of.")
    ids: tuple[NodeId, ...] = Field((), max_length=10_000, fail_fast=True)


class Search(RequestPart):
    """How hard to look."""

    exact: bool = Field(False, description="Scan every vector, whatever index there is.")
    effort: int | None = Field(
        None,
        ge=1,
        le=MAX_EFFORT,
        description="HNSW: candidates kept; IVF: cells visited, more under a filter; default: the index's own.",
    )


@dataclass(frozen=True)
class QueryAnswer:
    """Neighbours of one query; ``connected`` [k] tells which share an edge with it, None where that has no meaning."""

    neighbors: Neighbors
    connected: npt.NDArray[np.bool_] | None


@dataclass(frozen=True)
class PairScore:
    """Cosine of one pair, and whether an edge joins it (None when the graph is not at hand)."""

    score: float
    connected: bool | None


@dataclass(frozen=True)
class _Resolved:
    """Queries as directions [Q, D] of length 1, and the rows each is made of, ascending (none for a bare vector)."""

    directions: Float64Array
    rows: list[Int64Array]


_NO_ROWS = np.empty(0, dtype=np.int64)


def find_neighbors(
    embeddings: EmbeddingSet,
    queries: Sequence[NeighborQuery] | pa.Array,
    k: int,
    exclude: Exclude,
    search: Search,
    wanted: Filter | None = None,
    *,
    wait: bool = True,
) -> list[QueryAnswer]:
    """The ``k`` nearest nodes of every query; an Arrow column is one of ids, or of vectors (a fixed-size list).

    ``wanted`` lets only some nodes into the answers. ``InputError`` with a pointer for an unknown id, a vector of
    another length, a query without direction, ``exclude.connected`` for a bare vector, or a filter that the graph's
    attributes cannot answer; ``ArtifactError`` when ``exclude.connected`` or a filter needs a graph that is gone;
    without ``wait`` ``BusyError`` where the graph's edges have to be read first.
    """
    resolved = _resolve_column(embeddings, queries) if isinstance(queries, pa.Array) else _resolve(embeddings, queries)
    if exclude.connected:
        _require_nodes(resolved.rows)
    named = _NO_ROWS
    if exclude.ids:
        named = embeddings.ids.rows(exclude.ids)
        named = np.unique(named[named >= 0])
    adjacent = _adjacency(embeddings, resolved.rows, required=exclude.connected, wait=wait)
    excluded = [
        _union(named, rows if exclude.self_ else _NO_ROWS, edges if exclude.connected else None)
        for rows, edges in zip(resolved.rows, adjacent, strict=True)
    ]
    found = nearest(
        embeddings.space(),
        resolved.directions,
        k,
        excluded,
        among=None if wanted is None else embeddings.filters().matches(wanted),
        exact=search.exact,
        effort=search.effort,
    )
    return [
        QueryAnswer(neighbors, None if edges is None else contains(edges, neighbors.rows))
        for neighbors, edges in zip(found, adjacent, strict=True)
    ]


def score_pairs(embeddings: EmbeddingSet, pairs: Sequence[tuple[NodeId, NodeId]]) -> list[PairScore]:
    """Cosine of each pair; ``InputError`` with a pointer for an unknown id."""
    rows = embeddings.ids.rows([node for pair in pairs for node in pair]).reshape(-1, 2)
    unknown = np.argwhere(rows < 0)
    if len(unknown):
        raise _unknown_id(embeddings, f"/pairs/{unknown[0][0]}/{unknown[0][1]}")
    try:
        connected = embeddings.connected(rows[:, 0], rows[:, 1]).tolist()
    except ArtifactError:
        connected = [None] * len(pairs)
    scores = pair_cosines(embeddings.vectors[rows[:, 0]], embeddings.vectors[rows[:, 1]]).tolist()
    return [PairScore(score, edge) for score, edge in zip(scores, connected, strict=True)]


def _resolve(embeddings: EmbeddingSet, queries: Sequence[NeighborQuery]) -> _Resolved:
    plain = [query.id for query in queries if query.id is not None]
    if len(plain) == len(queries):
        return _resolve_nodes(embeddings, plain, "/queries/{}/id")
    totals = np.empty((len(queries), embeddings.dim))
    rows = [_NO_ROWS] * len(queries)
    nodes = {number: query.id for number, query in enumerate(queries) if query.id is not None}
    for number, row in zip(nodes, embeddings.ids.rows(list(nodes.values()))[:, None], strict=True):
        if row[0] < 0:
            raise _unknown_id(embeddings, f"/queries/{number}/id")
        rows[number] = row
    if nodes:
        totals[list(nodes)] = embeddings.vectors[np.concatenate([rows[number] for number in nodes])]
    for number, query in enumerate(queries):
        if query.vector is not None:
            _check_length(embeddings, len(query.vector), f"/queries/{number}/vector")
            totals[number] = query.vector
        elif query.ids is not None:
            parts = embeddings.ids.rows([part.id for part in query.ids])
            if (parts < 0).any():
                raise _unknown_id(embeddings, f"/queries/{number}/ids/{int(np.argmax(parts < 0))}/id")
            weights = np.array([part.weight for part in query.ids])
            # Divided first so that no finite weights overflow; the length of the sum does not matter.
            weights = weights / max(np.abs(weights).max(), np.finfo(np.float64).tiny)
            totals[number] = weights @ unit(embeddings.vectors[parts])
            rows[number] = np.unique(parts)

    def where(number: int) -> str:
        kind = next(name for name in ("id", "vector", "ids") if getattr(queries[number], name) is not None)
        return f"/queries/{number}/{kind}"

    return _Resolved(_directions(totals, where), rows)


def _resolve_column(embeddings: EmbeddingSet, queries: Any) -> _Resolved:
    if pa.types.is_fixed_size_list(queries.type):
        _check_length(embeddings, queries.type.list_size, "/vector")
        vectors = queries.flatten().to_numpy(zero_copy_only=False).reshape(len(queries), -1)
        return _Resolved(_directions(vectors, "/vector/{}".format), [_NO_ROWS] * len(queries))
    return _resolve_nodes(embeddings, queries, "/id/{}")


def _resolve_nodes(embeddings: EmbeddingSet, ids: Sequence[NodeId] | pa.Array, pointer: str) -> _Resolved:
    rows = embeddings.ids.rows(ids)
    found = rows.tolist()
    if -1 in found:
        raise _unknown_id(embeddings, pointer.format(found.index(-1)))
    return _Resolved(_directions(embeddings.vectors[rows], pointer.format), list(rows[:, None]))


def _directions(totals: npt.NDArray[Any], where: Any) -> Float64Array:
    """``totals`` [Q, D] at length 1; ``InputError`` at ``where(number)`` for one that is zero."""
    directions = unit(totals)
    squares = np.vecdot(directions, directions).tolist()
    if 0.0 in squares:
        raise InputError(
            "the query has no direction: its vector is zero",
            expected="a vector other than zero",
            pointer=where(squares.index(0.0)),
        )
    return directions


def _check_length(embeddings: EmbeddingSet, given: int, pointer: str) -> None:
    if given != embeddings.dim:
        raise InputError(
            "the vector has another length than the set's",
            given=given,
            expected=f"{embeddings.dim} numbers",
            pointer=pointer,
        )


def _require_nodes(rows: Sequence[Int64Array]) -> None:
    bare = next((number for number, parts in enumerate(rows) if not len(parts)), None)
    if bare is not None:
        raise InputError(
            "a bare vector is connected to nothing",
            expected="queries by nodes' ids where connected nodes are left out",
            remedy="name nodes, or let connected nodes in",
            pointer=f"/queries/{bare}/vector",
        )


def _adjacency(
    embeddings: EmbeddingSet, queries: Sequence[Int64Array], *, required: bool, wait: bool
) -> list[IntArray | None]:
    """Rows adjacent to each query's nodes; None for a bare vector, or where the graph is not at hand."""
    try:
        edges = embeddings.edges(wait=wait) if any(map(len, queries)) else None
    except ArtifactError:
        if required:
            raise
        edges = None
    return [None if edges is None or not len(rows) else _adjacent(edges, rows) for rows in queries]


def _adjacent(edges: Topology, rows: Int64Array) -> IntArray:
    """Rows that share an edge with any of ``rows``, ascending and distinct."""
    if len(rows) == 1:
        # As it lies in the file: a hub's neighbours are not copied.
        return edges.neighbors(int(rows[0]))
    return np.unique(np.concatenate([edges.neighbors(row) for row in rows.tolist()]))


def _union(named: Int64Array, own: Int64Array, edges: IntArray | None) -> Int64Array:
    """Distinct rows of all three, ascending."""
    if not len(named) and edges is None:
        return own
    parts: list[IntArray] = [named, own] if edges is None else [named, own, edges]
    return np.unique(np.concatenate(parts)).astype(np.int64, copy=False)


def _unknown_id(embeddings: EmbeddingSet, pointer: str) -> InputError:
    return InputError(
        "there is no node of this id in the embedding set",
        expected=f"an id of the graph it was trained on, which are {embeddings.ids.described()}",
        remedy="correct the id, or leave it out; a lookup tells of many ids which are found",
        pointer=pointer,
    )
