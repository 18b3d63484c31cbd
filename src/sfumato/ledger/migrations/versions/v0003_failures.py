"""A release that failed is closed, and asked for again under the same key: keys of releases are not unique any more."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the index; the one of who was shown what begins with the same columns."""
    op.drop_index("ledger_release", "ledger_entry")
