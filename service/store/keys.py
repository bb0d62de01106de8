"""API keys: a 256-bit random token whose sha256 alone is kept."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

from sqlalchemy import select

from preprocessing.errors import UsageError
from service.errors import NotFoundError
from service.identifiers import new_id
from service.store.database import Database
from service.store.rows import ApiKey, Scope, now
from service.store.tables import api_keys

__all__ = ["ApiKeys", "hash_token", "new_token"]


def hash_token(token: str) -> str:
    """What is kept of a token. It is random and 256 bits long, so a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A random one."""
    return f"rgrl_{secrets.token_urlsafe(32)}"


class ApiKeys(Database):
    """Make, list and revoke API keys."""

    def create_key(self, name: str, scopes: Sequence[Scope], token: str | None = None) -> tuple[ApiKey, str]:
        """A new key, and its token, new unless given, which cannot be read again; ``UsageError`` without a scope."""
        if not scopes:
            raise UsageError("a key needs a scope", expected="read, write or admin")
        token = token or new_token()
        key = ApiKey(new_id("key"), name, hash_token(token), list(scopes), now(), None)
        with self.writing() as connection:
            connection.execute(api_keys.insert().values(**vars(key)))
        return key, token

    def list_keys(self, *, live: bool = False) -> list[ApiKey]:
        """Every key, oldest first; with ``live`` only those not revoked."""
        query = select(api_keys).order_by(api_keys.c.id)
        if live:
            query = query.where(api_keys.c.revoked_at.is_(None))
        with self.reading() as connection:
            return [ApiKey(**row._mapping) for row in connection.execute(query)]

    def revoke_key(self, identity: str) -> None:
        """End a key for good; ``NotFoundError`` for an id that is not live."""
        with self.writing() as connection:
            changed = connection.execute(
                api_keys.update()
                .where(api_keys.c.id == identity, api_keys.c.revoked_at.is_(None))
                .values(revoked_at=now())
            )
            if changed.rowcount == 0:
                raise NotFoundError(
                    "there is no live key of that id", given=identity, remedy="`rgrl keys list` tells which there are"
                )
