"""Probes and the scrape; no key needed."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from service.api.dependencies import MetricsDep, SchedulerDep, StoreDep
from service.schemas import Answer

__all__ = ["router"]

router = APIRouter(tags=["health"])


class LiveAnswer(Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyAnswer(Answer):
    """Whether requests can be served. Without the scheduler lookups go on (`degraded`); without the store nothing."""

    status: Literal["ok", "degraded", "unavailable"]
    store: bool
    scheduler: bool


@router.get("/livez")
async def live() -> LiveAnswer:
    """200 while the process answers at all."""
    return LiveAnswer()


@router.get("/readyz", responses={503: {"model": ReadyAnswer}})
def ready(response: Response, store: StoreDep, scheduler: SchedulerDep) -> ReadyAnswer:
    """200 when the store answers, 503 when it does not; a silent scheduler is `degraded`."""
    try:
        store.count_jobs()
    except SQLAlchemyError:
        response.status_code = 503
        return ReadyAnswer(status="unavailable", store=False, scheduler=scheduler.healthy)
    healthy = scheduler.healthy
    return ReadyAnswer(status="ok" if healthy else "degraded", store=True, scheduler=healthy)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def scrape(store: StoreDep, metrics: MetricsDep) -> Response:
    """Prometheus text."""
    return Response(metrics.exposition(store.count_jobs()), media_type=CONTENT_TYPE_LATEST)
