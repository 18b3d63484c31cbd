"""Six folders of linked tables, each drafted right at the first call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sfumato.description.schema_draft import SchemaDraft, draft_schema
from sfumato.description.schema_fit import draft_source
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


OTHER_NAMES: dict[str, dict[str, str]] = {  # TABLE or TABLE.COLUMN, and its other name
    "census": {
        "households": "Haushalte", "households.household_id": "HaushaltNr", "persons": "Personen",
        "persons.person_id": "PersonenNr", "persons.household_id": "hh_nr",
    },
    "hospital": {
        "patients.patient_id": "pid", "visits.visit_id": "vid", "visits.patient_id": "patient",
        "diagnoses.visit_id": "visit", "diagnoses.dx_id": "nr",
    },
    "education": {
        "schools": "Schulen", "schools.school_id": "SchulNr", "pupils": "Schueler", "pupils.pupil_id": "Schüler_Nr",
        "pupils.school_id": "Schule", "marks": "Noten", "marks.pupil_id": "SchuelerID",
    },
    "shop": {
        "customers": "Kunden", "customers.id": "Kundennummer", "orders": "Bestellungen", "orders.order_id": "BestellNr",
        "orders.customer_id": "KdNr", "items": "Positionen", "items.order_id": "Bestellnummer",
    },
    "survey": {
        "respondents": "Befragte", "respondents.respondent_id": "lfdnr", "answers": "Antworten",
        "answers.respondent_id": "befragte_nr", "answers.question_id": "frage_nr", "questions": "Fragen",
        "questions.question_id": "nr",
    },
    "star": {
        "dim_customer.customer_key": "sk", "fact_sales.customer_key": "cust_sk", "dim_product.product_key": "sku",
        "fact_sales.product_key": "prod_key",
    },
}  # fmt: skip
OTHER_UNITS = {
    "census": "HaushaltNr", "hospital": "pid", "education": "SchuelerID", "shop": "Kundennummer",
    "survey": "befragte_nr", "star": "sk",
}  # fmt: skip


def described(document: dict[str, Any]) -> dict[str, Any]:
    """Return the unit, keys, owners and references of a draft."""
    bodies = document["tables"]
    owners = {table: body.get("unit") or body.get("through") for table, body in bodies.items()}
    return {
        "unit": document["unit"],
        "keys": {table: body["key"] for table, body in bodies.items() if "key" in body},
        "owners": {table: owner for table, owner in owners.items() if owner},
        "references": {table: body["references"] for table, body in bodies.items() if "references" in body},
    }


def drafted(tables: dict[str, dict[str, list[Any]]], **options: Any) -> SchemaDraft:
    opened = {name: open_table(pa.table(columns)) for name, columns in tables.items()}
    return draft_schema("folder", opened, **options)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_drafted_right_at_the_first_call(name: str) -> None:
    tables, right = FOLDERS[name]
    assert described(drafted(tables).document) == {"references": {}} | right


@pytest.mark.parametrize("name", FOLDERS)
def test_names_that_do_not_match_are_linked_by_values(name: str) -> None:
    tables, right = FOLDERS[name]
    other = OTHER_NAMES[name]

    def table_name(table: str) -> str:
        return other.get(table, table)

    def column(table: str, of: str) -> str:
        return other.get(f"{table}.{of}", of)

    def links(table: str, of: Any) -> Any:
        if isinstance(of, str):
            return column(table, of)
        return {column(table, each): table_name(to) for each, to in of.items()}

    renamed = {
        table_name(table): {column(table, each): values for each, values in columns.items()}
        for table, columns in tables.items()
    }
    assert described(drafted(renamed).document) == {
        "unit": {"id": OTHER_UNITS[name], "table": table_name(right["unit"]["table"])},
        **{
            part: {table_name(table): links(table, of) for table, of in right.get(part, {}).items()}
            for part in ("keys", "owners", "references")
        },
    }


def test_numbers_that_count_from_one_are_no_reference() -> None:
    tables = {
        "patients": {"patient_id": ids(90), "age": ages(90), "rank": ids(90)},
        "visits": {"visit_id": ids(80), "patient_id": some(80, ids(90)), "days": some(80, ids(60)), "paid": ids(80)},
        "rooms": {"room": ids(40), "beds": some(40, ids(4))},
    }
    right = {"unit": {"id": "patient_id", "table": "patients"}, "owners": {"visits": "patient_id"}, "references": {}}
    found = described(drafted(tables).document)
    assert {part: found[part] for part in right} == right


def test_texts_that_are_keys_elsewhere_are_references_without_a_name_that_says_so() -> None:
    codes = [f"{letter}{number}.9" for letter in "ABC" for number in range(10, 20)]
    tables = {
        "people": {"svnr": [f"V{number:05d}" for number in range(60)], "sex": words(60, "f", "m")},
        "stays": {"insured": [f"V{number:05d}" for number in some(200, ids(60, 0))], "reason": words(200, *codes)},
        "icd": {"entry": codes, "chapter": words(30, "heart", "lung")},
    }
    found = drafted(tables, unit="svnr").document
    assert described(found) == {
        "unit": {"id": "svnr", "table": "people"},
        "keys": {"people": "svnr", "icd": "entry"},
        "owners": {"stays": "insured"},
        "references": {"stays": {"reason": "icd"}},
    }


def test_equal_names_of_other_values_are_no_reference() -> None:
    tables = {
        "patients": {"patient_id": ids(50), "sex": words(50, "f", "m")},
        "drugs": {"patient_id": some(90, ids(50)), "code": words(90, "A10", "B20", "C30")},
        "icd": {"code": [f"I{number}" for number in range(30)], "chapter": words(30, "heart", "lung")},
    }
    found = drafted(tables)
    assert "references" not in found.document["tables"]["drugs"]
    assert any("write references: {code: icd} under tables.drugs" in note for note in found.notes)


def test_the_person_within_a_household_is_the_unit_if_named() -> None:
    tables, _ = FOLDERS["census"]
    assert any("draft with --unit person_id" in note for note in drafted(tables).notes)
    document = drafted(tables, unit="person_id").document
    assert document["unit"] == {"id": "person_id", "table": "persons"}
    assert document["tables"]["persons"]["references"] == {"household_id": "households"}
    assert document["tables"]["households"]["public"] is None


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


def test_notes_in_a_folder_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient_id,sex\n1,f\n2,m\n")
    (tmp_path / "visits.csv").write_text("patient_id,ward\n1,a\n1,b\n")
    (tmp_path / "README.txt").write_text("notes of nobody\n")
    assert list(draft_source([str(tmp_path)]).document["tables"]) == ["patients", "visits"]
