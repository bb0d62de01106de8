"""A home made of a backup. Until it is whole a file in it says so, and no server starts on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, update

from preprocessing.artifact import hash_file, locked, read_plain, write_json
from preprocessing.errors import ArtifactError, UsageError
from service.settings import ServiceSettings
from service.store import RESTORING
from service.store.backends import read_url, sqlite_folder
from service.store.database import Database
from service.store.identity import IDENTITY
from service.store.identity import KIND as HOME
from service.store.rows import now
from service.store.snapshot import as_one_file, copy_rows, count_rows
from service.store.tables import embeddings, graphs, jobs
from service.upkeep.backup import Progress
from service.upkeep.backup_folder import (
    MOST_BYTES,
    STORE,
    checked_place,
    copied,
    flush_folder,
    full_path,
    object_path,
    read_backup,
    writing_to,
)

__all__ = ["restore"]

OF_THE_DISK = "lost+found"
"""What a disk of its own has at its root."""


def restore(settings: ServiceSettings, source: Path, *, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Make ``settings.home`` of the backup at ``source``; every file is compared with its hash. The answer sums it up.

    The rows go into the database of ``settings``, of either kind, and are brought to this version's schema. Jobs that
    ran begin their present stage anew. A killed restore is gone on with by the same call, also where the backup was
    brought up to date meanwhile. ``UsageError`` for a home or a database that holds something, for a home inside the
    backup, and for a backup of a later version; ``ArtifactError`` for a damaged one.
    """
    source = full_path(source)
    written = read_backup(source)
    home = settings.home
    if home.is_relative_to(source):
        raise UsageError(
            "the home would lie in the backup itself",
            given=str(home),
            expected=f"a folder outside of {source}",
            remedy="name another home",
        )
    with writing_to(home), _claimed(settings, written) as begun:
        rows = home / f".{STORE}.restoring"
        for leftover in home.glob(f"{rows.name}*"):
            leftover.unlink()
        _put(source, written["files"][STORE], rows)
        store = Database(f"sqlite:///{rows}")
        try:
            with store.writing() as connection:
                _moved(connection, Path(written["home"]), home)
                _begun_anew(connection)
        finally:
            store.close()
        places = {Path(place): digest for place, digest in written["files"].items() if place != STORE}
        for done, (place, digest) in enumerate(places.items()):
            progress(done, len(places))
            _put(source, digest, home / place)
        progress(len(places), len(places))
        for folder in {(home / place).parent for place in places}:
            flush_folder(folder)
        _remove_others(home, begun.places - set(written["files"]))
        _put_rows(rows, settings, begun.same)
        if written.get("identity") is not None:
            write_json(home / IDENTITY, {"id": written["identity"], "kind": HOME})
        flush_folder(home)
        (home / RESTORING).unlink()
        flush_folder(home)
    return {
        "home": str(home),
        "backup": str(source),
        "of": written["created_at"],
        **written["counts"],
        "files": len(written["files"]),
        "bytes": written["bytes"],
        "outside": written["outside"],
    }


@dataclass(frozen=True)
class _Begun:
    """What an earlier restore that was killed had begun: whether of the same backup, and the files it may have put."""

    same: bool
    places: set[str]


@contextmanager
def _claimed(settings: ServiceSettings, written: dict[str, Any]) -> Iterator[_Begun]:
    """The home for this process alone, marked as being made of this backup."""
    begun = _begun(settings, written)
    with locked(settings.home / RESTORING):
        mark = {"content_hash": written["content_hash"], "home": written["home"], "identity": written.get("identity")}
        places = begun.places | set(written["files"])
        write_json(settings.home / RESTORING, {**mark, "places": sorted(places)})
        yield _Begun(begun.same, places)


def _begun(settings: ServiceSettings, written: dict[str, Any]) -> _Begun:
    """What is to be gone on with; ``UsageError`` unless that or nothing is there."""
    home = settings.home
    mark = home / RESTORING
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ArtifactError):
        found = json.loads(read_plain(mark, MOST_BYTES))
        places = {str(checked_place(place)) for place in found.get("places", [])}
        if found["content_hash"] == written["content_hash"]:
            return _Begun(True, places)
        if (found["home"], found["identity"]) == (written["home"], written.get("identity")):
            _check_empty(settings.database)
            return _Begun(False, places)
    if home.exists() and (not home.is_dir() or not all(map(_no_matter, home.iterdir()))):
        half = mark.exists()
        raise UsageError(
            "the home holds something already" + (", half of a restore of another backup" if half else ""),
            given=str(home),
            expected="an empty folder, or a path that does not exist",
            remedy="name another home, or "
            + ("restore that backup, or delete this home: no server ever ran on it" if half else "move this one away"),
        )
    _check_empty(settings.database)
    database = read_url(settings.database)
    if sqlite_folder(database) is not None and Path(str(database.database)).exists():
        raise UsageError("there is a job store already", given=str(database.database), expected="no such file")
    home.mkdir(parents=True, exist_ok=True)
    return _Begun(False, set())


def _remove_others(home: Path, places: set[str]) -> None:
    """Remove what an earlier restore put of the backup as it was then."""
    for file in (home / place for place in places):
        file.unlink(missing_ok=True)
        _half(file).unlink(missing_ok=True)
        with suppress(OSError):
            for folder in file.relative_to(home).parents[:-1]:
                (home / folder).rmdir()


def _no_matter(path: Path) -> bool:
    """Whether it is what a disk has of itself, or what a restore leaves that was killed before it left its mark."""
    return path.name == OF_THE_DISK or path.name.startswith(f".{RESTORING}.")


def _check_empty(url: str) -> None:
    """``UsageError`` where a server of PostgreSQL holds rows."""
    if sqlite_folder(read_url(url)) is not None:
        return
    store = Database(url)
    try:
        with store.reading() as connection:
            if any(count_rows(connection)):
                raise _not_empty()
    finally:
        store.close()


def _not_empty() -> UsageError:
    return UsageError(
        "the database of RGRL_DATABASE_URL holds rows already",
        expected="an empty database",
        remedy="name another, or empty this one",
    )


def _put(source: Path, digest: str, target: Path) -> None:
    """Copy a file of the backup's to its place, unless it is there; ``ArtifactError`` where it is not what it was."""
    if target.is_file() and hash_file(target) == digest:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = object_path(source, digest)
    if not kept.is_file():
        raise _damaged(source, digest, "is missing")
    half = _half(target)
    with kept.open("rb") as of_backup, half.open("wb") as made:
        found = copied(of_backup, made)
    if found != digest:
        half.unlink()
        raise _damaged(source, digest, "is damaged")
    half.replace(target)


def _half(target: Path) -> Path:
    return target.with_name(f".{target.name}.restoring.half")


def _damaged(source: Path, digest: str, how: str) -> ArtifactError:
    return ArtifactError(
        f"a file of the backup {how}",
        expected=f"sha256 {digest}",
        remedy="restore from another backup; where the home is there still, rgrl backup --verify makes this one whole",
        where=str(object_path(source, digest)),
    )


def _moved(connection: Connection, before: Path, home: Path) -> None:
    """Paths in the home that the backup is of become paths in this one."""
    for table, column in ((graphs, graphs.c.bundle), (embeddings, embeddings.c.path)):
        for identity, path in connection.execute(table.select().with_only_columns(table.c.id, column)).all():
            if Path(path).is_relative_to(before):
                there = str(home / Path(path).relative_to(before))
                connection.execute(update(table).where(table.c.id == identity).values({column: there}))


def _begun_anew(connection: Connection) -> None:
    """No process is left of a job that ran: its next attempt is due."""
    left = {"pid": None, "progress": None, "silent_since": None, "retry_at": now()}
    connection.execute(update(jobs).where(jobs.c.status.in_(("running", "cancelling"))).values(left))


def _put_rows(rows: Path, settings: ServiceSettings, going_on: bool) -> None:
    """Into the database of the settings, whole or not at all."""
    as_one_file(rows)
    database = read_url(settings.database)
    if sqlite_folder(database) is not None:
        target = Path(str(database.database))
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent != rows.parent:
            half = target.with_name(f".{target.name}.restoring")
            with rows.open("rb") as source, half.open("wb") as made:
                copied(source, made)
            half.replace(target)
            rows.unlink()
        else:
            rows.replace(target)
        return
    source_store, store = Database(f"sqlite:///{rows}"), Database(settings.database)
    try:
        with source_store.reading() as source, store.writing() as target_rows:
            found = count_rows(target_rows)
            if not any(found):
                copy_rows(source, target_rows)
            elif not (going_on and found == count_rows(source)):
                raise _not_empty()
    finally:
        source_store.close()
        store.close()
    rows.unlink()
