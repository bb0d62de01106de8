"""A backup: the rows of one moment and the files they stand for, in a folder that is always whole.

Files lie under their sha256, so that what an earlier backup at the same place has is not copied again. ``backup.json``,
renamed into its place last, says which of them lie where in a home: a kill at any moment leaves the backup before.
Files are copied and not linked: a link would share the damage of the original, and change the time by which the server
knows it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import OperationalError

from preprocessing.artifact import MANIFEST, code_version, fingerprint, hash_file, locked, write_json
from preprocessing.errors import ArtifactError, ResourceError, UsageError
from service.settings import ServiceSettings
from service.store import RESTORING
from service.store.backends import read_url, sqlite_folder
from service.store.rows import ACTIVE
from service.store.snapshot import snapshot

__all__ = [
    "BACKUP",
    "KIND",
    "SCHEMA_VERSION",
    "STORE",
    "Progress",
    "backup",
    "checked_place",
    "copied",
    "flush_folder",
    "full_path",
    "object_path",
    "read_backup",
    "writing_to",
]

BACKUP, FILES = "backup.json", "files"
UNFINISHED = "unfinished.json"
"""Written before anything else: it tells the files of a first backup that was killed from files of the user's."""
KIND, UNFINISHED_KIND, SCHEMA_VERSION = "backup", "unfinished backup", 1
STORE = "rgrl.sqlite"
"""What the rows are called among the files, whatever database they come from."""
LOGS, EVENTS = ("log.txt", "log.1.txt"), "events.jsonl"
ATTEMPTS, WAIT_S = 5, 0.2
CHUNK = 4 * 2**20
_DIGEST, _SHORT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{2}")
# What a killed backup leaves: half a file, half a backup.json, rows that were not yet among the files.
_HALF = re.compile(r"tmp[a-z0-9_]{8}")
_TORN = re.compile(rf"\.({re.escape(BACKUP)}|{re.escape(UNFINISHED)})\.[a-z0-9_]{{8}}")
_SNAPSHOT = re.compile(r"\.snapshot\.[a-z0-9_]{8}")

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
    dest = full_path(dest)
    with writing_to(dest), _place(settings, dest):
        _check_ours(settings, dest, replace)
        if not (dest / BACKUP).exists():
            write_json(dest / UNFINISHED, {"home": str(settings.home), "kind": UNFINISHED_KIND})
        (dest / FILES).mkdir(exist_ok=True)
        made = _made(settings, dest, verify, progress)
        written = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "code_version": code_version(),
            "home": str(settings.home),
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
        freed = _remove_unnamed(dest, set(made.files.values()))
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
    """``dest`` as a folder that is there, for this process alone."""
    _check_place(settings, dest)
    dest.mkdir(parents=True, exist_ok=True)
    with locked(dest / BACKUP):
        yield


def full_path(path: Path) -> Path:
    """Without ``~`` and links; ``UsageError`` where these lead nowhere."""
    try:
        return path.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise UsageError(
            f"the path leads nowhere: {error}",
            given=str(path),
            expected="a folder, or a path that does not exist",
            remedy="name another folder",
        ) from error


def object_path(backup_folder: Path, digest: str) -> Path:
    """Where a backup keeps the file of that sha256."""
    return backup_folder / FILES / digest[:2] / digest


def copied(source: IO[bytes], target: IO[bytes], most: int | None = None) -> str:
    """Copy at most ``most`` bytes and see that they are on the disk; the answer is their sha256."""
    digest = hashlib.sha256()
    while data := source.read(CHUNK if most is None else min(CHUNK, most)):
        digest.update(data)
        target.write(data)
        most = None if most is None else most - len(data)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """``ResourceError`` where the system refuses what happens inside; whatever was there before is there still."""
    try:
        yield
    except (OSError, sqlite3.OperationalError, OperationalError) as error:
        found = error.orig if isinstance(error, OperationalError) else error
        full = getattr(found, "errno", None) in {errno.ENOSPC, errno.EDQUOT} or "is full" in str(found)
        raise ResourceError(
            "the disk is full" if full else f"the system refused: {getattr(found, 'strerror', None) or found}",
            where=str(getattr(found, "filename", None) or folder),
            remedy="make room there, or name another folder, and run the same command again"
            if full
            else "see that the folder can be written to and the home be read, and run the same command again",
        ) from error


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
        raise UsageError(
            "there is no home here",
            given=str(settings.home),
            expected="the home of a server, as rgrl serve makes it",
            remedy="name it with --home or RGRL_HOME",
        )
    if dest.is_relative_to(settings.home):
        raise UsageError(
            "the backup would lie in the home itself",
            given=str(dest),
            expected="a folder outside of it, best on another disk",
            remedy="name another folder",
        )
    if dest.exists() and not dest.is_dir():
        raise UsageError("this is a file", given=str(dest), expected="a folder, or a path that does not exist")


def _check_ours(settings: ServiceSettings, dest: Path, replace: bool) -> None:
    """``dest`` is empty, or holds a backup of ours: of this home, unless another is to be replaced."""
    expected = "an empty folder, an earlier backup, or a path that does not exist"
    remedy = "name another folder"
    if (dest / BACKUP).exists():
        of = read_backup(dest)["home"]
    elif (dest / UNFINISHED).exists():
        of = _unfinished(dest)
    elif any(not path.name.startswith(".") for path in dest.iterdir()):
        raise UsageError(
            "the folder holds something else than a backup", given=str(dest), expected=expected, remedy=remedy
        )
    else:
        return
    files = dest / FILES
    if files.is_symlink() or (files.exists() and not files.is_dir()):
        raise UsageError(
            "this is no folder of a backup's", given=str(files), expected="a folder, and no link", remedy=remedy
        )
    if of != str(settings.home) and not replace:
        raise UsageError(
            "the folder holds the backup of another home",
            given=f"{dest}, of {of}",
            expected=f"a backup of {settings.home}",
            remedy="name another folder; or, if that home was moved here, or its backup is needed no more, --replace",
        )


def _unfinished(dest: Path) -> str:
    """Of which home a first backup was begun here."""
    try:
        begun = json.loads((dest / UNFINISHED).read_text(encoding="utf-8"))
        if begun["kind"] == UNFINISHED_KIND:
            return str(begun["home"])
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise ArtifactError(
        "this is no mark of a backup's",
        where=str(dest / UNFINISHED),
        expected="an empty folder, or a backup of rgrl's",
        remedy="name another folder",
    )


class _Written(BaseModel):
    """``backup.json``, as far as anything is done by it."""

    model_config = ConfigDict(strict=True)

    created_at: str
    home: Annotated[str, Field(pattern="^/")]
    counts: dict[str, int]
    bytes: int
    outside: list[str]
    content_hash: str
    files: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


def read_backup(source: Path) -> dict[str, Any]:
    """What the backup at ``source`` says of itself, which is what a backup of ours says."""
    where = str(source / BACKUP)
    expected = f"a folder that rgrl backup made, with its {BACKUP}"
    remedy = "name another folder"
    try:
        written = json.loads((source / BACKUP).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError("there is no backup here", given=str(source), expected=expected, remedy=remedy) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"the backup cannot be read ({error})", where=where, expected=expected, remedy=remedy
        ) from error
    if not isinstance(written, dict) or written.get("kind") != KIND:
        raise ArtifactError("this is no backup of rgrl's", where=where, expected=expected, remedy=remedy)
    if written.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            "the backup has another schema version",
            given=f"{written.get('schema_version')}, written by rgrl {written.get('code_version')}",
            expected=str(SCHEMA_VERSION),
            remedy="restore it with the version of rgrl that made it, or a later one",
        )
    try:
        _Written.model_validate(written)
    except ValidationError as error:
        found = error.errors()[0]
        damage = f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
    else:
        for place in written["files"]:
            checked_place(place)
        if STORE in written["files"] and fingerprint(written["files"]) == written["content_hash"]:
            return written
        damage = "its files are not those that it was written with"
    raise ArtifactError(f"the backup is damaged ({damage})", where=where, expected=expected, remedy=remedy)


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
            text = file.read_bytes()
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


def _remove_unnamed(dest: Path, named: set[str]) -> int:
    """Remove what the backup before had alone, and what killed ones left; how many bytes. Other names stay."""
    freed = 0
    for file in _removable(dest, named):
        found = file.lstat()
        if stat.S_ISREG(found.st_mode):
            freed += found.st_size
            file.unlink()
    for folder in _snapshots(dest):
        with suppress(OSError):
            folder.rmdir()
    return freed


def _removable(dest: Path, named: set[str]) -> Iterator[Path]:
    for path in list((dest / FILES).iterdir()):
        if _HALF.fullmatch(path.name):
            yield path
        elif _SHORT.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            for file in list(path.iterdir()):
                if _DIGEST.fullmatch(file.name) and file.name.startswith(path.name) and file.name not in named:
                    yield file
    yield from [path for path in dest.iterdir() if _TORN.fullmatch(path.name)]
    for folder in _snapshots(dest):
        yield from [path for path in folder.iterdir() if path.name.startswith(STORE)]


def _snapshots(dest: Path) -> list[Path]:
    return [path for path in dest.iterdir() if _SNAPSHOT.fullmatch(path.name) and not path.is_symlink()]


def flush_folder(folder: Path) -> None:
    """See that the names in a folder are on the disk."""
    if folder.is_dir():
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def checked_place(place: str) -> PurePosixPath:
    """A file's place in a home; ``ArtifactError`` for one that a backup of ours cannot name."""
    path = PurePosixPath(place)
    inside = place == STORE or (len(path.parts) > 1 and path.parts[0] in {"graphs", "embeddings", "jobs"})
    if path.is_absolute() or ".." in path.parts or "\0" in place or not inside:
        raise ArtifactError("the backup names a file outside of a home", given=place, expected="a backup of rgrl's")
    return path
