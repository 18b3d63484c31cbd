"""The tables of a ledger, and of the server that keeps one: how they are, and how those of earlier revisions become so.

Exact amounts are text; the ``*_units`` columns repeat them as integers, so that the database itself
refuses to pass a limit.  An entry has no rho where the release has no differential privacy guarantee.
Triggers keep the journal append-only, limits and units fixed, and what was spent from being refunded.

Revisions: 0001 the journal; 0002 what a server keeps; 0003 keys of releases are not unique any more, as one that failed
is asked for again; 0004 units, what entries state of their charges, and the content of a server's tables.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    insert,
    text,
    update,
)

REVISIONS = ("0001", "0002", "0003", "0004")
REVISION = REVISIONS[-1]
VERSION_TABLE = "ledger_version"

metadata = MetaData()

version = Table(
    VERSION_TABLE,
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="ledger_version_pkc"),
)

dataset = Table(
    "ledger_dataset",
    metadata,
    Column("name", Text, primary_key=True),
    Column("opened", Text, nullable=False),
    Column("secret", Text, nullable=False),  # random: see entry.journalled_version
    Column("limit_loss", Text, nullable=False),
    Column("limit_units", BigInteger, nullable=False),
    Column("limit_delta_units", BigInteger, nullable=False),
    Column("epsilon", Text),
    Column("rho", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("spent_units", BigInteger, nullable=False),
    Column("spent_delta_units", BigInteger, nullable=False),
    Column("entries", Integer, nullable=False),
    Column("head", Text, nullable=False),
    Column("unit", Text),  # null in an old ledger, until its next release fixes it
    CheckConstraint("0 <= spent_units AND spent_units <= limit_units", name="within_limit"),
    CheckConstraint("0 <= spent_delta_units AND spent_delta_units <= limit_delta_units", name="within_delta"),
)

analyst = Table(
    "ledger_analyst",
    metadata,
    Column("dataset", Text, ForeignKey("ledger_dataset.name"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("cap_loss", Text),
    Column("cap_units", BigInteger),
    Column("cap_delta_units", BigInteger),
    Column("epsilon", Text),
    Column("rho", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("spent_units", BigInteger, nullable=False),
    Column("spent_delta_units", BigInteger, nullable=False),
    CheckConstraint("0 <= spent_units AND (cap_units IS NULL OR spent_units <= cap_units)", name="within_cap"),
    CheckConstraint(
        "0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)",
        name="within_cap_delta",
    ),
)

entry = Table(
    "ledger_entry",
    metadata,
    Column("dataset", Text, ForeignKey("ledger_dataset.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("epsilon", Text),
    Column("rho", Text),
    Column("delta", Text),
    Column("analyst", Text),
    Column("statement", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("stated", Text),  # unit, neighbour relation and what is counted of the charge; null in old entries
    CheckConstraint("number > 0", name="counts_from_one"),
)
Index("ledger_shown", entry.c.dataset, entry.c.key, entry.c.analyst)

answer = Table(
    "ledger_answer",
    metadata,
    Column("dataset", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    ForeignKeyConstraint(["dataset", "number"], ["ledger_entry.dataset", "ledger_entry.number"]),
)

retry = Table(
    "ledger_retry",
    metadata,
    Column("dataset", Text, ForeignKey("ledger_dataset.name"), primary_key=True),
    Column("analyst", Text, primary_key=True),  # empty where analysts are not told apart
    Column("retry_key", Text, primary_key=True),
    Column("key", Text, nullable=False),
)

# What a server keeps beside its journals.

service_dataset = Table(
    "service_dataset",
    metadata,
    Column("name", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("limit_text", Text, nullable=False),
    Column("rows", Integer),
    Column("discoverable", Text, nullable=False),
    Column("registered", Text, nullable=False),
)

service_reading = Table(
    "service_reading",
    metadata,
    Column("dataset", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("read", Text, nullable=False),
    Column("content", Text),  # of the whole table, however its domain is spelled; null where old code read it
)

service_key = Table(
    "service_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("issued", Text, nullable=False),
    Column("expires", Text, nullable=False),
    Column("revoked", Text),
)

service_job = Table(
    "service_job",
    metadata,
    Column("id", Text, primary_key=True),
    Column("dataset", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("progress", Float, nullable=False),
    Column("note", Text, nullable=False),
    Column("updated", Text, nullable=False),
    Column("statement", Text),
    Column("rows", LargeBinary),
)


_FROZEN = ("ledger_entry", "ledger_answer", "ledger_retry")
_FIXED = "name, opened, secret, limit_loss, limit_units, limit_delta_units"
_TRIGGERS = {
    "sqlite": (
        *(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
            for table in _FROZEN
            for verb in ("UPDATE", "DELETE")
        ),
        (
            f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {_FIXED} ON ledger_dataset "
            "BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END"
        ),
        (
            "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset "
            "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
        ),
        (
            "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset "
            "WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries "
            "BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END"
        ),
    ),
    "postgresql": (
        (
            "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$"
        ),
        *(
            f"CREATE TRIGGER {table}_frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
            for table in _FROZEN
        ),
        (
            f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {_FIXED} ON ledger_dataset "
            "FOR EACH ROW EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE OR TRUNCATE ON ledger_dataset "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset FOR EACH ROW "
            "WHEN (NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries) EXECUTE FUNCTION ledger_refuse()"
        ),
    ),
}
_UNIT_TRIGGER = {
    "sqlite": "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset "
    "WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit "
    "BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END",
    "postgresql": "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset FOR EACH ROW "
    "WHEN (OLD.unit IS NOT NULL AND NEW.unit IS DISTINCT FROM OLD.unit) EXECUTE FUNCTION ledger_refuse()",
}


def bring_up_to_date(connection: Connection, found: str | None) -> None:
    """Make the tables, or change those of an earlier revision, within the transaction of the connection.

    Args:
        connection: in a transaction during which nobody else makes or changes tables.
        found: which of :data:`REVISIONS` the tables have; None where there are none.
    """
    if found == REVISION:
        return
    if found is None:
        metadata.create_all(connection, checkfirst=False)
        _execute(connection, *_TRIGGERS[connection.dialect.name], _UNIT_TRIGGER[connection.dialect.name])
        connection.execute(insert(version).values(version_num=REVISION))
        return
    if found < "0002":
        of_server = [service_dataset, service_reading, service_key, service_job]
        metadata.create_all(connection, of_server, checkfirst=False)
    else:
        _execute(connection, "ALTER TABLE service_reading ADD COLUMN content TEXT")
    if found < "0003":
        _execute(connection, "DROP INDEX ledger_release")
    _execute(connection, "ALTER TABLE ledger_dataset ADD COLUMN unit TEXT")
    _execute(connection, "ALTER TABLE ledger_entry ADD COLUMN stated TEXT")
    _execute(connection, _UNIT_TRIGGER[connection.dialect.name])
    connection.execute(update(version).values(version_num=REVISION))


def _execute(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(text(statement))
