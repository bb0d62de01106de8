"""``POST /v1/embeddings``: an embedding set that the command line made, registered where it lies."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response, status

from service.api.auth import WRITE
from service.api.dependencies import SettingsDep, StoreDep, VerifiedDep
from service.errors import ConflictError
from service.graphs.data_roots import under_roots
from service.search.registration import checked_set
from service.search.schemas import EmbeddingIn, EmbeddingOut

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    dependencies=[WRITE],
    responses={200: {"model": EmbeddingOut, "description": "Registered before; its report and index are up to date"}},
)
def register_embedding(
    body: EmbeddingIn, response: Response, store: StoreDep, settings: SettingsDep, verified: VerifiedDep
) -> EmbeddingOut:
    """Register a whole set by its path under a data root. Every vector is read; 409 for a set of another graph."""
    graph = store.graph(body.graph)
    if graph.state != "ready":
        raise ConflictError("the graph is not ingested yet", remedy="register the bundle that the set was made on")
    path = under_roots(body.path, settings.data_roots, "/path")
    parts = checked_set(path, Path(graph.bundle), verified)
    embedding, created = store.register_embedding(name=body.name, graph=graph.id, path=path, **parts)
    if not created:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/embeddings/{embedding.id}"
    return EmbeddingOut.model_validate(embedding)
