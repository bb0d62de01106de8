import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from training_bundles import Recorder, make_bundle, settings_document

from preprocessing.bundle import Bundle
from preprocessing.errors import ResourceError, RgrlError, WorkerLostError
from preprocessing.ray_cluster import connected
from preprocessing.stage import EVENTS_VARIABLE
from trainer import checkpoint, loop
from trainer.launch import InProcess
from trainer.ray_train import ENVIRONMENT, Machine, _cause, cpus_per_worker, run_with_ray
from trainer.settings import TrainSettings

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("machines", "workers", "gpu", "cpus"),
    [
        ([Machine(8, 0)], 1, False, 8),
        ([Machine(8, 0)], 3, False, 2),
        ([Machine(2, 0)], 2, False, 1),
        ([Machine(8, 0), Machine(3, 0)], 3, False, 3),
        ([Machine(16, 2), Machine(64, 0)], 2, True, 8),
        ([Machine(16, 1), Machine(4, 1)], 2, True, 4),
    ],
)
def test_workers_get_as_many_cpus_as_all_of_them_can(machines: list, workers: int, gpu: bool, cpus: int) -> None:
    assert cpus_per_worker(machines, workers, gpu=gpu) == cpus


@pytest.mark.parametrize(
    ("machines", "workers", "gpu"), [([Machine(2, 0)], 3, False), ([Machine(16, 1)], 2, True), ([], 1, False)]
)
def test_what_the_cluster_cannot_hold_is_refused_with_have_and_need(machines: list, workers: int, gpu: bool) -> None:
    with pytest.raises(ResourceError) as error:
        cpus_per_worker(machines, workers, gpu=gpu)
    assert f"{workers} workers" in str(error.value.given)
    assert f"{sum(machine.cpus for machine in machines)} CPUs" in str(error.value.given)
    assert error.value.pointer == "/settings/run/num_workers"


def test_a_workers_own_error_comes_through_and_any_other_is_a_lost_worker() -> None:
    from ray.train import WorkerGroupError

    own = RgrlError("the loss is not finite")
    assert _cause(WorkerGroupError("", {0: RuntimeError("connection closed"), 1: own})) is own
    lost = _cause(WorkerGroupError("", {1: RuntimeError("the actor died")}))
    assert isinstance(lost, WorkerLostError)
    assert "worker 1" in lost.problem
    assert "the actor died" in str(lost.given)


@pytest.fixture(scope="module")
def ray_started() -> Iterator[None]:
    """One Ray for the tests below: starting it takes longest."""
    with connected(ENVIRONMENT):
        yield


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("bundle"))


def job_for(bundle: Bundle, work: Path, **parts: dict) -> loop.Job:
    work.mkdir()
    return loop.Job(bundle.path, work, TrainSettings.model_validate(settings_document(**parts)), "print")


def in_process(job: loop.Job) -> list[dict[str, float]]:
    recorder = Recorder()
    loop.run(job, InProcess(CPU, recorder))
    return [line["values"] for line in recorder.of("metrics")]


def under_ray(job: loop.Job, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    events = job.work / "events"
    monkeypatch.setenv(EVENTS_VARIABLE, str(events))
    run_with_ray(job)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return [line["values"] for line in lines if line["event"] == "metrics"]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_started")
def test_one_ray_worker_is_the_run_in_process(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"mode": "mini", "size": 16, "fan_out": [3, 3]}
    alone = job_for(bundle, tmp_path / "alone", batch=batch)
    ray = job_for(bundle, tmp_path / "ray", batch=batch, run={"epochs": 4, "num_workers": 1})
    expected = [values["loss"] for values in in_process(alone)]
    assert [values["loss"] for values in under_ray(ray, monkeypatch)] == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("ray_started")
def test_two_workers_in_full_batch_are_one(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = job_for(bundle, tmp_path / "alone")
    pair = job_for(bundle, tmp_path / "pair", run={"epochs": 4, "num_workers": 2})
    expected = [values["loss"] for values in in_process(alone)]
    assert [values["loss"] for values in under_ray(pair, monkeypatch)] == pytest.approx(expected, rel=1e-4)
    assert not (pair.work / "ray").exists()


@pytest.mark.usefixtures("ray_started")
def test_a_killed_worker_ends_the_run_and_leaves_its_checkpoints(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers with uneven shares, one of them killed once there is a checkpoint."""
    job = job_for(
        bundle,
        tmp_path / "work",
        batch={"mode": "mini", "size": 30, "fan_out": [3, 3]},
        run={"epochs": 1_000_000, "checkpoint_every": 1, "num_workers": 2},
    )
    killer = threading.Thread(target=kill_a_worker_after_a_checkpoint, args=(job.work,))
    killer.start()
    with pytest.raises(WorkerLostError, match="worker"):
        under_ray(job, monkeypatch)
    killer.join()
    assert checkpoint.newest(job.work, "print") is not None


def kill_a_worker_after_a_checkpoint(work: Path) -> None:
    while checkpoint.newest(work, "print") is None:
        time.sleep(0.1)
    children = psutil.Process().children(recursive=True)
    workers = [child for child in children if "RayTrainWorker" in " ".join(child.cmdline())]
    workers[-1].kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_stage_and_every_process_of_its_ray(
    bundle: Bundle, tmp_path: Path, number: signal.Signals
) -> None:
    settings = settings_document(run={"epochs": 1_000_000, "checkpoint_every": 1, "num_workers": 1})
    spec = {"bundle": str(bundle.path), "out": str(tmp_path / "out"), "work": str(tmp_path / "work")}
    (tmp_path / "spec.json").write_text(json.dumps(spec | {"settings": settings}))
    command = [sys.executable, "-m", "trainer", "train", str(tmp_path / "spec.json")]
    stage = psutil.Popen(command, env=os.environ | {EVENTS_VARIABLE: str(tmp_path / "events")})
    while not list((tmp_path / "work" / "checkpoints").glob("step-*")):
        assert stage.poll() is None
        time.sleep(0.2)
    children = stage.children(recursive=True)
    assert children
    stage.send_signal(number)
    assert stage.wait(timeout=60) == 130
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    last = json.loads((tmp_path / "events").read_text().splitlines()[-1])
    assert last["error"]["code"] == "interrupted"
