"""Joins that multiply rows keep declared rows of a unit before, and are refused by a product of public numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from tests.hospital import DOCUMENT, schema

from sfumato.domain.predicate import Among
from sfumato.domain.table_schema import parse_schema
from sfumato.domain.unit_views import AtMost, WithFacts, WithGap, bounded_joins
from sfumato.domain.view import Filter, Join, OfUnits, PerUnit, RowCount, Scan, View
from sfumato.errors import DomainError, QueryError

HOSPITAL = schema()
REPEATS = {("icd", "code"): 1, ("icd_block", "code"): 2}


def scan(name: str, alias: str | None = None) -> Scan:
    prefix = "" if alias is None else f"{alias}."
    return Scan(HOSPITAL[name], alias or name, tuple(prefix + each.name for each in HOSPITAL[name].attributes))


VISITS, PATIENTS, DRUGS, DIAGNOSES = (scan(name) for name in ("visits", "patients", "drugs", "diagnoses"))
OTHERS, ERAS = scan("visits", "w"), scan("drug_era")
COUNTS = PerUnit(VISITS, (), (("n", RowCount(40)),))
BY_KIND = PerUnit(VISITS, ("kind",), (("n", RowCount(40)),))
BY_DAY = PerUnit(VISITS, ("admitted",), (("n", RowCount(40)),))
ICD, BLOCKS = Join(DIAGNOSES, scan("icd"), ((2, 0),)), Join(DIAGNOSES, scan("icd_block"), ((2, 0),))
PAIRS = Join(VISITS, OTHERS, ())

MULTIPLY_NOTHING: dict[str, View] = {
    "one table": VISITS,
    "with the table of units": Join(VISITS, PATIENTS, ()),
    "from the table of units": Join(PATIENTS, VISITS, ()),
    "every unit, with its rows": Join(PATIENTS, VISITS, (), outer=True),
    "by a key of the right": Join(DRUGS, VISITS, ((1, 0),)),
    "by a key of the left": Join(VISITS, DRUGS, ((0, 1),)),
    "by a key of the left, with rows that have none": Join(VISITS, DRUGS, ((0, 1),), outer=True),
    "by keys twice": Join(Join(DRUGS, VISITS, ((1, 0),)), PATIENTS, ()),
    "by a key of filtered rows": Join(DRUGS, Filter(VISITS, Among("kind", frozenset({1}))), ((1, 0),)),
    "by a key of rows with gaps": Join(DRUGS, WithGap(VISITS, "gap", "admitted", 0, 9), ((1, 0),)),
    "with one row of each unit": Join(VISITS, replace(COUNTS, source=OTHERS), ()),
    "public": ICD,
    "of units elsewhere": OfUnits(VISITS, DRUGS),
    "beside facts": WithFacts(VISITS, PerUnit(DRUGS, (), (("n", RowCount(9)),))),
}


@pytest.mark.parametrize("view", MULTIPLY_NOTHING.values(), ids=MULTIPLY_NOTHING)
def test_a_join_that_multiplies_nothing_keeps_all_rows(view: View) -> None:
    assert bounded_joins(view, HOSPITAL, REPEATS) == view


def kept(view: View) -> Iterator[tuple[int, set[str]]]:
    """The numbers that are kept, with the private tables of whose rows, from the top of a view."""
    if isinstance(view, AtMost):
        yield view.rows, {table.name for table in view.tables if not table.public}
    for each in fields(view):  # type: ignore[arg-type]
        part = getattr(view, each.name)
        if isinstance(part, View):
            yield from kept(part)


MULTIPLY: dict[str, tuple[View, list[tuple[int, set[str]]]]] = {
    "by the unit": (PAIRS, [(6, {"visits"}), (6, {"visits"})]),
    "by a key that both refer to": (Join(DRUGS, DIAGNOSES, ((1, 1),)), [(8, {"drugs"}), (5, {"diagnoses"})]),
    "outer": (Join(VISITS, OTHERS, (), outer=True), [(6, {"visits"}), (6, {"visits"})]),
    "without keys": (Join(ERAS, VISITS, ()), [(4, {"drug_era"}), (6, {"visits"})]),
    "three": (Join(PAIRS, ERAS, ()), [(6, {"visits"}), (6, {"visits"}), (4, {"drug_era"})]),
    "of a join by a key": (
        Join(Join(DRUGS, VISITS, ((1, 0),)), OTHERS, ()),
        [(8, {"drugs", "visits"}), (6, {"visits"})],
    ),
    "by a key of rows that were multiplied": (
        Join(DRUGS, Join(VISITS, ERAS, ()), ((1, 0),)),
        [(8, {"drugs"}), (6, {"visits"}), (4, {"drug_era"})],
    ),
    "few groups of each unit": (Join(BY_KIND, ERAS, ()), [(4, {"drug_era"})]),
    "many groups of each unit": (Join(BY_DAY, ERAS, ()), [(6, {"visits"}), (4, {"drug_era"})]),
    "public, several rows with one key": (BLOCKS, [(5, {"diagnoses"})]),
    "inside a statement of one row a unit": (
        PerUnit(PAIRS, (), (("n", RowCount(40)),)),
        [(6, {"visits"}), (6, {"visits"})],
    ),
    "units elsewhere": (OfUnits(PATIENTS, PAIRS), [(6, {"visits"}), (6, {"visits"})]),
    "facts": (
        WithFacts(PATIENTS, PerUnit(PAIRS, (), (("n", RowCount(40)),))),
        [(6, {"visits"}), (6, {"visits"})],
    ),
    "on top of what is kept": (Join(AtMost(VISITS, 2), ERAS, ()), [(2, {"visits"}), (4, {"drug_era"})]),
}


@pytest.mark.parametrize(("view", "numbers"), MULTIPLY.values(), ids=MULTIPLY)
def test_each_private_side_of_a_join_that_multiplies_keeps_its_declared_rows(
    view: View, numbers: list[tuple[int, set[str]]]
) -> None:
    found = bounded_joins(view, HOSPITAL, REPEATS)
    assert list(kept(found)) == numbers
    assert (found.attributes, found.keys, found.hierarchies) == (view.attributes, view.keys, view.hierarchies)
    assert bounded_joins(found, HOSPITAL, REPEATS) == found, "bounding twice changes nothing"


def test_a_product_of_declared_numbers_that_is_too_large_is_refused() -> None:
    """6 x 8 x 5 x 6 x 4 is 5,760 rows of one unit; twice as many are more than 10,000."""
    largest = Join(Join(Join(Join(VISITS, DRUGS, ()), DIAGNOSES, ()), OTHERS, ()), ERAS, ())
    assert sum(1 for _ in kept(bounded_joins(largest, HOSPITAL, REPEATS))) == 5
    once_more = Join(largest, scan("icd_block"), ((5, 0),))
    message = (
        r"6 of visits x 8 of drugs x 5 of diagnoses x 6 of visits x 4 of drug_era x 2 of icd_block = 11,520 rows of"
    )
    with pytest.raises(QueryError, match=f"{message} one patient_id, more than 10,000"):
        bounded_joins(once_more, HOSPITAL, REPEATS)


def test_a_refusal_looks_at_declared_numbers_alone() -> None:
    document = DOCUMENT | {"tables": DOCUMENT["tables"] | {"visits": DOCUMENT["tables"]["visits"] | {"rows": 101}}}
    many = parse_schema(document)
    visits = Scan(many["visits"], "visits", VISITS.called)
    with pytest.raises(QueryError, match=r"101 of visits x 101 of visits = 10,201"):
        bounded_joins(Join(visits, Scan(many["visits"], "w", OTHERS.called), ()), many, REPEATS)
    assert bounded_joins(visits, many, REPEATS) == visits


def test_a_draft_says_which_number_a_join_needs() -> None:
    declared = {"rows", "per"}
    tables = {name: {key: said[key] for key in said.keys() - declared} for name, said in DOCUMENT["tables"].items()}
    draft = parse_schema(DOCUMENT | {"draft": True, "tables": tables})
    visits, others = (Scan(draft["visits"], each.alias, each.called) for each in (VISITS, OTHERS))
    assert bounded_joins(visits, draft, REPEATS) == visits
    with pytest.raises(DomainError, match="visits still needs rows"):
        bounded_joins(Join(visits, others, ()), draft, REPEATS)
