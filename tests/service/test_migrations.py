"""Stores of earlier versions, as they were written then, brought to this one's schema on either database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres_server import PostgresServer
from sqlalchemy import create_engine, inspect, text

from service.settings import ServiceSettings
from service.store import NewJob, Store
from service.store.backends import read_url
from service.store.database import MIGRATIONS
from service.store.tables import metadata

TYPES = {
    "sqlite": {"serial": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "time": "DATETIME", "big": "BIGINT"},
    "postgresql": {"serial": "BIGSERIAL PRIMARY KEY", "time": "TIMESTAMP", "big": "BIGINT"},
}

# What version 0001 made, kept as text: the migrations may change, these stores are out there.
FIRST = """
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
CREATE TABLE aliases (name VARCHAR(255) NOT NULL PRIMARY KEY, embedding VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL, updated_at {time} NOT NULL);
CREATE INDEX aliases_by_embedding ON aliases (embedding);
CREATE TABLE api_keys (id VARCHAR(64) NOT NULL PRIMARY KEY, name TEXT NOT NULL, hash VARCHAR(64) NOT NULL,
    scopes JSON NOT NULL, created_at {time} NOT NULL, revoked_at {time}, UNIQUE (hash));
CREATE TABLE embeddings (id VARCHAR(64) NOT NULL PRIMARY KEY, graph VARCHAR(64) NOT NULL, job VARCHAR(64),
    state VARCHAR(16) NOT NULL, path TEXT NOT NULL, counts JSON NOT NULL, report JSON, "index" JSON,
    created_at {time} NOT NULL);
CREATE INDEX embeddings_by_graph ON embeddings (graph);
CREATE TABLE graphs (id VARCHAR(64) NOT NULL PRIMARY KEY, name TEXT, state VARCHAR(16) NOT NULL, source JSON,
    direction VARCHAR(16) NOT NULL, feature_dtype VARCHAR(16) NOT NULL, bundle TEXT NOT NULL, counts JSON,
    features JSON, labels JSON, warnings JSON NOT NULL, created_at {time} NOT NULL);
CREATE TABLE job_events (id {serial}, job VARCHAR(64) NOT NULL, attempt INTEGER NOT NULL, at {time} NOT NULL,
    event VARCHAR(32) NOT NULL, stage VARCHAR(64), data JSON NOT NULL);
CREATE INDEX job_events_by_job ON job_events (job, id);
CREATE TABLE jobs (id VARCHAR(64) NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, name TEXT, labels JSON NOT NULL,
    status VARCHAR(16) NOT NULL, phase VARCHAR(64), attempt INTEGER NOT NULL, graph VARCHAR(64) NOT NULL,
    embedding VARCHAR(64), alias TEXT, spec JSON NOT NULL, progress JSON, error JSON, created_at {time} NOT NULL,
    started_at {time}, ended_at {time}, cancel_requested BOOLEAN NOT NULL, token VARCHAR(64), pid INTEGER,
    losses INTEGER NOT NULL, events_offset {big} NOT NULL, idempotency_key VARCHAR(255),
    request_hash VARCHAR(64), UNIQUE (idempotency_key));
CREATE INDEX jobs_by_graph ON jobs (graph);
CREATE INDEX jobs_by_status ON jobs (status, id);
INSERT INTO alembic_version VALUES ('0001');
INSERT INTO graphs VALUES ('graph_1', 'g', 'ready', NULL, 'directed', 'float16', '/b', '{{"nodes": 4, "arcs": 3}}',
    '{{"columns": 2}}', NULL, '["one"]', '2026-01-02 03:04:05.000006');
INSERT INTO jobs VALUES ('job_1', 'train', 'old', '{{"a": "1"}}', 'succeeded', 'train', 1, 'graph_1', 'emb_1', NULL,
    '{{"train": {{}}}}', NULL, NULL, '2026-01-02 03:04:05', '2026-01-02 03:04:06', '2026-01-02 03:04:07', false, 't', 7,
    0, 12, 'key', 'hash');
INSERT INTO jobs VALUES ('job_2', 'pipeline', NULL, '{{}}', 'queued', NULL, 0, 'graph_1', NULL, 'live',
    '{{"train": {{}}}}', NULL, NULL, '2026-01-02 03:04:05', NULL, NULL, false, NULL, NULL, 0, 0, NULL, NULL);
INSERT INTO job_events (job, attempt, at, event, stage, data) VALUES ('job_1', 0, '2026-01-02 03:04:05', 'transition',
    NULL, '{{"status": "queued", "phase": null}}');
INSERT INTO embeddings VALUES ('emb_1', 'graph_1', 'job_1', 'ready', '/e', '{{"nodes": 4, "dim": 2}}', NULL,
    '{{"index": "exact"}}', '2026-01-02 03:04:05');
INSERT INTO aliases VALUES ('live', 'emb_1', 3, '2026-01-02 03:04:05');
INSERT INTO api_keys VALUES ('key_1', 'ci', 'abc', '["read"]', '2026-01-02 03:04:05', NULL)
"""
SECOND = """
ALTER TABLE jobs ADD COLUMN health JSON;
ALTER TABLE jobs ADD COLUMN silent_since {time};
UPDATE jobs SET health = '{{"state": "healthy", "reason": null}}' WHERE id = 'job_1';
UPDATE alembic_version SET version_num = '0002'
"""
THIRD = """
ALTER TABLE jobs ADD COLUMN priority INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE jobs ADD COLUMN timeout_s FLOAT;
ALTER TABLE jobs ADD COLUMN resources JSON;
ALTER TABLE jobs ADD COLUMN devices JSON;
ALTER TABLE jobs ADD COLUMN waiting_for JSON;
ALTER TABLE jobs ADD COLUMN retry_at {time};
UPDATE alembic_version SET version_num = '0003'
"""
ORDERED = """
ALTER TABLE aliases ALTER COLUMN name TYPE VARCHAR(255) COLLATE "C";
ALTER TABLE aliases ALTER COLUMN embedding TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE api_keys ALTER COLUMN id TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE embeddings ALTER COLUMN id TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE embeddings ALTER COLUMN graph TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE embeddings ALTER COLUMN job TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE graphs ALTER COLUMN id TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE job_events ALTER COLUMN job TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE jobs ALTER COLUMN id TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE jobs ALTER COLUMN graph TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE jobs ALTER COLUMN embedding TYPE VARCHAR(64) COLLATE "C"
"""
STORES = {
    "empty": "",
    "0001": FIRST,
    "0002": FIRST + ";" + SECOND,
    "0003": FIRST + ";" + SECOND + ";" + THIRD,
}


@pytest.fixture(params=["sqlite", "postgresql"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], ServiceSettings]:
    """Settings of a home whose database holds what an earlier version wrote."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None

    def write(version: str) -> ServiceSettings:
        url = None if server is None else server.new_database()
        settings = ServiceSettings(home=tmp_path, database_url=url)
        engine = create_engine(read_url(settings.database))
        with engine.begin() as connection:
            statements = STORES[version].format(**TYPES[request.param])
            if version == "0003" and server is not None:
                statements += ";" + ORDERED
            for statement in filter(str.strip, statements.split(";")):
                connection.exec_driver_sql(statement)
        engine.dispose()
        return settings

    return write


@pytest.mark.parametrize("version", STORES)
def test_every_store_is_brought_to_the_tables_as_declared(
    written: Callable[[str], ServiceSettings], version: str
) -> None:
    store = Store(written(version))
    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [head]
        if connection.dialect.name == "postgresql":
            found = inspect(connection)
            for table in metadata.tables.values():
                types = {column["name"]: column["type"] for column in found.get_columns(table.name)}
                for column in table.columns:
                    declared = getattr(column.type.dialect_impl(connection.dialect), "collation", None)
                    assert getattr(types[column.name], "collation", None) == declared, (table.name, column.name)
    store.close()


@pytest.mark.parametrize("version", ["0001", "0002", "0003"])
def test_rows_of_earlier_versions_are_kept(written: Callable[[str], ServiceSettings], version: str) -> None:
    settings = written(version)
    for _ in range(2):
        store = Store(settings)
        done, waiting = store.job("job_1"), store.job("job_2")
        assert (done.status, done.name, done.labels, done.pid) == ("succeeded", "old", {"a": "1"}, 7)
        assert done.started_at == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
        assert done.health == (None if version == "0001" else {"state": "healthy", "reason": None})
        assert [step.status for step in done.transitions] == ["queued"]
        assert (waiting.status, waiting.priority, waiting.timeout_s, waiting.resources) == ("queued", 0, None, None)
        assert (waiting.waiting_for, waiting.retry_at, waiting.devices) == (None, None, None)
        assert store.graph("graph_1").created_at.microsecond == 6
        assert store.embedding("live").index == {"index": "exact"}
        assert store.alias("live").version == 3
        assert [key.id for key in store.list_keys()] == ["key_1"]
        assert [job.id for job in store.active_jobs()] == ["job_2"]
        store.close()


def test_an_old_store_works_on(written: Callable[[str], ServiceSettings]) -> None:
    store = Store(written("0001"))
    running = store.transition(store.job("job_2"), "running", attempt=1)
    assert store.job_events(running.id)[-1].data == {"status": "running", "phase": None}
    new = NewJob(
        kind="index", name=None, labels={}, graph="graph_1", embedding="emb_1", alias=None, spec={}, priority=3
    )
    assert store.submit_job(new, max_queued=9)[0].priority == 3
    store.close()


def test_the_version_before_this_one_is_among_these_stores() -> None:
    """Whoever adds a revision keeps what the one before wrote, as text, in ``STORES``."""
    script = ScriptDirectory(str(MIGRATIONS))
    head = script.get_current_head()
    assert head is not None
    assert script.get_revision(head).down_revision in STORES


def test_the_versions_are_one_line() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert len(script.get_heads()) == 1
    versions = [revision.revision for revision in script.walk_revisions()]
    assert versions == sorted(versions, reverse=True)


def test_a_database_without_an_encoding_holds_any_text(postgres: PostgresServer, tmp_path: Path) -> None:
    """As initdb makes it where the locale is C."""
    options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc"
    settings = ServiceSettings(home=tmp_path, database_url=postgres.new_database(options))
    store = Store(settings)
    try:
        store.create_key("Åsa 🐟", ["read"])
        assert [key.name for key in store.list_keys()] == ["Åsa 🐟"]
    finally:
        store.close()
