"""Backups are whole or not there, whenever they are ended; what is restored is what was backed up."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from home_fixtures import Filled, add_job, add_made_set, fill
from postgres_server import PostgresServer
from service_harness import Server, add_graph, running_app, settings_in, submit, wait_end
from sqlalchemy import text

from preprocessing.artifact import hash_file, verify
from preprocessing.errors import ArtifactError, ResourceError, UsageError
from service.api.app import create_app
from service.settings import ServiceSettings
from service.store import RESTORING, Store
from service.store.identity import give_identity, read_identity
from service.upkeep import backup as backups
from service.upkeep import restore as restoring
from service.upkeep.backup import backup
from service.upkeep.backup_folder import BACKUP, object_path
from service.upkeep.restore import restore

Run = Callable[..., tuple[int, str, str]]
SLOW_DISK = """
import sys, time
from pathlib import Path
import service.upkeep.backup as backups
copied = backups.copied
def slowly(*given):
    time.sleep(0.02)
    return copied(*given)
backups.copied = slowly
from service.settings import ServiceSettings
print("begins", flush=True)
backups.backup(ServiceSettings(home=sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def home(tmp_path: Path) -> ServiceSettings:
    return settings_in(tmp_path)


@pytest.fixture
def filled(home: ServiceSettings) -> Filled:
    return fill(home)


def in_another(tmp_path: Path, **changes: Any) -> ServiceSettings:
    return settings_in(tmp_path, home=tmp_path / "restored", **changes)


def check_restored(settings: ServiceSettings, filled: Filled) -> None:
    """Rows and files are as they were, and where rows say; the server answers from them."""
    app = create_app(settings)
    app.state.scheduler.start = lambda: None
    with TestClient(app, headers={"Authorization": f"Bearer {filled.key}"}) as client:
        store: Store = app.state.store
        graph, found = store.graph(filled.graph), store.embedding("live")
        assert Path(graph.bundle).is_relative_to(settings.home)
        verify(Path(graph.bundle), "graph_bundle")
        verify(Path(graph.bundle) / "ppr", "ppr_rows")
        assert found.id == filled.embedding
        assert Path(found.path) == settings.embeddings / filled.embedding
        verify(Path(found.path), "embedding_set")
        verify(Path(found.path) / "index", "knn_index")
        assert json.loads((Path(found.path) / "report.json").read_text())["summary"] == {"effective_rank": 3.0}
        answer = client.post("/v1/embeddings/live/neighbors", json={"queries": [{"id": 10}], "k": 3})
        assert answer.status_code == 200, answer.text
        assert client.get(f"/v1/graphs/{filled.graph}/nodes/10").status_code == 200
        assert client.get(f"/v1/jobs/{filled.ended}/logs").json()["lines"] == [f"log of {filled.ended}"]
        assert client.get("/v1/info", headers={"Authorization": "Bearer rgrl_wrong"}).status_code == 401


def test_a_home_is_restored_elsewhere(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    made = backup(home, tmp_path / "backup")
    assert (made["graphs"], made["embeddings"], made["jobs"], made["outside"]) == (1, 1, 2, [])
    shutil.rmtree(home.home)
    told = restore(in_another(tmp_path), tmp_path / "backup")
    assert (told["embeddings"], told["files"]) == (1, made["files"])
    check_restored(in_another(tmp_path), filled)


def test_a_job_that_ran_begins_its_stage_anew(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    backup(home, tmp_path / "backup")
    settings = in_another(tmp_path)
    restore(settings, tmp_path / "backup")
    # Of the events, as many as the rows had taken: a stage whose result they do not know is not done.
    assert (settings.jobs / filled.running / "events.jsonl").read_text() == "{}\n"
    assert not (settings.jobs / filled.ended / "events.jsonl").exists()
    with running_app(settings) as client:
        client.headers["Authorization"] = f"Bearer {filled.key}"
        assert wait_end(client, filled.running)["status"] == "succeeded"
        assert client.get(f"/v1/jobs/{filled.running}").json()["attempt"] == 2


def test_only_what_is_new_is_copied_and_what_is_gone_goes(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    first = backup(home, tmp_path / "backup")
    vectors = home.embeddings / filled.embedding / "vectors.npy"
    kept = object_path(tmp_path / "backup", hash_file(vectors))
    before = kept.stat()
    # A link would change the time by which a running server knows its files.
    assert vectors.stat().st_nlink == before.st_nlink == 1
    store = Store(home)
    job = add_job(store, home, filled.graph, "succeeded")
    other = add_made_set(store, home, filled.graph, job)
    second = backup(home, tmp_path / "backup")
    assert kept.stat() == before
    assert second["embeddings"] == 2
    assert second["copied_bytes"] < first["copied_bytes"]
    gone = object_path(tmp_path / "backup", hash_file(home.embeddings / other / "vectors.npy"))
    assert gone.exists()
    store.delete_embedding(other)
    store.close()
    third = backup(home, tmp_path / "backup")
    assert (third["embeddings"], gone.exists()) == (1, False)
    assert third["freed_bytes"] > 0


def test_what_lies_outside_of_the_home_is_told(
    tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run
) -> None:
    store = Store(home)
    moved = tmp_path / "data" / "set"
    shutil.move(home.embeddings / filled.embedding, moved)
    with store.writing() as connection:
        connection.execute(text("UPDATE embeddings SET path = :path"), {"path": str(moved)})
    store.close()
    code, out, err = rgrl("backup", tmp_path / "backup", "--home", home.home, "--json")
    told = json.loads(out)
    assert (code, told["outside"], told["graphs"], told["embeddings"]) == (0, [str(moved)], 1, 0)
    code, _, err = rgrl("backup", tmp_path / "backup", "--home", home.home)
    assert (code, str(moved) in err) == (0, True)
    code, out, _ = rgrl("restore", tmp_path / "backup", "--home", tmp_path / "restored", "--json")
    assert json.loads(out)["outside"] == [str(moved)]
    restored = Store(in_another(tmp_path))
    assert restored.embedding("live").path == str(moved)
    restored.close()


@pytest.mark.parametrize("original", ["stays", "is gone"])
@pytest.mark.parametrize("holds", ["graphs", "embeddings", "both"])
def test_a_home_that_lies_elsewhere_than_its_rows_say_is_refused(
    tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run, original: str, holds: str
) -> None:
    elsewhere = in_another(tmp_path)
    shutil.copytree(home.home, elsewhere.home)
    with closing(sqlite3.connect(elsewhere.home / "rgrl.sqlite")) as connection, connection:
        for table in {"graphs": ["embeddings"], "embeddings": ["graphs"], "both": []}[holds]:
            connection.execute(f"DELETE FROM {table}")
    if original == "is gone":
        shutil.rmtree(home.home)
    code, _, err = rgrl("backup", tmp_path / "backup", "--home", elsewhere.home)
    assert (code, "lies in another home" in err) == (2, True)
    place = f"embeddings/{filled.embedding}" if holds == "embeddings" else f"graphs/{filled.graph}/bundle"
    assert f"given: {home.home / place}" in err
    assert f"expected: {elsewhere.home / place}" in err
    assert not (tmp_path / "backup" / BACKUP).exists()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_either_database_is_restored_into_either(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, into: str
) -> None:
    def url(of: str) -> str | None:
        server: PostgresServer | None = request.getfixturevalue("postgres") if of == "postgresql" else None
        return None if server is None else server.new_database()

    home = settings_in(tmp_path, database_url=url(kind))
    filled = fill(home)
    backup(home, tmp_path / "backup")
    settings = in_another(tmp_path, database_url=url(into))
    restore(settings, tmp_path / "backup")
    check_restored(settings, filled)
    store = Store(settings)
    # Numbers go on after those there are.
    assert store.submit_job(_again(store, filled), max_queued=9)[1]
    store.close()
    with pytest.raises(UsageError, match="holds"):
        restore(settings, tmp_path / "backup")
    if into == "postgresql":
        with pytest.raises(UsageError, match="RGRL_DATABASE_URL holds rows already"):
            restore(settings_in(tmp_path, home=tmp_path / "third", database_url=settings.database), tmp_path / "backup")


def _again(store: Store, filled: Filled) -> Any:
    from service.store import NewJob

    return NewJob(kind="train", name=None, labels={}, graph=filled.graph, embedding=None, alias=None, spec={})


def test_a_restore_killed_at_its_very_end_is_gone_on_with(
    tmp_path: Path, postgres: PostgresServer, home: ServiceSettings, filled: Filled
) -> None:
    backup(home, tmp_path / "backup")
    settings = in_another(tmp_path, database_url=postgres.new_database())
    mark = settings.home / RESTORING
    restore(settings, tmp_path / "backup")
    mark.write_text(
        json.dumps({"content_hash": json.loads((tmp_path / "backup" / BACKUP).read_text())["content_hash"]})
    )
    restore(settings, tmp_path / "backup")
    assert not mark.exists()
    check_restored(settings, filled)


def old_schema(path: Path) -> None:
    """The store as the revision before this one had it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "ALTER TABLE embeddings DROP COLUMN name; ALTER TABLE jobs DROP COLUMN encoder;"
            "ALTER TABLE jobs DROP COLUMN new_graph; UPDATE alembic_version SET version_num = '0003';"
        )


def test_an_older_home_is_backed_up_as_it_is_and_migrated_when_restored(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    old_schema(home.home / "rgrl.sqlite")
    backup(home, tmp_path / "backup")
    with closing(sqlite3.connect(home.home / "rgrl.sqlite")) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]
    restore(in_another(tmp_path), tmp_path / "backup")
    check_restored(in_another(tmp_path), filled)


def test_a_store_of_a_later_version_is_refused_before_anything_is_copied(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    with closing(sqlite3.connect(home.home / "rgrl.sqlite")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    backup(home, tmp_path / "backup")
    with pytest.raises(UsageError, match="start the version that wrote it"):
        restore(in_another(tmp_path), tmp_path / "backup")
    assert not (tmp_path / "restored" / "graphs").exists()


def test_a_backup_of_a_later_version_is_refused(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    backup(home, tmp_path / "backup")
    _change(tmp_path / "backup", schema_version=2)
    with pytest.raises(UsageError, match=r"another schema version\n  given: 2, written by"):
        restore(in_another(tmp_path), tmp_path / "backup")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("place", ["home", "files/home", "."])
def test_a_home_inside_its_backup_is_refused(tmp_path: Path, home: ServiceSettings, filled: Filled, place: str) -> None:
    backup(home, tmp_path / "backup")
    before = sorted((tmp_path / "backup").rglob("*"))
    with pytest.raises(UsageError, match="the home would lie in the backup itself"):
        restore(in_another(tmp_path).model_copy(update={"home": tmp_path / "backup" / place}), tmp_path / "backup")
    assert sorted((tmp_path / "backup").rglob("*")) == before


def _change(folder: Path, **changes: Any) -> None:
    written = json.loads((folder / BACKUP).read_text()) | changes
    (folder / BACKUP).write_text(json.dumps(written))


@pytest.mark.parametrize("place", ["/etc/passwd", "graphs/../../x", "x", "graphs", "jobs/a/../../../b"])
def test_a_backup_that_names_other_places_is_refused(
    tmp_path: Path, home: ServiceSettings, filled: Filled, place: str
) -> None:
    backup(home, tmp_path / "backup")
    files = json.loads((tmp_path / "backup" / BACKUP).read_text())["files"]
    _change(tmp_path / "backup", files=files | {place: files["rgrl.sqlite"]})
    with pytest.raises(ArtifactError, match="outside of a home"):
        restore(in_another(tmp_path), tmp_path / "backup")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"bytes": ' + b"9" * 5000 + b"}",
        b"[]",
        b"null",
        b'{"kind": "backup"}',
        b'{"kind": "backup", "schema_version": 1}',
    ],
)
def test_a_description_that_is_none_is_told_and_leaves_no_home(
    tmp_path: Path, home: ServiceSettings, filled: Filled, content: bytes
) -> None:
    backup(home, tmp_path / "backup")
    (tmp_path / "backup" / BACKUP).write_bytes(content)
    check_refused(tmp_path, home)


def check_refused(tmp_path: Path, home: ServiceSettings) -> None:
    before = seen(tmp_path / "backup")
    for replace in (False, True):
        with pytest.raises((ArtifactError, UsageError), match=r"backup\.json|schema version|outside of a home"):
            backup(home, tmp_path / "backup", replace=replace)
    with pytest.raises((ArtifactError, UsageError), match=r"backup\.json|schema version|outside of a home"):
        restore(in_another(tmp_path), tmp_path / "backup")
    assert seen(tmp_path / "backup") == before
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("value", [None, 1.5, "x", [], {}, [1], {"rgrl.sqlite": 1}, {"rgrl.sqlite": "../x"}])
def test_every_field_of_a_description_is_looked_at(
    tmp_path: Path, home: ServiceSettings, filled: Filled, value: object
) -> None:
    backup(home, tmp_path / "backup")
    whole = json.loads((tmp_path / "backup" / BACKUP).read_text())
    for name in ("kind", "schema_version", "created_at", "home", "counts", "bytes", "outside", "content_hash", "files"):
        # What is of the right kind is no damage that anybody could see.
        if (name, value) in [("created_at", "x"), ("outside", []), ("counts", {}), ("counts", {"rgrl.sqlite": 1})]:
            continue
        _change(tmp_path / "backup", **{name: value})
        check_refused(tmp_path, home)
        (tmp_path / "backup" / BACKUP).write_text(json.dumps({key: whole[key] for key in whole if key != name}))
        check_refused(tmp_path, home)
        (tmp_path / "backup" / BACKUP).write_text(json.dumps(whole))


@pytest.mark.parametrize("mark", ["", "[]", "{}", '"x"', "[" * 100_000, '{"content_hash": "of another"}'])
def test_a_mark_that_is_not_of_this_backup_is_no_restore_to_go_on_with(
    tmp_path: Path, home: ServiceSettings, filled: Filled, mark: str
) -> None:
    backup(home, tmp_path / "backup")
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / RESTORING).write_text(mark)
    with pytest.raises(UsageError, match="of another backup"):
        restore(in_another(tmp_path), tmp_path / "backup")


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("killed_at", ["_put", "_put_rows", "write_json"])
def test_a_killed_restore_goes_on_with_the_backup_as_it_is_by_now(
    tmp_path: Path,
    home: ServiceSettings,
    filled: Filled,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    killed_at: str,
    database: str,
) -> None:
    url = request.getfixturevalue("postgres").new_database() if database == "postgres" else None
    store = Store(home)
    gone = add_made_set(store, home, filled.graph, add_job(store, home, filled.graph, "succeeded"))
    backup(home, tmp_path / "backup")
    settings, calls = in_another(tmp_path, database_url=url), 0
    last = {"_put": 30, "_put_rows": 1, "write_json": 2}[killed_at]
    before = getattr(restoring, killed_at)

    def killed(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        before(*given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(restoring, killed_at, killed)
        restore(settings, tmp_path / "backup")
    assert (settings.embeddings / gone).exists()
    store.delete_embedding(gone)
    store.close()
    backup(home, tmp_path / "backup")
    if (database, killed_at) == ("postgres", "write_json"):
        with pytest.raises(UsageError, match="holds rows already"):
            restore(settings, tmp_path / "backup")
        settings = in_another(tmp_path, database_url=request.getfixturevalue("postgres").new_database())
    restore(settings, tmp_path / "backup")
    check_restored(settings, filled)
    assert [path.name for path in settings.embeddings.iterdir()] == [filled.embedding]
    assert not (settings.home / RESTORING).exists()


def test_half_of_a_restore_of_another_home_is_told_with_what_to_do(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    other = settings_in(tmp_path, home=tmp_path / "other")
    fill(other)
    for one, name in ((home, "backup"), (other, "backup-of-other")):
        backup(one, tmp_path / name)
    restore(in_another(tmp_path), tmp_path / "backup")
    written = json.loads((tmp_path / "backup" / BACKUP).read_text())
    mark = {name: written[name] for name in ("content_hash", "home", "identity")}
    (tmp_path / "restored" / RESTORING).write_text(json.dumps(mark))
    before = seen(tmp_path / "restored")
    with pytest.raises(UsageError, match=r"of another backup\n(.*\n)*.*restore that backup, or delete this home"):
        restore(in_another(tmp_path), tmp_path / "backup-of-other")
    assert seen(tmp_path / "restored") == before


def test_a_restore_killed_before_its_mark_is_gone_on_with(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    backup(home, tmp_path / "backup")
    (tmp_path / "restored").mkdir()
    for left in (f".{RESTORING}.lock", f".{RESTORING}.abcdefgh"):
        (tmp_path / "restored" / left).touch()
    restore(in_another(tmp_path), tmp_path / "backup")
    check_restored(in_another(tmp_path), filled)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [BACKUP, "unfinished.json", "object", RESTORING, "home.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, home: ServiceSettings, filled: Filled, name: str
) -> None:
    dest, settings = tmp_path / "backup", in_another(tmp_path)
    backup(home, dest)
    written = json.loads((dest / BACKUP).read_text())
    settings.home.mkdir()
    places = {
        "object": object_path(dest, written["files"]["rgrl.sqlite"]),
        RESTORING: settings.home / RESTORING,
        "home.json": home.home / name,
    }
    pipe = places.get(name, dest / name)
    if name == "unfinished.json":
        (dest / BACKUP).unlink()
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    if name in {BACKUP, "unfinished.json", "home.json"}:
        with pytest.raises((ArtifactError, UsageError), match=r"ordinary file|no mark"):
            backup(home, dest)
    if name != "home.json":
        with pytest.raises((ArtifactError, UsageError), match=r"ordinary file|no backup|is missing|of another backup"):
            restore(settings, dest)


@pytest.mark.parametrize("place", ["file/below", "/proc/below", "~nobody_of_that_name/b", "loop", "n" * 300])
def test_a_place_that_cannot_be_is_one_clear_error(
    tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    there = place if place.startswith("~") else tmp_path / place
    backup(home, tmp_path / "backup")
    code, _, err = rgrl("backup", there, "--home", home.home)
    assert (code > 0, err.startswith("error: "), "remedy: " in err) == (True, True, True), err
    code, _, err = rgrl("restore", there, "--home", tmp_path / "restored")
    assert (code > 0, err.startswith("error: "), "remedy: " in err) == (True, True, True), err
    if place not in {"loop", "~nobody_of_that_name/b"}:
        code, _, err = rgrl("restore", tmp_path / "backup", "--home", there)
        assert (code > 0, err.startswith("error: "), "remedy: " in err) == (True, True, True), err


def test_a_read_only_place_is_one_clear_error(
    tmp_path: Path, small_disk: Path, home: ServiceSettings, filled: Filled, rgrl: Run
) -> None:
    backup(home, small_disk / "backup")
    (small_disk / "empty").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for dest in ("backup", "empty", "new"):
        code, _, err = rgrl("backup", small_disk / dest, "--home", home.home)
        assert (code, "the system refused: Read-only file system" in err) == (1, True), err
    for there in ("empty", "new"):
        code, _, err = rgrl("restore", small_disk / "backup", "--home", small_disk / there)
        assert (code, "the system refused: Read-only file system" in err) == (1, True), err
    restore(in_another(tmp_path), small_disk / "backup")
    check_restored(in_another(tmp_path), filled)


def test_a_damaged_backup_makes_no_home_and_is_made_whole(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    backup(home, tmp_path / "backup")
    kept = object_path(tmp_path / "backup", hash_file(home.embeddings / filled.embedding / "vectors.npy"))
    kept.write_bytes(b"x" + kept.read_bytes()[1:])
    with pytest.raises(ArtifactError, match="a file of the backup is damaged"):
        restore(in_another(tmp_path), tmp_path / "backup")
    with pytest.raises(UsageError, match="half of it was"):
        Store(in_another(tmp_path))
    with pytest.raises(UsageError, match="half of it was"):
        backup(in_another(tmp_path), tmp_path / "other")
    backup(home, tmp_path / "backup")
    with pytest.raises(ArtifactError, match="is damaged"):
        restore(in_another(tmp_path), tmp_path / "backup")
    backup(home, tmp_path / "backup", verify=True)
    restore(in_another(tmp_path), tmp_path / "backup")
    check_restored(in_another(tmp_path), filled)
    kept.unlink()
    with pytest.raises(ArtifactError, match="is missing"):
        restore(settings_in(tmp_path, home=tmp_path / "third"), tmp_path / "backup")


def test_a_damaged_file_of_the_home_leaves_the_backup_before(
    tmp_path: Path, home: ServiceSettings, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "WAIT_S", 0)
    backup(home, tmp_path / "backup")
    store = Store(home)
    other = add_made_set(store, home, filled.graph, add_job(store, home, filled.graph, "succeeded"))
    store.close()
    before = (tmp_path / "backup" / BACKUP).read_text()
    vectors = home.embeddings / other / "vectors.npy"
    whole = vectors.read_bytes()
    for damage in (lambda: vectors.write_bytes(b"y" + whole[1:]), vectors.unlink):
        damage()
        with pytest.raises(ArtifactError, match="cannot be backed up") as told:
            backup(home, tmp_path / "backup")
        assert str(vectors) in told.value.text()
    assert (tmp_path / "backup" / BACKUP).read_text() == before
    restore(in_another(tmp_path), tmp_path / "backup")
    check_restored(in_another(tmp_path), filled)


def test_places_that_cannot_be_meant(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").touch()
    (tmp_path / "file").touch()
    for dest, why in ((home.home / "b", "in the home itself"), ("other", "something else"), ("file", "this is a file")):
        with pytest.raises(UsageError, match=why):
            backup(home, tmp_path / dest)
    with pytest.raises(UsageError, match="no home here"):
        backup(settings_in(tmp_path, home=tmp_path / "other"), tmp_path / "backup")
    with pytest.raises(ArtifactError, match="no backup here"):
        restore(in_another(tmp_path), tmp_path / "other")
    backup(home, tmp_path / "backup")
    with pytest.raises(UsageError, match="holds something already"):
        restore(settings_in(tmp_path, home=tmp_path / "other"), tmp_path / "backup")
    with pytest.raises(UsageError, match="holds something already"):
        restore(home, tmp_path / "backup")
    (tmp_path / "restored" / "lost+found").mkdir(parents=True)
    restore(in_another(tmp_path), tmp_path / "backup")


SHA = "ab" + "0" * 62


def seen(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "files",
    [
        {"files/holiday/photo.jpg": "x"},
        {f"files/ab/{SHA}": "x"},
        {"files/tmpabcdefgh": "x"},
        {"backup.json": '{"sets": 3}', f"files/ab/{SHA}": "x"},
        {"backup.json": "no json", f"files/ab/{SHA}": "x"},
        {"unfinished.json": "[]", f"files/ab/{SHA}": "x"},
        {"unfinished.json": '{"kind": "letter"}', f"files/ab/{SHA}": "x"},
    ],
)
def test_a_folder_of_the_users_is_refused_and_left_as_it_is(
    tmp_path: Path, home: ServiceSettings, filled: Filled, files: dict[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(content)
    before = seen(tmp_path / "mine")
    for replace in (False, True):
        with pytest.raises((UsageError, ArtifactError), match=r"something else|cannot be read|no backup of|no mark"):
            backup(home, tmp_path / "mine", replace=replace)
    assert seen(tmp_path / "mine") == before


@pytest.mark.parametrize("of", ["nothing", "backup"])
def test_files_are_no_link(tmp_path: Path, home: ServiceSettings, filled: Filled, of: str) -> None:
    (tmp_path / "mine" / "ab").mkdir(parents=True)
    (tmp_path / "mine" / "ab" / SHA).write_text("x")
    if of == "backup":
        backup(home, tmp_path / "backup")
        (tmp_path / "backup" / "files").rename(tmp_path / "before")
    else:
        (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "files").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"no link|something else"):
        backup(home, tmp_path / "backup")
    assert seen(tmp_path / "mine") == {f"ab/{SHA}": b"x"}


def test_only_what_a_backup_made_is_removed_from_it(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    dest = tmp_path / "backup"
    backup(home, dest)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / SHA).touch()
    (dest / "files" / "ab").mkdir(exist_ok=True)
    (dest / "files" / "00").mkdir(exist_ok=True)
    (dest / "files" / "a").symlink_to(tmp_path / "mine")
    (dest / ".snapshot.abcdefgh").mkdir()
    (dest / ".snapshot.daily").mkdir()
    mine = ["files/ab/letter", f"files/00/{SHA}", "files/tmp.txt", "files/note", ".snapshot.daily/rgrl.sqlite", "x"]
    ours = [f"files/ab/{SHA}", "files/tmpabcdefgh", ".snapshot.abcdefgh/rgrl.sqlite-wal", ".backup.json.abcdefgh"]
    for name in mine + ours:
        (dest / name).write_text("x")
    link = dest / "files" / "ba"
    if not link.exists():
        link.symlink_to(tmp_path / "mine")
    told = backup(home, dest)
    assert [name for name in mine if not (dest / name).exists()] == []
    assert [name for name in ours if (dest / name).exists()] == []
    assert told["freed_bytes"] >= len(ours)
    assert not (dest / ".snapshot.abcdefgh").exists()
    assert (tmp_path / "mine" / SHA).exists()


def test_a_first_backup_that_failed_is_gone_on_with(
    tmp_path: Path, home: ServiceSettings, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr(backups, "fingerprint", failing)
        with pytest.raises(ResourceError):
            backup(home, tmp_path / "backup")
    assert not (tmp_path / "backup" / BACKUP).exists()
    made = backup(home, tmp_path / "backup")
    assert made["copied_bytes"] < made["bytes"]
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [BACKUP, "files"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_home_made_anew_under_the_path_of_another_is_another(
    tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run, whole: bool
) -> None:
    dest = tmp_path / "backup"
    backup(home, dest)
    written = json.loads((dest / BACKUP).read_text())
    if not whole:
        (dest / BACKUP).unlink()
        mark = {"kind": "unfinished backup", "home": written["home"], "identity": written["identity"]}
        (dest / "unfinished.json").write_text(json.dumps(mark))
    home.home.rename(tmp_path / "elsewhere")
    fill(home)
    before = seen(dest)
    code, _, err = rgrl("backup", dest, "--home", home.home)
    assert (code, seen(dest)) == (2, before)
    for part in ("the backup of another home", f"of {home.home}, made anew since, or of another machine", "--replace"):
        assert part in err
    code, _, err = rgrl("backup", dest, "--home", home.home, "--replace")
    assert (code, rgrl("backup", dest, "--home", home.home)[0]) == (0, 0), err
    assert json.loads((dest / BACKUP).read_text())["identity"] not in {None, written["identity"]}


def test_a_restored_home_is_the_one_that_was_backed_up(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    backup(home, tmp_path / "backup")
    identity = read_identity(home.home)
    assert identity is not None
    shutil.rmtree(home.home)
    restore(home, tmp_path / "backup")
    Store(home).close()
    assert read_identity(home.home) == identity
    backup(home, tmp_path / "backup")


def test_homes_and_backups_of_earlier_versions_are_known_by_their_path(
    tmp_path: Path, home: ServiceSettings, filled: Filled
) -> None:
    (home.home / "home.json").unlink()
    assert backup(home, tmp_path / "backup")["copied_bytes"] > 0
    written = json.loads((tmp_path / "backup" / BACKUP).read_text())
    assert written.pop("identity") is None
    (tmp_path / "backup" / BACKUP).write_text(json.dumps(written))
    Store(home).close()
    backup(home, tmp_path / "backup")
    assert json.loads((tmp_path / "backup" / BACKUP).read_text())["identity"] == read_identity(home.home)
    (home.home / "home.json").unlink()
    with pytest.raises(UsageError, match="of another home"):
        backup(home, tmp_path / "backup")


def test_processes_that_open_a_new_home_at_once_agree_on_its_id(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        for number in range(20):
            place = tmp_path / str(number)
            place.mkdir()
            list(threads.map(give_identity, [place] * 8))
            assert [path.name for path in place.iterdir()] == ["home.json"]
            assert str(read_identity(place)).startswith("home_")
    assert len({read_identity(place) for place in tmp_path.iterdir()}) == 20


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "home"}', '{"kind": "home", "id": 3}', "[" * 100_000, "\0"])
def test_a_home_whose_id_cannot_be_read_is_not_taken_for_another(
    tmp_path: Path, home: ServiceSettings, filled: Filled, text: str
) -> None:
    dest = tmp_path / "backup"
    backup(home, dest)
    before = (dest / BACKUP).read_bytes()
    (home.home / "home.json").write_text(text)
    for place in (dest, tmp_path / "new"):
        with pytest.raises(ArtifactError, match="the home's id cannot be read"):
            backup(home, place)
    assert (dest / BACKUP).read_bytes() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("there", ["nothing", "a folder", "a killed first backup"])
def test_a_refused_first_backup_leaves_the_place_as_it_was(
    tmp_path: Path, home: ServiceSettings, filled: Filled, there: str
) -> None:
    moved = settings_in(tmp_path, home=tmp_path / "moved")
    home.home.rename(moved.home)
    place = tmp_path / "backups"
    if there != "nothing":
        (place / "first").mkdir(parents=True)
    if there == "a killed first backup":
        (place / "first" / "unfinished.json").write_text(
            json.dumps({"kind": "unfinished backup", "home": str(moved.home)})
        )
        (place / "first" / "files" / "ab").mkdir(parents=True)
        (place / "first" / "files" / "ab" / SHA).write_text("x")
    before = sorted(place.rglob("*"))
    with pytest.raises(UsageError, match="lies in another home"):
        backup(moved, place / "first")
    assert (place.exists(), sorted(place.rglob("*"))) == (there != "nothing", before)


@pytest.mark.parametrize("whole", [True, False])
def test_the_backup_of_another_home_stays_unless_it_is_to_be_replaced(
    tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run, whole: bool
) -> None:
    dest, other = tmp_path / "backup", in_another(tmp_path)
    fill(other)
    backup(home, dest)
    if not whole:
        (dest / BACKUP).unlink()
        (dest / "unfinished.json").write_text(json.dumps({"kind": "unfinished backup", "home": str(home.home)}))
    before = seen(dest)
    code, _, err = rgrl("backup", dest, "--home", other.home)
    assert (code, seen(dest)) == (2, before)
    for part in ("the backup of another home", f"of {home.home}", f"a backup of {other.home}", "--replace"):
        assert part in err
    code, _, err = rgrl("backup", dest, "--home", other.home, "--replace")
    assert (code, json.loads((dest / BACKUP).read_text())["home"]) == (0, str(other.home)), err


def test_a_kill_leaves_the_backup_before_or_the_new_one(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    dest = tmp_path / "backup"
    backup(home, dest)
    store = Store(home)
    chance, ended, sets = random.Random(7), [], 1
    for turn in range(4):
        # Every turn has something to copy, and something to remove: 20 files and more, 20 ms each.
        other = add_made_set(store, home, filled.graph, add_job(store, home, filled.graph, "succeeded"))
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW_DISK, home.home, dest], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        time.sleep(chance.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        ended.append(process.wait())
        process.stdout.close()
        settings = settings_in(tmp_path, home=tmp_path / f"restored{turn}")
        restore(settings, dest)
        check_restored(settings, filled)
        again = Store(settings)
        found = again.list_embeddings().items
        again.close()
        for one in found:
            verify(Path(one.path), "embedding_set")
        assert len(found) in {sets, sets + 1}
        sets = len(found)
        if turn % 2:
            store.delete_embedding(other)
            backup(home, dest)
            sets = len(store.list_embeddings().items)
    store.close()
    assert -signal.SIGKILL in ended
    backup(home, dest)
    named = set(json.loads((dest / BACKUP).read_text())["files"].values())
    assert {file.name for file in (dest / "files").glob("*/*")} == named
    assert sorted(path.name for path in dest.iterdir()) == [BACKUP, "files"]


def test_a_killed_restore_is_gone_on_with(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    backup(home, tmp_path / "backup")
    settings = in_another(tmp_path)
    slow = SLOW_DISK.replace(
        "backups.backup(", "from service.upkeep import restore as r; r.copied = slowly; r.restore("
    )
    chance = random.Random(3)
    for _ in range(2):
        command = [sys.executable, "-c", slow, settings.home, tmp_path / "backup"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.15, 0.3))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        with pytest.raises(UsageError, match="half of it was"):
            Store(settings)
    restore(settings, tmp_path / "backup")
    check_restored(settings, filled)
    assert not list(settings.home.rglob("*.half"))


def test_beside_a_running_server_whose_jobs_write_and_delete(tmp_path: Path) -> None:
    """Sets are made and deleted all the while: every backup holds exactly the files of its own rows."""
    settings = settings_in(tmp_path, max_running=2, max_cores=4)
    with Server(settings) as server:
        graph = add_graph(server.client, tmp_path)
        wait_end(server.client, submit(server.client, graph, ("ingest", {"make": "bundle"})))
        stop = threading.Event()

        def work() -> None:
            made: list[str] = []
            while not stop.is_set():
                job = submit(server.client, graph, ("train", {"make": "embeddings"}))
                made.append(str(wait_end(server.client, job)["embedding"]))
                if len(made) > 2:
                    assert server.client.delete(f"/v1/embeddings/{made.pop(0)}").status_code == 204

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for turn in range(4):
                backup(settings, tmp_path / "backup")
                restored = settings_in(tmp_path, home=tmp_path / f"restored{turn}")
                restore(restored, tmp_path / "backup")
                store = Store(restored)
                found = store.list_embeddings(limit=200).items
                for one in found:
                    verify(Path(one.path), "embedding_set")
                assert {path.name for path in restored.embeddings.iterdir()} == {one.id for one in found}
                verify(Path(store.graph(graph).bundle), "graph_bundle")
                store.close()
                time.sleep(0.2)
        finally:
            stop.set()
            worker.join()
        assert server.client.get("/readyz").status_code == 200


def test_a_full_disk_leaves_the_backup_before(tmp_path: Path, small_disk: Path, home: ServiceSettings) -> None:
    filled = fill(home)
    backup(home, small_disk / "backup")
    store = Store(home)
    add_made_set(store, home, filled.graph, add_job(store, home, filled.graph, "succeeded"))
    store.close()
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    for _ in range(2):
        with pytest.raises(ResourceError, match="the disk is full"):
            backup(home, small_disk / "backup")
    restore(in_another(tmp_path), small_disk / "backup")
    check_restored(in_another(tmp_path), filled)


def test_what_the_system_refuses_is_told_in_words(tmp_path: Path, home: ServiceSettings, filled: Filled) -> None:
    backup(home, tmp_path / "backup")
    code = (
        "import resource, signal, sys; from pathlib import Path; from service.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY})); main()"
    )
    # No file may be as large as the rows are.
    for command in (
        ["backup", tmp_path / "backup", "--home", home.home],
        ["restore", tmp_path / "backup", "--home", tmp_path / "restored"],
    ):
        arguments = [sys.executable, "-c", code, *map(str, command)]
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("error: "), done.stderr
    restore(in_another(tmp_path), tmp_path / "backup")
    check_restored(in_another(tmp_path), filled)
