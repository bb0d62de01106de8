"""Files of artefacts that are what their manifests say: hashed once, and known again after that.

An artefact never changes, so a file with the inode, size and times that it had when it was hashed holds the same bytes:
a restarted server, or another set on the same graph, does not read it again. What is mapped or handed to a library that
trusts its input (faiss, Arrow) is checked here first: a changed byte could end the process or answer wrongly. Where the
system gives leases nothing changes between the check and the use.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from preprocessing.artifact import fingerprint, hash_file, write_json
from preprocessing.errors import ArtifactError
from service.leases import Leases

__all__ = ["LOOK_S", "Seen", "VerifiedFiles", "served", "stamps", "written_to"]


LOOK_S = 0.02


def served(files: dict[str, str]) -> dict[str, str]:
    """Of the files in an artefact's manifest, with their hashes, what answers are made of.

    Tables are for other programs, but for the labels'. Features can be most of the disk, and only those of a new node's
    neighbours are ever read.
    """
    return {
        name: digest
        for name, digest in files.items()
        if not name.startswith("features/") and (name == "labels.parquet" or not name.endswith(".parquet"))
    }


def stamps(files: Iterable[str]) -> tuple[int, ...]:
    """Differs after any of these files is replaced, written to, cut short or removed: to be compared before each use of
    what is mapped, since to read past the end of a file that was cut ends the process.
    """
    found: list[int] = []
    for file in files:
        try:
            found += _identity(file)
        except OSError:
            found.append(0)
    return tuple(found)


class Seen:
    """Files as they are when this is made."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        self.files = tuple(files)
        self._stamps = stamps(self.files)
        self._until = 0.0

    def unchanged(self, *, leased: bool = False) -> bool:
        """Whether they are so still: to be asked before each use of what is mapped. Nobody writes to ``leased`` ones,
        so they are looked at only every ``LOOK_S`` seconds, for others renamed into their places.
        """
        if leased and time.monotonic() < self._until:
            return True
        same = self._stamps == stamps(self.files)
        if same:
            self._until = time.monotonic() + LOOK_S
        return same


class VerifiedFiles:
    """Remembers which files were found whole: in memory, and in ``folder`` for later processes."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` is made when first written to; without one every process hashes for itself."""
        self._folder = folder
        self.leases = Leases()
        self._known: dict[str, list[Any]] = {}

    def check(self, artifact: Path, digests: dict[str, str]) -> None:
        """``ArtifactError`` unless the files below ``artifact`` have these sha256 by name, or had, and are the same."""
        written: dict[str, Any] | None = None
        proofs: dict[str, list[Any]] = {}
        for name, digest in digests.items():
            file = artifact / name
            try:
                proof = [digest, *_identity(file)]
                if self._known.get(str(file)) == proof:
                    continue
                written = self._written(artifact) if written is None else written
                plain = ".." not in Path(name).parts and file.is_file()
                whole = plain and (written.get(name) == proof or hash_file(file) == digest)
            except (OSError, TypeError) as error:
                raise _changed(file, digest, str(error)) from error
            if not whole:
                raise _changed(file, digest, "other content")
            proofs[name] = self._known[str(file)] = proof
        if written is not None and written | proofs != written:
            self._write(artifact, written | proofs)

    def tidy(self) -> None:
        """Drop what is written of artefacts that are gone."""
        if self._folder is not None:
            for record in self._folder.glob("*.json"):
                if not Path(str(_read(record).get("artifact", ""))).is_dir():
                    record.unlink(missing_ok=True)

    def _written(self, artifact: Path) -> dict[str, Any]:
        files = {} if self._folder is None else _read(self._record(artifact)).get("files")
        return files if isinstance(files, dict) else {}

    def _write(self, artifact: Path, proofs: dict[str, Any]) -> None:
        if self._folder is not None:
            # Without it the next process hashes again: a full disk is no reason to refuse an answer.
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_json(self._record(artifact), {"artifact": str(artifact.absolute()), "files": proofs})

    def _record(self, artifact: Path) -> Path:
        assert self._folder is not None
        return self._folder / f"{fingerprint(str(artifact.absolute()))[:32]}.json"


def _read(record: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(record.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _identity(file: Path | str) -> tuple[int, ...]:
    """What differs after any change: the time of change is the kernel's, and no copy has the inode."""
    found = os.stat(file)  # noqa: PTH116 - asked for every request, and twice as fast as a Path's
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def written_to(artifact: Path) -> ArtifactError:
    """What to raise where a file of ``artifact`` was changed while it was read."""
    return ArtifactError(
        "a file was written to while it was read",
        expected="files that nobody changes where they lie",
        remedy="ask again once it is whole; a new file renamed into its place disturbs nobody",
        where=str(artifact),
    )


def _changed(file: Path, digest: str, why: str) -> ArtifactError:
    return ArtifactError(
        f"{file.name} is missing or its content changed",
        given=why,
        expected=f"sha256 {digest}",
        remedy="put the file back, or make the artefact again",
        where=str(file),
    )
