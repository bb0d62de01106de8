"""The stage protocol: events, exit codes and interruption, over real processes."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import preprocessing
import trainer
from preprocessing.stage import Emitter

PROGRAM = textwrap.dedent(
    """
    import sys, time
    from preprocessing.errors import InputError
    from preprocessing.settings import PprSettings
    from preprocessing.stage import run_stage

    def work(spec, emitter):
        for done in range(3):
            emitter.progress(done, 2, "rows")
        emitter.metrics(7, {"loss": 0.5, "bad": float("nan")})
        return {"rows": 2}

    def wrong(spec, emitter):
        raise InputError("not a number", where="nodes.csv, row 3", given="x", expected="a number", remedy="mend it")

    def hang(spec, emitter):
        emitter.progress(0, 1, "rows")
        while True:
            time.sleep(0.01)  # One long call would not see a signal that comes just before it.

    def settings(spec, emitter):
        return PprSettings.model_validate(spec)

    def broken(spec, emitter):
        raise ZeroDivisionError("oops")

    def full(spec, emitter):
        raise MemoryError

    def says(spec, emitter):
        raise RuntimeError(spec["says"])

    def unread(spec, emitter):
        try:
            raise MemoryError("malloc of size 8 failed")
        except MemoryError as error:
            raise InputError("cannot be read", where="nodes.parquet") from error

    def disk(spec, emitter):
        raise OSError(spec["errno"], "refused", "out/indices.npy")

    stages = {f.__name__: f for f in (work, wrong, hang, settings, broken, full, says, unread, disk)}
    sys.exit(run_stage(stages, sys.argv[1:]))
    """
)


def how_to_start(tmp_path: Path, stage: str, spec: object = None) -> tuple[list[str], dict[str, str]]:
    """The command of a stage, and its environment, which names ``events.jsonl``."""
    (tmp_path / "spec.json").write_text(json.dumps(spec or {}))
    command = [sys.executable, "-c", PROGRAM, stage, str(tmp_path / "spec.json")]
    return command, os.environ | {"RGRL_EVENTS": str(tmp_path / "events.jsonl")}


def finish(tmp_path: Path, stage: str, spec: object = None) -> tuple[int, list[dict[str, Any]], str]:
    command, environment = how_to_start(tmp_path, stage, spec)
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    events = tmp_path / "events.jsonl"
    lines = events.read_text().splitlines() if events.exists() else []
    return process.returncode, [json.loads(line) for line in lines], process.stderr


def test_success_ends_with_the_result(tmp_path: Path) -> None:
    code, events, _ = finish(tmp_path, "work")
    assert code == 0
    assert [event["event"] for event in events] == ["progress", "progress", "metrics", "result"]
    assert [event["done"] for event in events[:2]] == [0, 2]  # the one between is throttled
    assert events[2]["values"] == {"loss": 0.5, "bad": None}
    assert events[-1]["summary"] == {"rows": 2}
    assert all(event["stage"] == "work" for event in events)


def test_bad_input_is_exit_3_with_every_part_of_the_message(tmp_path: Path) -> None:
    code, events, stderr = finish(tmp_path, "wrong")
    assert code == 3
    error = events[-1]["error"]
    assert (error["code"], error["where"], error["given"]) == ("input_invalid", "nodes.csv, row 3", "x")
    for part in ("nodes.csv, row 3: not a number", "given: x", "expected: a number", "remedy: mend it"):
        assert part in stderr
    assert "Traceback" not in stderr


def test_bad_setting_is_exit_2_and_points_at_it(tmp_path: Path) -> None:
    code, events, stderr = finish(tmp_path, "settings", {"top_k": 0})
    assert code == 2
    assert events[-1]["error"]["pointer"] == "/top_k"
    assert "top_k" in stderr


def test_unexpected_failure_is_exit_1_with_a_traceback_in_the_log(tmp_path: Path) -> None:
    status, events, stderr = finish(tmp_path, "broken")
    assert status == 1
    assert events[-1]["error"]["code"] == "internal"
    assert "Traceback" in stderr


TORCH = (
    "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.00 GiB."


@pytest.mark.parametrize(
    ("stage", "spec", "message"),
    [
        ("full", {}, "MemoryError"),
        ("says", {"says": f"{TORCH}\nException raised from alloc_cpu"}, TORCH),
        ("says", {"says": f"The following operation failed:\n{CUDA}"}, CUDA),
        ("unread", {}, "malloc of size 8 failed"),
        ("disk", {"errno": errno.ENOMEM}, "[Errno 12] refused: 'out/indices.npy'"),
    ],
)
def test_a_lack_of_memory_is_told_as_such_whoever_found_it(
    tmp_path: Path, stage: str, spec: dict[str, Any], message: str
) -> None:
    status, events, stderr = finish(tmp_path, stage, spec)
    assert status == 1
    error = events[-1]["error"]
    assert (error["code"], error["message"]) == ("out_of_memory", f"the stage ran out of memory: {message}")
    assert "mini-batches" in error["remedy"]
    assert "Traceback" in stderr


def test_another_runtime_error_is_no_lack_of_memory(tmp_path: Path) -> None:
    _, events, _ = finish(tmp_path, "says", {"says": "shapes do not fit"})
    assert events[-1]["error"]["code"] == "internal"


@pytest.mark.parametrize(
    ("number", "passes", "remedy"),
    [
        (errno.ENOSPC, True, "make room"),
        (errno.EDQUOT, True, "make room"),
        (errno.EFBIG, False, "make room"),
        (errno.EROFS, False, "give it the right to write there"),
        (errno.EACCES, False, "give it the right to write there"),
        (errno.EEXIST, False, "clear the path"),
        (errno.ENOTDIR, False, "clear the path"),
        (errno.ELOOP, False, "clear the path"),
        (errno.ENAMETOOLONG, False, "clear the path"),
    ],
)
def test_what_the_disk_refuses_is_one_clear_error(tmp_path: Path, number: int, passes: bool, remedy: str) -> None:
    code, events, stderr = finish(tmp_path, "disk", {"errno": number})
    assert code == 1
    error = events[-1]["error"]
    assert (error["code"], error["retryable"]) == ("resources_unavailable", passes)
    assert "out/indices.npy" in stderr
    assert f"remedy: {remedy} or name another path, then run the same command again: it continues" in stderr
    assert "Traceback" not in stderr


def test_a_job_is_told_of_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGRL_JOB", "job_1")
    _, events, _ = finish(tmp_path, "disk", {"errno": errno.ENOSPC})
    assert events[-1]["error"]["remedy"] == "make room, then submit the job again"


def test_stages_speak_of_a_command_by_one_module_alone() -> None:
    """It alone knows whether there was a command."""
    packages = [Path(package.__file__ or "").parent for package in (preprocessing, trainer)]
    files = [file for package in packages for file in package.rglob("*.py")]
    spoken = [file.name for file in files if re.search("(same command|run it) again", file.read_text(encoding="utf-8"))]
    assert spoken == ["again.py"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("job", "remedy"), [({}, "run the same command again: it continues"), ({"RGRL_JOB": "job_1"}, None)]
)
def test_interruption_is_exit_130_and_says_that_a_command_continues(
    tmp_path: Path,
    spawn: Callable[..., subprocess.Popen[Any]],
    number: signal.Signals,
    job: dict[str, str],
    remedy: str | None,
) -> None:
    command, environment = how_to_start(tmp_path, "hang")
    process, events = spawn(command, env=environment | job), tmp_path / "events.jsonl"
    while not events.exists() or not events.read_text():
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    error = json.loads(events.read_text().splitlines()[-1])["error"]
    assert (error["code"], error["remedy"]) == ("interrupted", remedy)


def test_unknown_stage_is_exit_2(tmp_path: Path) -> None:
    code, events, stderr = finish(tmp_path, "nonsense")
    assert (code, events) == (2, [])
    assert "usage" in stderr


def test_the_rate_forgets_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped for an hour tells its time left by what it does now."""
    now, events = [1000.0], []
    monkeypatch.setattr("preprocessing.stage.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Emitter, "_emit", lambda _self, _event, **fields: events.append(fields))
    emitter = Emitter("train")
    for done in range(301):
        now[0] += 3600 if done == 100 else 2
        emitter.progress(done, 400, "steps")
    assert len(events) == 301
    assert events[100]["rate"] < 0.03
    assert (events[300]["rate"], events[300]["eta_s"]) == (0.5, 200)


@pytest.mark.parametrize("total", [2, 4, 5])
def test_a_part_of_few_steps_tells_no_time_left(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    """One second for its first step says nothing of the minutes that its second takes."""
    now, told = [1000.0], []
    monkeypatch.setattr("preprocessing.stage.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Emitter, "_emit", lambda _self, _event, **fields: told.append(fields["eta_s"]))
    emitter = Emitter("index")
    for done in range(total + 1):
        emitter.progress(done, total, "steps of the map")
        now[0] += 1
    assert told == [None] * (total + 1) if total <= 4 else told == [None, 4, 3, 2, 1, 0]
