"""Embedding sets over HTTP: which there are, vectors by node, nearest neighbours, scores of pairs.

Handlers are plain functions, so that reading memory-mapped files and searching run in threads. A ``ref`` is an id or an
alias, and every answer names the set that gave it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.api.answers import lookup_arrow, lookup_json, neighbors_arrow, neighbors_json
from service.api.auth import WRITE
from service.api.dependencies import MetricsDep, SettingsDep, StoreDep, TurnDep
from service.errors import LimitError, NotFoundError
from service.metrics import Metrics
from service.schemas import Items
from service.search.embedding_set import EmbeddingSet, EmbeddingSets
from service.search.queries import NodeId, find_neighbors, score_pairs
from service.search.schemas import (
    EmbeddingOut,
    LookupIn,
    LookupOut,
    NeighborsIn,
    NeighborsOut,
    PairOut,
    ScoresIn,
    ScoresOut,
    VectorOut,
)

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_BATCH = 8192
_ARROW: dict[str, Any] = {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}
_ARROW_ANSWER: dict[int | str, dict[str, Any]] = {200: _ARROW}
_ARROW_BODY = {"requestBody": _ARROW}


async def _sets(request: Request) -> EmbeddingSets:
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
    vector = embeddings.vector(node)
    metrics.looked_up(int(vector is not None), int(vector is None))
    if vector is None:
        raise NotFoundError("there is no node of this id in the embedding set", expected="an id of its graph")
    return VectorOut(id=node, vector=vector.tolist(), dim=embeddings.dim, embedding=identity)


@router.post("/{ref}/lookup", response_model=LookupOut, responses=_ARROW_ANSWER, openapi_extra=_ARROW_BODY)
def lookup(
    ref: str,
    body: LookupIn,
    sets: SetsDep,
    settings: SettingsDep,
    metrics: MetricsDep,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Vectors of many nodes: JSON, or an Arrow stream (`id`, `found`, `vector`) by `Accept`.

    The ids may come as an Arrow stream, too, with one column `id` of int64 or string.
    """
    asked, arrow = body.asked, ARROW_STREAM in accept
    _check_limit(
        len(asked), settings.max_lookup_ids_arrow if arrow else settings.max_lookup_ids, "ids a lookup", "/ids"
    )
    identity, embeddings = sets.get(ref)
    if not arrow:
        vectors, found = _look_up(embeddings, asked, metrics)
        names = _names(asked).to_pylist()
        answer = lookup_json(identity, names, vectors, found, as_base64=body.encoding == "base64")
        return Response(answer, media_type="application/json")
    stream = lookup_arrow(identity, embeddings.dim, _parts(embeddings, asked, metrics))
    if len(asked) <= ARROW_BATCH:
        return Response(b"".join(stream), media_type=ARROW_STREAM)
    return StreamingResponse(stream, media_type=ARROW_STREAM)


@router.post("/{ref}/neighbors", response_model=NeighborsOut, responses=_ARROW_ANSWER, openapi_extra=_ARROW_BODY)
def neighbors(
    ref: str,
    body: NeighborsIn,
    sets: SetsDep,
    settings: SettingsDep,
    metrics: MetricsDep,
    turn: TurnDep,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Nearest neighbours by cosine. `exclude.connected` leaves out whom the query's nodes share an edge with.

    The queries may come as an Arrow stream with one column, `id` (int64 or string) or `vector` (fixed-size lists of
    numbers), and the other fields as JSON in the schema's metadata `request`. By `Accept` the answer is one: `query`,
    `rank`, `id`, `score`, `connected`, and in the metadata `answers` the rest of every query's answer as JSON.
    """
    asked = body.asked
    _check_limit(body.k, settings.max_k, "neighbours a query", "/k")
    _check_limit(len(asked), settings.max_queries, "queries a call", "/queries")
    identity, embeddings = sets.get(ref, search=True)
    with turn():
        began = time.perf_counter()
        found = find_neighbors(embeddings, asked, body.k, body.exclude, body.search)
        metrics.searched((answer.neighbors.strategy for answer in found), time.perf_counter() - began)
        # Serialised within the turn: a quarter of a million neighbours are memory, too.
        if ARROW_STREAM in accept:
            return Response(neighbors_arrow(identity, embeddings, found), media_type=ARROW_STREAM)
        return Response(neighbors_json(identity, embeddings, found), media_type="application/json")


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
    embeddings: EmbeddingSet, ids: Sequence[NodeId] | pa.Array, metrics: Metrics
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    vectors, found = embeddings.lookup(ids)
    hits = int(np.count_nonzero(found))
    metrics.looked_up(hits, len(ids) - hits)
    return vectors, found


def _parts(
    embeddings: EmbeddingSet, ids: Sequence[NodeId] | pa.Array, metrics: Metrics
) -> Iterator[tuple[pa.Array, npt.NDArray[np.float32], npt.NDArray[np.bool_]]]:
    """A lookup a batch at a time: ids as text, vectors, and which were found."""
    for start in range(0, len(ids), ARROW_BATCH):
        part = ids[start : start + ARROW_BATCH]
        yield _names(part), *_look_up(embeddings, part, metrics)


def _names(ids: Sequence[NodeId] | pa.Array) -> pa.Array:
    return ids.cast(pa.string()) if isinstance(ids, pa.Array) else pa.array(map(str, ids), pa.string())
