"""Directories that are whole or absent.

An artefact is built in a hidden sibling directory, its ``manifest.json`` is written last, and a rename publishes it.
An unfinished build is continued only by a build of the same fingerprint (settings and inputs); any other starts afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from preprocessing.again import again
from preprocessing.errors import ArtifactError, InputError, ResourceError, UsageError

__all__ = [
    "Build",
    "build",
    "code_version",
    "existing",
    "fingerprint",
    "finished",
    "hash_file",
    "locked",
    "make_folder",
    "read_manifest",
    "read_plain",
    "verify",
    "write_json",
]

MANIFEST = "manifest.json"
# Some times what the manifest of 10^9 nodes takes, of whose files each has a line.
PLAIN_BYTES = 64 << 20
_MADE_BY = {
    "graph_bundle": "rgrl ingest --nodes NODES --edges EDGES OUT",
    "ppr_rows": "rgrl preprocess BUNDLE",
    "embedding_set": "rgrl train BUNDLE OUT",
    "knn_index": "rgrl index EMBEDDINGS",
}
"""Commands, by the kind of artefact that they make."""
SCHEMA_VERSION = 1
_FINGERPRINT = "fingerprint"


def code_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("rgrl")
    except PackageNotFoundError:
        return "unknown"


def fingerprint(*parts: object) -> str:
    """sha256 of the parts' canonical JSON: equal settings and inputs have equal fingerprints."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_file(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write ``value`` under a temporary name, flush it to disk, and rename: readers see the old text or the new."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_manifest(path: Path, kind: str) -> dict[str, Any]:
    """The manifest of the artefact at ``path``; ``ArtifactError`` if it is absent, damaged, or of another kind."""
    expected = f"a whole {kind.replace('_', ' ')} (a directory with a {MANIFEST})"
    file = path / MANIFEST
    try:
        manifest = json.loads(read_plain(file))
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            "this is a file" if path.is_file() else "there is no artefact here",
            given=path,
            expected=expected,
            where=str(path),
            remedy=f"check the path; {_how_made(path, kind)}" if kind in _MADE_BY else "check the path",
        ) from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"the manifest cannot be read ({error})", expected=expected, where=str(file)) from error
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise ArtifactError("this is another kind of artefact", given=found, expected=kind, where=str(path))
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise ArtifactError(
            "the artefact has another schema version",
            given=manifest.get("schema_version"),
            expected=str(SCHEMA_VERSION),
            remedy="make it again with this version of rgrl",
            where=str(path),
        )
    return manifest


def _how_made(path: Path, kind: str) -> str:
    command = _MADE_BY[kind]
    if kind == "graph_bundle" and path.is_file():
        command = f"rgrl ingest {'--npz' if path.suffix == '.npz' else '--edges'} {path} OUT"
    return f"`{command}` makes {_a(kind)}"


def _a(kind: str) -> str:
    """The kind in words, with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('_', ' ')}"


def finished(path: Path, kind: str, identity: str) -> dict[str, Any] | None:
    """The manifest of the artefact at ``path`` when it is whole and of this fingerprint, else None."""
    try:
        manifest = read_manifest(path, kind)
    except ArtifactError:
        return None
    return manifest if manifest["fingerprint"] == identity else None


def existing(out: Path, kind: str, identity: str, what: str) -> dict[str, Any] | None:
    """The manifest of the artefact at ``out`` when it is whole and of this fingerprint, None where nothing is there.

    ``UsageError`` for anything else, and inside another artefact; ``what`` is what would have been right, in words.
    """
    if not out.exists():
        _check_outside(out)
        return None
    try:
        manifest = read_manifest(out, kind)
    except ArtifactError as error:
        given = f"{out} ({error.problem})"
    else:
        if manifest["fingerprint"] == identity:
            return manifest
        given = f"{out}, made with other settings or from other inputs"
    raise UsageError(
        "the output exists already",
        given=given,
        expected=f"a path that does not exist, or {what}",
        remedy="name another output, or delete this one",
    )


def _check_outside(out: Path) -> None:
    for folder in out.resolve().parents:
        try:
            manifest = json.loads(read_plain(folder / MANIFEST))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(manifest, dict) and {"kind", "fingerprint"} <= manifest.keys() and isinstance(manifest["kind"], str):
            raise UsageError(
                f"the output would lie inside {_a(manifest['kind'])}",
                given=out,
                expected=f"a path outside of {folder}",
                remedy="name another output",
            )


def verify(path: Path, kind: str) -> None:
    """Read every file named in the manifest and compare its hash; ``ArtifactError`` names the first that differs."""
    for name, digest in read_manifest(path, kind)["files"].items():
        file = path / name
        if not file.is_file() or hash_file(file) != digest:
            raise ArtifactError(
                "a file is missing or its content changed",
                expected=f"sha256 {digest}",
                remedy="make the artefact again",
                where=str(file),
            )


@dataclass(frozen=True)
class Build:
    """An artefact in the making: write under ``path``, then call ``publish``."""

    path: Path
    target: Path
    kind: str
    fingerprint: str
    resumed: bool

    def publish(self, manifest: dict[str, Any], *, replace: bool = False) -> dict[str, Any]:
        """Hash the files, write the manifest last, and rename the directory to its final name."""
        (self.path / _FINGERPRINT).unlink(missing_ok=True)
        files = {
            str(file.relative_to(self.path)): _hash_and_flush(file)
            for file in sorted(self.path.rglob("*"))
            if file.is_file() and file.name != MANIFEST
        }
        whole = {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "code_version": code_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "content_hash": fingerprint(files),
            **manifest,
            "files": files,
        }
        write_json(self.path / MANIFEST, whole)
        _publish(self.path, self.target, replace=replace)
        return whole


@contextlib.contextmanager
def build(target: Path, kind: str, identity: str) -> Iterator[Build]:
    """Build the artefact ``target`` of ``kind``; ``identity`` is the fingerprint of its settings and inputs.

    One process at a time: a second build of the same target raises ``UsageError`` at once. After an ``InputError``
    nothing is left; after any other failure, or a kill, the unfinished directory stays for the next build to continue
    (``Build.resumed`` tells). Leaving without ``publish`` keeps the target as it was.
    """
    target = target.absolute()
    make_folder(target.parent)
    partial = target.parent / f".{target.name}.partial"
    with locked(target):
        _recover(target)
        resumed = _read_text(partial / _FINGERPRINT) == identity
        if not resumed:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            (partial / _FINGERPRINT).write_text(identity)
        try:
            yield Build(partial, target, kind, identity, resumed)
        except InputError:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents, where they are not there yet; ``ResourceError`` where no folder can be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # As below /proc, or where a link leads nowhere.
        raise _no_place(folder, error) from error


def _no_place(path: Path, error: OSError) -> ResourceError:
    return ResourceError(
        "nothing can be made here",
        where=str(path),
        given=str(error),
        expected="a path below a folder that may be written to",
        remedy="name another path",
    )


def _hash_and_flush(path: Path) -> str:
    digest = hash_file(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return digest


def read_plain(file: Path, most: int = PLAIN_BYTES) -> bytes:
    """The bytes of a file of JSON; ``OSError`` for a pipe or a device, which may never end, and past ``most`` bytes."""
    # A pipe is opened without waiting for who writes to it.
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as source:
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no ordinary file")
        if found.st_size > most:
            raise OSError(f"it has {found.st_size} bytes, more than {most}")
        return source.read(most)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _recover(target: Path) -> None:
    """Undo the half of a replacement that a kill left behind."""
    old = target.parent / f".{target.name}.old"
    if old.exists():
        if target.exists():
            shutil.rmtree(old)
        else:
            old.rename(target)


def _publish(partial: Path, target: Path, *, replace: bool) -> None:
    old = target.parent / f".{target.name}.old"
    if target.exists():
        if not replace:
            raise UsageError(
                "the output exists already", given=target, expected="a path that does not exist", remedy="name another"
            )
        target.rename(old)
    partial.rename(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold ``target`` for this process alone while inside; ``UsageError`` at once when another has it."""
    lock = target.parent / f".{target.name}.lock"
    file = _acquire(lock, target)
    try:
        yield
    finally:
        # Removed while it is held; who waited for the removed file finds that it is not the one of that name any more.
        lock.unlink(missing_ok=True)
        file.close()


def _acquire(lock: Path, target: Path) -> IO[str]:
    while True:
        try:
            file = lock.open("w")
        except FileNotFoundError as error:
            raise _no_place(target, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError(
                "another process is building this artefact",
                given=target,
                expected="one builder at a time",
                remedy=f"wait for it to end, or stop it, and {again()}",
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        file.close()
