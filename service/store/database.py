"""Connections and transactions: every write is one serialised transaction, every read one snapshot."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, UpdateBase, create_engine, event, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from preprocessing.errors import UsageError

__all__ = ["Database"]

BUSY_TIMEOUT_MS = 10_000
MIGRATIONS = Path(__file__).parent.parent / "migrations"
# What a reference to an embedding set is resolved by: a change of any of these is a new generation.
SERVED = frozenset({"embeddings", "aliases", "graphs"})


class _Transaction(threading.local):
    """Whether the write that this thread is in has changed what is served."""

    changed = False


class Database:
    """The engine, brought to the present schema when opened.

    On SQLite a write takes the lock when it begins (``BEGIN IMMEDIATE``), so that it never fails half way for a
    lock that another took in between; readers go on beside it (WAL).
    """

    def __init__(self, url: str) -> None:
        """``UsageError`` for a URL that names no usable database, or one written by a later version."""
        parsed = make_url(url)
        self._sqlite = parsed.get_backend_name() == "sqlite"
        if self._sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        self._engine = create_engine(parsed, json_serializer=partial(json.dumps, allow_nan=False))
        self._generation = 0
        self._counting = threading.Lock()
        self._transaction = _Transaction()
        event.listen(self._engine, "after_execute", self._note_change)
        if self._sqlite:
            event.listen(self._engine, "connect", _configure)
            event.listen(self._engine, "begin", _begin)
        self._writer = self._engine.execution_options(rgrl_write=True)
        self._migrate()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, committed whole or not at all."""
        self._transaction.changed = False
        try:
            with self._writer.begin() as connection:
                yield connection
        finally:
            # After the commit, and where it failed too: unconfirmed is not undone.
            if self._transaction.changed:
                with self._counting:
                    self._generation += 1

    @property
    def generation(self) -> int:
        """Grows after every commit that touched embedding sets, aliases or graphs.

        What was read after asking for it holds as long as it stays the same: one server owns a home, so no other
        process writes these rows.
        """
        return self._generation

    def _note_change(self, _connection: Connection, statement: Any, *_: Any) -> None:
        if isinstance(statement, UpdateBase) and getattr(statement.table, "name", None) in SERVED:
            self._transaction.changed = True

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with self.writing() as connection:
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise UsageError(
                    f"the job store cannot be brought to this version's schema ({error})",
                    expected="a store written by this version of rgrl or an earlier one",
                    remedy="start the version that wrote it, or name another home",
                ) from error


def _configure(connection: Any, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("rgrl_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
