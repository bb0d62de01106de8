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
import time
from collections.abc import Iterable
from contextlib import suppress

from preprocessing.errors import ArtifactError

__all__ = ["Lease", "Leases"]

# A file that was leased so lately, and cannot be now, is open for writing; of another that may be the file system.
LATELY_S = 60.0


class Leases:
    """Gives leases while ``given``: who sets it lets go of those that are wanted, or writers wait in vain."""

    def __init__(self) -> None:
        self.given = False
        self.lately: dict[str, float] = {}
        """When each file was last seen to have a lease."""

    def take(self, files: Iterable[str]) -> Lease:
        """Leases on ``files``, of which some may not be there, until it ends; ``ArtifactError`` as ``Lease.add``."""
        lease = Lease(self.lately if self.given else None)
        try:
            lease.add(files)
        except ArtifactError:
            lease.end()
            raise
        return lease


class Lease:
    """On the files that one reader maps. ``wanted``: when last looked, somebody waited for one of them."""

    def __init__(self, lately: dict[str, float] | None) -> None:
        """``lately`` is that of all leases together; None: no file gets one."""
        self._lately = lately
        self._held: dict[str, int] = {}
        self._refused: set[str] = set()
        self._adding = threading.Lock()
        self.wanted = False

    @property
    def complete(self) -> bool:
        """Whether all files that were there have one."""
        return self._lately is not None and not self._refused

    def add(self, files: Iterable[str]) -> None:
        """Take leases on ``files`` as well, before they are looked at; ``ArtifactError`` where one is written to."""
        if self._lately is None:
            return
        with self._adding:
            for file in files:
                self._add(file, self._lately)

    def look(self) -> bool:
        """Whether somebody waits to write, as of now."""
        for file, held in list(self._held.items()):
            if self._lately is not None:
                self._lately[file] = time.monotonic()
            # Ended meanwhile: nobody waits for it.
            with suppress(OSError):
                self.wanted |= fcntl.fcntl(held, fcntl.F_GETLEASE) != fcntl.F_RDLCK
        return self.wanted

    def end(self) -> None:
        """Let writers go on."""
        for file in list(self._held):
            self._drop(file)

    def _add(self, file: str, lately: dict[str, float]) -> None:
        try:
            held = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            self._refused.add(file)
            return
        try:
            # Sent when somebody waits: a signal that does nothing. The one sent otherwise would end the process.
            fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            os.close(held)
            self._refused.add(file)
            if error.errno == errno.EAGAIN and time.monotonic() - lately.get(file, -LATELY_S) < LATELY_S:
                raise ArtifactError(
                    "the file is being written to",
                    expected="a file that nobody has open for writing",
                    remedy="wait until it is written; a new file renamed into its place disturbs nobody",
                    where=file,
                ) from error
            return
        self._drop(file)
        self._held[file] = held
        self._refused.discard(file)
        lately[file] = time.monotonic()

    def _drop(self, file: str) -> None:
        held = self._held.pop(file, None)
        if held is not None and self._lately is not None:
            self._lately[file] = time.monotonic()
            # Said, and not left to the closing: a process that is just being started holds a copy.
            with suppress(OSError):
                fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(held)
