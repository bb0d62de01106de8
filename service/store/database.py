"""Transactions: every write is one serialised transaction, every read one snapshot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, UpdateBase, event
from sqlalchemy.exc import OperationalError

from preprocessing.errors import UsageError
from service.store.backends import BUSY_TIMEOUT_MS, WRITE_WITHIN_MS, open_engine, read_url, sqlite_folder
from service.store.claim import Claim, new_claim

__all__ = ["Database"]

MIGRATIONS = Path(__file__).parent.parent / "migrations"
# What a reference to an embedding set is resolved by, and whom requests are let in by: a change of any of these tables
# is a new generation.
_SERVED, _KEYS = "served", "keys"
_GENERATIONS = {"embeddings": _SERVED, "aliases": _SERVED, "graphs": _SERVED, "api_keys": _KEYS}


class _Transaction(threading.local):
    """Of what the write that this thread is in makes a new generation."""

    changed: frozenset[str] = frozenset()


class Database:
    """The engine, brought to the present schema when opened; ``claim`` is the right to schedule on it."""

    claim: Claim
    folder: Path | None
    """Where the database is written to, if this process writes it."""

    def __init__(self, url: str) -> None:
        """``UsageError`` for a URL that names no usable database, or one written by a later version."""
        parsed = read_url(url)
        self._engine = open_engine(parsed)
        self._generations = {_SERVED: 0, _KEYS: 0}
        self._counting = threading.Lock()
        self._transaction = _Transaction()
        event.listen(self._engine, "after_execute", self._note_change)
        self._writer = self._engine.execution_options(**{WRITE_WITHIN_MS: BUSY_TIMEOUT_MS})
        self.folder = sqlite_folder(parsed)
        self.claim = new_claim(parsed)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, committed whole or not at all."""
        self._transaction.changed = frozenset()
        try:
            with self._writer.begin() as connection:
                yield connection
        finally:
            # After the commit, and where it failed too: unconfirmed is not undone.
            for what in self._transaction.changed:
                with self._counting:
                    self._generations[what] += 1

    def take_turn(self, within_ms: int) -> None:
        """Begin a write and end it, with nothing written; ``OperationalError`` unless its turn comes in time."""
        with self._engine.execution_options(**{WRITE_WITHIN_MS: within_ms}).begin():
            return

    @property
    def generation(self) -> int:
        """Grows after every commit that touched embedding sets, aliases or graphs.

        What was read after asking for it holds as long as it stays the same: one server owns a home, so no other
        process writes these rows.
        """
        return self._generations[_SERVED]

    @property
    def keys_generation(self) -> int:
        """Grows after every commit of this process that touched API keys; commands write these rows, too."""
        return self._generations[_KEYS]

    def _note_change(self, _connection: Connection, statement: Any, *_: Any) -> None:
        if isinstance(statement, UpdateBase):
            what = _GENERATIONS.get(getattr(statement.table, "name", ""))
            if what is not None:
                self._transaction.changed |= {what}

    def close(self) -> None:
        """Close every connection."""
        self.claim.release()
        self._engine.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        try:
            with self.writing() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise UsageError(
                f"the job store cannot be brought to this version's schema ({error})",
                expected="a store written by this version of rgrl or an earlier one",
                remedy="start the version that wrote it, or name another home",
            ) from error
        except OperationalError as error:
            raise UsageError(
                f"the job store's database does not answer: {error.orig}",
                remedy="see that RGRL_DATABASE_URL names it rightly and that it runs",
            ) from error
