"""Estimates of jobs on graphs that are not ingested yet, and what is refused by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_jobs_api import fake_jobs_api
from fastapi.testclient import TestClient
from service_harness import running_app, settings_in
from service_world import world

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.ingest import ingest
from preprocessing.ppr import preprocess
from preprocessing.stage import Emitter
from service.jobs.compiling import compile_seconds
from service.jobs.estimate import START, WEIGHT_BYTES
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index

NODES, EDGES = 2000, 12_000
FIGURES = ("memory_bytes", "disk_bytes", "seconds")


def write_tables(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    random = np.random.default_rng(5)
    ends = random.integers(0, NODES, (EDGES, 2))
    pq.write_table(pa.table({"source": ends[:, 0], "target": ends[:, 1]}), folder / "edges.parquet")
    vectors = pa.FixedSizeListArray.from_arrays(random.random(NODES * 32).astype(np.float32), 32)
    pq.write_table(pa.table({"id": np.arange(NODES), "vector": vectors}), folder / "nodes.parquet")
    return {"kind": "tables", "edges": str(folder / "edges.parquet"), "nodes": str(folder / "nodes.parquet")}


def register(client: TestClient, **body: Any) -> str:
    answer = client.post("/v1/graphs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def dry_run(client: TestClient, graph: str, **fields: Any) -> Any:
    answer = client.post("/v1/jobs?dry_run=true", json={"kind": "pipeline", "graph": graph, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["estimate"]


def test_files_tell_before_an_ingest_what_the_bundle_tells_after(tmp_path: Path) -> None:
    source = write_tables(tmp_path / "data" / "tables")
    ingest({"out": tmp_path / "data" / "bundle", "settings": {"source": source}}, Emitter("ingest"))
    counts = read_manifest(tmp_path / "data" / "bundle", BUNDLE)["counts"]
    with running_app(settings_in(tmp_path)) as client:
        before = dry_run(client, register(client, source=source))
        after = dry_run(client, register(client, bundle=str(tmp_path / "data" / "bundle")))
        alone = client.post("/v1/jobs?dry_run=true", json={"kind": "ingest", "graph": register(client, source=source)})
    assert before["basis"].startswith(
        f"by its source's files, not ingested yet: about {NODES:,} nodes, {2 * EDGES:,} arcs, 32"
    )
    assert after["basis"].startswith(f"{NODES:,} nodes, {counts['arcs']:,} arcs, 32")
    # Both count the same stages, and the first the ingest, which holds less than a training.
    assert before["memory_bytes"] == pytest.approx(after["memory_bytes"], rel=0.05)
    only = alone.json()["estimate"]
    for what in ("disk_bytes", "seconds"):
        assert before[what] == pytest.approx(after[what] + only[what], rel=0.05)
    assert all(0 < only[what] <= before[what] for what in FIGURES)


def test_what_an_earlier_job_made_with_the_same_settings_is_not_counted_again(tmp_path: Path) -> None:
    """By kinds of job: a pipeline's preprocess, by rows and by weights; a preprocess; an index, and its map."""
    bundle = tmp_path / "data" / "bundle"
    source = write_tables(tmp_path / "data" / "tables")
    ingest({"out": bundle, "settings": {"source": source}}, Emitter("ingest"))
    rate = {"preprocess": {"ppr": {"teleport": 0.3}}}
    weigh = {"preprocess": {"degree_weights": {"alpha": 0.3}}}
    with running_app(settings_in(tmp_path)) as client:
        graph = register(client, bundle=str(bundle))

        def asked(**fields: Any) -> Any:
            answer = client.post("/v1/jobs?dry_run=true", json={"graph": graph, **fields})
            assert answer.status_code == 200, answer.text
            return answer.json()

        fresh = {kind: asked(kind=kind) for kind in ("pipeline", "preprocess")}
        spec = fresh["pipeline"]["spec"]["preprocess"]
        preprocess({"bundle": bundle, "settings": spec}, Emitter("preprocess"))
        again = asked(kind="pipeline")
        others = asked(kind="pipeline", **rate), asked(kind="pipeline", **weigh)
        alone = asked(kind="preprocess", preprocess=spec)
    whole, rest = fresh["pipeline"]["estimate"], again["estimate"]
    part = fresh["preprocess"]["estimate"]
    assert rest["basis"] == whole["basis"] + "; there already: degree weights, ppr rows"
    assert (
        whole["disk_bytes"] - rest["disk_bytes"] == part["disk_bytes"] == fresh["pipeline"]["resources"]["bundle_bytes"]
    )
    start = START["preprocess"][1]
    assert whole["seconds"] - rest["seconds"] == pytest.approx(part["seconds"] - start, abs=0.11)
    assert again["resources"]["bundle_bytes"] == 0
    # Nothing but the start of its process.
    assert [alone["estimate"][what] for what in FIGURES] == [START["preprocess"][0] * 2**20, 0, round(start, 1)]
    # Other rows are made anew and weights kept, and the other way round.
    assert [other["resources"]["bundle_bytes"] for other in others] == [
        part["disk_bytes"] - WEIGHT_BYTES * NODES,
        WEIGHT_BYTES * NODES,
    ]


def test_compiling_is_counted_until_the_kernels_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tmp_path / "kernels" / "preprocessing_0123"
    kernels.mkdir(parents=True)
    with running_app(settings_in(tmp_path)) as client:
        graph = register(client, source=write_tables(tmp_path / "data" / "tables"))
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        usual = dry_run(client, graph)
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(kernels.parent))
        for compiled, seconds in (("", 49), ("topology", 46), ("push", 9)):
            (kernels / f"{compiled}._kernel-1.py311.nbi").touch()
            told = dry_run(client, graph)
            assert told["seconds"] - usual["seconds"] == pytest.approx(seconds, abs=0.01)
            assert told["basis"] == f"{usual['basis']}; kernels to compile first, about {seconds} s"
        (kernels / "sparse._kernel-1.py311.nbi").touch()
        assert dry_run(client, graph) == usual


def test_the_kernels_of_a_cluster_are_not_told_by_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "none"))
    assert compile_seconds(["train", "evaluate", "index"]) == 9
    assert compile_seconds(["preprocess", "train"], {"ppr_rows"}) == 9, "there are rows already"
    with fake_jobs_api() as api, running_app(settings_in(tmp_path, ray_address=api.address)) as client:
        small = {"resources": {"memory_bytes": 1000}}
        told = dry_run(client, register(client, source=write_tables(tmp_path / "data" / "tables")), **small)
    assert "compile" not in told["basis"]


def test_an_index_that_is_there_is_not_counted_again(tmp_path: Path) -> None:
    with world(tmp_path) as world_:
        build_index(tmp_path / "data" / "set", IndexSettings(kind="hnsw"), Emitter("index"))
        registered = world_.client.post("/v1/embeddings", json={"path": "set", "graph": world_.graph})

        def asked(**index: Any) -> Any:
            body = {"kind": "index", "embedding": registered.json()["id"], "index": {"kind": "hnsw", **index}}
            answer = world_.client.post("/v1/jobs?dry_run=true", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["estimate"]

        assert [asked()[what] for what in FIGURES] == [START["index"][0] * 2**20, 0, round(START["index"][1], 1)]
        assert asked()["basis"].endswith("; there already: knn index, projection")
        assert asked(links=7)["basis"].endswith("; there already: projection")
        assert asked(links=7)["disk_bytes"] > 0
        assert asked(projection={"method": "none"})["basis"].endswith("; there already: knn index")
        assert asked(projection={"method": "none"})["disk_bytes"] == 0


@pytest.mark.parametrize("dry", [True, False])
def test_a_graph_that_is_too_large_is_refused_before_it_is_ingested(tmp_path: Path, dry: bool) -> None:
    """Twenty million arcs in a file of a few kilobytes, for a server of 1 GiB."""
    same = pa.array(np.zeros(10_000_000, dtype=np.int64))
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"source": same, "target": same}), tmp_path / "data" / "edges.parquet")
    number = pa.array(np.zeros(1_000_000, dtype=np.int8))
    pq.write_table(pa.table({"id": number, "x": number}), tmp_path / "data" / "nodes.parquet")
    tables = {name: str(tmp_path / "data" / f"{name}.parquet") for name in ("edges", "nodes")}
    with running_app(settings_in(tmp_path, max_memory_bytes=2**30)) as client:
        graph = register(client, source={"kind": "tables", **tables})
        body: dict[str, Any] = {"kind": "pipeline", "graph": graph, "train": {"batch": {"mode": "full"}}}
        answer = client.post("/v1/jobs", params={"dry_run": dry}, json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "resources_unavailable")
        assert problem["errors"][0]["pointer"] == "/resources/memory_bytes"
        need, unit = problem["detail"].split("needs ")[1].split()[:2]
        # Two networks' layers of 256 and 128 numbers of four bytes are not all of it.
        assert (unit, float(need) * 2**30 > 2 * 1_000_000 * (256 + 128) * 4) == ("GiB", True)
        assert f"needs {need} GiB of memory and this server has 1 GiB" in problem["detail"]
        assert "train.batch" in problem["remedy"]
        assert client.get("/v1/jobs").json()["items"] == []
        # Who knows better may say so.
        asked = {"memory_bytes": 2**30, "disk_bytes": 0}
        answer = client.post("/v1/jobs", params={"dry_run": dry}, json=body | {"resources": asked})
        assert answer.status_code == (200 if dry else 201)


def test_files_that_may_not_be_looked_at_any_more_tell_nothing(tmp_path: Path) -> None:
    source = write_tables(tmp_path / "data" / "tables")
    outside = write_tables(tmp_path / "elsewhere")
    with running_app(settings_in(tmp_path)) as client:
        graph = register(client, source=source)
        assert dry_run(client, graph)["memory_bytes"] > 0
        Path(source["nodes"]).unlink()
        Path(source["nodes"]).symlink_to(outside["nodes"])
        assert [dry_run(client, graph)[what] for what in FIGURES] == [None] * 3
        Path(source["nodes"]).unlink()
        assert [dry_run(client, graph)[what] for what in FIGURES] == [None] * 3
