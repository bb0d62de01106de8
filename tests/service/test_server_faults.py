"""A real server killed and started again: no job is lost, none runs twice, no process is left."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import service_harness
from service_harness import (
    READY,
    Server,
    add_graph,
    completed,
    job_of,
    processes_of,
    runner_pid,
    settings_in,
    statuses,
    submit,
    wait_end,
    wait_for,
)

MOMENTS = ("first", "second", "ending", "waiting", "new")
SLEEP = [sys.executable, "-c", "import time; time.sleep(120)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(settings_in(folder, max_running=4, max_cores=4)) as server:
        yield server


def test_a_killed_server_loses_no_job_and_runs_none_twice(server: Server, folder: Path, tmp_path: Path) -> None:
    """One kill that meets a job at every moment: in either stage, just submitted, waiting, and about to end."""
    client = server.client
    gates = {moment: [tmp_path / f"{moment}-{stage}" for stage in (1, 2)] for moment in MOMENTS}

    def send(moment: str, graph: str) -> str:
        return submit(client, graph, *((f"{n}", {"gate": str(gate)}) for n, gate in enumerate(gates[moment], start=1)))

    graphs = {moment: add_graph(client, folder, moment) for moment in MOMENTS}
    jobs = {moment: send(moment, graphs[moment]) for moment in ("first", "second", "ending")}
    for job in jobs.values():
        wait_for(lambda job=job: job_of(client, job)["progress"])
    gates["second"][0].touch()
    wait_for(lambda: job_of(client, jobs["second"])["phase"] == "2")
    jobs["waiting"] = send("waiting", graphs["first"])
    jobs["new"] = send("new", graphs["new"])
    server.kill()
    for gate in gates["ending"]:
        gate.touch()
    wait_for(lambda: not processes_of(jobs["ending"]))
    server.start()
    for gate in itertools.chain(*gates.values()):
        gate.touch()
    ended = {moment: wait_end(client, job) for moment, job in jobs.items()}
    for moment, job in jobs.items():
        assert ended[moment]["status"] == "succeeded", moment
        assert completed(server.settings, job) == [f"{job} 1", f"{job} 2"], moment
        events = client.get(f"/v1/jobs/{job}/events").json()["items"]
        assert [e["stage"] for e in events if e["event"] == "result"] == ["1", "2"], moment
    assert {moment: ended[moment]["attempt"] for moment in ("first", "second", "ending")} == {
        "first": 1,
        "second": 1,
        "ending": 1,
    }, "what ran was adopted"


def test_server_and_runner_killed_together(server: Server, folder: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submit(server.client, add_graph(server.client, folder), ("one", {}), ("two", {"gate": str(gate)}))
    wait_for(lambda: job_of(server.client, job)["phase"] == "two")
    server.kill()
    for process in processes_of(job):
        process.kill()
    server.start()
    wait_for(lambda: job_of(server.client, job)["attempt"] == 2)
    gate.touch()
    assert wait_end(server.client, job)["status"] == "succeeded"
    assert completed(server.settings, job) == [f"{job} one", f"{job} two"]


def test_a_stopped_server_leaves_jobs_running_for_the_next(server: Server, folder: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submit(server.client, add_graph(server.client, folder), ("one", {"gate": str(gate)}))
    wait_for(lambda: job_of(server.client, job)["progress"])
    pid = runner_pid(server.settings, job)
    server.kill(signal.SIGTERM)
    assert pid in {process.pid for process in processes_of(job)}
    server.start()
    gate.touch()
    ended = wait_end(server.client, job)
    assert (ended["status"], ended["attempt"]) == ("succeeded", 1)


def test_a_cancel_survives_the_server_and_orphans_do_not(server: Server, folder: Path) -> None:
    stage = ("one", {"seconds": 60, "stubborn": True, "stray": True})
    job = submit(server.client, add_graph(server.client, folder), stage)
    wait_for(lambda: len(processes_of(job)) == 3)
    assert server.client.post(f"/v1/jobs/{job}/cancel").status_code == 202
    server.kill()
    marks = os.environ | {"RGRL_JOB": "job_gone", "RGRL_ATTEMPT": "x"}
    orphan = subprocess.Popen(SLEEP, env=marks | {"RGRL_HOME": str(server.settings.home)})
    neighbour = subprocess.Popen(SLEEP, env=marks | {"RGRL_HOME": str(folder / "another")})
    try:
        server.start()
        assert orphan.wait(timeout=20) == -signal.SIGKILL
        assert neighbour.poll() is None, "another home's processes are not ours to end"
    finally:
        for process in (orphan, neighbour):
            process.kill()
            process.wait()
    assert statuses(wait_end(server.client, job)) == ["queued", "running", "cancelling", "cancelled"]
    assert not processes_of(job)


def test_a_second_server_on_the_home_is_refused_and_the_first_goes_on(server: Server) -> None:
    text = server.settings.model_copy(update={"port": 0}).model_dump_json()
    command = [sys.executable, service_harness.__file__, text]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0
    assert "another server runs on this home" in second.stderr
    assert server.client.get("/readyz").json() == READY


def test_many_submitters_at_once(server: Server, folder: Path) -> None:
    graphs = [add_graph(server.client, folder, f"g{i}") for i in range(2)]
    jobs: list[str] = []

    def send(graph: str) -> None:
        jobs.append(submit(server.client, graph, ("s", {})))

    in_parallel(send, graphs * 3)
    assert len(set(jobs)) == 6
    for job in jobs:
        assert wait_end(server.client, job)["status"] == "succeeded"
    assert Counter(completed(server.settings, *jobs)) == Counter(f"{job} s" for job in jobs)


def test_one_idempotency_key_from_many_threads_queues_one_job(server: Server, folder: Path) -> None:
    body = {
        "kind": "pipeline",
        "graph": add_graph(server.client, folder),
        "labels": {"fake": json.dumps([("s", {})]), "race": "yes"},
    }
    answers: list[Any] = []

    def send(_number: int) -> None:
        answers.append(server.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "same"}))

    in_parallel(send, range(12))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 11}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(server.client.get("/v1/jobs", params={"label": "race=yes"}).json()["items"]) == 1


def test_an_event_stream_survives_the_server(server: Server, folder: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submit(server.client, add_graph(server.client, folder), ("one", {"gate": str(gate), "steps": 3}))
    seen: list[tuple[int, str]] = []
    stream = read_stream(server, job, None)
    while [event for _, event in seen].count("metrics") < 3:
        seen.append(next(stream))
    server.kill()
    with pytest.raises(httpx2.TransportError):
        list(stream)
    server.start()
    gate.touch()
    rest = list(read_stream(server, job, seen[-1][0]))
    assert rest[-1][1] == "end"
    numbers = [number for number, _ in [*seen, *rest[:-1]]]
    assert numbers == sorted(set(numbers)), "nothing twice"
    stored = server.client.get(f"/v1/jobs/{job}/events").json()["items"]
    assert {item["id"] for item in stored} <= set(numbers), "nothing left out"


def in_parallel(function: Any, arguments: Any) -> None:
    threads = [threading.Thread(target=function, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_stream(server: Server, job: str, last: int | None) -> Iterator[tuple[int, str]]:
    headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
    with server.client.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        event, number = "", -1
        for line in answer.iter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif not line:
                if event:
                    yield number, event
                event = ""
