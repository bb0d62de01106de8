"""Starting the stages of the pipeline as processes, the one way that the command line and the job runner both use.

The protocol is ``preprocessing.stage``: a spec file in, events as JSON lines out, a documented exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from preprocessing.errors import Interrupted
from preprocessing.stage import EVENTS_VARIABLE, PARENT_VARIABLE
from service.jobs.event_file import read_events

__all__ = ["StageOutcome", "run_stage", "stage_command"]

_PACKAGES: Mapping[str, str] = {
    "ingest": "preprocessing",
    "append": "preprocessing",
    "induce": "preprocessing",
    "preprocess": "preprocessing",
    "generate": "preprocessing",
    "split-edges": "preprocessing",
    "train": "trainer",
    "embed": "trainer",
    "evaluate": "trainer",
    "export": "trainer",
    "index": "service.search.indexing",
}

LOOK_EVERY_S = 0.1
LOG_TAIL_BYTES = 4096


def stage_command(stage: str) -> list[str]:
    """The command that runs ``stage``, less its last word: the spec file. What lies in the working directory is left
    out of the import path, so a folder there that is named as one of ours does no harm.
    """
    return [sys.executable, "-P", "-m", _PACKAGES[stage], stage]


@dataclass(frozen=True)
class StageOutcome:
    """How a stage ended: its exit code, its summary or error (as its last event told), and the end of its log."""

    exit_code: int
    summary: dict[str, Any] | None
    error: dict[str, Any] | None
    log: str


def run_stage(stage: str, spec: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None]) -> StageOutcome:
    """Run a stage to its end, in a process group of its own, handing over its events as they come.

    SIGINT and SIGTERM are passed on to the group, and the stage ends in its own time; a second SIGINT kills the group.
    After either the outcome is an interruption, also where the stage had made what it was to make.
    Where this process is killed, the stage is told to end.
    """
    with tempfile.TemporaryDirectory(prefix=f"rgrl-{stage}-") as folder:
        spec_file, events_file, log_file = (Path(folder) / name for name in ("spec.json", "events.jsonl", "log"))
        spec_file.write_text(json.dumps(spec), encoding="utf-8")
        with log_file.open("w+b") as log:
            process = subprocess.Popen(
                [*stage_command(stage), str(spec_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, EVENTS_VARIABLE: str(events_file), PARENT_VARIABLE: str(os.getpid())},
                start_new_session=True,
            )
            last: dict[str, Any] = {}
            with _forwarding(process) as interrupted:
                for event in _events(process, events_file):
                    last = event
                    on_event(event)
            code, error = process.returncode, last.get("error")
            # A signal that comes when the stage is done, or nearly, is for whatever its caller would do next.
            if interrupted and code <= 0:
                code = Interrupted.exit_code
                error = Interrupted.by_signal(interrupted[0]).as_dict()
            return StageOutcome(code if code >= 0 else 1, last.get("summary"), error, _end_of(log))


def _events(process: subprocess.Popen[bytes], file: Path) -> Iterator[dict[str, Any]]:
    offset, running = 0, True
    while running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY_S)
            running = False
        before = -1
        while offset != before:
            before = offset
            offset, events = read_events(file, offset)
            yield from events


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass signals on to the process group while inside; yields the list of those that came."""
    came: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        sent = signal.SIGKILL if number == signal.SIGINT and signal.SIGINT in came else number
        came.append(number)
        if process.poll() is None:
            os.killpg(process.pid, sent)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_of(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - LOG_TAIL_BYTES))
    return log.read().decode("utf-8", "replace")
