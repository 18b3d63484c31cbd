"""Bounds by groups in a document: what they say, how they are read back, and what is refused."""

from __future__ import annotations

from datetime import date

import pytest

from sfumato.domain import Categorical, Date, Domain, Grain, GroupBound, Unit, Unknown, dump, parse
from sfumato.errors import DomainError, InputError
from sfumato.ledger.account import unit_from, unit_text
from sfumato.strict_documents import read_yaml

TEXT = """
sfumato: 1
unit: {id: patient, rows: 40, per: {drug: 3, month(admitted): {rows: 4, groups: 12}, "drug, weekday(admitted)": 1}}
attributes:
  admitted: {type: date, first: 2023-01-01, last: 2024-12-31, by: day, unknown: drop}
  drug: {type: categorical, values: [a, b], unknown: drop}
"""
BOUNDS = (
    GroupBound(("drug",), rows=3),
    GroupBound(("drug", "weekday(admitted)"), rows=1),
    GroupBound(("month(admitted)",), rows=4, groups=12),
)


def read(text: str) -> Domain:
    return parse(read_yaml(text, name="it"))


def test_a_document_says_its_bounds_and_is_read_back() -> None:
    domain = read(TEXT)
    assert domain.unit == Unit("patient", rows=40, per=BOUNDS)
    assert read(dump(domain)) == domain
    assert unit_from(unit_text(domain.unit)) == domain.unit
    assert str(domain.unit) == (
        "adding or removing all rows of one patient (at most 40, at most 3 in one drug, at most 1 in one drug and "
        "weekday(admitted), at most 4 in one month(admitted), in at most 12 of them)"
    )


def test_the_order_of_bounds_changes_nothing_and_a_bound_changes_the_hash() -> None:
    domain = read(TEXT)
    other = read(TEXT.replace('"drug, weekday(admitted)": 1', '" weekday(admitted) ,drug ": {rows: 1}'))
    assert Unit("patient", rows=40, per=BOUNDS[::-1]) == domain.unit == other.unit
    assert other.hash == domain.hash
    assert read(TEXT.replace("groups: 12", "groups: 13")).hash != domain.hash


def test_a_document_without_bounds_by_groups_is_unchanged() -> None:
    plain = Domain(read(TEXT).attributes, unit=Unit("patient", rows=40))
    assert plain.describe()["unit"] == {"id": "patient", "rows": 40}
    assert unit_text(plain.unit) == '{"id":"patient","kind":"id","rows":40}'
    assert plain.hash == "4989ed0e755317e697564ee653bdf910fae9f845e3d36ff7689ea587b98feec9"


def test_a_name_with_a_comma_is_one_attribute() -> None:
    odd = Categorical(name="a, b", values=("x", "y"), unknown=Unknown.DROP)
    domain = Domain((odd,), unit=Unit("p", rows=3, per=(GroupBound(("a, b",), rows=1),)))
    assert parse(domain.describe()) == domain


def test_a_part_of_a_domain_keeps_the_bounds_that_are_about_it() -> None:
    assert read(TEXT).project(["drug"]).unit.per == BOUNDS[:1]
    assert read(TEXT).project(["drug", "admitted"]).unit.per == BOUNDS


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("drug: 3", "dose: 3", "no attribute 'dose'"),
        ("month(admitted)", "fortnight(admitted)", "fortnight"),
        ("drug: 3", "drug: 0", "per.drug"),
        ("drug: 3", "drug: {groups: 2}", "per.drug"),
        ("drug: 3", "drug: 3.0", "at least one row in a cell"),
        ("drug: 3", "2023: 3", "write 2023 in quotes"),
        ("groups: 12", "groups: 0", "groups"),
        ("groups: 12", "cells: 12", "per"),
        ('"drug, weekday(admitted)": 1', '"drug, drug": 1', "names each grouping once"),
        ('"drug, weekday(admitted)": 1', '" drug": 1', "two bounds by the same groups"),
        ("{id: patient, rows: 40,", "{id: patient,", "unit"),
    ],
)
def test_a_bound_that_says_nothing_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(DomainError, match=said.replace("(", r"\(")):
        read(TEXT.replace(old, new))


def test_bounds_that_are_none_are_refused_in_python() -> None:
    with pytest.raises(DomainError, match="needs the column"):
        Unit(per=BOUNDS)
    with pytest.raises(DomainError, match="not True"):
        GroupBound(("drug",), rows=True)
    with pytest.raises(InputError, match="GroupBound, not str"):
        Unit("patient", rows=3, per=["drug"])  # type: ignore[list-item]
    wide = tuple(
        Date(name=f"d{n}", first=date(2000, 1, 1), last=date(2009, 12, 31), by=Grain.DAY, unknown=Unknown.DROP)
        for n in range(6)  # 3653 to the power of 6 is more than 2 to the power of 63
    )
    with pytest.raises(DomainError, match="too many cells"):
        Domain(wide, unit=Unit("p", rows=2, per=(GroupBound(tuple(each.name for each in wide), rows=1),)))
