"""A backup's folder: what lies in it by which name, which folders are one, and what in it may be removed.

Files lie under their sha256; ``backup.json`` says which of them lie where in a home.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import OperationalError

from preprocessing.artifact import fingerprint, read_plain
from preprocessing.errors import ArtifactError, NotNowError, ResourceError, UsageError
from preprocessing.fault_words import fault_words
from service.causes import cause_of
from service.store.identity import read_identity

__all__ = [
    "BACKUP",
    "FILES",
    "KIND",
    "MOST_BYTES",
    "SCHEMA_VERSION",
    "STORE",
    "UNFINISHED",
    "UNFINISHED_KIND",
    "check_ours",
    "checked_place",
    "copied",
    "flush_folder",
    "full_path",
    "object_path",
    "read_backup",
    "remove_unnamed",
    "writing_to",
]

BACKUP, FILES = "backup.json", "files"
UNFINISHED = "unfinished.json"
"""Written before anything else: it tells the files of a first backup that was killed from files of the user's."""
KIND, UNFINISHED_KIND, SCHEMA_VERSION = "backup", "unfinished backup", 1
STORE = "rgrl.sqlite"
"""What the rows are called among the files, whatever database they come from."""
CHUNK = 4 * 2**20
MOST_BYTES = 8 * 2**30
"""Of ``backup.json``, which has a line for every file of a home."""
_DIGEST, _SHORT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{2}")
# What a killed backup leaves: half a file, half a backup.json, rows that were not yet among the files.
_HALF = re.compile(r"tmp[a-z0-9_]{8}")
_TORN = re.compile(rf"\.({re.escape(BACKUP)}|{re.escape(UNFINISHED)})\.[a-z0-9_]{{8}}")
_SNAPSHOT = re.compile(r"\.snapshot\.[a-z0-9_]{8}")


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
        where = str(getattr(found, "filename", None) or folder)
        if cause_of(error).full:
            raise NotNowError(
                "the disk is full",
                where=where,
                remedy="make room there, or name another folder, and run the same command again",
            ) from error
        raise ResourceError(
            f"the system refused: {getattr(found, 'strerror', None) or found}",
            where=where,
            remedy="see that the folder can be written to and the home be read, and run the same command again",
        ) from error


def flush_folder(folder: Path) -> None:
    """See that the names in a folder are on the disk."""
    if folder.is_dir():
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_ours(home: Path, dest: Path, replace: bool) -> None:
    """``dest`` is empty, or holds a backup of ours: of ``home``, unless another is to be replaced.

    A home is known by its path and its id; a backup that an earlier version made names the path alone.
    """
    expected = "an empty folder, an earlier backup, or a path that does not exist"
    remedy = "name another folder"
    if (dest / BACKUP).exists():
        written = read_backup(dest)
        of, identity = written["home"], written.get("identity")
    elif (dest / UNFINISHED).exists():
        of, identity = _unfinished(dest)
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
    another = identity not in {None, read_identity(home)}
    if (of != str(home) or another) and not replace:
        made_anew = ", made anew since, or of another machine" if of == str(home) else ""
        raise UsageError(
            "the folder holds the backup of another home",
            given=f"{dest}, of {of}{made_anew}",
            expected=f"a backup of {home}",
            remedy="name another folder; or, if that home was moved here, or its backup is needed no more, --replace",
        )


def _unfinished(dest: Path) -> tuple[str, str | None]:
    """Of which home a first backup was begun here: its path and its id."""
    try:
        begun = json.loads(read_plain(dest / UNFINISHED))
        if begun["kind"] == UNFINISHED_KIND:
            identity = begun.get("identity")
            return str(begun["home"]), None if identity is None else str(identity)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
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
    identity: str | None = None
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
        written = json.loads(read_plain(source / BACKUP, MOST_BYTES))
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
        damage = f"{'.'.join(map(str, found['loc']))}: {fault_words(found)}"
    else:
        for place in written["files"]:
            checked_place(place)
        if STORE in written["files"] and fingerprint(written["files"]) == written["content_hash"]:
            return written
        damage = "its files are not those that it was written with"
    raise ArtifactError(f"the backup is damaged ({damage})", where=where, expected=expected, remedy=remedy)


def checked_place(place: str) -> PurePosixPath:
    """A file's place in a home; ``ArtifactError`` for one that a backup of ours cannot name."""
    path = PurePosixPath(place)
    inside = place == STORE or (len(path.parts) > 1 and path.parts[0] in {"graphs", "embeddings", "jobs"})
    if path.is_absolute() or ".." in path.parts or "\0" in place or not inside:
        raise ArtifactError("the backup names a file outside of a home", given=place, expected="a backup of rgrl's")
    return path


def remove_unnamed(dest: Path, named: set[str]) -> int:
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
