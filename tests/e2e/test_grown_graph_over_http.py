"""A graph grows over HTTP: append, preprocess from the rows of before, embed by the encoder of before, the alias last;
what the jobs make is what the commands make, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR
from service.api.app import create_app
from service.settings import ServiceSettings

NODES, NEW = 400, 12


def rgrl(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "service.cli", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def run(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    while True:
        job: dict[str, Any] = client.get(f"/v1/jobs/{answer.json()['id']}").json()
        if job["status"] in {"succeeded", "failed"}:
            assert job["status"] == "succeeded", job["error"]
            return job
        time.sleep(0.2)


def tables(folder: Path) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((NODES + NEW, 6)).astype(np.float32)
    ends = rng.integers(0, NODES, (2, 1200))
    late = np.stack([rng.integers(NODES, NODES + NEW, 40), rng.integers(0, NODES + NEW, 40)])
    for name, rows, edges in (("old", slice(0, NODES), ends), ("new", slice(NODES, None), late)):
        ids = np.arange(NODES + NEW)[rows]
        columns = {"id": ids, "x": pa.FixedSizeListArray.from_arrays(pa.array(x[rows].ravel()), 6)}
        pq.write_table(pa.table(columns), folder / f"{name}-nodes.parquet")
        pq.write_table(pa.table({"source": edges[0], "target": edges[1]}), folder / f"{name}-edges.parquet")


def test_jobs_and_commands_make_the_same(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    tables(data)
    ppr = {"top_k": 8, "exact_arcs": 0}
    chosen = [f"--set=ppr.{name}={value}" for name, value in ppr.items()]
    rgrl("ingest", "--nodes", data / "old-nodes.parquet", "--edges", data / "old-edges.parquet", data / "before")
    rgrl("preprocess", data / "before", *chosen)
    small = ("--set=encoder.layers=[8,8]", "--set=run.epochs=2", "--set=anchors.num_global=32")
    rgrl("train", data / "before", data / "set", *small)
    new = ("--nodes", data / "new-nodes.parquet", "--edges", data / "new-edges.parquet")
    rgrl("append", data / "before", data / "after", *new)
    rgrl("preprocess", data / "after", "--from", data / "before", *chosen)
    rgrl("embed", data / "set", data / "after", data / "set-after")

    settings = ServiceSettings(home=tmp_path / "home", data_roots=[data], poll_s=0.1, log_level="error")
    with TestClient(create_app(settings)) as client:
        old = client.post("/v1/graphs", json={"bundle": "before"}).json()["id"]
        trained = client.post("/v1/embeddings", json={"path": "set", "graph": old}).json()["id"]
        client.put("/v1/aliases/live", json={"embedding": trained})
        source = {"nodes": "new-nodes.parquet", "edges": "new-edges.parquet"}
        grown = run(client, kind="append", graph=old, append={"source": source})["new_graph"]
        run(client, kind="preprocess", graph=grown, preprocess={"ppr": ppr}, previous={"graph": old})
        graph = client.get(f"/v1/graphs/{grown}").json()
        kept = [read_manifest(Path(path) / "ppr", PPR)["previous"] for path in (data / "after", graph["bundle"])]
        assert kept[0]["kept"] > 0
        assert kept[0] == kept[1]
        job = run(client, kind="embed", embedding="live", graph=grown, alias="live", index={"kind": "exact"})
        made = client.get("/v1/embeddings/live").json()
        assert (made["id"], made["graph"], made["index"]["index"]) == (job["embedding"], grown, "exact")
        assert graph["counts"]["nodes"] == NODES + NEW
        for here, there, names in (
            (data / "after", Path(graph["bundle"]), ("topology/indices.npy", "features/dense.npy", "ids.npy")),
            (data / "set-after", Path(made["path"]), ("vectors.npy", "ids.npy")),
        ):
            for name in names:
                assert (here / name).read_bytes() == (there / name).read_bytes(), name
        vector = client.get(f"/v1/embeddings/live/vectors/{NODES + 3}").json()["vector"]
        assert vector == np.load(data / "set-after" / "vectors.npy")[NODES + 3].tolist()
