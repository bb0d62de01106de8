"""What lies in a home and nothing needs any more: found, and removed while the server runs and jobs write.

Jobs start and rows come by write transactions, one at a time. What nobody needs is moved aside in such a transaction of
our own, in which nothing can begin to need it; the files are removed after it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, select

from preprocessing.artifact import locked
from preprocessing.errors import UsageError
from service.errors import ConflictError
from service.jobs.plan import embedding_id, new_graph_id
from service.settings import ServiceSettings
from service.store import Store
from service.store.jobs import active_jobs
from service.store.rows import ENDED, now
from service.store.tables import aliases, embeddings, graphs, jobs

__all__ = ["TRASH", "Garbage", "check_writable", "collect", "old_embeddings", "remove_embeddings"]

TRASH = ".trash"
MOST_DAYS = 36_500
_ID = re.compile(r"(graph|emb|job)_[0-9a-f]{32}")
_HALF = re.compile(r"\.(?P<target>.+)\.(?P<kind>partial|old)")
_TORN = re.compile(r"\..+\.json\.[a-z0-9_]{8}")
"""What ``write_json`` leaves when it is killed."""


@dataclass(frozen=True)
class Garbage:
    """A file or folder, why nothing needs it, and its size."""

    path: Path
    why: str
    bytes: int


@dataclass(frozen=True)
class _Known:
    """Ids that rows stand for, those that an unfinished job uses or makes, and the jobs that have ended."""

    rows: set[str]
    used: set[str]
    ended: set[str]


def check_writable(settings: ServiceSettings) -> None:
    """``UsageError`` for a home that takes no writes: the rows are read, and files moved, while no job can start."""
    for folder in (settings.home, settings.graphs, settings.embeddings, settings.jobs):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise UsageError(
                "the home cannot be written to",
                given=str(folder),
                expected="a home that takes writes, with --dry-run too",
                remedy="run it as the server's user, where the disk is not mounted read-only",
            )


def collect(store: Store, settings: ServiceSettings, *, dry_run: bool) -> list[Garbage]:
    """Remove what nothing needs, or with ``dry_run`` tell what that is."""
    run = secrets.token_hex(8)
    # Listed before the rows are read: what is made from now on is not looked at.
    folders = {folder: sorted(folder.iterdir()) for folder in (settings.graphs, settings.embeddings, settings.jobs)}
    moved: list[tuple[Path, Path, str]] = []
    with store.writing() as connection:
        found = list(_found(folders, settings, _known(connection)))
        for path, why, move in [] if dry_run else found:
            folder = next(folder for folder in folders if path.is_relative_to(folder))
            trash = folder / TRASH / run
            trash.mkdir(parents=True, exist_ok=True)
            aside = trash / str(len(moved))
            if move(aside):
                moved.append((path, aside, why))
    if dry_run:
        return [Garbage(path, why, _size(path)) for path, why, _ in found]
    removed = [Garbage(path, why, _size(aside)) for path, aside, why in moved]
    for folder in folders:
        shutil.rmtree(folder / TRASH, ignore_errors=True)
    return removed


def old_embeddings(store: Store, settings: ServiceSettings, days: float) -> list[Garbage]:
    """Embedding sets that this server made more than ``days`` ago, no alias names, and no unfinished job uses;
    ``UsageError`` for what is no number of days that can have gone by.
    """
    if not 0 <= days <= MOST_DAYS:
        raise UsageError(
            "no set can be so old",
            given=f"{days:g} days",
            expected=f"days from 0 to {MOST_DAYS}",
            remedy="give fewer, or leave --unaliased-days out: then no set is deleted",
        )
    named = select(aliases.c.embedding)
    old = embeddings.c.created_at < now() - timedelta(days=days)
    query = select(embeddings.c.id).where(embeddings.c.state == "ready", old, embeddings.c.id.not_in(named))
    with store.reading() as connection:
        known = _known(connection)
        found = [identity for identity in connection.execute(query).scalars() if identity not in known.used]
    places = [settings.embeddings / identity for identity in sorted(found)]
    why = f"older than {days:g} days, and no alias names it"
    return [Garbage(place, why, _size(place)) for place in places if place.is_dir()]


def remove_embeddings(
    found: list[Garbage], store: Store, settings: ServiceSettings, by_server: Callable[[str], None]
) -> list[Garbage]:
    """Delete these sets: here, or by the server where one runs on the home, for it has them open. Those that came into
    use meanwhile stay.
    """
    removed: list[Garbage] = []
    if not found:
        return removed
    with _alone(store, settings) as alone:
        delete = store.delete_embedding if alone else by_server
        for one in found:
            with suppress(ConflictError):
                delete(one.path.name)
                removed.append(one)
    return removed


@contextmanager
def _alone(store: Store, settings: ServiceSettings) -> Iterator[bool]:
    """Whether no server runs on the home; then none can start meanwhile."""
    with (settings.home / "scheduler.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield store.claim.held()
        finally:
            store.claim.release()


def _known(connection: Connection) -> _Known:
    rows: set[str] = set()
    for table in (graphs, embeddings):
        # Of one marked for deletion the files may go.
        rows |= set(connection.execute(select(table.c.id).where(table.c.state != "deleting")).scalars())
    status = {row.id: row.status for row in connection.execute(select(jobs.c.id, jobs.c.status))}
    used: set[str] = set()
    for job in active_jobs(connection):
        previous = job.spec.get("previous") or {}
        made = (embedding_id(job.id), new_graph_id(job.id))
        used |= {job.graph, *made, str(job.embedding), str(job.encoder), str(previous.get("graph"))}
    return _Known(rows | set(status), used, {job for job, state in status.items() if state in ENDED})


_Found = Iterator[tuple[Path, str, Callable[[Path], bool]]]


def _found(folders: dict[Path, list[Path]], settings: ServiceSettings, known: _Known) -> _Found:
    """Paths, why each may go, and how it is moved aside."""
    for folder, entries in folders.items():
        for path in entries:
            half = _HALF.fullmatch(path.name)
            identity = path.name if half is None else half["target"]
            if path.name == TRASH:
                for left in sorted(path.glob("*")):
                    yield left, "an earlier rgrl gc was ended before it was removed", _mover(left)
            elif not _ID.fullmatch(identity) or identity in known.used:
                continue
            elif half is not None:
                yield from _half(path, half)
            elif identity not in known.rows:
                yield path, "no row stands for it", _mover(path)
            elif folder == settings.jobs:
                if identity in known.ended and (path / "train").is_dir():
                    yield path / "train", "checkpoints of a job that has ended", _mover(path / "train")
            else:
                yield from _halves_in(path)


def _halves_in(folder: Path) -> _Found:
    for parent, folders, files in os.walk(folder):
        for name in sorted(folders):
            if (half := _HALF.fullmatch(name)) is not None:
                yield from _half(Path(parent, name), half)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(files):
            if _TORN.fullmatch(name):
                yield Path(parent, name), "half written", _mover(Path(parent, name))


def _half(path: Path, half: re.Match[str]) -> _Found:
    target = path.with_name(half["target"])
    if half["kind"] == "old":
        # The only one there is, where a kill came between two renames: the next build puts it back.
        if target.exists():
            yield path, "replaced by a newer one", _mover(path, target)
        return
    if not _held(target):
        yield path, "half made, and no unfinished job goes on with it", _mover(path, target)


def _held(target: Path) -> bool:
    """Whether a command that somebody runs is building ``target``."""
    with suppress(FileNotFoundError), (target.parent / f".{target.name}.lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _mover(path: Path, target: Path | None = None) -> Callable[[Path], bool]:
    """Moves ``path`` aside, if it is there still; what is of an artefact only while nobody builds that."""

    def move(aside: Path) -> bool:
        with suppress(FileNotFoundError, UsageError):
            if target is None:
                path.rename(aside)
            else:
                with locked(target):
                    path.rename(aside)
            return True
        return False

    return move


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a folder, as far as they are there."""
    sizes = 0
    for file in (
        [path] if not path.is_dir() else (Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    ):
        with suppress(FileNotFoundError):
            sizes += file.lstat().st_size
    return sizes
