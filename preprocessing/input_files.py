"""Input files by path or by URI: this machine's, and what else ``pyarrow.fs`` opens (s3://, gs://, file://)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pa_fs

from preprocessing.errors import InputError, NotNowError

__all__ = ["InputFile"]

RETRY_S = 30
"""How long Google's file system tries again, unless the URI says ``retry_limit_seconds``; its own default is 15 min."""
_AWAY = re.compile(
    r"NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|INTERNAL_FAILURE|HTTP status 5\d\d"
    r"|Status\((UNAVAILABLE|DEADLINE_EXCEEDED)"
)
"""How S3 and Google's storage say that nobody answered, or not now."""


@dataclass(frozen=True)
class InputFile:
    """A file or a folder, there or not: its file system, its path in it, and what messages call it."""

    filesystem: Any
    path: str
    name: str

    @classmethod
    def at(cls, named: str | Path) -> InputFile:
        """``named`` is a path or a URI; ``InputError`` for a URI that no file system takes.

        This and what it is asked later raise ``NotNowError`` where a place elsewhere does not answer.

        Credentials come from the environment, as each file system documents it.
        """
        text = str(named)
        if "://" not in text:
            return cls(pa_fs.LocalFileSystem(), str(Path(text).absolute()), str(Path(text)))
        try:
            filesystem, path = pa_fs.FileSystem.from_uri(_patient(text))
        except (pa.ArrowException, OSError, ValueError) as error:
            _check_answered(error, text)
            raise InputError(
                f"the URI cannot be used ({error})",
                where=text,
                expected="a path, or a URI such as s3://bucket/edges.parquet, gs://bucket/edges or file:///data/edges",
                remedy="check the URI, the network, and the region and credentials in the environment",
            ) from error
        return cls(filesystem, path, text)

    @property
    def base(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """``.parquet`` and the like, in small letters."""
        return Path(self.base).suffix.lower()

    def is_folder(self) -> bool:
        """Whether a folder is there."""
        return bool(self._info().type == pa_fs.FileType.Directory)

    def exists(self) -> bool:
        """Whether anything is there."""
        return bool(self._info().type != pa_fs.FileType.NotFound)

    def existing(self) -> InputFile:
        """The file itself; ``InputError`` when there is none, or something else."""
        what = "file"
        match self._info().type:
            case pa_fs.FileType.File:
                return self
            case pa_fs.FileType.Directory:
                problem = "this is a folder"
            case pa_fs.FileType.Unknown:
                problem = "this is no regular file or folder, but a pipe, a socket or a device"
            case _:
                what = "bucket" if self._without_bucket() else "file"
                problem = f"there is no such {what}"
        raise InputError(problem, where=self.name, expected=f"a {what}", remedy="check the path")

    def files(self, wanted: Callable[[str], bool]) -> list[InputFile]:
        """The files directly in the folder whose names are wanted, in no order; ``InputError`` for what looks like one
        and is none, such as a link to nothing.
        """
        listing: Any = pa_fs.FileSelector(self.path)
        if isinstance(self.filesystem, pa_fs.LocalFileSystem):
            # Arrow's own listing leaves out links to nothing.
            listing = [str(entry) for entry in Path(self.path).iterdir()]
        infos = self.filesystem.get_file_info(listing)
        # What follows a question mark tells where the file system is, not where the file.
        folder, mark, query = self.name.partition("?")
        found = []
        for info in infos:
            if info.type != pa_fs.FileType.Directory and wanted(info.base_name):
                file = InputFile(self.filesystem, info.path, f"{folder.rstrip('/')}/{info.base_name}{mark}{query}")
                found.append(file if info.type == pa_fs.FileType.File else file.existing())
        return found

    def open(self) -> Any:
        """A ``pyarrow.NativeFile`` to read and to seek in."""
        return self.filesystem.open_input_file(self.path)

    def stamp(self) -> tuple[str, int, int]:
        """Where the file really is, its size, and when it changed (ns): when one differs, it is another input."""
        info = self._info()
        local = isinstance(self.filesystem, pa_fs.LocalFileSystem)
        return os.path.realpath(self.path) if local else self.name, info.size or 0, info.mtime_ns or 0

    def _without_bucket(self) -> bool:
        if not isinstance(self.filesystem, pa_fs.S3FileSystem):
            return False
        bucket = self.path.partition("/")[0]
        return bool(self._info(bucket).type == pa_fs.FileType.NotFound)

    def _info(self, path: str | None = None) -> Any:
        try:
            return self.filesystem.get_file_info(path or self.path)
        except (OSError, pa.ArrowInvalid) as error:
            _check_answered(error, self.name)
            raise InputError(
                f"the file system refuses ({error})",
                where=self.name,
                expected="a place that can be read from here",
                remedy="check the name, and the credentials in the environment",
            ) from error

    def __str__(self) -> str:
        return self.name


def _check_answered(error: Exception, name: str) -> None:
    """``NotNowError`` where that is what went wrong."""
    if _AWAY.search(str(error)):
        raise NotNowError(
            f"the file system does not answer ({error})",
            where=name,
            expected="a place that can be reached from here",
            remedy="check the name and the network, or try again later",
        ) from error


def _patient(uri: str) -> str:
    """The URI, with a limit to how long a place that does not answer is asked again."""
    parts = urlsplit(uri)
    if parts.scheme not in ("gs", "gcs") or "retry_limit_seconds" in parse_qs(parts.query):
        return uri
    return urlunsplit(parts._replace(query="&".join(filter(None, [parts.query, f"retry_limit_seconds={RETRY_S}"]))))
