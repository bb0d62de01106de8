"""How good an embedding set is, as evaluate found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from service.api.dependencies import StoreDep
from service.errors import NotFoundError
from service.search.report import read_report

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])


@router.get("/{ref}/report", response_model=dict[str, Any])
def get_report(ref: str, store: StoreDep) -> Response:
    """The whole report of evaluate: accuracy beside baselines, error rate by degree, collapse figures, losses.

    What a set's own `report` has are its headline figures. 404 for a set that was not evaluated.
    """
    report = read_report(Path(store.embedding(ref).path))
    if report is None:
        raise NotFoundError("the embedding set was not evaluated", remedy="run an evaluate job on it, or rgrl evaluate")
    return Response(to_json(report, inf_nan_mode="null"), media_type="application/json")
