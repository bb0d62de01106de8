"""Names of embedding sets; the encoder that an embed job uses, and the graph that an append job makes."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("embeddings", sa.Column("name", sa.Text(), nullable=True))
    # Ids that PostgreSQL orders by their bytes, as those of 0003.
    collation = "C" if op.get_context().dialect.name == "postgresql" else None
    for name in ("encoder", "new_graph"):
        op.add_column("jobs", sa.Column(name, sa.String(length=64, collation=collation), nullable=True))
