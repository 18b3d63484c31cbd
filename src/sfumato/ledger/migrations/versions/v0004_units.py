"""The unit of a dataset, what an entry states of its charge, and the content of a server's table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and keep a unit that is there as it is."""
    op.add_column("ledger_dataset", sa.Column("unit", sa.Text))
    op.add_column("ledger_entry", sa.Column("stated", sa.Text))
    op.add_column("service_reading", sa.Column("content", sa.Text))
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset "
            "WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit "
            "BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END"
        )
    else:
        op.execute(
            "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset FOR EACH ROW "
            "WHEN (OLD.unit IS NOT NULL AND NEW.unit IS DISTINCT FROM OLD.unit) EXECUTE FUNCTION ledger_refuse()"
        )
