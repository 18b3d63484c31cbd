"""The command line as a stranger meets it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.app.first_release import begun

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, edges: [0, 18, 40, 65], unknown: clamp}
  sex: {type: categorical, values: [F, M], unknown: drop}
  score: {type: real, edges: [0, 1, 2, 5], unknown: clamp, nullable: true}
"""


@dataclass(frozen=True)
class Done:
    """The result of a command: its exit code and its output."""

    returncode: int
    stdout: str
    stderr: str


def sfumato(*arguments: str, cwd: Path, code: int = 0) -> Done:
    """Run the command line in this process, as its script does, from the folder ``cwd``."""
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
            returncode = 0
        except SystemExit as end:
            returncode = int(end.code or 0)
    done = Done(returncode, out.getvalue(), err.getvalue())
    assert done.returncode == code, f"{arguments}: {done}"
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    generator = np.random.default_rng(3)
    people = pa.table(
        {
            "age": generator.integers(0, 100, 400),
            "sex": generator.choice(["F", "M"], 400),
            "score": generator.uniform(0, 5, 400),
        }
    )
    csv.write_csv(people, tmp_path / "people.csv")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    return tmp_path


def release(workspace: Path, *more: str, code: int = 0) -> Done:
    return sfumato("synthesize", "people.csv", "--domain", "people.yaml", *more, cwd=workspace, code=code)


def files(workspace: Path) -> set[str]:
    return {path.name for path in workspace.iterdir()}


def test_a_release_writes_rows_page_and_journal(workspace: Path) -> None:
    done = release(workspace, "--epsilon", "1", "--out", "out.parquet", "--html", "page.html", "--json")
    shown = json.loads(done.stdout)
    rows = pq.read_table(workspace / "out.parquet")
    assert rows.num_rows == shown["rows"]
    assert rows.schema.names == ["age", "sex", "score"]
    assert "epsilon = 1" in shown["guarantee"]
    page = (workspace / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")
    journal = json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=workspace).stdout)
    assert [entry["family"] for entry in journal["entries"]] == ["ledger", "synthesize"]
    assert [version["number"] for version in journal["versions"]] == [1]
    assert sfumato("ledger", "verify", "people.ledger", cwd=workspace).returncode == 0


def test_the_number_of_rows_is_noisy_unless_declared(workspace: Path) -> None:
    counts = set()
    for attempt in range(8):
        ledger = f"{attempt}.ledger"
        out = f"{attempt}.parquet"
        done = release(workspace, "--epsilon", "0.1", "--out", out, "--ledger", ledger, "--json")
        counts.add(json.loads(done.stdout)["rows"])
    assert len(counts) > 1
    done = release(
        workspace,
        "--epsilon",
        "0.1",
        "--rows",
        "123",
        "--anyway",
        "--out",
        "p.parquet",
        "--ledger",
        "p.ledger",
        "--json",
    )
    assert json.loads(done.stdout)["rows"] == 123


def test_repeating_is_free_and_the_limit_holds(workspace: Path) -> None:
    first = release(workspace, "--epsilon", "1", "--out", "a.csv", "--limit", "1.5")
    assert "epsilon 1" in first.stdout
    again = release(workspace, "--epsilon", "1", "--out", "b.csv")
    assert "nothing" in again.stdout
    refused = release(workspace, "--epsilon", "0.6", "--out", "c.csv", code=3)
    assert "Nothing was spent" in refused.stderr
    assert not (workspace / "c.csv").exists()
    release(workspace, "--epsilon", "0.5", "--out", "c.csv")


@pytest.mark.parametrize("epsilon", ["0", "-1", "inf", "-inf", "nan", "NaN", "", "one", "1,5"])
def test_an_epsilon_that_is_no_positive_number_is_refused(epsilon: str, workspace: Path) -> None:
    before = files(workspace)
    done = release(workspace, f"--epsilon={epsilon}", "--out", "out.parquet", code=2)
    assert done.stderr.count("\n") == 1
    assert files(workspace) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "out.parquet"], "--epsilon E --delta D (or --rho R)"),
        (["--epsilon", "1", "--rho", "1", "--out", "out.parquet"], "Give one of them"),
        (["--delta", "1e-9", "--out", "out.parquet"], "Give epsilon with it"),
        (["--epsilon", "1", "--delta", "2", "--out", "out.parquet"], "Delta must be below one"),
        (["--epsilon", "1", "--out", "out.xlsx"], "parquet"),
        (["--epsilon", "1", "--out", "absent/out.parquet"], "folder"),
        (["--epsilon", "1", "--out", "people.csv"], "exists. Choose another name, or overwrite it (--overwrite"),
        (["--epsilon", "1", "--out", "out.parquet", "--method", "marginals"], "--marginals"),
        (["--epsilon", "1", "--out", "out.parquet", "--marginals", "age,height"], "height"),
        (["--epsilon", "1", "--out", "out.parquet", "--way", "9"], "Marginals of 9 attributes are more than"),
        (["--epsilon", "1", "--out", "out.parquet", "--limit", "0"], "greater than zero"),
        (["--epsilon", "1", "--out", "out.parquet", "--method", "magic"], "magic"),
    ],
)
def test_wrong_arguments_are_refused_and_leave_nothing_behind(arguments, says, workspace: Path) -> None:
    before = files(workspace)
    done = release(workspace, *arguments, code=2)
    assert says in done.stderr
    assert files(workspace) == before


def test_wrong_tables_are_refused_and_leave_nothing_behind(workspace: Path) -> None:
    (workspace / "blank.csv").write_text("")
    (workspace / "binary.csv").write_bytes(os.urandom(4096))
    (workspace / "other.csv").write_text("age,score\n1,2\n")
    (workspace / "folder.csv").mkdir()
    before = files(workspace)
    for name in ("absent.csv", "blank.csv", "binary.csv", "other.csv", "folder.csv", "people.text", "gopher://x"):
        done = sfumato(
            "synthesize",
            name,
            "--domain",
            "people.yaml",
            "--epsilon",
            "1",
            "--out",
            "out.parquet",
            cwd=workspace,
            code=2,
        )
        assert done.stderr.splitlines()[-1].startswith("sfumato:")
    assert files(workspace) == before


def test_a_draft_is_refused_and_an_edited_draft_is_not(workspace: Path) -> None:
    sfumato("domain", "draft", "people.csv", "--out", "draft.yaml", cwd=workspace)
    done = sfumato(
        "synthesize",
        "people.csv",
        "--domain",
        "draft.yaml",
        "--epsilon",
        "1",
        "--out",
        "out.parquet",
        cwd=workspace,
        code=2,
    )
    assert "draft" in done.stderr
    text = (workspace / "draft.yaml").read_text()
    (workspace / "draft.yaml").write_text(text.replace("draft: true", "draft: false"))
    sfumato("domain", "check", "draft.yaml", "--table", "people.csv", cwd=workspace)
    sfumato(
        "synthesize", "people.csv", "--domain", "draft.yaml", "--epsilon", "1", "--out", "out.parquet", cwd=workspace
    )


def test_broken_ledgers_are_refused(workspace: Path) -> None:
    (workspace / "people.ledger").write_text("not a database, and long enough to look at" * 40)
    before = files(workspace)
    done = release(workspace, "--epsilon", "1", "--out", "out.parquet", code=2)
    assert "is not a ledger but some other file. Name another one" in done.stderr.splitlines()[-1]
    for what in ("show", "verify"):
        for name in ("people.ledger", "people.yaml", "."):
            assert "Name " in sfumato("ledger", what, name, cwd=workspace, code=2).stderr
    assert files(workspace) == before


def test_a_journal_that_was_changed_is_shown_and_said_to_be_broken(workspace: Path) -> None:
    release(workspace, "--epsilon", "1", "--limit", "3", "--out", "out.csv")
    assert json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=workspace).stdout)["whole"]
    with closing(sqlite3.connect(workspace / "people.ledger")) as ledger, ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f"DROP TRIGGER {trigger}")
        ledger.execute("UPDATE ledger_entry SET statement = 'nothing at all' WHERE number = 1")
    before = files(workspace)
    done = sfumato("ledger", "show", "people.ledger", cwd=workspace, code=1)
    assert "nothing at all" in done.stdout
    assert "The journal of 'default' is broken at entry 1. What is shown of it is not to be trusted" in done.stderr
    assert not json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=workspace, code=1).stdout)["whole"]
    assert files(workspace) == before


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write anywhere")
def test_a_read_only_ledger_is_refused(workspace: Path) -> None:
    release(workspace, "--epsilon", "0.5", "--limit", "1", "--out", "a.csv")
    for path in workspace.glob("people.ledger*"):
        path.chmod(0o444)
    workspace.chmod(0o555)
    try:
        out = workspace.parent / f"{workspace.name}.csv"
        program = [str(Path(sys.executable).parent / "sfumato")]
        if os.geteuid() == 0:
            program = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *program]
        done = subprocess.run(
            [*program, "synthesize", "people.csv", "--domain", "people.yaml", "--epsilon", "0.2", "--out", str(out)],
            cwd=workspace,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert not out.exists()
    finally:
        workspace.chmod(0o755)


def test_caps_hold_for_their_analyst_only(workspace: Path) -> None:
    sfumato("ledger", "create", "people.ledger", "--limit", "2", cwd=workspace)
    sfumato("ledger", "cap", "people.ledger", "alice", "--epsilon", "0.5", cwd=workspace)
    release(workspace, "--epsilon", "1", "--analyst", "alice", "--out", "a.csv", code=3)
    release(workspace, "--epsilon", "1", "--analyst", "bob", "--out", "b.csv")


def test_a_ledger_that_does_not_exist_is_not_made_by_looking(workspace: Path) -> None:
    sfumato("ledger", "show", "absent.ledger", cwd=workspace, code=2)
    assert not (workspace / "absent.ledger").exists()


def test_a_mistyped_dataset_is_no_fresh_budget(workspace: Path) -> None:
    asked = ("query", "people.csv", "SELECT COUNT(*) FROM p", "--domain", "people.yaml", "--epsilon", "1")
    sfumato(*asked, "--limit", "1", cwd=workspace)
    refused = sfumato(*asked, "--dataset", "defualt", cwd=workspace, code=2)
    assert "holds no dataset 'defualt', only 'default'" in refused.stderr
    shown = sfumato("ledger", "show", "people.ledger", "--dataset", "other", cwd=workspace, code=2)
    assert "only 'default'" in shown.stderr
    assert "only 'default'" in sfumato(*asked, "--dataset", "other", "--limit", "1", cwd=workspace, code=2).stderr
    sfumato(*asked, "--dataset", "other", "--limit", "1", "--create", cwd=workspace)


def test_a_ledger_is_begun_by_create_alone_and_once(workspace: Path) -> None:
    asked = ("--epsilon", "0.5", "--limit", "2", "--out", "out.csv")
    before = files(workspace)
    with patch("tests.app.test_cli.begun", lambda arguments, _: arguments):
        missing = release(workspace, *asked, code=2)
        assert "There is no ledger at sqlite:///people.ledger" in missing.stderr
        assert "--create" in missing.stderr
        assert "sfumato ledger create" in missing.stderr
        assert files(workspace) == before
        release(workspace, *asked, "--create")
        release(workspace, *asked, "--overwrite")
        again = release(workspace, *asked, "--overwrite", "--create", code=2)
        assert (
            "There is a ledger of 'default' at sqlite:///people.ledger already. Leave out --create, or name"
            in again.stderr
        )
        (workspace / "people.ledger").unlink()
        assert "There is no ledger" in release(workspace, *asked, "--overwrite", code=2).stderr


def test_a_link_to_a_domain_has_the_ledger_of_the_domain(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder" / "link.yaml").symlink_to("../people.yaml")
    counted = ("query", "people.csv", "SELECT COUNT(*) FROM p", "--epsilon", "0.5")
    sfumato(*counted, "--domain", "people.yaml", cwd=workspace)
    done = sfumato(*counted, "--domain", "folder/link.yaml", "--json", cwd=workspace)
    assert json.loads(done.stdout)["cost"] == "nothing: asked and answered before"
    shutil.copy(workspace / "people.ledger", workspace / "folder" / "link.ledger")
    refused = sfumato(*counted, "--domain", "folder/link.yaml", cwd=workspace, code=1)
    assert "there is a ledger next to the link as well" in refused.stderr


def ask(workspace: Path, statement: str, *more: str, code: int = 0) -> Done:
    return sfumato("query", "people.csv", statement, "--domain", "people.yaml", *more, cwd=workspace, code=code)


def test_a_preview_uses_counts_that_were_released(workspace: Path) -> None:
    preview = ("SELECT sex, AVG(age) FROM p GROUP BY sex", "--accuracy", "--epsilon", "1", "--json")
    before = json.loads(ask(workspace, *preview).stdout)
    assert [each["rows"] for each in before["expected"]] == [100, 1000, 10000]
    assert before["notes"][0].endswith("supposing 100, 1,000 or 10,000 rows in each group; state yours with --rows.")
    ledger = ("--ledger", f"sqlite:///{workspace / 'counts.ledger'}")
    ask(workspace, "SELECT sex, COUNT(*) FROM p GROUP BY sex", "--epsilon", "50", "--create", "--limit", "60", *ledger)
    after = json.loads(ask(workspace, *preview, *ledger).stdout)
    assert [each["rows"] for each in after["expected"]] != [100, 1000, 10000]
    assert all(0 < each["half_width"] < 99 for each in after["expected"])
    assert "by counts that were released before" in after["notes"][0]
    stated = json.loads(ask(workspace, *preview, *ledger, "--rows", "70").stdout)
    assert [each["rows"] for each in stated["expected"]] == [70]


def test_what_an_error_aimed_at_means_is_said(workspace: Path) -> None:
    counted = ask(workspace, "SELECT COUNT(*) FROM p", "--cost", "10")
    assert counted.stdout.endswith("keeps every answer within 10, each with probability 0.95.\n")
    supposed = ask(workspace, "SELECT AVG(age) FROM p", "--cost", "10").stdout
    assert "supposing 100 rows in each group; state yours with --rows" in supposed
    assert "For groups of 10,000 rows epsilon = " in supposed
    assert "supposing 1,000 rows" in ask(workspace, "SELECT AVG(age) FROM p", "--cost", "10", "--rows", "1000").stdout
    assert "in rows of rank" in ask(workspace, "SELECT MEDIAN(age) FROM p", "--cost", "10").stdout
    told = json.loads(
        ask(workspace, "SELECT MEDIAN(age) FROM p", "--cost", "10", "--confidence", "0.9", "--json").stdout
    )
    assert told["confidence"] == "0.9"
    assert len(told["notes"]) == 1
    assert "with probability 0.95" in ask(workspace, "SELECT COUNT(*) FROM p", "--accuracy", "--epsilon", "1").stdout


def test_expected_errors_have_the_names_that_they_have_over_http(workspace: Path) -> None:
    told = json.loads(
        ask(workspace, "SELECT AVG(age) FROM p", "--accuracy", "--epsilon", "1", "--rows", "50", "--json").stdout
    )
    (expected,) = told["expected"]
    assert expected.keys() == {"name", "standard_error", "half_width", "measure", "rows"}
    assert expected["rows"] == 50
    assert told["notes"] == [f"{expected['name']}: supposing 50 rows in each group."]
    assert told["confidence"] == "0.95"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--cost", "10", "--epsilon", "1"), "without --accuracy, --epsilon"),
        (("--cost", "10", "--rho", "1"), "without --accuracy, --epsilon"),
        (("--cost", "10", "--limit", "1"), "take no --limit"),
        (("--cost", "10", "--analyst", "ann", "--whole"), "take no --analyst and no --whole"),
        (("--accuracy", "--epsilon", "1", "--limit", "1"), "take no --limit"),
        (("--accuracy", "--epsilon", "1", "--whole"), "take no --whole"),
        (("--discover", "city", "--epsilon", "1"), "'city' is none"),
        (("--rows", "10", "--epsilon", "1"), "An answer does not need them"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(more: tuple[str, ...], reason: str, workspace: Path) -> None:
    assert reason in ask(workspace, "SELECT COUNT(*) FROM p", *more, code=2).stderr
    assert not (workspace / "people.ledger").exists()


def test_a_cap_is_lifted_or_set(workspace: Path) -> None:
    sfumato("ledger", "create", "people.ledger", "--limit", "2", cwd=workspace)
    both = sfumato("ledger", "cap", "people.ledger", "alice", "--lift", "--epsilon", "1", cwd=workspace, code=2)
    assert "Not both" in both.stderr


def test_the_journal_shows_what_was_asked_and_its_costs_add_up(workspace: Path) -> None:
    counted = "SELECT COUNT(*) FROM p WHERE sex = 'F'"
    ask(workspace, counted, "--limit", "1", "--epsilon", "0.25")
    ask(workspace, counted, "--epsilon", "0.25", "--analyst", "ann")
    sfumato("ledger", "cap", "people.ledger", "ann", "--epsilon", "0.5", cwd=workspace)
    ask(workspace, "SELECT AVG(age) FROM p", "--epsilon", "0.333")
    release(workspace, "--epsilon", "0.25", "--out", "a.csv")
    shown = sfumato("ledger", "show", "people.ledger", cwd=workspace).stdout
    assert "count(*) where sex in F" in shown
    assert "mean(age)" in shown
    assert "epsilon = 0.167 left of epsilon = 1" in shown
    entries = json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=workspace).stdout)["entries"]
    assert [entry["cost"] for entry in entries] == [
        "no cost",
        "epsilon 0.25",
        "nothing; the analyst's account: epsilon 0.25",
        "no cost",
        "epsilon 0.333",
        "epsilon 0.25",
    ]
    assert entries[0]["asked"].startswith("version 1 of the data, declared by ")
    assert entries[3]["asked"] == "cap of ann: epsilon = 0.5"


@pytest.mark.parametrize("loss", ["1/3", "0.1234567890123456789", "1e-19", "1/1000000000000000000000000007"])
def test_a_loss_has_at_most_18_places(workspace: Path, loss: str) -> None:
    refused = ask(workspace, "SELECT COUNT(*) FROM p", "--epsilon", loss, code=2)
    assert "State epsilon as a decimal of at most 18 places" in refused.stderr
    assert not (workspace / "people.ledger").exists()
    ask(workspace, "SELECT COUNT(*) FROM p", "--epsilon", "0.000000000001000001")


def test_rows_of_a_discovered_value_are_counted_where_rows_are_the_units(workspace: Path) -> None:
    people = pa.table({"age": [30] * 400, "sex": ["F"] * 400, "score": [1.0] * 400, "city": ["Bonn"] * 400})
    csv.write_csv(people, workspace / "people.csv")
    loss = ("--epsilon", "1", "--delta", "1e-8")
    done = ask(
        workspace,
        "SELECT city, COUNT(*) FROM p GROUP BY city",
        "--discover",
        "city",
        "--limit",
        "9,1e-6",
        *loss,
        "--json",
    )
    (row,) = json.loads(done.stdout)["rows"]
    assert row["key"] == ["Bonn"]
    assert abs(row["values"][0]["estimate"] - 400) < 100


def test_who_accepted_a_domain_is_in_its_file_and_in_the_journal(workspace: Path) -> None:
    sfumato("domain", "draft", "people.csv", "--out", "asked.yaml", cwd=workspace)
    accept = ("domain", "accept", "asked.yaml", "--by", "Ann", "--table", "people.csv", "--json")
    named = re.search(r"--confirm (\S+)", sfumato(*accept, cwd=workspace, code=2).stderr)
    assert named is not None
    assert "There are identifiers, names" in sfumato(*accept, "--confirm", "all", cwd=workspace, code=2).stderr
    told = json.loads(sfumato(*accept, *(f"--confirm={kind}" for kind in named[1].split(",")), cwd=workspace).stdout)
    assert (told["by"], told["confirmed"], told["edited"]) == ("Ann", named[1].split(","), False)
    assert len(told["risks"]) == len(told["confirmed"])

    def asked(epsilon: str, code: int = 0) -> str:
        return sfumato(
            "query", "people.csv", "SELECT COUNT(*) FROM t", "--domain", "asked.yaml", "--epsilon", epsilon,
            "--limit", "9", cwd=workspace, code=code,
        ).stderr  # fmt: skip

    asked("1")
    text = (workspace / "asked.yaml").read_text(encoding="utf-8")
    (workspace / "asked.yaml").write_text(text.replace("attributes:", "attributes:\n  # by hand", 1), encoding="utf-8")
    asked("2")  # a comment changes nothing
    (workspace / "asked.yaml").write_text(text.replace("nullable: false", "nullable: true", 1), encoding="utf-8")
    assert "was changed after Ann accepted it. Check it and accept it again" in asked("3", code=2)
    checked = sfumato("domain", "check", "asked.yaml", cwd=workspace)
    assert "changed after Ann accepted it: releases refuse it" in checked.stdout
    (workspace / "asked.yaml").write_text(re.sub("(?m)^accepted: .*\n", "", text), encoding="utf-8")
    asked("3")  # written by hand, and accepted by nobody
    journal = json.loads(sfumato("ledger", "show", "asked.ledger", "--json", cwd=workspace).stdout)
    who = [entry["accepted"] for entry in journal["entries"]]
    assert who == [None, f"Ann, {told['at']}", f"Ann, {told['at']}", "nobody"]
    confirmed = f"confirmed {', '.join(told['confirmed'])}; the draft was not edited"
    assert [entry["confirmed"] for entry in journal["entries"]] == [None, confirmed, confirmed, None]
    shown = sfumato("ledger", "show", "asked.ledger", cwd=workspace).stdout
    assert f"Entries 2 to 3: the description was accepted by Ann, {told['at']}; {confirmed}." in shown
    assert "Entry 4: the description was accepted by nobody." in shown
    sfumato("domain", "accept", "asked.yaml", "--by", " ", cwd=workspace, code=2)
    assert json.loads(sfumato("domain", "check", "asked.yaml", "--json", cwd=workspace).stdout)["accepted"] is None


def test_two_versions_of_a_domain_are_compared(workspace: Path) -> None:
    text = (workspace / "people.yaml").read_text(encoding="utf-8")
    (workspace / "new.yaml").write_text(text.replace("unit: row", "unit: {id: person, rows: 3}"), encoding="utf-8")
    same = json.loads(sfumato("domain", "diff", "people.yaml", "people.yaml", "--json", cwd=workspace).stdout)
    assert same["changes"] == []
    assert "at no cost" in same["meaning"][0]
    told = sfumato("domain", "diff", "people.yaml", "new.yaml", cwd=workspace).stdout
    assert "unit: adding or removing one row becomes adding or removing all rows of one person" in told
    assert "an equal question is charged again" in told
    assert "refuses the new one" in told


def test_a_file_as_spreadsheets_write_it_is_asked_by_its_domain(workspace: Path) -> None:
    rows = [f"{index % 7};{index % 50},5;{('nö', 'ja')[index % 2]}" for index in range(400)]
    (workspace / "leute.csv").write_bytes("\r\n".join(["Zahl;Gr\u00f6\u00dfe;Wort", *rows]).encode("cp1252"))
    drafted = sfumato("domain", "draft", "leute.csv", "--out", "leute.yaml", cwd=workspace)
    for told in ("are separated by ';'", "decimal comma", "cp1252"):
        assert told in drafted.stderr
    sfumato("domain", "accept", "leute.yaml", "--by", "Ann", "--confirm", "values,bounds,bins", cwd=workspace)
    statement = (
        "SELECT Wort, AVG(Gr\u00f6\u00dfe) FROM t GROUP BY Wort",
        "--domain",
        "leute.yaml",
        "--epsilon",
        "1000",
    )
    answer = sfumato("query", "leute.csv", *statement, "--json", cwd=workspace)
    means = {row["key"][0]: row["values"][0]["estimate"] for row in json.loads(answer.stdout)["rows"]}
    assert means["ja"] == pytest.approx(25.5, abs=0.5)
    assert means["n\u00f6"] == pytest.approx(24.5, abs=0.5)


def test_domain_show_and_schema_are_json(workspace: Path) -> None:
    assert json.loads(sfumato("domain", "show", "people.yaml", "--json", cwd=workspace).stdout)["unit"] == "row"
    assert json.loads(sfumato("domain", "schema", cwd=workspace).stdout)["title"] == "Sfumato domain"


def test_a_lab_refuses_an_option_that_does_not_apply_by_its_name(workspace: Path) -> None:
    refused = sfumato("lab", "interactive", "--runs", "1", "--max-suppression", "3", cwd=workspace, code=2)
    assert "takes no --max-suppression" in refused.stderr
    assert "seed" not in refused.stderr.partition("It takes")[0]


def test_a_page_of_all_labs_needs_a_folder_and_takes_no_options_of_one(workspace: Path) -> None:
    assert "--out" in sfumato("lab", "--all", cwd=workspace, code=2).stderr
    assert (
        "Leave --epsilon out" in sfumato("lab", "--all", "--out", "o", "--epsilon", "1", cwd=workspace, code=2).stderr
    )
    assert not (workspace / "o").exists()
    assert "'mwem-1d'" in sfumato("lab", "mwem-1d", "--all", "--out", "o", cwd=workspace, code=2).stderr


def test_labs_are_listed_and_an_unknown_one_is_refused(workspace: Path) -> None:
    assert "mwem-1d" in json.loads(sfumato("lab", "--json", cwd=workspace).stdout)
    assert "mwem-1d" in sfumato("lab", "alchemy", cwd=workspace, code=2).stderr


def test_the_command_line_starts_without_heavy_libraries() -> None:
    code = (
        "import sys, sfumato.app.cli.main as m\n"
        "heavy = 'numpy', 'pyarrow', 'duckdb', 'sqlalchemy', 'altair', 'jinja2', 'scipy', 'pydantic', 'yaml'\n"
        "import sfumato.app.cli as package, pathlib\n"
        "others = {'sfumato.app.cli.' + path.stem for path in pathlib.Path(package.__file__).parent.glob('*.py')}\n"
        "others -= {'sfumato.app.cli.' + name for name in ('__init__', 'main', 'output')}\n"
        "print([name for name in (*heavy, *others) if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_the_installed_script_leaves_with_the_exit_code(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "sfumato"
    done = subprocess.run([program, "domain", "show", "no.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "sfumato: Cannot read the domain no.yaml: No such file or directory.\n"
    assert done.stdout == ""


def test_completion_is_offered(workspace: Path) -> None:
    environment = os.environ | {"_SFUMATO_COMPLETE": "complete_bash", "COMP_WORDS": "sfumato syn", "COMP_CWORD": "1"}
    program = Path(sys.executable).parent / "sfumato"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert "synthesize" in done.stdout


def test_the_demo_releases_once_and_repeats_for_free(tmp_path: Path) -> None:
    first = json.loads(sfumato("demo", "--out", "demo", "--json", cwd=tmp_path).stdout)
    again = json.loads(sfumato("demo", "--out", "demo", "--json", cwd=tmp_path).stdout)
    assert first["cost"] == "epsilon 1"
    assert again["cost"].startswith("nothing")
    assert Path(tmp_path / first["page"]).is_file()
    # discrete Laplace of scale 1 on 56 cells: the mean error is 0.85, and above 2 less than once in 1e9 runs
    assert first["errors"][1]["mean_error"] < 2
    assert first["errors"][1]["mean_error"] > 0
    assert first["census"]["cost"].startswith("rho")
    assert again["census"]["cost"].startswith("nothing")
    for errors in first["census"]["errors"][1:]:  # pairs and triples: at most half of what shuffled columns lose
        assert 0 < errors["distance"] < errors["of_independent_columns"] * 0.8
    assert Path(tmp_path / first["census"]["page"]).is_file()


def test_nothing_that_a_command_reads_is_written_over(workspace: Path) -> None:
    before = {path.name: path.read_bytes() for path in workspace.iterdir()}
    wrong = [
        ["--out", "people.csv"],
        ["--out", "a.csv", "--html", "people.yaml"],
        ["--out", "a.csv", "--html", "a.csv"],
        ["--out", "a.csv", "--ledger", "a.csv"],
        ["--out", "a.csv", "--html", "people.ledger"],
    ]
    for arguments in wrong:
        release(workspace, "--epsilon", "1", "--overwrite", *arguments, code=2)
    sfumato("domain", "draft", "people.csv", "--out", "people.csv", "--overwrite", cwd=workspace, code=2)
    assert {path.name: path.read_bytes() for path in workspace.iterdir()} == before


def test_the_same_release_has_the_same_rows(workspace: Path) -> None:
    release(workspace, "--epsilon", "1", "--out", "a.csv")
    release(workspace, "--epsilon", "1", "--out", "b.csv")
    assert (workspace / "a.csv").read_bytes() == (workspace / "b.csv").read_bytes()


def test_a_release_larger_than_its_own_limit_makes_no_ledger(workspace: Path) -> None:
    before = files(workspace)
    release(workspace, "--epsilon", "1", "--limit", "0.5", "--out", "a.csv", code=3)
    release(workspace, "--epsilon", "1", "--rows", "99999999999999", "--out", "a.csv", code=2)
    assert files(workspace) == before


def test_the_owner_sees_how_a_table_fits(workspace: Path) -> None:
    (workspace / "wrong.yaml").write_text(DOMAIN.replace("[F, M]", "[f, m]"))
    shown = json.loads(
        sfumato("domain", "check", "wrong.yaml", "--table", "people.csv", "--json", cwd=workspace).stdout
    )
    assert {line["attribute"]: line["unknown"] for line in shown["fit"]} == {"age": 0, "sex": 400, "score": 0}


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("no-such-command", 2)])
def test_a_program_that_ends_has_done_what_was_left_for_its_end(word: str, code: int) -> None:
    script = (
        "import atexit, sys, threading, time\n"
        "from sfumato.app.cli.main import program\n"
        f"sys.argv = ['sfumato', {word!r}]\n"
        "def slow():\n"
        "    time.sleep(0.1)\n"
        "    atexit.register(print, 'and at its end')\n"
        "threading.Thread(target=slow).start()\n"
        "program()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("and at its end\n")
    assert done.stdout.startswith("sfumato ") == (code == 0)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_a_program_whose_streams_were_closed_ends_without_a_word_of_python(closed: str) -> None:
    command = f"{sys.executable} -m sfumato --version {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_whose_reader_is_gone_does_not_say_that_all_went_well() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "sfumato", "--help"], stdout=full, check=False)
    assert done.returncode != 0
