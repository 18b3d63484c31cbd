"""``sfumato synthesize linked``: linked tables, as a new user asks for them."""

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
    order = ("--order", "persons=age:falling", "--most", "persons=4", "--final", "persons.work=yes", "--json")
    new = ("--format", "csv", "--html", "page.html", "--model", "made.model", "--limit", "2,1e-5", "--create")
    made = json.loads(sfumato(*ASKED, *order, "--out", "made", *new, cwd=village).stdout)
    sfumato("describe", "made", "--html", "described.html", cwd=village)
    assert (village / "page.html").read_text() == (village / "described.html").read_text()
    assert sorted(path.name for path in (village / "made").iterdir()) == [
        "codebook.md",
        "houses.csv",
        "persons.csv",
        "release.json",
    ]
    assert made["files"] == ["houses.csv", "persons.csv"]
    assert made["guarantee"].endswith(
        "all rows of one house of village, in all its tables (at most 4 of persons are kept)"
    )
    persons = pyarrow.csv.read_csv(village / "made" / "persons.csv")
    ended = [
        house
        for house, work in zip(*(persons[name].to_pylist() for name in ("house", "work")), strict=True)
        if work == "yes"
    ]
    assert len(ended) == len(set(ended)) > 0
    stated = json.loads((village / "made" / "release.json").read_text())
    assert stated["related"]["children"][0]["order"] == {"by": "age", "falling": True}
    assert stated["related"]["children"][0]["final"] == ["work", "yes"]
    assert stated["loss"]["epsilon"] == "1"
    again = json.loads(sfumato(*ASKED, *order, "--out", "again", "--format", "csv", cwd=village).stdout)
    assert "nothing" in again["cost"]
    for name in ("houses.csv", "persons.csv"):
        assert (village / "again" / name).read_bytes() == (village / "made" / name).read_bytes()
    (village / "village.ledger").rename(village / "kept.ledger")  # and without tables and ledger
    (village / "village").rename(village / "gone")
    drawn = json.loads(sfumato("sample", "made.model", "--out", "drawn", "--copies", "2", "--json", cwd=village).stdout)
    assert drawn["copies"] == ["drawn-1", "drawn-2"]
    one, other = (pyarrow.parquet.read_table(village / name / "persons.parquet") for name in drawn["copies"])
    assert one != other
    assert [rows["persons"] for rows in drawn["rows"]] == [one.num_rows, other.num_rows]
    said = json.loads((village / "drawn-1" / "release.json").read_text())
    assert said["guarantee"] == made["guarantee"] == drawn["guarantee"]
    assert said["loss"] == {"epsilon": "1", "delta": "1e-06"}
    few = sfumato("sample", "made.model", "--out", "few", "--rows", "3", cwd=village, code=2).stderr
    assert "--rows and --given are for models of one table" in few
    assert "named like a file" in sfumato("sample", "made.model", "--out", "few.csv", cwd=village, code=2).stderr
    assert "not empty" in sfumato("sample", "made.model", "--out", "drawn-1", cwd=village, code=2).stderr
    nameless = sfumato("sample", "made.model", "--out", ".", "--copies", "2", cwd=village, code=2).stderr
    assert "names a folder" in nameless
    (village / "cut.model").write_bytes((village / "made.model").read_bytes()[:300])
    for model in ("cut.model", "no.model"):  # which is told, and not that a folder is no file of rows
        assert model in sfumato("sample", model, "--out", "few", cwd=village, code=2).stderr
    (village / "kept.ledger").rename(village / "village.ledger")
    (village / "gone").rename(village / "village")
    judged = sfumato("evaluate", "village", "made", "--schema", "village.yaml", cwd=village).stdout
    assert "houses with persons" in judged
    for wrong, words in ({"epsilon": "2", "delta": "1e-6"}, "contradicts itself"), ("1", "is damaged"):
        (village / "made" / "release.json").write_text(json.dumps(stated | {"loss": wrong}))
        assert words in sfumato("evaluate", "village", "made", "--schema", "village.yaml", cwd=village, code=2).stderr
    journal = json.loads(sfumato("ledger", "show", "village.ledger", "--json", cwd=village).stdout)
    (entry,) = [entry for entry in journal["entries"] if entry["kind"] == "release"]
    assert entry["statement"] == made["guarantee"]
    assert entry["unit"].startswith("adding or removing all rows of one house of village")
    assert entry["unit"].endswith("(at most 4 of persons are kept)")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "village"), "exists and is not empty"),
        (("--out", "no/where"), "cannot be written to"),
        (("--out", "made", "--format", "xlsx"), "parquet or csv"),
        (("--out", "made", "--order", "persons"), "--order takes TABLE="),
        (("--out", "made", "--order", "cats=age"), "'cats' is no child table here. The child tables are persons"),
        (("--out", "made", "--order", "persons=name"), "none of its attributes"),
        (("--out", "made", "--most", "persons=few"), "--most takes TABLE=ROWS"),
        (("--out", "made", "--most", "persons=900"), "--most keeps at most the 6 rows of persons"),
        (("--out", "made", "--memory", "3"), "--memory looks 1 or 2 rows back, not 3"),
        (("--out", "made", "--memory", "persons=two"), "--memory looks 1 or 2 rows back, not two"),
        (
            ("--out", "made", "--memory", "cats=2"),
            "--memory: 'cats' is no child table here. The child tables are persons",
        ),
        (("--out", "made", "--memory", "two"), "--memory takes TABLE="),
        (("--out", "made", "--memory", "2", "--memory", "1"), "twice of all tables"),
        (("--out", "made", "--memory", "persons=2", "--memory", "persons=1"), "--memory is said twice of persons"),
        (("--out", "made", "--most", "persons=2", "--most", "persons=2"), "--most is said twice of persons"),
        (("--out", "made.csv", "--memory", "2"), "are for 'sfumato synthesize linked'"),
        (("--out", "made.xlsx"), "made.xlsx is named like a file. Name a folder"),
        (("--out", "made.JSON"), "named like a file"),
        (("--out", "made", "--way", "2", "--zeros", "village.yaml"), "--way and --zeros are for one synthetic table"),
        (("--out", "made", "--model", "village.yaml"), "exists"),
        (("--out", "made", "--model", "made"), "Choose another name"),
        (("--out", "made", "--html", "made"), "Choose another name"),
        (("--out", "made", "--html", "no/page.html"), "does not exist"),
        (("--out", "made", "--html", "village.yaml"), "exists"),
        (("--out", "made", "--final", "persons=yes"), "--final takes TABLE.COLUMN=VALUE of persons.age, persons.work"),
        (("--out", "made", "--final", "houses.size=S"), "--final takes TABLE.COLUMN=VALUE of persons.age"),
        (("--out", "made", "--final", "persons.work=dead"), "persons cannot end with work = dead"),
        (("--out", "made", "--final", "persons.work=no", "--final", "persons.work=yes"), "two ends of persons"),
        (("--out", "made.csv", "--final", "persons.work=yes"), "are for 'sfumato synthesize linked'"),
        (("--out", "made.csv", "--most", "persons=2"), "are for 'sfumato synthesize linked'"),
    ],
)
def test_what_is_refused_is_not_charged_and_leaves_nothing(village: Path, options, words) -> None:
    before = sorted(path.name for path in village.rglob("*"))
    assert words in sfumato(*ASKED, *options, "--create", "--limit", "20,1e-6", cwd=village, code=2).stderr
    assert sorted(path.name for path in village.rglob("*")) == before


PURE = ("synthesize", "village", "--schema", "village.yaml", "--epsilon", "2", "--out", "made")


def test_what_a_delta_would_give_is_said_before_linked_tables_are_charged(village: Path) -> None:
    told = sfumato(*PURE, "--limit", "20,1e-6", "--create", cwd=village).stderr
    said = "Before it is charged: epsilon = 2 without a delta (rho = 2) leaves noise of about "
    assert said in told
    assert told.index(said) < told.index("Reading")
    assert "Before it is charged: add --delta 1e-6, then epsilon = 2 needs 2 % of the budget" in told


def test_columns_of_many_cells_of_a_child_table_are_named_before_the_charge(village: Path) -> None:
    new = ("--limit", "20,1e-6", "--create")
    schema = (village / "village.yaml").read_text()
    named = "may place values of many cells anywhere: persons.age (1,002 cells); declare edges."
    for most, words in ((998, ""), (1000, named)):
        (village / "wide.yaml").write_text(schema.replace("maximum: 3", f"maximum: {most}"))
        wide = ("synthesize", "village", "--schema", "wide.yaml", "--epsilon", "1", "--delta", "1e-6")
        told = sfumato(*wide, "--out", f"made-{most}", *new, "--ledger", f"{most}.ledger", cwd=village).stderr
        assert ("Before it is charged: columns of child tables" in told) is bool(words)
        assert words in told


def test_a_ledger_that_can_never_take_the_loss_says_so_before_any_work(village: Path) -> None:
    refused = sfumato(*PURE, "--limit", "2,1e-6", "--create", cwd=village, code=3)
    assert "Add --delta 1e-6, then epsilon = 2 needs 100 % of the budget" in refused.stderr
    assert "Reading" not in refused.stderr
    refused = sfumato(*PURE, "--delta", "1e-6", "--limit", "2", "--create", cwd=village, code=2)
    assert "can never take a delta or a rho" in refused.stderr
    assert "Reading" not in refused.stderr
    assert sorted(path.name for path in village.iterdir()) == ["village", "village.yaml"]
