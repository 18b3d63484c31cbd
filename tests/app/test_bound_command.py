"""``sfumato bound`` prints a suggestion, writes a draft on request, and changes nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from tests.app.test_cli import sfumato

from sfumato.domain import load
from sfumato.domain.table_schema import load_schema

DOMAIN = """\
sfumato: 1
unit: {id: patient, rows: 50, per: {month(day): 2}}
attributes:
  day: {type: date, first: 2023-01-01, last: 2023-12-31, by: month, unknown: drop}
  kind: {type: categorical, values: [a, b], unknown: drop}
"""


@pytest.fixture
def folder(tmp_path):
    rows = [f"p{patient},2023-{month:02}-01,a" for patient in range(300) for month in (1, 2, 3)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient,day,kind", *rows, ""]))
    (tmp_path / "visits.yaml").write_text(DOMAIN)
    return tmp_path


def run(folder, *words: str, code: int = 0):
    return sfumato("bound", "visits.csv", "--domain", "visits.yaml", *words, cwd=folder, code=code)


MORE = ("--epsilon", "0.5", "--limit", "1", "--create")


def test_a_bound_is_suggested_and_nothing_is_changed(folder) -> None:
    found = run(folder, "--by", "month(day)", "--by", "kind", *MORE)
    suggested = re.search(r"Suggested for tables of 24 cells: rows: (\d+) of one patient", found.stdout)
    assert int(suggested[1]) >= 4  # more in one release of two hundred, where noise looks like units of many rows
    assert "Guarantee: differential privacy with epsilon = 0.5" in found.stdout
    assert (folder / "visits.yaml").read_text() == DOMAIN


def test_a_draft_is_written_on_request_and_says_everything_else_as_before(folder) -> None:
    found = run(folder, "--cells", "24", "--out", "bounded.yaml", "--json", *MORE)
    said = json.loads(found.stdout)
    assert said["unit"] == {"id": "patient", "rows": said["unit"]["rows"], "per": {"month(day)": 2}}
    assert said["unit"]["rows"] >= 4
    assert sum(size["units"] for size in said["sizes"]) > 0
    drafted, old = load(folder / "bounded.yaml"), load(folder / "visits.yaml")
    assert drafted.draft
    assert drafted.attributes == old.attributes
    assert drafted.unit.rows == said["unit"]["rows"]
    assert "bounded.yaml" in run(folder, "--cells", "24", "--out", "bounded.yaml", *MORE, code=2).stderr


@pytest.mark.parametrize(
    "words", [(), ("--by", "kind", "--cells", "2"), ("--by", "fortnight(day)"), ("--cells", "2", "--share", "1")]
)
def test_what_says_no_size_is_refused_before_it_is_charged(folder, words) -> None:
    refused = run(folder, *words, *MORE, code=2)
    assert refused.stderr.splitlines()[-1].startswith("sfumato: ")
    run(folder, "--cells", "2", "--epsilon", "1", "--limit", "1", "--create")  # all of the budget is still there


SCHEMA = """\
sfumato: 2
schema: clinic
unit: {id: patient, table: patients}
tables:
  patients: {key: patient, attributes: {sex: {type: categorical, values: [f, m], unknown: drop}}}
  visits:
    unit: patient
    rows: 50
    per: {month(day): 2}
    attributes:
      day: {type: date, first: 2023-01-01, last: 2023-12-31, by: month, unknown: drop}
      kind: {type: categorical, values: [a, b], unknown: drop}
  codes: {public: true, key: code, attributes: {chapter: {type: categorical, values: [x, y], unknown: drop}}}
"""


@pytest.fixture
def tables(folder):
    (folder / "clinic").mkdir()
    (folder / "visits.csv").rename(folder / "clinic" / "visits.csv")
    people = [f"p{patient},f" for patient in range(300)]
    (folder / "clinic" / "patients.csv").write_text("\n".join(["patient,sex", *people, ""]))
    (folder / "clinic" / "codes.csv").write_text("code,chapter\nA,x\n")
    (folder / "clinic.yaml").write_text(SCHEMA)
    (folder / "view.sql").write_text("SELECT * FROM visits JOIN patients USING (patient) WHERE kind = 'a'")
    (folder / "each.sql").write_text("SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient")
    return folder


def of_tables(tables, *words: str, code: int = 0):
    return sfumato("bound", "clinic", "--schema", "clinic.yaml", *words, cwd=tables, code=code)


SURE = ("--epsilon", "50", "--limit", "100", "--create")  # without noise, but for once in e^45


def test_a_bound_is_suggested_for_a_table_of_a_schema_and_for_a_view(tables) -> None:
    found = of_tables(tables, "--of", "visits", "--by", "month(day)", "--by", "kind", "--out", "next.yaml", *SURE)
    assert "rows: 4 of one patient. No line above that seems to hold anybody" in found.stdout
    assert "noise 0" not in found.stdout
    assert "of clinic, in all its tables" in found.stdout
    assert "accept it with 'sfumato schema accept'" in found.stdout
    drafted, old = load_schema(tables / "next.yaml"), load_schema(tables / "clinic.yaml")
    assert drafted.draft
    assert drafted["visits"] == replace(old["visits"], rows=4)
    assert drafted["patients"] == old["patients"]
    viewed = of_tables(tables, "--view", "view.sql", "--cells", "24", "--json", *MORE[:2])
    assert json.loads(viewed.stdout)["unit"]["schema"] == "clinic"


def test_bounds_by_groups_are_suggested_for_a_table_and_written_into_the_draft(tables) -> None:
    """Everybody has one visit in each of three months, of four kinds that are all the same."""
    words = ("--of", "visits", "--cells", "12", "--per", "month(day)", "--per", "kind", "--out", "next.yaml")
    found = of_tables(tables, *words, "--epsilon", "250", "--limit", "300", "--create")
    assert "And per: {kind: {rows: 4, groups: 1}, month(day): 1}." in found.stdout
    assert "cells of month(day)  units" in found.stdout
    assert "epsilon = 250" in found.stdout
    drafted = load_schema(tables / "next.yaml")
    assert {bound.name: bound.describe() for bound in drafted["visits"].per} == {
        "kind": {"rows": 4, "groups": 1},
        "month(day)": 1,
    }
    alone = ("--view", "view.sql", "--cells", "24", "--per", "sex, month(day)", "--json", *MORE[:2])
    said = json.loads(of_tables(tables, *alone).stdout)
    assert [each["of"] for each in said["by_groups"]] == [
        "cells of month(day) and sex",
        "rows in one cell of month(day) and sex",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--of", "visits", "--cells", "2", "--per", "colour"), "colour"),
        (("--of", "visits", "--cells", "2", "--per", "month(kind)"), "kind"),
        (("--of", "visits", "--cells", "2", "--per", "kind", "--per", "kind"), "two bounds by the same groups"),
        ((), "Say which rows are to be bounded"),
        (("--of", "visits", "--view", "view.sql"), "Say which rows are to be bounded"),
        (("--of", "patients"), "patients lists every patient once, so there is nothing to bound"),
        (("--of", "codes"), "these tables are public"),
        (("--of", "nothing"), "No table 'nothing' in the schema"),
        (("--view", "each.sql"), "one row of each person, so there is nothing to bound"),
        (("--view", "view.sql", "--out", "next.yaml"), "A schema says no bound of a view"),
        (("--of", "visits", "--by", "colour"), "colour"),
    ],
)
def test_what_cannot_be_bounded_is_refused_before_the_charge(tables, words: tuple[str, ...], told: str) -> None:
    cells = () if "--by" in words else ("--cells", "24")
    assert told in of_tables(tables, *words, *cells, *MORE, code=2).stderr
    assert not (tables / "clinic.ledger").exists()
    assert not (tables / "next.yaml").exists()
