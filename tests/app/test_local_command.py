"""``sfumato local`` end to end, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfumato.app.cli.local import app
from sfumato.errors import InputError, LossError, ReportError, TableError

RUNNER = CliRunner()


def say(*words: object) -> str:
    found = RUNNER.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    rows = [f"{'f' if i % 4 else 'm'},{i % 50},w{i % 3}" for i in range(4_000)]
    path.write_text("\n".join(["sex,age,word", *rows]) + "\n")
    return path


def test_frequencies_end_to_end(tmp_path: Path, people: Path) -> None:
    spec, reports, more = tmp_path / "spec.json", tmp_path / "r.parquet", tmp_path / "s.arrow"
    say("spec", "frequency", "--epsilon", "2", "--values", "f,m", "--out", spec)
    for out in (reports, more):
        say("randomize", spec, people, "--column", "sex", "--out", out)
    found = json.loads(say("estimate", spec, reports, more, "--post", "simplex", "--json"))
    assert found["reports"] == 8_000
    assert found["refused"] == 0
    assert [row["value"] for row in found["estimates"]] == ["f", "m"]
    assert found["estimates"][0]["from"] - 0.1 < 0.75 < found["estimates"][0]["to"] + 0.1
    audited = json.loads(say("audit", spec, "--json"))
    assert audited["claimed"] == audited["proven"] == audited["enumerated"] == 2
    assert audited["holds"]
    assert json.loads(say("amplify", spec, "--reports", "1000", "--delta", "1e-6", "--json"))["epsilon"] < 2


@pytest.mark.parametrize(
    ("kind", "options", "column", "labels"),
    [
        ("mean", ["--low", 0, "--high", 49, "--method", "duchi"], "age", {"mean"}),
        ("distribution", ["--low", 0, "--high", 50, "--bins", 5], "age", {"[0, 10)", "[40, 50)"}),
        ("range", ["--size", 50], "age", {"0", "49"}),
        ("heavy-hitters", ["--bits", 16], "word", {"w0", "w1", "w2"}),  # noise may add a stranger, though rarely
    ],
)
def test_every_kind_end_to_end(
    tmp_path: Path, people: Path, kind: str, options: list[object], column: str, labels: set[str]
) -> None:
    spec, reports = tmp_path / "spec.json", tmp_path / "r.parquet"
    say("spec", kind, "--epsilon", "4", *options, "--out", spec)
    say("randomize", spec, people, "--column", column, "--out", reports)
    assert labels <= {row["value"] for row in json.loads(say("estimate", spec, reports, "--json"))["estimates"]}
    assert "reports, epsilon 4 each" in say("estimate", spec, reports)


def test_csv_is_randomised_however_it_is_written(tmp_path: Path) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_bytes(("ville;revenu\n" + "Orléans;1.234,5\nBrest;1.265,5\n" * 500).encode("cp1252"))
    spec, reports = tmp_path / "spec.json", tmp_path / "r.parquet"
    say("spec", "mean", "--epsilon", "32", "--low", 0, "--high", 2500, "--method", "duchi", "--out", spec)
    ran = RUNNER.invoke(app, ["randomize", str(spec), str(odd), "--column", "revenu", "--out", str(reports)])
    assert "its numbers have a decimal comma" in ran.stderr
    (found,) = json.loads(say("estimate", spec, reports, "--json"))["estimates"]
    assert abs(found["estimate"] - 1250) < 320  # 8 standard errors of two outputs at 0 and 2500
    towns, more = tmp_path / "towns.json", tmp_path / "t.parquet"
    say("spec", "frequency", "--epsilon", "32", "--values", "Orléans,Brest", "--out", towns)
    said = ("--delimiter", ";", "--encoding", "cp1252")
    say("randomize", towns, odd, "--column", "ville", "--out", more, *said)
    shares = [row["estimate"] for row in json.loads(say("estimate", towns, more, "--json"))["estimates"]]
    assert shares == pytest.approx([0.5, 0.5], abs=1e-6)  # at epsilon 32 all but surely nobody lies
    with pytest.raises(TableError, match="no column 'ville'"):
        say("randomize", towns, odd, "--column", "ville", "--out", tmp_path / "n.parquet", "--delimiter", "|")
    assert not (tmp_path / "n.parquet").exists()


def test_damaged_files_are_counted_and_not_estimated_from(tmp_path: Path, people: Path) -> None:
    spec, good, bad = tmp_path / "spec.json", tmp_path / "g.parquet", tmp_path / "b.parquet"
    say("spec", "mean", "--epsilon", "1", "--low", 0, "--high", 49, "--out", spec)
    say("randomize", spec, people, "--column", "age", "--out", good)
    bad.write_bytes(good.read_bytes()[:-40])
    ran = RUNNER.invoke(app, ["estimate", str(spec), str(good), str(bad), "--json"], catch_exceptions=False)
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["reports"], found["refused"]) == (1, 4_000, 1)
    assert ran.stderr.count(str(bad)) == 1
    with pytest.raises(ReportError, match="of 1 file none"):
        say("estimate", spec, bad)


def test_a_file_of_reports_counts_once(tmp_path: Path, people: Path) -> None:
    spec, first, copy = tmp_path / "spec.json", tmp_path / "r.parquet", tmp_path / "copy.parquet"
    say("spec", "mean", "--epsilon", "1", "--low", 0, "--high", 49, "--out", spec)
    say("randomize", spec, people, "--column", "age", "--out", first)
    copy.write_bytes(first.read_bytes())
    for again in (first, tmp_path / "." / first.name, copy):
        with pytest.raises(InputError, match="holds the same reports"):
            say("estimate", spec, first, again)


def test_values_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "values.txt").write_text("a\nb\nc\n")
    spec = json.loads(say("spec", "frequency", "--epsilon", "1", "--values", f"@{tmp_path / 'values.txt'}"))
    assert spec["values"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "words",
    [
        ["spec", "mean", "--epsilon", "1", "--low", "0"],
        ["spec", "mean", "--epsilon", "1", "--low", "0", "--high", "1", "--bins", "4"],
        ["spec", "mean", "--epsilon", "1", "--low", "0", "--high", "1", "--method", "magic"],
        ["spec", "median", "--epsilon", "1"],
        ["spec", "range", "--epsilon", "1", "--size", "9", "--method", "grr"],
        ["spec", "frequency", "--epsilon", "1", "--values", "@nowhere.txt"],
        ["audit", "nowhere.json"],
    ],
)
def test_wrong_commands_are_refused(words: list[str]) -> None:
    with pytest.raises(InputError):
        say(*words)


@pytest.mark.parametrize("epsilon", ["0", "800", "nan", "-1"])
def test_absurd_epsilons_are_refused(epsilon: str) -> None:
    with pytest.raises(LossError):
        say("spec", "frequency", f"--epsilon={epsilon}", "--size", "4")


def test_an_existing_file_is_not_replaced_unasked(tmp_path: Path, people: Path) -> None:
    spec, out = tmp_path / "spec.json", tmp_path / "r.parquet"
    say("spec", "frequency", "--epsilon", "1", "--values", "f,m", "--out", spec)
    say("randomize", spec, people, "--column", "sex", "--out", out)
    for words in (
        ["spec", "frequency", "--epsilon", "1", "--values", "f,m", "--out", spec],
        ["randomize", spec, people, "--column", "sex", "--out", out],
    ):
        with pytest.raises(InputError, match="exists"):
            say(*words)
