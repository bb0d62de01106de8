"""The right to schedule on a database, which one server at a time has."""

from __future__ import annotations

import contextlib
import fcntl
from typing import IO, Protocol

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

__all__ = ["Claim", "new_claim"]

SCHEDULER_LOCK = 0x5247524C_0002
# A server that is gone without a word, with its machine, gives its claim up after about a minute.
_KEEPALIVE = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}


class Claim(Protocol):
    """Goes with the process that has it, however that ends."""

    def held(self) -> bool:
        """Take it, or see that it is ours still; False while another server has it."""

    def release(self) -> None:
        """Give it back."""


def new_claim(url: URL) -> Claim:
    """The claim on a database, not taken yet."""
    return _FileClaim(f"{url.database}.scheduler") if url.get_backend_name() == "sqlite" else _ServerClaim(url)


class _FileClaim:
    """A locked file beside the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock: IO[str] | None = None

    def held(self) -> bool:
        if self._lock is None:
            lock = open(self._path, "w")  # noqa: SIM115, PTH123 (held as long as the claim is)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                return False
            self._lock = lock
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class _ServerClaim:
    """An advisory lock of PostgreSQL, held by a connection of its own and lost with it."""

    def __init__(self, url: URL) -> None:
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def held(self) -> bool:
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("SELECT 1")
                return True
            except DBAPIError:
                self._drop()
        connection = self._engine.connect()
        for name, value in _KEEPALIVE.items():
            connection.exec_driver_sql(f"SET {name} = {value}")
        if connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({SCHEDULER_LOCK})").scalar_one():
            self._connection = connection
            return True
        connection.close()
        return False

    def release(self) -> None:
        if self._connection is not None:
            # Said, not only hung up: PostgreSQL notices a closed connection a moment later.
            with contextlib.suppress(DBAPIError):
                self._connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
