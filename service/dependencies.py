"""What routes ask the running application for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.settings import ServiceSettings
from service.store import Store

__all__ = ["SettingsDep", "StoreDep"]


async def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


SettingsDep = Annotated[ServiceSettings, Depends(_settings)]
StoreDep = Annotated[Store, Depends(_store)]
