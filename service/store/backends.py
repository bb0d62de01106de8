"""The two databases there may be, SQLite and PostgreSQL: how each is opened, and how its transactions begin."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from preprocessing.errors import UsageError

__all__ = ["BUSY_TIMEOUT_MS", "WRITE_WITHIN_MS", "open_engine", "read_url", "sqlite_folder"]

WRITE_WITHIN_MS = "rgrl_write_within_ms"
"""The execution option of a connection whose transactions write: how long one may wait for its turn."""
BUSY_TIMEOUT_MS = 10_000
# The lock that a write transaction holds to its end; any number that no other program on the database takes.
WRITERS_LOCK = 0x5247524C_0001
# A request holds one connection, and as many run at a time as there are threads for them (anyio's 40).
_POOL = {"pool_size": 5, "max_overflow": 45}


def read_url(url: str) -> URL:
    """The parsed URL, PostgreSQL's with the driver we have; ``UsageError`` for any other. It may hold a password, so
    no message repeats it.
    """
    expected, remedy = "sqlite:///PATH or postgresql://USER@HOST/NAME", "correct RGRL_DATABASE_URL"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UsageError("the database's URL cannot be read", expected=expected, remedy=remedy) from None
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername == "sqlite" and parsed.database not in {None, "", ":memory:"}:
        return parsed
    raise UsageError("this is no database for the job store", given=parsed.drivername, expected=expected, remedy=remedy)


def sqlite_folder(url: URL) -> Path | None:
    """The folder that SQLite writes to; None where another process keeps the database."""
    return Path(str(url.database)).parent if url.get_backend_name() == "sqlite" else None


def open_engine(url: URL) -> Engine:
    """Connections to ``url``. Write transactions take turns, and a read sees one state of the database.

    On SQLite a write takes the lock when it begins (``BEGIN IMMEDIATE``), so that it never fails half way for a lock
    that another took in between; readers go on beside it (WAL). On PostgreSQL an advisory lock does the same: what one
    transaction reads no other changes before it writes, and rows get their numbers in the order they are committed in.
    """
    serializer = partial(json.dumps, allow_nan=False)
    folder = sqlite_folder(url)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, json_serializer=serializer, **_POOL)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        # A connection that the database server's restart has cut is found out before it is used. A database made
        # under the locale C, as in small containers, has no encoding of its own, and takes the client's.
        encoding = {"client_encoding": "utf8"}
        engine = create_engine(url, json_serializer=serializer, pool_pre_ping=True, connect_args=encoding, **_POOL)
    except ModuleNotFoundError:
        raise UsageError(
            "PostgreSQL's driver is not installed", remedy='install it with: pip install "rgrl[postgres]"'
        ) from None
    event.listen(engine, "begin", _begin_postgresql)
    return engine


def _configure_sqlite(connection: Any, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    within = connection.get_execution_options().get(WRITE_WITHIN_MS)
    if within is not None:  # who reads waits for nobody
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {within}")
    connection.exec_driver_sql("BEGIN" if within is None else "BEGIN IMMEDIATE")


def _begin_postgresql(connection: Connection) -> None:
    within = connection.get_execution_options().get(WRITE_WITHIN_MS)
    if within is not None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {within}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
