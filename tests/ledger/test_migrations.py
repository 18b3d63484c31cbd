from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

import sfumato.ledger
from sfumato.ledger import schema
from sfumato.ledger.store import Store


@pytest.fixture
def store(url):
    with closing(Store(url)) as opened:
        if opened.file:
            opened.file.touch()
        yield opened


def shape(connection):
    """Everything the database knows of the ledger's tables, except triggers."""
    inspector = inspect(connection)
    return {
        table: {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)],
            "primary key": inspector.get_pk_constraint(table)["constrained_columns"],
            "checks": sorted((c["name"], c["sqltext"]) for c in inspector.get_check_constraints(table)),
            "indexes": sorted((i["name"], i["column_names"], bool(i["unique"])) for i in inspector.get_indexes(table)),
            "foreign keys": sorted(
                (f["constrained_columns"], f["referred_table"], f["referred_columns"])
                for f in inspector.get_foreign_keys(table)
            ),
        }
        for table in sorted(schema.metadata.tables)
    }


def test_migrating_an_empty_database_makes_the_tables_of_the_schema(store):
    with store.writing() as connection:
        schema.metadata.create_all(connection)
        expected = shape(connection)
        schema.metadata.drop_all(connection)
    store.prepare(create=True)
    with store.reading() as connection:
        assert shape(connection) == expected
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, schema.metadata) == []


def test_the_scripts_lead_to_the_revision_of_the_schema():
    config = Config()
    config.set_main_option("script_location", str(Path(sfumato.ledger.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [schema.REVISION]
    assert script.get_bases() == ["0001"]


def test_preparing_twice_changes_nothing(store, monkeypatch):
    store.prepare(create=True)
    monkeypatch.setattr(store, "_migrate", pytest.fail)
    store.prepare(create=True)
    store.prepare(create=False)


def test_who_waited_for_the_lock_finds_the_tables_made(url, store, monkeypatch):
    with closing(Store(url)) as late:
        founding = late.founding

        def overtaken():
            store.prepare(create=True)
            return founding()

        monkeypatch.setattr(late, "founding", overtaken)
        monkeypatch.setattr(late, "_migrate", pytest.fail)
        late.prepare(create=True)


def test_a_failed_migration_leaves_no_trace(store, monkeypatch):
    monkeypatch.setattr("alembic.command.upgrade", _half)
    with pytest.raises(ZeroDivisionError):
        store.prepare(create=True)
    with store.reading() as connection:
        assert inspect(connection).get_table_names() == []


def _half(config, _revision):
    config.attributes["connection"].execute(text("CREATE TABLE ledger_half (x INTEGER)"))
    raise ZeroDivisionError
