"""A backup: the rows of one moment and the files they stand for, in a folder that is always whole.

Files lie under their sha256, so that what an earlier backup at the same place has is not copied again. ``backup.json``,
renamed into its place last, says which of them lie where in a home: a kill at any moment leaves the backup before.
Files are copied and not linked: a link would share the damage of the original, and change the time by which the server
knows it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preprocessing.artifact import MANIFEST, code_version, fingerprint, hash_file, locked, read_plain, write_json
from preprocessing.errors import ArtifactError, UsageError
from service.settings import ServiceSettings
from service.store import RESTORING
from service.store.backends import read_url, sqlite_folder
from service.store.identity import read_identity
from service.store.rows import ACTIVE
from service.store.snapshot import snapshot
from service.upkeep.backup_folder import (
    BACKUP,
    FILES,
    KIND,
    SCHEMA_VERSION,
    STORE,
    UNFINISHED,
    UNFINISHED_KIND,
    check_ours,
    copied,
    flush_folder,
    full_path,
    object_path,
    remove_unnamed,
    writing_to,
)

__all__ = ["Progress", "backup", "no_home"]

LOGS, EVENTS = ("log.txt", "log.1.txt"), "events.jsonl"
ATTEMPTS, WAIT_S = 5, 0.2

Progress = Callable[[int, int], None]


class _ChangedError(ArtifactError):
    """A file of the snapshot's is gone, or another, by now. If that is as it should be, a new snapshot names it not."""


@dataclass
class _Made:
    """What goes into a backup: ``files`` are digests by place in the home, ``outside`` what lies elsewhere."""

    files: dict[str, str] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    bytes: int = 0
    copied: int = 0
    counts: dict[str, int] = field(default_factory=dict)


def backup(
    settings: ServiceSettings,
    dest: Path,
    *,
    verify: bool = False,
    replace: bool = False,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Back ``settings.home`` up into ``dest``, while its server runs and jobs write; the answer sums it up.

    With ``verify`` what ``dest`` has already is read and compared, and copied again where it is damaged. With
    ``replace`` it may be the backup of another home. ``progress`` is called with how many of the rows' folders are
    done. ``UsageError`` for a folder that cannot be meant, ``ArtifactError`` for a damaged file of the home: the backup
    before stays.
    """
    dest, of = full_path(dest), {"home": str(settings.home), "identity": read_identity(settings.home)}
    with writing_to(dest), _place(settings, dest):
        check_ours(settings.home, dest, replace)
        with _begun(dest, of):
            made = _made(settings, dest, verify, progress)
        written = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "code_version": code_version(),
            **of,
            "counts": made.counts,
            "bytes": made.bytes,
            "outside": made.outside,
            "content_hash": fingerprint(made.files),
            "files": made.files,
        }
        for folder in (dest / FILES, *(dest / FILES).iterdir()):
            flush_folder(folder)
        write_json(dest / BACKUP, written)
        flush_folder(dest)
        (dest / UNFINISHED).unlink(missing_ok=True)
        freed = remove_unnamed(dest, set(made.files.values()))
    return {
        "backup": str(dest),
        **made.counts,
        "files": len(made.files),
        "bytes": made.bytes,
        "copied_bytes": made.copied,
        "freed_bytes": freed,
        "outside": made.outside,
    }


@contextmanager
def _place(settings: ServiceSettings, dest: Path) -> Iterator[None]:
    """``dest`` as a folder that is there, for this process alone. Where the backup is refused no new one stays."""
    _check_place(settings, dest)
    new = [folder for folder in (dest, *dest.parents) if not folder.exists()]
    dest.mkdir(parents=True, exist_ok=True)
    try:
        with locked(dest / BACKUP):
            yield
    except UsageError:
        with suppress(OSError):
            for folder in new:
                folder.rmdir()
        raise


@contextmanager
def _begun(dest: Path, of: dict[str, Any]) -> Iterator[None]:
    """A first backup has its mark before anything else, and, where it is refused, leaves none."""
    first = not (dest / BACKUP).exists()
    if first:
        write_json(dest / UNFINISHED, {**of, "kind": UNFINISHED_KIND})
    (dest / FILES).mkdir(exist_ok=True)
    try:
        yield
    except UsageError:
        if first:
            with suppress(OSError):
                # With files in it, of one that was killed, it is needed.
                (dest / FILES).rmdir()
                (dest / UNFINISHED).unlink()
        raise


def _check_place(settings: ServiceSettings, dest: Path) -> None:
    if (settings.home / RESTORING).exists():
        raise UsageError(
            "the home is being made of a backup, or half of it was",
            given=str(settings.home),
            expected="a home that is whole",
            remedy="wait for rgrl restore to end, or run it again: it goes on",
        )
    database = read_url(settings.database)
    if not settings.jobs.is_dir() or (
        sqlite_folder(database) is not None and not Path(str(database.database)).exists()
    ):
        raise no_home(settings)
    if dest.is_relative_to(settings.home):
        raise UsageError(
            "the backup would lie in the home itself",
            given=str(dest),
            expected="a folder outside of it, best on another disk",
            remedy="name another folder",
        )
    if dest.exists() and not dest.is_dir():
        raise UsageError("this is a file", given=str(dest), expected="a folder, or a path that does not exist")


def no_home(settings: ServiceSettings) -> UsageError:
    """What to raise where there is none yet."""
    return UsageError(
        "there is no home here",
        given=str(settings.home),
        expected="the home of a server, as rgrl serve makes it",
        remedy="name it with --home or RGRL_HOME",
    )


def _made(settings: ServiceSettings, dest: Path, verify: bool, progress: Progress) -> _Made:
    """What was deleted or made anew since the snapshot is no fault: another snapshot is taken, and copying goes on."""
    attempt = 1
    while True:
        try:
            return _Copying(settings, dest, verify, progress).run()
        except _ChangedError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(WAIT_S * attempt)
            attempt += 1


class _Copying:
    """One snapshot, and the files of its rows."""

    def __init__(self, settings: ServiceSettings, dest: Path, verify: bool, progress: Progress) -> None:
        self._settings, self._dest, self._verify, self._progress = settings, dest, verify, progress
        self._made = _Made()

    def run(self) -> _Made:
        with tempfile.TemporaryDirectory(prefix=".snapshot.", dir=self._dest) as folder:
            store = Path(folder, STORE)
            snapshot(self._settings.database, store)
            with closing(sqlite3.connect(store)) as rows:
                # Columns that every version has had: an older store is backed up before it is migrated, too.
                graphs = rows.execute("SELECT id, bundle FROM graphs WHERE state = 'ready' ORDER BY id").fetchall()
                sets = rows.execute("SELECT id, path FROM embeddings WHERE state = 'ready' ORDER BY id").fetchall()
                jobs = rows.execute("SELECT id, status, events_offset FROM jobs ORDER BY id").fetchall()
            self._check_here({f"graphs/{identity}/bundle": path for identity, path in graphs})
            self._check_here({f"embeddings/{identity}": path for identity, path in sets})
            self._keep(store, STORE)
        self._made.counts = {
            "graphs": sum(self._inside(path) for _, path in graphs),
            "embeddings": sum(self._inside(path) for _, path in sets),
            "jobs": len(jobs),
        }
        total = len(graphs) + len(sets) + len(jobs)
        for done, (_, path) in enumerate(graphs + sets):
            self._progress(done, total)
            if self._inside(path):
                self._artifact(Path(path))
            else:
                self._made.outside.append(path)
        for done, job in enumerate(jobs, len(graphs) + len(sets)):
            self._progress(done, total)
            self._job(*job)
        self._progress(total, total)
        return self._made

    def _inside(self, path: str) -> bool:
        return Path(path).is_relative_to(self._settings.home)

    def _check_here(self, paths: dict[str, str]) -> None:
        """``paths`` of rows are by where a server puts what it makes in its home: that home is this one."""
        for place, path in paths.items():
            if Path(path).parts[-len(Path(place).parts) :] == Path(place).parts and not self._inside(path):
                raise UsageError(
                    "what the rows stand for lies in another home",
                    given=path,
                    expected=str(self._settings.home / place),
                    remedy="back the home up under the path that its server has; to move or copy a home, back it up "
                    "there and restore it here",
                )

    def _artifact(self, path: Path) -> None:
        known: dict[Path, str] = {}
        for folder, folders, names in os.walk(path, onerror=_gone):
            # Hidden is what is being made, or half made.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if MANIFEST in names:
                known |= self._manifest(Path(folder, MANIFEST))
            for name in sorted(names):
                if name != MANIFEST and not name.startswith("."):
                    file = Path(folder, name)
                    self._keep(file, self._place(file), known.pop(file, None))
        if known:
            raise _changed(next(iter(known)), "it is missing")
        if self._place(path / MANIFEST) not in self._made.files:
            raise _changed(path / MANIFEST, "it is missing")

    def _manifest(self, file: Path) -> dict[Path, str]:
        """Keep a manifest as it was read; the digests of the files it names."""
        try:
            text = read_plain(file)
            files = json.loads(text)["files"]
            named = {file.parent / name: str(digest) for name, digest in files.items()}
        except FileNotFoundError as error:
            raise _changed(file, "it is missing") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _changed(file, "it is no manifest") from error
        with tempfile.NamedTemporaryFile(dir=self._dest / FILES) as written:
            written.write(text)
            written.flush()
            self._keep(Path(written.name), self._place(file))
        return named

    def _job(self, identity: str, status: str, offset: int) -> None:
        """Its log; of an unfinished one also its events, as far as the rows know of them: they decide what is done."""
        folder = self._settings.jobs / identity
        for name in LOGS:
            if (folder / name).exists():
                self._keep(folder / name, self._place(folder / name))
        if status in ACTIVE and offset > 0:
            self._keep(folder / EVENTS, self._place(folder / EVENTS), most=offset)

    def _place(self, file: Path) -> str:
        return file.relative_to(self._settings.home).as_posix()

    def _keep(self, file: Path, place: str, digest: str | None = None, most: int | None = None) -> None:
        """``digest`` is what the file's must be, where that is known."""
        try:
            size = file.stat().st_size
            if digest is None or not self._has(digest):
                digest = self._copy(file, digest, most)
        except FileNotFoundError as error:
            raise _changed(file, "it is missing") from error
        self._made.files[place] = digest
        self._made.bytes += size if most is None else min(size, most)

    def _has(self, digest: str) -> bool:
        kept = object_path(self._dest, digest)
        return kept.is_file() and not (self._verify and hash_file(kept) != digest)

    def _copy(self, file: Path, expected: str | None, most: int | None) -> str:
        with file.open("rb") as source, tempfile.NamedTemporaryFile(dir=self._dest / FILES, delete=False) as target:
            try:
                digest = copied(source, target.file, most)
                if expected is not None and digest != expected:
                    raise _changed(file, "its content is not what its manifest says")
                kept = object_path(self._dest, digest)
                kept.parent.mkdir(exist_ok=True)
                Path(target.name).chmod(0o600 if file.name == STORE else 0o644)
                self._made.copied += target.tell()
                Path(target.name).replace(kept)
            except BaseException:
                Path(target.name).unlink(missing_ok=True)
                raise
        return digest


def _gone(error: OSError) -> None:
    raise _changed(Path(str(error.filename)), "it is missing") from error


def _changed(file: Path, why: str) -> _ChangedError:
    return _ChangedError(
        f"a file cannot be backed up: {why}",
        expected="artefacts that are whole",
        remedy="put the file back, or delete the graph or the embedding set that it belongs to, and back up again",
        where=str(file),
    )
