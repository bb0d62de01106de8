"""Rows of jobs as the API sees them: submit, read, label, wish for an end. Status is the scheduler's to write."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from service.errors import BusyError, ConflictError, NotFoundError
from service.identifiers import new_id
from service.store.database import Database
from service.store.embeddings import find_embedding
from service.store.graphs import find_graph
from service.store.pages import page
from service.store.rows import ACTIVE, Job, JobEvent, JobStatus, Page, Transition, now
from service.store.tables import job_events, jobs

__all__ = ["Jobs", "NewJob", "add_transition", "find_job"]

_COLUMNS = [column for column in jobs.columns if column.name not in {"idempotency_key", "request_hash"}]


@dataclass(frozen=True)
class NewJob:
    """What a submit brings; ``request_hash`` tells one idempotent request from another of the same key."""

    kind: str
    name: str | None
    labels: dict[str, str]
    graph: str
    embedding: str | None
    alias: str | None
    spec: dict[str, Any]
    encoder: str | None = None
    priority: int = 0
    timeout_s: float | None = None
    resources: dict[str, int] | None = None
    idempotency_key: str | None = None
    request_hash: str | None = None


class Jobs(Database):
    """Submit, read, edit and delete jobs."""

    jobs_dir: Path

    def submit_job(self, new: NewJob, *, max_queued: int) -> tuple[Job, bool]:
        """Queue a job; the flag is False when an earlier request of the same key had queued it.

        ``NotFoundError`` when its graph or embedding set is gone, ``ConflictError`` when the key was used for another
        request, ``BusyError`` when ``max_queued`` jobs wait.
        """
        with self.writing() as connection:
            earlier = _replay(connection, new.idempotency_key, new.request_hash)
            return (earlier, False) if earlier is not None else (_insert(connection, new, max_queued), True)

    def submitted_job(self, key: str, request_hash: str) -> Job | None:
        """The job that this idempotent request queued before; ``ConflictError`` if the key was another request's."""
        with self.reading() as connection:
            return _replay(connection, key, request_hash)

    def job(self, identity: str) -> Job:
        """The job of that id; ``NotFoundError``."""
        with self.reading() as connection:
            return find_job(connection, identity)

    def list_jobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        status: Sequence[JobStatus] = (),
        kind: Sequence[str] = (),
        labels: dict[str, str] | None = None,
        created_after: datetime | None = None,
    ) -> Page[Job]:
        """Newest first, of any of the statuses and kinds, with all of the labels."""
        query = select(*_COLUMNS)
        if status:
            query = query.where(jobs.c.status.in_(status))
        if kind:
            query = query.where(jobs.c.kind.in_(kind))
        for key, value in (labels or {}).items():
            query = query.where(jobs.c.labels[key].as_string() == value)
        if created_after is not None:
            query = query.where(jobs.c.created_at > created_after)
        with self.reading() as connection:
            rows = page(connection, query, jobs.c.id, limit, cursor)
            return Page(_with_transitions(connection, rows.items), rows.next_cursor)

    def patch_job(self, identity: str, changes: dict[str, Any]) -> Job:
        """Set the name, labels or priority; ``NotFoundError``, ``ConflictError`` for a priority once it has started."""
        with self.writing() as connection:
            job = find_job(connection, identity)
            if "priority" in changes and job.status != "queued":
                raise ConflictError(
                    f"the job is {job.status}: its priority has no meaning any more", expected="a queued job"
                )
            if changes:
                connection.execute(jobs.update().where(jobs.c.id == identity).values(**changes))
            return find_job(connection, identity)

    def delete_job(self, identity: str) -> None:
        """Remove an ended job, its history and its working directory; ``ConflictError`` before its end."""
        with self.writing() as connection:
            if not find_job(connection, identity).ended:
                raise ConflictError(
                    "the job has not ended", expected="an ended job", remedy="cancel it and wait for its end first"
                )
            connection.execute(job_events.delete().where(job_events.c.job == identity))
            connection.execute(jobs.delete().where(jobs.c.id == identity))
        shutil.rmtree(self.jobs_dir / identity, ignore_errors=True)

    def remove_unknown_job_folders(self) -> None:
        """Remove working directories that have no job: a deletion was cut short."""
        with self.reading() as connection:
            known = set(connection.execute(select(jobs.c.id)).scalars())
        for folder in self.jobs_dir.iterdir():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def request_cancel(self, identity: str) -> tuple[Job, bool]:
        """Write the wish that a job end; the flag is False when it was there already. ``ConflictError`` once ended."""
        with self.writing() as connection:
            job = find_job(connection, identity)
            if job.ended:
                raise ConflictError(f"the job has ended already ({job.status})", expected="an unfinished job")
            connection.execute(jobs.update().where(jobs.c.id == identity).values(cancel_requested=True))
            return find_job(connection, identity), not job.cancel_requested

    def job_events(self, identity: str, *, after: int = 0, limit: int = 500) -> list[JobEvent]:
        """The job's rows past row ``after``, oldest first."""
        query = select(job_events).where(job_events.c.job == identity, job_events.c.id > after)
        with self.reading() as connection:
            rows = connection.execute(query.order_by(job_events.c.id).limit(limit))
            return [JobEvent(**row._mapping) for row in rows]

    def told_error(self, job: Job) -> JobEvent | None:
        """The last error that a stage of the job's present attempt reported, if one did."""
        query = select(job_events).where(
            job_events.c.job == job.id, job_events.c.attempt == job.attempt, job_events.c.event == "error"
        )
        with self.reading() as connection:
            row = connection.execute(query.order_by(job_events.c.id.desc()).limit(1)).one_or_none()
            return None if row is None else JobEvent(**row._mapping)

    def job_metrics(self, identity: str) -> list[JobEvent]:
        """Every row of figures the job's stages reported, oldest first."""
        query = select(job_events).where(job_events.c.job == identity, job_events.c.event == "metrics")
        with self.reading() as connection:
            return [JobEvent(**row._mapping) for row in connection.execute(query.order_by(job_events.c.id))]

    def count_jobs(self) -> dict[JobStatus, int]:
        """How many jobs there are of each status."""
        query = select(jobs.c.status, func.count().label("count")).group_by(jobs.c.status)
        with self.reading() as connection:
            return {row.status: row._mapping["count"] for row in connection.execute(query)}


def find_job(connection: Connection, identity: str) -> Job:
    """The job of that id, inside a transaction; ``NotFoundError``."""
    row = connection.execute(select(*_COLUMNS).where(jobs.c.id == identity)).one_or_none()
    if row is None:
        raise NotFoundError("there is no such job", given=identity, remedy="`rgrl jobs list` tells which there are")
    return _with_transitions(connection, [row])[0]


def add_transition(connection: Connection, job: str, transition: Transition) -> None:
    """Append a step to a job's history."""
    data = {"status": transition.status, "phase": transition.phase}
    connection.execute(
        job_events.insert().values(
            job=job, attempt=transition.attempt, at=transition.at, event="transition", stage=transition.phase, data=data
        )
    )


def _replay(connection: Connection, key: str | None, request_hash: str | None) -> Job | None:
    """The job that the same key queued before."""
    if key is None:
        return None
    query = select(jobs.c.id, jobs.c.request_hash).where(jobs.c.idempotency_key == key)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise ConflictError(
            "this Idempotency-Key was used for another request", remedy="use a new key for a new request"
        )
    return find_job(connection, row.id)


def _insert(connection: Connection, new: NewJob, max_queued: int) -> Job:
    waiting = connection.execute(select(func.count()).where(jobs.c.status == "queued")).scalar_one()
    if waiting >= max_queued:
        raise BusyError(f"{waiting} jobs wait already", expected=f"at most {max_queued}", remedy="submit again later")
    find_graph(connection, new.graph)
    for embedding in (new.embedding, new.encoder):
        if embedding is not None:
            find_embedding(connection, embedding)
    if (previous := new.spec.get("previous")) is not None:
        find_graph(connection, previous["graph"])
    identity, moment = new_id("job"), now()
    connection.execute(
        jobs.insert().values(
            id=identity,
            status="queued",
            attempt=0,
            created_at=moment,
            cancel_requested=False,
            losses=0,
            events_offset=0,
            **vars(new),
        )
    )
    add_transition(connection, identity, Transition("queued", None, 0, moment))
    return find_job(connection, identity)


def _with_transitions(connection: Connection, rows: Sequence[Any]) -> list[Job]:
    query = select(job_events).where(job_events.c.job.in_([row.id for row in rows]), job_events.c.event == "transition")
    transitions: dict[str, tuple[Transition, ...]] = defaultdict(tuple)
    for row in connection.execute(query.order_by(job_events.c.id)):
        transitions[row.job] += (Transition(row.data["status"], row.data["phase"], row.attempt, row.at),)
    return [Job(**row._mapping, transitions=transitions[row.id]) for row in rows]


def active_jobs(connection: Connection) -> list[Job]:
    """Every unfinished job, oldest first."""
    query = select(*_COLUMNS).where(jobs.c.status.in_(ACTIVE)).order_by(jobs.c.id)
    return [Job(**row._mapping) for row in connection.execute(query)]
