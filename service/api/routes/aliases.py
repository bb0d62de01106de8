"""Aliases over HTTP: names that point at embedding sets and are switched in one step after a retrain.

The version of an alias is its ``ETag``; a change that carries it as ``If-Match`` never overwrites someone else's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Response

from service.api.auth import WRITE
from service.api.dependencies import StoreDep
from service.schemas import AliasName, Answer, Items
from service.schemas import Request as Body
from service.store import Alias

__all__ = ["router"]

router = APIRouter(prefix="/v1/aliases", tags=["aliases"])

IfMatch = Annotated[str | None, Header(description="The ETag this change is based on, or `*`.")]


class AliasIn(Body):
    """Where an alias shall point: an embedding set's id, or another alias, resolved now."""

    embedding: str


class AliasOut(Answer):
    """An alias; ``version`` grows with every switch."""

    name: str
    embedding: str
    version: int
    updated_at: datetime


@router.get("")
def list_aliases(store: StoreDep) -> Items[AliasOut]:
    """Every alias, by name."""
    return Items(items=[AliasOut.model_validate(row) for row in store.list_aliases()], next_cursor=None)


@router.get("/{name}")
def get_alias(name: str, store: StoreDep, response: Response) -> AliasOut:
    """One alias, its version as ETag."""
    return _answer(store.alias(name), response)


@router.put("/{name}", dependencies=[WRITE])
def put_alias(
    name: AliasName, body: AliasIn, store: StoreDep, response: Response, if_match: IfMatch = None
) -> AliasOut:
    """Make or switch an alias; 412 when ``If-Match`` names another version than the present one."""
    return _answer(store.put_alias(name, body.embedding, if_match), response)


@router.delete("/{name}", status_code=204, dependencies=[WRITE])
def delete_alias(name: str, store: StoreDep, if_match: IfMatch = None) -> None:
    """Remove an alias; what it pointed at stays."""
    store.delete_alias(name, if_match)


def _answer(alias: Alias, response: Response) -> AliasOut:
    response.headers["ETag"] = alias.etag
    return AliasOut.model_validate(alias)
