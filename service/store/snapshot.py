"""The rows as one SQLite file, taken while others write, and put into a store of either kind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.exc import OperationalError

from preprocessing.errors import UsageError
from service.store.backends import open_engine, read_url, sqlite_folder
from service.store.database import MIGRATIONS, Database
from service.store.tables import metadata

__all__ = ["as_one_file", "copy_rows", "count_rows", "snapshot"]

ROWS = 1000


def snapshot(url: str, path: Path) -> None:
    """Write what the store at ``url`` holds at one moment to ``path``, where nothing is yet. Nobody waits for it.

    SQLite is copied as it is, whatever its schema. PostgreSQL's rows are read in one transaction, so that no program
    of its version is needed and either kind of store can be made of them; ``UsageError`` unless its schema is this
    version's.
    """
    parsed = read_url(url)
    if sqlite_folder(parsed) is not None:
        there = f"file:{parsed.database}?mode=rw"
        with closing(sqlite3.connect(there, uri=True)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
        as_one_file(path)
        return
    engine = open_engine(parsed)
    copy = Database(f"sqlite:///{path}")
    try:
        _check_schema(engine)
        with engine.begin() as source_rows, copy.writing() as target_rows:
            copy_rows(source_rows, target_rows)
    except OperationalError as error:
        raise UsageError(
            f"the job store's database does not answer: {error.orig}",
            remedy="see that RGRL_DATABASE_URL names it rightly and that it runs",
        ) from error
    finally:
        copy.close()
        engine.dispose()
    as_one_file(path)


def as_one_file(path: Path) -> None:
    """End the journal beside a database that nobody has open."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").close()


def copy_rows(source: Connection, target: Connection) -> None:
    """Every row of a store of this version's schema into an empty one of the same."""
    for table in metadata.tables.values():
        rows = source.execution_options(yield_per=ROWS).execute(select(table)).mappings()
        for part in rows.partitions():
            target.execute(insert(table), [dict(row) for row in part])
    if target.dialect.name == "postgresql":
        # Numbers given with the rows are none that it has given itself.
        sequence = "pg_get_serial_sequence('job_events', 'id')"
        target.execute(text(f"SELECT setval({sequence}, (SELECT max(id) FROM job_events))"))


def count_rows(connection: Connection) -> list[int]:
    """How many rows each table has."""
    tables = metadata.tables.values()
    return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


def _check_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    if found != head:
        raise UsageError(
            "the store in PostgreSQL has another version's schema",
            given=str(found),
            expected=str(head),
            remedy="back it up with pg_dump, or start this version's server on it once, which brings it up to date",
        )
