"""Plain ASGI around every request: its id, its measure, its one log line, the last resort, and the body's limit."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time

import structlog
from fastapi.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preprocessing.errors import RgrlError
from service.errors import BODY_TOO_LARGE, problem_response, server_failed
from service.logs import REQUEST_ID, new_request_id
from service.metrics import Metrics

__all__ = ["BODY_IS_HERE", "MOST_PARTS", "NO_SNIFFING", "BodyLimit", "RequestContext", "first_header"]

UNKNOWN_ROUTE = "(none)"
# In a request's state where its body has arrived as a whole: to set a timer for it takes longer than to read it.
BODY_IS_HERE = "body_is_here"
# Of every answer: what it holds is what its type says, whatever it looks like.
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
# Lists, objects and fields that take some tenths of a second to read.
MOST_PARTS = 500_000
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger("request")


class RequestContext:
    """Gives a request its id (the caller's, if it sent a sane one), and answers 500 for what nothing else caught."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        sent = first_header(scope, b"x-request-id")
        request_id = sent if _SANE_ID.fullmatch(sent) else new_request_id()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = (b"x-request-id", request_id.encode()), NO_SNIFFING
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        began = time.perf_counter()
        # A request is a task of its own, so what is bound ends with it.
        REQUEST_ID.set(request_id)
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = status or 499
        except asyncio.CancelledError:
            # Only a server that stops cancels; a stream has no other end, and its reader takes it up again.
            log.info("cut off by the stop of the server")
        except Exception as error:
            # The framework raises another where an answer that has begun cannot become a refusal.
            told = error.__cause__ or error.__context__
            if status and isinstance(told, RgrlError):
                log.warning("an answer was broken off", cause=str(told))
            else:
                log.exception("a request failed")
            if status == 0:
                await server_failed(request_id)(scope, receive, send_with_id)
        seconds = time.perf_counter() - began
        try:
            # The event loop sends the answer now: who asked does not wait for the line about it.
            await asyncio.sleep(0)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            self._metrics.answered(scope["method"], route, status, seconds)
            log.info(
                "answered",
                method=scope["method"],
                route=route,
                path=scope["path"],
                status=status,
                ms=round(seconds * 1000, 3),
                key=state.get("key_id"),
            )


class BodyLimit:
    """Bounds bodies: each in bytes and in the time it takes to arrive, and those of all requests in work together.

    A body past ``limit`` bytes is refused by its declared length at once, and by what arrives otherwise; so is one of
    JSON with more than ``parts`` lists, objects and fields, which would hold everybody up while it is read.
    """

    def __init__(self, app: ASGIApp, limit: int, limit_of_all: int, timeout_s: float, parts: int) -> None:
        self._app = app
        self._limit = limit
        self._parts = parts
        self._limit_of_all = limit_of_all
        self._timeout_s = timeout_s
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        declared = first_header(scope, b"content-length")
        if declared.isdigit() and int(declared) > self._limit:
            answer = problem_response(
                413, BODY_TOO_LARGE, self._detail(), request_id=scope["state"]["request_id"], headers=_CLOSE
            )
            await answer(scope, receive, send)
            return
        taken, parts, whole = 0, 0, False
        deadline = asyncio.get_running_loop().time() + self._timeout_s

        async def receive_within() -> Message:
            nonlocal taken, parts, whole
            if whole:
                return await receive()
            # HTTPException is the one exception that FastAPI lets out of its reading of a body.
            try:
                async with _AT_ONCE if BODY_IS_HERE in scope["state"] else asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, self._slow(), _CLOSE) from None
            body = message.get("body", b"")
            size = len(body)
            taken += size
            parts += body.count(b"[") + body.count(b"{") + body.count(b":")
            self._held += size
            whole = not message.get("more_body", False)
            if taken > self._limit:
                raise HTTPException(413, self._detail(), _CLOSE)
            if parts > self._parts and "json" in first_header(scope, b"content-type"):
                raise HTTPException(413, f"the body has more than {self._parts} lists, objects and fields", _CLOSE)
            if self._held > self._limit_of_all:
                raise HTTPException(429, self._full(), _CLOSE)
            return message

        try:
            await self._app(scope, receive_within, send)
        finally:
            self._held -= taken

    def _detail(self) -> str:
        return f"the body is larger than the limit of {self._limit} bytes (setting max_body_bytes)"

    def _slow(self) -> str:
        return f"the body did not arrive within {self._timeout_s:g} seconds (setting body_timeout_s)"

    def _full(self) -> str:
        return f"the bodies of all requests in work exceed {self._limit_of_all} bytes (setting max_bodies_bytes)"


_CLOSE = {"Connection": "close"}
_AT_ONCE = contextlib.nullcontext()


def first_header(scope: Scope, name: bytes) -> str:
    """The first header of that name, as sent, or nothing: one pass over the raw ones."""
    for given, value in scope["headers"]:
        if given == name:
            return str(value, "latin-1")
    return ""
