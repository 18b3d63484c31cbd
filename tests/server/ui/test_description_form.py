"""The form of a description says what its document says, and what is wrong in a field is named."""

from __future__ import annotations

import copy

import pytest
from tests.server.hospital import SCHEMA
from tests.server.serving import DOMAIN, VISITS

from sfumato.domain import parse
from sfumato.domain.table_schema import parse_schema
from sfumato.errors import DomainError, InputError
from sfumato_server.ui.description_form import form_fields, parse_fields, summary, table_forms, with_attribute

RICH = {
    "sfumato": 1,
    "draft": True,
    "unit": {"id": "person", "rows": 3, "per": {"month(day)": {"rows": 2, "groups": 4}, "sex": 1}},
    "csv": {"delimiter": ";", "decimal": ","},
    "attributes": {
        "age": {
            "type": "integer",
            "minimum": 0,
            "maximum": 99,
            "edges": [0, 18, 65],
            "unknown": "clamp",
            "typical": 70,
        },
        "odd": {"type": "categorical", "values": ['"a"', " b", "", "c\nd", "e"], "unknown": "drop", "nullable": True},
        "code": {"type": "categorical", "values": [1, 2, 30], "unknown": "category", "role": "target"},
        "sex": {"type": "categorical", "values": [True, False], "unknown": "drop"},
        "weight": {"type": "real", "edges": [0, 0.5, 1e300], "unknown": "clamp", "role": "weight"},
        "day": {"type": "date", "first": "2023-01-01", "last": "2023-12-31", "by": "month", "unknown": "drop"},
        "at": {"type": "timestamp", "first": "2023-01-01", "last": "2023-01-02", "by": "hour", "zone": "UTC"}
        | {"unknown": "drop"},
        "pay": {"type": "real", "edges": [-1, 0, 2.5, 100], "points": [0, 2.5, 100], "unknown": "clamp"}
        | {"missing": [999, -9.5, "", "?", "n/a", "NO"]},
        "born": {"type": "date", "first": "1923-01-01", "last": "2023-12-31", "by": "year", "unknown": "drop"}
        | {"format": ["%d.%m.%Y", "excel"], "missing": []},
        "smoker": {
            "type": "categorical",
            "values": ["no", "yes"],
            "unknown": "drop",
            "spellings": {"no": ["NO", "n\no "]},
        },
    },
    "missing": ["NA", 9],
    "hierarchies": {"code": {"rows": [[1, "x"], [2, "x"], [30, "y"]], "levels": ["kind"]}},
}


@pytest.mark.parametrize("document", [DOMAIN, VISITS, RICH], ids=["people", "visits", "rich"])
def test_a_domain_comes_back_from_its_form(document):
    assert parse(parse_fields(form_fields(document))) == parse({**document, "draft": True})


def test_a_schema_comes_back_from_its_form():
    document = copy.deepcopy(SCHEMA)
    document["tables"]["visits"] |= {
        "per": {"cost": 2},
        "derived": {"dear": {"case": [["cost > 9", "yes"]], "else": "no"}},
    }
    document["tables"]["diagnoses"]["references"] |= {"ward": "icd", "odd, {key}": "icd"}
    document["of_unit"] = {"visits": {"count": "visits", "maximum": 3}}
    assert parse_fields(form_fields(document)) == document | {"draft": True, "tables": private(document["tables"])}


@pytest.mark.parametrize(
    "per",
    [
        {"sex": 1},
        {"sex": 1, "age": 2},
        {"month(day)": {"rows": 2, "groups": 4}},
        {"{odd}": 1, "month(day), sex": {"rows": 2, "groups": 4}, "a: b": {"rows": 1, "groups": 2}},
        {f"{'x' * 150} y": {"rows": 1, "groups": 2}},
    ],
)
def test_bounds_by_groups_come_back_whatever_their_form(per):
    unit = {"id": "person", "rows": 3, "per": per}
    assert parse_fields(form_fields({**DOMAIN, "unit": unit}))["unit"] == unit


def private(tables):
    """Tables with their parts in any order, as equal mappings have them."""
    return {name: dict(body) for name, body in tables.items()}


def test_what_a_steward_changes_is_what_the_document_says():
    fields = form_fields(DOMAIN) | {
        "t0-a0-maximum": " 120 ",
        "t0-a1-values": "F\r\n\r\nM\r\nX \r\n",
        "t0-a2-leave": "true",
    }
    fields |= {"unit-kind": "id", "unit-id": "person", "unit-rows": "4"}
    del fields["t0-a1-nullable"]
    fields = with_attribute(fields | {"t0-new": " ward "}, "t0-") | {"t0-a3-values": "A\nB"}
    found = parse_fields(fields)
    assert found["unit"] == {"id": "person", "rows": 4}
    assert found["attributes"] == {
        "age": {"type": "integer", "minimum": 0, "maximum": 120, "unknown": "clamp"},
        "sex": {"type": "categorical", "values": ["F", "M", "X"], "unknown": "category"},
        "ward": {"type": "categorical", "values": ["A", "B"], "unknown": "category"},
    }
    assert found["draft"] is True


def test_another_type_takes_its_own_fields():
    fields = form_fields(DOMAIN) | {"t0-a0-type": "date", "t0-a0-first": "2023-01-01", "t0-a0-last": "2023-12-31"}
    body = parse_fields(fields | {"t0-a0-by": "week", "t0-a0-unknown": "drop"})["attributes"]["age"]
    assert body == {"type": "date", "first": "2023-01-01", "last": "2023-12-31", "by": "week", "unknown": "drop"}


def test_an_accepted_description_is_a_draft_once_it_is_edited():
    accepted = {**DOMAIN, "accepted": {"by": "ann", "at": "2023", "hash": "x"}}
    assert "accepted" not in parse_fields(form_fields(accepted))


def test_a_table_of_a_schema_is_made_public_or_left_out():
    fields = form_fields(SCHEMA) | {"t2-leave": "true", "t1-public": "public"}
    found = parse_fields(fields)
    assert list(found["tables"]) == ["patients", "visits", "icd"]
    assert found["tables"]["visits"] == {
        "public": True,
        "key": "visit_id",
        "attributes": SCHEMA["tables"]["visits"]["attributes"],
    }
    with pytest.raises(DomainError, match="public or not"):
        parse_schema(parse_fields(fields | {"t1-public": ""}))


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("t0-a0-minimum", "", "age: the minimum is a whole number, such as 12, and is not said"),
        ("t0-a0-minimum", "1.5", "age: the minimum is a whole number"),
        ("t0-a0-maximum", "9" * 21, "age: the maximum is a whole number"),
        ("t0-a0-edges", "0, x", "age: a first value of a bin is a whole number"),
        ("t0-a2-edges", "0, 1,5, inf", "income: an edge is a number"),
        ("t0-a2-edges", "0; nan", "income: an edge is a number"),
        ("t0-a1-values", '"F', "sex: a value in quotes is no JSON"),
        ("t0-a1-kind", "number", "sex: a value is a whole number"),
        ("t0-a1-kind", "truth", "sex: a value is true or false"),
        ("t0-a0-name", "sex", "a name of its own"),
        ("unit-kind", "id", "say which column tells people apart"),
        ("base", "{", "the form is no JSON"),
        ("base", "{}", "draft the description again"),
        ("base", '{"parts": {"": 3}}', "draft the description again"),
    ],
)
def test_what_cannot_be_read_is_said_at_its_field(field, text, says):
    with pytest.raises(InputError, match=says):
        parse_fields(form_fields(DOMAIN) | {field: text})


@pytest.mark.parametrize(
    "document", [{}, {"sfumato": 1}, {"sfumato": 2, "tables": 3}, {**DOMAIN, "attributes": {"a": 1}}]
)
def test_what_is_no_description_has_no_form(document):
    with pytest.raises(DomainError, match="no domain and no schema"):
        form_fields(document)


@pytest.mark.parametrize("said", [3, True, ["x"], {"x": 1}])
def test_what_is_no_text_where_one_belongs_is_shown_and_refused(said):
    odd = copy.deepcopy(DOMAIN)
    odd["attributes"]["age"]["role"] = said
    with pytest.raises(DomainError, match="role"):
        parse(parse_fields(form_fields(odd)))
    for part in ("key", "unit"):
        schema = copy.deepcopy(SCHEMA)
        schema["tables"]["visits"][part] = said
        assert parse_fields(form_fields(schema))["tables"]["visits"][part] == str(said)


def test_a_column_is_added_once():
    for name in ("", " ", "age"):
        with pytest.raises(InputError, match="name the column to add"):
            with_attribute(form_fields(DOMAIN) | {"t0-new": name}, "t0-")


def test_attributes_that_lack_something_are_open():
    draft = copy.deepcopy(RICH)
    draft["attributes"]["day"]["first"] = draft["attributes"]["day"]["last"] = None
    (table,) = table_forms(form_fields(draft, ["Look at code: it may be an id.", "Left out x: no values."]))
    assert [each.name for each in table.attributes if each.open] == ["code", "day"]
    assert table.attributes[2].hint == "it may be an id."
    assert [each.summary for each in table.attributes[:2]] == [
        "whole numbers, 0 to 99",
        '"\\"a\\"", " b", "", "c\\nd" and 1 more',
    ]
    assert "write the first and the last day" in table.attributes[5].summary
    assert summary(form_fields(DOMAIN), "t0-a2-") == "numbers in bins, 0 to 5000"
