"""One ledger over several tables: one budget, one unit, and two questions for two views."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.hospital import database, frames, schema

import sfumato as sf
from sfumato.anonymize import KAnonymity
from sfumato.domain import Unit
from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.domain.predicate import Among
from sfumato.domain.table_schema import Schema, dump_schema
from sfumato.domain.unit import Acceptance
from sfumato.domain.view import BoundedView, Filter, Join, OfUnits, Scan
from sfumato.engine.exact import reveal
from sfumato.errors import (
    BudgetError,
    DomainError,
    InfeasibleError,
    LedgerError,
    QueryError,
    TableError,
    UnitError,
    VersionError,
)
from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon
from sfumato.query import count, table
from sfumato.synthesize import PublicTotal
from sfumato.vault.schema_vault import SchemaVault, open_schema

HOSPITAL = schema()


def scan(name: str) -> Scan:
    return Scan(HOSPITAL[name], name, tuple(each.name for each in HOSPITAL[name].attributes))


VISITS = BoundedView(scan("visits"), HOSPITAL.bounds("visits"))
BY_SEX = BoundedView(Join(scan("visits"), scan("patients"), ()), HOSPITAL.bounds("visits"))


def opened(
    folder: Path, *, limit: str = "1", create: bool = True, described: Schema = HOSPITAL, new_version: bool = False
) -> SchemaVault:
    return open_schema(
        frames(database(0)),
        schema=described,
        ledger=f"sqlite:///{folder / 'hospital.ledger'}",
        limit=Epsilon(limit),
        create=create,
        new_version=new_version,
    )


def test_views_are_charged_to_one_budget(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.4"))
    sf.query.ask(vault.for_view(BY_SEX), table("sex"), loss=Epsilon("0.4"))
    assert vault.remaining.spent.epsilon == Fraction(8, 10)
    with pytest.raises(BudgetError):
        sf.query.ask(vault.for_view(VISITS), table("kind"), loss=Epsilon("0.4"))
    assert vault.remaining.spent.epsilon == Fraction(8, 10)


def test_whether_any_row_is_as_the_schema_says_is_not_told(tmp_path: Path) -> None:
    tables = frames(database(0))
    drugs = tables["drugs"]
    place = drugs.schema.get_field_index("dose")
    tables["drugs"] = drugs.set_column(place, "dose", pa.array(["a spoonful"] * len(drugs)))
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    open_schema(
        tables, schema=HOSPITAL, ledger=ledger, limit=Epsilon(1), create=True
    )  # one person may have the only row


@pytest.mark.parametrize("column", ["rx_id", "visit_id", "dose"])
def test_a_missing_column_is_named_with_its_table(tmp_path: Path, column: str) -> None:
    tables = frames(database(0))
    tables["drugs"] = tables["drugs"].drop_columns([column])
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    with pytest.raises(TableError, match=f"drugs has no column '{column}'"):
        open_schema(tables, schema=HOSPITAL, ledger=ledger, limit=Epsilon(1), create=True)


def test_a_question_of_one_view_is_answered_once_and_of_another_anew(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    first = sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.2"))
    again = sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.2"))
    assert again.values == first.values
    assert vault.remaining.spent.epsilon == Fraction(2, 10)
    everything = Filter(scan("visits"), Among("kind", frozenset(range(4))))
    other = vault.for_view(BoundedView(everything, HOSPITAL.bounds("visits")))
    sf.query.ask(other, count(), loss=Epsilon("0.2"))  # the same rows, which nobody may learn for nothing
    assert vault.remaining.spent.epsilon == Fraction(4, 10)


def test_the_guarantee_names_the_unit_of_the_schema(tmp_path: Path) -> None:
    answer = sf.query.ask(opened(tmp_path).for_view(VISITS), count(), loss=Epsilon("0.2"))
    assert "all rows of one patient_id of hospital, in all its tables (at most 6, at most 2 in one month" in str(
        answer.guarantee
    )


def test_noise_is_scaled_to_the_bounds_of_the_view(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    by_month = sf.query.ask(vault.for_view(VISITS), table("month(admitted)"), loss=Epsilon("0.1"))
    (error,) = set(by_month.expected_error.values())
    scale = 6 / 0.1  # L1 of statement 5
    assert error == pytest.approx(scale * 2**0.5, rel=0.01)


@pytest.mark.parametrize("unit", [Unit("patient_id", rows=6), Unit.row(), Unit("patient_id", schema="clinic")])
def test_a_ledger_of_another_unit_is_refused(tmp_path: Path, unit: Unit) -> None:
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    open_ledger(ledger, dataset="default", limit=Epsilon(1), unit=unit, create=True)
    with pytest.raises(UnitError, match="patient_id of hospital"):
        opened(tmp_path, create=False)


def test_a_ledger_of_a_schema_refuses_a_single_table_of_it(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(UnitError, match="patient_id of hospital"):
        open_ledger(
            f"sqlite:///{tmp_path / 'hospital.ledger'}", dataset="default", limit=None, unit=Unit("patient_id", rows=6)
        )


def test_an_old_ledger_takes_the_unit_from_its_next_release(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    open_ledger(ledger, dataset="default", limit=Epsilon(1), create=True)
    vault = open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger)
    sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.1"))
    with pytest.raises(UnitError):
        open_ledger(ledger, dataset="default", limit=None, unit=Unit("patient_id", rows=6))


def test_the_ledger_lies_beside_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "hospital.yaml"
    path.write_text(dump_schema(HOSPITAL), encoding="utf-8")
    open_schema(frames(database(0)), schema=path, limit=Epsilon(1), create=True)
    assert (tmp_path / "hospital.ledger").exists()
    with pytest.raises(LedgerError, match="name a ledger"):
        open_schema(frames(database(0)), schema=HOSPITAL, limit=Epsilon(1), create=True)


@pytest.mark.parametrize("by", [None, "Ann"])
def test_the_journal_says_who_accepted_the_schema(tmp_path: Path, by: str | None) -> None:
    at = "2026-01-01T00:00:00Z"
    accepted = None if by is None else Acceptance(by, at, Acceptance.sign(HOSPITAL.hash, by, at))
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    described = replace(HOSPITAL, acceptance=accepted)
    vault = open_schema(frames(database(0)), schema=described, ledger=ledger, limit=Epsilon(1), create=True)
    sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.1"))
    with open_ledger(ledger, dataset="default", limit=None) as opened_again:
        _, entry = opened_again.journal()
    assert entry.accepted == ("nobody" if by is None else f"{by}, {at}")


def test_a_draft_is_refused_before_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hospital.yaml"
    path.write_text(dump_schema(HOSPITAL).replace("draft: false", "draft: true"), encoding="utf-8")
    with pytest.raises(DomainError, match="draft"):
        open_schema(tmp_path / "nowhere", schema=path, limit=Epsilon(1), create=True)
    assert not (tmp_path / "hospital.ledger").exists()


def test_a_view_for_other_units_is_refused(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    with pytest.raises(QueryError, match="not the patient_id of hospital"):
        vault.for_view(BoundedView(scan("visits"), Unit("patient_id", rows=6)))


def test_a_view_is_anonymised(tmp_path: Path) -> None:
    release = sf.anonymize.mondrian(opened(tmp_path).for_view(BY_SEX), quasi=["sex", "kind"], criteria=[KAnonymity(2)])
    assert len(release.rows) > 0
    assert "counted in units: one patient_id counts once in a class" in release.guarantee
    assert release.facts["smallest_class"] == release.decision.recount.sizes.min() >= 2
    assert (release.decision.recount.sizes < release.decision.recount.counts).any()
    with pytest.raises(TableError):  # a view has only its attributes as columns
        sf.anonymize.mondrian(
            opened(tmp_path, create=False).for_view(BY_SEX), quasi=["sex"], criteria=[KAnonymity(2)], keep=["visit_id"]
        )


def test_rows_over_the_bound_of_a_view_are_told_where_no_recoding_is_found(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    unit = HOSPITAL.bounds("visits").bounded(rows=1, per=())
    cut = vault.for_view(replace(BY_SEX, unit=unit))
    over = reveal(cut.encoded.unbounded()) - reveal(cut.encoded.rows_before_drop())
    assert over > 0
    for k in (2, 1000):
        with pytest.raises(InfeasibleError, match=rf"\({over} over the rows that one unit may have"):
            sf.anonymize.optimal(cut, quasi=["sex"], criteria=[KAnonymity(k)], suppression="0")


def test_a_view_of_tables_that_are_described_otherwise_is_refused(tmp_path: Path) -> None:
    """A private table declared public would be joined without the unit, and other cells would be misread."""
    vault = opened(tmp_path)
    unprotected = replace(HOSPITAL["visits"], public=True, unit=None, rows=None, per=())
    regions = Scan(replace(HOSPITAL["patients"], attributes=HOSPITAL["patients"].attributes[:1]), "p", ("sex",))
    joined = Join(scan("drugs"), Scan(unprotected, "v", scan("visits").called), ((1, 0),))
    for view in (joined, regions, OfUnits(scan("visits"), regions), Join(scan("visits"), regions, ())):
        with pytest.raises(QueryError, match="describes otherwise"):
            vault.for_view(BoundedView(view, HOSPITAL.bounds("visits")))


def test_units_are_those_of_a_schema_that_says_more_of_other_tables(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    visits = ChildTable(table=HOSPITAL["visits"], most=2)
    fewer = replace(HOSPITAL, tables=tuple(each for each in HOSPITAL if each.name != "drug_era"))
    assert len(vault.of_units(LinkedTables(schema=fewer, children=(visits,))).domain) > 2
    renamed = replace(HOSPITAL, name="clinic")
    with pytest.raises(QueryError, match="not of the patient_id of hospital"):
        vault.of_units(LinkedTables(schema=renamed, children=(visits,)))
    other = replace(HOSPITAL["visits"], rows=5)
    tables = tuple(other if each.name == "visits" else each for each in HOSPITAL)
    described = LinkedTables(schema=replace(HOSPITAL, tables=tables), children=(ChildTable(table=other, most=2),))
    with pytest.raises(QueryError, match="describes a linked table differently"):
        vault.of_units(described)


def test_every_family_takes_a_view(tmp_path: Path) -> None:
    vault = opened(tmp_path, limit="100")
    rows = sf.synthesize.mst(vault.for_view(BY_SEX), loss=Epsilon(50), total=PublicTotal(50))
    assert set(rows.rows.columns) == set(BY_SEX.domain.names)
    assert "patient_id of hospital" in str(rows.guarantee)


def _described(**changes: Any) -> Schema:
    tables = tuple(replace(each, **changes) if each.name == "visits" else each for each in HOSPITAL)
    return replace(HOSPITAL, tables=tuple(each for each in tables if each.name in ("patients", "visits")))


@pytest.mark.parametrize(
    "changes",
    [{"public": True, "unit": None, "rows": None, "per": ()}, {"unit": "kind", "attributes": (), "per": ()}],
    ids=["public", "of another column"],
)
def test_another_schema_of_that_name_may_not_say_that_rows_are_somebody_elses(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    vault = opened(tmp_path)
    sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.2"))
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    with pytest.raises(UnitError, match="the rows of visits are of the unit that patient_id names"):
        open_schema(frames(database(0)), schema=_described(**changes), ledger=ledger)


def test_two_schemas_that_are_open_at_once_may_not_contradict_each_other(tmp_path: Path) -> None:
    vault = opened(tmp_path, described=_described())
    public = _described(public=True, unit=None, rows=None, per=())
    other = open_schema(frames(database(0)), schema=public, ledger=f"sqlite:///{tmp_path / 'hospital.ledger'}")
    sf.query.ask(vault.for_view(VISITS), count(), loss=Epsilon("0.2"))
    patients = BoundedView(Scan(HOSPITAL["patients"], "patients", ("sex", "region")), HOSPITAL.bounds("patients"))
    with pytest.raises(UnitError, match="their losses do not add up"):
        other.for_view(patients)


def test_schemas_that_passed_at_once_are_told_apart_when_they_are_charged(tmp_path: Path) -> None:
    first = opened(tmp_path, described=_described())
    kept = tuple(each for each in HOSPITAL["visits"].attributes if each.name != "kind")
    changed = _described(unit="kind", attributes=kept, per=())
    other = open_schema(frames(database(0)), schema=changed, ledger=f"sqlite:///{tmp_path / 'hospital.ledger'}")
    late = other.for_view(
        BoundedView(Scan(changed["visits"], "visits", tuple(each.name for each in kept)), changed.bounds("visits"))
    )
    sf.query.ask(first.for_view(VISITS), count(), loss=Epsilon("0.2"))
    for _ in range(2):
        with pytest.raises(UnitError, match="their losses do not add up"):
            sf.query.ask(late, count(), loss=Epsilon("0.2"))
    assert first.remaining.spent.epsilon == Fraction(2, 10)
    sf.query.ask(first.for_view(VISITS), count(), loss=Epsilon("0.3"))
    assert first.ledger.recorded_owners()[0] == 3  # entries


def test_a_schema_may_take_further_tables_and_other_bounds(tmp_path: Path) -> None:
    fewer = _described(rows=3)
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    first = open_schema(frames(database(0)), schema=fewer, ledger=ledger, limit=Epsilon(1), create=True)
    seen = Scan(fewer["visits"], "visits", scan("visits").called)
    sf.query.ask(first.for_view(BoundedView(seen, fewer.bounds("visits"))), count(), loss=Epsilon("0.2"))
    with pytest.raises(VersionError, match="differ from version 1"):
        opened(tmp_path, create=False)
    sf.query.ask(opened(tmp_path, create=False, new_version=True).for_view(VISITS), count(), loss=Epsilon("0.2"))
