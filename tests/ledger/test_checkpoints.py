"""The end of a long journal is looked at without reading all of it, and what is new is checked all the same."""

# ruff: noqa: S608 - statements are what is changed

from __future__ import annotations

import pytest
from tests.ledger.asking import TENTH, ask, behind_its_back, unfreeze

from sfumato.app.cli import ledger_file
from sfumato.errors import LedgerError
from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon

LONG = 60  # entries: more than lie between two checkpoints


@pytest.fixture
def long(url):
    """A ledger with a long journal of two analysts, which was found whole."""
    with open_ledger(url, dataset="people", limit=Epsilon(100), create=True) as ledger:
        for number in range(LONG):
            ask(ledger, number, TENTH, analyst="ann" if number % 3 else "bob")
        assert ledger.check().number == LONG
        yield url, ledger


def changed(url, statement):
    unfreeze(url)
    behind_its_back(url, statement)


def test_a_check_goes_on_where_the_last_one_ended(long):
    url, ledger = long
    first = ledger.check()
    ask(ledger, LONG)
    found = ledger.check()
    assert (found.number, found.head, found.checked) == (LONG + 1, ledger.verify(), first.checked)
    changed(url, "UPDATE ledger_entry SET statement = 'other' WHERE number = 3")
    assert ledger.check().number == LONG + 1  # it reads no entry twice
    with pytest.raises(LedgerError, match="broken at entry 3"):
        ledger.verify()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"UPDATE ledger_entry SET statement = 'other' WHERE number = {LONG + 1}", f"broken at entry {LONG + 1}"),
        (f"DELETE FROM ledger_entry WHERE number = {LONG + 1}", "broken"),
        (f"DELETE FROM ledger_entry WHERE number = {LONG + 2}", "entries are missing"),
        ("UPDATE ledger_dataset SET epsilon = '6'", "account of 'people'"),
        ("UPDATE ledger_analyst SET epsilon = '0' WHERE name = 'bob'", "account of analyst 'bob'"),
        ("UPDATE ledger_checkpoint SET number = number - 1", "broken"),
        (f"UPDATE ledger_checkpoint SET hash = '{'0' * 64}'", "broken"),
        ("UPDATE ledger_checkpoint SET number = 999", "entries are missing"),
    ],
)
def test_what_was_changed_since_the_last_check_is_found(long, statement, reason):
    url, ledger = long
    for number in (LONG, LONG + 1):
        ask(ledger, number, analyst="bob")
    changed(url, statement)
    with pytest.raises(LedgerError, match=reason):
        ledger.check()


def test_a_checkpoint_that_cannot_be_read_is_none(long):
    url, ledger = long
    behind_its_back(url, "UPDATE ledger_checkpoint SET sums = '{}'")
    assert ledger.check().head == ledger.verify()


def test_pages_of_all_and_of_an_analyst(long):
    _, ledger = long
    every = list(ledger.journal())
    assert [entry.number for entry in every] == list(range(1, LONG + 1))
    assert ledger.newest(7) == every[-7:]
    assert ledger.newest(7, before=20) == every[12:19]
    bob = [entry for entry in every if entry.analyst == "bob"]
    assert ledger.newest(5, analyst="bob") == bob[-5:]
    assert ledger.page(after=10, most=4, analyst="bob") == [entry for entry in bob if entry.number > 10][:4]
    assert ledger.newest(5, analyst="nobody") == []


def test_a_ledger_without_entries_is_whole(ledger):
    assert (ledger.check().number, ledger.check().head) == (0, ledger.verify())


def test_a_long_journal_is_not_read_from_its_beginning_to_be_shown(long, monkeypatch):
    url, ledger = long
    changed(url, "UPDATE ledger_entry SET statement = 'other' WHERE number = 3")
    assert "broken at entry 3" in str(ledger_file._broken(ledger))  # noqa: SLF001
    monkeypatch.setattr(ledger_file, "_LONG", LONG - 1)
    assert ledger_file._broken(ledger) is None  # noqa: SLF001
    ask(ledger, LONG)
    changed(url, f"UPDATE ledger_entry SET statement = 'other' WHERE number = {LONG + 1}")
    assert f"broken at entry {LONG + 1}" in str(ledger_file._broken(ledger))  # noqa: SLF001
