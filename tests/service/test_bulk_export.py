"""Bulk export over HTTP: every format, shards and cursors, who is turned away, and clients that leave."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
from embedding_fixtures import add_set, settings, write_set
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from service_harness import wait_for

from service.api import middleware
from service.api.app import create_app
from service.search import bulk
from service.search.embedding_set import EmbeddingSet
from service.search.turns import Turns

NODES, DIM = 61, 5
ARROW, PARQUET, LINES = (
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
    "application/x-ndjson",
)
NAMES = [f"nöde\n{number:03}" for number in range(NODES)]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((NODES, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings(home, max_exports=1))) as client:
        yield client


@pytest.fixture(scope="module")
def numbered(client: TestClient, home: Path, vectors: np.ndarray) -> str:
    return add_set(client.app.state.store, write_set(home / "embeddings" / "numbered", vectors))


@pytest.fixture(scope="module")
def named(client: TestClient, home: Path, vectors: np.ndarray) -> str:
    """Text ids, float16."""
    path = write_set(home / "embeddings" / "named", vectors.astype(np.float16), NAMES)
    return add_set(client.app.state.store, path)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows of float32 a chunk."""
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 10 * 4 * DIM)


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()


def fetched(client: TestClient, ref: str, accept: str = ARROW, **params: Any) -> Any:
    response = client.get(f"/v1/embeddings/{ref}/vectors", params=params, headers={"Accept": accept})
    assert response.status_code == 200, response.text
    return response


def table(response: Any) -> pa.Table:
    kind = response.headers["content-type"]
    if kind == ARROW:
        return pa.ipc.open_stream(response.content).read_all()
    if kind == PARQUET:
        return pq.read_table(io.BytesIO(response.content))
    items = [json.loads(line) for line in response.content.split(b"\n")[:-1]]
    return pa.table({name: [item[name] for item in items] for name in ("id", "vector")})


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("accept", [ARROW, PARQUET, LINES])
def test_every_node_in_order(client: TestClient, numbered: str, named: str, vectors: np.ndarray, accept: str) -> None:
    sets = ((numbered, [str(row) for row in range(NODES)], np.float32), (named, NAMES, np.float16))
    for ref, names, dtype in sets:
        response = fetched(client, ref, accept)
        assert response.headers["content-type"] == accept
        assert (response.headers["x-cursor"], response.headers["x-rows"]) == (f"{ref}:0", str(NODES))
        assert "x-next-cursor" not in response.headers
        made = table(response)
        assert made["id"].to_pylist() == names
        assert made["vector"].to_pylist() == vectors.astype(dtype).tolist()
        if accept != LINES:
            assert made.schema.types == [pa.string(), pa.list_(pa.from_numpy_dtype(dtype), DIM)]
            assert made.schema.metadata == {b"embedding": ref.encode(), b"cursor": f"{ref}:0".encode()}


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", LINES),
        ("", LINES),
        ("application/*", LINES),
        (f"{PARQUET};q=0.5, {ARROW}", ARROW),
        (f"text/html, {PARQUET}", PARQUET),
        (f"{LINES};q=0, */*;q=0.1", ARROW),
        (f"{ARROW};q=wrong, {PARQUET};q=0.2", PARQUET),
        (PARQUET.upper(), PARQUET),
    ],
)
def test_accept_chooses(client: TestClient, numbered: str, accept: str, media_type: str) -> None:
    assert fetched(client, numbered, accept).headers["content-type"] == media_type


@pytest.mark.parametrize("accept", ["text/html", "application/json", f"{LINES};q=0"])
def test_what_is_not_offered_is_refused(client: TestClient, numbered: str, accept: str) -> None:
    response = client.get(f"/v1/embeddings/{numbered}/vectors", headers={"Accept": accept})
    told = problem(response, 406)
    assert told["code"] == "not_acceptable"
    assert all(name in told["detail"] for name in (ARROW, PARQUET, LINES))


@examples(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shards=st.integers(1, NODES + 9),
    limit=st.one_of(st.none(), st.integers(1, NODES)),
    accept=st.sampled_from([ARROW, PARQUET, LINES]),
)
def test_shards_and_pages_are_every_node_once(
    client: TestClient, numbered: str, vectors: np.ndarray, shards: int, limit: int | None, accept: str
) -> None:
    ids: list[str] = []
    rows: list[list[float]] = []
    for number in range(shards):
        cursor = None
        while True:
            params = {"shard": f"{number}/{shards}", "cursor": cursor, "limit": limit}
            given_params = {name: value for name, value in params.items() if value is not None}
            response = fetched(client, numbered, accept, **given_params)
            made = table(response)
            assert len(made) == int(response.headers["x-rows"]) <= (limit or NODES)
            ids += made["id"].to_pylist()
            rows += made["vector"].to_pylist()
            cursor = response.headers.get("x-next-cursor")
            if cursor is None:
                break
    assert ids == [str(row) for row in range(NODES)]
    assert rows == vectors.tolist()


@given(nodes=st.integers(0, 10**12), shards=st.integers(1, 999_999))
def test_shards_are_even_however_many(nodes: int, shards: int) -> None:
    at = sorted({0, 1, shards // 2, shards - 2, shards - 1} & set(range(shards)))
    pages = {number: bulk.page_of("emb_x", nodes, f"{number}/{shards}", None, None) for number in at}
    assert (pages[0].first, pages[shards - 1].end) == (0, nodes)
    assert all(pages[number].end == pages[number + 1].first for number in at if number + 1 in pages)
    assert {page.end - page.first for page in pages.values()} <= {nodes // shards, nodes // shards + 1}


def test_a_broken_stream_is_gone_on_with_by_counting(client: TestClient, numbered: str, vectors: np.ndarray) -> None:
    lines = fetched(client, numbered, LINES, shard="1/2").content.split(b"\n")
    begin = NODES // 2
    rest = fetched(client, numbered, ARROW, shard="1/2", cursor=f"{numbered}:{begin + 4}")
    assert rest.headers["x-cursor"] == f"{numbered}:{begin + 4}"
    made = table(rest)
    assert [json.loads(line)["id"] for line in lines[:4]] + made["id"].to_pylist() == [
        str(row) for row in range(begin, NODES)
    ]
    assert made["vector"].to_pylist() == vectors[begin + 4 :].tolist()
    assert len(table(fetched(client, numbered, ARROW, cursor=f"{numbered}:{NODES}"))) == 0


@pytest.mark.usefixtures("small_chunks")
def test_the_log_says_why_an_export_was_broken_off(
    client: TestClient, numbered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True, True, False])
    monkeypatch.setattr(EmbeddingSet, "is_as_opened", property(lambda _: next(looks)))
    logged = structlog.testing.LogCapture()
    every = structlog.make_filtering_bound_logger("info")
    monkeypatch.setattr(middleware, "log", structlog.wrap_logger(None, processors=[logged], wrapper_class=every))
    # No refusal any more: the connection ends, and the body is not whole.
    answer = client.get(f"/v1/embeddings/{numbered}/vectors", headers={"Accept": LINES})
    assert answer.status_code == 200
    assert 0 < answer.content.count(b"\n") < NODES
    wait_for(lambda: [line for line in logged.entries if line["event"] == "answered"])
    (line,) = [line for line in logged.entries if line["log_level"] != "info"]
    assert (line["event"], line["log_level"]) == ("an answer was broken off", "warning")
    assert "a file was written to while it was read" in line["cause"]


@pytest.mark.parametrize(
    ("params", "status", "pointer"),
    [
        ({"shard": "2/2"}, 422, "query/shard"),
        ({"shard": "0/0"}, 422, "query/shard"),
        ({"shard": "-1/2"}, 422, "query/shard"),
        ({"shard": "1"}, 422, "query/shard"),
        ({"cursor": "REF:62"}, 422, "query/cursor"),
        ({"cursor": "REF:29", "shard": "1/2"}, 422, "query/cursor"),
        ({"cursor": "REF:31", "shard": "0/2"}, 422, "query/cursor"),
        ({"cursor": "REF:-1"}, 422, "query/cursor"),
        ({"cursor": "REF"}, 422, "query/cursor"),
        ({"cursor": "emb_other:3"}, 409, "query/cursor"),
        ({"limit": 0}, 422, "query/limit"),
        ({"limit": "many"}, 422, "query/limit"),
    ],
)
def test_places_there_are_not(
    client: TestClient, numbered: str, params: dict[str, Any], status: int, pointer: str
) -> None:
    asked = {name: value.replace("REF", numbered) if name == "cursor" else value for name, value in params.items()}
    told = problem(client.get(f"/v1/embeddings/{numbered}/vectors", params=asked), status)
    assert told["errors"][0]["pointer"] == pointer


def test_a_switched_alias_does_not_mix_sets(client: TestClient, numbered: str, named: str) -> None:
    url = "/v1/embeddings/latest/vectors"
    assert problem(client.get(url), 404)["code"] == "not_found"
    client.put("/v1/aliases/latest", json={"embedding": numbered})
    cursor = client.get(url, params={"limit": 3}).headers["x-next-cursor"]
    assert cursor == f"{numbered}:3"
    client.put("/v1/aliases/latest", json={"embedding": named})
    assert "another embedding set" in problem(client.get(url, params={"cursor": cursor}), 409)["detail"]
    assert fetched(client, numbered, cursor=cursor).headers["x-cursor"] == cursor


@pytest.mark.parametrize("accept", [ARROW, PARQUET, LINES])
def test_memory_does_not_grow_with_the_set(home: Path, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    """Of a set of a thousand chunks, no part is larger than a few."""
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 64 * 4 * 8)
    path = home / f"many-{accept.replace('/', '-')}"
    made = EmbeddingSet(write_set(path, np.random.default_rng(0).random((64_000, 8), dtype=np.float32)))
    page = bulk.page_of("emb_x", made.nodes, "0/1", None, None)
    sizes = [len(part) for part in bulk.FORMATS[accept](made, page)]
    groups = 1000 if accept != PARQUET else 1000 / bulk.ROW_GROUP_CHUNKS
    assert groups <= len(sizes) <= groups + 2
    # A Parquet footer, which comes last, says of every row group where it is.
    assert max(sizes[:-1]) <= 40_000
    assert sizes[-1] <= 100_000


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("accept", [ARROW, PARQUET, LINES])
def test_a_client_that_leaves_leaves_nothing_open(
    tmp_path: Path, vectors: np.ndarray, accept: str, spec_version: str
) -> None:
    """Both ways that a server tells of it: a message, or an error of sending."""
    app = create_app(settings(tmp_path / "home", max_exports=1))
    try:
        ref = add_set(app.state.store, write_set(tmp_path / "set", vectors))
        held = weakref.ref(app.state.embeddings.get(ref)[1])

        async def left_after(chunks: int) -> int:
            """How many chunks were sent before the client was gone."""
            sent, gone = 0, asyncio.Event()

            async def receive() -> dict[str, Any]:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message: dict[str, Any]) -> None:
                nonlocal sent
                if message["type"] == "http.response.start":
                    assert message["status"] == 200
                    return
                sent += 1
                if sent >= chunks:
                    gone.set()
                    if spec_version == "2.4":
                        raise OSError("the client is gone")

            scope = {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": spec_version},
                "method": "GET",
                "path": f"/v1/embeddings/{ref}/vectors",
                "raw_path": b"",
                "query_string": b"",
                "headers": [(b"accept", accept.encode())],
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 2),
                "scheme": "http",
                "http_version": "1.1",
                "root_path": "",
            }
            await app(scope, receive, send)
            return sent

        for chunks in (1, 2):
            # One export at a time: the second is answered only if the first left its place.
            assert chunks <= asyncio.run(left_after(chunks)) <= 4
        app.state.embeddings.forget(ref)
        gc.collect()
        assert held() is None
    finally:
        app.state.store.close()


def test_a_full_server_says_so_and_is_free_again(client: TestClient, numbered: str, home: Path) -> None:
    turns: Turns = client.app.state.exports
    url = f"/v1/embeddings/{numbered}/vectors"
    with turns.turn():
        response = client.get(url)
        told = problem(response, 429)
        assert "at most 1 exports at a time (setting max_exports)" in told["detail"]
        assert (told["retryable"], response.headers["retry-after"]) == (True, "5")
    for _ in range(3):
        assert client.get(url).status_code == 200
