"""What a runner does on a machine whose processes the server does not see, by files in the job's folder."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from preprocessing.artifact import write_json
from service.jobs.processes import HOME, JOB, JobProcess, end_all, job_processes

__all__ = ["PULSE", "Remote", "note_submitted", "stop_file", "submitted"]

PULSE = "pulse"
_SUBMITTED = "ray.json"
LOOK_EVERY_S = 0.5
LOOKS_A_BEAT = 10


def stop_file(directory: Path, token: str) -> Path:
    """The server's wish that the runner of an attempt end."""
    return directory / f"stop.{token}"


def note_submitted(directory: Path, token: str, address: str) -> None:
    """Note that the cluster at ``address`` has taken the attempt."""
    write_json(directory / _SUBMITTED, {"token": token, "address": address})


def submitted(directory: Path, token: str | None) -> bool:
    """Whether it is known that a cluster took the attempt."""
    try:
        return bool(json.loads((directory / _SUBMITTED).read_text(encoding="utf-8"))["token"] == token)
    except (OSError, ValueError, KeyError):
        return False


class Remote:
    """Inside, a thread writes the runner's pulse and turns the server's wish for its end into SIGTERM, once.

    What earlier attempts left on this machine is ended before, and what this one left after.
    """

    def __init__(self, directory: Path, token: str) -> None:
        self._directory = directory
        self._token = token
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="remote", daemon=True)

    def __enter__(self) -> Remote:
        _end_others(lambda found: found.token != self._token)
        if stop_file(self._directory, self._token).exists():
            os.kill(os.getpid(), signal.SIGTERM)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        _end_others(lambda _found: True)

    def _watch(self) -> None:
        looks, heard = 0, False
        while not self._done.wait(LOOK_EVERY_S):
            if looks % LOOKS_A_BEAT == 0:
                self._beat(looks)
            looks += 1
            if not heard and stop_file(self._directory, self._token).exists():
                heard = True
                os.kill(os.getpid(), signal.SIGTERM)

    def _beat(self, number: int) -> None:
        try:
            (self._directory / PULSE).write_text(f"{self._token} {number}", encoding="utf-8")
        except OSError as error:
            print(f"the pulse could not be written: {error}", flush=True)


def _end_others(which: Callable[[JobProcess], bool]) -> None:
    home, job = os.environ[HOME], os.environ[JOB]
    ended = end_all(
        found
        for found in job_processes(Path(home))
        if found.job == job and found.process.pid != os.getpid() and which(found)
    )
    if ended:
        print(f"ended {ended} processes that the job left behind", flush=True)
