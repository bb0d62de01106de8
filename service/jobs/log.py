"""A job's log: bounded on disk, read from its end."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType

__all__ = ["JobLog", "tail"]

_CURRENT, _OLDER = "log.txt", "log.1.txt"
_BLOCK = 64 * 1024


class JobLog:
    """Appends bytes to a job's log and keeps the newest ``limit`` of them, in two files that take turns."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._half = limit // 2
        self._file = (directory / _CURRENT).open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append ``data``; what a full disk refuses is left out: whoever wrote it does not wait for room."""
        with suppress(OSError):
            if self._file.tell() + len(data) > self._half and self._file.tell() > 0:
                self._turn()
            self._file.write(data)

    def _turn(self) -> None:
        with suppress(FileNotFoundError):
            (self._directory / _CURRENT).replace(self._directory / _OLDER)
        full, self._file = self._file, (self._directory / _CURRENT).open("ab", buffering=0)
        full.close()

    def __enter__(self) -> JobLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def tail(directory: Path, lines: int) -> list[str]:
    """The last ``lines`` lines of a job's log, oldest first, read backwards from the end."""
    found: deque[str] = deque()
    for name in (_CURRENT, _OLDER):
        wanted = lines - len(found)
        if wanted > 0:
            found.extendleft(reversed(_tail(directory / name, wanted)))
    return list(found)


def _tail(path: Path, lines: int) -> list[str]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return []
    with file:
        position = file.seek(0, os.SEEK_END)
        data = b""
        while position > 0 and data.count(b"\n") <= lines:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            data = file.read(size) + data
    return data.decode("utf-8", errors="replace").splitlines()[-lines:]
