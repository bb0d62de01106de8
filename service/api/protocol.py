"""HTTP as uvicorn speaks it, with bounds on what comes before a request is one: connections, heads, and time.

uvicorn bounds none of these with the faster parser; bodies are ``service.api.middleware.BodyLimit``'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.api.middleware import BODY_IS_HERE, NO_SNIFFING
from service.errors import problem_response
from service.logs import new_request_id

__all__ = ["BoundedProtocol", "Bounds"]

# What nginx and Node take at most, and more than a browser sends.
HEAD_BYTES = 32 * 1024
# Beside a header's name and value: a colon, a blank, and the end of its line.
HEADER_BYTES = 4

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Bounds:
    """Open connections at a time, and seconds that a head may take to arrive, or an answer to be read on."""

    connections: int
    timeout_s: float


class _HeadTooLargeError(Exception):
    """What a head, or trailers, hold is more than their bound."""


class _Wire(asyncio.Transport):
    """A transport that may be written to although it is closed, as asyncio's are: uvloop's refuse, and a client that
    resets its connection is gone some moments before the protocol is told.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.pause_reading = transport.pause_reading  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]
        self.get_write_buffer_size = transport.get_write_buffer_size  # type: ignore[method-assign]
        self.close = transport.close  # type: ignore[method-assign]
        self.abort = transport.abort  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, or drop it where nobody receives it any more."""
        if not self.is_closing():
            self._transport.write(data)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is refused before there is a request has a problem document for an answer, too."""

    def __init__(self, *args: Any, bounds: Bounds, **kwargs: Any) -> None:
        """``bounds``, and what uvicorn gives a protocol."""
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._in_head = False
        self._refused = False
        self._head_bytes = self._unread_bytes = 0
        self._deadline: float | None = None
        self._unsent = 0
        self._unsent_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many; others have so long to send a head."""
        super().connection_made(transport)
        self.transport = _Wire(transport)
        if len(self.connections) > self._bounds.connections:
            limit = f"{self._bounds.connections} open connections (setting max_connections)"
            self._refuse(503, "busy", f"the server has its limit of {limit}", "close idle connections, or come again")
        else:
            self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client, or the server, has closed."""
        self._stop_watching_writes()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; what is too long, or takes too long, and is neither a body nor a request ends the connection."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._unread_bytes += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as offered:
                data = self._declined(data[offered.args[0] :])
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, _HeadTooLargeError):
                    self._refuse_head()
                else:
                    self.send_400_response("this is no HTTP request")
                return
        if self.transport.is_closing():
            return
        if self._unread_bytes > 2 * HEAD_BYTES:
            # One header without an end, or blanks: nothing of it was counted.
            self._refuse_head()
        elif not self._answering:
            self._limit_time()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._count(len(name) + len(value) + HEADER_BYTES)
        # A trailer is no header (RFC 9110, 6.5.1): what stands before the server has not looked at it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        self._progressed()
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._progressed()
        self.scope["state"][BODY_IS_HERE] = True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "bad_request", msg, "send HTTP/1.1, with a path of ASCII characters")

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered: it goes on reading, or is let go of."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._stop_watching_writes()
        super().resume_writing()

    @property
    def _answering(self) -> bool:
        """Whether a request is still being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            raise _HeadTooLargeError

    def _refuse_head(self) -> None:
        limit = f"{HEAD_BYTES} bytes of headers or trailers"
        self._refuse(431, "head_too_large", f"the request has more than {limit}", "send fewer headers")

    def _progressed(self) -> None:
        self._head_bytes = self._unread_bytes = 0
        self._deadline = None

    def _declined(self, rest: bytes) -> bytes:
        """The request once more, as one that offers no other protocol (Java's client always offers HTTP/2): the parser
        would take its body for something else. ``rest`` is what came after its head.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self.send_400_response("this server is no proxy")
            return b""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        head = [method + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection":
                head += [b"connection: close"] if b"close" in value.lower() else []
            elif name != b"upgrade":
                head.append(name + b": " + value)
        return b"\r\n".join([*head, b"", rest])

    def _limit_time(self) -> None:
        """What has begun, or begins now, has so long; uvicorn's own timer, which runs between requests, is used."""
        if self._deadline is None:
            self._deadline = self.loop.time() + self._bounds.timeout_s
        self.timeout_keep_alive_task = self.loop.call_at(self._deadline, self._is_late)

    def _is_late(self) -> None:
        if self.transport.is_closing() or self._answering:
            return
        if not self._in_head:
            self.transport.close()
            return
        slow = f"the request's head did not arrive within {self._bounds.timeout_s:g} seconds"
        self._refuse(408, "timeout", f"{slow} (setting body_timeout_s)", "send it without pauses")

    def _watch_writes(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._unsent_timer = self.loop.call_later(self._bounds.timeout_s, self._look_at_writes)

    def _look_at_writes(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_writes()
        else:
            log.info("let go of a client that does not read its answer", client=self.client, unsent=self._unsent)
            self.transport.abort()

    def _stop_watching_writes(self) -> None:
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
            self._unsent_timer = None

    def _refuse(self, status: int, code: str, detail: str, remedy: str) -> None:
        """Answer without a request and close, once the whole requests before it have their answers."""
        request_id = new_request_id()
        log.info("refused before a request", status=status, code=code, client=self.client, request_id=request_id)
        self._refused = True
        self._unset_keepalive_if_required()
        if self._answering:
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
                return
            if self.pipeline:
                # It is the body of a request that waits for those before it: they go on, and it does not.
                self.pipeline.popleft()
                return
            # It is the body of this request that cannot be read.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self._answering or not self.cycle.response_started:
            self.transport.write(_problem(request_id, status, code, detail, remedy))
        self.transport.close()


def _problem(request_id: str, status: int, code: str, detail: str, remedy: str) -> bytes:
    answer = problem_response(
        status,
        code,
        detail,
        remedy=remedy,
        request_id=request_id,
        retryable=status == 503,
        headers={"Connection": "close", "X-Request-ID": request_id},
    )
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    head += [name + b": " + value for name, value in (*answer.raw_headers, NO_SNIFFING)]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
