"""The life of jobs under the real scheduler and real processes, with stages that do as they are told."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from postgres_server import PostgresServer
from service_harness import (
    add_graph,
    completed,
    fake_plan,
    job_of,
    processes_of,
    runner_pid,
    running_app,
    settings_in,
    statuses,
    submit,
    wait_end,
    wait_for,
)

from preprocessing.errors import UsageError
from service.api.app import create_app
from service.jobs import supervisor
from service.settings import ServiceSettings
from service.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scheduler")


@pytest.fixture(scope="module")
def settings(folder: Path) -> ServiceSettings:
    return settings_in(folder)


@pytest.fixture(scope="module")
def client(settings: ServiceSettings) -> Iterator[TestClient]:
    with running_app(settings) as client:
        yield client


def test_stages_run_in_order_and_every_step_is_kept(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    job = submit(client, add_graph(client, folder), ("one", {}), ("two", {"steps": 3}))
    ended = wait_end(client, job)
    assert ended["status"] == "succeeded"
    assert ended["error"] is None
    assert ended["progress"] is None
    assert ended["created_at"] <= ended["started_at"] <= ended["ended_at"]
    assert [(t["status"], t["phase"], t["attempt"]) for t in ended["transitions"]] == [
        ("queued", None, 0),
        ("running", None, 1),
        ("running", "one", 1),
        ("running", "two", 1),
        ("succeeded", "two", 1),
    ]
    assert completed(settings, job) == [f"{job} one", f"{job} two"]
    assert wait_for(lambda: not processes_of(job))


def test_progress_and_phase_show_while_a_stage_runs(client: TestClient, folder: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submit(client, add_graph(client, folder), ("one", {"gate": str(gate)}))
    progress = wait_for(lambda: job_of(client, job)["progress"])
    assert progress == {
        "stage": "one",
        "done": 0,
        "total": 2,
        "unit": "rows",
        "rate": 0.0,
        "eta_s": None,
        "compiling": False,
    }
    assert job_of(client, job)["phase"] == "one"
    gate.touch()
    assert wait_end(client, job)["status"] == "succeeded"


def test_a_failing_stage_ends_the_job_with_its_own_words(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    error = {"code": "input_invalid", "message": "a bad row", "where": "edges.csv, row 7", "retryable": False}
    job = submit(client, add_graph(client, folder), ("one", {"error": error, "exit": 3}), ("two", {}))
    ended = wait_end(client, job)
    assert statuses(ended) == ["queued", "running", "failed"]
    assert ended["error"]["code"] == "input_invalid"
    assert ended["error"]["message"] == "a bad row"
    assert ended["error"]["where"] == "edges.csv, row 7"
    assert ended["error"]["phase"] == "one"
    assert ended["error"]["signal"] is None
    assert ended["error"]["log_tail"] == ["one begins"]
    assert completed(settings, job) == []


@pytest.mark.parametrize(
    ("what", "code", "name", "retryable"),
    [
        ({"exit": 2}, "usage_invalid", None, False),
        ({"exit": 3}, "input_invalid", None, False),
        ({"exit": 9}, "internal", None, False),
        ({"signal": int(signal.SIGKILL)}, "killed", "SIGKILL", True),
        ({"signal": int(signal.SIGSEGV)}, "killed", "SIGSEGV", True),
    ],
)
def test_a_stage_that_ends_without_a_word(
    client: TestClient, folder: Path, what: dict[str, Any], code: str, name: str | None, retryable: bool
) -> None:
    error = wait_end(client, submit(client, add_graph(client, folder), ("one", what)))["error"]
    assert (error["code"], error["signal"], error["retryable"]) == (code, name, retryable)


def test_a_killed_runner_is_started_again_and_finished_stages_are_not(
    client: TestClient, settings: ServiceSettings, folder: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = submit(client, add_graph(client, folder), ("one", {}), ("two", {"gate": str(gate)}))
    wait_for(lambda: job_of(client, job)["phase"] == "two")
    orphan = [p for p in processes_of(job) if p.pid != runner_pid(settings, job)]
    assert len(orphan) == 1
    signal_runner(settings, job)
    wait_for(lambda: job_of(client, job)["attempt"] == 2)
    wait_for(lambda: not orphan[0].is_running(), "for the first attempt's stage to be ended")
    gate.touch()
    ended = wait_end(client, job)
    assert ended["status"] == "succeeded"
    assert completed(settings, job) == [f"{job} one", f"{job} two"]


def test_a_runner_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_attempts=2)
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("one", {"seconds": 60}))
        for attempt in (1, 2):
            wait_for(lambda n=attempt: job_of(client, job)["attempt"] == n and job_of(client, job)["phase"] == "one")
            signal_runner(settings, job)
        error = wait_end(client, job)["error"]
        assert error["code"] == "worker_lost"
        assert "in 2 attempts" in error["message"]
        assert "max_attempts" in error["message"]
        assert error["retryable"]
        assert not processes_of(job)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EAGAIN])
@pytest.mark.parametrize("times", [1, 3])
def test_a_start_that_the_machine_refuses_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, times: int
) -> None:
    refusals = iter([number] * times)
    really = supervisor.write_json

    def refusing(path: Path, value: object) -> None:
        if (refused := next(refusals, None)) is not None:
            raise OSError(refused, os.strerror(refused), str(path))
        really(path, value)

    monkeypatch.setattr(supervisor, "write_json", refusing)
    with running_app(settings_in(tmp_path, max_attempts=3)) as client:
        job = submit(client, add_graph(client, tmp_path), ("one", {}))
        ended = wait_end(client, job)
    if times < 3:
        assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
        return
    error = ended["error"]
    assert (ended["status"], error["code"], error["retryable"]) == ("failed", "resources_unavailable", True)
    assert os.strerror(number) in error["message"]
    assert error["where"].endswith("plan.json")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While it holds an errno, nothing can be written to a home, for that."""
    numbers: list[int] = []
    really = Store.check_room

    def check_room(store: Store) -> None:
        if numbers:
            raise OSError(numbers[0], os.strerror(numbers[0]))
        really(store)

    monkeypatch.setattr(Store, "check_room", check_room)
    return numbers


def test_no_attempt_is_spent_while_nothing_can_be_written(tmp_path: Path, full: list[int]) -> None:
    settings = settings_in(tmp_path, max_attempts=2, retry_after_s=0.1)
    with running_app(settings) as client:
        gate = tmp_path / "gate"
        lost = submit(client, add_graph(client, tmp_path, "a"), ("one", {"gate": str(gate)}))
        wait_for(lambda: job_of(client, lost)["phase"])
        full.append(errno.ENOSPC)
        signal_runner(settings, lost)
        queued = submit(client, add_graph(client, tmp_path, "b"), ("one", {}))
        [retry] = wait_for(lambda: retries_of(client, lost))
        assert retry["data"]["error"]["message"] == (
            "the job's process was lost, and nothing can be written to the server's home (the disk is full)"
        )
        time.sleep(1.0)  # five times what the next attempt was to wait
        assert job_of(client, lost)["attempt"] == 1
        assert job_of(client, queued)["waiting_for"] == {
            "code": "disk",
            "detail": "nothing can be written to the home: the disk is full",
        }
        full.clear()
        gate.touch()
        for job, attempts in ((lost, 2), (queued, 1)):
            ended = wait_end(client, job)
            assert (ended["status"], ended["attempt"]) == ("succeeded", attempts)


def test_a_runner_told_to_stop_goes_on_without_it_counting_as_a_loss(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_attempts=1)
    gate = tmp_path / "gate"
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("one", {"gate": str(gate)}))
        wait_for(lambda: job_of(client, job)["progress"])
        signal_runner(settings, job, signal.SIGTERM)
        wait_for(lambda: job_of(client, job)["attempt"] == 2)
        gate.touch()
        assert wait_end(client, job)["status"] == "succeeded"
        assert completed(settings, job) == [f"{job} one"]


def test_a_runner_told_to_stop_on_a_full_disk_waits_for_room_and_loses_nothing(tmp_path: Path, full: list[int]) -> None:
    settings = settings_in(tmp_path, max_attempts=1)
    gate = tmp_path / "gate"
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("one", {"gate": str(gate)}))
        wait_for(lambda: job_of(client, job)["progress"])
        full.append(errno.ENOSPC)
        signal_runner(settings, job, signal.SIGTERM)
        wait_for(lambda: not processes_of(job))
        time.sleep(0.5)  # ten rounds of the scheduler's
        found = job_of(client, job)
        assert (found["status"], found["attempt"]) == ("running", 1)
        full.clear()
        wait_for(lambda: job_of(client, job)["attempt"] == 2)
        gate.touch()
        assert wait_end(client, job)["status"] == "succeeded"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"code": "resources_unavailable", "message": "full", "retryable": True}, "full"),
        ({"code": "out_of_memory", "message": "8 GiB", "retryable": True}, "8 GiB"),
        ({"code": "interrupted", "message": "by SIGTERM", "retryable": True}, "the job's process was lost"),
    ],
)
def test_what_a_stage_said_is_the_cause_although_its_runner_is_lost(
    client: TestClient, settings: ServiceSettings, folder: Path, tmp_path: Path, said: dict[str, Any], told: str
) -> None:
    """The word that its parent is gone is none of its own."""
    once = {"once": str(tmp_path / "once"), "error": said, "last": "never"}
    job = submit(client, add_graph(client, folder), ("one", once))
    wait_for(lambda: [e for e in client.get(f"/v1/jobs/{job}/events").json()["items"] if e["event"] == "error"])
    signal_runner(settings, job)
    assert wait_end(client, job)["status"] == "succeeded"
    [retry] = retries_of(client, job)
    error = retry["data"]["error"]
    assert (error["message"], error["phase"], error["log_tail"]) == (told, "one", ["one begins"])
    assert error["code"] == ("worker_lost" if said["code"] == "interrupted" else said["code"])


def test_cancel_before_the_start(client: TestClient, folder: Path, tmp_path: Path) -> None:
    graph = add_graph(client, folder)
    gate = tmp_path / "gate"
    first = submit(client, graph, ("one", {"gate": str(gate)}))
    second = submit(client, graph, ("one", {}))
    wait_for(lambda: job_of(client, first)["phase"])
    assert client.post(f"/v1/jobs/{second}/cancel").status_code == 202
    ended = wait_end(client, second)
    assert statuses(ended) == ["queued", "cancelling", "cancelled"]
    assert ended["started_at"] is None
    gate.touch()
    assert wait_end(client, first)["status"] == "succeeded"


@pytest.mark.parametrize("phase", ["one", "two"])
def test_cancel_in_a_phase(client: TestClient, settings: ServiceSettings, folder: Path, phase: str) -> None:
    stages = [(name, {"seconds": 60 if name == phase else 0}) for name in ("one", "two")]
    job = submit(client, add_graph(client, folder), *stages)
    wait_for(lambda: job_of(client, job)["phase"] == phase)
    assert client.post(f"/v1/jobs/{job}/cancel").status_code == 202
    ended = wait_end(client, job)
    assert statuses(ended) == ["queued", "running", "cancelling", "cancelled"]
    assert completed(settings, job) == ([] if phase == "one" else [f"{job} one"])
    assert not processes_of(job)
    again = client.post(f"/v1/jobs/{job}/cancel")
    assert again.status_code == 409


def test_cancel_ends_a_stage_that_will_not_and_what_it_left_behind(client: TestClient, folder: Path) -> None:
    job = submit(client, add_graph(client, folder), ("one", {"seconds": 60, "stubborn": True, "stray": True}))
    wait_for(lambda: len(processes_of(job)) == 3)
    assert client.post(f"/v1/jobs/{job}/cancel").status_code == 202
    second = client.post(f"/v1/jobs/{job}/cancel")
    assert second.status_code == 200
    assert wait_end(client, job)["status"] == "cancelled"
    assert not processes_of(job)


def test_a_jobs_health_is_what_its_training_said_last(client: TestClient, folder: Path) -> None:
    well, ill = ["healthy", None], ["collapsed", "all vectors point one way"]
    job = submit(client, add_graph(client, folder), ("one", {"health": [well, ill]}), ("two", {}))
    ended = wait_end(client, job)
    assert (ended["status"], ended["health"]) == ("succeeded", {"state": ill[0], "reason": ill[1]})
    other = submit(client, add_graph(client, folder), ("one", {"health": [ill, well]}))
    assert wait_end(client, other)["health"] == {"state": "healthy", "reason": None}
    silent = submit(client, add_graph(client, folder), ("one", {}))
    assert wait_end(client, silent)["health"] is None


def test_a_job_that_reports_nothing_is_told_to_be_silent_until_it_does(
    client: TestClient, settings: ServiceSettings, folder: Path
) -> None:
    gate = folder / "silent-gate"
    job = submit(client, add_graph(client, folder), ("one", {"gate": str(gate)}))
    wait_for(lambda: job_of(client, job)["progress"])
    assert job_of(client, job)["silent_since"] is None
    long_ago = time.time() - settings.silent_after_s - 60
    events = settings.jobs / job / "events.jsonl"
    os.utime(events, (long_ago, long_ago))
    told = wait_for(lambda: job_of(client, job)["silent_since"])
    assert datetime.fromisoformat(told).timestamp() == pytest.approx(long_ago, abs=1e-3)
    os.utime(events)
    wait_for(lambda: job_of(client, job)["silent_since"] is None)
    os.utime(events, (long_ago, long_ago))
    wait_for(lambda: job_of(client, job)["silent_since"])
    gate.touch()
    assert wait_end(client, job)["silent_since"] is None


def test_strays_of_a_finished_job_are_ended(client: TestClient, folder: Path) -> None:
    job = submit(client, add_graph(client, folder), ("one", {"stray": True}))
    assert wait_end(client, job)["status"] == "succeeded"
    assert not processes_of(job)


def test_jobs_wait_for_room_oldest_first(client: TestClient, settings: ServiceSettings, folder: Path) -> None:
    graphs = [add_graph(client, folder, f"g{i}") for i in range(3)]
    jobs = [submit(client, graph, ("one", {})) for graph in graphs]
    for job in jobs:
        assert wait_end(client, job)["status"] == "succeeded"
    assert completed(settings, *jobs) == [f"{job} one" for job in jobs]


def test_two_run_side_by_side_but_never_on_one_graph(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_running=2, max_cores=2)
    gate = tmp_path / "gate"
    with running_app(settings) as client:
        graph, other = add_graph(client, tmp_path, "a"), add_graph(client, tmp_path, "b")
        first = submit(client, graph, ("one", {"gate": str(gate)}))
        same = submit(client, graph, ("one", {}))
        beside = submit(client, other, ("one", {}))
        assert wait_end(client, beside)["status"] == "succeeded"
        assert job_of(client, first)["status"] == "running"
        assert job_of(client, same)["status"] == "queued"
        gate.touch()
        assert wait_end(client, same)["status"] == "succeeded"


def test_a_waiting_job_says_for_what_and_priority_decides(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = settings_in(tmp_path, max_running=9, max_cores=2)
    with running_app(settings) as client:
        graphs = [add_graph(client, tmp_path, name) for name in "abcd"]
        two = {"resources": {"cores": 2, "memory_bytes": 0, "disk_bytes": 0}}
        first = submit(client, graphs[0], ("one", {"gate": str(gate)}))
        wait_for(lambda: job_of(client, first)["phase"])
        same = submit(client, graphs[0], ("one", {}))
        large = submit(client, graphs[1], ("one", {}), **two)
        small = submit(client, graphs[2], ("one", {}))
        codes = {same: "graph", large: "cores", small: "turn"}
        wait_for(lambda: {j: (job_of(client, j)["waiting_for"] or {}).get("code") for j in codes} == codes)
        assert job_of(client, large)["waiting_for"]["detail"] == "it needs 2 cores, and 1 are free"
        assert client.patch(f"/v1/jobs/{small}", json={"priority": 1}).status_code == 200
        ended = wait_end(client, small)
        assert (ended["status"], ended["waiting_for"]) == ("succeeded", None)
        assert job_of(client, large)["status"] == "queued"
        assert client.patch(f"/v1/jobs/{small}", json={"priority": 2}).status_code == 409
        gate.touch()
        for job in (first, large, same):
            assert wait_end(client, job)["status"] == "succeeded"


def test_a_job_without_disk_waits_until_there_is_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from service.jobs import resources

    free = [10**12]
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda _path: SimpleNamespace(free=free[0]))
    with running_app(settings_in(tmp_path, max_running=9, max_cores=9)) as client:
        graphs = [add_graph(client, tmp_path, name) for name in "ab"]
        gate = tmp_path / "gate"
        first = submit(client, graphs[0], ("one", {"gate": str(gate)}))
        wait_for(lambda: job_of(client, first)["phase"])
        job = submit(client, graphs[0], ("one", {}), resources={"cores": 1, "memory_bytes": 0, "disk_bytes": 1000})
        free[0] = 999
        gate.touch()
        found = wait_for(
            lambda: (job_of(client, job)["waiting_for"] or {}).get("code") == "disk" and job_of(client, job)
        )
        assert found["waiting_for"]["detail"] == "the job needs 1,000 bytes of disk and 999 bytes are free"
        assert wait_end(client, submit(client, graphs[1], ("one", {})))["status"] == "succeeded"
        free[0] = 1000
        assert wait_end(client, job)["status"] == "succeeded"


def test_a_job_of_a_larger_server_is_failed_and_holds_back_none(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with running_app(settings_in(tmp_path, max_cores=8)) as client:
        a, b = (add_graph(client, tmp_path, name) for name in "ab")
        first = submit(client, a, ("one", {"gate": str(gate)}))
        large = submit(client, b, ("one", {}), resources={"cores": 8, "memory_bytes": 0, "disk_bytes": 0})
        wait_for(lambda: job_of(client, large)["waiting_for"])
        executor = client.app.state.scheduler._executor
        executor._settings = executor._settings.model_copy(update={"max_cores": 1})
        error = wait_end(client, large)["error"]
        assert (error["code"], "8 cores" in error["message"]) == ("resources_unavailable", True)
        gate.touch()
        assert wait_end(client, first)["status"] == "succeeded"


def test_a_job_is_told_its_cores_and_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    gate = tmp_path / "gate"
    with running_app(settings_in(tmp_path, max_running=3, max_cores=6)) as client:
        jobs, told = [], []
        for number, gpus in enumerate((1, 1, 0)):
            asked = {"cores": number + 1, "gpus": gpus, "memory_bytes": 0, "disk_bytes": 0}
            told.append(tmp_path / f"told{number}")
            stage = ("one", {"tell": str(told[-1]), "gate": str(gate)})
            jobs.append(submit(client, add_graph(client, tmp_path, f"g{number}"), stage, resources=asked))
        wait_for(lambda: all(path.exists() and path.read_text() for path in told))
        assert [json.loads(path.read_text()) for path in told] == [["1", "5"], ["2", "7"], ["3", ""]]
        gate.touch()
        for job in jobs:
            assert wait_end(client, job)["status"] == "succeeded"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_job_past_its_time_is_ended_and_failed(client: TestClient, folder: Path, stubborn: bool) -> None:
    stage = ("one", {"seconds": 60, "stubborn": stubborn, "stray": True})
    job = submit(client, add_graph(client, folder), stage, timeout_s=4.0)
    ended = wait_end(client, job)
    assert statuses(ended) == ["queued", "running", "failed"]
    assert (ended["error"]["code"], ended["error"]["phase"], ended["error"]["retryable"]) == ("timed_out", "one", False)
    assert "4 seconds" in ended["error"]["message"]
    assert not processes_of(job)
    in_time = submit(client, add_graph(client, folder), ("one", {}), timeout_s=300)
    assert wait_end(client, in_time)["status"] == "succeeded"


def test_what_may_go_better_is_tried_again(client: TestClient, settings: ServiceSettings, folder: Path) -> None:
    lost = {"code": "worker_lost", "message": "a worker died", "retryable": True}
    stages = [("one", {}), ("two", {"once": str(folder / "once"), "error": lost, "exit": 1})]
    job = submit(client, add_graph(client, folder), *stages)
    ended = wait_end(client, job)
    assert (ended["status"], ended["attempt"], ended["error"], ended["retry_at"]) == ("succeeded", 2, None, None)
    assert completed(settings, job) == [f"{job} one", f"{job} two"]
    (retry,) = [e for e in client.get(f"/v1/jobs/{job}/events").json()["items"] if e["event"] == "retry"]
    assert (retry["data"]["error"]["code"], retry["attempt"], retry["stage"]) == ("worker_lost", 1, "two")


def test_it_is_tried_a_bounded_number_of_times(client: TestClient, settings: ServiceSettings, folder: Path) -> None:
    lost = {"code": "worker_lost", "message": "a worker died", "retryable": True}
    ended = wait_end(client, submit(client, add_graph(client, folder), ("one", {"error": lost, "exit": 1})))
    assert (ended["status"], ended["attempt"]) == ("failed", settings.max_attempts)
    assert ended["error"]["code"] == "worker_lost"
    assert f"in {settings.max_attempts} attempts" in ended["error"]["message"]
    assert ended["error"]["retryable"]


@pytest.mark.parametrize("end", ["cancel", "timeout"])
def test_a_job_that_waits_for_its_next_attempt_can_be_ended(tmp_path: Path, end: str) -> None:
    lost = {"code": "worker_lost", "message": "a worker died", "retryable": True}
    with running_app(settings_in(tmp_path, retry_after_s=600)) as client:
        limit = {"timeout_s": 4.0} if end == "timeout" else {}
        job = submit(client, add_graph(client, tmp_path), ("one", {"error": lost, "exit": 1}), **limit)
        found = wait_for(lambda: job_of(client, job)["retry_at"] and job_of(client, job))
        assert (found["status"], found["attempt"]) == ("running", 1)
        if end == "cancel":
            assert client.post(f"/v1/jobs/{job}/cancel").status_code == 202
        ended = wait_end(client, job)
        assert ended["status"] == ("cancelled" if end == "cancel" else "failed")
        assert (ended["error"] or {}).get("code") == (None if end == "cancel" else "timed_out")
        assert ended["attempt"] == 1


def test_a_stage_that_says_nothing_any_more_is_ended_and_tried_again(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path, stalled_after_s=3.0, max_attempts=2)) as client:
        once = {"once": str(tmp_path / "once"), "gate": str(tmp_path / "never")}
        job = submit(client, add_graph(client, tmp_path), ("one", once))
        ended = wait_end(client, job)
        assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
        [retry] = [e for e in client.get(f"/v1/jobs/{job}/events").json()["items"] if e["event"] == "retry"]
        error = retry["data"]["error"]
        assert (error["code"], retry["stage"], error["retryable"]) == ("stalled", "one", True)


def test_an_alias_is_not_pointed_at_what_collapsed(client: TestClient, folder: Path) -> None:
    graph = add_graph(client, folder)
    stage = ("train", {"make": "embeddings", "health": [["collapsed", "all vectors point one way"]]})
    ended = wait_end(client, submit(client, graph, stage, alias="good"))
    assert (ended["status"], ended["error"]["code"], ended["error"]["retryable"]) == ("failed", "collapsed", False)
    assert "all vectors point one way" in ended["error"]["message"]
    assert client.get("/v1/aliases/good").status_code == 404
    assert client.get(f"/v1/embeddings/{ended['embedding']}").status_code == 200
    assert wait_end(client, submit(client, graph, stage))["status"] == "succeeded"


def test_a_database_server_that_goes_and_comes_back_loses_no_job(postgres: PostgresServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = settings_in(tmp_path, database_url=postgres.new_database())
    with running_app(settings) as client:
        a, b = (add_graph(client, tmp_path, name) for name in "ab")
        first = submit(client, a, ("one", {"gate": str(gate)}))
        waiting = submit(client, b, ("one", {}))
        wait_for(lambda: job_of(client, first)["phase"])
        postgres.stop()
        answer = client.get(f"/v1/jobs/{first}")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert client.get("/readyz").status_code == 503
        gate.touch()
        wait_for(lambda: not processes_of(first))
        postgres.start()
        for job in (first, waiting):
            ended = wait_end(client, job)
            assert (ended["status"], ended["attempt"]) == ("succeeded", 1)
        assert completed(settings, first, waiting) == [f"{first} one", f"{waiting} one"]
        assert client.get("/v1/jobs/job_%00").status_code == 422
        other = settings_in(tmp_path, home=tmp_path / "other", database_url=settings.database_url)
        other.home.mkdir()
        app = create_app(other, plan=fake_plan)
        with pytest.raises(UsageError, match="another server runs on this database"):
            app.state.scheduler.acquire()
        app.state.store.close()


def test_results_appear_in_the_store(client: TestClient, settings: ServiceSettings, folder: Path) -> None:
    graph = add_graph(client, folder)
    job = submit(
        client,
        graph,
        ("ingest", {"make": "bundle"}),
        ("train", {"make": "embeddings"}),
        ("evaluate", {"summary": {"accuracy": 0.5}}),
        ("index", {"summary": {"recall": 1.0}}),
        alias="newest",
    )
    ended = wait_end(client, job)
    assert ended["status"] == "succeeded"
    assert ended["alias"] == "newest"
    found = client.get(f"/v1/graphs/{graph}").json()
    assert (found["state"], found["counts"], found["warnings"]) == ("ready", {"nodes": 4, "arcs": 6}, ["one"])
    embedding = client.app.state.store.embedding("newest")
    assert embedding.id == ended["embedding"] == job.replace("job_", "emb_")
    assert (embedding.graph, embedding.job, embedding.counts) == (graph, job, {"nodes": 4, "dim": 2})
    assert Path(embedding.path) == settings.embeddings / embedding.id
    assert embedding.report == {"accuracy": 0.5}
    assert embedding.index == {"recall": 1.0}


def test_a_failed_job_leaves_its_alias_where_it_was(client: TestClient, folder: Path) -> None:
    graph = add_graph(client, folder)
    first = submit(client, graph, ("train", {"make": "embeddings"}), alias="live")
    assert wait_end(client, first)["status"] == "succeeded"
    second = submit(client, graph, ("train", {"make": "embeddings"}), ("index", {"exit": 1}), alias="live")
    ended = wait_end(client, second)
    assert ended["status"] == "failed"
    assert ended["embedding"] == second.replace("job_", "emb_")
    assert client.app.state.store.alias("live").embedding == first.replace("job_", "emb_")


def test_a_result_without_its_artefact_fails_the_job(client: TestClient, folder: Path) -> None:
    ended = wait_end(client, submit(client, add_graph(client, folder), ("ingest", {})))
    assert ended["status"] == "failed"
    assert ended["error"]["code"] == "artifact_invalid"


def test_a_second_server_on_a_home_is_refused(client: TestClient, settings: ServiceSettings) -> None:
    with pytest.raises(UsageError, match="another server runs on this home"):
        create_app(settings, plan=fake_plan).state.scheduler.acquire()


def retries_of(client: TestClient, job: str) -> list[dict[str, Any]]:
    events = client.get(f"/v1/jobs/{job}/events").json()["items"]
    return [event for event in events if event["event"] == "retry"]


def signal_runner(settings: ServiceSettings, job: str, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(runner_pid(settings, job), number)
