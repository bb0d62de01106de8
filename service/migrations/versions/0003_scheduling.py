"""A job's priority, limits, and what it waits for; ids that PostgreSQL orders by their bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_ORDERED = {
    "aliases": {"name": 255, "embedding": 64},
    "api_keys": {"id": 64},
    "embeddings": {"id": 64, "graph": 64, "job": 64},
    "graphs": {"id": 64},
    "job_events": {"job": 64},
    "jobs": {"id": 64, "graph": 64, "embedding": 64},
}


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("timeout_s", sa.Float(), nullable=True))
    for name in ("resources", "devices", "waiting_for"):
        op.add_column("jobs", sa.Column(name, sa.JSON(none_as_null=True), nullable=True))
    op.add_column("jobs", sa.Column("retry_at", sa.DateTime(), nullable=True))
    if op.get_context().dialect.name == "postgresql":
        for table, columns in _ORDERED.items():
            for column, length in columns.items():
                op.alter_column(table, column, type_=sa.String(length, collation="C"))
