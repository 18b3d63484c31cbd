"""A schema drafted from several tables: keys, owners and references found, what is not for a program left open."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.engine.test_views_on_databases import url_of

from sfumato.description.schema_draft import SchemaDraft, draft_schema
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.open import open_table
from sfumato.engine.sql.sql_session import declared_keys
from sfumato.errors import DomainError, InputError, TableError
from sfumato.strict_documents import read_yaml, write_yaml

TABLES = {
    "patients": {"patient_id": ["p1", "p2", "p3"], "sex": ["f", "m", "f"]},
    "visits": {"visit_id": [1, 2, 3, 4], "patient_id": ["p1", "p1", "p2", "p3"], "ward": ["01", "1e3", "no", "02"]},
    "drugs": {"rx_id": [1, 2, 3], "visit_id": [1, 1, 4], "patient_id": ["p1", "p1", "p3"], "drug": ["a", "b", "a"]},
    "diagnoses": {"dx_id": [1, 2], "visit_id": [1, 4], "code": ["I1", "I2"]},
    "icd": {"code": ["I1", "I2"], "chapter": ["heart", "lung"]},
}


def drafted(changed: dict[str, dict[str, list[object]]] | None = None, **options: object) -> SchemaDraft:
    columns = {**TABLES, **(changed or {})}
    tables = {name: open_table(pa.table(held)) for name, held in columns.items()}
    return draft_schema("hospital", tables, **options)  # type: ignore[arg-type]


def test_keys_owners_and_references_are_found() -> None:
    document = drafted().document
    assert document["unit"] == {"id": "patient_id", "table": "patients"}
    ties = {
        name: {part: said for part, said in body.items() if part not in ("attributes", "rows")}
        for name, body in document["tables"].items()
    }
    assert ties == {
        "patients": {"key": "patient_id"},
        "visits": {"key": "visit_id", "unit": "patient_id"},
        "drugs": {"key": "rx_id", "unit": "patient_id"},
        "diagnoses": {"key": "dx_id", "through": {"visit_id": "visits"}, "references": {"code": "icd"}},
        "icd": {"public": None, "key": "code"},
    }
    assert list(document["tables"]["drugs"]["attributes"]) == ["drug"]  # no key is an attribute
    assert list(document["tables"]["diagnoses"]["attributes"]) == ["code"]  # but one of a table that may be public is


def test_bounds_and_what_is_public_are_left_to_the_owner() -> None:
    found = drafted()
    assert all(body.get("rows") is None and "per" not in body for body in found.document["tables"].values())
    assert any("icd leads to no patient_id: write public: true" in told for told in found.notes)
    with pytest.raises(DomainError, match="icd still needs an owner of its rows"):
        parse_schema(found.document)
    found.document["tables"]["icd"]["public"] = True
    with pytest.raises(DomainError, match="this schema is a draft"):
        parse_schema(found.document).refuse_draft()
    with pytest.raises(DomainError, match="still needs rows"):
        parse_schema(found.document | {"draft": False})


def test_codes_stay_text_in_every_reader_of_yaml() -> None:
    text = write_yaml(drafted().document)
    assert all(f"'{code}'" in text or f'"{code}"' in text for code in TABLES["visits"]["ward"])
    assert read_yaml(text) == drafted().document


def test_a_key_is_kept_over_one_repeated_row_and_the_repeat_is_told() -> None:
    visits = {name: [*held, held[0]] for name, held in TABLES["visits"].items()}
    found = drafted({"visits": visits})
    assert found.document["tables"]["visits"]["key"] == "visit_id"
    assert "through" in found.document["tables"]["diagnoses"]
    assert any("visits.visit_id" in told and "1 of its 5 values repeat" in told for told in found.notes)


def test_a_table_in_which_few_people_come_twice_is_not_taken_for_their_list() -> None:
    many = [f"p{n}" for n in range(100)]
    patients = {"patient_id": many, "sex": ["f", "m"] * 50}
    admissions = {"patient_id": [*many[:40], "p1"], "ward": ["a"] * 41}
    for name in ("admissions", "zz"):  # before and after the list of all
        found = drafted({"patients": patients, name: admissions})
        assert found.document["unit"]["table"] == "patients"
        assert "key" not in found.document["tables"][name]
        assert found.document["tables"][name]["unit"] == "patient_id"
    details = {"patient_id": many, "height": list(range(100))}
    found = drafted({"patients": patients, "details": details})
    assert found.document["unit"]["table"] == "patients"
    assert found.document["tables"]["details"]["unit"] == "patient_id"


def test_a_second_person_in_a_row_is_left_out_and_named() -> None:
    transfers = {"transfer_id": [1, 2], "patient_id": ["p1", "p2"], "visit_id": [1, 3], "day": [3, 4]}
    found = drafted({"transfers": transfers})
    assert found.document["tables"]["transfers"]["unit"] == "patient_id"
    assert any("transfers.visit_id also leads to visits, and is left out" in told for told in found.notes)


def test_ids_called_id_are_found_by_the_name_of_their_table() -> None:
    patients = {"id": ["p1", "p2", "p3"], "sex": ["f", "m", "f"]}
    document = drafted({"patients": patients}).document
    assert document["unit"] == {"id": "patient_id", "table": "patients"}
    assert document["tables"]["patients"]["key"] == "id"


def test_keys_of_two_types_are_named() -> None:
    """The keys are texts in a CSV file and numbers in a Parquet file, so a join would find nothing."""
    visits = {"visit_id": [10, 11, 12], "patient_id": ["1", "1", "2"]}
    tables = {"patients": {"patient_id": [1, 2, 3], "sex": ["f", "m", "f"]}, "visits": visits}
    opened = {name: open_table(pa.table(held)) for name, held in tables.items()}
    told = [each for each in draft_schema("both", opened).notes if "equal keys would not be found" in each]
    assert len(told) == 1
    assert told[0].startswith("visits.patient_id is of type VARCHAR and patients.patient_id of type BIGINT: equal keys")


def test_people_may_be_named_and_must_be_found() -> None:
    tables = {"a": {"who": [1, 1, 2], "x": [1, 2, 3]}, "b": {"who": [1, 2, 2], "y": [1, 2, 3]}}
    opened = {name: open_table(pa.table(held)) for name, held in tables.items()}
    with pytest.raises(TableError, match="no column seems to name people; name one by the argument unit"):
        draft_schema("both", opened)
    found = draft_schema("both", opened, unit="who")
    assert found.document["unit"] == {"id": "who"}
    assert any("No table lists every who" in told for told in found.notes)
    with pytest.raises(InputError, match="no table has a column 'whom'"):
        draft_schema("both", opened, unit="whom")
    with pytest.raises(InputError, match="have only letters"):
        draft_schema("a b", opened)


@pytest.mark.parametrize("server", ["SFUMATO_TEST_POSTGRES", "SFUMATO_TEST_MARIADB"])
def test_the_catalogue_of_a_database_says_its_keys(server: str) -> None:
    address, name = url_of(server), f"catalogue_{secrets.token_hex(6)}"
    engine = sa.create_engine(address, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    own = address.set(database=name)
    url = own.set(drivername=own.drivername.partition("+")[0]).render_as_string(hide_password=False)
    statements = [
        "CREATE TABLE people (nr INTEGER PRIMARY KEY, sex VARCHAR(9))",
        "CREATE TABLE stays (stay INTEGER PRIMARY KEY, guest INTEGER, FOREIGN KEY (guest) REFERENCES people (nr))",
        "CREATE TABLE parts (stay INTEGER, place INTEGER, FOREIGN KEY (stay) REFERENCES stays (stay))",
        "INSERT INTO people VALUES (1, 'f'), (2, 'm')",
        "INSERT INTO stays VALUES (10, 1), (11, 2)",
        "INSERT INTO parts VALUES (10, 1), (10, 2)",
    ]
    try:
        with sa.create_engine(own, poolclass=sa.NullPool).begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        found = declared_keys(url)
        assert {table: keys.key for table, keys in found.items()} == {"parts": None, "people": "nr", "stays": "stay"}
        assert set(found["stays"].links) == {("guest", "people")}
        tables = {table: open_table(f"{url}?table={table}") for table in found}
        document = draft_schema("inn", tables, declared=found, unit="nr").document
        assert document["unit"] == {"id": "nr", "table": "people"}
        assert document["tables"]["stays"]["unit"] == "guest"
        assert document["tables"]["parts"]["through"] == {"stay": "stays"}
        del tables
    finally:
        force = " WITH (FORCE)" if address.drivername.startswith("postgresql") else ""
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{force}")
