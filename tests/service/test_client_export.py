"""The client's export through streams that break off, and its embedding of new nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import add_set, settings, write_set
from fastapi.testclient import TestClient
from new_node_fixtures import Case, World

from service.api.app import create_app
from service.client import Client, export
from service.client.transport import ConflictError, InvalidRequestError, ServerBusyError, UnreachableError
from service.search import bulk

NODES, DIM = 200, 4


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 10 * 4 * DIM)
    monkeypatch.setattr(export.time, "sleep", lambda _: None)
    with TestClient(create_app(settings(tmp_path / "home", max_exports=1))) as app:
        yield app


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((NODES, DIM)).astype(np.float32)


@pytest.fixture
def ref(app: TestClient, tmp_path: Path, vectors: np.ndarray) -> str:
    return add_set(app.app.state.store, write_set(tmp_path / "set", vectors))


@contextmanager
def cut(app: TestClient, *after: int) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
    """A server in front of ``app`` that breaks the first answers off after so many bytes; and what it was asked."""
    left, asked = list(after), list[tuple[str, bool]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(app.get(self.path, headers={"Accept": self.headers["Accept"]}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name: self.headers[name] for name in ("Accept", "Content-Type")}
            self.answer(app.post(self.path, content=body, headers=headers))

        def answer(self, response: object) -> None:
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.startswith(("x-", "content-type")):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            sent = response.content[: left.pop(0)] if left and response.status_code == 200 else response.content
            self.wfile.write(sent)
            asked.append((self.path, sent == response.content))
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("after", [(), (0,), (3, 100), (900, 1500, 4000, 0, 2000), tuple(range(300, 3000, 170))])
def test_an_export_that_breaks_off_has_every_row_once(
    app: TestClient, ref: str, vectors: np.ndarray, after: tuple[int, ...]
) -> None:
    app.put("/v1/aliases/now", json={"embedding": ref})
    with cut(app, *after) as (url, asked), Client(url) as client:
        table = pa.Table.from_batches(list(client.export("now")))
    assert table["id"].to_pylist() == [str(row) for row in range(NODES)]
    assert table["vector"].to_pylist() == vectors.tolist()
    assert [whole for _, whole in asked] == [False] * (len(asked) - 1) + [True]
    assert len(asked) > len(after) / 2
    # Once it is known, the set itself is asked: the alias may be switched.
    assert all(f"/v1/embeddings/{ref}/" in path for path, _ in asked[1:])


def test_shards_and_a_cursor_of_ones_own(app: TestClient, ref: str) -> None:
    with cut(app) as (url, _), Client(url) as client:
        ids = [
            name for number in range(3) for b in client.export(ref, shard=f"{number}/3") for name in b[0].to_pylist()
        ]
        assert ids == [str(row) for row in range(NODES)]
        rest = [name for batch in client.export(ref, cursor=f"{ref}:195") for name in batch[0].to_pylist()]
        assert rest == ["195", "196", "197", "198", "199"]
        with pytest.raises(InvalidRequestError):
            next(client.export(ref, shard="3/3"))
        with pytest.raises(ConflictError):
            next(client.export(ref, cursor="emb_other:0"))


def test_patience_ends(app: TestClient, ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PATIENCE_S", 0)
    with cut(app, 700) as (url, _), Client(url) as client:
        with pytest.raises(UnreachableError):
            list(client.export(ref))
        with app.app.state.exports.turn(), pytest.raises(ServerBusyError):
            list(client.export(ref))


def test_new_nodes(app: TestClient, tmp_path: Path) -> None:
    world = World(tmp_path / "world", Case(ids="string"))
    ref = add_set(app.app.state.store, world.set.path, world.bundle.path)
    body = world.request()
    with cut(app) as (url, _), Client(url) as client:
        made = client.embed(ref, body["nodes"], body["edges"])
        with pytest.raises(InvalidRequestError) as raised:
            client.embed(ref, body["nodes"] * 200)
        assert "max_embed_nodes" in raised.value.text()
    assert (made.embedding, made.ids) == (ref, world.new)
    assert made.vectors.dtype == np.float32
    np.testing.assert_allclose(made.vectors, world.oracle(), rtol=1e-5, atol=1e-5)
