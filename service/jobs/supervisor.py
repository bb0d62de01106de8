"""One job at a time: start its process, follow it, press for its end, and settle what came of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from preprocessing.artifact import write_json
from preprocessing.errors import RgrlError
from service.jobs.effects import file_event, success_effect
from service.jobs.event_file import read_events
from service.jobs.log import tail
from service.jobs.plan import Planner
from service.jobs.processes import ATTEMPT, HOME, JOB, JobProcess, end_all, job_processes, runner_of
from service.jobs.runner import EVENTS, EXIT, LOG_TAIL_LINES, PLAN
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.store import Job, JobStatus, Store
from service.store.rows import now

__all__ = ["Supervisor"]

log = structlog.get_logger(__name__)


class Supervisor:
    """Writes status. Nothing it needs to go on is in memory alone: a new one takes over from the rows."""

    def __init__(self, store: Store, settings: ServiceSettings, plan: Planner, metrics: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._plan = plan
        self._metrics = metrics
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._deadlines: dict[str, float] = {}

    def start(self, job: Job, *, losses: int = 0) -> None:
        """Begin the next attempt."""
        token = secrets.token_hex(16)
        job = self._store.transition(
            job,
            "running",
            attempt=job.attempt + 1,
            token=token,
            pid=None,
            phase=None,
            progress=None,
            silent_since=None,
            losses=losses,
            started_at=job.started_at or now(),
        )
        self._metrics.started(job)
        try:
            child = self._spawn(job, token)
        except Exception as error:
            log.exception("a job could not be started", job=job.id)
            self._end(job, "failed", error=_as_error(error, job))
            return
        self._children[job.id] = child
        self._store.set_process(job, child.pid)
        log.info("job started", job=job.id, attempt=job.attempt, pid=child.pid)

    def look_after(self, job: Job) -> None:
        """Take over what a started job's stages have said, and act on its wish and on its end."""
        # Asked before reading: what a process that is gone by now has written, the reading finds.
        alive = self._alive(job)
        try:
            job = self._take_events(job)
            if job.cancel_requested and job.status == "running":
                job = self._store.transition(job, "cancelling")
            if alive:
                if job.status == "cancelling":
                    self._press(job)
                else:
                    self._listen(job)
                return
            strays = end_all(self._processes(job))
            if strays:
                log.warning("ended processes that a job left behind", job=job.id, processes=strays)
                job = self._take_events(job)
        except RgrlError as error:
            end_all(self._processes(job))
            self._end(job, "failed", error=_as_error(error, job))
            return
        self._settle(job)

    def cancel_queued(self, job: Job) -> None:
        """End a job that never started."""
        self._end(self._store.transition(job, "cancelling"), "cancelled")

    def tidy(self, active: set[str]) -> None:
        """After a start: end processes of jobs that are not active, and finish deletions that a crash cut short."""
        orphans = end_all(found for found in job_processes(self._settings.home) if found.job not in active)
        if orphans:
            log.warning("ended processes of jobs that are over", processes=orphans)
        self._store.finish_deletions()

    def _spawn(self, job: Job, token: str) -> subprocess.Popen[bytes]:
        directory = self._directory(job)
        directory.mkdir(parents=True, exist_ok=True)
        stages = [asdict(stage) for stage in self._plan(job, self._store, self._settings)]
        write_json(directory / PLAN, {"stages": stages, "log_bytes": self._settings.job_log_bytes})
        with (directory / "runner.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "service.jobs.runner", str(directory), token],
                env=_environment() | {HOME: str(self._settings.home), JOB: job.id, ATTEMPT: token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _alive(self, job: Job) -> bool:
        child = self._children.get(job.id)
        if child is not None:
            return child.poll() is None
        assert job.token is not None
        return runner_of(self._settings.home, job.token, job.pid) is not None

    def _take_events(self, job: Job) -> Job:
        path = self._directory(job) / EVENTS
        while True:
            offset, lines = read_events(path, job.events_offset)
            if offset == job.events_offset:
                return job
            events = [file_event(line, job, self._store) for line in lines]
            job = self._store.record_events(job, offset, events)
            for event in events:
                self._metrics.reported(event)

    def _listen(self, job: Job) -> None:
        """Note when a job falls silent, by the time its event file was last written to, and when it is heard again."""
        try:
            moment = datetime.fromtimestamp((self._directory(job) / EVENTS).stat().st_mtime, UTC)
        except FileNotFoundError:
            return
        silent = (now() - moment).total_seconds() > self._settings.silent_after_s
        if silent and job.silent_since is None:
            log.warning("a job is silent", job=job.id, since=moment.isoformat())
            self._store.set_silent(job, moment)
        elif not silent and job.silent_since is not None:
            self._store.set_silent(job, None)

    def _press(self, job: Job) -> None:
        """SIGTERM to the runner, which passes it on to its stage's group; after the grace period SIGKILL to all."""
        deadline = self._deadlines.get(job.id)
        if deadline is None:
            self._deadlines[job.id] = time.monotonic() + self._settings.cancel_grace_s
            assert job.token is not None
            runner = runner_of(self._settings.home, job.token, job.pid)
            if runner is not None:
                runner.send(signal.SIGTERM)
        elif time.monotonic() > deadline:
            end_all(self._processes(job))

    def _settle(self, job: Job) -> None:
        outcome = self._outcome(job)
        if job.status == "cancelling":
            self._end(job, "cancelled")
        elif outcome is None:
            self._after_loss(job, job.losses + 1)
        elif outcome["status"] == "succeeded":
            self._end(job, "succeeded")
        elif outcome["status"] == "interrupted":
            self._forget(job)
            self.start(job, losses=job.losses)
        else:
            self._end(job, "failed", error=outcome["error"])

    def _after_loss(self, job: Job, losses: int) -> None:
        """The process is gone and left no word: killed, or the machine was."""
        log.warning("a job's process was lost", job=job.id, attempt=job.attempt, losses=losses)
        if losses < self._settings.max_attempts:
            self._forget(job)
            self.start(job, losses=losses)
            return
        message = f"the job's process was lost {losses} times, as often as the setting max_attempts allows"
        error = RgrlError(message, remedy="see the job's log and the kernel's for what ended it, then submit again")
        error.code = "process_lost"
        self._end(job, "failed", error=_as_error(error, job) | {"retryable": True, "log_tail": self._log_tail(job)})

    def _end(self, job: Job, status: JobStatus, **changes: Any) -> None:
        effect = success_effect(job) if status == "succeeded" else None
        ended = self._store.transition(job, status, effect=effect, **changes)
        self._forget(job)
        self._metrics.ended(ended)
        log.info("job ended", job=job.id, status=status, error=(ended.error or {}).get("code"))

    def _forget(self, job: Job) -> None:
        child = self._children.pop(job.id, None)
        if child is not None:
            child.wait()
        self._deadlines.pop(job.id, None)

    def _outcome(self, job: Job) -> dict[str, Any] | None:
        """What this attempt's runner wrote at its end."""
        try:
            outcome: dict[str, Any] = json.loads((self._directory(job) / EXIT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return outcome if outcome.get("token") == job.token else None

    def _processes(self, job: Job) -> Iterator[JobProcess]:
        return (found for found in job_processes(self._settings.home) if found.job == job.id)

    def _log_tail(self, job: Job) -> list[str]:
        return tail(self._directory(job), LOG_TAIL_LINES)

    def _directory(self, job: Job) -> Path:
        return self._settings.jobs / job.id


def _environment() -> dict[str, str]:
    """Ours, less what only the server needs to know."""
    return {name: value for name, value in os.environ.items() if name != "RGRL_DATABASE_URL"}


def _as_error(error: Exception, job: Job) -> dict[str, Any]:
    """A failure of the server's own as a job's error."""
    if isinstance(error, RgrlError):
        return error.as_dict() | {"phase": job.phase}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}", "phase": job.phase}
