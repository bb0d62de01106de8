"""Embedding sets over HTTP: which there are, vectors by node, nearest neighbours, scores of pairs.

Handlers are plain functions, so that reading memory-mapped files and searching run in threads. A ``ref`` is an id or an
alias, and every answer names the set that gave it.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from service.api.accept import ARROW_STREAM, wants_arrow
from service.api.auth import WRITE
from service.api.dependencies import MetricsDep, SettingsDep, StoreDep
from service.api.serving import Serving, check_limit
from service.errors import NotFoundError
from service.schemas import Items
from service.search.embedding_set import EmbeddingSets
from service.search.queries import score_pairs
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

_ARROW: dict[str, Any] = {"content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}}
_ARROW_ANSWER: dict[int | str, dict[str, Any]] = {200: _ARROW}
_ARROW_BODY = {"requestBody": _ARROW}


async def _sets(request: Request) -> EmbeddingSets:
    sets: EmbeddingSets = request.app.state.embeddings
    return sets


async def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


SetsDep = Annotated[EmbeddingSets, Depends(_sets)]
ServingDep = Annotated[Serving, Depends(_serving)]
Accept = Annotated[str, Header()]


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
    answer = VectorOut(id=node, vector=vector.tolist(), dim=embeddings.dim, embedding=identity)
    embeddings.check_unchanged()
    return answer


@router.post("/{ref}/lookup", response_model=LookupOut, responses=_ARROW_ANSWER, openapi_extra=_ARROW_BODY)
def lookup(ref: str, body: LookupIn, serving: ServingDep, accept: Accept = "*/*") -> Response:
    """Vectors of many nodes: JSON, or an Arrow stream (`id`, `found`, `vector`) by `Accept`.

    The ids may come as an Arrow stream, too, with one column `id` of int64 or string.
    """
    return serving.lookup(serving.sets.get(ref), body, wants_arrow(accept))


@router.post("/{ref}/neighbors", response_model=NeighborsOut, responses=_ARROW_ANSWER, openapi_extra=_ARROW_BODY)
def neighbors(ref: str, body: NeighborsIn, serving: ServingDep, accept: Accept = "*/*") -> Response:
    """Nearest neighbours by cosine. `exclude.connected` leaves out whom the query's nodes share an edge with.

    `filter` lets in by attributes of the graph's nodes, `degree` and `label` among them. A node without a value
    fulfils no `match` and no `range`.

    The queries may come as an Arrow stream with one column, `id` (int64 or string) or `vector` (fixed-size lists of
    numbers), and the other fields as JSON in the schema's metadata `request`. By `Accept` the answer is one: `query`,
    `rank`, `id`, `score`, `connected`, and in the metadata `answers` the rest of every query's answer as JSON.
    """
    return serving.neighbors(serving.sets.get(ref, search=True), body, wants_arrow(accept))


@router.post("/{ref}/scores")
def scores(ref: str, body: ScoresIn, sets: SetsDep, settings: SettingsDep) -> ScoresOut:
    """Cosine of pairs of nodes."""
    check_limit(len(body.pairs), settings.max_lookup_ids, "pairs a call", "/pairs")
    identity, embeddings = sets.get(ref)
    items = [
        PairOut(ids=(str(one), str(other)), score=pair.score, connected=pair.connected)
        for (one, other), pair in zip(body.pairs, score_pairs(embeddings, body.pairs), strict=True)
    ]
    embeddings.check_unchanged()
    return ScoresOut(embedding=identity, items=items)
