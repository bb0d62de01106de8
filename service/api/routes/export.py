"""Bulk export: every vector of an embedding set, or of a shard of it, as one stream."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.accept import chosen
from service.api.routes.embeddings import SetsDep
from service.search.bulk import FORMATS, page_of
from service.search.turns import Turns

__all__ = ["router"]

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

_TEXT = {"type": "string"}
_ANSWER: dict[str, Any] = {
    "description": "The rows, in the order of the set: an id (text) and a vector each.",
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in FORMATS},
    "headers": {
        "X-Cursor": {"description": "Where this answer begins: `<embedding id>:<row>`.", "schema": _TEXT},
        "X-Next-Cursor": {"description": "Where the next page begins; absent on the last.", "schema": _TEXT},
        "X-Rows": {"description": "How many rows follow.", "schema": {"type": "integer"}},
    },
}


class _Stream(StreamingResponse):
    """Parts that are closed however the answer ends, a client's leaving included."""

    def __init__(self, parts: Generator[bytes | memoryview], headers: dict[str, str], media_type: str) -> None:
        super().__init__(parts, headers=headers, media_type=media_type)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._parts.close()


@router.get("/{ref}/vectors", response_class=StreamingResponse, responses={200: _ANSWER})
def export_vectors(
    request: Request,
    ref: str,
    sets: SetsDep,
    shard: Annotated[
        str,
        Query(
            pattern=r"^[0-9]{1,6}/[0-9]{1,6}$",
            description="`i/n`, i from 0: the i-th of n runs of rows; together they are every node once.",
        ),
    ] = "0/1",
    cursor: Annotated[
        str | None,
        Query(
            pattern=r"^[A-Za-z0-9_]{1,64}:[0-9]{1,18}$",
            description=(
                "Where to go on: the `X-Next-Cursor` of a page. After a stream that broke off, its `X-Cursor` with the "
                "number of rows that came whole added to its row."
            ),
        ),
    ] = None,
    limit: Annotated[int | None, Query(ge=1, description="Rows of a page; default: all that are left.")] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> StreamingResponse:
    """Every vector, or those of one shard: lines of JSON (default), an Arrow stream or a Parquet file by `Accept`.

    Numbers are of the type the set has, float16 or float32, in Arrow and Parquet. A stream that is whole ends as HTTP
    says; one that broke off is gone on with by `cursor`.
    """
    media_type = chosen(accept, list(FORMATS))
    identity, embeddings = sets.get(ref)
    page = page_of(identity, embeddings.nodes, shard, cursor, limit)
    turns: Turns = request.app.state.exports

    def parts() -> Generator[bytes | memoryview]:
        with turns.turn():
            yield b""
            for part in FORMATS[media_type](embeddings, page):
                embeddings.check_unchanged()
                yield part

    stream = parts()
    # Begun here: a server that is full says so before an answer begins, and what has begun can be closed.
    next(stream)
    headers = {"X-Cursor": page.cursor, "X-Rows": str(page.end - page.first)}
    if page.next_cursor is not None:
        headers["X-Next-Cursor"] = page.next_cursor
    return _Stream(stream, headers, media_type)
