"""What a server keeps beside its journals: datasets, the versions that stewards confirmed, keys, and jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "service_dataset",
        sa.Column("name", sa.Text, primary_key=True),
        *_texts("source", "domain", "limit_text"),
        sa.Column("rows", sa.Integer),
        *_texts("discoverable", "registered"),
    )
    op.create_table(
        "service_reading",
        sa.Column("dataset", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        *_texts("version", "read"),
    )
    op.create_table(
        "service_key",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        *_texts("name", "scope", "issued", "expires"),
        sa.Column("revoked", sa.Text),
    )
    op.create_table(
        "service_job",
        sa.Column("id", sa.Text, primary_key=True),
        *_texts("dataset", "owner", "request", "state"),
        sa.Column("progress", sa.Float, nullable=False),
        *_texts("note", "updated"),
        sa.Column("statement", sa.Text),
        sa.Column("rows", sa.LargeBinary),
    )


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]
