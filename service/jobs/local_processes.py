"""Runners as processes of this machine, found again by the marks in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from preprocessing.errors import RgrlError, UsageError, WorkerLostError
from service.jobs.processes import ATTEMPT, HOME, JOB, JobProcess, end_all, job_processes, runner_of
from service.jobs.remote import submitted
from service.jobs.resources import Capacity, capacity
from service.settings import ServiceSettings
from service.store import Job

__all__ = ["LocalProcesses"]

log = structlog.get_logger(__name__)

_OF_THE_SERVER = {"RGRL_DATABASE_URL", "RGRL_RAY_AUTH_TOKEN"}


class LocalProcesses:
    """The executor of a server without a cluster."""

    remote = False

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def capacity(self) -> Capacity:
        """The machine's."""
        return capacity(self._settings)

    def answers(self) -> bool | None:
        """It need not be asked."""
        return None

    def why_not_now(self) -> str | None:
        """Never."""
        return None

    def start(self, job: Job, directory: Path) -> int | None:
        """A process in a session of its own, which outlives this one."""
        assert job.token is not None
        with (directory / "runner.log").open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "service.jobs.runner", str(directory), job.token],
                env=_environment(job) | {HOME: str(self._settings.home), JOB: job.id, ATTEMPT: job.token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[job.id] = child
        return child.pid

    def alive(self, job: Job, directory: Path) -> bool:  # noqa: ARG002
        """By its parent if that is us, else by its marks."""
        child = self._children.get(job.id)
        if child is not None:
            return child.poll() is None
        assert job.token is not None
        return runner_of(self._settings.home, job.token, job.pid) is not None

    def terminate(self, job: Job, directory: Path) -> None:  # noqa: ARG002
        """SIGTERM to the runner."""
        assert job.token is not None
        runner = runner_of(self._settings.home, job.token, job.pid)
        if runner is not None:
            runner.send(signal.SIGTERM)

    def end(self, job: Job, directory: Path) -> int:  # noqa: ARG002
        """SIGKILL to every process of the job."""
        return end_all(self._processes(job))

    def cause(self, job: Job) -> RgrlError:  # noqa: ARG002
        """Killed, or the machine was."""
        return WorkerLostError(
            "the job's process was lost", remedy="see the job's log and the kernel's for what ended it"
        )

    def forget(self, job: Job) -> None:
        """Collect the process."""
        child = self._children.pop(job.id, None)
        if child is not None:
            child.wait()

    def close(self) -> None:
        """It has none."""

    def tidy(self, active: Sequence[Job]) -> None:
        """As ``end_orphans``.

        ``UsageError`` while jobs run on a cluster, where this executor would begin them a second time.
        """
        away = [job.id for job in active if job.pid is None and submitted(self._settings.jobs / job.id, job.token)]
        if away:
            raise UsageError(
                "jobs of this home run on a Ray cluster",
                given=", ".join(away),
                expected="the setting ray_address until they have ended",
                remedy="set RGRL_RAY_ADDRESS again; cancel the jobs if they are not wanted",
            )
        self.end_orphans(active)

    def end_orphans(self, active: Sequence[Job]) -> None:
        """SIGKILL to what is on this machine of jobs that are not active."""
        known = {job.id for job in active}
        orphans = end_all(found for found in job_processes(self._settings.home) if found.job not in known)
        if orphans:
            log.warning("ended processes of jobs that are over", processes=orphans)

    def _processes(self, job: Job) -> Iterator[JobProcess]:
        return (found for found in job_processes(self._settings.home) if found.job == job.id)


def _environment(job: Job) -> dict[str, str]:
    """Ours, less what only the server needs to know, with the cores and GPUs that the job is to use."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_THE_SERVER}
    if job.resources is not None:
        environment["OMP_NUM_THREADS"] = str(job.resources["cores"])
    if job.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(job.devices)
    return environment
