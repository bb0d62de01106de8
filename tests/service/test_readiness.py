"""An idle server notices by itself that it could write nothing, and that it can again; what is read goes on."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from service_harness import READY, Server, add_graph, no_room, running_app, settings_in, submit, wait_end, wait_for

from service.store import Store

Trouble = Callable[[Server], AbstractContextManager[None]]


@contextmanager
def no_file_grows(server: Server) -> Iterator[None]:
    assert server.process is not None
    before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def store_locked(server: Server) -> Iterator[None]:
    other = sqlite3.connect(server.settings.home / "rgrl.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


@contextmanager
def home_away(server: Server) -> Iterator[None]:
    elsewhere = server.settings.home.with_name("elsewhere")
    server.settings.home.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(server.settings.home)


def disk_full(server: Server) -> AbstractContextManager[None]:
    """Of the file system that the home is on."""
    return no_room(server.settings.home.parent)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(settings_in(tmp_path_factory.mktemp("readiness"))) as server:
        yield server


def notices(server: Server, trouble: Trouble, cause: str) -> None:
    def ready() -> dict[str, Any]:
        answer = server.client.get("/readyz")
        assert answer.status_code == 200, "what is read goes on"
        return dict(answer.json())

    wait_for(lambda: ready() == READY)
    files = sorted(server.settings.home.rglob("*"))
    with trouble(server):
        wait_for(lambda: ready()["status"] == "degraded", "for the trouble", seconds=6)
        assert ready()["causes"] == [f"scheduler: its last round failed: {cause}"]
        assert server.client.get("/v1/graphs").status_code == 200
    wait_for(lambda: ready() == READY, "for its end", seconds=6)
    assert sorted(server.settings.home.rglob("*")) == files, "the probe leaves nothing"


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        (no_file_grows, "the system refused a file or a process (File too large)"),
        (store_locked, "the job store is locked"),
        (home_away, "the system refused a file or a process (No such file or directory)"),
    ],
)
def test_an_idle_server_tells_that_it_cannot_write(server: Server, trouble: Trouble, cause: str) -> None:
    notices(server, trouble, cause)


def test_an_idle_server_tells_that_its_disk_is_full(small_disk: Path) -> None:
    with Server(settings_in(small_disk)) as server:
        notices(server, disk_full, "the disk is full")


def test_the_disk_of_a_store_elsewhere_counts_too(small_disk: Path, tmp_path: Path) -> None:
    store = Store(settings_in(tmp_path, database_url=f"sqlite:///{small_disk / 'rows.sqlite'}"))
    store.check_writable()
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    with pytest.raises(OSError, match="No space left"):
        store.check_writable()
    store.close()


def test_a_database_server_whose_writers_wait_is_told_of_too(postgres: PostgresServer, tmp_path: Path) -> None:
    with running_app(settings_in(tmp_path, database_url=postgres.new_database())) as client:
        store: Store = client.app.state.store  # type: ignore[attr-defined]
        with store.writing():
            wait_for(lambda: "locked" in "".join(client.get("/readyz").json()["causes"]), seconds=6)
        wait_for(lambda: client.get("/readyz").json() == READY, seconds=6)


def test_jobs_are_looked_after_although_nothing_could_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home without room, and a store on another disk: to end a job may be what makes room."""
    with running_app(settings_in(tmp_path)) as client:

        def refusing() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as full:
            full.setattr(client.app.state.store, "check_writable", refusing)  # type: ignore[attr-defined]
            wait_for(lambda: client.get("/readyz").json()["status"] == "degraded", seconds=6)
            job = submit(client, add_graph(client, tmp_path), ("one", {}))
            assert wait_end(client, job)["status"] == "succeeded"
