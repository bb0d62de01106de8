"""The page at ``/``: static files that hold no data; what they show they ask the API for."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from service.errors import NotFoundError

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent.parent / "page"
FILES = frozenset(path.name for path in FOLDER.iterdir())
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@router.get("/")
def page() -> FileResponse:
    """The page."""
    return FileResponse(FOLDER / "index.html", headers=HEADERS)


@router.get("/page/{name}")
def page_file(name: str) -> FileResponse:
    """A file of the page."""
    if name not in FILES:
        raise NotFoundError("the page has no such file")
    return FileResponse(FOLDER / name, headers=HEADERS)
