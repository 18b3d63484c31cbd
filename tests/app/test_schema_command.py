"""``sfumato schema``: drafted, edited, accepted and checked as an owner does it; what was changed is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.app.test_cli import sfumato
from tests.hospital import database, frames, schema

from sfumato.domain.table_schema import accept_schema, dump_schema, load_schema
from sfumato.errors import DomainError

ASKED = ("query", "hospital", "SELECT COUNT(*) FROM patients", "--schema", "hospital.yaml", "--epsilon", "1", "--json")


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """A folder with the schema, and a folder of the tables in it."""
    (tmp_path / "hospital").mkdir()
    for name, table in frames(database(0)).items():
        pyarrow.csv.write_csv(table, tmp_path / "hospital" / f"{name}.csv")
    text = dump_schema(schema()).replace("key: visit_id", "key: visit_id  # of the hospital's system")
    (tmp_path / "hospital.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_draft_is_edited_accepted_and_then_released_under(hospital: Path) -> None:
    (hospital / "hospital" / "drug_era.csv").unlink()
    drafted = sfumato("schema", "draft", "hospital", "--out", "draft.yaml", cwd=hospital)
    assert "Wrote the draft draft.yaml" in drafted.stderr
    assert "icd leads to no patient_id" in drafted.stderr
    path = hospital / "draft.yaml"
    assert "still needs an owner of its rows" in sfumato("schema", "show", "draft.yaml", cwd=hospital, code=2).stderr
    text = path.read_text().replace("public: null", "public: true").replace("first: null", "first: 2023-01-01")
    path.write_text(text.replace("last: null", "last: 2023-12-31"))
    checked = sfumato("schema", "check", "draft.yaml", "--tables", "hospital", cwd=hospital).stdout
    assert "Still to be said of diagnoses, drugs, visits: how many rows of one patient_id to keep (rows: N)" in checked
    unbounded = sfumato("schema", "accept", "draft.yaml", "--by", "Ann", cwd=hospital, code=2)
    assert "still needs rows" in unbounded.stderr
    path.write_text(path.read_text().replace("rows: null", "rows: 4"))
    asked = [word.replace("hospital.yaml", "draft.yaml") for word in ASKED]
    refused = sfumato(*asked, "--create", "--limit", "20,1e-6", cwd=hospital, code=2)
    assert "sfumato schema accept FILE --by NAME" in refused.stderr
    accept = ("schema", "accept", "draft.yaml", "--by", "Ann", "--tables", "hospital", "--json")
    unconfirmed = sfumato(*accept, cwd=hospital, code=2).stderr
    kinds = re.search(r"--confirm (\S+)", unconfirmed)
    assert kinds is not None
    assert "drugs.dose" in unconfirmed
    told = json.loads(sfumato(*accept, "--confirm", kinds[1], cwd=hospital).stdout)
    assert (told["by"], told["confirmed"], told["edited"]) == ("Ann", kinds[1].split(","), True)
    assert any("drugs.dose" in risk for risk in told["risks"])
    assert json.loads(sfumato(*asked, "--create", "--limit", "20,1e-6", cwd=hospital).stdout)["rows"]


def test_a_word_changed_after_it_was_accepted_is_refused_by_releases(hospital: Path) -> None:
    path = hospital / "hospital.yaml"
    sfumato("schema", "accept", "hospital.yaml", "--by", "Ann", cwd=hospital)
    accepted = path.read_text()
    assert "# of the hospital's system" in accepted
    path.write_text(accepted.replace("# of the hospital's system", "# of whomever"))
    first = json.loads(sfumato(*ASKED, "--create", "--limit", "20,1e-6", cwd=hospital).stdout)
    told = json.loads(sfumato("ledger", "show", "hospital.ledger", "--json", cwd=hospital).stdout)["entries"]
    assert [entry["accepted"].partition(",")[0] for entry in told[1:]] == ["Ann"]
    for changed in (
        accepted.replace("rows: 6", "rows: 7"),
        accepted.replace('"by": "Ann"', '"by": "Bob"'),
        accepted.replace("values: [F, M]", "values: [F, X]"),
    ):
        assert changed != accepted
        path.write_text(changed)
        refused = sfumato(*ASKED, cwd=hospital, code=2)
        assert "accepted it. Check it and accept it again" in refused.stderr
        assert "releases refuse it" in sfumato("schema", "show", "hospital.yaml", cwd=hospital).stdout
    assert len(json.loads(sfumato("ledger", "show", "hospital.ledger", "--json", cwd=hospital).stdout)["entries"]) == 2
    path.write_text(accepted)
    assert json.loads(sfumato(*ASKED, cwd=hospital).stdout)["rows"] == first["rows"]


def test_a_schema_that_derives_what_cannot_be_is_not_accepted(hospital: Path) -> None:
    path = hospital / "hospital.yaml"
    path.write_text(path.read_text() + "of_unit: {drugged: {any: visits, where: drug = 'D0'}}\n")
    before = path.read_text()
    for call in (("accept", "hospital.yaml", "--by", "Ann"), ("check", "hospital.yaml")):
        said = sfumato("schema", *call, cwd=hospital, code=2).stderr
        assert "The schema is wrong at of_unit.drugged" in said
    assert path.read_text() == before


def test_a_repeated_key_is_not_accepted(hospital: Path) -> None:
    visits = hospital / "hospital" / "visits.csv"
    lines = visits.read_text().splitlines()
    visits.write_text("\n".join([*lines, lines[1]]) + "\n")
    before = (hospital / "hospital.yaml").read_text()
    asked = ("schema", "accept", "hospital.yaml", "--by", "Ann", "--tables", "hospital")
    assert "visits.visit_id names several rows" in sfumato(*asked, cwd=hospital, code=2).stderr
    assert (hospital / "hospital.yaml").read_text() == before


def test_an_unreadable_condition_is_refused_before_it_is_used(hospital: Path) -> None:
    path = hospital / "hospital.yaml"
    derived = "    derived: {price: {case: [{when: cost > 250, then: dear}], else: cheap}}\n"
    text = path.read_text()
    path.write_text(text.replace("    key: visit_id", f"{derived}    key: visit_id"))
    for asked in (("schema", "check", "hospital.yaml"), ("schema", "accept", "hospital.yaml", "--by", "Ann"), ASKED):
        refused = sfumato(*asked, cwd=hospital, code=2)
        assert (
            "sfumato: The schema is wrong at tables.visits.derived.price, line 1, column 8: this cuts" in refused.stderr
        )
    assert "accepted" not in path.read_text()


def test_a_check_counts_what_bounds_cut_and_says_that_it_is_secret(hospital: Path) -> None:
    (hospital / "few.sql").write_text("SELECT patient_id, LEAST(COUNT(*), 3) AS n FROM visits GROUP BY patient_id")
    asked = ("schema", "check", "hospital.yaml", "--tables", "hospital", "--view", "few.sql")
    found = json.loads(sfumato(*asked, "--json", cwd=hospital).stdout)
    cut = {each["view"]: each for each in found["cut"]}
    held = database(0)
    of_units = [row["patient_id"] for row in held["visits"] if row["patient_id"] is not None]
    assert cut["visits"]["rows"] == len(of_units)
    over = {unit: max(0, of_units.count(unit) - 6) for unit in set(of_units)}
    assert cut["visits"]["cut"] >= sum(over.values()) > 0
    assert cut["few.sql"]["cut"] == 0  # one row per person
    assert any(each["table"] == "icd" and each["declared"] == 6 for each in found["fit"])
    assert "as secret as the table" in sfumato(*asked, cwd=hospital).stdout
    assert "accepted by nobody" in sfumato("schema", "check", "hospital.yaml", cwd=hospital).stdout
    refused = sfumato("schema", "check", "hospital.yaml", "--view", "few.sql", cwd=hospital, code=2)
    assert "name them by --tables" in refused.stderr


def test_a_check_says_first_that_keys_are_of_two_types(hospital: Path) -> None:
    table = pyarrow.csv.read_csv(hospital / "hospital" / "patients.csv")
    keys = pa.array(range(len(table)))
    at = table.schema.get_field_index("patient_id")
    pq.write_table(table.set_column(at, "patient_id", keys), hospital / "hospital" / "patients.parquet")
    (hospital / "hospital" / "patients.csv").unlink()
    refused = sfumato("schema", "check", "hospital.yaml", "--tables", "hospital", cwd=hospital, code=2)
    assert "equal keys would not match. Store both with one type" in refused.stderr


def test_a_schema_is_shown_in_words_and_as_a_picture(hospital: Path) -> None:
    pytest.importorskip("vl_convert")
    path = hospital / "hospital.yaml"
    path.write_text(path.read_text().replace("F, M", "F, '<script>'").replace("sex:", "'a<b':"))
    shown = sfumato("schema", "show", "hospital.yaml", "--html", "page.html", cwd=hospital)
    assert "visits, by visit_id" in shown.stdout
    assert "6, at most 2 in one month(admitted), in at most 4 of them" in shown.stdout
    page = (hospital / "page.html").read_text()
    assert page.count("<rect") == 7
    assert page.count("<path") == 5  # two to patients, two to visits, one to icd
    assert "a&lt;b" in page
    assert "a<b" not in page
    again = sfumato("schema", "show", "hospital.yaml", "--html", "page.html", cwd=hospital, code=2)
    assert "page.html" in again.stderr


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (("hospital/visits.csv",), "is one table, which a domain describes: sfumato domain draft"),
        (("nowhere",), "There is no folder nowhere"),
        (("empty",), "A schema is of several tables, and empty has 0 tables"),
        (("hospital/visits.csv", "more/visits.parquet"), "Two files are called visits"),
        (("postgresql://h/d?table=x",), "Leave ?table= out of the address"),
        (("hospital/visits.csv", "postgresql://h/d"), "A database is drafted alone"),
        (("sqlite://h/d",), "from a database of postgresql, postgres, mysql, mariadb, not 'sqlite'"),
        (("hospital", "--name", "a b"), "have only letters, digits and _"),
        (("hospital", "--unit", "colour"), "No table has a column 'colour'"),
    ],
)
def test_a_schema_that_cannot_be_drafted_is_refused_with_a_message(
    hospital: Path, places: tuple[str, ...], words: str
) -> None:
    (hospital / "empty").mkdir()
    refused = sfumato("schema", "draft", *places, "--out", "draft.yaml", cwd=hospital, code=2)
    assert words in refused.stderr
    assert not (hospital / "draft.yaml").exists()


def test_accepting_a_schema_requires_a_name(hospital: Path) -> None:
    with pytest.raises(DomainError, match="name the person who accepts"):
        accept_schema(hospital / "hospital.yaml", by=" ")
    assert load_schema(hospital / "hospital.yaml").acceptance is None
