"""What the server bounds before there is a request: connections, heads, their time, and what is no HTTP at all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import uvicorn
from service_harness import Server, settings_in, wait_for
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from service.api.protocol import HEAD_BYTES, BoundedProtocol, Bounds

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(settings_in(tmp_path_factory.mktemp("protocol"), max_connections=8, body_timeout_s=1.0)) as server:
        server.client.close()
        yield server


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.settings.port), timeout=20) as connection:
        yield connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def answered(connection: socket.socket) -> bytes:
    """One answer, of JSON, on a connection that stays open."""
    parts = [connection.recv(1 << 16)]
    while parts[-1] and not parts[-1].endswith(b"}"):
        parts.append(connection.recv(1 << 16))
    return b"".join(parts)


def problem(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    document: dict[str, Any] = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {document['status']} ".encode())
    assert document["detail"]
    assert document["remedy"]
    assert document["request_id"]
    assert f"\r\nx-request-id: {document['request_id']}\r\n".encode() in head.lower()
    assert head.lower().count(b"\r\nx-content-type-options: nosniff") == 1
    return document


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        GET + b"a b\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_document(server: Server, sent: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(sent)
        assert problem(received(connection))["status"] == 400


@pytest.mark.parametrize("start", [b"GET /", GET + b"X-Long: "], ids=["path", "header"])
def test_a_head_without_end_is_refused(server: Server, start: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(start)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(b"x" * HEAD_BYTES)
        assert problem(received(connection))["code"] == "head_too_large"


@pytest.mark.parametrize("path", [b"/livez", b"/", b"/page/theme.js"])
def test_head_has_no_body(server: Server, path: bytes) -> None:
    asked = GET.replace(b"/livez", path) + b"Connection: close\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(asked.replace(b"GET", b"HEAD"))
        head, _, body = received(connection).partition(b"\r\n\r\n")
    with connected(server) as connection:
        connection.sendall(asked)
        size = len(received(connection).partition(b"\r\n\r\n")[2])
    assert head.startswith(b"HTTP/1.1 200 ")
    assert (body, size > 0) == (b"", True)
    assert f"\r\ncontent-length: {size}\r\n".encode() in head


def test_many_headers_are_refused(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(GET)
        with contextlib.suppress(ConnectionError):
            for number in range(100_000):
                connection.sendall(b"X-%d: y\r\n" % number)
        assert problem(received(connection))["code"] == "head_too_large"


def test_a_head_of_what_clients_send_is_taken(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(GET + b"Authorization: Bearer " + b"x" * 16_000 + b"\r\nConnection: close\r\n\r\n")
        assert received(connection).startswith(b"HTTP/1.1 200 ")


def cuts(size: int) -> Iterator[list[int]]:
    """Where a head of so many bytes is cut: nowhere, near its end and the limit, everywhere, and at random."""
    yield []
    yield from ([size - back] for back in range(1, 6))
    yield [HEAD_BYTES]
    yield list(range(1024, size, 1024))
    yield [*range(size - 8, size)]
    rng = random.Random(size)
    yield from (sorted(rng.sample(range(1, size), rng.choice([1, 2, 7, 40]))) for _ in range(6))


def head_of(size: int, kind: str) -> bytes:
    """A head of so many bytes: one long header, many, a long path, or an offer of another protocol."""
    end = b"Connection: close\r\n\r\n"
    lacking = size - len(GET + end)
    match kind:
        case "long":
            return GET + b"X: " + b"x" * (lacking - 5) + b"\r\n" + end
        case "many":
            return GET + b"X: " + b"x" * (lacking % 8 + 3) + b"\r\n" + b"Y: xyz\r\n" * (lacking // 8 - 1) + end
        case "path":
            return GET.replace(b"/livez", b"/livez?" + b"x" * (lacking - 1)) + end
        case _:
            offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
            return GET + offer + b"X: " + b"x" * (lacking - 5 - len(offer)) + b"\r\n" + end


# What may stand before a head on its connection: nothing, or a request with one body or the other.
BEFORE = {
    "first": b"",
    "after a head": GET + b"\r\n",
    "after a body": b"POST /v1/x HTTP/1.1\r\nContent-Length: 9\r\n\r\n12345\r\n\r\n",
    "after chunks": b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n0\r\nX: y\r\n\r\n",
}


class Wire(asyncio.Transport):
    """What a connection was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


async def settled() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def statuses_of(config: uvicorn.Config, packets: Iterable[bytes]) -> list[int]:
    """The answers on one connection that these come on, each once the ones before it had their effect."""
    protocol, wire = BoundedProtocol(config, ServerState(), {}, bounds=Bounds(8, 60.0)), Wire()
    protocol.connection_made(wire)
    for packet in packets:
        if not wire.closed:
            protocol.data_received(packet)
            await settled()
    protocol.connection_lost(None)
    await settled()
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", wire.sent)]


class ResetWire(Wire):
    """As uvloop's: what is written once it is closed is an error."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        super().write(data)


@pytest.mark.parametrize("before", ["the answer", "its body", "its end"])
def test_a_connection_that_is_reset_while_it_is_answered_is_no_failure(
    caplog: pytest.LogCaptureFixture, before: str
) -> None:
    """The event loop has closed it, and the protocol will be told next."""
    ended: list[str] = []

    async def check() -> None:
        wire = ResetWire()

        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            messages = [
                ("the answer", {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}),
                ("its body", {"type": "http.response.body", "body": b"a", "more_body": True}),
                ("its end", {"type": "http.response.body", "body": b"b"}),
            ]
            for name, message in messages:
                if name == before:
                    wire.close()
                await send(message)
            ended.append("whole")

        config = uvicorn.Config(app, ws="none", log_config=None)
        protocol = BoundedProtocol(config, ServerState(), {}, bounds=Bounds(8, 60.0))
        protocol.connection_made(wire)
        protocol.data_received(GET + b"\r\n")
        await settled()
        protocol.connection_lost(ConnectionResetError())
        await settled()

    asyncio.run(check())
    assert ended == ["whole"]
    assert [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []


# A request line, and the blank line at the end, of which the bound knows nothing.
UNCOUNTED = 64


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("kind", ["long", "many", "path", "upgrade"])
def test_a_head_is_bounded_alike_however_it_is_cut(kind: str, before: str) -> None:
    async def check() -> None:
        config = uvicorn.Config(ok, ws="none", log_config=None)
        first = len(BEFORE[before])
        for size in (HEAD_BYTES, HEAD_BYTES + UNCOUNTED, 5 * HEAD_BYTES):
            whole = BEFORE[before] + head_of(size, kind)
            assert len(whole) == first + size
            for places in cuts(size):
                ends = [0, *(first + place for place in places), len(whole)]
                found = await statuses_of(config, (whole[start:end] for start, end in itertools.pairwise(ends)))
                answers = [200] * (first > 0) + [200 if size <= HEAD_BYTES else 431]
                # While the request before is still being answered, a refusal is the connection's end.
                ended = answers[:1] if first and size > HEAD_BYTES else answers
                assert found in (answers, ended), (size, places)

    asyncio.run(check())


TRAILED = b"POST /v1/nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("trailer", [b"X-More: y\r\n", b"y" * 100], ids=["many", "endless"])
def test_trailers_are_bounded(server: Server, trailer: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(TRAILED)
        assert answered(connection).startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"0\r\nX: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 24:
                connection.sendall(trailer * 100)
                sent += 100 * len(trailer)
        assert sent < 1 << 24, "no one stopped it"


@pytest.mark.parametrize(
    "start",
    [
        b"\r\n",
        b"POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
        TRAILED + b"1\r\n",
    ],
    ids=["blank", "body", "chunk"],
)
def test_what_is_left_half_done_does_not_hold_its_connection(server: Server, start: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(start)
        if start != b"\r\n":
            assert answered(connection).startswith(b"HTTP/1.1 404 ")
            connection.sendall(b"x")
        assert received(connection) == b"", "closed, and before the time limit of the connection here"


@pytest.mark.parametrize(
    ("whole", "rest"),
    [
        (1, b"garbage\r\n\r\n"),
        (3, b"garbage\r\n\r\n"),
        (1, b"\0\1"),
        (3, b"CONNECT a:1 HTTP/1.1\r\n\r\n"),
        (1, TRAILED + b"zz\r\n"),
        (3, TRAILED + b"1\r\nabc\r\n"),
    ],
)
def test_whole_requests_before_what_cannot_be_read_are_answered(server: Server, whole: int, rest: bytes) -> None:
    with connected(server) as connection:
        connection.sendall((GET + b"\r\n") * whole + rest)
        assert re.findall(rb"HTTP/1.1 (\d+) ", received(connection)) == [b"200"] * whole


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"1\r\nabc\r\n"])
def test_a_body_that_is_no_http_is_a_problem_document(server: Server, chunk: bytes) -> None:
    path = TRAILED.replace(b"/v1/nothing", b"/v1/graphs")
    with connected(server) as connection:
        connection.sendall(path + chunk)
        assert problem(received(connection))["status"] == 400


def test_a_client_that_does_not_read_is_let_go_of(server: Server) -> None:
    with connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            for _ in range(200):
                connection.sendall((GET.replace(b"livez", b"openapi.json") + b"\r\n") * 20)
                time.sleep(0.05)


def test_a_head_that_does_not_end_is_told_so_and_a_silent_connection_is_closed(server: Server) -> None:
    with connected(server) as slow, connected(server) as silent:
        slow.sendall(GET)
        assert problem(received(slow))["status"] == 408
        assert received(silent) == b""


def test_a_head_that_comes_byte_by_byte_has_no_more_time(server: Server) -> None:
    with connected(server) as connection:
        connection.settimeout(0.05)
        answer = b""
        with contextlib.suppress(ConnectionError):
            for byte in GET * 100:
                connection.sendall(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    answer += answered(connection)
                if answer:
                    break
        assert problem(answer)["status"] == 408


def test_requests_in_one_piece_are_answered_in_order(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(
            GET + b"\r\n" + GET.replace(b"livez", b"v1/nothing") + b"\r\n" + GET + b"Connection: close\r\n\r\n"
        )
        answer = received(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_one_connection_too_many_is_told_so_and_others_go_on(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(server)) for _ in range(8)]
        for connection in held:
            connection.sendall(GET + b"\r\n")
            assert answered(connection).startswith(b"HTTP/1.1 200 ")
        with connected(server) as connection:
            refused = problem(received(connection))
            assert refused["status"] == 503
            assert refused["retryable"]
            assert "max_connections" in refused["detail"]
        held[0].sendall(GET + b"\r\n")
        assert answered(held[0]).startswith(b"HTTP/1.1 200 ")

    def taken() -> bool:
        with connected(server) as connection:
            connection.sendall(GET + b"Connection: close\r\n\r\n")
            return received(connection).startswith(b"HTTP/1.1 200 ")

    wait_for(taken, "for a connection once others are closed")


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_a_client_that_offers_another_protocol_is_answered_in_this_one(server: Server, upgrade: str) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n".encode()
    with connected(server) as connection:
        connection.sendall(GET + offer + b"\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 200 ")
    with connected(server) as connection:
        body = b'{"ids": [1]}'
        head = b"POST /v1/embeddings/none/lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        connection.sendall(head + offer + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        connection.sendall(body[5:])
        assert answered(connection).startswith(b"HTTP/1.1 404 ")


def test_many_offers_in_one_piece_are_answered(server: Server) -> None:
    offer = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(offer * 600 + GET + b"Connection: close\r\n\r\n")
        assert received(connection).count(b"HTTP/1.1 200 ") == 601


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_client_that_wants_to_close_and_offers_another_protocol_is_closed(server: Server, version: bytes) -> None:
    head = GET.replace(b"1.1", version) + b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(head)
        assert received(connection).startswith(b"HTTP/1.1 200 ")


def test_a_refusal_has_the_id_of_its_line_in_the_log(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(b"hello\r\n\r\n")
        request_id = problem(received(connection))["request_id"]
    lines = (server.settings.home.parent / "server.log").read_text().splitlines()
    (line,) = [json.loads(line) for line in lines if request_id in line]
    assert (line["event"], line["status"], line["request_id"]) == ("refused before a request", 400, request_id)


def test_a_trailer_is_no_header(server: Server) -> None:
    trailed = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    trailers = b"X-Request-ID: from-a-trailer\r\nContent-Type: application/json\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(trailed + b"2\r\n{}\r\n0\r\n" + trailers)
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 422 ")
    assert b"from-a-trailer" not in answer
    assert b"Content-Type says something else" in answer
