"""``sfumato anonymize``, ``apply``, ``risk`` and ``hierarchy`` as a steward meets them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.app.test_cli import Done, files, sfumato

from sfumato.app.cli.main import COMMANDS

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 20, maximum: 59, unknown: clamp}
  town: {type: categorical, values: [Aix, Brest, Caen], unknown: category}
  ill: {type: categorical, values: ["yes", "no"], unknown: drop}
"""
IMPOSSIBLE = "distinct-diversity:l=3,sensitive=ill"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    people = {
        "age": rng.integers(20, 60, 300),
        "town": rng.choice(["Aix", "Brest", "Caen", "?"], 300, p=[0.6, 0.3, 0.08, 0.02]),
        "ill": rng.choice(["yes", "no"], 300),
        "id": np.arange(300),
    }
    csv.write_csv(pa.table(people), tmp_path / "people.csv")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    return tmp_path


def anonymize(workspace: Path, *more: str, code: int = 0) -> Done:
    given = ("anonymize", "people.csv", "--quasi", "age,town", "--limit", "1", *more)
    return sfumato(*given, cwd=workspace, code=code)


def test_a_suppressed_column_is_named_with_its_remedy_and_is_no_use_of_the_page(workspace: Path) -> None:
    done = anonymize(workspace, "--k", "100", "--create", "--out", "k.csv", "--html", "k.html")
    assert set(csv.read_csv(workspace / "k.csv")["town"].to_pylist()) == {"*"}
    assert "Every value of these columns is *: town." in done.stderr
    assert "sfumato hierarchy draft" in done.stderr
    page = (workspace / "k.html").read_text(encoding="utf-8")
    use, no_use = page.split("Do not use it for")
    assert "Analyses by age in coarser values." in use
    assert "Analyses by town." in no_use


def test_classes_are_counted_in_the_units_of_the_domain_or_in_rows_on_request(workspace: Path) -> None:
    visits = pa.table({"patient": [0] * 5 + list(range(1, 41)), "age": [50] * 5 + [20, 21] * 20, "ill": ["no"] * 45})
    csv.write_csv(visits, workspace / "visits.csv")
    described = DOMAIN.replace("unit: row", "unit: {id: patient, rows: 5}")
    (workspace / "visits.yaml").write_text("\n".join(line for line in described.splitlines() if "town" not in line))
    asked = ("--quasi", "age", "--k", "5", "--limit", "1", "--suppression", "0.2", "--json")
    units = json.loads(sfumato("anonymize", "visits.csv", *asked, "--create", "--out", "u.csv", cwd=workspace).stdout)
    rows = json.loads(
        sfumato("anonymize", "visits.csv", *asked, "--count", "rows", "--out", "r.csv", cwd=workspace).stdout
    )
    assert (units["facts"]["suppressed"], rows["facts"]["suppressed"]) == (5, 0)
    assert (units["facts"]["smallest_class"], units["facts"]["counted"]) == (20, "units")
    assert "so that all rows of a class may be of one patient" in rows["guarantee"]
    assert "50" in (workspace / "r.csv").read_text()
    risk = json.loads(sfumato("risk", "visits.csv", "--quasi", "age", "--json", cwd=workspace).stdout)
    assert (risk["rows"], risk["units"], risk["smallest_class"], risk["sample_uniques"]) == (45, 41, 1, 1)
    by_row = sfumato("risk", "visits.csv", "--quasi", "age", "--count", "rows", "--json", cwd=workspace)
    assert json.loads(by_row.stdout)["smallest_class"] == 5
    assert "Classes are counted in rows, as --count rows asks.\n" in by_row.stderr
    assert "--domain" not in by_row.stderr
    released = sfumato("risk", "u.csv", "--quasi", "age", "--json", cwd=workspace)
    assert json.loads(released.stdout)["units"] is None
    named = sfumato("risk", "u.csv", "--quasi", "age", "--domain", "visits.yaml", cwd=workspace, code=2)
    assert "No column 'patient'" in named.stderr


def test_a_path_that_cannot_be_a_file_is_refused_with_a_message(workspace: Path) -> None:
    for nameless in (".", ""):
        refused = sfumato("anonymize", nameless, "--quasi", "age", "--k", "2", "--out", "o.csv", cwd=workspace, code=2)
        assert "--domain FILE" in refused.stderr
    for command in (["describe", "x" * 300], ["ledger", "show", "x" * 254]):
        assert "too long to be looked up" in sfumato(*command, cwd=workspace, code=2).stderr
    assert not (workspace / "o.csv").exists()


@pytest.mark.parametrize("method", ["optimal", "samarati", "mondrian", "k-member"])
def test_every_method_writes_classes_of_at_least_k(method: str, workspace: Path) -> None:
    limit = ("--suppression", "0.05") if method in ("optimal", "samarati") else ()
    done = anonymize(
        workspace, "--k", "4", "--method", method, "--out", "out.parquet", "--keep", "ill", "--json", *limit
    )
    shown = json.loads(done.stdout)
    rows = pq.read_table(workspace / "out.parquet")
    assert rows.column_names == ["age", "town", "ill"]
    assert min(Counter(zip(rows["age"].to_pylist(), rows["town"].to_pylist(), strict=True)).values()) >= 4
    assert rows.num_rows == shown["facts"]["rows"] - shown["facts"]["suppressed"]
    assert "no DP guarantee: 4-anonymity over the quasi-identifiers age, town" in shown["guarantee"]
    assert ("certificate" in shown["facts"]) == (method == "optimal")


@pytest.mark.parametrize("cut", ["greedy", "relaxed", "strict", "in-order"])
def test_mondrian_cuts_where_it_is_told(cut: str, workspace: Path) -> None:
    anonymize(workspace, "--k", "4", "--method", "mondrian", "--cut", cut, "--out", "out.parquet")
    rows = pq.read_table(workspace / "out.parquet")
    assert min(Counter(zip(rows["age"].to_pylist(), rows["town"].to_pylist(), strict=True)).values()) >= 4


def test_a_limit_in_rows_is_kept_to_the_row(workspace: Path) -> None:
    """Seven people come from a town that would otherwise be generalized away: a limit of seven rows suffices, six do
    not.
    """
    towns = ["Aix"] * 200 + ["Brest"] * 92 + ["Caen"] * 7
    csv.write_csv(pa.table({"age": [30] * 299, "town": towns, "ill": ["no"] * 299}), workspace / "people.csv")
    asked = ("--k", "8", "--json", "--suppress-rows")
    exact = json.loads(anonymize(workspace, *asked, "7", "--out", "seven.csv").stdout)
    short = json.loads(anonymize(workspace, *asked, "6", "--out", "six.csv").stdout)
    assert (exact["facts"]["suppressed"], exact["facts"]["classes"]) == (7, 2)
    assert (short["facts"]["suppressed"], short["facts"]["classes"]) == (0, 1)
    assert "at most a share 0.023412 of the rows" in exact["guarantee"]
    assert 7 / 299 <= 0.023412 < 8 / 299


def test_hierarchies_criteria_recoding_and_risk(workspace: Path) -> None:
    sfumato("hierarchy", "draft", "people.yaml", "age", "town", "--out", "levels", cwd=workspace)
    checked = sfumato("hierarchy", "check", "levels/age.yaml", "--domain", "people.yaml", cwd=workspace)
    assert "a hierarchy of age with 40 values" in checked.stdout
    done = anonymize(
        workspace, "--k", "3", "--suppression", "0.1", "--hierarchies", "levels", "--missing", "suppress",
        "--criterion", "distinct-diversity:l=2,sensitive=ill", "--keep", "ill", "--out", "out.csv",
        "--recoding", "recoding.json",
    )  # fmt: skip
    assert "proven least" in done.stdout
    applied = sfumato("apply", "recoding.json", "people.csv", "--out", "again.csv", cwd=workspace)
    assert "distinct 2-diversity of ill" in applied.stdout
    before = json.loads(sfumato("risk", "people.csv", "--quasi", "age,town", "--json", cwd=workspace).stdout)
    after = json.loads(sfumato("risk", "out.csv", "--quasi", "age,town", "--json", cwd=workspace).stdout)
    assert before["prosecutor"]["highest"] == 1
    assert after["prosecutor"]["highest"] <= 1 / 3
    assert after["smallest_class"] >= 3
    assert json.loads(sfumato("risk", "again.csv", "--quasi", "age,town", "--json", cwd=workspace).stdout)["rows"] > 200
    whole = ("--population", "5000", "--population-table", "people.csv", "--json")
    known = json.loads(sfumato("risk", "people.csv", "--quasi", "age,town", *whole, cwd=workspace).stdout)
    assert known["journalist"]["highest"] == known["prosecutor"]["highest"]
    uniques = known["population_uniques"]
    assert uniques["believed"] == uniques[uniques["model"]] > 0
    said = sfumato("risk", "people.csv", "--quasi", "age,town", *whole[:2], cwd=workspace).stdout
    assert f"Population uniques: about {uniques['believed']:,.0f}, by {uniques['model'].title()}'s model: " in said
    assert uniques["why"] in said


def test_risk_is_told_of_csv_however_it_is_written(workspace: Path) -> None:
    rows = [(age, town) for age in (20, 30, 40) for town in ("Orléans", "Brest")] * 2 + [(50, "Aix, sud")]
    usual = "".join(f'{age},"{town}"\n' for age, town in rows)
    odd = "".join(f"{age} ; {town} ; 1.234,5\n" for age, town in rows)
    (workspace / "usual.csv").write_text(f"age,town\n{usual}")
    (workspace / "odd.csv").write_bytes(f"age;town;income\n{odd}".encode("cp1252"))
    asked = ("--quasi", "age,town", "--json")
    done = sfumato("risk", "odd.csv", *asked, cwd=workspace)
    found = json.loads(done.stdout)
    assert found == json.loads(sfumato("risk", "usual.csv", *asked, cwd=workspace).stdout)
    assert (found["rows"], found["classes"], found["sample_uniques"]) == (13, 7, 1)
    for told in ("fields are separated by ';'", "text is cp1252, not UTF-8", "blanks around its fields are left out"):
        assert told in done.stderr
    said = ("--delimiter", ";", "--encoding", "cp1252", "--trim", "--decimal", ",", "--thousands", ".")
    pq.write_table(
        pa.table({"age": [str(age) for age, _ in rows], "town": [town for _, town in rows]}), workspace / "p.pq"
    )
    (workspace / "p.pq").rename(workspace / "known.parquet")
    with_people = sfumato("risk", "odd.csv", *asked, *said, "--population-table", "known.parquet", cwd=workspace)
    assert json.loads(with_people.stdout)["journalist"]["highest"] == 1
    assert "No column 'age'" in sfumato("risk", "odd.csv", *asked, "--delimiter", "|", cwd=workspace, code=2).stderr
    assert "is no CSV file" in sfumato("risk", "known.parquet", *asked, *said, cwd=workspace, code=2).stderr


def test_risk_says_how_many_rows_have_a_missing_value(workspace: Path) -> None:
    rows = [*(["20", "Brest"] for _ in range(4)), ["30", ""], ["", "Brest"], ["", ""]]
    (workspace / "gaps.csv").write_text("age,town\n" + "".join(f"{age},{town}\n" for age, town in rows))
    said = sfumato("risk", "gaps.csv", "--quasi", "age,town", cwd=workspace).stdout
    assert said.startswith("4 rows in 1 class")
    assert "3 rows with a missing quasi-identifier left out" in said
    found = json.loads(sfumato("risk", "gaps.csv", "--quasi", "age", "--json", cwd=workspace).stdout)
    assert (found["rows"], found["left_out"]) == (5, 2)
    whole = sfumato("risk", "people.csv", "--quasi", "age,town", cwd=workspace).stdout
    assert "left out" not in whole


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--k", "301", "--out", "out.csv"), 1, "the largest k that this table can meet is 300"),
        (("--k", "3", "--suppression", "1.5", "--out", "out.csv"), 2, "must lie in [0, 1]"),
        (("--k", "3", "--suppression", "some", "--out", "out.csv"), 2, "must be a number"),
        (("--k", "3", "--suppression", "0", "--suppress-rows", "3", "--out", "out.csv"), 2, "not both"),
        (("--k", "3", "--suppress-rows", "301", "--out", "out.csv"), 2, "at most 300 can be suppressed"),
        (("--k", "3", "--method", "mondrian", "--suppress-rows", "1", "--out", "out.csv"), 2, "suppresses no row"),
        (("--k", "3", "--criterion", "distinct-diversity:l=2", "--out", "out.csv"), 2, "needs 'sensitive'"),
        (
            ("--k", "3", "--criterion", "distinct-diversity:l=3,sensitive=ill", "--out", "out.csv"),
            1,
            "no limit below 1",
        ),
        (("--k", "3", "--keep", "id", "--out", "out.csv"), 2, "for the owner alone: 300 distinct values"),
        (("--k", "3", "--hierarchies", "nowhere", "--out", "out.csv"), 2, "not a folder"),
        (("--k", "3", "--hierarchies", "broken", "--out", "out.csv"), 2, "does not nest"),
        (("--k", "3", "--hierarchies", "short", "--out", "out.csv"), 2, "misses 1 declared value,"),
        (("--k", "3", "--hierarchies", "headless", "--out", "out.csv"), 2, "2 tops"),
        (("--k", "3", "--out", "people.csv"), 2, "exists"),
        (("--k", "3", "--out", "out.xlsx"), 2, "end it in"),
        (("--k", "3", "--method", "mondrian", "--suppression", "0.5", "--out", "out.csv"), 2, "suppresses no row"),
        (("--k", "3", "--method", "samarati", "--seconds", "1", "--out", "out.csv"), 2, "cannot stop early"),
        (("--k", "3", "--cut", "strict", "--out", "out.csv"), 2, "The cut is for mondrian"),
        (("--k", "3", "--domain", "none.yaml", "--out", "out.csv"), 2, "There is no file none.yaml"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(
    arguments: tuple[str, ...], code: int, message: str, workspace: Path
) -> None:
    for folder, text in {
        "broken": "Aix,x,l,*\nBrest,x,r,*\nCaen,c,r,*\n",
        "short": "Aix,*\nBrest,*\n",
        "headless": "Aix,north\nBrest,west\nCaen,north\n",
    }.items():
        (workspace / folder).mkdir()
        (workspace / folder / "town.csv").write_text(text)
    before = files(workspace)
    table = (workspace / "people.csv").read_bytes()
    done = anonymize(workspace, *arguments, code=code)
    said = done.stderr.strip().splitlines()[-1]
    assert message in said
    assert said.startswith("sfumato: ")
    assert files(workspace) == before
    assert (workspace / "people.csv").read_bytes() == table


def test_a_table_without_a_domain_is_told_to_get_one(workspace: Path) -> None:
    (workspace / "people.yaml").unlink()
    assert "sfumato domain draft people.csv" in anonymize(workspace, "--k", "3", "--out", "out.csv", code=2).stderr


def test_wrong_recodings_and_risks_are_refused(workspace: Path) -> None:
    (workspace / "recoding.json").write_text("{}")
    done = sfumato("apply", "recoding.json", "people.csv", "--out", "out.csv", cwd=workspace, code=2)
    assert "no recoding" in done.stderr
    assert "No column 'height'" in sfumato("risk", "people.csv", "--quasi", "height", cwd=workspace, code=2).stderr
    small = ("--quasi", "age", "--population", "3")
    assert "cannot contain" in sfumato("risk", "people.csv", *small, cwd=workspace, code=2).stderr


def test_json_has_the_size_of_a_hierarchy_and_the_recoding_its_cells(workspace: Path) -> None:
    sfumato("hierarchy", "draft", "people.yaml", "age", "--out", "levels", cwd=workspace)
    asked = ("--k", "3", "--suppression", "0.1", "--hierarchies", "levels", "--out", "out.csv", "--recoding", "r.json")
    shown = anonymize(workspace, *asked, "--json").stdout
    age, town = json.loads(shown)["provenance"]["parameters"]["quasi"]
    assert (age["name"], age["hierarchy"]["values"]) == ("age", 40)
    assert (town["name"], town["hierarchy"]) == ("town", None)
    assert "20..24" not in shown
    assert "20..24" in (workspace / "r.json").read_text()
    journal = json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=workspace).stdout)["entries"][-1]
    assert len(journal["parameters"]["quasi"][0]["hierarchy"]["rows"]) == 40
    again = json.loads(sfumato("apply", "r.json", "people.csv", "--out", "again.csv", "--json", cwd=workspace).stdout)
    assert again["facts"]["rows"] == 300


def test_a_criterion_on_a_column_that_is_not_kept_is_noted_and_not_refused(workspace: Path) -> None:
    asked = ("--k", "3", "--suppression", "0.1", "--criterion", "distinct-diversity:l=2,sensitive=ill")
    said = "distinct 2-diversity of ill costs utility and protects nothing, as ill is not among --keep"
    assert said in anonymize(workspace, *asked, "--out", "out.csv").stderr
    assert said not in anonymize(workspace, *asked, "--keep", "ill", "--out", "kept.csv").stderr


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ("distinct-diversity:l=2,sensitive=nothing", "nothing"),
        ("distinct-diversity:l=2,sensitive=age", "'age' cannot be both a quasi-identifier and sensitive"),
        ("alpha-k:alpha=0.5,k=3,sensitive=ill,code=99", "code is at most"),
        ('distinct-diversity:l=2,sensitive="ill,ness"', "ill,ness"),
        ("distinct-diversity:l=2,l=1,sensitive=ill", "'l' is given twice"),
    ],
)
def test_a_criterion_that_cannot_be_is_refused_without_a_note(workspace: Path, criterion: str, message: str) -> None:
    command = ("anonymize", "people.csv", "--quasi", "age", "--k", "3", "--criterion", criterion, "--out", "out.csv")
    ledger = ("--create", "--limit", "2")
    refused = sfumato(*command, *ledger, cwd=workspace, code=2).stderr
    assert message in refused.splitlines()[-1]
    assert "Note" not in refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quasi", "nope"), "'nope'"),
        (("--quasi", "age,town", "--keep", "nope"), "The table has no column 'nope'"),
        (("--quasi", "age,town", "--keep-anyway", "nope"), "The table has no column 'nope'"),
        (("--quasi", "age", "--criterion", "distinct-diversity:l=2,sensitive=nope"), "'nope'"),
    ],
)
def test_a_column_that_does_not_exist_is_refused_before_the_rows_are_read(
    workspace: Path, options: tuple[str, ...], message: str
) -> None:
    ledger = ("--create", "--limit", "1", "--ledger", "other.ledger")
    anonymize(workspace, "--k", "3", "--out", "k3.csv", "--recoding", "recoding.yaml")
    before = files(workspace)
    asked = [("anonymize", "people.csv", "--k", "3", *options)]
    if options[2:] and "--criterion" not in options:
        asked.append(("apply", "recoding.yaml", "people.csv", *options[2:]))
    for command in asked:
        refused = sfumato(*command, "--out", "out.csv", *ledger, cwd=workspace, code=2).stderr
        assert message in refused.splitlines()[-1]
        assert ("Reading" in refused) == message.startswith("The table")  # only its header is read then
        assert "Searching" not in refused
    assert files(workspace) == before


def test_a_missing_ledger_is_reported_before_the_search(workspace: Path) -> None:
    before = files(workspace)
    asked = ("anonymize", "people.csv", "--quasi", "age", "--k", "3", "--out", "out.csv")
    done = sfumato(*asked, "--create", cwd=workspace, code=2)
    assert "Missing: --limit BUDGET (such as 2,1e-9)" in done.stderr
    assert files(workspace) == before


def test_a_long_search_says_how_far_it_is(workspace: Path) -> None:
    said = anonymize(workspace, "--k", "3", "--method", "k-member", "--out", "out.csv").stderr
    assert re.search(r"block 1 of 1, \d+ distinct tuples", said)
    hurried = anonymize(workspace, "--k", "3", "--method", "k-member", "--seconds", "0", "--out", "hurried.csv").stdout
    assert "Search: stopped after 0 s; more time may find classes that lose less\n" in hurried


@pytest.fixture
def long(workspace: Path) -> Path:
    """A table that takes long to search by k-member, and long to write."""
    rng = np.random.default_rng(4)
    people = {
        "age": rng.integers(20, 60, 1_000_000),
        "hours": rng.integers(0, 400, 1_000_000),
        "town": rng.choice(["Aix", "Brest", "Caen"], 1_000_000),
        "words": rng.integers(0, 1 << 60, 1_000_000).astype(str),
    }
    pq.write_table(pa.table(people), workspace / "people.parquet")
    hours = "  hours: {type: integer, minimum: 0, maximum: 399, unknown: clamp}\n"
    (workspace / "people.yaml").write_text(
        DOMAIN.replace("  ill", f"{hours}  words").replace('["yes", "no"]', "[none]")
    )
    (workspace / "people.yaml").write_text((workspace / "people.yaml").read_text().replace("drop", "category"))
    return workspace


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs that are started get SIGINT, even if the tests run in the background, where shells switch it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(workspace: Path, *more: str) -> subprocess.Popen[str]:
    script = Path(sys.executable).parent / "sfumato"
    asked = ("anonymize", "people.parquet", "--create", "--limit", "1", "--k", "100", "--out", "out.csv", *more)
    return subprocess.Popen([script, *asked], cwd=workspace, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_search_says_that_nothing_was_charged(long: Path) -> None:
    before = files(long)
    with started(long, "--quasi", "age,hours,town", "--method", "k-member") as running:
        assert running.stderr is not None
        while "block 1 of" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert said.endswith("sfumato: Interrupted. Nothing was charged.\n")
    assert {name for name in files(long) if "ledger" not in name} == set(before)


def test_a_program_that_is_told_to_end_leaves_nothing_half_written(long: Path) -> None:
    with started(long, "--quasi", "age,town", "--keep-anyway", "words") as running:
        while not (partial := list(long.glob(".out.csv.*"))):
            assert running.poll() is None
            time.sleep(0.001)
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        said = running.stderr.read()
    assert partial
    assert running.returncode == 143
    assert "sfumato:" not in said
    assert "Traceback" not in said
    assert not [path.name for path in long.iterdir() if "out.csv" in path.name]


# DuckDB makes a RuntimeError of whatever a handler raises while it counts, and leaves what was raised behind.  It waits
# for the threads that count with it to end their shares, so the rows here are many, but not without end.
COUNTING = """
import os, sys, threading, time, duckdb
from sfumato.app.cli import main

@main.app.command()
def count():
    threading.Timer(0.5, os.kill, (os.getpid(), NUMBER)).start()
    try:
        duckdb.sql("SELECT MAX(hash(range)) FROM range(1000000000)").fetchall()
    finally:
        print("left in order", flush=True)

sys.argv = ["sfumato", "count"]
main.run()
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_count_of_the_engine_with_its_own_code(number: int, code: int) -> None:
    script = COUNTING.replace("NUMBER", str(int(number)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    assert done.stdout == "left in order\n"
    assert done.stderr == ("sfumato: Interrupted. Nothing was charged.\n" if code == 130 else "")


def test_the_commands_are_there() -> None:
    assert {"anonymize", "apply", "risk"} <= COMMANDS.keys()
