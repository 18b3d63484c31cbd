"""The tables of a ledger, and of the server that keeps one.  ``migrations`` builds them; a test holds them together.

Exact amounts are text; the ``*_units`` columns repeat them as integers, so that the database itself
refuses to pass a limit.  An entry has no rho where the release has no differential privacy guarantee.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

REVISION = "0004"
VERSION_TABLE = "ledger_version"

metadata = MetaData()

dataset = Table(
    "ledger_dataset",
    metadata,
    Column("name", Text, primary_key=True),
    Column("opened", Text, nullable=False),
    Column("secret", Text, nullable=False),  # random: see create.journalled_version
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
