"""Files of a set that were damaged where they lie: an answer that says so, and never a wrong one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import QUICK_MAP, add_set, settings, write_bundle, write_set
from fastapi.testclient import TestClient

from preprocessing.artifact import read_manifest
from preprocessing.stage import Emitter
from service.api.app import create_app
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.store import Store
from service.store.graphs import graph_ready
from service.verified import LOOK_S

NODES, DIM = 60, 4
FILES = ("manifest.json", "vectors.npy", "ids.npy", "index/manifest.json", "index/index.faiss")
GRAPH = ("manifest.json", "topology/indptr.npy", "topology/indices.npy")


def replaced(file: Path, content: bytes) -> None:
    """Under a new inode, as a copy or a restore leaves it: a mapped file cannot shrink below its readers."""
    new = file.with_name("new")
    new.write_bytes(content)
    new.replace(file)


def asked(folder: Path, set_file: str | None, graph_file: str | None, change: object) -> list:
    vectors = np.random.default_rng(1).standard_normal((NODES, DIM)).astype(np.float32)
    content = write_bundle(folder / "graph", NODES, [(node, (node + 1) % NODES) for node in range(NODES)])
    path = write_set(folder / "set", vectors, content=content)
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    app = create_app(settings(folder / "home"))
    app.state.scheduler.start = lambda: None
    store: Store = app.state.store
    ref = add_set(store, path, folder / "graph")
    file = path / set_file if set_file else folder / "graph" / str(graph_file)
    replaced(file, change(file.read_bytes()))  # type: ignore[operator]
    with TestClient(app, raise_server_exceptions=False) as client:
        root = f"/v1/embeddings/{ref}"
        near = {"queries": [{"id": 3}], "k": 5, "exclude": {"connected": True}}
        answers = [client.get(f"{root}/vectors/3"), client.post(f"{root}/neighbors", json=near)]
    if answers[0].status_code == 200:
        assert np.allclose(answers[0].json()["vector"], vectors[3])
    return answers


@pytest.mark.parametrize("set_file", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.97])
def test_a_file_cut_short(tmp_path: Path, set_file: str, share: float) -> None:
    answers = asked(tmp_path, set_file, None, lambda whole: whole[: int(share * len(whole))])
    assert answers[1].status_code == 409, answers[1].text
    assert answers[1].json()["code"] == "artifact_invalid"
    assert all(answer.status_code in {200, 409} for answer in answers)


@pytest.mark.parametrize("graph_file", GRAPH)
def test_a_graph_cut_short(tmp_path: Path, graph_file: str) -> None:
    answers = asked(tmp_path, None, graph_file, lambda whole: whole[: len(whole) // 2])
    assert [answer.status_code for answer in answers] == [200, 409]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("vectors.npy", b"'<f4'", b"'>f4'"),
        ("vectors.npy", b"'<f4'", b"'<f2'"),
        ("vectors.npy", b"{'descr'", b"\xbc'descr'"),
        ("vectors.npy", b", }", b", ("),
        ("vectors.npy", b"False", b"True "),
        ("ids.npy", b"(60,)", b"(59,)"),
        ("ids.npy", b"'<i8'", b"'<f8'"),
        ("ids.npy", b"'<i8'", b"'>i8'"),
        ("manifest.json", b'"counts"', b'"bounts"'),
        ("manifest.json", b'"nodes"', b'"modes"'),
        ("index/manifest.json", b'"index":', b'"undex":'),
        ("index/manifest.json", b'"files"', b'"miles"'),
    ],
)
def test_a_changed_byte_that_would_be_read_otherwise(tmp_path: Path, file: str, old: bytes, new: bytes) -> None:
    def change(whole: bytes) -> bytes:
        assert old in whole
        return whole.replace(old, new, 1)

    answers = asked(tmp_path, file, None, change)
    assert answers[1].status_code == 409, answers[1].text
    assert answers[1].json()["code"] == "artifact_invalid"


@pytest.mark.parametrize("place", [0, 9, 60, 400, -200])
def test_a_changed_index_is_refused(tmp_path: Path, place: int) -> None:
    """faiss would follow links that lead nowhere, which ends the process."""

    def change(whole: bytes) -> bytes:
        changed = bytearray(whole)
        changed[place] ^= 64
        return bytes(changed)

    assert [answer.status_code for answer in asked(tmp_path, "index/index.faiss", None, change)] == [200, 409]


@pytest.mark.parametrize("file", ["vectors.npy", "ids.arrow", "index/index.faiss"])
def test_a_file_that_is_written_to_while_it_is_served(tmp_path: Path, file: str) -> None:
    """Its numbers, or where strings begin: Arrow would read outside the file. Put back, it is served again."""
    vectors = np.random.default_rng(1).standard_normal((NODES, DIM)).astype(np.float32)
    content = write_bundle(tmp_path / "graph", NODES, [(0, 1)])
    path = write_set(tmp_path / "set", vectors, [f"node {number:02}" for number in range(NODES)], content)
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    app = create_app(settings(tmp_path / "home"))
    app.state.scheduler.start = lambda: None
    ref = add_set(app.state.store, path, tmp_path / "graph")
    whole = (path / file).read_bytes()
    with TestClient(app, raise_server_exceptions=False) as client:

        def ask() -> list[int]:
            near = client.post(f"/v1/embeddings/{ref}/neighbors", json={"queries": [{"id": "node 03"}], "k": 5})
            return [client.get(f"/v1/embeddings/{ref}/vectors/node 03").status_code, near.status_code]

        assert ask() == [200, 200]
        for place in range(len(whole) // 3, len(whole), len(whole) // 3):
            with (path / file).open("r+b") as handle:
                handle.seek(place)
                handle.write(bytes([whole[place] ^ 64]))
            assert ask() == [200 if file.startswith("index") else 409, 409]
            with (path / file).open("r+b") as handle:
                handle.write(whole)
            assert ask() == [200, 200]


def cut(file: Path) -> None:
    os.truncate(file, 100)


def flipped(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.seek(-5, os.SEEK_END)
        byte = handle.read(1)[0]
        handle.seek(-5, os.SEEK_END)
        handle.write(bytes([byte ^ 64]))


@pytest.mark.parametrize("change", [cut, flipped, Path.unlink])
@pytest.mark.parametrize("file", ["topology/indptr.npy", "topology/indices.npy", "ids.npy", "manifest.json"])
def test_a_graph_that_is_written_to_while_it_is_served(
    tmp_path: Path, file: str, change: Callable[[Path], None]
) -> None:
    """Cut short, its mapped arrays would end the process at the next reading."""
    vectors = np.random.default_rng(1).standard_normal((NODES, DIM)).astype(np.float32)
    content = write_bundle(tmp_path / "graph", NODES, [(node, (node + 1) % NODES) for node in range(NODES)])
    path = write_set(tmp_path / "set", vectors, content=content)
    app = create_app(settings(tmp_path / "home"))
    app.state.scheduler.start = lambda: None
    ref = add_set(app.state.store, path, tmp_path / "graph")
    graph = app.state.store.embedding(ref).graph
    with app.state.store.writing() as connection:
        graph_ready(connection, graph, read_manifest(tmp_path / "graph", "graph_bundle"))
    whole = (tmp_path / "graph" / file).read_bytes()
    with TestClient(app, raise_server_exceptions=False) as client:

        def ask(connected: bool) -> Any:
            body = {"queries": [{"id": 3}], "k": 5, "exclude": {"connected": connected}}
            return client.post(f"/v1/embeddings/{ref}/neighbors", json=body)

        def view() -> int:
            return client.get(f"/v1/graphs/{graph}/nodes/3").status_code

        before = [ask(connected).json() for connected in (False, True)]
        assert view() == 200
        for replacing in (False, True):
            change(tmp_path / "graph" / file)
            # What nobody can write to is looked at no more often.
            time.sleep(LOOK_S)
            if file != "manifest.json":
                assert ask(True).status_code == 409
                without = ask(False)
                assert without.status_code == 200
                assert all(near["connected"] is None for near in without.json()["answers"][0]["results"])
            assert view() == 409
            if replacing:
                replaced(tmp_path / "graph" / file, whole)
            else:
                (tmp_path / "graph" / file).write_bytes(whole)
            time.sleep(LOOK_S)
            assert [ask(connected).json() for connected in (False, True)] == before
            assert view() == 200
