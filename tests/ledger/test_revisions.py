"""There is one revision of the tables: a ledger of another one is refused, and stays as it is."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.ledger.asking import behind_its_back

from sfumato.errors import LedgerError
from sfumato.ledger.store import Store

TABLES = {
    "sqlite": "SELECT name, sql FROM sqlite_master ORDER BY name",
    "postgresql": "SELECT table_name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = current_schema() ORDER BY table_name, column_name",
}


def shape(url):
    """Return the tables of a database, and its revision."""
    with closing(Store(url)) as store, store.reading() as driver:
        return driver.rows(TABLES[driver.database]), driver.rows("SELECT version_num FROM ledger_version")


def prepared(url, *, create):
    with closing(Store(url)) as store:
        store.prepare(create=create)
    return shape(url)


@pytest.mark.parametrize("revision", ["0007", "9999"])
def test_a_database_of_another_revision_is_refused_and_stays_as_it_is(url, revision):
    prepared(url, create=True)
    behind_its_back(url, f"UPDATE ledger_version SET version_num = '{revision}'")  # noqa: S608
    before = shape(url)
    for create in (True, False):
        with pytest.raises(LedgerError, match=f"another version of Sfumato: its tables have revision {revision}"):
            prepared(url, create=create)
    assert shape(url) == before


def test_preparing_twice_changes_nothing(url, monkeypatch):
    before = prepared(url, create=True)
    monkeypatch.setattr("sfumato.ledger.store.create_tables", pytest.fail)
    assert prepared(url, create=True) == prepared(url, create=False) == before


def test_a_failed_creation_leaves_no_trace(url, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.schema.AUDIT_GENESIS", object())  # the last tables cannot be filled
    with closing(Store(url)) as store:
        with pytest.raises(LedgerError):
            store.prepare(create=True)
        monkeypatch.undo()
        with store.reading() as driver:
            assert [name for name, *_ in driver.rows(TABLES[driver.database]) if name.startswith("ledger")] == []
        store.prepare(create=True)
