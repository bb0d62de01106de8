"""The hottest request, one vector by id, answered ahead of the router while all it needs is in memory.

Whatever is not at hand goes the usual way: a set that is not open, an id that is not found, keys that are due to be
read again. The usual way has the answers for those, and this request's documentation.
"""

from __future__ import annotations

import re

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.answers import vector_json
from service.api.auth import KeyRing
from service.metrics import Metrics
from service.search.embedding_set import EmbeddingSets

__all__ = ["DirectVectors"]

_PATH = re.compile(r"/v1/embeddings/([^/]+)/vectors/(.+)", re.DOTALL)


class DirectVectors:
    """Plain ASGI in front of ``app``; ``route`` is the one it stands in for, as log and metrics name it."""

    def __init__(self, app: ASGIApp, sets: EmbeddingSets, keys: KeyRing, metrics: Metrics, route: BaseRoute) -> None:
        self._app = app
        self._sets = sets
        self._keys = keys
        self._metrics = metrics
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        body = self._answer(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if body is None:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope) -> bytes | None:
        match = _PATH.fullmatch(scope["path"])
        if match is None or not self._let_in(scope):
            return None
        held = self._sets.held(match[1])
        vector = None if held is None else held[1].vector(match[2])
        if held is None or vector is None:
            return None
        scope["route"] = self._route
        self._metrics.looked_up(1, 0)
        return vector_json(held[0], match[2], vector)

    def _let_in(self, scope: Scope) -> bool:
        """Whether the keys at hand let the request in; a live key of any scope may read."""
        if not self._keys.fresh:
            return False
        if not self._keys.needed:
            return True
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = sent.decode("latin-1").partition(" ")
        key = self._keys.match(token) if scheme.lower() == "bearer" else None
        if key is not None:
            scope["state"]["key_id"] = key.id
        return key is not None
