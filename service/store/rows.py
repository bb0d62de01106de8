"""What the store answers: immutable rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

__all__ = [
    "ACTIVE",
    "ENDED",
    "Alias",
    "ApiKey",
    "Embedding",
    "Graph",
    "Job",
    "JobEvent",
    "JobStatus",
    "Page",
    "Scope",
    "Transition",
    "now",
]

JobStatus = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
Scope = Literal["read", "write", "admin"]
ACTIVE: tuple[JobStatus, ...] = ("queued", "running", "cancelling")
ENDED: tuple[JobStatus, ...] = ("succeeded", "failed", "cancelled")

Row = TypeVar("Row")


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Page(Generic[Row]):
    """A part of a list; ``next_cursor`` is None on the last."""

    items: list[Row]
    next_cursor: str | None


@dataclass(frozen=True)
class Graph:
    """A registered graph. ``counts``, ``features`` and ``labels`` are its bundle's, once there is one."""

    id: str
    name: str | None
    state: Literal["registered", "ready", "deleting"]
    source: dict[str, Any] | None
    direction: str
    feature_dtype: str
    bundle: str
    counts: dict[str, int] | None
    features: dict[str, Any] | None
    labels: dict[str, Any] | None
    warnings: list[Any]
    created_at: datetime


@dataclass(frozen=True)
class Transition:
    """One step of a job's life."""

    status: JobStatus
    phase: str | None
    attempt: int
    at: datetime


@dataclass(frozen=True)
class Job:
    """A job as the rows tell it.

    ``attempt`` counts starts, ``token`` names the latest and ``pid`` is its process; ``losses`` counts attempts that
    failed and may be made again, the next at ``retry_at``; ``events_offset`` is how far the job's event file has been
    taken into the store. ``health`` is what its training last said of itself; ``silent_since`` is set while a running
    job has reported nothing for long. ``resources`` is what it is given of the machine (None: submitted to an earlier
    version), ``devices`` the GPUs among it; ``waiting_for`` tells why a queued job has not started. ``encoder`` is the
    embedding set whose encoder an embed job uses, ``new_graph`` what an append job has made.
    """

    id: str
    kind: str
    name: str | None
    labels: dict[str, str]
    status: JobStatus
    phase: str | None
    attempt: int
    graph: str
    embedding: str | None
    encoder: str | None
    new_graph: str | None
    alias: str | None
    spec: dict[str, Any]
    progress: dict[str, Any] | None
    health: dict[str, Any] | None
    silent_since: datetime | None
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cancel_requested: bool
    token: str | None
    pid: int | None
    losses: int
    events_offset: int
    priority: int
    timeout_s: float | None
    resources: dict[str, int] | None
    devices: list[str] | None
    waiting_for: dict[str, str] | None
    retry_at: datetime | None
    transitions: tuple[Transition, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds from each stage's begin to what came after it, its last time if it was begun again; of the one that
        runs, those so far, and none while it waits for another attempt.
        """
        # A stage that was asked to end runs on.
        steps = [step for step in self.transitions if step.status != "cancelling"]
        moments = [*(step.at for step in steps), *([] if self.retry_at else [now()])]
        return {
            step.phase: max(round((after - step.at).total_seconds(), 3), 0.0)
            for step, after in zip(steps, moments[1:], strict=False)
            if step.phase is not None and step.status == "running"
        }


@dataclass(frozen=True)
class JobEvent:
    """One row of a job's history; ``id`` grows with time over all jobs."""

    id: int
    job: str
    attempt: int
    at: datetime
    event: str
    stage: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Embedding:
    """An embedding set at ``path``; ``counts`` is ``{nodes, dim}``, ``report`` and ``index`` are summaries.

    ``job`` made it; None where it was made on the command line and registered. ``job_name``, ``job_status`` and
    ``graph_name`` are of the moment; None where the job or the graph is gone, or has no name.
    """

    id: str
    graph: str
    job: str | None
    state: Literal["ready", "deleting"]
    path: str
    name: str | None
    counts: dict[str, int]
    report: dict[str, Any] | None
    index: dict[str, Any] | None
    created_at: datetime
    job_name: str | None = None
    job_status: JobStatus | None = None
    graph_name: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alias:
    """A name that points at an embedding set; ``version`` grows with every switch."""

    name: str
    embedding: str
    version: int
    updated_at: datetime

    @property
    def etag(self) -> str:
        """The version as an HTTP entity tag."""
        return f'"{self.version}"'


@dataclass(frozen=True)
class ApiKey:
    """An API key without its secret; ``hash`` is the sha256 of it."""

    id: str
    name: str
    hash: str
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None
