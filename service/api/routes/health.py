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
    """Whether requests can be served. Without the scheduler, or the cluster that jobs run on (null: there is none),
    lookups go on (`degraded`); without the store nothing.
    """

    status: Literal["ok", "degraded", "unavailable"]
    store: bool
    scheduler: bool
    cluster: bool | None


@router.get("/livez")
async def live() -> LiveAnswer:
    """200 while the process answers at all."""
    return LiveAnswer()


@router.get("/readyz", responses={503: {"model": ReadyAnswer}})
def ready(response: Response, store: StoreDep, scheduler: SchedulerDep) -> ReadyAnswer:
    """200 when the store answers, 503 when it does not; a silent scheduler or cluster is `degraded`."""
    try:
        store.count_jobs()
    except SQLAlchemyError:
        response.status_code = 503
        return ReadyAnswer(status="unavailable", store=False, scheduler=scheduler.healthy, cluster=scheduler.cluster)
    healthy, cluster = scheduler.healthy, scheduler.cluster
    status: Literal["ok", "degraded"] = "ok" if healthy and cluster is not False else "degraded"
    return ReadyAnswer(status=status, store=True, scheduler=healthy, cluster=cluster)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def scrape(store: StoreDep, metrics: MetricsDep, scheduler: SchedulerDep) -> Response:
    """Prometheus text."""
    return Response(metrics.exposition(store.count_jobs(), scheduler.cluster), media_type=CONTENT_TYPE_LATEST)
