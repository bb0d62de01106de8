"""The page at ``/``: static files that hold no data; what they show they ask the API for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import FileResponse

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent.parent / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@router.get("/")
def page() -> FileResponse:
    """The page."""
    return FileResponse(FOLDER / "index.html", headers=HEADERS)


@router.get("/page/{name}")
def page_file(name: Literal["page.css", "page.js", "dom.js", "api.js", "jobs.js", "sets.js", "explore.js"]) -> FileResponse:
    """A file of the page."""
    return FileResponse(FOLDER / name, headers=HEADERS)
