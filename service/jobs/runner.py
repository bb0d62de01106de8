"""The process of one attempt at a job: ``python -m service.jobs.runner JOB_DIR TOKEN``.

It runs the stages of ``plan.json`` one after another as processes of their own, passes SIGTERM on to them, and in the
end writes ``exit.json``. A lock on the job's directory keeps any second runner out; stages whose result is in the event
file are not run again. Where the server cannot see its processes, on a machine of a cluster, it writes a pulse, ends at
the server's wish as a file, and ends what the job leaves behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from preprocessing.artifact import write_json
from preprocessing.errors import InputError, Interrupted, ResourceError, UsageError
from preprocessing.stage import EVENTS_VARIABLE, PARENT_VARIABLE, disk_errors
from service.jobs.event_file import completed_stages, read_events
from service.jobs.last_word import LastWord
from service.jobs.log import JobLog, tail
from service.jobs.made import verify_made
from service.jobs.remote import Remote
from service.room import check_room
from service.verified import VerifiedFiles

__all__ = ["EVENTS", "EXIT", "LOCK", "NOT_SHARED", "PLAN", "main", "outcome_of", "read_plan"]

PLAN, EVENTS, EXIT, LOCK = "plan.json", "events.jsonl", "exit.json", "lock"
NOT_SHARED = 66
LOG_TAIL_LINES = 20
LOCKED_OUT = 75
_CODES = {kind.exit_code: kind.code for kind in (UsageError, InputError, Interrupted)}


class _Runner:
    """Runs a plan's stages; ``outcome`` is what ``exit.json`` says."""

    def __init__(self, directory: Path, plan: dict[str, Any]) -> None:
        self._directory = directory
        self._plan = plan
        self._events = directory / EVENTS
        self._stage: subprocess.Popen[bytes] | None = None
        self._told: subprocess.Popen[bytes] | None = None
        self._interrupted = threading.Event()
        self._phase: str | None = None

    def outcome(self) -> dict[str, Any]:
        """Run what is left of the plan. What a disk refuses meanwhile is an end like others."""
        signal.signal(signal.SIGTERM, self._interrupt)
        try:
            with disk_errors(self._directory):
                return self._ran()
        except ResourceError as error:
            if self._interrupted.is_set():
                return {"status": "interrupted"}
            return {"status": "failed", "error": error.as_dict() | {"phase": self._phase, "rank": None, "signal": None}}

    def _ran(self) -> dict[str, Any]:
        _end_line(self._events)
        done = completed_stages(self._events)
        with JobLog(self._directory, self._plan["log_bytes"]) as log, self._watching():
            for stage in self._plan["stages"]:
                if self._interrupted.is_set():
                    return {"status": "interrupted"}
                if stage["name"] in done:
                    continue
                error = self._run(stage, log)
                if self._interrupted.is_set() and error is not None:
                    return {"status": "interrupted"}
                if error is not None:
                    return {"status": "failed", "error": error}
                verify_made(stage["name"], stage["spec"], VerifiedFiles(Path(self._plan["verified"])))
        return {"status": "succeeded"}

    def _watching(self) -> AbstractContextManager[object]:
        return Remote(self._directory, self._plan["token"]) if self._plan["remote"] else nullcontext()

    def _run(self, stage: dict[str, Any], log: JobLog) -> dict[str, Any] | None:
        """Run one stage to its end; what went wrong, or None."""
        self._phase = name = stage["name"]
        spec = self._directory / f"{name}.json"
        write_json(spec, stage["spec"])
        self._announce(name)
        began, kills = self._events.stat().st_size, _oom_kills()
        # The server's Python need not be where a cluster's machine has it.
        python = sys.executable if self._plan["remote"] else stage["argv"][0]
        process = subprocess.Popen(
            [python, *stage["argv"][1:], str(spec)],
            env=os.environ | {EVENTS_VARIABLE: str(self._events), PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._stage = process
        if self._interrupted.is_set():
            self._pass_on()
        pump = threading.Thread(target=_copy, args=(process, log), daemon=True)
        pump.start()
        code = process.wait()
        self._stage = None
        pump.join(timeout=1.0)
        if code == 0:
            return None
        said = self._last_error(began, name)
        if said is None and code > 0:
            # It may have had no room to say why.
            with disk_errors(self._directory):
                check_room(self._directory)
        return _describe(name, code, said, oom=_oom_kills() > kills) | {
            "log_tail": tail(self._directory, LOG_TAIL_LINES)
        }

    def _announce(self, stage: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": moment, "event": "stage", "stage": stage}) + "\n")

    def _last_error(self, offset: int, stage: str) -> dict[str, Any] | None:
        """The error that the stage itself reported, if it came so far."""
        error = None
        while True:
            after, events = read_events(self._events, offset)
            if after == offset:
                return error
            for event in events:
                if event.get("event") == "error" and event.get("stage") == stage:
                    error = event.get("error")
            offset = after

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._interrupted.is_set():
            self._interrupted.set()
            self._pass_on()

    def _pass_on(self) -> None:
        """SIGTERM, once, to everything in the stage's group: a second would cut off what it does at the first."""
        if self._stage is not None and self._stage is not self._told:
            self._told = self._stage
            try:
                os.killpg(self._stage.pid, signal.SIGTERM)
            except ProcessLookupError:
                return


def main(argv: list[str]) -> int:
    """Run one attempt; 75 when another runner holds the job, 66 when its plan is not there."""
    directory, token = Path(argv[0]), argv[1]
    plan = read_plan(directory, token)
    if plan is None:
        print(f"{directory / PLAN} is not there, or not of this attempt", file=sys.stderr)
        return NOT_SHARED
    with (directory / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return LOCKED_OUT
        word = LastWord(directory / EXIT)
        word.say({"token": token, **_Runner(directory, plan).outcome()})
    return 0


def outcome_of(directory: Path, token: str | None) -> dict[str, Any] | None:
    """What the runner of the attempt wrote at its end."""
    outcome = _read(directory / EXIT)
    return outcome if outcome is not None and outcome.get("token") == token else None


def read_plan(directory: Path, token: str) -> dict[str, Any] | None:
    """What the runner of the attempt is to do; None where that is not written."""
    plan = _read(directory / PLAN)
    return plan if plan is not None and plan.get("token") == token else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document


def _describe(stage: str, code: int, said: dict[str, Any] | None, *, oom: bool) -> dict[str, Any]:
    """The job's error from how its stage ended."""
    name = signal.Signals(-code).name if code < 0 else None
    if said is not None:
        return {"rank": None, **said, "phase": stage, "signal": name}
    if oom:
        kind, message = "out_of_memory", f"the kernel ended the {stage} stage for want of memory"
    elif name is not None:
        kind, message = "killed", f"the {stage} stage was ended by {name}"
    else:
        kind, message = _CODES.get(code, "internal"), f"the {stage} stage ended with exit code {code}"
    retryable = kind in {"killed", "interrupted"}
    return {"code": kind, "message": message, "phase": stage, "rank": None, "signal": name, "retryable": retryable}


def _copy(process: subprocess.Popen[bytes], log: JobLog) -> None:
    assert process.stdout is not None
    while data := os.read(process.stdout.fileno(), 64 * 1024):
        log.write(data)


def _end_line(path: Path) -> None:
    """End a line that a kill left torn, so that the next event begins its own."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _oom_kills() -> int:
    """How often the kernel has ended a process of our control group for want of memory; 0 where it does not tell."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        group = next(line[3:] for line in lines if line.startswith("0::"))
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text(encoding="utf-8")
        return int(dict(line.split() for line in events.splitlines())["oom_kill"])
    except (OSError, StopIteration, KeyError, ValueError):
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
