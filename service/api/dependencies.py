"""What routes ask the running application for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant

from preprocessing.errors import InputError
from preprocessing.unknown_fields import likely
from service.jobs.scheduler import Scheduler
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.store import Store
from service.verified import VerifiedFiles

__all__ = ["KNOWN_PARAMETERS", "MetricsDep", "SchedulerDep", "SettingsDep", "StoreDep", "TurnDep", "VerifiedDep"]


async def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _scheduler(request: Request) -> Scheduler:
    scheduler: Scheduler = request.app.state.scheduler
    return scheduler


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _turn(request: Request) -> Callable[[], AbstractContextManager[None]]:
    turn: Callable[[], AbstractContextManager[None]] = request.app.state.searches.turn
    return turn


async def _verified(request: Request) -> VerifiedFiles:
    verified: VerifiedFiles = request.app.state.verified
    return verified


async def _known_parameters(request: Request) -> None:
    """``InputError`` for a query parameter that the route has not: one that is misspelt would do nothing, unnoticed."""
    if not request.query_params:
        return
    known = _parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            meant = likely(name, known)
            raise InputError(
                "there is no such query parameter here",
                given=name,
                expected=", ".join(sorted(known)) or "none",
                remedy=None if meant is None else f"did you mean `{meant}`?",
                pointer=f"query/{name}",
            )


def _parameters(of: Dependant) -> set[str]:
    """Names of the query parameters of a route, and of what it depends on."""
    return {parameter.alias for parameter in of.query_params}.union(*map(_parameters, of.dependencies))


KNOWN_PARAMETERS = Depends(_known_parameters)
SettingsDep = Annotated[ServiceSettings, Depends(_settings)]
StoreDep = Annotated[Store, Depends(_store)]
SchedulerDep = Annotated[Scheduler, Depends(_scheduler)]
MetricsDep = Annotated[Metrics, Depends(_metrics)]
VerifiedDep = Annotated[VerifiedFiles, Depends(_verified)]
TurnDep = Annotated[Callable[[], AbstractContextManager[None]], Depends(_turn)]
