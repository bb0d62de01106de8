"""Embedding sets made on the command line: what is checked before they are served, and that their files stay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import CONTENT, QUICK_MAP, settings, write_bundle, write_set
from fastapi.testclient import TestClient

from preprocessing.artifact import build
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.embedding_set import EMBEDDING_SET
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index

NODES, DIM = 40, 5
EDGES = [(node, (node + 1) % NODES) for node in range(NODES)]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((NODES, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sets")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    (folder / "data").mkdir()
    app = create_app(settings(folder / "home", data_roots=[folder / "data"]))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def content(folder: Path, client: TestClient) -> str:
    return write_bundle(folder / "data" / "bundle", NODES, EDGES)


@pytest.fixture(scope="module")
def graph(client: TestClient, content: str) -> str:
    return str(client.post("/v1/graphs", json={"bundle": "bundle"}).json()["id"])


def register(client: TestClient, graph: str, path: Path | str, **fields: Any) -> Any:
    return client.post("/v1/embeddings", json={"path": str(path), "graph": graph, **fields})


def test_a_set_is_served_where_it_lies_with_its_report_and_index(
    client: TestClient, folder: Path, graph: str, content: str, vectors: np.ndarray
) -> None:
    path = write_set(folder / "data" / "whole", vectors, content=content)
    (path / "report.json").write_text(json.dumps({"probe": {}, "summary": {"effective_rank": 4.5}}))
    index = build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    answer = register(client, graph, "whole", name="mine")
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/embeddings/{made['id']}"
    assert (made["name"], made["graph"], made["job"], made["path"]) == ("mine", graph, None, str(path))
    assert made["counts"] == {"nodes": NODES, "dim": DIM}
    assert made["report"] == {"report": str(path / "report.json"), "effective_rank": 4.5}
    assert made["index"] == index
    assert client.get(f"/v1/embeddings/{made['id']}").json() == made
    vector = client.get(f"/v1/embeddings/{made['id']}/vectors/7").json()["vector"]
    assert vector == vectors[7].tolist()
    [found] = client.post(f"/v1/embeddings/{made['id']}/neighbors", json={"queries": [{"id": 7}], "k": 3}).json()[
        "answers"
    ]
    assert (found["strategy"], {n["connected"] for n in found["results"]} <= {True, False}) == ("hnsw", True)
    assert client.put("/v1/aliases/mine", json={"embedding": made["id"]}).status_code == 200


def test_once_more_brings_it_up_to_date_and_makes_no_second(
    client: TestClient, folder: Path, graph: str, content: str, vectors: np.ndarray
) -> None:
    path = write_set(folder / "data" / "twice", vectors, content=content)
    first = register(client, graph, path, name="n").json()
    assert (first["report"], first["index"]) == (None, None)
    build_index(path, IndexSettings(kind="exact", projection=QUICK_MAP), Emitter("index"))
    again = register(client, graph, path)
    assert again.status_code == 200
    assert again.json() == first | {"index": again.json()["index"]}
    assert again.json()["index"]["index"] == "exact"
    other = client.post("/v1/graphs", json={"bundle": "bundle"}).json()["id"]
    refused = register(client, other, path)
    assert (refused.status_code, first["id"] in refused.json()["detail"]) == (409, True)


def test_deleting_it_deletes_no_file(
    client: TestClient, folder: Path, graph: str, content: str, vectors: np.ndarray
) -> None:
    path = write_set(folder / "data" / "kept", vectors, content=content)
    before = sorted(file.relative_to(path) for file in path.rglob("*"))
    made = register(client, graph, path).json()["id"]
    assert client.delete(f"/v1/embeddings/{made}").status_code == 204
    assert client.get(f"/v1/embeddings/{made}").status_code == 404
    assert sorted(file.relative_to(path) for file in path.rglob("*")) == before
    assert register(client, graph, path).status_code == 201


def test_a_graph_with_a_registered_set_is_in_use(
    client: TestClient, folder: Path, content: str, vectors: np.ndarray
) -> None:
    path = write_set(folder / "data" / "using", vectors, content=content)
    graph = client.post("/v1/graphs", json={"bundle": "bundle"}).json()["id"]
    made = register(client, graph, path).json()["id"]
    assert client.delete(f"/v1/graphs/{graph}").status_code == 409
    assert client.delete(f"/v1/embeddings/{made}").status_code == 204
    assert client.delete(f"/v1/graphs/{graph}").status_code == 204


def broken(folder: Path, vectors: np.ndarray, content: str, fault: str) -> Path:
    """A set with one thing wrong."""
    path = folder / "data" / fault
    if fault == "not finite":
        vectors = vectors.copy()
        vectors[11, 2] = np.nan
    if fault == "fewer ids":
        with build(path, EMBEDDING_SET, "test") as making:
            np.save(making.path / "vectors.npy", vectors)
            np.save(making.path / "ids.npy", np.arange(NODES - 1))
            bundle = {"path": "", "content_hash": content}
            making.publish({"counts": {"nodes": NODES, "dim": DIM}, "bundle": bundle})
        return path
    write_set(path, vectors, content=content)
    match fault:
        case "changed vector":
            np.save(path / "vectors.npy", vectors + 1)
        case "file gone":
            (path / "ids.npy").unlink()
        case "no manifest":
            (path / "manifest.json").unlink()
        case "no counts":
            manifest = json.loads((path / "manifest.json").read_text())
            del manifest["counts"]
            (path / "manifest.json").write_text(json.dumps(manifest))
        case "way out by name":
            manifest = json.loads((path / "manifest.json").read_text())
            manifest["files"]["../whole/vectors.npy"] = manifest["files"]["vectors.npy"]
            (path / "manifest.json").write_text(json.dumps(manifest))
        case "report is no report":
            (path / "report.json").write_text("[1]")
        case "index of another set":
            other = write_set(folder / "data" / "its owner", vectors * 2, content=content)
            build_index(other, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
            shutil.copytree(other / "index", path / "index")
        case "index without its file":
            build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
            (path / "index" / "index.faiss").unlink()
    return path


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("not finite", "node 11"),
        ("fewer ids", "not as many as the vectors"),
        ("changed vector", "vectors.npy"),
        ("file gone", "ids.npy"),
        ("no manifest", "no whole embedding set"),
        ("no counts", "damaged"),
        ("way out by name", "vectors.npy is missing"),
        ("report is no report", "report.json"),
        ("index of another set", "other vectors"),
        ("index without its file", "index in the set"),
    ],
)
def test_a_set_with_a_fault_is_refused(
    client: TestClient, folder: Path, graph: str, content: str, vectors: np.ndarray, fault: str, told: str
) -> None:
    before = client.get("/v1/embeddings").json()
    answer = register(client, graph, broken(folder, vectors, content, fault))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/path"
    assert told in answer.json()["detail"]
    assert client.get("/v1/embeddings").json() == before


def test_a_set_of_another_graph_is_refused(client: TestClient, folder: Path, graph: str, vectors: np.ndarray) -> None:
    answer = register(client, graph, write_set(folder / "data" / "elsewhere", vectors, content=CONTENT))
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "another graph" in answer.json()["detail"]


def test_paths_and_graphs_that_cannot_be_meant(
    client: TestClient, folder: Path, graph: str, content: str, vectors: np.ndarray
) -> None:
    outside = write_set(folder / "outside", vectors, content=content)
    assert register(client, graph, outside).status_code == 403
    linked = write_set(folder / "data" / "linked", vectors, content=content)
    (linked / "model").mkdir()
    (linked / "model" / "config.json").symlink_to(outside / "manifest.json")
    answer = register(client, graph, linked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (403, "/path")
    assert register(client, "graph_0", linked).status_code == 404
    assert register(client, graph, "nothing").status_code == 422
    (folder / "data" / "g.npz").touch()
    source = client.post("/v1/graphs", json={"source": {"kind": "npz", "path": "g.npz"}}).json()["id"]
    assert register(client, source, linked).status_code == 409
    for body in (
        {"path": "x"},
        {"graph": graph},
        {"path": "x", "graph": graph, "colour": 1},
        {"path": 3, "graph": "g"},
    ):
        assert client.post("/v1/embeddings", json=body).status_code == 422


def test_a_reading_key_registers_nothing(folder: Path) -> None:
    app = create_app(settings(folder / "locked", data_roots=[folder / "data"]))
    with TestClient(app) as client:
        _, token = app.state.store.create_key("reader", ["read"])
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.post("/v1/embeddings", json={"path": "whole", "graph": "graph_0"}, headers=headers)
        assert answer.status_code == 403
