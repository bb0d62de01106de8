"""Names of embedding sets; the encoder that an embed job uses, and the graph that an append job makes."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("embeddings", sa.Column("name", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("encoder", sa.String(length=64), nullable=True))
    op.add_column("jobs", sa.Column("new_graph", sa.String(length=64), nullable=True))
