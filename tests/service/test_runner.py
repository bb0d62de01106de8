"""The runner as a process, and the two files it and the server share: the log and the events."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_harness import FAKE_STAGE, no_room, wait_for

from service.jobs.event_file import CHUNK, completed_stages, read_events
from service.jobs.last_word import LastWord
from service.jobs.log import JobLog, tail
from service.jobs.processes import job_processes
from service.jobs.remote import PULSE, stop_file
from service.jobs.runner import EVENTS, EXIT, LOCK, LOCKED_OUT, NOT_SHARED, PLAN


def prepare(
    folder: Path, *stages: tuple[str, dict[str, Any]], remote: bool = False, python: str = sys.executable
) -> None:
    plan = [
        {
            "name": name,
            "argv": [python, str(FAKE_STAGE)],
            "spec": {"name": name, "ledger": str(folder / "ledger"), **what},
        }
        for name, what in stages
    ]
    facts = {"token": "token", "remote": remote, "log_bytes": 8192, "verified": str(folder / "verified")}
    (folder / PLAN).write_text(json.dumps(facts | {"stages": plan}))


# What a stage holds beyond its start may be 512 MiB; torch's and numpy's allocators are refused 8 GiB.
GREEDY = """
import resource, sys
import numpy, torch
from preprocessing.stage import run_stage

def limit():
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + 2**29, held + 2**29))

def tensor(spec, emitter):
    limit()
    torch.zeros(2**31)

def array(spec, emitter):
    limit()
    numpy.zeros(2**31, numpy.float32)

sys.exit(run_stage({"tensor": tensor, "array": array}, sys.argv[1:]))
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "service.jobs.runner", str(folder), "token"]
    return subprocess.Popen(command, env=os.environ | marks(folder))


def marks(folder: Path, token: str = "token") -> dict[str, str]:
    return {"RGRL_HOME": str(folder), "RGRL_JOB": "job_x", "RGRL_ATTEMPT": token}


def stages_done(folder: Path) -> list[str]:
    path = folder / "ledger"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


def test_only_one_runner_holds_a_job(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {}))
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert start(tmp_path).wait(timeout=30) == LOCKED_OUT
    assert not (tmp_path / EXIT).exists()
    assert stages_done(tmp_path) == []


def test_it_goes_on_after_a_torn_line_with_what_is_not_done(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {}), ("two", {}))
    done = json.dumps({"event": "result", "stage": "one", "summary": {}})
    (tmp_path / EVENTS).write_text(done + '\n{"event": "result", "sta')
    assert start(tmp_path).wait(timeout=30) == 0
    assert stages_done(tmp_path) == ["two"]
    assert json.loads((tmp_path / EXIT).read_text()) == {"token": "token", "status": "succeeded"}
    _, events = read_events(tmp_path / EVENTS, 0)
    assert [(e["event"], e["stage"]) for e in events if e["event"] in {"stage", "result"}] == [
        ("result", "one"),
        ("stage", "two"),
        ("result", "two"),
    ]


def test_a_result_that_lacks_only_its_line_end_counts(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {}), ("two", {}))
    (tmp_path / EVENTS).write_text(json.dumps({"event": "result", "stage": "one", "summary": {}}))
    assert start(tmp_path).wait(timeout=30) == 0
    assert stages_done(tmp_path) == ["two"]


def test_sigterm_reaches_the_stage_and_the_word_is_interrupted(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {"seconds": 60}), ("two", {}))
    runner = start(tmp_path)
    wait_for(lambda: '"progress"' in (tmp_path / EVENTS).read_text() if (tmp_path / EVENTS).exists() else False)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(timeout=30) == 0
    assert json.loads((tmp_path / EXIT).read_text()) == {"token": "token", "status": "interrupted"}
    assert stages_done(tmp_path) == []


def test_sigterm_while_the_disk_is_full_is_heeded_like_any(tmp_path: Path, small_disk: Path) -> None:
    prepare(small_disk, ("one", {"seconds": 60}), ("two", {}))
    runner = start(small_disk)
    wait_for(lambda: '"progress"' in (small_disk / EVENTS).read_text() if (small_disk / EVENTS).exists() else False)
    with no_room(small_disk):
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(timeout=30) == 0
        assert json.loads((small_disk / EXIT).read_text()) == {"token": "token", "status": "interrupted"}


@pytest.mark.parametrize("stages", [1, 2])
def test_a_disk_that_fills_up_is_the_jobs_error_and_may_pass(tmp_path: Path, small_disk: Path, stages: int) -> None:
    """A stage that could not even say so; and one that could not be begun."""
    gate, ledger = str(tmp_path / "gate"), str(tmp_path / "ledger")
    first = {"gate": gate, "ledger": ledger, "noise": 500_000} | ({"exit": 1} if stages == 1 else {})
    prepare(small_disk, ("one", first), ("two", {}))
    runner = start(small_disk)
    wait_for(lambda: '"progress"' in (small_disk / EVENTS).read_text() if (small_disk / EVENTS).exists() else False)
    with no_room(small_disk):
        Path(gate).touch()
        assert runner.wait(timeout=30) == 0
        end = json.loads((small_disk / EXIT).read_text())
    error = end["error"]
    assert (end["status"], error["code"], error["retryable"]) == ("failed", "resources_unavailable", True)
    assert error["message"] == "the disk refused: no space is left"
    assert error["phase"] == ("one" if stages == 1 else "two")


def test_without_the_attempts_plan_nothing_is_begun(tmp_path: Path) -> None:
    assert start(tmp_path / "elsewhere").wait(timeout=30) == NOT_SHARED
    prepare(tmp_path, ("one", {}))
    (tmp_path / PLAN).write_text((tmp_path / PLAN).read_text().replace('"token": "token"', '"token": "another"'))
    assert start(tmp_path).wait(timeout=30) == NOT_SHARED
    assert stages_done(tmp_path) == []
    assert not (tmp_path / EXIT).exists()


def test_a_stage_knows_whom_it_shall_not_outlive(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {"parent": str(tmp_path / "parent")}))
    runner = start(tmp_path)
    assert runner.wait(timeout=30) == 0
    assert (tmp_path / "parent").read_text() == f"{runner.pid} {runner.pid}"


def test_on_a_clusters_machine_it_runs_its_own_python_and_leaves_nothing_behind(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {"stray": True}), remote=True, python="/the/servers/python")
    sleep = [sys.executable, "-c", "import time; time.sleep(120)"]
    earlier = subprocess.Popen(sleep, env=os.environ | marks(tmp_path, "earlier"))
    neighbour = subprocess.Popen(sleep, env=os.environ | marks(tmp_path / "another"))
    try:
        assert start(tmp_path).wait(timeout=30) == 0
        assert json.loads((tmp_path / EXIT).read_text())["status"] == "succeeded"
        assert earlier.wait(timeout=10) == -signal.SIGKILL
        assert list(job_processes(tmp_path)) == []
        assert neighbour.poll() is None
    finally:
        for process in (earlier, neighbour):
            process.kill()
            process.wait()


def test_on_a_clusters_machine_it_has_a_pulse_and_heeds_the_wish_that_it_end(tmp_path: Path) -> None:
    """Ray's own SIGTERM comes on top, and the stage is told once."""
    terms = tmp_path / "terms"
    prepare(tmp_path, ("one", {"gate": str(tmp_path / "gate"), "terms": str(terms), "exit": 130}), remote=True)
    runner = start(tmp_path)
    wait_for(lambda: (tmp_path / PULSE).exists())
    stop_file(tmp_path, "of another attempt").touch()
    wait_for(lambda: '"progress"' in (tmp_path / EVENTS).read_text())
    stop_file(tmp_path, "token").touch()
    wait_for(terms.exists)
    runner.send_signal(signal.SIGTERM)
    (tmp_path / "gate").touch()
    assert runner.wait(timeout=30) == 0
    assert json.loads((tmp_path / EXIT).read_text()) == {"token": "token", "status": "interrupted"}
    assert terms.read_text() == "SIGTERM\n"


def test_a_wish_that_was_there_before_it_is_heeded_at_once(tmp_path: Path) -> None:
    prepare(tmp_path, ("one", {}), remote=True)
    stop_file(tmp_path, "token").touch()
    assert start(tmp_path).wait(timeout=30) == 0
    assert json.loads((tmp_path / EXIT).read_text())["status"] == "interrupted"
    assert stages_done(tmp_path) == []


@pytest.mark.parametrize(
    ("stage", "said"), [("tensor", "DefaultCPUAllocator"), ("array", "Unable to allocate 8.00 GiB")]
)
def test_memory_that_an_allocator_refuses_is_the_jobs_error(tmp_path: Path, stage: str, said: str) -> None:
    plan = [{"name": stage, "argv": [sys.executable, "-c", GREEDY, stage], "spec": {}}]
    facts = {"token": "token", "remote": False, "log_bytes": 8192, "verified": str(tmp_path / "verified")}
    (tmp_path / PLAN).write_text(json.dumps(facts | {"stages": plan}))
    assert start(tmp_path).wait(timeout=300) == 0
    end = json.loads((tmp_path / EXIT).read_text())
    assert end["status"] == "failed"
    assert (end["error"]["code"], end["error"]["phase"]) == ("out_of_memory", stage)
    assert said in end["error"]["message"]
    assert not end["error"]["retryable"]


@pytest.mark.parametrize("limit", [200, 4096])
def test_the_log_keeps_the_newest_bytes(tmp_path: Path, limit: int) -> None:
    with JobLog(tmp_path, limit) as log:
        for number in range(500):
            log.write(b"line %03d\n" % number)
    kept = tail(tmp_path, 10_000)
    assert kept == [f"line {number:03d}" for number in range(500 - len(kept), 500)]
    assert limit // 2 - 10 <= sum(file.stat().st_size for file in tmp_path.iterdir()) <= limit


def test_a_log_goes_on_after_a_full_disk(small_disk: Path) -> None:
    with JobLog(small_disk, 2 * 2**20) as log:
        log.write(b"before\n")
        with no_room(small_disk):
            for _ in range(40):
                log.write(b"x" * 2**16 + b"\n")
        log.write(b"\nafter\n")
        log.write(b"y" * (2**20 - 100))
        log.write(b"\nlast\n")
    assert tail(small_disk, 2) == ["y" * (2**20 - 100), "last"]
    assert b"after" in (small_disk / "log.1.txt").read_bytes()


def test_the_last_word_keeps_of_a_long_log_its_end(tmp_path: Path) -> None:
    lines = [f"{number}" + "x" * 20_000 for number in range(10)]
    LastWord(tmp_path / EXIT).say({"token": "t", "error": {"code": "internal", "log_tail": lines}})
    told = json.loads((tmp_path / EXIT).read_text())
    assert told == {"token": "t", "error": {"code": "internal", "log_tail": lines[-3:]}}
    assert [path.name for path in tmp_path.iterdir()] == [EXIT]


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path, 5) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="ab é", max_size=30), max_size=30), st.integers(1, 40), st.booleans())
def test_the_tail_is_the_end_of_the_text(lines: list[str], count: int, ended: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join(lines) + ("\n" if ended and lines else "")
        (Path(folder) / "log.txt").write_text(text, encoding="utf-8")
        assert tail(Path(folder), count) == text.splitlines()[-count:]


def test_a_tail_over_many_blocks(tmp_path: Path) -> None:
    lines = [f"{number} " + "x" * 1000 for number in range(1000)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    assert tail(tmp_path, 300) == lines[-300:]


def test_events_are_read_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events"
    assert read_events(path, 0) == (0, [])
    path.write_bytes(b'{"a": 1}\nnot json\n[1]\n{"b": NaN}\n{"c"')
    offset, events = read_events(path, 0)
    assert events == [{"a": 1}, {"b": None}]
    assert read_events(path, offset) == (offset, [])
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert read_events(path, offset)[1] == [{"c": 2}]


def test_a_line_longer_than_a_chunk_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b'{"long": "' + b"x" * (2 * CHUNK) + b'"}\n{"event": "result", "stage": "last"}\n')
    assert completed_stages(path) == {"last"}
