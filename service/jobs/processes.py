"""Finding and ending the processes of jobs by the marks in their environment.

Everything a job starts inherits ``RGRL_JOB`` and ``RGRL_ATTEMPT``, whatever session or group it moves to (Ray's
processes do), and a process id that the system gave to another program does not carry them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from preprocessing.again import JOB

__all__ = ["ATTEMPT", "HOME", "JOB", "JobProcess", "end_all", "job_processes", "runner_of"]

HOME, ATTEMPT = "RGRL_HOME", "RGRL_ATTEMPT"
_RUNNER = "service.jobs.runner"
END_WITHIN_S = 5.0


@dataclass(frozen=True)
class JobProcess:
    """A live process of a job's attempt."""

    process: psutil.Process
    job: str
    token: str

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone by now."""
        try:
            self.process.send_signal(number)
        except psutil.NoSuchProcess:
            return


def job_processes(home: Path) -> Iterator[JobProcess]:
    """Every live process of the jobs of ``home``."""
    for process in psutil.process_iter():
        found = _read(process, home)
        if found is not None:
            yield found


def runner_of(home: Path, token: str, pid: int | None) -> JobProcess | None:
    """The live runner of the attempt ``token``: process ``pid`` if that is it, else whichever there is."""
    if pid is not None:
        try:
            found = _read(psutil.Process(pid), home)
        except psutil.NoSuchProcess:
            return None
        return found if found is not None and found.token == token else None
    return next((found for found in job_processes(home) if found.token == token and _is_runner(found.process)), None)


def end_all(processes: Iterator[JobProcess]) -> int:
    """SIGKILL to each, and wait until they are gone; how many there were.

    One that its parent has not collected yet is gone too: it runs and holds nothing any more.
    """
    ended = list(processes)
    for found in ended:
        found.send(signal.SIGKILL)
    deadline = time.monotonic() + END_WITHIN_S
    while any(_runs(found.process) for found in ended) and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(ended)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _read(process: psutil.Process, home: Path) -> JobProcess | None:
    try:
        marks = process.environ()
        if marks.get(HOME) != str(home) or JOB not in marks or not _runs(process):
            return None
        return JobProcess(process, marks[JOB], marks.get(ATTEMPT, ""))
    except psutil.Error:
        return None


def _is_runner(process: psutil.Process) -> bool:
    try:
        return _RUNNER in process.cmdline()
    except psutil.Error:
        return False
