"""Bearer keys: who may call what. Every ``/v1`` route needs READ; routes that change something ask for more."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from typing import Annotated

import structlog
from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import OperationalError
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from preprocessing.errors import UsageError
from service.api.middleware import first_header
from service.errors import ForbiddenError, UnauthorizedError, failure_response
from service.secret_files import write_secret
from service.settings import ServiceSettings
from service.store import ApiKey, Scope, Store
from service.store.keys import hash_token, new_token

__all__ = [
    "ADMIN",
    "READ",
    "WRITE",
    "Admission",
    "KeyRing",
    "allowed_scopes",
    "bearer_token",
    "check_exposure",
    "make_first_key",
    "open_without_keys",
]

log = structlog.get_logger(__name__)

REFRESH_S = 1.0
UNKNOWN_EVERY_S = 0.1
"""How often the keys are read again for the sake of those nobody knows: many wrong ones are no load on the store."""
_RANK: dict[Scope, int] = {"read": 0, "write": 1, "admin": 2}

_bearer = HTTPBearer(auto_error=False, description="An API key. Not needed while the server has none (loopback only).")


class KeyRing:
    """The live keys, read again from the store once a second, so that a revoked key ends within one; at once after a
    change in this process, and for a key that is not among them, which another may have made since.

    Without any, ``open_without_keys`` decides: revoking the last key of an exposed server shuts it.
    """

    def __init__(self, store: Store, *, open_without_keys: bool) -> None:
        self._store = store
        self._open_without_keys = open_without_keys
        self._keys: list[ApiKey] = []
        self._generation = -1
        self._read_at = self._unknown_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    @property
    def fresh(self) -> bool:
        """Whether the keys at hand were read lately enough to decide by."""
        unchanged = self._generation == self._store.keys_generation
        return unchanged and time.monotonic() - self._read_at <= REFRESH_S

    @property
    def needed(self) -> bool:
        """Whether a request needs a key, by the keys at hand."""
        return bool(self._keys) or not self._open_without_keys

    def match(self, token: str) -> ApiKey | None:
        """The live key of ``token``, by the keys at hand."""
        digest = hash_token(token)
        # Every key is compared, each in constant time: the answer's time tells nothing about any of them.
        matches = [key for key in self._keys if hmac.compare_digest(key.hash, digest)]
        return matches[0] if matches else None

    async def find(self, token: str | None) -> ApiKey | None:
        """The key of ``token``; None when no key is needed; ``UnauthorizedError`` otherwise."""
        asked_at = time.monotonic()
        while True:
            if not self.fresh:
                await self._read()
            if not self.needed:
                return None
            key = self.match(token or "")
            if key is not None:
                return key
            if not token:
                raise UnauthorizedError(
                    "no API key was sent, and this server needs one",
                    expected="a key of its operator's (rgrl keys create)",
                    remedy="send it as the header Authorization: Bearer KEY; commands take it from --key or RGRL_KEY",
                )
            if self._read_at >= asked_at:
                raise UnauthorizedError(
                    "this server does not know the API key that was sent, or it was revoked",
                    expected="a live key of its operator's (rgrl keys list)",
                    remedy="look whether the whole key was sent, or have another one made (rgrl keys create)",
                )
            now = time.monotonic()
            if now < self._unknown_at + UNKNOWN_EVERY_S:
                await asyncio.sleep(self._unknown_at + UNKNOWN_EVERY_S - now)
            else:
                self._unknown_at = now
                await self._read()

    async def _read(self) -> None:
        """Those who need the keys at one time share a reading."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_now())
        await asyncio.shield(self._reading)

    async def _read_now(self) -> None:
        began, generation = time.monotonic(), self._store.keys_generation
        keys = await run_in_threadpool(self._store.list_keys, live=True)
        self._keys, self._read_at, self._generation = keys, began, generation


class Admission:
    """Plain ASGI in front of ``app``: a request for ``/v1`` without a live key is refused before its body is read."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Handle one request; its key is in its state as ``key``, None where none is needed."""
        answer: ASGIApp = self._app
        if scope["path"].startswith("/v1/"):
            try:
                key = await self._keys.find(bearer_token(scope))
            except (UnauthorizedError, OperationalError) as error:
                answer = await failure_response(Request(scope), error)
            else:
                scope["state"] |= {"key": key, "key_id": None if key is None else key.id}
        await answer(scope, receive, send)


def bearer_token(scope: ASGIScope) -> str | None:
    """What the request sends as its key; None without one."""
    scheme, _, token = first_header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class _Needs:
    """A dependency that lets a request pass whose key has the scope, or one that includes it."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Scope = scope

    async def __call__(
        self, request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> None:
        """``_credentials`` are for the documentation: the key was found by ``Admission``."""
        key: ApiKey | None = request.state.key
        if self.scope not in allowed_scopes(key):
            raise ForbiddenError(
                "the API key's scopes do not allow this", expected=f"scope {self.scope}", remedy="use another key"
            )


def allowed_scopes(key: ApiKey | None) -> list[Scope]:
    """What a key may do, with all that its scopes include; without one, where none is needed, everything."""
    most = max(_RANK.values()) if key is None else max(_RANK[scope] for scope in key.scopes)
    return [scope for scope, rank in _RANK.items() if rank <= most]


READ = Depends(_Needs("read"))
WRITE = Depends(_Needs("write"))
ADMIN = Depends(_Needs("admin"))


def make_first_key(settings: ServiceSettings, store: Store) -> None:
    """Where ``first_key_file`` is set and there never was a key: an admin key, in that file before it is in the store.

    ``UsageError`` where the file cannot be written.
    """
    path = settings.first_key_file
    if path is None or store.list_keys():
        return
    token = new_token()
    try:
        write_secret(path, token + "\n")
    except OSError as error:
        raise UsageError(
            f"the first API key cannot be written: {error.strerror}",
            given=path,
            expected="a file in a folder that the server may write to (RGRL_FIRST_KEY_FILE)",
            remedy="correct the path, or make a key by rgrl keys create",
        ) from error
    store.create_key("first", ["admin"], token)
    log.info("made the first API key, with scope admin", file=str(path))


def check_exposure(settings: ServiceSettings, store: Store | None) -> None:
    """``UsageError`` when a server without keys would listen beyond this machine; None: there is no store yet."""
    if open_without_keys(settings) or (store is not None and store.list_keys(live=True)):
        return
    raise UsageError(
        "without an API key everyone who reaches this address could use the server",
        given=f"--host {settings.host}",
        expected="a loopback address while there is no key",
        remedy="rgrl keys create NAME, or --insecure if the network is yours alone",
    )


def open_without_keys(settings: ServiceSettings) -> bool:
    """Whether the server may answer without keys: on loopback, or when its operator says so."""
    return settings.insecure or _loopback(settings.host)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
