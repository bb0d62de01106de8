"""Embedding sets over HTTP: which there are, vectors by node, nearest neighbours, scores of pairs.

Handlers are plain functions, so that reading memory-mapped files and searching run in threads. A ``ref`` is an id or an
alias, and every answer names the set that gave it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from service.auth import WRITE
from service.dependencies import SettingsDep, StoreDep
from service.embedding_set import EmbeddingSet, EmbeddingSets
from service.errors import LimitError, NotFoundError
from service.neighbors import Strategy
from service.queries import Exclude, NeighborQuery, NodeId, QueryAnswer, Search, find_neighbors, score_pairs
from service.schemas import Answer, Items
from service.schemas import Request as Body

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_BATCH = 8192


class EmbeddingOut(Answer):
    """An embedding set; ``report`` is what evaluate found, ``index`` the kind of index and its measured recall."""

    id: str
    graph: str
    job: str | None
    state: str
    path: str
    counts: dict[str, int]
    created_at: datetime
    report: dict[str, Any] | None
    index: dict[str, Any] | None
    aliases: list[str]


class VectorOut(Answer):
    """The vector of one node."""

    id: str
    vector: list[float]
    dim: int
    embedding: str


class LookupIn(Body):
    """Nodes to look up."""

    ids: list[NodeId] = Field(min_length=1)
    encoding: Literal["json", "base64"] = Field(
        "json", description="`base64`: each vector as the base64 of its little-endian float32 numbers."
    )


class LookupEntry(Answer):
    """One asked-for node; ``vector`` is null where it is not found."""

    id: str
    found: bool
    vector: list[float] | str | None


class LookupOut(Answer):
    """One entry per id, in the order of the request."""

    embedding: str
    dim: int
    items: list[LookupEntry]


class NeighborsIn(Body):
    """Nearest-neighbour queries that share ``k``, exclusions and effort."""

    queries: list[NeighborQuery] = Field(min_length=1)
    k: int = Field(10, ge=1)
    exclude: Exclude = Exclude()
    search: Search = Search()


class Neighbor(Answer):
    """A node and its cosine to the query; ``connected`` is null for a bare vector, or without the graph."""

    id: str
    score: float
    connected: bool | None


class QueryOut(Answer):
    """The neighbours of one query, closest first; ``complete`` is false only where no more nodes may be returned."""

    results: list[Neighbor]
    returned: int
    exact: bool
    strategy: Strategy
    complete: bool


class NeighborsOut(Answer):
    """One answer per query, in the order of the request."""

    embedding: str
    answers: list[QueryOut]


class ScoresIn(Body):
    """Pairs of nodes."""

    pairs: list[tuple[NodeId, NodeId]] = Field(min_length=1)


class PairOut(Answer):
    """The cosine of two nodes, and whether an edge joins them (null without the graph)."""

    ids: tuple[str, str]
    score: float
    connected: bool | None


class ScoresOut(Answer):
    """One entry per pair, in the order of the request."""

    embedding: str
    items: list[PairOut]


def _sets(request: Request) -> EmbeddingSets:
    sets: EmbeddingSets = request.app.state.embeddings
    return sets


SetsDep = Annotated[EmbeddingSets, Depends(_sets)]


@router.get("")
def list_embeddings(
    store: StoreDep,
    graph: str | None = None,
    job: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: str | None = None,
) -> Items[EmbeddingOut]:
    """Embedding sets, newest first."""
    page = store.list_embeddings(limit=limit, cursor=cursor, graph=graph, job=job)
    return Items(items=[EmbeddingOut.model_validate(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/{ref}")
def get_embedding(ref: str, store: StoreDep) -> EmbeddingOut:
    """One embedding set."""
    return EmbeddingOut.model_validate(store.embedding(ref))


@router.delete("/{ref}", status_code=204, dependencies=[WRITE])
def delete_embedding(ref: str, store: StoreDep, sets: SetsDep) -> None:
    """Delete a set and its files; 409 while an alias or an unfinished job uses it."""
    identity = store.embedding(ref).id
    store.delete_embedding(identity)
    sets.forget(identity)


@router.get("/{ref}/vectors/{node:path}")
def get_vector(ref: str, node: str, sets: SetsDep) -> VectorOut:
    """The vector of one node."""
    identity, embeddings = sets.get(ref)
    vectors, found = embeddings.lookup([node])
    if not found[0]:
        raise NotFoundError("there is no node of this id in the embedding set", expected="an id of its graph")
    return VectorOut(id=node, vector=vectors[0].tolist(), dim=embeddings.dim, embedding=identity)


@router.post(
    "/{ref}/lookup",
    response_model=LookupOut,
    responses={200: {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}},
)
def lookup(
    ref: str, body: LookupIn, sets: SetsDep, settings: SettingsDep, accept: Annotated[str, Header()] = "*/*"
) -> Response:
    """Vectors of many nodes: JSON, or an Arrow stream (``id``, ``found``, ``vector``) by ``Accept``."""
    arrow = ARROW_STREAM in accept
    _check_limit(
        len(body.ids), settings.max_lookup_ids_arrow if arrow else settings.max_lookup_ids, "ids a lookup", "/ids"
    )
    identity, embeddings = sets.get(ref)
    if arrow:
        return StreamingResponse(_arrow_stream(identity, embeddings, body.ids), media_type=ARROW_STREAM)
    vectors, found = embeddings.lookup(body.ids)
    encoded = _base64(vectors) if body.encoding == "base64" else vectors.tolist()
    items = [
        LookupEntry.model_construct(id=str(node), found=hit, vector=vector if hit else None)
        for node, hit, vector in zip(body.ids, found.tolist(), encoded, strict=True)
    ]
    # Built unchecked and serialised here: validating ten thousand vectors again would cost more than reading them.
    answer = LookupOut.model_construct(embedding=identity, dim=embeddings.dim, items=items)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post("/{ref}/neighbors")
def neighbors(ref: str, body: NeighborsIn, sets: SetsDep, settings: SettingsDep) -> NeighborsOut:
    """Nearest neighbours by cosine. ``exclude.connected`` leaves out whom the query's nodes share an edge with."""
    _check_limit(body.k, settings.max_k, "neighbours a query", "/k")
    _check_limit(len(body.queries), settings.max_queries, "queries a call", "/queries")
    identity, embeddings = sets.get(ref)
    found = find_neighbors(embeddings, body.queries, body.k, body.exclude, body.search)
    return NeighborsOut(embedding=identity, answers=[_query_out(embeddings, answer) for answer in found])


@router.post("/{ref}/scores")
def scores(ref: str, body: ScoresIn, sets: SetsDep, settings: SettingsDep) -> ScoresOut:
    """Cosine of pairs of nodes."""
    _check_limit(len(body.pairs), settings.max_lookup_ids, "pairs a call", "/pairs")
    identity, embeddings = sets.get(ref)
    items = [
        PairOut(ids=(str(one), str(other)), score=pair.score, connected=pair.connected)
        for (one, other), pair in zip(body.pairs, score_pairs(embeddings, body.pairs), strict=True)
    ]
    return ScoresOut(embedding=identity, items=items)


def _check_limit(given: int, limit: int, what: str, pointer: str) -> None:
    if given > limit:
        raise LimitError(
            f"more {what} than this server answers", given=given, expected=f"at most {limit} {what}", pointer=pointer
        )


def _query_out(embeddings: EmbeddingSet, answer: QueryAnswer) -> QueryOut:
    found = answer.neighbors
    names = embeddings.ids.external(found.rows)
    edges = [None] * len(names) if answer.connected is None else answer.connected.tolist()
    results = [
        Neighbor(id=name, score=score, connected=edge)
        for name, score, edge in zip(names, found.scores.tolist(), edges, strict=True)
    ]
    return QueryOut(
        results=results,
        returned=len(results),
        exact=found.exact,
        strategy=found.strategy,
        complete=found.complete,
    )


def _base64(vectors: np.ndarray[Any, np.dtype[np.float32]]) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _arrow_stream(identity: str, embeddings: EmbeddingSet, ids: list[NodeId]) -> Iterator[bytes]:
    """The lookup as an Arrow IPC stream, a batch at a time; the schema's metadata names the set."""
    schema = pa.schema(
        [("id", pa.string()), ("found", pa.bool_()), ("vector", pa.list_(pa.float32(), embeddings.dim))],
        metadata={"embedding": identity},
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, len(ids), ARROW_BATCH):
            part = ids[start : start + ARROW_BATCH]
            vectors, found = embeddings.lookup(part)
            column = pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.reshape(-1)), embeddings.dim, mask=pa.array(~found)
            )
            names = pa.array([str(node) for node in part], pa.string())
            writer.write_batch(pa.record_batch([names, pa.array(found), column], schema))
            yield _drained(sink)
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
