"""Lookups and neighbours that are asked and answered in Arrow, and streams that no one should send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.arrow_bodies import read_body
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index

ARROW = "application/vnd.apache.arrow.stream"
NODES, DIM = 50, 6


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((NODES, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    with TestClient(create_app(settings(home, max_k=20, max_queries=8, max_lookup_ids_arrow=60))) as client:
        store = client.app.state.store  # type: ignore[attr-defined]
        content = write_bundle(home / "bundle", NODES, [(node, (node + 1) % NODES) for node in range(NODES)])
        path = write_set(home / "embeddings" / "numbered", vectors, content=content)
        build_index(path, IndexSettings(kind="hnsw", effort=200, projection=QUICK_MAP), Emitter("index"))
        store.put_alias("numbered", add_set(store, path, home / "bundle"))
        names = [f"n{row:03}" for row in range(NODES)]
        named = write_set(home / "embeddings" / "named", vectors, names)
        store.put_alias("named", add_set(store, named))
        yield client


def stream(batches: int = 1, metadata: dict[str, str] | None = None, options: Any = None, **columns: Any) -> bytes:
    batch = pa.record_batch(columns).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def ask(client: TestClient, path: str, body: bytes, accept: str = ARROW) -> Any:
    headers = {"Content-Type": ARROW, "Accept": accept}
    return client.post(f"/v1/embeddings/{path}", content=body, headers=headers)


def table(response: Any) -> pa.Table:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return pa.ipc.open_stream(response.content).read_all()


def refused(response: Any) -> dict[str, Any]:
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return dict(response.json())


@pytest.mark.parametrize(
    "ids",
    [pa.array([7, 3, 99, 7]), pa.array(["7", "3", "99", "7"]), pa.array([7, 3, 99, 7], pa.uint16())],
)
def test_a_lookup_is_the_same_whatever_it_is_written_in(client: TestClient, vectors: np.ndarray, ids: Any) -> None:
    spoken = client.post("/v1/embeddings/numbered/lookup", json={"ids": [7, 3, 99, 7]}).json()
    assert ask(client, "numbered/lookup", stream(id=ids), "application/json").json() == spoken
    found = table(ask(client, "numbered/lookup", stream(id=ids)))
    assert found["id"].to_pylist() == ["7", "3", "99", "7"]
    assert found["found"].to_pylist() == [True, True, False, True]
    assert found["vector"].to_pylist() == [item["vector"] for item in spoken["items"]]
    assert found.schema.metadata[b"embedding"].decode() == spoken["embedding"]


def test_strings_and_several_batches(client: TestClient, vectors: np.ndarray) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        ids = pa.array(["n004", "nobody", "n049"], kind)
        found = table(ask(client, "named/lookup", stream(batches=2, id=ids)))
        expected = [vectors[4].tolist(), None, vectors[49].tolist()]
        assert found["vector"].to_pylist() == expected * 2


def test_arrow_ids_have_their_limit(client: TestClient) -> None:
    told = refused(ask(client, "numbered/lookup", stream(id=pa.array(range(61)))))
    assert told["code"] == "limit_exceeded"
    assert "at most 60 ids" in told["detail"]


def test_neighbours_of_ids_and_of_vectors(client: TestClient, vectors: np.ndarray) -> None:
    shared = {"k": 4, "exclude": {"connected": True, "ids": [9]}}
    body = stream(id=pa.array([4, 8]), metadata={"request": json.dumps(shared)})
    queries = {"queries": [{"id": 4}, {"id": 8}], **shared}
    spoken = client.post("/v1/embeddings/numbered/neighbors", json=queries).json()
    assert ask(client, "numbered/neighbors", body, "application/json").json() == spoken
    compare(table(ask(client, "numbered/neighbors", body)), spoken)
    for kind in (pa.float32(), pa.float64()):
        given_vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors[:3].reshape(-1), kind), DIM)
        queries = {"queries": [{"vector": row.tolist()} for row in vectors[:3]]}
        spoken = client.post("/v1/embeddings/numbered/neighbors", json=queries).json()
        compare(table(ask(client, "numbered/neighbors", stream(vector=given_vectors))), spoken)


def compare(found: pa.Table, spoken: dict[str, Any]) -> None:
    flat = [
        {"query": number, "rank": rank, **result}
        for number, answer in enumerate(spoken["answers"])
        for rank, result in enumerate(answer["results"])
    ]
    assert found.to_pylist() == flat
    facts = [{name: value for name, value in answer.items() if name != "results"} for answer in spoken["answers"]]
    assert json.loads(found.schema.metadata[b"answers"]) == facts
    assert found.schema.metadata[b"embedding"].decode() == spoken["embedding"]


@pytest.mark.parametrize(
    ("metadata", "columns", "pointer"),
    [
        ({"request": '{"k": 0}'}, {"id": pa.array([1])}, "/k"),
        ({"request": '{"k": 21}'}, {"id": pa.array([1])}, "/k"),
        ({"request": '{"more": 1}'}, {"id": pa.array([1])}, "/more"),
        ({"request": '{"queries": []}'}, {"id": pa.array([1])}, ""),
        ({"request": "["}, {"id": pa.array([1])}, ""),
        ({"request": "[" * 9000}, {"id": pa.array([1])}, ""),
        ({"request": '{"exclude": {"connected": true}}'}, {"vector": [[1.0] * DIM]}, "/queries/0/vector"),
        (None, {"id": pa.array([1, 77])}, "/id/1"),
        (None, {"id": pa.array(range(9))}, "/queries"),
        (None, {"vector": [[1.0] * (DIM + 1)]}, "/vector"),
        (None, {"vector": [[1.0] * DIM, [0.0] * DIM]}, "/vector/1"),
        (None, {"vector": [[1.0] * (DIM - 1) + [float("nan")]]}, ""),
    ],
)
def test_neighbours_that_cannot_be_meant(
    client: TestClient, metadata: dict[str, str] | None, columns: dict[str, Any], pointer: str
) -> None:
    if "vector" in columns:
        rows = columns["vector"]
        columns = {"vector": pa.array(rows, pa.list_(pa.float32(), len(rows[0])))}
    told = refused(ask(client, "numbered/neighbors", stream(metadata=metadata, **columns)))
    assert told["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"node": pa.array([1])}, "named id"),
        ({"id": pa.array([1]), "more": pa.array([1])}, "one column"),
        ({"id": pa.array([1.5])}, "int64 or string"),
        ({"id": pa.array([[1]])}, "int64 or string"),
        ({"id": pa.array([1, None])}, "nulls"),
        ({"id": pa.array([], pa.int64())}, "no rows"),
        ({"id": pa.array([2**63], pa.uint64())}, "readable"),
        ({"id": pa.array(["a"]).dictionary_encode()}, "int64 or string"),
    ],
)
def test_streams_of_another_shape_say_what_is_expected(client: TestClient, columns: Any, word: str) -> None:
    told = refused(ask(client, "numbered/lookup", stream(**columns)))
    assert word in told["errors"][0]["detail"]


def test_compressed_buffers_are_refused_before_they_are_opened(client: TestClient) -> None:
    for codec in ("zstd", "lz4"):
        body = stream(id=pa.array([0] * 10_000_000), options=pa.ipc.IpcWriteOptions(compression=codec))
        assert len(body) < 2**20
        assert "compressed" in refused(ask(client, "numbered/lookup", body))["errors"][0]["detail"]


def test_text_that_is_none_is_no_crash(client: TestClient) -> None:
    broken = stream(id=pa.array(["abcd"])).replace(b"abcd", b"\xff\xfe\xfd\xfc")
    refused(ask(client, "named/lookup", broken))


def test_json_under_another_name_is_told_so(client: TestClient) -> None:
    answer = client.post("/v1/embeddings/numbered/lookup", content=b'{"ids": [1]}', headers={"Content-Type": "text/a"})
    assert "Content-Type" in refused(answer)["errors"][0]["detail"]


WHOLE = [
    stream(id=pa.array([3, 1, 2])),
    stream(batches=2, id=pa.array(["n001", "x"])),
    stream(vector=pa.array([[1.0] * DIM], pa.list_(pa.float32(), DIM)), metadata={"request": "{}"}),
]


@tried(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(WHOLE), st.data())
def test_damaged_streams_are_read_or_refused(whole: bytes, data: st.DataObject) -> None:
    """Any bytes: a column that holds what it says, or ``ValueError``; never a crash or another error."""
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        body = read_body(bytes(damaged), ("id", "vector"))
    except ValueError:
        return
    body.column.validate(full=True)
    assert len(body.column) > 0
    assert body.column.null_count == 0
