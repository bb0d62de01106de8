"""Why the disk or the database failed, in words that may leave the server: no path, no value."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError

from preprocessing.errors import RgrlError
from preprocessing.stage import FULL

__all__ = ["Cause", "cause_of"]

# The primary codes of SQLite, and the SQLSTATE of PostgreSQL (its documentation, appendix A).
_SQLITE_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_POSTGRES_FULL, _POSTGRES_LOCKED = "53100", "55P03"


@dataclass(frozen=True)
class Cause:
    """What is wrong, and what to do about it where that is known."""

    problem: str
    remedy: str | None = None
    full: bool = False
    """Whether a disk has no room."""


def cause_of(error: Exception) -> Cause:
    """Why something failed, as far as its kind tells."""
    if isinstance(error, OperationalError):
        return _of_the_database(error.orig)
    if isinstance(error, sqlite3.OperationalError):
        return _of_the_database(error)
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno in FULL:
            return Cause("the disk is full", "free space on the disk that the server's home is on", full=True)
        return Cause(f"the system refused a file or a process ({os.strerror(error.errno)})")
    if isinstance(error, RgrlError):
        return Cause(error.problem, error.remedy)
    return Cause("something unforeseen; the server's log says what")


def _of_the_database(error: BaseException | None) -> Cause:
    state, name = getattr(error, "sqlstate", None), getattr(error, "sqlite_errorname", None)
    # The rest of an extended code tells kinds of the primary one apart.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or state == _POSTGRES_FULL:
        return Cause("the disk is full: the job store cannot be written", "free space on its disk", full=True)
    if code in _SQLITE_LOCKED or state == _POSTGRES_LOCKED:
        return Cause("the job store is locked", "try again; if it stays so, end what else has its database open")
    return Cause("the job store does not answer" + (f" ({name})" if name else ""), "the server's log says why")
