"""Embedding sets over HTTP: which there are, vectors by node, nearest neighbours, scores of pairs.

Handlers are plain functions, so that reading memory-mapped files and searching run in threads. A ``ref`` is an id or an
alias, and every answer names the set that gave it.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.api.auth import WRITE
from service.api.dependencies import MetricsDep, SettingsDep, StoreDep, TurnDep
from service.errors import LimitError, NotFoundError
from service.metrics import Metrics
from service.schemas import Items
from service.search.embedding_set import EmbeddingSet, EmbeddingSets
from service.search.queries import NodeId, QueryAnswer, find_neighbors, score_pairs
from service.search.schemas import (
    EmbeddingOut,
    LookupEntry,
    LookupIn,
    LookupOut,
    Neighbor,
    NeighborsIn,
    NeighborsOut,
    PairOut,
    QueryOut,
    ScoresIn,
    ScoresOut,
    VectorOut,
)

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_BATCH = 8192


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


@router.get("/{ref}/vectors/{node:node}")
def get_vector(ref: str, node: str, sets: SetsDep, metrics: MetricsDep) -> VectorOut:
    """The vector of one node."""
    identity, embeddings = sets.get(ref)
    vectors, found = _look_up(embeddings, [node], metrics)
    if not found[0]:
        raise NotFoundError("there is no node of this id in the embedding set", expected="an id of its graph")
    return VectorOut(id=node, vector=vectors[0].tolist(), dim=embeddings.dim, embedding=identity)


@router.post(
    "/{ref}/lookup",
    response_model=LookupOut,
    responses={200: {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}},
)
def lookup(
    ref: str,
    body: LookupIn,
    sets: SetsDep,
    settings: SettingsDep,
    metrics: MetricsDep,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Vectors of many nodes: JSON, or an Arrow stream (``id``, ``found``, ``vector``) by ``Accept``."""
    arrow = ARROW_STREAM in accept
    _check_limit(
        len(body.ids), settings.max_lookup_ids_arrow if arrow else settings.max_lookup_ids, "ids a lookup", "/ids"
    )
    identity, embeddings = sets.get(ref)
    if arrow:
        return StreamingResponse(_arrow_stream(identity, embeddings, body.ids, metrics), media_type=ARROW_STREAM)
    vectors, found = _look_up(embeddings, body.ids, metrics)
    encoded = _base64(vectors) if body.encoding == "base64" else vectors.tolist()
    items = [
        LookupEntry.model_construct(id=str(node), found=hit, vector=vector if hit else None)
        for node, hit, vector in zip(body.ids, found.tolist(), encoded, strict=True)
    ]
    # Built unchecked and serialised here: validating ten thousand vectors again would cost more than reading them.
    answer = LookupOut.model_construct(embedding=identity, dim=embeddings.dim, items=items)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post("/{ref}/neighbors", response_model=NeighborsOut)
def neighbors(
    ref: str, body: NeighborsIn, sets: SetsDep, settings: SettingsDep, metrics: MetricsDep, turn: TurnDep
) -> Response:
    """Nearest neighbours by cosine. ``exclude.connected`` leaves out whom the query's nodes share an edge with."""
    _check_limit(body.k, settings.max_k, "neighbours a query", "/k")
    _check_limit(len(body.queries), settings.max_queries, "queries a call", "/queries")
    identity, embeddings = sets.get(ref)
    with turn():
        began = time.perf_counter()
        found = find_neighbors(embeddings, body.queries, body.k, body.exclude, body.search)
        metrics.searched((answer.neighbors.strategy for answer in found), time.perf_counter() - began)
        # Built unchecked and serialised within the turn: a quarter of a million neighbours are memory, too.
        answers = [_query_out(embeddings, answer) for answer in found]
        answer = NeighborsOut.model_construct(embedding=identity, answers=answers)
        return Response(answer.model_dump_json(), media_type="application/json")


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


def _look_up(
    embeddings: EmbeddingSet, ids: list[NodeId], metrics: Metrics
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    vectors, found = embeddings.lookup(ids)
    hits = int(np.count_nonzero(found))
    metrics.looked_up(hits, len(ids) - hits)
    return vectors, found


def _query_out(embeddings: EmbeddingSet, answer: QueryAnswer) -> QueryOut:
    found = answer.neighbors
    names = embeddings.ids.external(found.rows)
    edges = [None] * len(names) if answer.connected is None else answer.connected.tolist()
    results = [
        Neighbor.model_construct(id=name, score=score, connected=edge)
        for name, score, edge in zip(names, found.scores.tolist(), edges, strict=True)
    ]
    return QueryOut.model_construct(
        results=results,
        returned=len(results),
        exact=found.exact,
        strategy=found.strategy,
        complete=found.complete,
    )


def _base64(vectors: npt.NDArray[np.float32]) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _arrow_stream(identity: str, embeddings: EmbeddingSet, ids: list[NodeId], metrics: Metrics) -> Iterator[bytes]:
    """The lookup as an Arrow IPC stream, a batch at a time; the schema's metadata names the set."""
    schema = pa.schema(
        [("id", pa.string()), ("found", pa.bool_()), ("vector", pa.list_(pa.float32(), embeddings.dim))],
        metadata={"embedding": identity},
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, len(ids), ARROW_BATCH):
            part = ids[start : start + ARROW_BATCH]
            vectors, found = _look_up(embeddings, part, metrics)
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
