"""The requests that come by the thousand, answered ahead of the router while the set they ask is held in memory.

One vector is read where the request arrives; lookups and neighbours go to a thread each. Whatever is not at hand or not
plain goes the usual way, by the routes: a set that is not open, an unknown id, keys that are due to be read again, a
body that is large or does not parse. The routes have the answers for those, and the documentation of all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import HTTPException
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preprocessing.errors import RgrlError
from service.api.answers import vector_json
from service.api.auth import KeyRing
from service.api.middleware import first_header
from service.api.serving import ARROW_STREAM, Serving
from service.errors import failure_response
from service.search.schemas import LookupIn, NeighborsIn

__all__ = ["DirectAnswers"]

_PATH = re.compile(r"/v1/embeddings/([^/]+)/(?:vectors/(.+)|(lookup|neighbors))", re.DOTALL)
# A larger body takes longer to read than to route.
BODY_BYTES = 1 << 20


class DirectAnswers:
    """Plain ASGI in front of ``app``; ``routes`` are those it stands in for, by name, as log and metrics tell them."""

    def __init__(self, app: ASGIApp, serving: Serving, keys: KeyRing, routes: Mapping[str, BaseRoute]) -> None:
        self._app = app
        self._serving = serving
        self._keys = keys
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        response: Response | None = None
        if match is not None and self._let_in(scope):
            ref, node, verb = match.groups()
            if node is not None and scope["method"] == "GET":
                response = self._vector(scope, ref, node)
            elif verb is not None and scope["method"] == "POST" and self._serving.sets.held(ref) is not None:
                response, receive = await self._post(scope, receive, ref, verb)
        await (response or self._app)(scope, receive, send)

    def _let_in(self, scope: Scope) -> bool:
        """Whether the keys at hand let the request in; a live key of any scope may read."""
        if not self._keys.fresh:
            return False
        if not self._keys.needed:
            return True
        scheme, _, token = first_header(scope, b"authorization").partition(" ")
        key = self._keys.match(token) if scheme.lower() == "bearer" else None
        if key is not None:
            scope["state"]["key_id"] = key.id
        return key is not None

    def _vector(self, scope: Scope, ref: str, node: str) -> Response | None:
        held = self._serving.sets.held(ref)
        vector = None if held is None else held[1].vector(node)
        if held is None or vector is None:
            return None
        scope["route"] = self._routes["get_vector"]
        self._serving.metrics.looked_up(1, 0)
        return Response(vector_json(held[0], node, vector), media_type="application/json")

    async def _post(self, scope: Scope, receive: Receive, ref: str, verb: str) -> tuple[Response | None, Receive]:
        """The answer, or None and how the app is to read the body that has been read already."""
        kind, length = first_header(scope, b"content-type"), first_header(scope, b"content-length")
        if kind not in ("application/json", ARROW_STREAM) or not length.isdigit() or int(length) > BODY_BYTES:
            return None, receive
        taken: list[Message | HTTPException] = []
        body = await _read(receive, taken)
        answer = None if body is None else self._parsed(ref, verb, body, kind, first_header(scope, b"accept"))
        if answer is None:
            return None, _again(taken, receive)
        scope["route"] = self._routes[verb]
        try:
            return await run_in_threadpool(answer), receive
        except (RgrlError, OperationalError) as error:
            return await failure_response(Request(scope), error), receive

    def _parsed(self, ref: str, verb: str, body: bytes, kind: str, accept: str) -> Callable[[], Response] | None:
        arrow = kind == ARROW_STREAM
        try:
            if verb == "lookup":
                lookup = LookupIn.model_validate(body) if arrow else LookupIn.model_validate_json(body)
                return lambda: self._serving.lookup(ref, lookup, accept)
            neighbors = NeighborsIn.model_validate(body) if arrow else NeighborsIn.model_validate_json(body)
            return lambda: self._serving.neighbors(ref, neighbors, accept)
        except ValidationError:
            return None


async def _read(receive: Receive, taken: list[Message | HTTPException]) -> bytes | None:
    """The whole body, or None where it does not come whole; ``taken`` keeps what did come."""
    parts = []
    while True:
        try:
            message = await receive()
        except HTTPException as error:
            taken.append(error)
            return None
        taken.append(message)
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(taken: list[Message | HTTPException], receive: Receive) -> Receive:
    """Receives what was taken before, and then goes on."""
    left = iter(taken)

    async def receive_again() -> Message:
        message = next(left, None)
        if isinstance(message, HTTPException):
            raise message
        return await receive() if message is None else message

    return receive_again
