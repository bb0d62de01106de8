"""Leases on mapped files: who opens one for writing, or cuts it short, waits until the server has let go of it.

A changed byte under a search is a wrong answer, and reading past a new end of the file ends the process. Linux lets a
reader be asked first (fcntl(2), F_SETLEASE), which ``stamps`` cannot: they tell afterwards. Nothing waits that renames
another file into the place, or removes it: what is mapped stays as it was.

A lease is had on local file systems, by the owner of the file or with CAP_LEASE. Who waits is let through after
/proc/sys/fs/lease-break-time, 45 seconds, whatever is still read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress

from preprocessing.errors import ArtifactError

__all__ = ["Lease", "Leases"]


class Leases:
    """Gives leases while ``given``: who sets it lets go of those that are wanted, or writers wait in vain."""

    def __init__(self) -> None:
        self.given = False
        self.had: set[str] = set()
        """Files that had one: where they get none now, it is because somebody has them open for writing."""

    def take(self, files: Iterable[str]) -> Lease:
        """Leases on ``files``, of which some may not be there, until it ends; ``ArtifactError`` as ``Lease.add``."""
        lease = Lease(self.had if self.given else None)
        try:
            lease.add(files)
        except ArtifactError:
            lease.end()
            raise
        return lease


class Lease:
    """On the files that one reader maps. ``wanted``: when last looked, somebody waited for one of them."""

    def __init__(self, had: set[str] | None) -> None:
        """``had`` is that of all leases together; None: no file gets one."""
        self._had = had
        self._held: dict[str, int] = {}
        self._refused: dict[str, int | None] = {}
        """Files without one, and why."""
        self._adding = threading.Lock()
        self.wanted = False

    @property
    def complete(self) -> bool:
        """Whether all files that were there have one."""
        return self._had is not None and not self._refused

    def add(self, files: Iterable[str]) -> None:
        """Take leases on ``files`` as well, before they are looked at; ``ArtifactError`` where one is written to."""
        if self._had is None:
            return
        with self._adding:
            for file in files:
                self._add(file, self._had)

    def look(self) -> bool:
        """Whether somebody waits to write, as of now; a file that was being written to gets its lease at last."""
        for file in [file for file, why in list(self._refused.items()) if why == errno.EAGAIN]:
            with suppress(ArtifactError):
                self.add([file])
        for held in list(self._held.values()):
            # Ended meanwhile: nobody waits for it.
            with suppress(OSError):
                self.wanted |= fcntl.fcntl(held, fcntl.F_GETLEASE) != fcntl.F_RDLCK
        return self.wanted

    def end(self) -> None:
        """Let writers go on."""
        for file in list(self._held):
            self._drop(file)

    def _add(self, file: str, had: set[str]) -> None:
        try:
            held = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._refused[file] = error.errno
            return
        try:
            # Sent when somebody waits: a signal that does nothing. The one sent otherwise would end the process.
            fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            os.close(held)
            self._refused[file] = error.errno
            if error.errno == errno.EAGAIN and file in had:
                raise ArtifactError(
                    "the file is being written to",
                    expected="a file that nobody has open for writing",
                    remedy="wait until it is written; a new file renamed into its place disturbs nobody",
                    where=file,
                ) from error
            return
        self._drop(file)
        self._held[file] = held
        self._refused.pop(file, None)
        had.add(file)

    def _drop(self, file: str) -> None:
        held = self._held.pop(file, None)
        if held is not None:
            # Said, and not left to the closing: a process that is just being started holds a copy.
            with suppress(OSError):
                fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(held)
