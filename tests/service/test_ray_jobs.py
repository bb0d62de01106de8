"""The executor of Ray jobs against a Jobs API that loses, repeats, delays and refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_jobs_api import NODE, Failure, FakeJobsApi, fake_jobs_api
from pydantic import ValidationError
from service_harness import READY, add_graph, running_app, settings_in, submit, wait_for

from preprocessing.artifact import write_json
from preprocessing.errors import ResourceError, UsageError
from service.errors import UnavailableError
from service.jobs import ray_api, ray_jobs
from service.jobs.choice import choose
from service.jobs.cluster import check_machines, cluster_capacity
from service.jobs.ray_api import RayApi
from service.jobs.ray_jobs import RayJobs
from service.jobs.remote import PULSE, stop_file
from service.jobs.resources import Resources, default_cores
from service.jobs.runner import EXIT, NOT_SHARED, PLAN
from service.settings import ServiceSettings
from service.store import Job

NEED = {"cores": 2, "gpus": 1, "memory_bytes": 100, "disk_bytes": 0, "bundle_bytes": 0}


@dataclass
class World:
    api: FakeJobsApi
    settings: ServiceSettings
    executor: RayJobs
    directory: Path

    def prepare(self, job: Job) -> None:
        write_json(self.directory / PLAN, {"token": job.token, "stages": [], "log_bytes": 1, "remote": True})

    def start(self, job: Job) -> None:
        self.prepare(job)
        self.executor.start(job, self.directory)

    def alive(self, job: Job) -> bool:
        return self.executor.alive(job, self.directory)

    def anew(self) -> None:
        """As after a restart of the server."""
        self.executor.close()
        self.executor = RayJobs(self.settings, RayApi(self.api.address))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for module, name in ((ray_api, "DOWN_S"), (ray_jobs, "ASK_EVERY_S"), (ray_jobs, "LOOK_AT_MACHINES_EVERY_S")):
        monkeypatch.setattr(module, name, 0.0)
    directory = tmp_path / "job's folder"
    directory.mkdir()
    with fake_jobs_api() as api:
        settings = settings_in(tmp_path, ray_address=api.address, ray_python="/opt/py thon")
        world = World(api, settings, RayJobs(settings, RayApi(api.address)), directory)
        yield world
        world.executor.close()


def job(**changes: Any) -> Job:
    moment = datetime(2026, 11, 29, tzinfo=UTC)
    fields: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    fields |= {"id": "job_1", "kind": "train", "status": "running", "attempt": 1, "token": "t1", "labels": {}}
    fields |= {"spec": {}, "created_at": moment, "resources": NEED, "priority": 0, "losses": 0, "graph": "graph_1"}
    return Job(**(fields | changes))


def test_a_submission_names_the_attempt_reserves_its_room_and_keeps_marks_out_of_rays_own_processes(
    world: World,
) -> None:
    world.start(job())
    sent = world.api.submitted[0]
    words = shlex.split(sent["entrypoint"])
    marks = {"RGRL_HOME": str(world.settings.home), "RGRL_JOB": "job_1", "RGRL_ATTEMPT": "t1"}
    assert words[:2] == ["exec", "env"]
    assert set(words[2:6]) == {f"{name}={value}" for name, value in marks.items()} | {"OMP_NUM_THREADS=2"}
    assert words[6:] == ["/opt/py thon", "-P", "-m", "service.jobs.runner", str(world.directory), "t1"]
    assert (sent["submission_id"], sent["metadata"]) == ("t1", marks)
    assert "runtime_env" not in sent
    reserved = {name: value for name, value in sent.items() if name.startswith("entrypoint_")}
    assert reserved == {"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 1, "entrypoint_memory": 100}


@pytest.mark.parametrize("spec", [{"train": {"run": {"num_workers": 2}}}, {"preprocess": {"num_workers": 1}}])
def test_a_job_with_ray_workers_leaves_them_the_cpus(world: World, spec: dict[str, Any]) -> None:
    world.start(job(spec=spec))
    assert not any(name.startswith("entrypoint_") for name in world.api.submitted[0])


def test_no_gpus_are_not_asked_for_as_none(world: World) -> None:
    """Ray hides every GPU from what reserves 0 of them."""
    world.start(job(resources=NEED | {"gpus": 0, "memory_bytes": 0}))
    assert {n for n in world.api.submitted[0] if n.startswith("entrypoint_")} == {"entrypoint_num_cpus"}


@pytest.mark.parametrize("failure", ["lost answer", "lost request", "silence", "error", "no json"])
def test_a_start_that_was_not_answered_is_made_up_for_once(
    world: World, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = job()
    if failure == "silence":
        with monkeypatch.context() as only_here:
            only_here.setattr(ray_api, "TIMEOUT_S", 0.3)
            world.anew()
    world.api.failure = failure
    with pytest.raises(UnavailableError) as error:
        world.start(first)
    assert error.value.where == world.api.address
    assert world.executor.answers() is False
    assert world.alive(first), "it may have begun"
    world.api.failure = None
    world.api.released.set()
    if failure == "silence":
        world.anew()
    for _look in range(3):
        assert world.alive(first)
    world.anew()
    assert world.alive(first)
    assert [sent["submission_id"] for sent in world.api.submitted] == ["t1"]


def test_a_start_sent_again_is_the_same_job(world: World) -> None:
    for _time in range(2):
        world.start(job())
    assert len(world.api.submitted) == 1


def test_what_ray_refuses_is_refused(world: World) -> None:
    with pytest.raises(UsageError) as error:
        world.start(job(resources=NEED | {"cores": 13}))
    assert error.value.given == "ValueError: thirteen is refused"


def test_a_start_that_was_cut_short_before_its_plan_is_lost(world: World) -> None:
    assert not world.alive(job())
    assert "before it was submitted" in world.executor.cause(job()).problem
    assert world.api.submitted == []


def test_an_attempt_that_shall_end_is_not_submitted_any_more(world: World) -> None:
    world.prepare(job())
    world.executor.terminate(job(), world.directory)
    assert not world.alive(job())
    assert world.api.submitted == []


def test_a_cluster_started_anew_has_lost_the_job(world: World) -> None:
    world.start(job())
    world.api.jobs.clear()
    assert not world.alive(job())
    cause = world.executor.cause(job())
    assert (cause.code, cause.retryable, "started anew" in str(cause.given)) == ("worker_lost", True, True)
    assert len(world.api.submitted) == 1


def test_while_the_cluster_is_silent_the_pulse_tells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ray_jobs.time, "monotonic", lambda: clock[0])
    world.start(job())
    world.api.failure = "error"
    for beat in range(8):
        clock[0] += 20
        (world.directory / PULSE).write_text(f"t1 {beat}")
        assert world.alive(job())
    clock[0] += ray_jobs.SILENCE_S
    assert world.alive(job())
    clock[0] += 1
    assert not world.alive(job())
    assert "Ray cluster" in world.executor.cause(job()).problem
    assert stop_file(world.directory, "t1").exists(), "should it live, cut off, it is to end"
    world.anew()
    assert world.alive(job()), "a new server listens for itself"


def test_the_cluster_answering_between_two_silences_is_a_sign_of_life(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ray_jobs.time, "monotonic", lambda: clock[0])
    world.start(job())
    for _time in range(4):
        for failure in ("error", None):
            clock[0] += 20
            world.api.failure = failure
            assert world.alive(job())


def test_the_runners_last_word_needs_no_cluster(world: World) -> None:
    world.start(job())
    world.api.failure = "error"
    (world.directory / EXIT).write_text(json.dumps({"token": "t1", "status": "succeeded"}))
    assert not world.alive(job())
    assert world.executor.end(job(), world.directory) == 0
    assert world.api.stopped == []


@pytest.mark.parametrize(
    ("found", "code", "retryable", "word"),
    [
        ({"status": "FAILED", "driver_exit_code": NOT_SHARED}, "resources_unavailable", False, "server's home"),
        ({"status": "FAILED", "message": "exit code 1: No module named service"}, "worker_lost", True, "No module"),
        ({"status": "STOPPED", "message": "stopped by hand"}, "worker_lost", True, "stopped by hand"),
        (
            {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "message": "900 seconds"},
            *("resources_unavailable", True, "no room"),
        ),
    ],
)
def test_the_cause_that_ray_names(world: World, found: dict[str, Any], code: str, retryable: bool, word: str) -> None:
    world.start(job())
    world.api.jobs["t1"] |= found
    assert not world.alive(job())
    cause = world.executor.cause(job())
    assert (cause.code, cause.as_dict()["retryable"]) == (code, retryable)
    assert word in cause.text()
    if code == "resources_unavailable" and not retryable:
        assert cause.where == str(world.settings.home)


def test_ending_by_force_is_asked_for_again_after_a_while_alone(world: World) -> None:
    world.start(job())
    assert world.executor.end(job(), world.directory) == 1
    assert world.executor.end(job(), world.directory) == 0
    assert world.api.stopped == ["t1"]
    world.api.jobs["t2"] = {"submission_id": "t2", "status": "RUNNING"}
    world.api.failure = "error"
    assert world.executor.end(job(token="t2"), world.directory) == 0


def test_tidying_ends_what_is_ours_and_over_alone(world: World) -> None:
    world.start(job())
    ours, theirs = {"RGRL_HOME": str(world.settings.home)}, {"RGRL_HOME": "/another"}
    for name, status, marks in (
        ("old", "RUNNING", ours),
        ("done", "SUCCEEDED", ours),
        ("theirs", "RUNNING", theirs),
        ("unmarked", "RUNNING", None),
    ):
        world.api.jobs[name] = {"submission_id": name, "status": status, "metadata": marks}
    world.executor.tidy([job()])
    assert world.api.stopped == ["old"]
    world.api.failure = "error"
    with pytest.raises(UnavailableError):
        world.executor.tidy([job()])


def test_a_token_is_sent_where_it_is_set_and_named_where_it_lacks(world: World) -> None:
    world.api.token = "secret"
    with pytest.raises(UnavailableError) as error:
        RayApi(world.api.address).machines()
    assert "ray_auth_token" in str(error.value.given)
    api = RayApi(world.api.address, "secret")
    assert api.machines() == [NODE["resources_total"]]
    api.close()
    assert "secret" not in repr(ServiceSettings(ray_auth_token="secret"))


def test_a_silent_cluster_is_not_asked_at_every_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_api, "DOWN_S", 60.0)
    world.api.failure = "error"
    for _time in range(5):
        assert world.executor.why_not_now() is not None
    assert len(world.api.asked) == 1


def test_what_a_cluster_has_and_what_fits_its_machines(world: World) -> None:
    machines = [{"CPU": 4.0, "GPU": 1.0, "memory": 1000.0}, {"CPU": 16.0, "memory": 400.0}, {}]
    have = cluster_capacity(machines, world.settings)
    assert (have.cores, have.gpus, have.memory_bytes) == (20, 1, 1400)
    assert default_cores({}, have) == 16
    assert default_cores({}, have, gpus=1) == 4
    workers = {"train": {"run": {"num_workers": 2}}}
    assert default_cores(workers, have) == 20
    check_machines(Resources(16, 0, 400, 0, 0), {}, have)
    check_machines(Resources(20, 1, 1400, 0, 0), {"train": {"run": {"num_workers": 1}}}, have)
    for need, spec, words in (
        (Resources(17, 0, 0, 0, 0), {}, ("17 cores", "16 cores")),
        (Resources(16, 1, 0, 0, 0), {}, ("16 cores, 1 GPUs", "4 cores, 1 GPUs")),
        (Resources(1, 0, 1100, 0, 0), {}, ("1.07 KiB", "1,000 bytes")),
        (Resources(20, 2, 0, 0, 0), workers, ("2 workers with a core and a GPU", "4 cores, 1 GPUs")),
        (Resources(20, 0, 0, 0, 0), {"preprocess": {"num_workers": 3, "threads": 8}}, ("3 workers", "16 cores")),
    ):
        with pytest.raises(ResourceError) as error:
            check_machines(need, spec, have)
        assert all(word in error.value.problem for word in words)
        grown = cluster_capacity(machines, world.settings.model_copy(update={"max_cores": 64}))
        check_machines(need, spec, grown)


def test_a_queued_job_waits_for_a_machine_that_is_gone(world: World) -> None:
    have = cluster_capacity([{"CPU": 1.0, "memory": 100.0}], world.settings)
    queued = job(status="queued", resources=NEED | {"gpus": 0})
    small = replace(queued, id="job_2", graph="graph_2", resources=NEED | {"gpus": 0, "cores": 1})
    choice = choose([queued, small], have, 3, lambda _job, _promised: None)
    assert choice.impossible == []
    assert [found.id for found, _devices in choice.start] == ["job_2"]
    assert choice.waiting[0][1]["code"] == "cores"
    assert "needs 2 cores" in choice.waiting[0][1]["detail"]


def test_the_addresses_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert ServiceSettings().ray_address is None, "for the stages' own Ray"
    monkeypatch.setenv("RAY_ADDRESS", "http://10.0.0.1:8265")
    assert ServiceSettings().ray_address == "http://10.0.0.1:8265"
    for wrong in ("10.0.0.1:6379", "ray://head:10001", "http://"):
        with pytest.raises(ValidationError, match="dashboard"):
            ServiceSettings(ray_address=wrong)


def test_a_server_whose_cluster_is_silent_is_degraded_and_its_queue_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_api, "DOWN_S", 0.1)
    monkeypatch.setattr(ray_jobs, "LOOK_AT_MACHINES_EVERY_S", 0.1)
    with fake_jobs_api() as api, running_app(settings_in(tmp_path, ray_address=api.address)) as client:
        graph = add_graph(client, tmp_path)
        wait_for(lambda: client.get("/readyz").json() == READY | {"cluster": True})
        api.failure = "error"
        wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
        assert client.get("/readyz").status_code == 200
        assert "rgrl_cluster_up 0.0" in client.get("/metrics").text
        waiting = submit(client, graph, ("one", {}))
        found = wait_for(lambda: client.get(f"/v1/jobs/{waiting}").json()["waiting_for"])
        assert (found["code"], "the GCS is gone" in found["detail"]) == ("cluster", True)
        assert api.submitted == []
        api.failure = None
        wait_for(lambda: api.submitted)
        (tmp_path / "home" / "jobs" / waiting / EXIT).write_text(
            json.dumps({"token": api.submitted[0]["submission_id"], "status": "succeeded"})
        )
        wait_for(lambda: client.get(f"/v1/jobs/{waiting}").json()["status"] == "succeeded")


def test_a_submit_before_the_cluster_ever_answered_is_for_later(tmp_path: Path) -> None:
    with fake_jobs_api() as api:
        api.failure = "error"
        with running_app(settings_in(tmp_path, ray_address=api.address)) as client:
            body = {"kind": "pipeline", "graph": add_graph(client, tmp_path)}
            answer = client.post("/v1/jobs", json=body)
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "unavailable", True)
