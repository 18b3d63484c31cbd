"""``sfumato query --schema``: statements over several tables, as a stranger asks them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv
import pytest
from tests.app.test_cli import sfumato
from tests.hospital import database, frames, schema

from sfumato.domain.table_schema import dump_schema

BY_REGION = "SELECT region, COUNT(*) AS visits FROM visits JOIN patients USING (patient_id) GROUP BY region"


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """A folder with the schema, and a folder of the tables in it."""
    (tmp_path / "hospital").mkdir()
    for name, table in frames(database(0)).items():
        pyarrow.csv.write_csv(table, tmp_path / "hospital" / f"{name}.csv")
    (tmp_path / "hospital.yaml").write_text(dump_schema(schema()), encoding="utf-8")
    return tmp_path


def test_several_tables_are_asked_under_one_ledger(hospital: Path) -> None:
    asked = ("query", "hospital", BY_REGION, "--schema", "hospital.yaml", "--epsilon", "1", "--json")
    first = json.loads(sfumato(*asked, "--limit", "2", "--create", cwd=hospital).stdout)
    assert first["groups"] == ["region"]
    assert first["columns"] == ["visits"]
    assert "one patient_id of hospital, in all its tables (at most 6" in first["guarantee"]
    assert (hospital / "hospital.ledger").exists()
    again = json.loads(sfumato(*asked, cwd=hospital).stdout)
    assert again["rows"] == first["rows"]
    ordered = json.loads(
        sfumato("query", "hospital", f"{BY_REGION} ORDER BY visits DESC LIMIT 2", *asked[3:], cwd=hospital).stdout
    )
    assert len(ordered["rows"]) == 2
    journal = sfumato("ledger", "show", "hospital.ledger", "--json", cwd=hospital).stdout
    assert len(json.loads(journal)["entries"]) == 1


def test_what_is_refused_is_not_charged_and_makes_no_ledger(hospital: Path) -> None:
    asked = (
        "query",
        "hospital",
        "SELECT COUNT(*) FROM visits v, drugs d",
        "--schema",
        "hospital.yaml",
        "--epsilon",
        "1",
    )
    refused = sfumato(*asked, "--create", cwd=hospital, code=2)
    assert "line 1, column 32: v and d are not joined on a declared key" in refused.stderr
    assert not (hospital / "hospital.ledger").exists()


def test_the_error_of_a_view_is_foreseen(hospital: Path) -> None:
    text = "SELECT DATE_TRUNC('month', admitted), COUNT(*) FROM visits GROUP BY DATE_TRUNC('month', admitted)"
    asked = ("query", "hospital", text, "--schema", "hospital.yaml", "--rho", "1/2", "--accuracy", "--json")
    found = json.loads(sfumato(*asked, cwd=hospital).stdout)
    assert found["expected"][0]["standard_error"] == pytest.approx(12**0.5, rel=0.01)  # not 6
    assert not (hospital / "hospital.ledger").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "name the accepted domain of the table by --domain, or the schema of several by --schema"),
        (("--domain", "x.yaml", "--schema", "hospital.yaml"), "not both"),
        (("--schema", "hospital.yaml", "--discover", "kind"), "declare them in the schema"),
        (("--schema", "nowhere.yaml"), "cannot read the schema nowhere.yaml"),
    ],
)
def test_wrong_options_are_refused(hospital: Path, options: tuple[str, ...], words: str) -> None:
    refused = sfumato("query", "hospital", BY_REGION, *options, "--epsilon", "1", "--create", cwd=hospital, code=2)
    assert words in refused.stderr


def test_a_draft_is_refused(hospital: Path) -> None:
    path = hospital / "hospital.yaml"
    path.write_text(path.read_text().replace("draft: false", "draft: true"))
    refused = sfumato(
        "query", "hospital", BY_REGION, "--schema", "hospital.yaml", "--epsilon", "1", cwd=hospital, code=2
    )
    assert "this schema is a draft" in refused.stderr
