"""``/v1/keys``: API keys, for keys of scope admin; ``/v1/key``: the one that a request was sent with, for any."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import structlog
from fastapi import APIRouter, Request, status
from pydantic import Field

from service.api.auth import ADMIN, allowed_scopes, open_without_keys
from service.api.dependencies import SettingsDep, StoreDep
from service.schemas import Answer, Name
from service.schemas import Request as Body
from service.store import ApiKey, Scope

__all__ = ["router"]

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1", tags=["keys"])


class KeyRequest(Body):
    """A key to make; each scope includes those before it: read, write, admin."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)]


class KeyAnswer(Answer):
    """A key without its secret."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None


class NewKeyAnswer(KeyAnswer):
    """A key just made; ``token`` is told this once."""

    token: str


class KeysAnswer(Answer):
    """Every key, oldest first."""

    items: list[KeyAnswer]


class OwnKeyAnswer(Answer):
    """The key that a request was sent with. ``scopes`` are all that it may do, those that another includes too.

    While the server needs no key, ``id`` and ``name`` are null and ``scopes`` are all there are.
    """

    id: str | None
    name: str | None
    scopes: list[Scope]


@router.post("/keys", status_code=status.HTTP_201_CREATED, dependencies=[ADMIN])
def create_key(request: KeyRequest, store: StoreDep) -> NewKeyAnswer:
    """Make a key. The first one made shuts the server to requests without."""
    key, token = store.create_key(request.name, request.scopes)
    return NewKeyAnswer(**KeyAnswer.model_validate(key).model_dump(), token=token)


@router.get("/key")
async def get_own_key(request: Request) -> OwnKeyAnswer:
    """The key that this request was sent with, and what it may do; for a key of any scope."""
    key: ApiKey | None = request.state.key
    return OwnKeyAnswer(id=key and key.id, name=key and key.name, scopes=allowed_scopes(key))


@router.get("/keys", dependencies=[ADMIN])
def list_keys(store: StoreDep) -> KeysAnswer:
    """Keys, live and revoked."""
    return KeysAnswer(items=[KeyAnswer.model_validate(key) for key in store.list_keys()])


@router.delete("/keys/{id}", status_code=status.HTTP_204_NO_CONTENT, dependencies=[ADMIN])
def revoke_key(id: str, store: StoreDep, settings: SettingsDep) -> None:
    """End a key for good, at once; one that `rgrl keys revoke` ends is refused within a second."""
    store.revoke_key(id)
    if not store.list_keys(live=True):
        log.warning("no API key is left", answers="all requests" if open_without_keys(settings) else "none")
