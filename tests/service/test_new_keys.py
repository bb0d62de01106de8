"""A key counts from the moment it is made, whoever made it; many wrong keys are no load on the store."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_harness import running_app, settings_in
from sqlalchemy.exc import OperationalError

from preprocessing.errors import UsageError
from service.api import auth
from service.api.app import create_app
from service.api.auth import KeyRing
from service.errors import UnauthorizedError
from service.store import ApiKey, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(settings_in(tmp_path))
    yield store
    store.close()


@pytest.fixture
def elsewhere(tmp_path: Path, store: Store) -> Iterator[Store]:
    """The same home, opened as another process does."""
    store = Store(settings_in(tmp_path))
    yield store
    store.close()


@pytest.fixture
def ring(store: Store) -> KeyRing:
    return KeyRing(store, open_without_keys=False)


def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the keys were read."""
    reads: list[float] = []
    really = store.list_keys

    def reading(*, live: bool = False) -> list[ApiKey]:
        reads.append(time.monotonic())
        return really(live=live)

    monkeypatch.setattr(store, "list_keys", reading)
    return reads


async def outcome(ring: KeyRing, token: str) -> str:
    try:
        key = await ring.find(token)
    except (UnauthorizedError, OperationalError) as error:
        return type(error).__name__
    return "open" if key is None else key.name


def status(client: TestClient, token: str | None) -> int:
    return client.get("/v1/jobs", headers={} if token is None else {"Authorization": f"Bearer {token}"}).status_code


def test_keys_made_and_revoked_over_http_count_at_once(tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path)) as client:
        assert status(client, None) == 200
        root = client.post("/v1/keys", json={"name": "root", "scopes": ["admin"]}).json()["token"]
        assert (status(client, None), status(client, root)) == (401, 200)
        headers = {"Authorization": f"Bearer {root}"}
        for name in ("one", "two"):
            made = client.post("/v1/keys", json={"name": name, "scopes": ["read"]}, headers=headers).json()
            assert status(client, made["token"]) == 200
            assert client.delete(f"/v1/keys/{made['id']}", headers=headers).status_code == 204
            assert status(client, made["token"]) == 401


def test_keys_made_in_another_process_count_at_once(ring: KeyRing, elsewhere: Store) -> None:
    async def ask() -> None:
        for number in range(4):
            assert await outcome(ring, "wrong") == "UnauthorizedError"
            _, token = elsewhere.create_key(f"key {number}", ["read"])
            assert await outcome(ring, token) == f"key {number}"

    asyncio.run(ask())


def test_a_flood_of_wrong_keys_is_few_reads_and_a_new_key_is_let_in_meanwhile(
    ring: KeyRing, store: Store, elsewhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(store, monkeypatch)
    elsewhere.create_key("old", ["read"])
    ended = False

    async def flood() -> int:
        refused = 0
        while not ended:
            assert await outcome(ring, "wrong") == "UnauthorizedError"
            refused += 1
        return refused

    async def newcomer() -> str:
        nonlocal ended
        await asyncio.sleep(0.35)
        _, token = elsewhere.create_key("new", ["read"])
        found = await outcome(ring, token)
        ended = True
        return found

    async def ask() -> list[Any]:
        return await asyncio.gather(newcomer(), *(flood() for _ in range(50)))

    began = time.monotonic()
    found, *refused = asyncio.run(ask())
    assert found == "new"
    assert sum(refused) >= 100
    # The first reading is because there were none.
    assert len(reads) <= 2 + (time.monotonic() - began) / auth.UNKNOWN_EVERY_S


def test_a_store_that_does_not_answer_keeps_nobody_waiting(
    ring: KeyRing, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REFRESH_S", 0.3)
    _, token = store.create_key("known", ["read"])

    def failing(*, live: bool) -> list[ApiKey]:
        raise OperationalError("SELECT", {}, sqlite3.OperationalError("away"))

    async def ask() -> list[str]:
        assert await outcome(ring, token) == "known"
        monkeypatch.setattr(store, "list_keys", failing)
        assert await outcome(ring, token) == "known"
        return await asyncio.wait_for(asyncio.gather(*(outcome(ring, "wrong") for _ in range(40))), 5.0)

    assert set(asyncio.run(ask())) == {"OperationalError"}


def test_a_request_without_a_key_reads_nothing(ring: KeyRing, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = counted(store, monkeypatch)

    async def ask() -> None:
        for token in (None, "", None):
            with pytest.raises(UnauthorizedError):
                await ring.find(token)

    asyncio.run(ask())
    assert len(reads) == 1


def test_the_first_key_of_a_store_is_written_to_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "first-key"
    settings = settings_in(tmp_path, host="0.0.0.0", first_key_file=path)
    path.write_text("of a start that was killed before its key was in the store\n")
    with running_app(settings) as client:
        token = path.read_text().strip()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert client.get("/v1/keys").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        (key,) = client.get("/v1/keys", headers=headers).json()["items"]
        assert key["scopes"] == ["admin"]
    with running_app(settings) as client:
        assert path.read_text().strip() == token, "there is one already"
        assert client.delete(f"/v1/keys/{key['id']}", headers=headers).status_code == 204
    with pytest.raises(UsageError, match="without an API key"):
        create_app(settings)
    assert path.read_text().strip() == token, "who revokes it does not get another one"


def test_a_first_key_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, host="0.0.0.0", first_key_file=tmp_path / "nowhere" / "key")
    with pytest.raises(UsageError, match="first API key cannot be written"):
        create_app(settings)
    (tmp_path / "nowhere").mkdir()
    with running_app(settings):
        assert (tmp_path / "nowhere" / "key").exists()
