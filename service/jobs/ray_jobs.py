"""Runners as jobs of a Ray cluster, one an attempt, whose id is the attempt's token: so that none is started twice.

The cluster's machines see the server's home under the same path. What jobs say goes by the files there, and so does the
wish that they end; Ray is asked to start them, whether they live, and to end by force those that do not heed the wish.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from preprocessing.errors import NotNowError, ResourceError, RgrlError, WorkerLostError
from service.errors import UnavailableError
from service.jobs.cluster import cluster_capacity
from service.jobs.local_processes import LocalProcesses
from service.jobs.processes import ATTEMPT, HOME, JOB
from service.jobs.ray_api import RayApi
from service.jobs.remote import PULSE, note_submitted, stop_file, submitted
from service.jobs.resources import Capacity, ray_workers
from service.jobs.runner import NOT_SHARED, outcome_of, read_plan
from service.settings import ServiceSettings
from service.store import Job

__all__ = ["RayJobs"]

log = structlog.get_logger(__name__)

ASK_EVERY_S = 1.0
LOOK_AT_MACHINES_EVERY_S = 5.0
STOP_AGAIN_S = 5.0
SILENCE_S = 30.0
"""A runner writes its pulse every five seconds; one without for so long, that cannot be asked for, is gone."""
_OVER = {"SUCCEEDED", "FAILED", "STOPPED"}
_START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"


@dataclass
class _Attempt:
    """What is known of an attempt in memory; a new server finds it out again. Times are monotonic."""

    asked_at: float = float("-inf")
    stopped_at: float = float("-inf")
    pulse: str = ""
    pulse_at: float = 0.0
    over: bool = False
    cause: RgrlError | None = None


class RayJobs:
    """The executor of a server with ``ray_address``. Jobs that it started as local processes before, it follows so."""

    remote = True

    def __init__(self, settings: ServiceSettings, api: RayApi) -> None:
        self._settings = settings
        self._api = api
        self._local = LocalProcesses(settings)
        self._attempts: dict[str, _Attempt] = {}
        self._lock = threading.Lock()
        self._capacity: Capacity | None = None
        self._looked_at = float("-inf")

    def capacity(self) -> Capacity:
        """The cluster's, as it was told last; ``UnavailableError`` if it never was."""
        error = self._look_at_machines()
        if self._capacity is None:
            assert error is not None
            raise error
        return self._capacity

    def answers(self) -> bool | None:
        """Whether the cluster answered when it was asked last."""
        return self._api.answers

    def why_not_now(self) -> str | None:
        """What it said, or did not, when it cannot be asked."""
        error = self._look_at_machines()
        return None if error is None else f"{error.problem} ({error.given})"

    def start(self, job: Job, directory: Path) -> int | None:
        """Submit the attempt's runner. Sent again it is the same job."""
        assert job.token is not None
        self._api.submit(self._submission(job, directory))
        note_submitted(directory, job.token, self._api.address)
        return None

    def alive(self, job: Job, directory: Path) -> bool:
        """By its last word, else by what Ray says, else, when Ray cannot be asked, by its pulse."""
        if job.pid is not None:
            return self._local.alive(job, directory)
        attempt = self._attempt(job)
        if not attempt.over and outcome_of(directory, job.token) is not None:
            attempt.over = True
        if not attempt.over and time.monotonic() - attempt.asked_at >= ASK_EVERY_S:
            try:
                self._ask(job, directory, attempt)
                attempt.asked_at, attempt.pulse_at = time.monotonic(), 0.0
            except UnavailableError:
                self._feel_pulse(job, directory, attempt)
        return not attempt.over

    def terminate(self, job: Job, directory: Path) -> None:
        """Write the wish where the runner looks for it, also one that Ray starts later."""
        if job.pid is not None:
            self._local.terminate(job, directory)
            return
        assert job.token is not None
        stop_file(directory, job.token).touch()

    def end(self, job: Job, directory: Path) -> int:
        """Have Ray end it: SIGTERM to the runner and its stage, and SIGKILL after three seconds."""
        if job.pid is not None:
            return self._local.end(job, directory)
        attempt = self._attempt(job)
        if attempt.over or job.token is None or time.monotonic() - attempt.stopped_at < STOP_AGAIN_S:
            return 0
        self.terminate(job, directory)
        try:
            stopped = self._api.stop(job.token)
        except UnavailableError:
            return 0
        attempt.stopped_at, attempt.asked_at = time.monotonic(), float("-inf")
        return int(stopped)

    def cause(self, job: Job) -> RgrlError:
        """What Ray told."""
        if job.pid is not None:
            return self._local.cause(job)
        return self._attempt(job).cause or WorkerLostError("the job's runner ended without a word")

    def forget(self, job: Job) -> None:
        """Drop what is known of its attempt."""
        self._local.forget(job)
        if job.token is not None:
            self._attempts.pop(job.token, None)

    def close(self) -> None:
        """Those to the cluster."""
        self._api.close()

    def tidy(self, active: Sequence[Job]) -> None:
        """End Ray jobs of this home that are no attempt of an active job, and local processes."""
        self._local.end_orphans(active)
        tokens = {job.token for job in active}
        for found in self._api.jobs():
            token, marks = found.get("submission_id"), found.get("metadata") or {}
            ours = marks.get(HOME) == str(self._settings.home) and token not in tokens
            if ours and isinstance(token, str) and found.get("status") not in _OVER:
                log.warning("ended a Ray job of an attempt that is over", job=marks.get(JOB), submission=token)
                self._api.stop(token)

    def _submission(self, job: Job, directory: Path) -> dict[str, Any]:
        """Ray's document. A job whose stages have Ray workers leaves the CPUs to them: its runner, which then comes to
        the head's machine, waits most of the time.
        """
        assert job.token is not None
        marks = {HOME: str(self._settings.home), JOB: job.id, ATTEMPT: job.token}
        need = job.resources or {}
        reserved: dict[str, Any] = {}
        environment = dict(marks)
        if ray_workers(job.spec) == 0 and need:
            reserved["entrypoint_num_cpus"] = need["cores"]
            environment["OMP_NUM_THREADS"] = str(need["cores"])
            if need["gpus"]:
                reserved["entrypoint_num_gpus"] = need["gpus"]
            if need["memory_bytes"]:
                reserved["entrypoint_memory"] = need["memory_bytes"]
        command = [self._settings.ray_python, "-P", "-m", "service.jobs.runner", str(directory), job.token]
        # Not as the runtime environment's variables: Ray's own supervisor of the job would carry the marks too.
        words = ["exec", "env", *(f"{name}={value}" for name, value in environment.items()), *command]
        return {"submission_id": job.token, "entrypoint": shlex.join(words), "metadata": marks, **reserved}

    def _attempt(self, job: Job) -> _Attempt:
        assert job.token is not None
        return self._attempts.setdefault(job.token, _Attempt())

    def _ask(self, job: Job, directory: Path, attempt: _Attempt) -> None:
        assert job.token is not None
        found = self._api.job(job.token)
        if found is not None:
            if not submitted(directory, job.token):
                note_submitted(directory, job.token, self._api.address)
            if found.get("status") in _OVER:
                attempt.over, attempt.cause = True, self._told(found)
        elif submitted(directory, job.token):
            attempt.over = True
            attempt.cause = WorkerLostError(
                "the job was lost with its Ray cluster", given="the cluster does not know it: it was started anew"
            )
        elif read_plan(directory, job.token) is not None and not stop_file(directory, job.token).exists():
            self.start(job, directory)
        else:
            attempt.over = True
            attempt.cause = WorkerLostError("the job's attempt was cut short before it was submitted to Ray")

    def _feel_pulse(self, job: Job, directory: Path, attempt: _Attempt) -> None:
        """The attempt is over when its runner, too, has given no sign of life for as long as the cluster is silent.

        Should it live after all, cut off from here, it will find the wish that it end; nor can another begin the job
        before it has, for the runner holds its lock.
        """
        assert job.token is not None
        if not submitted(directory, job.token):
            return
        try:
            pulse = (directory / PULSE).read_text(encoding="utf-8")
        except OSError:
            pulse = ""
        if pulse != attempt.pulse or attempt.pulse_at == 0.0:
            attempt.pulse, attempt.pulse_at = pulse, time.monotonic()
        elif time.monotonic() - attempt.pulse_at > SILENCE_S:
            self.terminate(job, directory)
            attempt.over = True
            attempt.cause = WorkerLostError(
                "the job was lost with its Ray cluster",
                given=f"neither the cluster nor the job's runner gave a sign of life for {SILENCE_S:g} seconds",
                remedy="start the cluster: the job goes on where it was",
            )

    def _told(self, found: dict[str, Any]) -> RgrlError:
        """The failure of a runner that left no word, from what Ray says of its end."""
        message = str(found.get("message") or "")[-2000:]
        if found.get("driver_exit_code") == NOT_SHARED:
            return ResourceError(
                "the machine of the Ray cluster that the job came to does not have the server's home",
                where=str(self._settings.home),
                expected="storage that the server and every machine of the cluster mount under the same path",
            )
        if found.get("error_type") == _START_TIMEOUT:
            return NotNowError("the Ray cluster had no room for the job for too long", given=message)
        return WorkerLostError("Ray ended the job's runner", given=message)

    def _look_at_machines(self) -> UnavailableError | None:
        """Look again when the last look is old; the error if that fails."""
        with self._lock:
            if time.monotonic() - self._looked_at < LOOK_AT_MACHINES_EVERY_S and self._api.answers:
                return None
            try:
                self._capacity = cluster_capacity(self._api.machines(), self._settings)
            except UnavailableError as error:
                return error
            self._looked_at = time.monotonic()
            return None
