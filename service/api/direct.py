"""The requests that come by the thousand, answered ahead of the router while the set they ask is held in memory.

What takes less time than handing it to a thread is done where the request arrives: a few vectors at any time, the
search of one query while nobody else asks, who would wait for it. Other lookups and neighbours go to a thread each.
Whatever is not at hand or not plain goes the usual way, by the routes: a set that is not open, an unknown id, keys
that are due to be read again, query parameters, a body that is large or does not parse. The routes have the answers for
those, and the documentation of all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial

from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import HTTPException
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preprocessing.errors import ArtifactError, RgrlError
from service.api.accept import ARROW_STREAM, wants_arrow
from service.api.answers import vector_json
from service.api.auth import KeyRing, bearer_token
from service.api.middleware import first_header
from service.api.serving import Serving, is_quick
from service.errors import BusyError, failure_response
from service.search.schemas import LookupIn, NeighborsIn

__all__ = ["DirectAnswers"]

_PATH = re.compile(r"/v1/embeddings/([^/]+)/(?:vectors/(.+)|(lookup|neighbors))", re.DOTALL)
# A larger body takes longer to read than to route.
BODY_BYTES = 1 << 20
# As many vectors as take half a millisecond: written as JSON a vector takes 10 µs, copied into Arrow .4.
FEW_IDS, FEW_IDS_ARROW = 32, 1024
# A search that takes so long is slow, and slow ones in a row that take so long together wait for the disk: for a while
# others may not wait with them. One that is a little late is the machine's doing.
SLOW_S, SLOW_TOGETHER_S, PAUSE_S = 0.005, 0.02, 1.0

Answer = Callable[[], Response]


class DirectAnswers:
    """Plain ASGI in front of ``app``; ``routes`` are those it stands in for, by name, as log and metrics tell them."""

    def __init__(self, app: ASGIApp, serving: Serving, keys: KeyRing, routes: Mapping[str, BaseRoute]) -> None:
        self._app = app
        self._serving = serving
        self._keys = keys
        self._routes = routes
        self._last_client: object = None
        self._in_threads = 0
        self._slow_s = 0.0
        self._paused_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        match = _PATH.fullmatch(scope["path"])
        response: Response | None = None
        if match is not None and not scope["query_string"] and self._let_in(scope):
            ref, node, verb = match.groups()
            if node is not None and scope["method"] == "GET":
                response = self._vector(scope, ref, node)
            elif verb is not None and scope["method"] == "POST":
                response, receive = await self._post(scope, receive, ref, verb)
        await (response or self._app)(scope, receive, send)

    def _let_in(self, scope: Scope) -> bool:
        """Whether the keys at hand let the request in; a live key of any scope may read."""
        if not self._keys.fresh:
            return False
        if not self._keys.needed:
            return True
        token = bearer_token(scope)
        key = None if token is None else self._keys.match(token)
        if key is not None:
            scope["state"]["key_id"] = key.id
        return key is not None

    def _vector(self, scope: Scope, ref: str, node: str) -> Response | None:
        held = self._serving.sets.held(ref)
        vector = None if held is None else held[1].vector(node)
        if held is None or vector is None:
            return None
        answer = vector_json(held[0], node, vector)
        try:
            held[1].check_unchanged()
        except ArtifactError:
            return None
        scope["route"] = self._routes["get_vector"]
        self._serving.metrics.looked_up(1, 0)
        return Response(answer, media_type="application/json")

    async def _post(self, scope: Scope, receive: Receive, ref: str, verb: str) -> tuple[Response | None, Receive]:
        """The answer, or None and how the app is to read the body that has been read already."""
        kind, length = first_header(scope, b"content-type"), first_header(scope, b"content-length")
        if kind not in ("application/json", ARROW_STREAM) or not length.isdigit() or int(length) > BODY_BYTES:
            return None, receive
        taken: list[Message | HTTPException] = []
        body = await _read(receive, taken)
        asked = None if body is None else _parsed(verb, body, kind == ARROW_STREAM)
        # Seen after the body is there, which may take its time.
        held = None if asked is None else self._serving.sets.held(ref)
        ready = held is not None and (verb == "lookup" or held[1].opened_space is not None)
        if asked is None or held is None or not ready:
            return None, _again(taken, receive)
        scope["route"] = self._routes[verb]
        client, self._last_client = self._last_client, scope.get("client")
        alone = client == self._last_client and self._in_threads == 0
        try:
            arrow = wants_arrow(first_header(scope, b"accept"))
            if isinstance(asked, LookupIn):
                lookup = partial(self._serving.lookup, held, asked, arrow)
                count, few = len(asked.asked), FEW_IDS_ARROW if arrow else FEW_IDS
                # One vector waits for the disk no longer here than by its own path.
                made = lookup() if count == 1 else await self._made(lookup, lookup if count <= few else None)
                return made, receive
            search = partial(self._serving.neighbors, held, asked, arrow)
            at_once = partial(search, wait=False) if alone and is_quick(asked, held[1]) else None
            return await self._made(search, at_once), receive
        except (RgrlError, OperationalError) as error:
            return await failure_response(Request(scope), error), receive

    async def _made(self, answer: Answer, at_once: Answer | None) -> Response:
        """The answer, made here and now where that is given and nothing holds it up, or in a thread."""
        began = time.monotonic()
        if at_once is not None and began >= self._paused_until:
            try:
                return at_once()
            except BusyError:
                pass
            finally:
                ended = time.monotonic()
                self._slow_s = self._slow_s + ended - began if ended - began > SLOW_S else 0.0
                if self._slow_s > SLOW_TOGETHER_S:
                    self._paused_until = ended + PAUSE_S
        self._in_threads += 1
        try:
            return await run_in_threadpool(answer)
        finally:
            self._in_threads -= 1


def _parsed(verb: str, body: bytes, arrow: bool) -> LookupIn | NeighborsIn | None:
    kind = LookupIn if verb == "lookup" else NeighborsIn
    try:
        return kind.model_validate(body) if arrow else kind.of_json(body)
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
