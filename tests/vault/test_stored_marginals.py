"""Earlier released marginals are read back from the journal unchanged, and only by analysts who saw them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato import query
from sfumato.domain import parse
from sfumato.errors import BudgetError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.query.plan import released_rows
from sfumato.query.statements import select_statement
from sfumato.vault.interface import ReleaseRequest
from sfumato.vault.measurables import Marginal, StoredMarginal

DOMAIN = {
    "sfumato": 1,
    "unit": "row",
    "attributes": {
        "age": {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "clamp"},
        "town": {"type": "categorical", "values": ["a", "b", "c"], "unknown": "drop"},
    },
}


def opened(
    folder: Path,
    *,
    seed: int = 0,
    analyst: str | None = None,
    domain=None,
    create: bool = False,
    new_version: bool = False,
):
    random = np.random.default_rng(seed)
    table = folder / f"people{seed}.parquet"
    if not table.exists():
        pq.write_table(pa.table({"age": random.integers(0, 10, 400), "town": random.choice(list("abc"), 400)}), table)
    ledger = f"sqlite:///{folder / 'people.ledger'}"
    terms = {"limit": sf.Rho(5), "create": create, "new_version": new_version}
    vault = sf.open(str(table), domain=parse(domain or DOMAIN), ledger=ledger, **terms)
    return vault if analyst is None else vault.for_analyst(analyst)


def stored(vault) -> tuple[StoredMarginal, ...]:
    """Return the marginals that a method sees; each call is a separate release at a new loss."""
    seen: list[tuple[StoredMarginal, ...]] = []
    number = sum(1 for _ in vault.ledger.journal())

    def look(mechanisms) -> dict[str, int]:
        seen.append(mechanisms.stored_marginals())
        return {"seen": 1}

    vault.release(ReleaseRequest("synthesize", "look", {"number": number}), sf.Rho("0.000001"), look)
    return seen[0]


def test_marginals_without_condition_are_found_as_they_were_answered(tmp_path: Path) -> None:
    vault = opened(tmp_path, create=True)
    assert stored(vault) == ()
    answer = query.ask(vault, query.table("town", "age"), loss=sf.Rho("0.5"))
    query.ask(vault, query.count("town = 'a'"), loss=sf.Rho("0.1"))
    query.ask(vault, query.mean("age"), loss=sf.Rho("0.1"))
    vault.measure([Marginal(("age",)), Marginal(("town",), groups=((0, 0, 1),))], sf.Rho("0.2"),
                  shares=[Fraction(3, 4), Fraction(1, 4)])  # fmt: skip
    spent = vault.ledger.remaining().spent
    found = stored(vault)
    assert [each.attributes for each in found] == [("town", "age"), ("age",)]
    assert found[0].values.ravel().tolist() == [value[0].estimate for value in answer.values]
    assert [each.noise for each in found] == [DiscreteGaussian(1), DiscreteGaussian(Fraction(10, 3))]
    assert [each.rho for each in found] == [Fraction(1, 2), Fraction(3, 20)]
    assert float(vault.ledger.remaining().spent.rho - spent.rho) == pytest.approx(1e-6)  # the look itself


def test_a_pure_loss_counts_as_the_rho_that_it_implies(tmp_path: Path) -> None:
    domain = parse(DOMAIN)
    ledger = f"sqlite:///{tmp_path / 'pure.ledger'}"
    pq.write_table(pa.table({"age": [1, 2, 3], "town": ["a", "b", "c"]}), tmp_path / "few.parquet")
    vault = sf.open(str(tmp_path / "few.parquet"), domain=domain, ledger=ledger, limit=sf.Epsilon(5), create=True)
    query.ask(vault, query.table("town"), loss=sf.Epsilon("0.5"))
    seen = []

    def look(mechanisms) -> dict[str, int]:
        seen.extend(mechanisms.stored_marginals())
        return {}

    vault.release(ReleaseRequest("synthesize", "look", {}), sf.Epsilon("0.1"), look)
    assert [(each.rho, each.noise.variance) for each in seen] == [(Fraction(1, 8), pytest.approx(7.8, abs=0.1))]


def test_an_analyst_sees_what_was_charged_to_that_name(tmp_path: Path) -> None:
    owner = opened(tmp_path, create=True)
    query.ask(owner, query.table("town"), loss=sf.Rho("0.5"))
    ada, bob = (opened(tmp_path, analyst=name) for name in ("ada", "bob"))
    query.ask(ada, query.table("age"), loss=sf.Rho("0.5"))
    assert [each.attributes for each in stored(ada)] == [("age",)]
    assert stored(bob) == ()
    query.ask(bob, query.table("town"), loss=sf.Rho("0.5"))  # a repeat, charged to bob
    assert [each.attributes for each in stored(bob)] == [("town",)]
    assert [each.attributes for each in stored(owner)] == [("town",), ("age",)]


def test_a_view_with_the_domain_of_its_table_has_marginals_of_its_own(tmp_path: Path) -> None:
    vault = opened(tmp_path, create=True)
    within = "SELECT town, COUNT(*) FROM (SELECT age, town FROM people WHERE age < 2) AS young GROUP BY town"
    query.sql(vault, within, loss=sf.Rho("0.5"))
    assert stored(vault) == ()
    preview = select_statement.parse("SELECT town, COUNT(*) FROM people GROUP BY town", vault.domain)
    assert released_rows(vault.ledger, vault.domain, preview, analyst=None) == ()
    query.ask(vault, query.table("town"), loss=sf.Rho("0.5"))
    assert [each.attributes for each in stored(vault)] == [("town",)]
    assert released_rows(vault.ledger, vault.domain, preview, analyst=None)[0] > 90


def test_other_data_and_another_domain_have_none(tmp_path: Path) -> None:
    vault = opened(tmp_path, create=True)
    query.ask(vault, query.table("town"), loss=sf.Rho("0.5"))
    longer = {**DOMAIN, "attributes": {**DOMAIN["attributes"]}}
    longer["attributes"]["age"] = {**DOMAIN["attributes"]["age"], "maximum": 10}
    assert stored(opened(tmp_path, domain=longer)) == ()
    assert len(stored(opened(tmp_path))) == 1
    assert stored(opened(tmp_path, seed=1, new_version=True)) == ()
    assert stored(opened(tmp_path, new_version=True)) == (), "the old content again is a version of its own"


def test_an_analyst_is_not_shown_what_was_made_of_answers_to_others(tmp_path: Path) -> None:
    """The loss of such a release does not cover what it reveals to an analyst who was not charged for those answers."""
    owner = opened(tmp_path, create=True)
    query.ask(owner, query.table("town"), loss=sf.Rho("0.5"))
    (marginal,) = stored(owner)

    def made_of(vault):
        request = ReleaseRequest("synthesize", "reusing", {})
        return vault.release(request, sf.Rho("0.1"), lambda _: {"reused": [marginal.entry]})

    made_of(owner)
    bob = opened(tmp_path, analyst="bob")
    entries = list(owner.ledger.journal())
    with pytest.raises(BudgetError, match="made of marginals that your account was not charged for"):
        made_of(bob)
    assert list(owner.ledger.journal()) == entries
    query.ask(bob, query.table("town"), loss=sf.Rho("0.5"))  # a repeat, charged to bob
    assert made_of(bob).payload["reused"] == [marginal.entry]
    assert bob.ledger.remaining("bob").spent.rho == Fraction(6, 10)


def test_a_release_that_came_in_between_is_not_shown_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = opened(tmp_path, create=True)
    query.ask(owner, query.table("town"), loss=sf.Rho("0.5"))
    request, (marginal,) = ReleaseRequest("synthesize", "reusing", {}), stored(owner)
    bob = opened(tmp_path, analyst="bob")
    reserve = bob.ledger.reserve

    def meanwhile(*question, **terms):  # questions to the ledger after all checks passed
        owner.release(request, sf.Rho("0.1"), lambda _: {"reused": [marginal.entry]})
        return reserve(*question, **terms)

    monkeypatch.setattr(bob.ledger, "reserve", meanwhile)
    with pytest.raises(BudgetError, match="not charged for"):
        bob.release(request, sf.Rho("0.1"), lambda _: {})
