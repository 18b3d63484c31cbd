"""``sfumato synthesize --schema FILE --out FOLDER``: tables that belong together, as a stranger asks for them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.app.test_cli import sfumato
from tests.families import VILLAGE, frames, some_families

from sfumato.domain.table_schema import dump_schema

ASKED = ("synthesize", "village", "--schema", "village.yaml", "--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def village(tmp_path: Path) -> Path:
    """A folder with the schema, and a folder of the tables in it."""
    (tmp_path / "village").mkdir()
    for name, table in frames(some_families(300, 1)).items():
        pyarrow.csv.write_csv(table, tmp_path / "village" / f"{name}.csv")
    (tmp_path / "village.yaml").write_text(dump_schema(VILLAGE), encoding="utf-8")
    return tmp_path


def test_a_folder_of_tables_is_released_judged_and_asked_for_again_for_nothing(village: Path) -> None:
    order = ("--order", "persons=age:falling", "--most", "persons=4", "--json")
    made = json.loads(
        sfumato(*ASKED, *order, "--out", "made", "--format", "csv", "--limit", "2,1e-5", "--create", cwd=village).stdout
    )
    assert sorted(path.name for path in (village / "made").iterdir()) == [
        "codebook.md",
        "houses.csv",
        "persons.csv",
        "release.json",
    ]
    assert made["files"] == ["houses.csv", "persons.csv"]
    assert "all rows of one house of village, in all its tables" in made["guarantee"]
    stated = json.loads((village / "made" / "release.json").read_text())
    assert stated["related"]["children"][0]["order"] == {"by": "age", "falling": True}
    assert stated["loss"]["epsilon"] == "1"
    again = json.loads(sfumato(*ASKED, *order, "--out", "again", cwd=village).stdout)
    assert "nothing" in again["cost"]
    assert pyarrow.parquet.read_table(village / "again" / "persons.parquet").num_rows == made["rows"]["persons"]
    judged = sfumato("evaluate", "village", "made", "--schema", "village.yaml", cwd=village).stdout
    assert "houses with persons" in judged
    journal = json.loads(sfumato("ledger", "show", "village.ledger", "--json", cwd=village).stdout)
    assert len([entry for entry in journal["entries"] if entry["kind"] == "release"]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "village"), "exists and is not empty"),
        (("--out", "no/where"), "cannot be written to"),
        (("--out", "made", "--format", "xlsx"), "parquet or csv"),
        (("--out", "made", "--order", "persons"), "--order takes TABLE="),
        (("--out", "made", "--order", "cats=age"), "'cats' is no child table here; persons are"),
        (("--out", "made", "--order", "persons=name"), "none of its attributes"),
        (("--out", "made", "--most", "persons=few"), "--most takes TABLE=ROWS"),
        (("--out", "made", "--way", "2", "--html", "page.html"), "--way and --html are for one synthetic table"),
        (("--out", "made.csv", "--most", "persons=2"), "are for --schema with a folder as --out"),
    ],
)
def test_what_is_refused_is_not_charged_and_leaves_nothing(village: Path, options, words) -> None:
    before = sorted(path.name for path in village.rglob("*"))
    assert words in sfumato(*ASKED, *options, "--create", cwd=village, code=2).stderr
    assert sorted(path.name for path in village.rglob("*")) == before
