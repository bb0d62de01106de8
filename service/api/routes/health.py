"""Probes and the scrape; no key needed."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from service.api.dependencies import MetricsDep, SchedulerDep, StoreDep
from service.causes import cause_of
from service.schemas import Answer

__all__ = ["router"]

router = APIRouter(tags=["health"])


class LiveAnswer(Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyAnswer(Answer):
    """Whether requests can be served. Without the scheduler, or the cluster that jobs run on (null: there is none),
    lookups go on (`degraded`); without the store nothing. `causes` has a line for each that is false.
    """

    status: Literal["ok", "degraded", "unavailable"]
    store: bool
    scheduler: bool
    cluster: bool | None
    causes: list[str]


@router.head("/livez", include_in_schema=False)
@router.get("/livez")
async def live() -> LiveAnswer:
    """200 while the process answers at all."""
    return LiveAnswer()


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"model": ReadyAnswer}})
def ready(response: Response, store: StoreDep, scheduler: SchedulerDep) -> ReadyAnswer:
    """200 when the store answers, 503 when it does not; a scheduler whose last round failed or that is silent, or a
    silent cluster, is `degraded`. A round fails, too, when nothing could be written, for a full disk or a locked store:
    that is tried every 2 seconds.
    """
    no_store = None
    try:
        store.count_jobs()
    except SQLAlchemyError as error:
        no_store = cause_of(error).problem
        response.status_code = 503
    trouble, cluster = scheduler.trouble, scheduler.cluster
    silent = "it does not answer" if cluster is False else None
    whys = {"store": no_store, "scheduler": trouble, "cluster": silent}
    causes = [f"{part}: {why}" for part, why in whys.items() if why is not None]
    return ReadyAnswer(
        status="unavailable" if no_store is not None else "degraded" if causes else "ok",
        store=no_store is None,
        scheduler=trouble is None,
        cluster=cluster,
        causes=causes,
    )


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def scrape(store: StoreDep, metrics: MetricsDep, scheduler: SchedulerDep) -> Response:
    """Prometheus text."""
    return Response(
        metrics.exposition(store.count_jobs(), scheduler.cluster, store.home), media_type=CONTENT_TYPE_LATEST
    )
