"""``sfumato query --schema``: statements over several tables, as a stranger asks them."""

from __future__ import annotations

import json
import random
from collections import Counter
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
    assert [entry["kind"] for entry in json.loads(journal)["entries"]] == ["version", "release"]


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
    refused = sfumato(*asked, "--create", "--limit", "20,1e-6", cwd=hospital, code=2)
    assert "Line 1, column 32: v and d are not joined on a declared key" in refused.stderr
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
        ((), "This is a schema of several tables"),
        (("--domain", "hospital.yaml", "--schema", "hospital.yaml"), "not both"),
        (("--schema", "hospital.yaml", "--discover", "kind"), "declare them in the schema"),
        (("--schema", "nowhere.yaml"), "There is no file nowhere.yaml"),
    ],
)
def test_wrong_options_are_refused(hospital: Path, options: tuple[str, ...], words: str) -> None:
    refused = sfumato(
        "query",
        "hospital",
        BY_REGION,
        *options,
        "--epsilon",
        "1",
        "--create",
        "--limit",
        "20,1e-6",
        cwd=hospital,
        code=2,
    )
    assert words in refused.stderr


def test_a_draft_is_refused(hospital: Path) -> None:
    path = hospital / "hospital.yaml"
    path.write_text(path.read_text().replace("draft: false", "draft: true"))
    refused = sfumato(
        "query", "hospital", BY_REGION, "--schema", "hospital.yaml", "--epsilon", "1", cwd=hospital, code=2
    )
    assert "This schema is a draft" in refused.stderr


VIEW = ("--schema", "hospital.yaml", "--view", "view.sql")


@pytest.fixture
def viewed(hospital: Path) -> Path:
    """The same, with a file of a view of visits."""
    (hospital / "view.sql").write_text("SELECT * FROM visits JOIN patients USING (patient_id);\n")
    return hospital


def test_a_view_is_synthesised_like_a_table(viewed: Path) -> None:
    asked = (
        "--rho",
        "1/2",
        "--method",
        "histogram",
        "--marginals",
        "kind,sex",
        "--create",
        "--limit",
        "20,1e-6",
        "--json",
    )
    said = json.loads(sfumato("synthesize", "hospital", *VIEW, "--out", "rows.csv", *asked, cwd=viewed).stdout)
    assert "one patient_id of hospital, in all its tables (at most 6" in said["guarantee"]
    assert (viewed / "rows.csv").read_text().splitlines()[0].replace('"', "") == "kind,sex"
    assert (viewed / "hospital.ledger").exists()


def test_a_view_is_bounded_otherwise_where_the_command_says_so(viewed: Path) -> None:
    bounds = (
        "--unit-rows",
        "3",
        "--per",
        "month(admitted)=1",
        "--epsilon",
        "2",
        "--create",
        "--limit",
        "20,1e-6",
        "--json",
    )
    found = sfumato("regress", "hospital", "region", "--by", "kind = 1", *VIEW, *bounds, cwd=viewed)
    assert "(at most 3, at most 1 in one month(admitted))" in json.loads(found.stdout)["guarantee"]
    asked = ("query", "hospital", BY_REGION, "--schema", "hospital.yaml", "--unit-rows", "2", "--epsilon", "1")
    expected = json.loads(sfumato(*asked, "--accuracy", "--json", cwd=viewed).stdout)["expected"][0]
    refused = sfumato(*asked, "--per", "moth(admitted)=2", cwd=viewed, code=2).stderr
    assert "--unit-rows or --per does not fit: " in refused
    assert "moth" in refused
    assert "column" not in refused  # of the statement, which has nothing wrong
    own = json.loads(sfumato(*asked[:5], *asked[7:], "--accuracy", "--json", cwd=viewed).stdout)["expected"][0]
    assert own["standard_error"] / expected["standard_error"] == pytest.approx(3, rel=0.05)  # 6 rows, and 2


def test_a_view_is_anonymised_and_its_recoding_applied(viewed: Path) -> None:
    asked = (
        "anonymize",
        "hospital",
        *VIEW,
        "--quasi",
        "sex,region",
        "--k",
        "2",
        "--suppression",
        "1",
        "--create",
        "--limit",
        "20,1e-6",
    )
    refused = sfumato(*asked, "--keep", "kind", "--out", "rows.csv", "--limit", "1", cwd=viewed, code=2)
    assert "rows of a view hold cells only" in refused.stderr
    assert not (viewed / "hospital.ledger").exists()
    sfumato(*asked, "--out", "rows.csv", "--recoding", "recoding.json", "--limit", "1", cwd=viewed)
    assert (viewed / "rows.csv").read_text().splitlines()[0].replace('"', "") == "sex,region"
    sfumato("apply", "recoding.json", "hospital", *VIEW, "--out", "again.csv", cwd=viewed)
    assert (viewed / "again.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--domain", "hospital.yaml", "--view", "view.sql"), "--view is about several tables: name their schema"),
        (("--domain", "hospital.yaml", "--unit-rows", "2", "--per", "kind=1"), "--unit-rows and --per are about"),
        (("--schema", "hospital.yaml"), "Say which rows of the tables are meant: --view FILE"),
        ((*VIEW, "--domain", "hospital.yaml"), "not both"),
        ((*VIEW[:3], "nowhere.sql"), "There is no file nowhere.sql"),
        ((*VIEW, "--per", "kind"), "--per takes GROUPING=ROWS"),
        ((*VIEW, "--per", "kind=0"), "at least one row in a cell"),
        ((*VIEW, "--per", "colour=2"), "colour"),
        ((*VIEW, "--unit-rows", "0"), "--unit-rows"),
        (("--domain", "hospital.yaml"), "This is a schema of several tables"),
        ((*VIEW[:3], "wrong.sql"), "Line 1, column 47: LIMIT inside"),
    ],
)
def test_a_wrong_view_is_refused_before_anything_is_made(viewed: Path, options: tuple[str, ...], words: str) -> None:
    (viewed / "wrong.sql").write_text("SELECT * FROM visits WHERE kind = 1     LIMIT 5")
    asked = (
        "synthesize",
        "hospital",
        *options,
        "--out",
        "rows.csv",
        "--epsilon",
        "1",
        "--create",
        "--limit",
        "20,1e-6",
    )
    assert words in sfumato(*asked, cwd=viewed, code=2).stderr
    assert not (viewed / "rows.csv").exists()
    assert not (viewed / "hospital.ledger").exists()


def test_a_file_in_place_of_a_folder_is_refused_and_the_reverse(viewed: Path) -> None:
    asked = (
        "query",
        "hospital/visits.csv",
        BY_REGION,
        "--schema",
        "hospital.yaml",
        "--epsilon",
        "1",
        "--create",
        "--limit",
        "20,1e-6",
    )
    assert "visits.csv is a file. A schema is of several tables" in sfumato(*asked, cwd=viewed, code=2).stderr
    (viewed / "domain.yaml").write_text(
        "sfumato: 1\nunit: row\nattributes:\n  kind: {type: integer, minimum: 0, maximum: 2, unknown: drop}\n"
    )
    asked = (
        "query",
        "hospital",
        "SELECT COUNT(*) FROM t",
        "--domain",
        "domain.yaml",
        "--epsilon",
        "1",
        "--create",
        "--limit",
        "20,1e-6",
    )
    assert "Of a folder of several tables name the schema" in sfumato(*asked, cwd=viewed, code=2).stderr


SMALL = """\
sfumato: 2
schema: clinic
unit: {id: person, table: people}
tables:
  people:
    key: person
    attributes:
      sex: {type: categorical, values: [f, m], unknown: drop}
      age: {type: integer, minimum: 0, maximum: 9, nullable: true, unknown: drop}
  visits:
    unit: person
    rows: 3
    attributes:
      ward: {type: categorical, values: [a, b, c], unknown: drop}
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Two folders of different people, a release of some of them, and views."""
    chance = random.Random(5)  # noqa: S311 - of test data
    for folder, first, last in (("members", 0, 200), ("others", 200, 400)):
        (tmp_path / folder).mkdir()
        people = [f"{n},{chance.choice('fm')},{chance.choice([*range(10), ''])}" for n in range(first, last)]
        visits = [f"{chance.randrange(first, last)},{chance.choice('abc')}" for _ in range(300)]
        (tmp_path / folder / "people.csv").write_text("\n".join(["person,sex,age", *people, ""]))
        (tmp_path / folder / "visits.csv").write_text("\n".join(["person,ward", *visits, ""]))
    (tmp_path / "clinic.yaml").write_text(SMALL)
    (tmp_path / "people.sql").write_text("SELECT * FROM people")
    (tmp_path / "visits.sql").write_text("SELECT * FROM visits JOIN people USING (person)")
    rows = [line.partition(",")[2] for line in (tmp_path / "members" / "people.csv").read_text().splitlines()]
    (tmp_path / "release.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_release_of_a_view_is_attacked_by_its_rows(clinic: Path) -> None:
    view = ("--schema", "clinic.yaml", "--view", "people.sql", "--json", "--people", "90")
    asked = ("attack", "members", "release.csv", "--holdout", "others", "--claim", "none", *view)
    found = json.loads(sfumato(*asked, cwd=clinic).stdout)["attacks"]
    assert all(each["bound"] is None for each in found)
    assert len(found) > 3


def test_the_risk_of_a_view_is_that_of_its_cells(clinic: Path) -> None:
    view = ("--schema", "clinic.yaml", "--view", "people.sql", "--json")
    found = json.loads(sfumato("risk", "members", "--quasi", "sex,age", *view, cwd=clinic).stdout)
    rows = [line.split(",") for line in (clinic / "members" / "people.csv").read_text().splitlines()[1:]]
    assert found["rows"] == sum(bool(age) for _, _, age in rows)
    assert found["left_out"] == sum(not age for _, _, age in rows)
    classes = Counter((sex, age) for _, sex, age in rows if age)
    assert (found["classes"], found["smallest_class"]) == (len(classes), min(classes.values()))
    visits = ("risk", "members", "--quasi", "sex,ward", "--schema", "clinic.yaml", "--view", "visits.sql", "--json")
    by_person, by_row = (json.loads(sfumato(*visits, *more, cwd=clinic).stdout) for more in ((), ("--count", "rows")))
    assert by_person["units"] < by_person["rows"] == by_row["rows"]
    assert by_row["units"] is None
    assert by_person["smallest_class"] < by_row["smallest_class"]
    assert by_person["classes"] == by_row["classes"]
    refused = sfumato("risk", "members", "--quasi", "sex", *view, "--delimiter", ";", cwd=clinic, code=2)
    assert "A schema says how its files are written" in refused.stderr


def test_a_frontier_refuses_several_rows_of_a_person(clinic: Path) -> None:
    asked = ("frontier", "members", "--schema", "clinic.yaml", "--view", "visits.sql", "--out", "page.html")
    refused = sfumato(*asked, cwd=clinic, code=2)
    assert "of one person this view has up to 3 rows" in refused.stderr
    assert not (clinic / "page.html").exists()
    assert "or the schema of several" in sfumato(*asked[:2], *asked[4:], cwd=clinic, code=2).stderr


def test_a_release_of_a_view_is_evaluated_beside_other_people(clinic: Path) -> None:
    pytest.importorskip("sklearn")
    view = ("--schema", "clinic.yaml", "--view", "people.sql", "--json")
    asked = ("evaluate", "members", "release.csv", "--holdout", "others", "--claim", "none", "--out", "page.html")
    found = json.loads(sfumato(*asked, *view, cwd=clinic).stdout)
    assert "release.csv" in {each["name"] for each in found["releases"]}
    assert (clinic / "page.html").exists()
