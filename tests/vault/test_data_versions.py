"""A version is of the whole dataset: a repeat is free within it and charged in the next one, whatever changed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Unit, Unknown, parse
from sfumato.errors import VersionError
from sfumato.ledger import Kind, open_ledger
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.query.aggregates import Distinct
from sfumato.query.ask import ask
from sfumato.query.question import Query
from sfumato.vault.measurables import Marginal
from sfumato.vault.unit_measurables import Dropped

DOMAIN = Domain((Categorical(name="sex", values=("f", "m"), unknown=Unknown.DROP),), unit=Unit("person", rows=2))
LOSS = EpsilonDelta("0.5", "1e-7")
TENTH = Epsilon("0.1")


def people(*, towns: tuple[str, str] = ("Ulm", "Bonn"), rows: int = 2) -> pa.Table:
    """300 people, each with some rows, all in one town of two; the town is not in the domain."""
    who = [number for number in range(300) for _ in range(rows)]
    sexes, places = (["fm"[number % 2] for number in who], [towns[number % 2] for number in who])
    return pa.table({"person": who, "sex": sexes, "town": places})


def opened(folder: Path, table: pa.Table, *, new_version: bool = False) -> Any:
    path, ledger = folder / "people.parquet", folder / "people.ledger"
    pq.write_table(table, path)
    terms = {"limit": EpsilonDelta(20, "1e-3"), "create": not ledger.exists(), "new_version": new_version}
    return sf.open(str(path), domain=DOMAIN, ledger=f"sqlite:///{ledger}", **terms)


def releases(vault: Any) -> int:
    return [entry.kind for entry in vault.ledger.journal()].count(Kind.RELEASE)


@pytest.mark.parametrize(
    "changed",
    [
        people(towns=("Ulm", "Trier")),  # a column outside the domain
        people(rows=3),  # rows beyond the bound
        people().slice(0, 598),  # one person left
        people().append_column("more", pa.array([1] * 600)),
        people().rename_columns(["person", "sex", "place"]),
    ],
    ids=["unused column", "beyond the bound", "one person", "a column more", "a name"],
)
def test_a_changed_table_is_refused_and_charged_once_it_is_declared(tmp_path, changed):
    first = opened(tmp_path, people())
    (before,) = first.measure([Marginal(("sex",))], TENTH)
    with pytest.raises(VersionError, match=r"differ from version 1 .*new_version=True"):
        opened(tmp_path, changed)
    assert first.ledger.data_version().number == 1
    second = opened(tmp_path, changed, new_version=True)
    second.measure([Marginal(("sex",))], TENTH)
    second.measure([Marginal(("sex",))], TENTH)
    assert (releases(second), second.ledger.data_version().number) == (2, 2)
    third = opened(tmp_path, people(), new_version=True)
    (after,) = third.measure([Marginal(("sex",))], TENTH)
    assert releases(third) == 3
    assert before is not after


@pytest.mark.parametrize("same", [lambda table: table, lambda table: table.take(list(range(599, -1, -1)))])
def test_the_same_rows_in_any_order_are_the_same_version(tmp_path, same):
    for table in (people(), same(people()), same(people()).select(["town", "sex", "person"])):
        vault = opened(tmp_path, table)
        vault.measure([Marginal(("sex",))], TENTH)
    assert releases(vault) == 1
    assert len(vault.ledger.data_versions()) == 1


def test_the_rows_of_unchanged_files_are_not_read_once_more(tmp_path, monkeypatch):
    opened(tmp_path, people())
    monkeypatch.setattr("sfumato.engine.duckdb.duck_table.DuckTable.content", pytest.fail)
    assert opened(tmp_path, people()).version == "1"
    monkeypatch.undo()
    pq.write_table(people(), tmp_path / "again.parquet", compression="none")
    where = f"sqlite:///{tmp_path / 'people.ledger'}"
    assert sf.open(str(tmp_path / "again.parquet"), domain=DOMAIN, ledger=where).version == "1"


def test_a_vault_of_an_older_version_is_refused_before_it_is_charged(tmp_path):
    old = opened(tmp_path, people())
    old.measure([Marginal(("sex",))], TENTH)
    new = sf.open(people(rows=1), domain=DOMAIN, ledger=f"sqlite:///{tmp_path / 'people.ledger'}", new_version=True)
    before = new.ledger.verify()
    with pytest.raises(VersionError, match=r"version 2 of the data was declared.*nothing was charged"):
        old.measure([Marginal(())], TENTH)
    assert new.ledger.verify() == before


def test_values_that_are_found_are_of_the_declared_version(tmp_path):
    query = Query((Distinct(),), data_dependent_groups=("town",))
    found = []
    for towns in (("Ulm", "Bonn"), ("Ulm", "Trier")):
        vault = opened(tmp_path, people(towns=towns), new_version=True)
        threshold = vault.threshold(("town",), LOSS)
        assert vault.threshold(("town",), LOSS).equals(threshold)
        asked = sorted(key for (key,) in ask(vault, query, loss=LOSS).keys)
        assert set(threshold["town"].to_pylist()) == set(asked)
        found.append(asked)
    assert found == [["Bonn", "Ulm"], ["Trier", "Ulm"]]
    assert releases(vault) == 4


def test_what_counts_rows_beyond_the_bound_is_charged_like_any_question(tmp_path):
    for rows in (3, 5):  # two of them count
        vault = opened(tmp_path, people(rows=rows), new_version=True)
        for asked in (Dropped(most=8, where=None), Marginal(("sex",))):
            vault.measure([asked], TENTH)
            vault.measure([asked], TENTH)
    assert vault.ledger.remaining().spent.rho == 4 * TENTH.charge.rho


def test_one_row_outside_a_condition_changes_no_identity(tmp_path):
    """Otherwise a free repeat would reveal whether a person came or left, even outside its condition."""
    domain = parse(
        {
            "sfumato": 1,
            "unit": "row",
            "attributes": {"age": {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "clamp"}},
        }
    )
    for day, rows in enumerate(([1, 2, 3], [1, 2, 3], [1, 2, 3, 9], [1, 2, 3])):
        costs = []
        for new in (True, False):
            vault = sf.open(
                pa.table({"age": rows}),
                domain=domain,
                ledger=f"sqlite:///{tmp_path / 'one.ledger'}",
                limit=Epsilon(1),
                create=new and not day,
                new_version=new,
            )
            costs.append(sf.query.ask(vault, sf.query.count("age < 5"), loss=Epsilon("0.001")).cost)
        assert [cost.startswith("nothing") for cost in costs] == [False, True]


def test_a_ledger_without_a_version_takes_the_first_one(tmp_path):
    with open_ledger(
        f"sqlite:///{tmp_path / 'people.ledger'}", dataset="default", limit=EpsilonDelta(20, "1e-3"), create=True
    ) as ledger:
        assert ledger.data_version() is None
    vault = opened(tmp_path, people())
    assert vault.version == "1"
    assert vault.ledger.remaining().spent.rho == Fraction(0)
