"""The bundled hospital: two tables that fit their schema, a release with its promise, made by a script at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from tests.app.test_cli import sfumato

from sfumato import data
from sfumato.description.schema_fit import schema_fit
from sfumato.domain.table_schema import load_schema

ROOT = Path(__file__).resolve().parents[2]


def test_the_hospital_is_written_with_its_schema_and_its_promise(tmp_path: Path) -> None:
    printed = json.loads(sfumato("data", "hospital", "--out", "here", cwd=tmp_path).stdout)
    here = tmp_path / "here"
    assert {path.name for path in here.iterdir()} == {"hospital", "hospital.yaml", "hospital.json"}
    assert json.loads((here / "hospital.json").read_text()) == printed == data.hospital_release()
    assert "of one patient_id of hospital, in all its tables" in printed["guarantee"]
    tables = {name: pq.read_table(here / "hospital" / f"{name}.parquet") for name in ("patients", "visits")}
    assert {name: table.num_rows for name, table in tables.items()} == printed["rows"]
    again = sfumato("data", "hospital", "--out", "here", cwd=tmp_path, code=2)
    assert "patients.parquet" in again.stderr
    sfumato("data", "hospital", "--out", "here", "--overwrite", cwd=tmp_path)


def test_every_value_of_the_hospital_is_one_that_its_schema_declares(tmp_path: Path) -> None:
    sfumato("data", "hospital", cwd=tmp_path)
    schema = load_schema(tmp_path / "hospital.yaml")
    assert schema.accepted_by is not None
    assert schema.accepted_by.by == "Ann Lee"
    for fits in schema_fit(schema, tmp_path / "hospital").values():
        assert all(fit.missing == fit.unknown == 0 for fit in fits)
    checked = json.loads(
        sfumato("schema", "check", "hospital.yaml", "--tables", "hospital", "--json", cwd=tmp_path).stdout
    )
    assert {each["view"]: each["rows"] for each in checked["cut"]} == data.hospital_release()["rows"]


def test_what_made_the_hospital_is_there() -> None:
    script = (ROOT / "scripts" / "make-hospital").read_text()
    said = data.hospital_release()
    assert said["command"].split()[0] == "scripts/make-hospital"
    assert "PATIENTS = 6_000" in script
    assert "SEED = 20231" in script
    assert "6,000 simulated patients" in said["source"]
    assert "seed 20231" in said["source"]
    assert said["loss"] == {"epsilon": "4"}
    assert "EPSILON = 4\n" in script
