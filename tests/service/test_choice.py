"""Whose turn it is: jobs as rows, without processes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preprocessing.errors import ResourceError
from service.jobs import resources
from service.jobs.choice import Choice, choose
from service.jobs.resources import Capacity, Resources, check_resources, too_little_disk
from service.store import Job

HAVE = Capacity(cores=4, devices=("0", "1"), memory_bytes=100)


def job(number: int, **fields: Any) -> Job:
    asked = {"cores": 1, "gpus": 0, "memory_bytes": 0, "disk_bytes": 0, "bundle_bytes": 0}
    asked |= {name: fields.pop(name) for name in list(fields) if name in asked}
    empty = dict.fromkeys(Job.__dataclass_fields__)
    values = {"labels": {}, "status": "queued", "attempt": 0, "priority": 0, "cancel_requested": False, "spec": {}}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    fixed = {"id": f"job_{number}", "kind": "train", "graph": f"graph_{number}", "created_at": at, "transitions": ()}
    return Job(**(empty | values | fixed | {"resources": asked} | fields))  # type: ignore[arg-type]


def chosen(*active: Job, most: int = 99, lacks: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    choice: Choice = choose(active, HAVE, most, lambda job, _promised: (lacks or {}).get(job.id))
    assert not choice.impossible
    return [job.id for job, _ in choice.start], {job.id: reason["code"] for job, reason in choice.waiting}


def test_by_priority_then_age() -> None:
    active = [job(1), job(2, priority=5), job(3, priority=5), job(4, priority=-1)]
    assert chosen(*active)[0] == ["job_2", "job_3", "job_1", "job_4"]
    assert chosen(*active, most=2) == (["job_2", "job_3"], {"job_1": "room", "job_4": "turn"})


@pytest.mark.parametrize(
    ("what", "large", "code"), [("cores", 4, "cores"), ("gpus", 2, "gpus"), ("memory_bytes", 100, "memory")]
)
def test_a_large_job_holds_back_all_behind_it(what: str, large: int, code: str) -> None:
    runs = job(1, status="running", devices=["1"], **{what: 1})
    assert chosen(runs, job(2, **{what: large}), job(3)) == ([], {"job_2": code, "job_3": "turn"})
    assert chosen(runs, job(2, **{what: large}), job(3, priority=1))[0] == ["job_3"]
    assert chosen(runs, job(2, **{what: large - 1}))[0] == ["job_2"]
    assert chosen(job(2, **{what: large}))[0] == ["job_2"]


def test_what_starts_now_is_counted_too() -> None:
    assert chosen(job(1, cores=3), job(2, cores=1), job(3, cores=1)) == (["job_1", "job_2"], {"job_3": "cores"})


def test_a_job_that_waits_for_its_graph_or_for_disk_holds_back_none() -> None:
    runs = job(1, status="cancelling", graph="g")
    found = chosen(runs, job(2, graph="g"), job(3), job(4, graph="h"), job(5, graph="h"), lacks={"job_3": "full"})
    assert found == (["job_4"], {"job_2": "graph", "job_3": "disk", "job_5": "graph"})


def test_every_job_gets_gpus_of_its_own() -> None:
    runs = job(1, status="running", gpus=1, devices=["0"])
    choice = choose([runs, job(2), job(3, gpus=1)], HAVE, 99, lambda *_: None)
    assert [(job.id, devices) for job, devices in choice.start] == [("job_2", []), ("job_3", ["1"])]


def test_what_running_jobs_were_promised_of_disk_is_not_free() -> None:
    asked: dict[str, int] = {}
    runs = job(1, status="running", disk_bytes=3, bundle_bytes=4)
    choose([runs, job(2, disk_bytes=5), job(3)], HAVE, 99, lambda job, promised: asked.update({job.id: promised}))
    assert asked == {"job_2": 7, "job_3": 12}


def test_what_this_server_never_has_is_told() -> None:
    choice = choose([job(1, cores=5), job(2, resources=None)], HAVE, 99, lambda *_: None)
    assert [(job.id, need) for job, need in choice.impossible] == [("job_1", "it needs 5 cores, and 4 are free")]
    assert [job.id for job, _ in choice.start] == ["job_2"], "a row of an earlier version gets every core"


def test_a_cancelled_job_is_left_alone() -> None:
    assert chosen(job(1, cancel_requested=True), job(2)) == (["job_2"], {})


@pytest.mark.parametrize(
    ("need", "pointer"),
    [
        ((5, 0, 0, 0, 0), "/resources/cores"),
        ((1, 3, 0, 0, 0), "/resources/gpus"),
        ((1, 0, 101, 0, 0), "/resources/memory_bytes"),
        ((1, 0, 0, 2**62, 0), "/resources/disk_bytes"),
        ((1, 0, 0, 0, 2**62), "/resources/disk_bytes"),
    ],
)
def test_what_can_never_fit_is_refused_with_have_and_need(need: tuple[int, ...], pointer: str, tmp_path: Path) -> None:
    with pytest.raises(ResourceError) as caught:
        check_resources(Resources(*need), HAVE, tmp_path, tmp_path / "not" / "yet")
    assert caught.value.pointer == pointer
    assert any(f"needs {told}" in caught.value.problem for told in ("5 cores", "3 CUDA", "101 bytes", "4,194,304 TiB"))
    check_resources(Resources(4, 2, 100, 1, 1), HAVE, tmp_path, tmp_path / "not" / "yet")


def test_two_places_on_one_disk_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda _path: SimpleNamespace(free=100))
    fits, not_both = Resources(1, 0, 0, 50, 50), Resources(1, 0, 0, 50, 51)
    assert too_little_disk(fits, tmp_path, tmp_path / "b") is None
    assert (
        too_little_disk(not_both, tmp_path, tmp_path / "b") == "the job needs 101 bytes of disk and 100 bytes are free"
    )
    assert too_little_disk(fits, tmp_path, tmp_path / "b", promised=1) is not None
