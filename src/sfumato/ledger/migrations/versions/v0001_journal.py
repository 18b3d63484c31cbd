"""The first journal: accounts, entries, answers, retry keys, and the triggers that keep it append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_FROZEN = ("ledger_entry", "ledger_answer", "ledger_retry")
_LIMITS = ("name", "opened", "secret", "limit_loss", "limit_units", "limit_delta_units")


def upgrade() -> None:
    """Create everything."""
    _tables()
    if op.get_bind().dialect.name == "sqlite":
        _sqlite_triggers()
    else:
        _postgresql_triggers()


def _tables() -> None:
    op.create_table(
        "ledger_dataset",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("opened", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("limit_loss", sa.Text, nullable=False),
        sa.Column("limit_units", sa.BigInteger, nullable=False),
        sa.Column("limit_delta_units", sa.BigInteger, nullable=False),
        *_spent(),
        sa.Column("entries", sa.Integer, nullable=False),
        sa.Column("head", sa.Text, nullable=False),
        sa.CheckConstraint("0 <= spent_units AND spent_units <= limit_units", name="within_limit"),
        sa.CheckConstraint("0 <= spent_delta_units AND spent_delta_units <= limit_delta_units", name="within_delta"),
    )
    op.create_table(
        "ledger_analyst",
        sa.Column("dataset", sa.Text, sa.ForeignKey("ledger_dataset.name"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("cap_loss", sa.Text),
        sa.Column("cap_units", sa.BigInteger),
        sa.Column("cap_delta_units", sa.BigInteger),
        *_spent(),
        sa.CheckConstraint("0 <= spent_units AND (cap_units IS NULL OR spent_units <= cap_units)", name="within_cap"),
        sa.CheckConstraint(
            "0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)",
            name="within_cap_delta",
        ),
    )
    op.create_table(
        "ledger_entry",
        sa.Column("dataset", sa.Text, sa.ForeignKey("ledger_dataset.name"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("time", "kind", "family", "method", "key", "question")),
        *(sa.Column(name, sa.Text) for name in ("epsilon", "rho", "delta", "analyst")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("statement", "details", "previous", "hash")),
        sa.CheckConstraint("number > 0", name="counts_from_one"),
    )
    op.create_index(
        "ledger_release",
        "ledger_entry",
        ["dataset", "key"],
        unique=True,
        sqlite_where=sa.text("kind = 'release'"),
        postgresql_where=sa.text("kind = 'release'"),
    )
    op.create_index("ledger_shown", "ledger_entry", ["dataset", "key", "analyst"])
    op.create_table(
        "ledger_answer",
        sa.Column("dataset", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["dataset", "number"], ["ledger_entry.dataset", "ledger_entry.number"]),
    )
    op.create_table(
        "ledger_retry",
        sa.Column("dataset", sa.Text, sa.ForeignKey("ledger_dataset.name"), primary_key=True),
        sa.Column("analyst", sa.Text, primary_key=True),
        sa.Column("retry_key", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
    )


def _spent() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("epsilon", sa.Text),
        sa.Column("rho", sa.Text, nullable=False),
        sa.Column("delta", sa.Text, nullable=False),
        sa.Column("spent_units", sa.BigInteger, nullable=False),
        sa.Column("spent_delta_units", sa.BigInteger, nullable=False),
    )


def _sqlite_triggers() -> None:
    for table in _FROZEN:
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
            )
    op.execute(
        f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {', '.join(_LIMITS)} ON ledger_dataset "
        "BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END"
    )
    op.execute(
        "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset "
        "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
    )
    op.execute(
        "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset "
        "WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries "
        "BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END"
    )


def _postgresql_triggers() -> None:
    op.execute(
        "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$"
    )
    for table in _FROZEN:
        op.execute(
            f"CREATE TRIGGER {table}_frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        )
    op.execute(
        f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {', '.join(_LIMITS)} ON ledger_dataset "
        "FOR EACH ROW EXECUTE FUNCTION ledger_refuse()"
    )
    op.execute(
        "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE OR TRUNCATE ON ledger_dataset "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
    )
    op.execute(
        "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset FOR EACH ROW "
        "WHEN (NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries) EXECUTE FUNCTION ledger_refuse()"
    )
