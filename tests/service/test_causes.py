"""Failures of disk and database are told by their names: to who asks, and by the probe while the scheduler fails."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from postgres_server import PostgresServer
from service_harness import running_app, settings_in, wait_for
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from preprocessing.errors import ResourceError
from service.causes import cause_of
from service.errors import ConflictError
from service.store import Store, database
from service.upkeep.backup_folder import writing_to


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    with running_app(settings_in(tmp_path)) as client:
        yield client


def refusal(client: TestClient, folder: Path) -> dict[str, Any]:
    """What the first write that is refused is answered."""
    (folder / "data" / "x.npz").touch()
    body = {"name": "n" * 200, "source": {"kind": "npz", "path": "x.npz"}}
    answers = (client.post("/v1/graphs", json=body) for _ in range(200))
    answer = next(answer for answer in answers if answer.status_code != 201)
    assert answer.status_code == 503
    assert answer.json()["retryable"]
    return dict(answer.json())


def test_a_full_disk_and_a_lock_are_told_apart(client: TestClient, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "home" / "rgrl.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert refusal(client, tmp_path)["detail"] == "the job store is locked"
    other.close()
    store: Store = client.app.state.store  # type: ignore[attr-defined]
    # From now on the file grows no more.
    event.listen(store._engine, "checkout", lambda made, *_: made.execute("PRAGMA max_page_count = 1").close())
    full = refusal(client, tmp_path)
    assert full["detail"] == "the disk is full: the job store cannot be written"
    assert "free space" in full["remedy"]


def test_postgresql_tells_them_apart_too(postgres: PostgresServer, tmp_path: Path) -> None:
    store = Store(settings_in(tmp_path, database_url=postgres.new_database()))
    found = []
    for state in ("53100", "55P03", "57P03"):
        with pytest.raises(OperationalError) as raised, store.writing() as connection:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$")
        found.append(cause_of(raised.value).problem)
    store.close()
    assert found == [
        "the disk is full: the job store cannot be written",
        "the job store is locked",
        "the job store does not answer",
    ]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, "secret", "/secret"), "the disk is full"),
        (OSError(errno.EMFILE, "secret", "/secret"), "the system refused a file or a process (Too many open files)"),
        (OperationalError("secret", {}, sqlite3.OperationalError("secret")), "the job store does not answer"),
        (ConflictError("another server runs", given="secret"), "another server runs"),
        (ZeroDivisionError("secret"), "something unforeseen; the server's log says what"),
    ],
)
def test_a_scheduler_whose_rounds_fail_is_degraded_and_says_why_until_one_succeeds(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def failing() -> None:
        raise error

    def ready() -> dict[str, Any]:
        answer = client.get("/readyz")
        assert answer.status_code == 200
        return dict(answer.json())

    wait_for(lambda: ready()["status"] == "ok")
    with monkeypatch.context() as broken:
        broken.setattr(client.app.state.scheduler, "_look", failing)  # type: ignore[attr-defined]
        wait_for(lambda: ready()["status"] == "degraded")
        found = ready()
        assert (found["store"], found["scheduler"]) == (True, False)
        assert found["causes"] == [f"scheduler: its last round failed: {why}"]
    wait_for(lambda: ready() == {**found, "status": "ok", "scheduler": True, "causes": []})


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", ["file", "rows", "rows through SQLAlchemy"])
def test_a_command_that_writes_a_folder_tells_a_full_disk_as_what_may_pass(
    tmp_path: Path, kind: str, full: bool
) -> None:
    error: Exception = OSError(errno.ENOSPC if full else errno.EROFS, "refused", str(tmp_path / "file"))
    if kind != "file":
        rows = sqlite3.connect(tmp_path / "rows", isolation_level=None)
        with pytest.raises(sqlite3.OperationalError) as raised:
            if full:
                rows.execute("PRAGMA max_page_count = 1")
                rows.execute("CREATE TABLE t (x)")
            else:
                rows.execute("SELECT * FROM nowhere")
        error = raised.value if kind == "rows" else OperationalError("secret", {}, raised.value)
        rows.close()
    with pytest.raises(ResourceError) as told, writing_to(tmp_path):
        raise error
    assert (told.value.problem == "the disk is full", told.value.retryable) == (full, full)
    assert told.value.where == str(tmp_path / "file" if kind == "file" else tmp_path)


def test_a_store_that_does_not_answer_is_a_cause_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OperationalError("secret", {}, sqlite3.OperationalError("secret"))

    def failing() -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(client.app.state.store, "count_jobs", failing)  # type: ignore[attr-defined]
        answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["store"]) == (503, "unavailable", False)
    assert "store: the job store does not answer" in answer.json()["causes"]
