"""HTTP as uvicorn speaks it, with bounds on what comes before a request is one: connections, heads, and time.

uvicorn bounds none of these with the faster parser; bodies are ``service.api.middleware.BodyLimit``'s.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import Problem

__all__ = ["BoundedProtocol", "Bounds"]

# What nginx and Node take at most, and more than a browser sends.
HEAD_BYTES = 32 * 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Bounds:
    """Open connections at a time, and seconds that a request's head may take to arrive."""

    connections: int
    head_timeout_s: float


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is refused before there is a request has a problem document for an answer, too."""

    def __init__(self, *args: Any, bounds: Bounds, **kwargs: Any) -> None:
        """``bounds``, and what uvicorn gives a protocol."""
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._in_head = False
        self._head_bytes = 0
        self._head_deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many; others have so long to send a head."""
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            limit = f"{self._bounds.connections} open connections (setting max_connections)"
            self._refuse(503, "busy", f"the server has its limit of {limit}", "close idle connections, or come again")
        else:
            self._begin_head()

    def data_received(self, data: bytes) -> None:
        """Read on; a head that is too long, or takes too long, ends the connection."""
        if self._in_head:
            self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offered:
            self._decline(data[offered.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("this is no HTTP request")
        if not self._in_head or self.transport.is_closing():
            return
        if self._head_bytes > HEAD_BYTES:
            self._refuse(
                431, "head_too_large", f"the request's head is longer than {HEAD_BYTES} bytes", "send fewer headers"
            )
            return
        if self._head_bytes == 0:
            self._begin_head()
        else:
            self._limit_head()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A body is whole."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "bad_request", msg, "send HTTP/1.1, with a path of ASCII characters")

    def _decline(self, rest: bytes) -> None:
        """Take the request as one that offers no other protocol (Java's client always offers HTTP/2): the parser would
        take its body for something else. ``rest`` is what came after its head.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("this server is no proxy")
            return
        self.parser = httptools.HttpRequestParser(self)
        head = [method + b" " + self.url + b" HTTP/1.1"]
        head += [name + b": " + value for name, value in self.headers if name not in (b"connection", b"upgrade")]
        self.data_received(b"\r\n".join([*head, b"", rest]))

    def _begin_head(self) -> None:
        self._head_deadline = self.loop.time() + self._bounds.head_timeout_s
        self._limit_head()

    def _limit_head(self) -> None:
        # uvicorn cancels this timer when data arrives, and uses it between requests.
        self.timeout_keep_alive_task = self.loop.call_at(self._head_deadline, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.transport.is_closing():
            return
        if self._answering:
            self._begin_head()
            return
        if not self._in_head:
            self.transport.close()
            return
        slow = f"the request's head did not arrive within {self._bounds.head_timeout_s:g} seconds"
        self._refuse(408, "timeout", f"{slow} (setting body_timeout_s)", "send it without pauses")

    @property
    def _answering(self) -> bool:
        """Whether the request before this head is still being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int, code: str, detail: str, remedy: str) -> None:
        """Answer without a request, where no other answer is on its way, and close."""
        log.info("refused before a request", status=status, code=code, client=self.client)
        title = HTTPStatus(status).phrase
        problem = Problem(title=title, status=status, code=code, detail=detail, remedy=remedy, retryable=status == 503)
        body = json.dumps(problem.model_dump()).encode()
        head = [
            f"HTTP/1.1 {status} {title}",
            "Content-Type: application/problem+json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        self._unset_keepalive_if_required()
        if not self._answering:
            self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()
