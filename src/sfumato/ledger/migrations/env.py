"""Alembic's entry: migrate over the connection, and in the transaction, that the ledger hands over."""

from __future__ import annotations

from alembic import context

from sfumato.ledger.schema import VERSION_TABLE, metadata


def migrate() -> None:
    """Run the migrations that :mod:`sfumato.ledger.store` asked for."""
    context.configure(
        connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
    )
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name under which Alembic runs this file; a plain import does nothing
    migrate()
