"""The evaluating commands as a stranger meets them."""

from __future__ import annotations

import io
import json
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.app.first_release import begun

from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.report.page import figure

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, unknown: clamp}
  town: {type: categorical, values: [Ulm, Bern, Oslo, Rome], unknown: drop}
  hours: {type: integer, minimum: 0, maximum: 60, unknown: clamp}
  rich: {type: categorical, values: ["no", "yes"], unknown: drop}
"""


def sfumato(*arguments: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    from sfumato.app.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["sfumato", *begun(arguments, cwd)]),
    ):
        try:
            run()
            found = 0
        except SystemExit as end:
            found = int(end.code or 0)
    assert found == code, (arguments, out.getvalue(), err.getvalue())
    assert "Traceback" not in err.getvalue()
    return out.getvalue(), err.getvalue()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Write a table, its holdout, an unchanged copy labeled as anonymous, and a table in intervals."""
    luck = np.random.default_rng(0)
    age = luck.integers(0, 100, 900)
    people = pa.table(
        {
            "age": age,
            "town": luck.choice(["Ulm", "Bern", "Oslo", "Rome"], 900),
            "hours": luck.integers(0, 61, 900),
            "rich": np.where(age + luck.integers(0, 50, 900) > 70, "yes", "no"),
        }
    )
    members = people.slice(0, 300)
    csv.write_csv(members, tmp_path / "people.csv")
    csv.write_csv(people.slice(300), tmp_path / "others.csv")
    pq.write_table(members, tmp_path / "copy.parquet")
    decades = [f"[{value // 10 * 10}, {value // 10 * 10 + 10})" for value in members["age"].to_pylist()]
    north = ["north" if town == "Oslo" else "south" for town in members["town"].to_pylist()]
    coarse = members.set_column(0, "age", pa.array(decades)).set_column(1, "town", pa.array(north))
    csv.write_csv(coarse, tmp_path / "coarse.csv")
    (tmp_path / "towns.csv").write_text("leaf,side\nUlm,south\nBern,south\nRome,south\nOslo,north\n")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    return tmp_path


FILES = ["people.csv", "copy.parquet", "coarse.csv", "--domain", "people.yaml", "--holdout", "others.csv"]
CLAIMS = ["--claim", "epsilon=1", "--claim", "none", "--hierarchy", "town=towns.csv"]


def test_attack_tells_a_copy_from_protection(workspace: Path) -> None:
    out, _ = sfumato("attack", *FILES, *CLAIMS, "--json", cwd=workspace)
    lines = {(line["release"], line["attack"]): line for line in json.loads(out)["attacks"]}
    assert len(lines) == 10
    copied = lines["copy.parquet", "membership"]
    assert copied["low"] > copied["bound"] > 0  # it does not keep what it promises
    assert lines["coarse.csv", "membership"]["advantage"] < copied["advantage"]
    assert lines["coarse.csv", "membership"]["bound"] is None
    assert all(line["attacker knows"] for line in lines.values())
    text, _ = sfumato("attack", *FILES, *CLAIMS, cwd=workspace)
    assert "worst of 4" in text


def test_evaluate_writes_one_page(workspace: Path) -> None:
    out, err = sfumato("evaluate", *FILES, *CLAIMS, "--out", "report.html", "--target", "rich", "--json", cwd=workspace)
    page = (workspace / "report.html").read_text()
    assert page.count("<figure") == 10
    assert "[5/5]" in err
    value = json.loads(out)
    assert value["notice"].endswith("they are for its owner alone.")
    assert [each["name"] for each in value["releases"]][3:] == ["copy.parquet", "coarse.csv"]
    assert value["releases"][3]["marginals"] == [1, 1, 1]
    assert all(each["real_columns"] == {} for each in value["releases"])
    assert value["releases"][3]["samples"]["members tested by attacks"] == "a sample"
    assert {share for each in value["releases"] for share in each["samples"].values()} == {"all", "a sample"}
    assert [bool(each["columns"]) for each in value["releases"]] == [False, False, False, True, True]
    figures = {"attack", "knowledge", "members", "controls", "advantage", "low", "high", "bound"}
    for each in value["releases"]:
        for attack in (*each["attacks"], each["headline"]):
            assert set(attack) == figures
            assert attack["advantage"] == attack["members"] - attack["controls"]  # shares, and no numbers of people
            assert all(
                f"<td>{figure(attack[name], 4)}</td>" in page for name in ("members", "controls", "advantage", "low")
            )
    sfumato("evaluate", *FILES, *CLAIMS, "--out", "report.html", cwd=workspace, code=2)
    assert (workspace / "report.html").read_text() == page


def test_two_files_are_enough_to_judge_fidelity(workspace: Path) -> None:
    made = ("--domain", "people.yaml", "--epsilon", "3", "--create", "--limit", "3", "--out", "made.parquet")
    sfumato("synthesize", "people.csv", *made, cwd=workspace)
    told, err = sfumato("evaluate", "people.csv", "made.parquet", "--json", cwd=workspace)
    assert "Without --holdout no attack is run" in err
    document = json.loads(told)
    verdicts = {each["question"]: each["verdict"] for each in document["verdicts"]}
    assert verdicts["Counts by one column"] in ("Good", "Usable with care", "Not for use")
    assert verdicts["Any two columns, mean"] == "Cannot be judged"
    assert not any(each["is_risk"] for each in document["verdicts"])
    assert document["page"] is None
    assert [each["name"] for each in document["releases"]] == ["raw table", "independent columns", "made.parquet"]
    (workspace / "judged.json").write_text(told)
    signed = ("sign-off", "made.parquet", "--evaluation", "judged.json", "--html", "signed.html", "--json")
    assert json.loads(sfumato(*signed, cwd=workspace)[0])["tiles"]["Risk measured"] == "Not evaluated"
    sfumato("evaluate", "people.csv", "made.parquet", "--out", "page.html", cwd=workspace)
    assert "No holdout was given" in (workspace / "page.html").read_text()


def test_the_page_shows_the_budget_journal(workspace: Path) -> None:
    release = ["synthesize", "people.csv", "--domain", "people.yaml", "--method", "marginals", "--limit", "3"]
    more = ["--marginals", "town,rich", "--marginals", "age", "--marginals", "hours"]
    sfumato(*release, *more, "--epsilon", "1", "--out", "one.parquet", cwd=workspace)
    sfumato(*release, *more, "--epsilon", "0.5", "--out", "two.parquet", cwd=workspace)
    files = ["evaluate", "people.csv", "two.parquet", "--domain", "people.yaml", "--holdout", "others.csv"]
    sfumato(*files, "--claim", "epsilon=0.5", "--ledger", "people.ledger", "--out", "report.html", cwd=workspace)
    page = (workspace / "report.html").read_text()
    assert "Budget journal" in page
    assert '<td class="text">epsilon 0.5</td><td class="text">epsilon</td><td>1.5</td>' in page


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--claim", "none", "--out", "r.html"], "one guarantee for each release, in order, by --claim"),
        ([*CLAIMS[:2], "--claim", "secure", *CLAIMS[4:], "--out", "r.html"], "is no guarantee"),
        ([*CLAIMS[:4], "--out", "r.html"], "no value, interval, set or label"),
        ([*CLAIMS[:4], "--hierarchy", "towns.csv", "--out", "r.html"], "column=file"),
        ([*CLAIMS, "--holdout", "people.csv", "--out", "r.html"], "repeats people"),
        ([*CLAIMS, "--holdout", "absent.csv", "--out", "r.html"], "absent.csv"),
        ([*CLAIMS, "--target", "height", "--out", "r.html"], "height"),
        ([*CLAIMS, "--out", "absent/r.html"], "folder"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_no_page(workspace: Path, change, says: str) -> None:
    before = {path.name for path in workspace.iterdir()}
    _, err = sfumato("evaluate", *FILES, *change, cwd=workspace, code=2)
    last = [line for line in err.splitlines() if line.startswith("sfumato: ")]
    assert len(last) == 1
    assert says in last[0]
    assert {path.name for path in workspace.iterdir()} == before


def test_columns_that_do_not_match_and_too_few_rows(workspace: Path) -> None:
    csv.write_csv(pa.table({"age": [1, 2], "rich": ["no", "yes"]}), workspace / "thin.csv")
    rest = ["--domain", "people.yaml", "--holdout", "others.csv", "--claim", "none", "--out", "r.html"]
    _, err = sfumato("evaluate", "people.csv", "thin.csv", *rest, cwd=workspace, code=2)
    assert "lacks the columns town, hours" in err
    csv.write_csv(csv.read_csv(workspace / "people.csv").slice(0, 50), workspace / "few.csv")
    _, err = sfumato("evaluate", "few.csv", "copy.parquet", *rest, cwd=workspace, code=2)
    assert "An interval needs at least 80 rows" in err


def test_how_far_off_a_point_is_is_shown(tmp_path: Path) -> None:
    """A release without any zero, of people of whom a third earn nothing."""
    luck = np.random.default_rng(0)
    pay = np.where(luck.random(900) < 1 / 3, 0.0, luck.uniform(0, 100, 900))
    domain = "  pay: {type: real, edges: [0, 50, 100], points: [0], unknown: clamp}\n"
    domain += "  rich: {type: categorical, values: [false, true], unknown: drop}\n"
    (tmp_path / "people.yaml").write_text(f"sfumato: 1\nunit: row\nattributes:\n{domain}")
    table = pa.table({"pay": pay, "rich": pay > 50})
    made = pa.table({"pay": np.maximum(pay, 1e-300), "rich": pay > 50})
    for name, rows in (("people", table.slice(0, 450)), ("others", table.slice(450)), ("made", made.slice(0, 450))):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    asked = ["evaluate", "people.parquet", "people.parquet", "made.parquet", "--domain", "people.yaml"]
    asked += ["--holdout", "others.parquet", "--claim", "none", "--claim", "none", "--out", "report.html"]
    told = json.loads(sfumato(*asked, "--json", cwd=tmp_path)[0])["releases"]
    gaps = {each["name"].partition(".")[0]: each["point_gap"] for each in told}
    zeros = round(float((pay[:450] == 0).mean()), 3)
    assert gaps["people"] == [0, "pay", "0.0"]
    assert gaps["made"] == [zeros, "pay", "0.0"]
    page = (tmp_path / "report.html").read_text()
    assert "largest change of a point" in page
    assert "pay = 0.0" in page


def test_audit_lists_passes_and_rejects(workspace: Path) -> None:
    out, _ = sfumato("audit", cwd=workspace)
    assert "permute-and-flip" in out
    with patch("sfumato.privacy.entropy.OsEntropy", lambda: SimulatedEntropy(1)):  # of honest ones 1 in 1000 fails
        out, _ = sfumato("audit", "laplace", "gaussian", "--draws", "800", "--json", cwd=workspace)
    assert [finding["passed"] for finding in json.loads(out)] == [True, True]
    (workspace / "homemade.py").write_text(
        "import random\ndef count(table):\n    return len(table) + random.choice([-1, 1]) * random.expovariate(1)\n"
    )
    inputs = ["--first", "[]", "--second", "[1]", "--epsilon", "1"]
    out, _ = sfumato("audit", "homemade:count", *inputs, "--draws", "2000", cwd=workspace, code=1)
    assert "REJECTED" in out
    assert "lowest bit" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lapace"], "No mechanism 'lapace'"),
        (["nowhere:count", "--first", "0", "--second", "1", "--epsilon", "1"], "No callable"),
        ([":count", "--first", "0", "--second", "1", "--epsilon", "1"], "No callable"),
        (["..:count", "--first", "0", "--second", "1", "--epsilon", "1"], "No callable"),
        (["json:loads", "--first", "[" * 100_000, "--second", "1", "--epsilon", "1"], "as JSON"),
        (["math:sqrt", "--first", "0", "--second", "one", "--epsilon", "1"], "JSON"),
        (["math:sqrt", "--first", "0", "--second", "1"], "The privacy loss is missing."),
        (["math:sqrt", "--epsilon", "1"], "two neighbouring inputs"),
        (["math:pi", "--first", "0", "--second", "1", "--epsilon", "1"], "cannot be called"),
    ],
)
def test_audits_that_make_no_sense(workspace: Path, arguments: list[str], says: str) -> None:
    _, err = sfumato("audit", *arguments, cwd=workspace, code=2)
    assert says in err


@pytest.mark.slow
def test_frontier_runs_every_family_and_goes_on(workspace: Path) -> None:
    arguments = ["frontier", "people.csv", "--domain", "people.yaml", "--holdout", "others.csv", "--quasi", "age,town"]
    out, err = sfumato(*arguments, "--cache", "kept", "--out", "one.html", "--json", cwd=workspace)
    assert len(json.loads(out)["releases"]) == 19
    assert json.loads(out)["notice"].endswith("they are for its owner alone.")
    assert "[19/19]" in err
    again, _ = sfumato(*arguments, "--cache", "kept", "--out", "two.html", "--json", cwd=workspace)
    assert json.loads(again)["releases"] == json.loads(out)["releases"]
    alone, _ = sfumato(
        "frontier", "others.csv", "--domain", "people.yaml", "--out", "three.html", "--json", cwd=workspace
    )
    assert len(json.loads(alone)["releases"]) == 15


def test_what_was_not_read_as_it_stands_is_mentioned(workspace: Path) -> None:
    (workspace / "people.yaml").write_text(DOMAIN.replace("unknown: drop", "unknown: category"))
    table = csv.read_csv(workspace / "people.csv")
    towns = ["Pisa", None, "(other)", *table["town"].to_pylist()[3:]]
    table = table.set_column(1, "town", pa.array(towns)).append_column("shoe", pa.array([40] * len(table)))
    csv.write_csv(table, workspace / "odd.csv")
    shared = ["--domain", "people.yaml", "--holdout", "others.csv", "--claim", "none", "--people", "100"]
    _, err = sfumato("attack", "people.csv", "odd.csv", *shared, cwd=workspace)
    assert "ignored: shoe." in err
    assert "undeclared values of 'town' were read as unknown, in 1 cell." in err
    _, err = sfumato("attack", "people.csv", "people.csv", *shared, cwd=workspace)
    assert "ignored" not in err
    assert "declared" not in err


def test_refusals_name_the_file(workspace: Path) -> None:
    shared = ["--domain", "people.yaml", "--claim", "none"]
    _, err = sfumato("attack", "people.csv", "no.parquet", *shared, "--holdout", "others.csv", cwd=workspace, code=2)
    assert "There is no file no.parquet" in err
    csv.write_csv(csv.read_csv(workspace / "others.csv").drop_columns(["rich"]), workspace / "narrow.csv")
    _, err = sfumato("attack", "people.csv", "copy.parquet", *shared, "--holdout", "narrow.csv", cwd=workspace, code=2)
    assert "narrow.csv: the table has no column 'rich'" in err
