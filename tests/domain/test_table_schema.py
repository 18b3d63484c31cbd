"""Documents of several tables: what is read back, what is refused, and in which words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hospital import DOCUMENT, schema

from sfumato.domain import Unit
from sfumato.domain.table_schema import dump_schema, load_schema, parse_schema
from sfumato.domain.unit import GroupBound
from sfumato.errors import DomainError
from sfumato.strict_documents import read_yaml

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    change(document)
    return document


def test_a_document_is_read_back_to_an_equal_schema(tmp_path: Path) -> None:
    read = schema()
    assert parse_schema(read_yaml(dump_schema(read))) == read
    assert parse_schema(json.loads(json.dumps(DOCUMENT))) == read
    path = tmp_path / "hospital.yaml"
    path.write_text(dump_schema(read), encoding="utf-8")
    assert load_schema(path) == read
    assert load_schema(path).hash == read.hash


def test_a_view_has_the_bounds_of_its_first_table() -> None:
    read = schema()
    assert read.bounds("patients") == Unit("patient_id", rows=1, schema="hospital")
    month = GroupBound(("month(admitted)",), rows=2, groups=4)
    assert read.bounds("visits") == Unit("patient_id", rows=6, per=[month], schema="hospital")


def test_units_are_found_by_a_column_or_through_another_table() -> None:
    read = schema()
    assert [read.unit_column(table.name) for table in read] == [
        "patient_id",
        "patient_id",
        None,
        None,
        "person_id",
        None,
        None,
    ]
    assert [link.table for link in read["diagnoses"].links] == ["visits", "icd"]


def test_the_digest_leaves_out_who_accepted_and_nothing_else() -> None:
    draft = parse_schema(changed(lambda d: d.update(draft=True)))
    assert draft.hash == schema().hash
    fewer = parse_schema(changed(lambda d: d["tables"]["visits"].update(rows=5)))
    assert fewer.hash != schema().hash


def test_a_draft_may_leave_bounds_open_and_is_not_released_under() -> None:
    draft = parse_schema(changed(lambda d: (d.update(draft=True), d["tables"]["drugs"].pop("rows"))))
    with pytest.raises(DomainError, match="accept it before releasing"):
        draft.refuse_draft()


REFUSED: list[tuple[str, Change, str]] = [
    ("no tables", lambda d: d.pop("tables"), "'tables' is missing"),
    ("unknown word", lambda d: d["tables"]["visits"].update(owner="x"), "tables.visits: 'owner' is not known there"),
    ("a domain of one table", lambda d: d.update(sfumato=1), "begins with 'sfumato: 2'"),
    ("version true", lambda d: d.update(sfumato=True), "begins with 'sfumato: 2'"),
    ("nobody's rows", lambda d: d["tables"]["visits"].pop("unit"), "the owner of the rows of visits is not declared"),
    ("no bound", lambda d: d["tables"]["visits"].pop("rows"), "visits still needs rows"),
    (
        "no row at all",
        lambda d: d["tables"]["visits"].update(rows=0),
        "tables.visits.rows is a whole number from 1 on",
    ),
    (
        "two owners",
        lambda d: d["tables"]["drugs"].update(unit="patient_id"),
        "it stays unprotected; remove the line unit: patient_id or through: {visit_id: ...} under tables.drugs",
    ),
    (
        "a second person in a row",
        lambda d: d["tables"]["drug_era"].update(references={"doctor": "patients"}),
        "it stays unprotected; remove the line references: {doctor: patients} under tables.drug_era",
    ),
    (
        "through two tables",
        lambda d: d["tables"]["drugs"].update(through={"visit_id": "visits", "dx_id": "diagnoses"}),
        "drugs names two units in a row",
    ),
    ("through nothing", lambda d: d["tables"]["drugs"].update(through={"visit_id": "stays"}), "no table 'stays'"),
    ("through a public table", lambda d: d["tables"]["drugs"].update(through={"code": "icd"}), "icd, which is public"),
    (
        "through itself",
        lambda d: d["tables"]["drugs"].update(through={"rx_id": "drugs"}),
        "drugs belongs to itself",
    ),
    ("a key that is none", lambda d: d["tables"]["visits"].pop("key"), "visits, which declares no key"),
    ("a public bound", lambda d: d["tables"]["icd"].update(rows=3), "icd is public"),
    (
        "public about private",
        lambda d: d["tables"]["icd"].update(references={"visit": "visits"}),
        "icd is public and refers to visits, which is not: remove visit under tables.icd.references",
    ),
    (
        "the id as an attribute",
        lambda d: d["tables"]["visits"]["attributes"].update(
            patient_id={"type": "integer", "minimum": 0, "maximum": 9, "unknown": "drop"}
        ),
        "identifies people",
    ),
    ("an odd name", lambda d: d["tables"].update({"a b": d["tables"].pop("icd")}), "word of letters"),
    ("same name", lambda d: d["tables"].update(Visits=d["tables"]["visits"]), "two tables of one name"),
    (
        "an attribute that is wrong",
        lambda d: d["tables"]["visits"]["attributes"]["cost"].pop("unknown"),
        "tables.visits: the domain is wrong at attributes.cost",
    ),
    ("units nowhere", lambda d: d["unit"].update(table="people"), "no table 'people'"),
    ("units in a public table", lambda d: d["unit"].update(table="icd"), "icd lists the units"),
    (
        "a bound by groups",
        lambda d: d["tables"]["visits"].update(per={"kind": 0}),
        "at least one row",
    ),
    ("words for numbers", lambda d: d["tables"]["visits"].update(rows="6"), "tables.visits.rows: a whole number"),
]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_no_schema_is_refused_with_its_place(change: Change, words: str) -> None:
    with pytest.raises(DomainError) as refused:
        parse_schema(changed(change))
    assert words in str(refused.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="cannot read the schema"):
        load_schema(tmp_path / "none.yaml")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DomainError, match="this is no schema"):
        load_schema(tmp_path / "table.csv")
