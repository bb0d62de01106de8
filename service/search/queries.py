"""What a client asks of an embedding set, checked and turned into vectors and rows.

A query is a node, a vector, or a weighted sum of nodes (each taken at length 1, so a weight means the same for all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field, StrictInt, StrictStr, model_validator

from preprocessing.array_types import Int64Array
from preprocessing.errors import ArtifactError, InputError
from service.schemas import Request
from service.search.embedding_set import EmbeddingSet
from service.search.exact import pair_cosines, unit
from service.search.index_settings import MAX_EFFORT
from service.search.neighbors import Neighbors, nearest

__all__ = ["Exclude", "NeighborQuery", "NodeId", "PairScore", "QueryAnswer", "Search", "find_neighbors", "score_pairs"]


NodeId = StrictStr | StrictInt


class WeightedId(Request):
    """A node and its share in a query."""

    id: NodeId
    weight: float = 1.0


class NeighborQuery(Request):
    """Exactly one of: a node's ``id``, a ``vector``, or several nodes (``ids``) with weights."""

    id: NodeId | None = None
    vector: list[float] | None = Field(None, description="As long as the set's vectors; its length does not matter.")
    ids: list[WeightedId] | None = Field(None, min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _one_kind(self) -> NeighborQuery:
        if sum(part is not None for part in (self.id, self.vector, self.ids)) != 1:
            raise ValueError("a query has exactly one of: id, vector, ids")
        return self


class Exclude(Request):
    """Nodes that no answer may hold."""

    self_: bool = Field(True, alias="self", description="The nodes a query is made of.")
    connected: bool = Field(False, description="Nodes that share an edge with a node the query is made of.")
    ids: list[NodeId] = Field([], max_length=10_000)


class Search(Request):
    """How hard to look."""

    exact: bool = Field(False, description="Scan every vector, whatever index there is.")
    effort: int | None = Field(
        None, ge=1, le=MAX_EFFORT, description="HNSW: candidates kept; IVF: cells visited; default: the index's own."
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
    vector: npt.NDArray[np.float64]
    rows: Int64Array


def find_neighbors(
    embeddings: EmbeddingSet, queries: Sequence[NeighborQuery], k: int, exclude: Exclude, search: Search
) -> list[QueryAnswer]:
    """The ``k`` nearest nodes of every query.

    ``InputError`` with a pointer for an unknown id, a vector of another length, a query without direction, or
    ``exclude.connected`` for a bare vector; ``ArtifactError`` when ``exclude.connected`` needs a graph that is gone.
    """
    resolved = [_resolve(embeddings, query, f"/queries/{number}") for number, query in enumerate(queries)]
    if exclude.connected:
        _require_nodes(queries)
    named = embeddings.ids.rows(exclude.ids)
    adjacent = _adjacency(embeddings, resolved, required=exclude.connected)
    excluded = []
    for query, edges in zip(resolved, adjacent, strict=True):
        parts = [named[named >= 0]]
        if exclude.self_:
            parts.append(query.rows)
        if exclude.connected and edges is not None:
            parts.append(edges)
        excluded.append(np.unique(np.concatenate(parts)))
    vectors = np.stack([query.vector for query in resolved])
    found = nearest(embeddings.space(), vectors, k, excluded, exact=search.exact, effort=search.effort)
    return [
        QueryAnswer(neighbors, None if edges is None else np.isin(neighbors.rows, edges))
        for neighbors, edges in zip(found, adjacent, strict=True)
    ]


def score_pairs(embeddings: EmbeddingSet, pairs: Sequence[tuple[NodeId, NodeId]]) -> list[PairScore]:
    """Cosine of each pair; ``InputError`` with a pointer for an unknown id."""
    rows = embeddings.ids.rows([node for pair in pairs for node in pair]).reshape(-1, 2)
    unknown = np.argwhere(rows < 0)
    if len(unknown):
        raise _unknown_id(f"/pairs/{unknown[0][0]}/{unknown[0][1]}")
    try:
        connected = embeddings.connected(rows[:, 0], rows[:, 1]).tolist()
    except ArtifactError:
        connected = [None] * len(pairs)
    scores = pair_cosines(embeddings.vectors[rows[:, 0]], embeddings.vectors[rows[:, 1]]).tolist()
    return [PairScore(score, edge) for score, edge in zip(scores, connected, strict=True)]


def _resolve(embeddings: EmbeddingSet, query: NeighborQuery, pointer: str) -> _Resolved:
    if query.vector is not None:
        if len(query.vector) != embeddings.dim:
            raise InputError(
                "the vector has another length than the set's",
                given=len(query.vector),
                expected=f"{embeddings.dim} numbers",
                pointer=f"{pointer}/vector",
            )
        total, rows, where = np.array(query.vector, dtype=np.float64), np.empty(0, np.int64), f"{pointer}/vector"
    elif query.ids is not None:
        rows = embeddings.ids.rows([part.id for part in query.ids])
        if (rows < 0).any():
            raise _unknown_id(f"{pointer}/ids/{int(np.argmax(rows < 0))}/id")
        weights = np.array([part.weight for part in query.ids])
        # Divided first so that no finite weights overflow; the length of the sum does not matter.
        weights = weights / max(np.abs(weights).max(), np.finfo(np.float64).tiny)
        total = weights @ np.stack([unit(embeddings.vectors[row]) for row in rows])
        where = f"{pointer}/ids"
    else:
        assert query.id is not None
        rows, where = embeddings.ids.rows([query.id]), f"{pointer}/id"
        if rows[0] < 0:
            raise _unknown_id(where)
        total = embeddings.vectors[rows[0]]
    direction = unit(total)
    if not direction.any():
        raise InputError(
            "the query has no direction: its vector is zero", expected="a vector other than zero", pointer=where
        )
    return _Resolved(direction, np.unique(rows))


def _require_nodes(queries: Sequence[NeighborQuery]) -> None:
    for number, query in enumerate(queries):
        if query.vector is not None:
            raise InputError(
                "a bare vector is connected to nothing",
                expected="queries by id or ids with exclude.connected",
                remedy="name nodes, or leave exclude.connected out",
                pointer=f"/queries/{number}/vector",
            )


def _adjacency(embeddings: EmbeddingSet, queries: Sequence[_Resolved], *, required: bool) -> list[Int64Array | None]:
    """Rows adjacent to each query's nodes; None for a bare vector, or where the graph is not at hand."""
    try:
        return [embeddings.neighbors_of(query.rows) if len(query.rows) else None for query in queries]
    except ArtifactError:
        if required:
            raise
        return [None] * len(queries)


def _unknown_id(pointer: str) -> InputError:
    return InputError(
        "there is no node of this id in the embedding set",
        expected="an id of the graph it was trained on",
        remedy="look ids up with POST …/lookup, which tells which are found",
        pointer=pointer,
    )
