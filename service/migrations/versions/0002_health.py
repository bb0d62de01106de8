"""A job's health, and since when it has been silent."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("health", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("jobs", sa.Column("silent_since", sa.DateTime(), nullable=True))
