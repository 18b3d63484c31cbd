"""Six folders of linked tables, each drafted right at the first call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sfumato.description.schema_draft import SchemaDraft, draft_schema
from sfumato.engine.open import open_table

RANDOM = np.random.default_rng(5)


def ids(count: int, start: int = 1) -> list[int]:
    return list(range(start, start + count))


def some(count: int, of: list[int]) -> list[int]:
    return [int(each) for each in RANDOM.choice(of, count)]


def words(count: int, *among: str) -> list[str]:
    return [str(each) for each in RANDOM.choice(among, count)]


def ages(count: int) -> list[int]:
    return [int(each) for each in RANDOM.integers(0, 95, count)]


FOLDERS: dict[str, tuple[dict[str, dict[str, list[Any]]], dict[str, Any]]] = {
    "census": (
        {
            "households": {"household_id": ids(60), "region": words(60, "north", "south")},
            "persons": {"person_id": ids(150), "household_id": ids(60) + some(90, ids(60)), "age": ages(150)},
        },
        {
            "unit": {"id": "household_id", "table": "households"},
            "keys": {"households": "household_id", "persons": "person_id"},
            "owners": {"persons": "household_id"},
        },
    ),
    "hospital": (
        {
            "patients": {"patient_id": ids(50, 1000), "sex": words(50, "f", "m")},
            "visits": {
                "visit_id": ids(120, 7000),
                "patient_id": some(120, ids(50, 1000)),
                "ward": words(120, "a", "b"),
            },
            "diagnoses": {
                "dx_id": ids(200),
                "visit_id": some(200, ids(120, 7000)),
                "code": words(200, "I1", "I2", "J3"),
            },
        },
        {
            "unit": {"id": "patient_id", "table": "patients"},
            "keys": {"patients": "patient_id", "visits": "visit_id", "diagnoses": "dx_id"},
            "owners": {"visits": "patient_id", "diagnoses": {"visit_id": "visits"}},
        },
    ),
    "education": (
        {
            "schools": {"school_id": ids(8), "kind": words(8, "public", "private")},
            "pupils": {"pupil_id": ids(90, 500), "school_id": some(90, ids(8)), "grade": some(90, ids(6))},
            "marks": {
                "pupil_id": some(300, ids(90, 500)),
                "subject": words(300, "maths", "music"),
                "mark": some(300, ids(6)),
            },
        },
        {
            "unit": {"id": "pupil_id", "table": "pupils"},
            "keys": {"schools": "school_id", "pupils": "pupil_id"},
            "owners": {"marks": "pupil_id"},
            "references": {"pupils": {"school_id": "schools"}},
        },
    ),
    "shop": (
        {
            "customers": {"id": ids(40), "country": words(40, "DE", "FR")},
            "orders": {
                "order_id": ids(100, 9000),
                "customer_id": some(100, ids(40)),
                "channel": words(100, "web", "shop"),
            },
            "items": {"order_id": some(250, ids(100, 9000)), "quantity": some(250, ids(5))},
        },
        {
            "unit": {"id": "customer_id", "table": "customers"},
            "keys": {"customers": "id", "orders": "order_id"},
            "owners": {"orders": "customer_id", "items": {"order_id": "orders"}},
        },
    ),
    "survey": (
        {
            "respondents": {"respondent_id": ids(70), "age": ages(70)},
            "answers": {
                "respondent_id": some(400, ids(70)),
                "question_id": some(400, ids(12)),
                "answer": some(400, ids(5)),
            },
            "questions": {"question_id": ids(12), "topic": words(12, "health", "work")},
        },
        {
            "unit": {"id": "respondent_id", "table": "respondents"},
            "keys": {"respondents": "respondent_id", "questions": "question_id"},
            "owners": {"answers": "respondent_id"},
            "references": {"answers": {"question_id": "questions"}},
        },
    ),
    "star": (
        {
            "dim_customer": {"customer_key": ids(45), "segment": words(45, "home", "office")},
            "dim_product": {"product_key": ids(15), "category": words(15, "toys", "books")},
            "fact_sales": {
                "customer_key": some(300, ids(45)),
                "product_key": some(300, ids(15)),
                "quantity": some(300, ids(9)),
            },
        },
        {
            "unit": {"id": "customer_key", "table": "dim_customer"},
            "keys": {"dim_customer": "customer_key", "dim_product": "product_key"},
            "owners": {"fact_sales": "customer_key"},
            "references": {"fact_sales": {"product_key": "dim_product"}},
        },
    ),
}


def drafted(tables: dict[str, dict[str, list[Any]]], **options: Any) -> SchemaDraft:
    opened = {name: open_table(pa.table(columns)) for name, columns in tables.items()}
    return draft_schema("folder", opened, **options)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_drafted_right_at_the_first_call(name: str) -> None:
    tables, right = FOLDERS[name]
    document = drafted(tables).document
    bodies = document["tables"]
    assert document["unit"] == right["unit"]
    assert {table: body["key"] for table, body in bodies.items() if "key" in body} == right["keys"]
    owners = {table: body.get("unit") or body.get("through") for table, body in bodies.items()}
    assert {table: owner for table, owner in owners.items() if owner} == right["owners"]
    references = {table: body["references"] for table, body in bodies.items() if "references" in body}
    assert references == right.get("references", {})


def test_a_named_unit_is_listed_where_it_is_unique() -> None:
    tables = {
        "visits": {"who": [5, 5, 6, 7], "ward": ["a", "b", "a", "a"]},
        "list": {"who": [5, 6, 7, 8], "sex": ["f", "m", "f", "m"]},
    }
    document = drafted(tables, unit="who").document
    assert document["unit"] == {"id": "who", "table": "list"}
    assert document["tables"]["visits"]["unit"] == "who"


def test_a_table_that_repeats_an_id_is_no_list_of_people() -> None:
    people = [*ids(50), 7]
    tables = {
        "patients": {"patient_id": people, "sex": words(51, "f", "m")},
        "visits": {"visit_id": ids(90), "patient_id": some(90, ids(50))},
    }
    found = drafted(tables)
    assert found.document["unit"] == {"id": "patient_id"}
    assert any("write unit: {id: patient_id, table: TABLE}" in note for note in found.notes)
