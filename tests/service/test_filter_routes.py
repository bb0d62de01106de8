"""Filters over HTTP, from tables that are ingested with attributes to neighbours chosen by them."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from embedding_fixtures import QUICK_MAP, settings, write_set
from fastapi.testclient import TestClient
from filter_cases import NODES, fulfils, node_values, write_tables

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index

ARROW = "application/vnd.apache.arrow.stream"
AGE = {"key": "age", "is_null": False}
WANTED = {"must": [{"key": "age", "range": {"gte": -2}}], "must_not": [{"key": "city", "match": {"any": ["Ankara"]}}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filters")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    (folder / "data").mkdir()
    app = create_app(settings(folder / "home", data_roots=[folder / "data"], poll_s=0.1))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def graph(client: TestClient, folder: Path) -> dict[str, Any]:
    """A graph ingested over HTTP, with attributes."""
    made = client.post("/v1/graphs", json={"source": write_tables(folder / "data")})
    assert made.status_code == 201, made.text
    job = client.post("/v1/jobs", json={"kind": "ingest", "graph": made.json()["id"]})
    assert job.status_code == 201, job.text
    while True:
        told = client.get(f"/v1/jobs/{job.json()['id']}").json()
        if told["status"] in {"succeeded", "failed"}:
            assert told["status"] == "succeeded", told["error"]
            graph: dict[str, Any] = client.get(f"/v1/graphs/{made.json()['id']}").json()
            return graph
        time.sleep(0.1)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((NODES, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def ref(client: TestClient, folder: Path, graph: dict[str, Any], vectors: np.ndarray) -> str:
    content = read_manifest(Path(graph["bundle"]), BUNDLE)["content_hash"]
    path = write_set(folder / "data" / "set", vectors, content=content)
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    made = client.post("/v1/embeddings", json={"path": "set", "graph": graph["id"]})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def expected(vectors: np.ndarray, node: int, wanted: dict[str, Any], k: int) -> list[str]:
    wide = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    order = np.argsort(-(wide @ wide[node]), kind="stable").tolist()
    return [str(row) for row in order if row != node and fulfils(node_values(row), wanted)][:k]


def ask(client: TestClient, ref: str, wanted: Any, **body: Any) -> Any:
    return client.post(f"/v1/embeddings/{ref}/neighbors", json={"queries": [{"id": 5}], "filter": wanted, **body})


@pytest.mark.parametrize(
    "wanted",
    [
        WANTED,
        {"should": [{"key": "member", "match": {"value": True}}, {"key": "height", "is_null": True}]},
        {"must": [{"key": "label", "match": {"value": "2"}}, {"key": "degree", "range": {"gt": 1, "lte": 3}}]},
        {"must": [{"should": [{"key": "height", "range": {"lt": 0.5}}, {"must_not": [AGE]}]}]},
        {},
    ],
)
def test_neighbours_are_those_that_the_tables_say(
    client: TestClient, ref: str, vectors: np.ndarray, wanted: dict[str, Any]
) -> None:
    [answer] = ask(client, ref, wanted, k=8).json()["answers"]
    found = expected(vectors, 5, wanted, 8)
    assert [one["id"] for one in answer["results"]] == found
    assert (answer["returned"], answer["complete"]) == (len(found), len(found) == 8)
    assert (answer["strategy"], answer["exact"]) == ("exact_filtered", True)


def test_fewer_matches_than_asked_for_are_told(client: TestClient, ref: str) -> None:
    wanted = {"must": [{"key": "age", "match": {"value": 2**63 - 1}}]}
    [answer] = ask(client, ref, wanted).json()["answers"]
    assert [one["id"] for one in answer["results"]] == ["2"]
    assert (answer["returned"], answer["complete"]) == (1, False)
    [none] = ask(client, ref, wanted, exclude={"ids": [2]}).json()["answers"]
    assert (none["results"], none["returned"], none["complete"]) == ([], 0, False)


def test_arrow_both_ways(client: TestClient, ref: str, vectors: np.ndarray) -> None:
    request = json.dumps({"k": 4, "filter": WANTED})
    batch = pa.record_batch({"id": pa.array([5, 9])}).replace_schema_metadata({"request": request})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    headers = {"Content-Type": ARROW, "Accept": ARROW}
    answer = client.post(f"/v1/embeddings/{ref}/neighbors", content=sink.getvalue(), headers=headers)
    assert answer.status_code == 200, answer.text
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["id"].to_pylist() == expected(vectors, 5, WANTED, 4) + expected(vectors, 9, WANTED, 4)
    nobody = {"must": [{"key": "age", "match": {"value": 777}}]}
    answer = client.post(
        f"/v1/embeddings/{ref}/neighbors",
        json={"queries": [{"id": 5}, {"vector": [1.0] * 6}], "filter": nobody},
        headers={"Accept": ARROW},
    )
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0


@pytest.mark.parametrize(
    ("wanted", "pointer", "code"),
    [
        ({"must": [{"key": "nobody", "is_null": True}]}, "/filter/must/0/key", "input_invalid"),
        ({"should": [AGE, {"key": "age", "match": {"value": "x"}}]}, "/filter/should/1/match/value", "input_invalid"),
        ({"must": [{"key": "city", "range": {"lt": 1}}]}, "/filter/must/0/range", "input_invalid"),
        ({"must": [{"key": "age"}]}, "/filter/must/0", "validation_failed"),
        ({"must": [{"is_null": True}]}, "/filter/must/0/key", "validation_failed"),
        ({"must": [AGE | {"match": {"value": 1}}]}, "/filter/must/0", "validation_failed"),
        ({"must": [{"key": "age", "match": {}}]}, "/filter/must/0/match", "validation_failed"),
        ({"must": [{"key": "age", "match": {"any": []}}]}, "/filter/must/0/match/any", "validation_failed"),
        ({"must": [{"key": "age", "range": {}}]}, "/filter/must/0/range", "validation_failed"),
        ({"must": [{"key": "age", "range": {"gt": True}}]}, "/filter/must/0/range/gt", "validation_failed"),
        ({"must": [{"key": "age", "is_null": 1}]}, "/filter/must/0/is_null", "validation_failed"),
        ({"must": [AGE], "most": []}, "/filter/most", "validation_failed"),
        ({"must": [7]}, "/filter/must/0", "validation_failed"),
        ({"must": [AGE] * 65}, "/filter/must", "validation_failed"),
        ({"must": [AGE] * 33, "should": [AGE] * 33}, "/filter", "validation_failed"),
        ({"must": [{"key": "age", "match": {"any": [1] * 1001}}]}, "/filter/must/0/match/any", "validation_failed"),
        ({"must": [{"must": [{"must": [{"must": [{"must": [AGE]}]}]}]}]}, "/filter", "validation_failed"),
        ([], "/filter", "validation_failed"),
    ],
)
def test_filters_that_cannot_be_meant(client: TestClient, ref: str, wanted: Any, pointer: str, code: str) -> None:
    answer = ask(client, ref, wanted)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["code"] == code
    assert {fault["pointer"] for fault in told["errors"]} == {pointer}


def test_an_unknown_attribute_is_told_which_there_are(client: TestClient, ref: str) -> None:
    told = ask(client, ref, {"must": [{"key": "secret-word", "is_null": True}]}).json()
    assert "one of degree, label, city, age, height, member" in told["detail"]
    assert "secret-word" not in json.dumps(told)


def test_a_filter_nested_without_end_is_refused(client: TestClient, ref: str) -> None:
    text = '{"must": [' * 5000 + "]}" * 5000
    body = '{"queries": [{"id": 5}], "filter": %s}' % text  # noqa: UP031 - braces
    answer = client.post(f"/v1/embeddings/{ref}/neighbors", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}


def test_without_the_graph_a_filter_is_not_guessed(
    client: TestClient, folder: Path, graph: dict[str, Any], vectors: np.ndarray
) -> None:
    shutil.copytree(graph["bundle"], folder / "data" / "copy")
    copy = client.post("/v1/graphs", json={"bundle": "copy"}).json()["id"]
    content = read_manifest(Path(graph["bundle"]), BUNDLE)["content_hash"]
    write_set(folder / "data" / "bereft", vectors, content=content)
    ref = client.post("/v1/embeddings", json={"path": "bereft", "graph": copy}).json()["id"]
    shutil.rmtree(folder / "data" / "copy")
    answer = ask(client, ref, WANTED)
    assert (answer.status_code, answer.json()["code"]) == (409, "artifact_invalid")
    assert ask(client, ref, None).status_code == 200
