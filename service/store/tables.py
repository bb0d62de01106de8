"""The tables of the job store; every change here is a migration too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

__all__ = ["Utc", "aliases", "api_keys", "embeddings", "graphs", "job_events", "jobs", "metadata"]


class Utc(TypeDecorator[datetime]):
    """Aware datetimes, kept as naive UTC so that SQLite and PostgreSQL order them alike."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """To naive UTC."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any | None, _dialect: Dialect) -> datetime | None:
        """To aware UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


def _ordered(length: int) -> String:
    """Text that PostgreSQL too orders and compares by its bytes, whatever the database's language."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


ID = _ordered(64)
metadata = MetaData()

graphs = Table(
    "graphs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", Text),
    Column("state", String(16), nullable=False),
    Column("source", JSON(none_as_null=True)),
    Column("direction", String(16), nullable=False),
    Column("feature_dtype", String(16), nullable=False),
    Column("bundle", Text, nullable=False),
    Column("counts", JSON(none_as_null=True)),
    Column("features", JSON(none_as_null=True)),
    Column("labels", JSON(none_as_null=True)),
    Column("warnings", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", Text),
    Column("labels", JSON, nullable=False),
    Column("status", String(16), nullable=False),
    Column("phase", String(64)),
    Column("attempt", Integer, nullable=False),
    Column("graph", ID, nullable=False),
    Column("embedding", ID),
    Column("encoder", ID),
    Column("new_graph", ID),
    Column("alias", Text),
    Column("spec", JSON, nullable=False),
    Column("progress", JSON(none_as_null=True)),
    Column("health", JSON(none_as_null=True)),
    Column("silent_since", Utc),
    Column("error", JSON(none_as_null=True)),
    Column("created_at", Utc, nullable=False),
    Column("started_at", Utc),
    Column("ended_at", Utc),
    Column("cancel_requested", Boolean, nullable=False),
    Column("token", String(64)),
    Column("pid", Integer),
    Column("losses", Integer, nullable=False),
    Column("events_offset", BigInteger, nullable=False),
    Column("idempotency_key", String(255), unique=True),
    Column("request_hash", String(64)),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("timeout_s", Float),
    Column("resources", JSON(none_as_null=True)),
    Column("devices", JSON(none_as_null=True)),
    Column("waiting_for", JSON(none_as_null=True)),
    Column("retry_at", Utc),
    Index("jobs_by_status", "status", "id"),
    Index("jobs_by_graph", "graph"),
)

job_events = Table(
    "job_events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job", ID, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Utc, nullable=False),
    Column("event", String(32), nullable=False),
    Column("stage", String(64)),
    Column("data", JSON, nullable=False),
    Index("job_events_by_job", "job", "id"),
    sqlite_autoincrement=True,
)

embeddings = Table(
    "embeddings",
    metadata,
    Column("id", ID, primary_key=True),
    Column("graph", ID, nullable=False),
    Column("job", ID),
    Column("state", String(16), nullable=False),
    Column("path", Text, nullable=False),
    Column("name", Text),
    Column("counts", JSON, nullable=False),
    Column("report", JSON(none_as_null=True)),
    Column("index", JSON(none_as_null=True)),
    Column("created_at", Utc, nullable=False),
    Index("embeddings_by_graph", "graph"),
)

aliases = Table(
    "aliases",
    metadata,
    Column("name", _ordered(255), primary_key=True),
    Column("embedding", ID, nullable=False),
    Column("version", Integer, nullable=False),
    Column("updated_at", Utc, nullable=False),
    Index("aliases_by_embedding", "embedding"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("revoked_at", Utc),
)
