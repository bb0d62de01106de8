"""One job at a time: start its runner, follow it, press for its end, and settle what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from preprocessing.artifact import write_json
from preprocessing.errors import CollapsedError, Interrupted, ResourceError, RgrlError
from service.causes import cause_of
from service.errors import NotFoundError, UnavailableError
from service.jobs.effects import file_event, success_effect
from service.jobs.event_file import read_events
from service.jobs.executor import Executor
from service.jobs.leftovers import jobs_with_leftovers, remove_leftovers
from service.jobs.log import tail
from service.jobs.plan import Planner
from service.jobs.runner import EVENTS, LOG_TAIL_LINES, PLAN, outcome_of
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.store import Job, JobStatus, Store
from service.store.rows import now

__all__ = ["Supervisor"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Press:
    """When a job that was told to end is killed (monotonic), and what it failed of; None: it is cancelled."""

    deadline: float
    error: RgrlError | None


class Supervisor:
    """Writes status. Nothing it needs to go on is in memory alone: a new one takes over from the rows."""

    def __init__(
        self, store: Store, settings: ServiceSettings, plan: Planner, metrics: Metrics, executor: Executor
    ) -> None:
        self._store = store
        self._settings = settings
        self._plan = plan
        self._metrics = metrics
        self._executor = executor
        self._presses: dict[str, _Press] = {}

    def why_not_now(self, jobs: Sequence[Job]) -> dict[str, str] | None:
        """Why no attempt at ``jobs`` can be started now, if so: the cluster is away, or, which is looked at only where
        there are any, a runner could write nothing down.
        """
        why = self._executor.why_not_now()
        if why is not None:
            return {"code": "cluster", "detail": why}
        full = self._no_room() if jobs else None
        return None if full is None else {"code": "disk", "detail": f"nothing can be written to the home: {full}"}

    def start(self, job: Job, devices: list[str] | None = None) -> None:
        """Begin the first attempt, with GPUs to compute on; or the next, with those of the one before."""
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
            waiting_for=None,
            retry_at=None,
            devices=job.devices if devices is None else devices,
            started_at=job.started_at or now(),
        )
        self._metrics.started(job)
        try:
            self._prepare(job)
            pid = self._executor.start(job, self._directory(job))
        except UnavailableError as error:
            log.warning("a job's start was not confirmed", job=job.id, attempt=job.attempt, error=error.text())
            return
        except OSError as error:
            # A full disk, or no process to be had: of the machine at this moment, not of the job.
            log.warning("a job could not be started", job=job.id, attempt=job.attempt, error=str(error))
            self._after_failure(job, _as_error(_refused(error, self._directory(job)), job) | {"retryable": True})
            return
        except Exception as error:
            log.exception("a job could not be started", job=job.id)
            self._end(job, "failed", error=_as_error(error, job))
            return
        if pid is not None:
            self._store.set_process(job, pid)
        log.info("job started", job=job.id, attempt=job.attempt, pid=pid)

    def look_after(self, job: Job) -> None:
        """Take over what a started job's stages have said, and act on its wish, its time and its end."""
        if job.retry_at is not None:
            self._wait_for_retry(job, job.retry_at)
            return
        # Asked before reading: what a process that is gone by now has written, the reading finds.
        alive = self._executor.alive(job, self._directory(job))
        try:
            job = self._take_events(job)
            if job.cancel_requested and job.status == "running":
                job = self._store.transition(job, "cancelling")
            if alive:
                self._listen(job)
                error = self._overdue(job) or self._stalled(job)
                if job.status == "cancelling" or job.id in self._presses or error is not None:
                    self._press(job, error)
                return
            strays = self._executor.end(job, self._directory(job))
            if strays:
                log.warning("ended processes that a job left behind", job=job.id, processes=strays)
                job = self._take_events(job)
        except RgrlError as error:
            self._executor.end(job, self._directory(job))
            self._end(job, "failed", error=_as_error(error, job))
            return
        self._settle(job)

    def cancel_idle(self, job: Job) -> None:
        """End a job that has no process."""
        self._end(self._store.transition(job, "cancelling"), "cancelled")

    def refuse(self, job: Job, need: str) -> None:
        """End a queued job that this server, of other settings than when it was submitted, can never start."""
        error = ResourceError(f"the job can never start on this server: {need}", remedy="raise the server's limits")
        self._end(job, "failed", error=_as_error(error, job))

    def tidy(self, active: Sequence[Job]) -> None:
        """After a start: end what there is of jobs that are not active, and finish what a crash cut short of deletions
        and of tidying up.

        ``UnavailableError`` where that is to be asked for again.
        """
        self._store.finish_deletions()
        self._executor.tidy(active)
        for job in set(jobs_with_leftovers(self._settings)):
            with suppress(NotFoundError):
                if self._store.job(job).ended:
                    remove_leftovers(job, self._settings)

    def _prepare(self, job: Job) -> None:
        """Write what the attempt's runner goes by."""
        directory = self._directory(job)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / EVENTS).touch()  # silence counts from here
        stages = [asdict(stage) for stage in self._plan(job, self._store, self._settings)]
        write_json(
            directory / PLAN,
            {
                "token": job.token,
                "stages": stages,
                "log_bytes": self._settings.job_log_bytes,
                "verified": str(self._settings.verified.absolute()),
                "remote": self._executor.remote,
            },
        )

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
        moment = self._heard(job)
        if moment is None:
            return
        silent = (now() - moment).total_seconds() > self._settings.silent_after_s
        if silent and job.silent_since is None:
            log.warning("a job is silent", job=job.id, since=moment.isoformat())
            self._store.set_silent(job, moment)
        elif not silent and job.silent_since is not None:
            self._store.set_silent(job, None)

    def _heard(self, job: Job) -> datetime | None:
        try:
            return datetime.fromtimestamp((self._directory(job) / EVENTS).stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def _overdue(self, job: Job) -> RgrlError | None:
        """The failure of a job that has run for longer than it may."""
        if job.timeout_s is None or job.started_at is None or (now() - job.started_at).total_seconds() < job.timeout_s:
            return None
        error = RgrlError(
            f"the job was ended {job.timeout_s:g} seconds after its first start",
            remedy="submit it again with a longer timeout_s: what it made is gone on with where it can be",
        )
        error.code = "timed_out"
        return error

    def _stalled(self, job: Job) -> RgrlError | None:
        """The failure of a job that has said nothing for longer than the server allows."""
        limit, heard = self._settings.stalled_after_s, self._heard(job)
        if limit is None or heard is None or (now() - heard).total_seconds() < limit:
            return None
        error = RgrlError(f"the job reported nothing for {limit:g} seconds, the setting stalled_after_s")
        error.code = "stalled"
        return error

    def _press(self, job: Job, error: RgrlError | None) -> None:
        """Ask the runner for its end; after the grace period end it by force."""
        press = self._presses.get(job.id)
        if press is None:
            self._presses[job.id] = _Press(time.monotonic() + self._settings.cancel_grace_s, error)
            self._executor.terminate(job, self._directory(job))
        elif time.monotonic() > press.deadline:
            self._executor.end(job, self._directory(job))

    def _settle(self, job: Job) -> None:
        outcome = outcome_of(self._directory(job), job.token)
        status = None if outcome is None else outcome["status"]
        pressed = self._presses[job.id].error if job.id in self._presses else None
        if job.status == "cancelling":
            self._end(job, "cancelled")
        elif status == "succeeded" and job.alias is not None and (job.health or {}).get("state") == "collapsed":
            self._end(job, "failed", error=self._told(_collapsed(job), job))
        elif status == "succeeded":
            self._end(job, "succeeded")
        elif (late := self._overdue(job)) is not None:
            self._end(job, "failed", error=self._told(late, job))
        elif pressed is not None:
            self._after_failure(job, self._told(pressed, job) | {"retryable": True})
        elif outcome is None:
            self._after_failure(job, self._lost(job))
        elif status == "interrupted":
            # Told to stop, it lost nothing; nor does it by being started where it could not be.
            if self.why_not_now([job]) is None:
                self._forget(job)
                self.start(job)
        else:
            self._after_failure(job, outcome["error"])

    def _lost(self, job: Job) -> dict[str, Any]:
        """The process is gone and left no word: killed, or the machine was, or it could not write one.

        What its stage said before is the cause, unless that is no more than that it was told to end.
        """
        said = self._store.told_error(job)
        if said is not None and said.data["error"]["code"] != Interrupted.code:
            log.warning("a job was lost after an error", job=job.id, attempt=job.attempt, cause=said.data["error"])
            lines = tail(self._directory(job), LOG_TAIL_LINES)
            return {**said.data["error"], "phase": said.stage, "log_tail": lines}
        error, full = self._executor.cause(job), self._no_room()
        if full is not None:
            error.problem += f", and nothing can be written to the server's home ({full})"
        log.warning("a job was lost", job=job.id, attempt=job.attempt, losses=job.losses + 1, cause=error.text())
        return self._told(error, job)

    def _no_room(self) -> str | None:
        try:
            self._store.check_room()
        except OSError as error:
            return cause_of(error).problem
        return None

    def _after_failure(self, job: Job, error: dict[str, Any]) -> None:
        """Try again, after a while, what may go better then; fail what may not, or has been tried often enough."""
        losses, most = job.losses + 1, self._settings.max_attempts
        if not error.get("retryable"):
            self._end(job, "failed", error=error)
        elif losses < most:
            self._forget(job)
            wait = self._settings.retry_after_s * 2 ** (losses - 1)
            self._store.set_retry(job, losses, now() + timedelta(seconds=wait), error)
            log.warning("a job's attempt failed", job=job.id, attempt=job.attempt, error=error["code"], retry_in_s=wait)
        else:
            tried = f" (in {losses} attempts, as many as the setting max_attempts allows)" if losses > 1 else ""
            self._end(job, "failed", losses=losses, error=error | {"message": error["message"] + tried})

    def _wait_for_retry(self, job: Job, at: datetime) -> None:
        if job.cancel_requested:
            self.cancel_idle(job)
        elif (late := self._overdue(job)) is not None:
            self._end(job, "failed", error=self._told(late, job))
        elif now() >= at and self.why_not_now([job]) is None:
            self.start(job)

    def _end(self, job: Job, status: JobStatus, **changes: Any) -> None:
        effect = success_effect(job) if status == "succeeded" else None
        ended = self._store.transition(job, status, effect=effect, **changes)
        self._forget(job)
        if status != "succeeded":
            remove_leftovers(job.id, self._settings)
        self._metrics.ended(ended)
        log.info("job ended", job=job.id, status=status, error=(ended.error or {}).get("code"))

    def _forget(self, job: Job) -> None:
        self._executor.forget(job)
        self._presses.pop(job.id, None)

    def _told(self, error: RgrlError, job: Job) -> dict[str, Any]:
        return _as_error(error, job) | {"log_tail": tail(self._directory(job), LOG_TAIL_LINES)}

    def _directory(self, job: Job) -> Path:
        return self._settings.jobs / job.id


def _collapsed(job: Job) -> CollapsedError:
    """What serves under an alias is not replaced by vectors without information."""
    return CollapsedError(
        f"training ended in embeddings without information ({(job.health or {}).get('reason')})",
        remedy="the alias stays where it was and the embedding set is kept; train with other settings",
    )


def _refused(error: OSError, directory: Path) -> ResourceError:
    return ResourceError(
        f"the job could not be started: {error.strerror or error}",
        where=str(error.filename or directory),
        remedy="make room where the server's home is, or raise what the system allows it, and submit the job again",
    )


def _as_error(error: Exception, job: Job) -> dict[str, Any]:
    """A failure of the server's own as a job's error."""
    if isinstance(error, RgrlError):
        return error.as_dict() | {"phase": job.phase}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}", "phase": job.phase}
