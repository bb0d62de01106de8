"""What the scheduler alone writes: status by compare-and-set, and a job's events exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from preprocessing.stage import COMPILING
from service.store.database import Database
from service.store.jobs import active_jobs, add_transition, find_job
from service.store.rows import ENDED, Job, JobStatus, Transition, now
from service.store.tables import job_events, jobs

__all__ = ["Effect", "FileEvent", "Lifecycle", "StaleJobError"]

Effect = Callable[[Connection], None]
_NOTHING_DONE = {"done": 0, "total": 0, "unit": "", "rate": 0.0, "eta_s": None}


class StaleJobError(Exception):
    """The row is no longer in the state that the writer read."""


@dataclass(frozen=True)
class FileEvent:
    """One line of a job's event file; ``effect`` writes what it means into other rows, in the same transaction."""

    at: datetime
    event: str
    stage: str | None
    data: dict[str, Any]
    effect: Effect | None = None


class Lifecycle(Database):
    """Reads and writes of the scheduler."""

    def active_jobs(self) -> list[Job]:
        """Every unfinished job, oldest first, without transitions."""
        with self.reading() as connection:
            return active_jobs(connection)

    def transition(self, job: Job, status: JobStatus, *, effect: Effect | None = None, **changes: Any) -> Job:
        """Move ``job`` on from the status and attempt it was read with; ``StaleJobError`` if it has moved already.

        ``effect`` writes what the move means into other rows, in the same transaction.
        """
        moment = now()
        if status in ENDED:
            cleared = dict.fromkeys(("progress", "silent_since", "waiting_for", "retry_at"))
            changes = {"ended_at": moment, **cleared, **changes}
        with self.writing() as connection:
            _compare_and_set(connection, job, status=status, **changes)
            after = find_job(connection, job.id)
            add_transition(connection, job.id, Transition(status, after.phase, after.attempt, moment))
            if effect is not None:
                effect(connection)
            return find_job(connection, job.id)

    def set_process(self, job: Job, pid: int) -> Job:
        """Note the process of the job's present attempt."""
        with self.writing() as connection:
            _compare_and_set(connection, job, pid=pid)
            return find_job(connection, job.id)

    def set_silent(self, job: Job, since: datetime | None) -> Job:
        """Note since when the job has reported nothing; None: it reports."""
        with self.writing() as connection:
            _compare_and_set(connection, job, silent_since=since)
            return find_job(connection, job.id)

    def set_waiting(self, waiting: Sequence[tuple[Job, dict[str, str]]]) -> None:
        """Note what queued jobs wait for, where that is news."""
        news = [(job, reason) for job, reason in waiting if reason != job.waiting_for]
        if news:
            with self.writing() as connection:
                for job, reason in news:
                    query = jobs.update().where(jobs.c.id == job.id, jobs.c.status == "queued")
                    connection.execute(query.values(waiting_for=reason))

    def set_retry(self, job: Job, losses: int, at: datetime, error: dict[str, Any]) -> Job:
        """Note that an attempt failed with ``error``, and when the next is to be made; its event is ``retry``."""
        with self.writing() as connection:
            _compare_and_set(connection, job, losses=losses, retry_at=at, pid=None, progress=None, silent_since=None)
            connection.execute(
                job_events.insert().values(
                    job=job.id,
                    attempt=job.attempt,
                    at=now(),
                    event="retry",
                    stage=job.phase,
                    data={"retry_at": at.isoformat(), "error": error},
                )
            )
            return find_job(connection, job.id)

    def record_events(self, job: Job, offset: int, events: Sequence[FileEvent]) -> Job:
        """Take over the events between the row's offset and ``offset`` of the file, all of them once.

        Only the newest progress row of each stage is kept; a change of stage is a transition.
        """
        with self.writing() as connection:
            phase, progress, health = job.phase, job.progress, job.health
            for event in events:
                if event.stage is not None and event.stage != phase:
                    phase, progress = event.stage, None
                    add_transition(connection, job.id, Transition(job.status, phase, job.attempt, event.at))
                if event.event == "health":
                    health = event.data
                progress = _progress_after(progress, event)
                if event.event == "progress":
                    connection.execute(
                        job_events.delete().where(
                            job_events.c.job == job.id,
                            job_events.c.event == "progress",
                            job_events.c.stage == event.stage,
                        )
                    )
                connection.execute(
                    job_events.insert().values(
                        job=job.id,
                        attempt=job.attempt,
                        at=event.at,
                        event=event.event,
                        stage=event.stage,
                        data=event.data,
                    )
                )
                if event.effect is not None:
                    event.effect(connection)
            _compare_and_set(
                connection,
                job,
                jobs.c.events_offset == job.events_offset,
                phase=phase,
                progress=progress,
                health=health,
                events_offset=offset,
            )
            return find_job(connection, job.id)


def _progress_after(progress: dict[str, Any] | None, event: FileEvent) -> dict[str, Any] | None:
    """How far a stage is after ``event``. It compiles from its warning on until its work moves."""
    if event.event == "warning" and event.data.get("code") == COMPILING:
        return {"stage": event.stage, **(progress or _NOTHING_DONE), "compiling": True}
    if event.event != "progress":
        return progress
    still = progress is not None and "compiling" in progress and not event.data.get("rate")
    return {"stage": event.stage, **event.data} | ({"compiling": True} if still else {})


def _compare_and_set(connection: Connection, job: Job, *conditions: Any, **changes: Any) -> None:
    changed = connection.execute(
        jobs.update()
        .where(jobs.c.id == job.id, jobs.c.status == job.status, jobs.c.attempt == job.attempt, *conditions)
        .values(**changes)
    )
    if changed.rowcount != 1:
        raise StaleJobError(job.id)
