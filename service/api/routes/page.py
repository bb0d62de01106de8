"""The page at ``/``: built files that hold no data; what they show they ask the API for.

``service/page/page_build.py`` makes them; the wheel has them.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from service.errors import NotFoundError

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent.parent / "page"
FRONT = "index.html"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
# A file's name changes with what it holds, save for the page's own and for what it names without a mark of it.
UNMARKED = frozenset({FRONT, "theme.js", "third-party-licenses.txt"})
LASTING = "public, max-age=31536000, immutable"


@router.head("/")
@router.get("/")
def page() -> FileResponse:
    """The page."""
    return page_file(FRONT)


@router.head("/page/{name}")
@router.get("/page/{name}")
def page_file(name: str) -> FileResponse:
    """A file of the page."""
    files = {path.name for path in FOLDER.iterdir()} if FOLDER.is_dir() else set()
    if name in files:
        cached = "no-cache" if name in UNMARKED else LASTING
        return FileResponse(FOLDER / name, headers={**HEADERS, "Cache-Control": cached})
    if FRONT not in files:
        raise NotFoundError("the page is not built", remedy="build it (make page); the API works without")
    raise NotFoundError("the page has no such file")
