"""Tables to served neighbours through the real server: every stage, in its own process, over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

from preprocessing.artifact import verify
from service.client import Client, Event

IMAGES = 300
SETTINGS = {
    "preprocess": {"ppr": {"top_k": 8}},
    "train": {
        "encoder": {"layers": [32, 16], "predictor_hidden": 32},
        "anchors": {"num_global": 64},
        "run": {"epochs": 20},
    },
    "evaluate": {"splits": 3},
    "index": {"kind": "hnsw"},
}


@pytest.fixture(scope="module")
def edges() -> np.ndarray:
    digits = load_digits()
    return np.stack(kneighbors_graph(digits.data[:IMAGES], 5).nonzero(), axis=1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, edges: np.ndarray) -> Path:
    """Digits under names that sort otherwise than they were numbered, rows in no order."""
    folder = tmp_path_factory.mktemp("tables")
    digits = load_digits()
    order = np.random.default_rng(0).permutation(IMAGES)
    pixels = pa.FixedSizeListArray.from_arrays(
        pa.array((digits.data[order] / 16).astype("float32").reshape(-1)), digits.data.shape[1]
    )
    nodes = pa.table({"id": [name(n) for n in order], "pixels": pixels, "label": digits.target[order]})
    pq.write_table(nodes, folder / "nodes.parquet")
    ends = {"source": [name(n) for n in edges[:, 0]], "target": [name(n) for n in edges[:, 1]]}
    pq.write_table(pa.table(ends), folder / "edges.parquet")
    return folder


def name(number: int) -> str:
    return f"img-{number}"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Iterator[Client]:
    home = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--home", str(home), "--port", str(port), "--data-root", str(tables)]
    log_path = home / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "serve", *options],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, url, log_path)
        with Client(url) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).is_success:
                return
        except httpx2.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def run(client: Client, tables: Path) -> tuple[str, list[Event]]:
    """A pipeline job's embedding set and events."""
    source = {"kind": "tables", "nodes": str(tables / "nodes.parquet"), "edges": str(tables / "edges.parquet")}
    graph = client.register_graph(source, name="digits")
    events: list[Event] = []
    submitted = client.submit("pipeline", graph=graph.id, alias="live", **SETTINGS)
    job = client.wait(submitted.id, events.append)
    assert job.status == "succeeded", (job.error, client.logs(job.id))
    assert client.graph(graph.id).counts["nodes"] == IMAGES
    assert job.embedding is not None
    return job.embedding, events


def test_every_stage_reports_and_ends_in_order(run: tuple[str, list[Event]]) -> None:
    _, events = run
    stages = ["ingest", "preprocess", "train", "evaluate", "index"]
    assert [event.stage for event in events if event.event == "result"] == stages
    losses = [event.data["values"]["loss"] for event in events if (event.event, event.stage) == ("metrics", "train")]
    assert losses
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def test_the_artefacts_are_whole_and_measured(client: Client, run: tuple[str, list[Event]]) -> None:
    embedding = client.embedding("live")
    assert embedding.id == run[0]
    path = Path(embedding.path)
    verify(path, "embedding_set")
    verify(path / "index", "knn_index")
    assert embedding.counts == {"nodes": IMAGES, "dim": 16}
    assert embedding.report is not None
    assert set(embedding.report["test_accuracy"]) == {"rgrl", "raw_features", "ppr_smoothed", "random_encoder"}
    assert min(embedding.report["test_accuracy"].values()) > 0.3
    assert 1 < embedding.report["effective_rank"] <= 16
    assert embedding.index is not None
    assert embedding.index["recall"]["value"] > 0.95
    assert json.loads((path / "report.json").read_text())["probe"] is not None


def test_served_neighbours_are_brute_force_over_served_vectors(
    client: Client, run: tuple[str, list[Event]], edges: np.ndarray
) -> None:
    ref, _ = run
    names = [name(number) for number in range(IMAGES)]
    answer = client.lookup(ref, names)
    assert answer.found.all()
    unit = answer.vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    joined = np.eye(IMAGES, dtype=bool)
    joined[edges[:, 0], edges[:, 1]] = joined[edges[:, 1], edges[:, 0]] = True

    queries = [{"id": names[number]} for number in range(0, IMAGES, 7)]
    for exclude_connected in (False, True):
        answers = client.neighbors(ref, queries, 10, exclude_connected=exclude_connected, effort=IMAGES)
        for number, found in zip(range(0, IMAGES, 7), answers, strict=True):
            allowed = ~joined[number] if exclude_connected else np.arange(IMAGES) != number
            scores = np.where(allowed, cosines[number], -np.inf)
            best = np.sort(scores)[::-1][:10]
            rows = [names.index(result.id) for result in found.results]
            assert scores[rows] == pytest.approx(best, abs=1e-5)
            assert [result.score for result in found.results] == pytest.approx(best, abs=1e-5)
            assert [result.connected for result in found.results] == joined[number][rows].tolist()
            assert (found.returned, found.complete, found.strategy) == (10, True, "hnsw")


def test_an_edge_to_an_unknown_node_fails_the_job_and_leaves_nothing(client: Client, tables: Path) -> None:
    bad = tables / "bad-edges.parquet"
    pq.write_table(pa.table({"source": [name(0), name(1)], "target": [name(1), "img-none"]}), bad)
    source = {"kind": "tables", "nodes": str(tables / "nodes.parquet"), "edges": str(bad)}
    graph = client.register_graph(source, name="bad")
    job = client.wait(client.submit("pipeline", graph=graph.id).id)
    assert (job.status, job.phase, job.error["code"]) == ("failed", "ingest", "input_invalid")
    assert "img-none" in job.error["given"]
    assert job.error["remedy"]
    assert client.graph(graph.id).state == "registered"
    assert [path for path in Path(graph.bundle).parent.glob("*") if path.is_dir()] == []
