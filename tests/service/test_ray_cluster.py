"""Jobs on a real Ray cluster of this machine: one quick test for every change, the rest by hand (slow)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from ray_cluster import RayCluster
from service_harness import (
    Server,
    add_graph,
    completed,
    job_of,
    processes_of,
    running_app,
    settings_in,
    statuses,
    submit,
    wait_for,
)

from preprocessing.errors import UsageError
from service.api.app import create_app
from service.settings import ServiceSettings

LONG_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as cluster:
        yield cluster


def on(cluster: RayCluster, folder: Path, **changes: Any) -> ServiceSettings:
    return settings_in(folder, **{"ray_address": cluster.address, "max_running": 3, "cancel_grace_s": 5.0} | changes)


def ended(client: Any, job: str) -> dict[str, Any]:
    return dict(wait_for(lambda: over(client, job), f"for the end of {job}", LONG_S))


def over(client: Any, job: str) -> dict[str, Any] | None:
    found = job_of(client, job)
    return found if found["status"] in {"succeeded", "failed", "cancelled"} else None


def test_jobs_run_fail_and_are_refused_on_a_cluster(cluster: RayCluster, tmp_path: Path) -> None:
    settings = on(cluster, tmp_path)
    with running_app(settings) as client:
        graphs = [add_graph(client, tmp_path, name) for name in "ab"]
        good = submit(client, graphs[0], ("one", {}), ("two", {"steps": 2}))
        wrong = {"code": "input_invalid", "message": "the table is empty", "retryable": False}
        bad = submit(client, graphs[1], ("one", {"error": wrong, "exit": 3, "noise": 5}))
        found = ended(client, good)
        assert (found["status"], found["attempt"], found["error"]) == ("succeeded", 1, None)
        assert completed(settings, good) == [f"{good} one", f"{good} two"]
        assert "two begins" in client.get(f"/v1/jobs/{good}/logs").json()["lines"]
        error = ended(client, bad)["error"]
        assert (error["code"], error["phase"], error["log_tail"]) == ("input_invalid", "one", ["one begins....."])
        body = {"kind": "pipeline", "graph": graphs[0], "resources": {"cores": 3, "memory_bytes": 0, "disk_bytes": 0}}
        refused = client.post("/v1/jobs", json=body)
        assert refused.status_code == 422
        assert refused.json()["code"] == "resources_unavailable"
        assert "needs 3 cores and the cluster has 2" in refused.json()["detail"]
        assert client.get("/readyz").json()["cluster"] is True


@pytest.mark.slow
def test_a_cancel_reaches_the_stage_once_and_a_stubborn_one_is_ended(cluster: RayCluster, tmp_path: Path) -> None:
    with running_app(on(cluster, tmp_path)) as client:
        mild, stubborn = (
            submit(
                client,
                add_graph(client, tmp_path, name),
                ("one", {"seconds": 60, "count": str(tmp_path / name)} | what),
            )
            for name, what in (("mild", {}), ("stubborn", {"stubborn": True, "stray": True}))
        )
        for job in (mild, stubborn):
            wait_for(lambda job=job: job_of(client, job)["progress"], "for a start", LONG_S)
            assert client.post(f"/v1/jobs/{job}/cancel").status_code == 202
        for job in (mild, stubborn):
            assert statuses(ended(client, job)) == ["queued", "running", "cancelling", "cancelled"]
            wait_for(lambda job=job: not processes_of(job), "for its processes' end")


@pytest.mark.slow
def test_a_job_outlives_its_server_and_is_found_again(cluster: RayCluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Server(on(cluster, tmp_path)) as server:
        job = submit(server.client, add_graph(server.client, tmp_path), ("one", {"gate": str(gate)}), ("two", {}))
        wait_for(lambda: job_of(server.client, job)["progress"], "for a start", LONG_S)
        server.kill(signal.SIGTERM)
        with pytest.raises(UsageError, match="run on a Ray cluster"):
            create_app(server.settings.model_copy(update={"ray_address": None})).state.scheduler.acquire()
        server.start()
        server.kill(signal.SIGKILL)
        server.start()
        gate.touch()
        found = ended(server.client, job)
        assert (found["status"], found["attempt"]) == ("succeeded", 1)
        assert completed(server.settings, job) == [f"{job} one", f"{job} two"]


@pytest.mark.slow
def test_what_a_killed_runner_leaves_is_ended_and_the_job_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = on(cluster, tmp_path)
    with running_app(settings) as client:
        stages = ("one", {}), ("two", {"gate": str(gate)})
        job = submit(client, add_graph(client, tmp_path), *stages)
        wait_for(lambda: job_of(client, job)["phase"] == "two", "for the second stage", LONG_S)
        runner = next(found for found in processes_of(job) if "service.jobs.runner" in found.cmdline())
        runner.kill()
        wait_for(lambda: job_of(client, job)["attempt"] == 2, "for another attempt", LONG_S)
        gate.touch()
        assert ended(client, job)["status"] == "succeeded"
        assert completed(settings, job) == [f"{job} one", f"{job} two"]


@pytest.mark.slow
def test_a_cluster_that_dies_is_waited_for_and_its_jobs_go_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with RayCluster() as cluster:
        settings = on(cluster, tmp_path)
        with running_app(settings) as client:
            graphs = [add_graph(client, tmp_path, name) for name in "ab"]
            job = submit(client, graphs[0], ("one", {}), ("two", {"gate": str(gate)}))
            wait_for(lambda: job_of(client, job)["phase"] == "two", "for the second stage", LONG_S)
            cluster.kill()
            wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
            assert client.get("/readyz").status_code == 200
            waiting = submit(client, graphs[1], ("one", {}))
            reason = wait_for(lambda: job_of(client, waiting)["waiting_for"])
            assert reason["code"] == "cluster"
            assert job_of(client, job)["status"] == "running"
            events = wait_for(lambda: retries(client, job), "for the loss to be noticed", 60.0)
            assert events[0]["data"]["error"]["code"] == "worker_lost"
            assert "Ray cluster" in events[0]["data"]["error"]["message"]
            cluster.start()
            gate.touch()
            assert ended(client, job)["status"] == "succeeded"
            assert ended(client, waiting)["status"] == "succeeded"
            assert completed(settings, job) == [f"{job} one", f"{job} two"]
            assert client.get("/readyz").json()["status"] == "ok"


def retries(client: Any, job: str) -> list[dict[str, Any]]:
    return [event for event in client.get(f"/v1/jobs/{job}/events").json()["items"] if event["event"] == "retry"]


@pytest.mark.slow
def test_a_cluster_that_asks_for_a_token(tmp_path: Path) -> None:
    with RayCluster(token="a-token-of-the-test") as cluster:
        with running_app(on(cluster, tmp_path)) as client:
            wait_for(lambda: client.get("/readyz").json()["cluster"] is False)
            graph = add_graph(client, tmp_path)
            refused = client.post("/v1/jobs", json={"kind": "pipeline", "graph": graph})
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        with running_app(on(cluster, tmp_path, ray_auth_token=cluster.token)) as client:
            assert ended(client, submit(client, graph, ("one", {})))["status"] == "succeeded"


@pytest.mark.slow
@pytest.mark.timeout(700)  # its kernels may have to be compiled
def test_real_stages_with_ray_workers_run_on_the_cluster(cluster: RayCluster, tmp_path: Path) -> None:
    """The runner reserves nothing, so that the workers find the CPUs; then a job on one machine reserves its own."""
    settings = on(cluster, tmp_path)
    rng = np.random.default_rng(0)
    ids = np.arange(60)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(60 * 8, dtype=np.float32)), 8)
    pq.write_table(pa.table({"id": ids, "pixels": pixels}), tmp_path / "data" / "nodes.parquet")
    ends = rng.integers(0, 60, size=(2, 200))
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), tmp_path / "data" / "edges.parquet")
    run = {"epochs": 2, "num_workers": 2, "device": "cpu"}
    train = {"encoder": {"layers": [16, 8], "predictor_hidden": 8}, "anchors": {"num_global": 16}, "run": run}
    with TestClient(create_app(settings)) as client:
        source = {"kind": "tables", "nodes": "nodes.parquet", "edges": "edges.parquet"}
        graph = client.post("/v1/graphs", json={"source": source}).json()["id"]
        body = {"kind": "pipeline", "graph": graph, "train": train, "evaluate": {"baselines": False}}
        body["preprocess"] = {"ppr": {"top_k": 4}, "num_workers": 1}
        answer = client.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        found = dict(wait_for(lambda: over(client, answer.json()["id"]), "for the pipeline", 540.0))
        assert found["status"] == "succeeded", (found["error"], client.get(f"/v1/jobs/{found['id']}/logs").text)
        again = client.post("/v1/jobs", json={"kind": "evaluate", "embedding": found["embedding"]})
        assert again.json()["resources"]["cores"] == 2
        assert ended(client, again.json()["id"])["status"] == "succeeded"
        reserved = httpx2.get(f"{cluster.address}/api/jobs/", trust_env=False).json()
        assert {item["metadata"]["RGRL_JOB"] for item in reserved} >= {found["id"], again.json()["id"]}
