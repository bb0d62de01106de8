"""What a job has said so far: its events, log, figures and checkpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from service.api.dependencies import SettingsDep, StoreDep
from service.jobs.log import tail
from service.schemas import Answer
from service.store import Store

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs/{id}", tags=["jobs"])

PAGE = 500
KEEPALIVE_S = 15.0


class EventAnswer(Answer):
    """One event; ``id`` is its row's number and grows with time."""

    id: int
    attempt: int
    at: datetime
    event: str
    stage: str | None
    data: dict[str, Any]


class EventsAnswer(Answer):
    """Events past ``after``; ask again with ``after`` = ``last_id`` for what comes next."""

    items: list[EventAnswer]
    last_id: int
    ended: bool


class LogAnswer(Answer):
    """The end of a job's log, oldest line first."""

    lines: list[str]


class Series(Answer):
    """One figure of one stage by step; where a step was done twice, its last value."""

    stage: str
    name: str
    steps: list[int]
    values: list[float | None]


class MetricsAnswer(Answer):
    """Every figure asked for."""

    series: list[Series]


class Checkpoint(Answer):
    """Weights and state of one moment; ``best``: the best of those there were, by the rule that reads no label."""

    name: str
    best: bool
    bytes: int
    modified_at: datetime


class CheckpointsAnswer(Answer):
    """What a killed training would go on from, oldest first, and the best."""

    items: list[Checkpoint]


@router.get(
    "/events",
    response_model=EventsAnswer,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def get_events(
    id: str,
    request: Request,
    store: StoreDep,
    settings: SettingsDep,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Row number of the last event seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**63 - 1)] = None,
) -> EventsAnswer | Response:
    """A page of events as JSON, or all of them as they happen with ``Accept: text/event-stream``.

    The stream begins after ``Last-Event-ID`` and ends with ``event: end`` once the job has; a stream that closes
    without it broke, and the client may reconnect.
    """
    if "text/event-stream" in request.headers.get("accept", ""):
        await run_in_threadpool(store.job, id)
        begin = after if last_event_id is None else last_event_id
        return EventSourceResponse(_stream(store, id, begin, settings.poll_s), headers={"Cache-Control": "no-store"})
    return await run_in_threadpool(_page, store, id, after, limit)


@router.get("/logs")
def get_logs(
    id: str, store: StoreDep, settings: SettingsDep, lines: Annotated[int, Query(alias="tail", ge=1, le=10_000)] = 200
) -> LogAnswer:
    """The last lines of what the job's stages printed."""
    store.job(id)
    return LogAnswer(lines=tail(settings.jobs / id, lines))


@router.get("/metrics")
def get_metrics(
    id: str,
    store: StoreDep,
    names: Annotated[list[str], Query(default_factory=list, description="Default: every figure.")],
    max_points: Annotated[int, Query(ge=2, le=100_000, description="Points a figure, evenly thinned.")] = 1000,
) -> MetricsAnswer:
    """Figures the job's stages reported, as loss by epoch."""
    store.job(id)
    series: dict[tuple[str, str], dict[int, float | None]] = {}
    for event in store.job_metrics(id):
        for name, value in event.data["values"].items():
            if not names or name in names:
                series.setdefault((event.stage or "", name), {})[event.data["step"]] = value
    return MetricsAnswer(series=[_thin(stage, name, points, max_points) for (stage, name), points in series.items()])


@router.get("/checkpoints")
def get_checkpoints(id: str, store: StoreDep, settings: SettingsDep) -> CheckpointsAnswer:
    """Checkpoints of the job's training."""
    store.job(id)
    folder = settings.jobs / id / "train" / "checkpoints"
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    best = _best(paths)
    found = [_checkpoint(path, best) for path in paths]
    return CheckpointsAnswer(items=sorted(found, key=lambda checkpoint: (checkpoint.modified_at, checkpoint.name)))


def _best(paths: list[Path]) -> str | None:
    """The name of the best checkpoint, as the newest one tells."""
    for path in sorted(paths, key=lambda path: path.name, reverse=True):
        try:
            step = json.loads((path / "state.json").read_text(encoding="utf-8"))["best"]["step"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return None if step is None else f"step-{step:08d}"
    return None


def _page(store: Store, identity: str, after: int, limit: int) -> EventsAnswer:
    # The status is read first: when it is final, the rows read after it are all there will be.
    ended = store.job(identity).ended
    rows = store.job_events(identity, after=after, limit=limit)
    last = rows[-1].id if rows else after
    return EventsAnswer(
        items=[EventAnswer.model_validate(row) for row in rows], last_id=last, ended=ended and len(rows) < limit
    )


async def _stream(store: Store, identity: str, after: int, poll_s: float) -> AsyncIterator[bytes]:
    quiet = 0.0
    while True:
        page = await run_in_threadpool(_page, store, identity, after, PAGE)
        for event in page.items:
            yield format_sse_event(
                id=str(event.id), event=event.event, data_str=event.model_dump_json(exclude={"event"})
            )
        after = page.last_id
        if page.ended:
            status = (await run_in_threadpool(store.job, identity)).status
            yield format_sse_event(event="end", data_str=json.dumps({"status": status}))
            return
        quiet = 0.0 if page.items else quiet + poll_s
        if quiet >= KEEPALIVE_S:
            quiet = 0.0
            yield KEEPALIVE_COMMENT
        if not page.items:
            await asyncio.sleep(poll_s)


def _thin(stage: str, name: str, points: dict[int, float | None], most: int) -> Series:
    """At most ``most`` points by step, the first and the last among them."""
    steps = sorted(points)
    if len(steps) > most:
        steps = [steps[i * (len(steps) - 1) // (most - 1)] for i in range(most)]
    return Series(stage=stage, name=name, steps=steps, values=[points[step] for step in steps])


def _checkpoint(path: Path, best: str | None) -> Checkpoint:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return Checkpoint(
        name=path.name,
        best=path.name == best,
        bytes=sum(file.stat().st_size for file in files),
        modified_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
    )
