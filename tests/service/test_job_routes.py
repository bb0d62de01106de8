"""Submitting, reading and editing jobs over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_harness import (
    add_graph,
    job_of,
    running_app,
    settings_in,
    submit,
    tiny_bundle,
    wait_end,
    wait_for,
)

from service.jobs.estimate import FLOPS_PER_CORE

CUDA = "/train/run/device"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """A server whose scheduler is busy with one job that waits, so that others stay queued."""
    with running_app(settings_in(folder)) as client:
        submit(client, add_graph(client, folder, "blocker"), ("one", {"gate": str(folder / "never")}))
        yield client


@pytest.fixture(scope="module")
def graph(client: TestClient, folder: Path) -> str:
    return str(client.post("/v1/graphs", json={"bundle": str(tiny_bundle(folder / "data" / "b"))}).json()["id"])


def test_the_spec_is_resolved(client: TestClient, graph: str) -> None:
    body = {"kind": "pipeline", "graph": graph, "train": {"preset": "cs", "run": {"epochs": 7}}, "alias": "live"}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job["id"].startswith("job_")
    assert (job["status"], job["phase"], job["attempt"], job["alias"]) == ("queued", None, 0, "live")
    spec = job["spec"]
    assert set(spec) == {"preprocess", "train", "evaluate", "index"}
    assert (spec["train"]["run"]["epochs"], spec["train"]["anchors"]["num_local"]) == (7, 8)
    assert spec["preprocess"]["degree_weights"] == {"alpha": 0.9, "beta": 0.0}
    assert spec["preprocess"]["ppr"]["top_k"] == 16


def test_room_is_made_for_more_local_anchors_than_the_default(client: TestClient, graph: str) -> None:
    body = {"kind": "pipeline", "graph": graph, "train": {"anchors": {"num_local": 40}}}
    assert client.post("/v1/jobs", json=body).json()["spec"]["preprocess"]["ppr"]["top_k"] == 40


def test_an_objective_without_anchors_asks_for_no_room(client: TestClient, graph: str) -> None:
    train = {"objective": "bgrl", "anchors": {"num_local": 40}}
    body = {"kind": "pipeline", "graph": graph, "preprocess": {"ppr": {"top_k": 2}}, "train": train}
    assert client.post("/v1/jobs", json=body).json()["spec"]["preprocess"]["ppr"]["top_k"] == 2
    assert client.post("/v1/jobs", json={"kind": "train", "graph": graph, "train": train}).status_code == 201


def test_a_graph_without_features_needs_ppr_rows_for_any_objective(client: TestClient, folder: Path) -> None:
    bundle = tiny_bundle(folder / "data" / "bare", top_k=None)
    graph = client.post("/v1/graphs", json={"bundle": str(bundle)}).json()["id"]
    answer = client.post("/v1/jobs", json={"kind": "train", "graph": graph, "train": {"objective": "bgrl"}})
    assert answer.status_code == 409
    assert "no PPR rows" in answer.json()["detail"]


def test_a_dry_run_counts_whom_the_objective_compares_queries_with(client: TestClient, graph: str) -> None:
    """Six passes of 4 queries times 512 + 4 anchors, or 8 nodes of both views, at width 128."""
    plans = {}
    for objective in ("rgrl", "grace", "bgrl"):
        train = {"objective": objective, "anchors": {"num_local": 4}, "run": {"epochs": 2_000_000}}
        body = {"kind": "pipeline", "graph": graph, "train": train}
        plans[objective] = client.post("/v1/jobs?dry_run=true", json=body).json()["estimate"]
    rate = FLOPS_PER_CORE * len(os.sched_getaffinity(0))
    for objective, compared in (("rgrl", 516), ("grace", 8)):
        more = plans[objective]["seconds"] - plans["bgrl"]["seconds"]
        assert more == pytest.approx(2_000_000 * 2 * 6 * 4 * compared * 128 / rate, abs=0.2)
    assert plans["rgrl"]["memory_bytes"] - plans["bgrl"]["memory_bytes"] == 40 * 4 * 512
    assert plans["grace"]["memory_bytes"] == plans["bgrl"]["memory_bytes"]


def test_a_dry_run_counts_the_bank_and_its_copies(client: TestClient, graph: str) -> None:
    """4 nodes, two views, 128 columns of 2 bytes."""
    plans = {}
    for bank in ("none", "disk", "device"):
        train = {"anchors": {"num_local": 4, "bank": bank}, "batch": {"mode": "mini"}}
        body = {"kind": "pipeline", "graph": graph, "train": train}
        plans[bank] = client.post("/v1/jobs?dry_run=true", json=body).json()["estimate"]
    more = {
        bank: [plan[what] - plans["none"][what] for what in ("memory_bytes", "disk_bytes")]
        for bank, plan in plans.items()
    }
    assert more == {"none": [0, 0], "disk": [0, 3 * 4 * 2 * 128 * 2], "device": [4 * 2 * 128 * 2, 2 * 4 * 2 * 128 * 2]}


def test_degree_weights_that_are_given_stay(client: TestClient, graph: str) -> None:
    body = {"kind": "pipeline", "graph": graph, "preprocess": {"degree_weights": {"alpha": 0.5}}}
    assert client.post("/v1/jobs", json=body).json()["spec"]["preprocess"]["degree_weights"]["alpha"] == 0.5


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"kind": "fly"}, ""),
        ({"graph": "x"}, ""),
        ({"kind": "train"}, "/graph"),
        ({"kind": "evaluate"}, "/embedding"),
        ({"kind": "train", "graph": "GRAPH", "train": {"run": {"epochs": 0}}}, "/train/run/epochs"),
        ({"kind": "train", "graph": "GRAPH", "train": {"speed": 1}}, "/train/speed"),
        ({"kind": "train", "graph": "GRAPH", "train": {"preset": "mars"}}, "/train/preset"),
        ({"kind": "train", "graph": "GRAPH", "train": {"preset": ["cora"]}}, "/train/preset"),
        ({"kind": "train", "graph": "GRAPH", "train": {"anchors": {"num_local": 4}}}, "/train/anchors/num_local"),
        ({"kind": "train", "graph": "GRAPH", "labels": {"bad key": "x"}}, "/labels/bad key"),
        ({"kind": "train", "graph": "GRAPH", "labels": {str(i): "" for i in range(33)}}, "/labels"),
        ({"kind": "pipeline", "graph": "GRAPH", "alias": "emb_1"}, "/alias"),
        ({"kind": "pipeline", "graph": "GRAPH", "preprocess": {"ppr": {"top_k": 2}}}, ""),
        ({"kind": "pipeline", "graph": "GRAPH", "train": {"run": {"num_workers": 4096}}}, "/train/run/num_workers"),
        (
            {"kind": "pipeline", "graph": "GRAPH", "train": {"run": {"num_workers": 64, "device": "cuda"}}},
            "/train/run/device",
        ),
    ],
)
def test_bad_requests_name_the_field(client: TestClient, graph: str, body: dict[str, Any], pointer: str) -> None:
    answer = client.post("/v1/jobs", json=body | ({"graph": graph} if body.get("graph") == "GRAPH" else {}))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_more_workers_than_cores_says_have_and_need(client: TestClient, graph: str) -> None:
    need = len(os.sched_getaffinity(0)) + 1
    answer = client.post("/v1/jobs", json={"kind": "pipeline", "graph": graph, "train": {"run": {"num_workers": need}}})
    assert answer.json()["code"] == "resources_unavailable"
    assert f"{need} workers" in answer.json()["detail"]
    assert f"{need - 1} cores" in answer.json()["detail"]


def test_more_shards_at_a_time_than_cores_are_refused(client: TestClient, graph: str) -> None:
    have = len(os.sched_getaffinity(0))
    for kind in ("preprocess", "pipeline"):
        body = {"kind": kind, "graph": graph, "preprocess": {"num_workers": have, "threads": 2}}
        problem = client.post("/v1/jobs", json=body).json()
        assert problem["code"] == "resources_unavailable"
        assert f"{have} workers, {2 * have} cores" in problem["detail"]
        assert [error["pointer"] for error in problem["errors"]] == ["/preprocess/num_workers"]


def test_jobs_that_do_not_fit_the_graph(client: TestClient, graph: str, folder: Path) -> None:
    source = add_graph(client, folder)
    bare = client.post("/v1/graphs", json={"bundle": str(tiny_bundle(folder / "data" / "n", top_k=None))}).json()["id"]
    for body in (
        {"kind": "ingest", "graph": graph},
        {"kind": "preprocess", "graph": source},
        {"kind": "train", "graph": source},
        {"kind": "train", "graph": bare},
    ):
        assert client.post("/v1/jobs", json=body).status_code == 409, body
    for body in ({"kind": "train", "graph": "graph_0"}, {"kind": "index", "embedding": "emb_0"}):
        assert client.post("/v1/jobs", json=body).status_code == 404, body


def test_a_dry_run_tells_and_does_nothing(client: TestClient, graph: str) -> None:
    def known_jobs() -> list[str]:
        # Not their states: other tests' jobs may be ending.
        return [job["id"] for job in client.get("/v1/jobs").json()["items"]]

    before = known_jobs()
    sizes = []
    for layers in ([64, 32], [640, 320]):
        body = {"kind": "pipeline", "graph": graph, "train": {"encoder": {"layers": layers}}}
        answer = client.post("/v1/jobs", params={"dry_run": True}, json=body)
        assert answer.status_code == 200
        plan = answer.json()
        assert plan["stages"] == ["preprocess", "train", "evaluate", "index"]
        assert plan["spec"]["train"]["encoder"]["layers"] == layers
        assert "4 nodes" in plan["estimate"]["basis"]
        sizes.append([plan["estimate"][what] for what in ("memory_bytes", "disk_bytes", "seconds")])
    assert all(0 <= small < large for small, large in zip(sizes[0][:2], sizes[1][:2], strict=True))
    assert known_jobs() == before


@pytest.mark.parametrize(
    ("train", "pointer"),
    [
        ({"optimizer": {"warmup_epochs": 400}}, "/train/optimizer/warmup_epochs"),
        ({"batch": {"order": "near"}}, "/train/batch/order"),
        ({"anchors": {"bank": "disk"}}, "/train/anchors/bank"),
        ({"optimizer": {"accumulate": 2}}, "/train/optimizer/accumulate"),
        ({"optimizer": {"accumulate": 5}, "batch": {"mode": "mini"}}, "/train/optimizer/accumulate"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_settings_that_do_not_suit_the_graphs_size_are_refused(
    client: TestClient, graph: str, train: dict[str, Any], pointer: str, dry_run: bool
) -> None:
    """Four nodes: one batch, 400 epochs."""
    body = {"kind": "pipeline", "graph": graph, "train": train}
    answer = client.post("/v1/jobs", params={"dry_run": dry_run}, json=body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_a_dry_run_of_an_unknown_size_says_so(client: TestClient, folder: Path) -> None:
    body = {"kind": "pipeline", "graph": add_graph(client, folder)}
    plan = client.post("/v1/jobs", params={"dry_run": True}, json=body).json()
    assert plan["stages"][0] == "ingest"
    assert plan["estimate"]["memory_bytes"] is None
    assert "not ingested" in plan["estimate"]["basis"]


def test_an_idempotency_key_queues_once(client: TestClient, graph: str) -> None:
    body, headers = {"kind": "pipeline", "graph": graph}, {"Idempotency-Key": "abc"}
    first = client.post("/v1/jobs", json=body, headers=headers)
    again = client.post("/v1/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"waiting_for": again.json()["waiting_for"]}
    assert again.headers["idempotent-replayed"] == "true"
    other = client.post("/v1/jobs", json=body | {"name": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert client.post("/v1/jobs", json=body).json()["id"] != first.json()["id"]


def test_a_full_queue_answers_429(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path, max_queued=1)) as client:
        graph = add_graph(client, tmp_path)
        body = {"kind": "pipeline", "graph": graph, "labels": {"fake": json.dumps([("one", {"seconds": 60})])}}
        answers = [client.post("/v1/jobs", json=body) for _ in range(4)]
        # One may run and one wait; which of them are turned away depends on when the first starts.
        full = next(answer for answer in answers if answer.status_code == 429)
        assert int(full.headers["retry-after"]) > 0
        assert full.json()["retryable"]
        for answer in answers:
            if answer.status_code == 201:
                client.post(f"/v1/jobs/{answer.json()['id']}/cancel")
                wait_end(client, answer.json()["id"])


def test_filters_combine_and_pages_hold_under_them(client: TestClient, graph: str) -> None:
    made = []
    for i in range(6):
        kind = "pipeline" if i % 2 else "preprocess"
        body = {"kind": kind, "graph": graph, "labels": {"team.name": "a" if i < 4 else "b", "n": str(i)}}
        made.append(client.post("/v1/jobs", json=body).json()["id"])

    def ids(**params: Any) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=params).json()["items"]]

    assert ids(kind="preprocess") == [made[4], made[2], made[0]]
    assert ids(label="team.name=a", kind="pipeline") == [made[3], made[1]]
    assert ids(label=["team.name=a", "n=2"]) == [made[2]]
    assert ids(label="team.name=c") == []
    assert set(ids(status=["queued", "running"])) >= set(made)
    assert ids(status="succeeded") == []
    assert ids(created_after=job_of(client, made[4])["created_at"]) == [made[5]]
    first = client.get("/v1/jobs", params={"label": "team.name=a", "limit": 3}).json()
    rest = client.get("/v1/jobs", params={"label": "team.name=a", "limit": 3, "cursor": first["next_cursor"]}).json()
    assert [job["id"] for job in first["items"] + rest["items"]] == made[3::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "params",
    [
        {"status": "asleep"},
        {"label": "novalue"},
        {"created_after": "2026-01-01T00:00:00"},
        {"limit": 0},
        {"created_after": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_bad_filters(client: TestClient, params: dict[str, Any]) -> None:
    answer = client.get("/v1/jobs", params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(f"query/{next(iter(params))}")


def test_patch_changes_what_it_names(client: TestClient, graph: str) -> None:
    job = client.post("/v1/jobs", json={"kind": "pipeline", "graph": graph, "name": "old", "labels": {"a": "1"}}).json()
    changed = client.patch(f"/v1/jobs/{job['id']}", json={"name": "new"}).json()
    assert changed == job | {"name": "new", "waiting_for": changed["waiting_for"]}
    assert client.patch(f"/v1/jobs/{job['id']}", json={"labels": {"b": "2"}}).json()["labels"] == {"b": "2"}
    assert client.patch(f"/v1/jobs/{job['id']}", json={"labels": None}).status_code == 422
    assert client.patch(f"/v1/jobs/{job['id']}", json={"status": "succeeded"}).status_code == 422
    assert client.patch("/v1/jobs/job_0", json={}).status_code == 404


def test_limits_and_priority_are_kept_and_shown(client: TestClient, graph: str) -> None:
    asked = {"cores": 1, "gpus": 0, "memory_bytes": 5, "disk_bytes": 7}
    body = {"kind": "pipeline", "graph": graph, "priority": 3, "timeout_s": 60, "resources": asked}
    job = client.post("/v1/jobs", json=body).json()
    assert (job["priority"], job["timeout_s"]) == (3, 60.0)
    assert job["resources"] == asked | {"bundle_bytes": 0}
    assert job_of(client, job["id"])["resources"] == job["resources"]
    assert client.patch(f"/v1/jobs/{job['id']}", json={"priority": -5}).json()["priority"] == -5
    plan = client.post("/v1/jobs?dry_run=true", json=body).json()
    assert plan["resources"] == job["resources"]
    assert plan["available"]["cores"] == len(os.sched_getaffinity(0))
    assert plan["available"]["disk_bytes"] > 0


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"priority": 1001}, "/priority"),
        ({"priority": 1.5}, "/priority"),
        ({"timeout_s": 0}, "/timeout_s"),
        ({"resources": {"cores": 0}}, "/resources/cores"),
        ({"resources": {"disk": 1}}, "/resources/disk"),
    ],
)
def test_bad_limits_name_the_field(client: TestClient, graph: str, fields: dict[str, Any], pointer: str) -> None:
    answer = client.post("/v1/jobs", json={"kind": "pipeline", "graph": graph} | fields)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("what", ["cores", "gpus", "memory_bytes", "disk_bytes"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_job_that_does_not_fit_is_refused(client: TestClient, graph: str, what: str, dry_run: bool) -> None:
    most = {"cores": 65_536, "gpus": 4096}.get(what, 2**62)
    body = {"kind": "pipeline", "graph": graph, "resources": {what: most}}
    answer = client.post("/v1/jobs", params={"dry_run": dry_run}, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "resources_unavailable")
    assert problem["errors"][0]["pointer"] == f"/resources/{what}"
    assert problem["retryable"] == (what == "disk_bytes"), "room on a disk may come back"
    assert (f"needs {most} " if what in {"cores", "gpus"} else "needs 4,194,304 TiB of ") in problem["detail"]


def test_what_is_not_there(client: TestClient) -> None:
    for path in ("", "/events", "/logs", "/metrics", "/checkpoints"):
        assert client.get(f"/v1/jobs/job_0{path}").status_code == 404
    assert client.get("/v1/jobs/job_0/events", headers={"Accept": "text/event-stream"}).status_code == 404
    assert client.delete("/v1/jobs/job_0").status_code == 404
    assert client.post("/v1/jobs/job_0/cancel").status_code == 404


def test_delete_only_what_has_ended(client: TestClient, graph: str, folder: Path) -> None:
    job = submit(client, graph, ("one", {}))
    assert client.delete(f"/v1/jobs/{job}").status_code == 409
    client.post(f"/v1/jobs/{job}/cancel")
    wait_end(client, job)
    assert client.delete(f"/v1/jobs/{job}").status_code == 204
    assert client.get(f"/v1/jobs/{job}").status_code == 404
    assert not (folder / "home" / "jobs" / job).exists()


def test_history_of_a_job(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, job_log_bytes=8192)
    with running_app(settings) as client:
        stages = [("one", {"noise": 3000}), ("two", {"noise": 3000, "steps": 50}), ("three", {"noise": 3000})]
        job = submit(client, add_graph(client, tmp_path), *stages)
        wait_end(client, job)

        events = client.get(f"/v1/jobs/{job}/events").json()
        assert events["ended"]
        kinds = [(e["event"], e["stage"]) for e in events["items"] if e["event"] != "transition"]
        assert kinds.count(("progress", "one")) == 1, "only the newest progress is kept"
        assert kinds.count(("metrics", "two")) == 50
        assert [stage for event, stage in kinds if event == "result"] == ["one", "two", "three"]
        ids = [event["id"] for event in events["items"]]
        assert ids == sorted(set(ids))
        half = client.get(f"/v1/jobs/{job}/events", params={"limit": 10}).json()
        rest = client.get(f"/v1/jobs/{job}/events", params={"after": half["last_id"]}).json()
        assert not half["ended"]
        assert half["items"] + rest["items"] == events["items"]

        assert client.get(f"/v1/jobs/{job}/logs", params={"tail": 1}).json() == {"lines": ["three begins" + "." * 3000]}
        lines = client.get(f"/v1/jobs/{job}/logs").json()["lines"]
        assert lines[-2:] == ["two begins" + "." * 3000, "three begins" + "." * 3000]
        assert sum(file.stat().st_size for file in (settings.jobs / job).glob("log*.txt")) <= 8192

        (series,) = client.get(f"/v1/jobs/{job}/metrics", params={"names": "loss"}).json()["series"]
        assert (series["stage"], series["steps"]) == ("two", list(range(50)))
        assert series["values"] == [1.0 / (step + 1) for step in range(50)]
        thin = client.get(f"/v1/jobs/{job}/metrics", params={"max_points": 5}).json()["series"]
        assert {s["name"]: (s["steps"], s["values"][-1]) for s in thin} == {
            "loss": ([0, 12, 24, 36, 49], 0.02),
            "rank": ([0, 12, 24, 36, 49], None),
        }

        checkpoint = settings.jobs / job / "train" / "checkpoints" / "step-00000050"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"12345")
        (found,) = client.get(f"/v1/jobs/{job}/checkpoints").json()["items"]
        assert (found["name"], found["bytes"], found["best"]) == ("step-00000050", 5, False)
        later = checkpoint.with_name("step-00000100")
        later.mkdir()
        (later / "state.json").write_text('{"best": {"step": 50}}')
        found = client.get(f"/v1/jobs/{job}/checkpoints").json()["items"]
        assert {item["name"]: item["best"] for item in found} == {"step-00000050": True, "step-00000100": False}

        with client.stream("GET", f"/v1/jobs/{job}/events", headers={"Accept": "text/event-stream"}) as stream:
            text = "".join(stream.iter_text())
        assert text.count("\nid: ") == len(ids)
        assert text.endswith('event: end\ndata: {"status": "succeeded"}\n\n')
        after = {"Accept": "text/event-stream", "Last-Event-ID": str(ids[-2])}
        replay = client.get(f"/v1/jobs/{job}/events", headers=after).text
        assert [line for line in replay.splitlines() if line.startswith("id: ")] == [f"id: {ids[-1]}"]
        bad = client.get(f"/v1/jobs/{job}/events", headers=after | {"Last-Event-ID": "soon"})
        assert bad.status_code == 422

        metrics = client.get("/metrics").text
        assert 'rgrl_jobs{status="succeeded"} 1.0' in metrics
        assert 'rgrl_stage_figure{figure="loss",stage="two"} 0.02' in metrics
        assert 'rgrl_job_run_seconds_count{kind="pipeline",status="succeeded"} 1.0' in metrics


def test_an_export_whose_package_is_missing_is_refused(
    client: TestClient, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.settings.extras.find_spec", lambda _: None)
    body = {"kind": "pipeline", "graph": graph, "train": {"run": {"mlflow": True}}}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert [fault["pointer"] for fault in problem["errors"]] == ["/train/run/mlflow"]
    assert "rgrl[mlflow]" in problem["remedy"]


def test_cancel_is_shown(client: TestClient, graph: str) -> None:
    job = submit(client, graph, ("one", {}))
    assert client.post(f"/v1/jobs/{job}/cancel").status_code == 202
    assert wait_for(lambda: job_of(client, job)["status"] == "cancelled")
