"""The form of a description says what its document says, and what is wrong in a field is named."""

from __future__ import annotations

import copy
import json

import pytest
from tests.app.test_cli import sfumato
from tests.server.hospital import SCHEMA
from tests.server.serving import DOMAIN, VISITS

import sfumato as sf
from sfumato.domain import parse
from sfumato.domain.table_schema import parse_schema
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import write_yaml
from sfumato_server.sources import TablePlaces
from sfumato_server.stewards import open_drafted, plain
from sfumato_server.ui.description_form import edited_document, form_fields, summary, table_forms, with_attribute
from sfumato_server.ui.description_pages import displayed_fields

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


@pytest.mark.parametrize("document", [DOMAIN, VISITS, RICH, SCHEMA], ids=["people", "visits", "rich", "hospital"])
def test_an_unchanged_form_leaves_every_byte_of_the_document(document):
    draft = {**document, "draft": True}
    assert write_yaml(edited_document(draft, form_fields(draft))) == write_yaml(draft)


@pytest.mark.parametrize("document", [DOMAIN, VISITS, RICH], ids=["people", "visits", "rich"])
def test_every_attribute_comes_back_from_its_fields(document):
    fields = form_fields(document)
    roles = {key: "target" for key in fields if key.endswith("-role") and not fields[key]}
    for role, text in roles.items():  # after this change the attribute is read from its fields again
        again = edited_document(document, fields | {role: text})
        assert form_fields(again) == fields | {role: text}


def test_a_schema_comes_back_from_its_fields():
    document = copy.deepcopy(SCHEMA)
    document["tables"]["visits"] |= {
        "per": {"cost": 2},
        "derived": {"dear": {"case": [["cost > 9", "yes"]], "else": "no"}},
    }
    document["tables"]["diagnoses"]["references"] |= {"ward": "icd", "odd, {key}": "icd"}
    document["of_unit"] = {"visits": {"count": "visits", "maximum": 3}}
    fields = form_fields(document)
    changed = edited_document(document, fields | {"t1-rows": "4", "t2-rows": "7"})
    assert form_fields(changed) == fields | {"t1-rows": "4", "t2-rows": "7"}
    assert edited_document(changed, fields) == document | {"draft": True}


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
    document = {**DOMAIN, "unit": unit}
    fields = form_fields(document) | {"unit-rows": "4"}
    assert edited_document(document, fields)["unit"] == unit | {"rows": 4}


def test_what_a_steward_changes_is_what_the_document_says():
    fields = form_fields(DOMAIN) | {
        "t0-a0-maximum": " 120 ",
        "t0-a1-values": "F\n\nM\nX \n",
        "t0-a2-leave": "true",
    }
    fields |= {"unit-kind": "id", "unit-id": "person", "unit-rows": "4"}
    del fields["t0-a1-nullable"]
    found = with_attribute(edited_document(DOMAIN, fields), "0", " ward ")
    found = edited_document(found, form_fields(found) | {"t0-a2-values": "A\nB"})
    assert found["unit"] == {"id": "person", "rows": 4}
    assert found["attributes"] == {
        "age": {"type": "integer", "minimum": 0, "maximum": 120, "unknown": "clamp"},
        "sex": {"type": "categorical", "values": ["F", "M", "X"], "unknown": "category"},
        "ward": {"type": "categorical", "values": ["A", "B"], "unknown": "category"},
    }
    assert found["draft"] is True


def test_another_type_takes_its_own_fields():
    fields = form_fields(DOMAIN) | {"t0-a0-type": "date", "t0-a0-first": "2023-01-01", "t0-a0-last": "2023-12-31"}
    fields |= {"t0-a0-by": "week", "t0-a0-unknown": "drop"}
    body = edited_document(DOMAIN, fields)["attributes"]["age"]
    assert body == {"type": "date", "first": "2023-01-01", "last": "2023-12-31", "by": "week", "unknown": "drop"}


def test_a_refused_acceptance_unticks_no_box_of_an_attribute():
    fields = {"t0-a0-name": "odd", "t0-a0-nullable": "true"}
    assert displayed_fields(fields, {"accepted": "true"}) == fields | {"accepted": "true"}
    assert displayed_fields(fields, {"t0-a0-name": "odd"}) == {"t0-a0-name": "odd"}


def test_an_accepted_description_is_a_draft_once_it_is_edited():
    accepted = {**DOMAIN, "accepted": {"by": "ann", "at": "2023", "hash": "x"}}
    assert "accepted" not in edited_document(accepted, form_fields(accepted))


def test_a_table_of_a_schema_is_made_public_or_left_out():
    fields = form_fields(SCHEMA) | {"t2-leave": "true", "t1-public": "public"}
    found = edited_document(SCHEMA, fields)
    assert list(found["tables"]) == ["patients", "visits", "icd"]
    assert found["tables"]["visits"] == {
        "public": True,
        "key": "visit_id",
        "attributes": SCHEMA["tables"]["visits"]["attributes"],
    }
    with pytest.raises(DomainError, match="still needs an owner"):
        parse_schema(edited_document(SCHEMA, fields | {"t1-public": ""}))


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("t0-a0-minimum", "", "age: the minimum is a whole number, such as 12, and is empty"),
        ("t0-a0-minimum", "1.5", "age: the minimum is a whole number"),
        ("t0-a0-maximum", "9" * 21, "age: the maximum is a whole number"),
        ("t0-a0-edges", "0, x", "age: an edge is a whole number"),
        ("t0-a2-edges", "0, 1,5, inf", "income: an edge is a number"),
        ("t0-a2-edges", "0; nan", "income: an edge is a number"),
        ("t0-a1-values", '"F', "sex: a value in quotes is no JSON"),
        ("t0-a1-kind", "number", "sex: a value is a whole number"),
        ("t0-a1-kind", "truth", "sex: each value is true or false"),
        ("unit-kind", "id", "write the column with the id of a person"),
        ("t0-a0-missing", '"9', "age: a code in quotes is no JSON"),
    ],
)
def test_what_cannot_be_read_is_said_at_its_field(field, text, says):
    with pytest.raises(InputError, match=says):
        edited_document(DOMAIN, form_fields(DOMAIN) | {field: text})


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
        parse(edited_document(odd, form_fields(odd)))
    for part in ("key", "unit"):
        schema = copy.deepcopy(SCHEMA)
        schema["tables"]["visits"][part] = said
        fields = form_fields(schema) | {"t1-rows": "4"}
        assert edited_document(schema, fields)["tables"]["visits"][part] == str(said)


def test_a_column_is_added_once():
    for name in ("", " ", "age"):
        with pytest.raises(InputError, match="name the column to add"):
            with_attribute(DOMAIN, "0", name)
    with pytest.raises(InputError, match="name the column to add"):
        with_attribute(DOMAIN, "9", "new")


def test_attributes_that_lack_something_are_open():
    draft = copy.deepcopy(RICH)
    draft["attributes"]["day"]["first"] = draft["attributes"]["day"]["last"] = None
    notes = ["Look at code: it may be an id.", "Left out x: no values."]
    (table,) = table_forms(draft, form_fields(draft), notes)
    assert [each.name for each in table.attributes if each.open] == ["code", "day"]
    assert table.attributes[2].hint == "it may be an id."
    assert [each.summary for each in table.attributes[:2]] == [
        "whole numbers, 0 to 99",
        '"\\"a\\"", " b", "", "c\\nd" and 1 more',
    ]
    assert "write the first and the last day" in table.attributes[5].summary
    assert summary(form_fields(DOMAIN), "t0-a2-") == "numbers in bins, 0 to 5000"


def write_messy(path):
    rows = [
        f"{n % 40};{n % 90};{'ABC'[n % 3]};{n},5;{999 if n % 7 == 0 else 20 + n % 30};{n % 28 + 1:02d}.03.2023"
        for n in range(400)
    ]
    path.write_text("\n".join(["person;age;ward;cost;bmi;day", *rows]) + "\n")
    return path


def test_the_same_choices_make_the_same_file_as_the_draft_in_python(tmp_path):
    draft = sf.describe(write_messy(tmp_path / "stays.csv"))
    document = json.loads(json.dumps(plain(draft.document)))
    assert write_yaml(edited_document(document, form_fields(document))) == draft.text()
    sfumato("domain", "draft", "stays.csv", "--out", "stays.yaml", cwd=tmp_path)
    assert (tmp_path / "stays.yaml").read_text() == draft.text()
    draft["bmi"].missing(-9, "?", "9")
    draft["age"].bounds(0, 120)
    draft["cost"].bounds(0, 500)
    draft["day"].days("2023-01-01", "2023-12-31")
    draft["ward"].drop()
    draft.unit("person", rows=5)
    fields = form_fields(document) | {
        "t0-a3-missing": '999, -9, ?, "9"',
        "t0-a0-maximum": "120",
        "t0-a2-maximum": "500",
        "t0-a4-first": "2023-01-01",
        "t0-a4-last": "2023-12-31",
        "t0-a1-leave": "true",
        "unit-rows": "5",
    }
    assert write_yaml(edited_document(document, fields)) == draft.text()
    draft["cost"].bins([0, 50, 100, 1000])
    draft["age"].bins([0, 18, 65, 100])
    changed = edited_document(document, fields)
    fields = form_fields(changed) | {
        "t0-a1-edges": "0, 50, 100, 1000",
        "t0-a0-edges": "0 18 65",
        "t0-a0-maximum": "100",
    }
    assert write_yaml(edited_document(changed, fields)) == draft.text()


def test_a_code_drafts_a_column_anew_as_in_python(tmp_path):
    path = tmp_path / "stays.csv"
    rows = [f"{n % 40},{'n.d.' if n % 9 == 0 else n % 50 + 0.5}" for n in range(400)]
    path.write_text("\n".join(["person,cost", *rows]) + "\n")
    draft = sf.describe(path)
    document = json.loads(json.dumps(plain(draft.document)))
    assert document["attributes"]["cost"]["type"] == "categorical"
    fields = form_fields(document) | {"t0-a0-missing": "n.d."}
    edited = edited_document(document, fields, lambda _: open_drafted(str(path), TablePlaces(()), "", document))
    draft["cost"].missing("n.d.")
    assert edited["attributes"]["cost"]["type"] == "real"
    assert write_yaml(edited) == draft.text()
    linked = json.loads(json.dumps(plain(sf.describe_tables({"people": path, "stays": path}, unit="person").document)))
    fields = form_fields(linked) | {"t1-a0-missing": "n.d."}
    edited = edited_document(linked, fields, lambda _: open_drafted(str(path), TablePlaces(()), "", document))
    assert edited["tables"]["stays"]["attributes"]["cost"] == draft.document["attributes"]["cost"]
    assert set(edited["drafted"]["findings"]["bins"]) == {"stays.cost"}


def test_a_code_that_is_no_longer_listed_is_a_value_again():
    found = edited_document(RICH, form_fields(RICH) | {"t0-a7-missing": "999, n/a"})
    assert found["attributes"]["pay"]["missing"] == [999, "n/a"]
