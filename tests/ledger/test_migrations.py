"""Databases of every earlier revision get the tables, checks and triggers that a new one has."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from tests.ledger.asking import behind_its_back

from sfumato.errors import LedgerError
from sfumato.ledger import schema
from sfumato.ledger.store import Store

REVISIONS = {"first_revision": "0001", "server": "0002", "third_revision": "0003"}
REVISIONS |= {"fourth_revision": "0004", "fifth_revision": "0005", "sixth_revision": "0006", "seventh_revision": "0007"}
SAVED = {**REVISIONS, "fifth_server": "0005"}
TRIGGERS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname, pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger, pg_class "
    "WHERE pg_class.oid = tgrelid AND relnamespace = current_schema()::regnamespace AND NOT tgisinternal",
}


def shape(url):
    """Everything the database knows of the ledger's tables."""
    address = make_url(url)
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    with create_engine(address, poolclass=NullPool).connect() as connection:
        return shape_seen(connection)


def shape_seen(connection):
    inspector = inspect(connection)
    tables = {
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
        for table in sorted(inspector.get_table_names())
    }
    here = f"{inspector.default_schema_name}."
    triggers = connection.execute(text(TRIGGERS[connection.dialect.name]))
    return tables, {name: spelled.replace(here, "") for name, spelled in triggers}


def prepared(url, *, create):
    with closing(Store(url)) as store:
        store.prepare(create=create)
    return shape(url)


def revision(url):
    with closing(Store(url)) as store, store.reading() as connection:
        return connection.value("SELECT version_num FROM ledger_version")


@pytest.mark.parametrize("name", SAVED)
def test_an_earlier_revision_becomes_what_a_new_database_is(saved, tmp_path, name):
    url = saved(name)
    assert revision(url) == SAVED[name]
    assert prepared(url, create=False) == prepared(f"sqlite:///{tmp_path}/new.ledger", create=True)
    assert revision(url) == schema.REVISION


@pytest.mark.parametrize("name", SAVED)
def test_an_earlier_revision_in_postgresql_becomes_what_a_new_database_is(saved_in_postgres, name):
    url = saved_in_postgres(name)
    assert revision(url) == SAVED[name]
    migrated = prepared(url, create=False)
    assert revision(url) == schema.REVISION
    behind_its_back(url, *_everything_dropped(migrated[0]))
    assert migrated == prepared(url, create=True)


def _everything_dropped(tables):
    return (*(f"DROP TABLE {table} CASCADE" for table in tables), "DROP FUNCTION ledger_refuse")


def test_every_earlier_revision_has_a_saved_database():
    assert tuple(REVISIONS.values()) == schema.REVISIONS[:-1]


def test_a_database_of_a_later_revision_is_refused_and_stays_as_it_is(url):
    before = prepared(url, create=True)
    behind_its_back(url, "UPDATE ledger_version SET version_num = '9999'")
    for create in (True, False):
        with pytest.raises(LedgerError, match="newer version"):
            prepared(url, create=create)
    assert shape(url) == before


def test_preparing_twice_changes_nothing(url, monkeypatch):
    before = prepared(url, create=True)
    monkeypatch.setattr("sfumato.ledger.store.bring_up_to_date", pytest.fail)
    assert prepared(url, create=True) == prepared(url, create=False) == before


@pytest.mark.parametrize(
    "name", ["first_revision", "server", "third_revision", "fourth_revision", "fifth_server", "sixth_revision"]
)
def test_a_failed_migration_leaves_no_trace(saved, monkeypatch, name):
    url = saved(name)
    before = shape(url)
    monkeypatch.setattr(schema, "say_revision", lambda _: 1 // 0)  # the last statement, which says that all is done
    with closing(Store(url)) as store, pytest.raises(ZeroDivisionError):
        store.prepare(create=False)
    monkeypatch.undo()
    assert shape(url) == before
    assert revision(url) == SAVED[name]
    prepared(url, create=False)
