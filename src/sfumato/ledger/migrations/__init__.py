"""Alembic's scripts: how the tables of a ledger came to be as they are."""
