"""Ledgers that earlier code wrote open, are whole, and go on charging; they know no version of the data."""

from __future__ import annotations

import json
from contextlib import closing
from fractions import Fraction

import pytest
from tests.ledger.asking import question, release, reserve
from tests.ledger.conftest import SAVED

import sfumato as sf
from sfumato.domain import Unit
from sfumato.errors import BudgetError, RetryKeyError
from sfumato.ledger import Kind, open_ledger
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Epsilon, Rho
from sfumato_server.registry import Registry
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service

TOLD = json.loads((SAVED / "told.json").read_text(encoding="utf-8"))
UNIT = Unit("person", rows=2)
REVISIONS = (
    "first_revision",
    "third_revision",
    "fourth_revision",
    "fifth_revision",
    "sixth_revision",
    "seventh_revision",
)
LOSSES = {"pure": Epsilon("0.25"), "zcdp": Rho("0.02"), "approximate": Rho("0.01")}


def last(ledger):
    """The hash of the last entry of a journal that is whole, answers and all."""
    (entry,) = ledger.newest(1)
    assert ledger.verify(head=entry.hash)
    return entry.hash


@pytest.mark.parametrize("dataset", LOSSES)
def test_a_saved_ledger_is_whole_and_goes_on_charging(saved, dataset):
    told, loss = TOLD[dataset], LOSSES[dataset]
    with open_ledger(saved("measures"), dataset=dataset, limit=None) as ledger:
        assert last(ledger) == told["head"]
        assert len(list(ledger.journal())) == told["entries"]
        before, analyst = ledger.remaining().spent, "ann" if dataset == "pure" else None
        terms = {"statement": "three", "unit": UNIT, "analyst": analyst}
        assert ledger.data_version() is None
        with pytest.raises(RetryKeyError):
            reserve(ledger, question(9), loss.charge, **terms, retry_key="r3")
        assert ledger.remaining().spent == before
        assert ledger.unit is None
        assert release(ledger, question(9), loss.charge, lambda: b"new", **terms).charged
        assert ledger.unit == UNIT
        assert [entry.number for entry in ledger.journal() if entry.event.fixes_unit] == [told["entries"] + 1]
        after = ledger.remaining().spent
        assert after.rho == before.rho + loss.charge.rho
        assert dataset != "pure" or after.epsilon == before.epsilon + Fraction(1, 4)
        with pytest.raises(BudgetError):
            reserve(ledger, question(10), type(loss)(100).charge, **terms)
        assert ledger.verify() != told["head"]


def test_an_analysts_cap_goes_on_holding(saved):
    with open_ledger(saved("measures"), dataset="pure", limit=None) as ledger:
        assert {name: account.limit for name, account in ledger.caps().items()} == {
            "ann": Epsilon("1.5"),
            "bob": Epsilon("0.3"),
        }
        with pytest.raises(BudgetError, match="your cap"):
            reserve(ledger, question(9), Epsilon("0.06").charge, statement="x", unit=UNIT, analyst="bob")
        assert reserve(ledger, question(9), Epsilon("0.05").charge, statement="x", unit=UNIT, analyst="bob").charged
        assert [entry.kind for entry in ledger.journal()].count(Kind.REPEAT) == 1
        ledger.verify()


@pytest.mark.parametrize("dataset", LOSSES)
def test_the_next_opening_of_a_saved_ledger_declares_its_first_version(saved, dataset):
    url = saved("measures")
    where = {"domain": SAVED / "people.yaml", "ledger": url, "dataset": dataset}
    vault = sf.open(str(SAVED / "people.csv"), **where)
    assert (vault.version, vault.ledger.data_version().number) == ("1", 1)
    assert vault.ledger.verify(head=TOLD[dataset]["head"])
    assert sf.open(str(SAVED / "people.csv"), **where).version == "1"


def test_an_account_that_was_as_long_as_was_allowed_works_for_everybody(saved):
    with open_ledger(saved("long"), dataset="long", limit=None) as ledger:
        assert last(ledger) == TOLD["long"]["head"]
        assert ledger.remaining().spent.epsilon.denominator > 10**400
        for number, analyst in enumerate(("eve", "ann", None)):
            charge = Epsilon(Fraction(1, 10**27 + 99 + 2 * number)).charge
            assert reserve(ledger, question(100 + number), charge, statement="x", unit=UNIT, analyst=analyst).charged
        entry = list(ledger.journal())[-1]
        assert entry.charge == charge, "the exact value stands beside what is counted"
        assert entry.charge.epsilon < entry.event.grid_charge.epsilon < entry.charge.epsilon + Fraction(1, 10**18)
        assert ledger.remaining().spent.epsilon.denominator < 10**80
        ledger.verify()


def test_what_a_server_kept(saved):
    url = saved("server")
    with closing(Store(url)) as store:
        store.prepare(create=False)
        registry = Registry(store)
        (dataset,) = registry.datasets()
        assert (dataset.name, dataset.limit, dataset.rows, dataset.discoverable) == ("people", "3", 60, ("town",))
        assert registry.key(TOLD["server"]["key"]).valid
        assert not registry.key(TOLD["server"]["gone"]).valid
        assert registry.jobs.rows(TOLD["server"]["job"]) == b"rows"
    with open_ledger(url, dataset="people", limit=Epsilon(3)) as ledger:
        assert last(ledger) == TOLD["server"]["head"]


@pytest.mark.parametrize("name", REVISIONS)
def test_a_database_of_an_earlier_revision(saved, name):
    goes_on(saved(name), TOLD[name]["head"])


@pytest.mark.parametrize("name", REVISIONS)
def test_a_postgresql_database_of_an_earlier_revision(saved_in_postgres, name):
    goes_on(saved_in_postgres(name), TOLD["postgres"][name])


def goes_on(url, head):
    with open_ledger(url, dataset="old", limit=None) as ledger:
        assert last(ledger) == head
        with pytest.raises(RetryKeyError):
            reserve(ledger, question(1), Epsilon("0.5").charge, statement="x", unit=UNIT, analyst="ann", retry_key="r")
        assert reserve(ledger, question(2), Epsilon("0.5").charge, statement="new", unit=UNIT).charged
        with pytest.raises(BudgetError):
            reserve(ledger, question(3), Epsilon("0.1").charge, statement="new", unit=UNIT)
        ledger.verify()
    with closing(Store(url)) as store:
        assert Registry(store).datasets() == ()


def test_what_a_server_kept_in_postgresql(saved_in_postgres):
    url, told = saved_in_postgres("server"), TOLD["postgres"]
    with closing(Store(url)) as store:
        store.prepare(create=False)
        registry = Registry(store)
        assert [dataset.name for dataset in registry.datasets()] == ["people"]
        assert registry.key(told["key"]).valid
        assert not registry.key(told["gone"]).valid
        assert registry.jobs.rows(told["job"]) == b"rows"
    with open_ledger(url, dataset="people", limit=Epsilon(3)) as ledger:
        assert last(ledger) == told["server"]
        assert reserve(ledger, question(1), Epsilon("0.5").charge, statement="new", unit=UNIT).charged
        ledger.verify()


@pytest.mark.parametrize("place", ["sqlite", "postgresql"])
def test_what_a_server_with_sessions_and_terms_kept(request, place):
    if place == "sqlite":
        url, told = request.getfixturevalue("saved")("fifth_server"), TOLD["fifth_server"]
    else:
        url, told = request.getfixturevalue("saved_in_postgres")("fifth_server"), TOLD["postgres"]["fifth_server"]
    with closing(Service(url)) as service:
        assert service.registry.key(told["key"]).valid
        assert not service.registry.key(told["gone"]).valid
        assert service.sessions.holder(told["session"]).name == "ann"
        assert service.grants.terms("people") == DatasetTerms(granted_only=True, default_cap="1", most="0.5")
        assert dict(service.grants.analysts("people")) == {"ann": True, "bob": False}
        assert service.registry.jobs.rows(told["job"]) == b"rows"
        assert last(service.loaded("people").ledger) == told["head"]
