"""The command line never writes over its inputs, and explains in a sentence why it cannot write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.app.test_cli import sfumato

from sfumato.app.cli.options import (
    database,
)
from sfumato.app.cli.output import (
    refuse_clashes,
)
from sfumato.errors import InputError

SPEC = ("local", "spec", "mean", "--epsilon", "1", "--low", "0", "--high", "100", "--out", "spec.json")
JUDGED = ("--domain", "zoo.yaml", "--holdout", "zoo.parquet")
QUASI = ("--quasi", "carrots", "--k", "5", "--limit", "1")
COUNTED = ("zoo.parquet", "SELECT carrots, COUNT(*) FROM t GROUP BY carrots", "--domain", "zoo.yaml", "--epsilon", "1")


def read(path: Path) -> pa.Table:
    match path.suffix:
        case ".csv":
            return pyarrow.csv.read_csv(path)
        case ".parquet":
            return pq.read_table(path)
        case _:
            return pa.ipc.open_file(path).read_all()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    sfumato("data", "zoo", cwd=tmp_path)
    sfumato(*SPEC, cwd=tmp_path)
    sfumato("anonymize", "zoo.parquet", *QUASI, "--out", "a.csv", "--recoding", "recoding.yaml", cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("anonymize", "zoo.parquet", *QUASI, "--out", "zoo.parquet"),
        ("anonymize", "zoo.parquet", *QUASI, "--out", "same.csv", "--recoding", "same.csv"),
        ("anonymize", "zoo.parquet", *QUASI, "--out", "b.csv", "--recoding", "zoo.yaml"),
        ("anonymize", "zoo.parquet", *QUASI, "--out", "b.csv", "--recoding", "zoo.ledger"),
        ("apply", "recoding.yaml", "zoo.parquet", "--limit", "1", "--out", "zoo.parquet"),
        ("local", "randomize", "spec.json", "zoo.parquet", "--column", "carrots", "--out", "zoo.parquet"),
        ("evaluate", "zoo.parquet", "a.csv", *JUDGED, "--claim", "none", "--out", "zoo.parquet"),
        ("evaluate", "zoo.parquet", "a.csv", *JUDGED, "--claim", "none", "--out", "a.csv"),
        ("frontier", "zoo.parquet", "--domain", "zoo.yaml", "--out", "zoo.yaml"),
        ("query", *COUNTED, "--limit", "1", "--out", "zoo.parquet"),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}",
)
def test_no_command_writes_over_what_it_reads_or_twice_to_one_file(arguments: tuple[str, ...], workspace: Path) -> None:
    before = {path.name: path.read_bytes() for path in workspace.iterdir()}
    refused = sfumato(*arguments, "--overwrite", cwd=workspace, code=2)
    assert "is read, or written already, by this command" in refused.stderr
    assert {path.name: path.read_bytes() for path in workspace.iterdir()} == before


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_a_file_of_answers_has_the_numbers_that_are_printed_without_one(ending: str, tmp_path: Path) -> None:
    sfumato("data", "zoo", cwd=tmp_path)
    printed = json.loads(sfumato("query", *COUNTED, "--limit", "1", "--create", "--json", cwd=tmp_path).stdout)
    told = json.loads(sfumato("query", *COUNTED, "--out", f"found.{ending}", "--json", cwd=tmp_path).stdout)
    written = read(tmp_path / f"found.{ending}").to_pylist()
    value = {"estimate": "", "standard_error": "_error", "low": "_low", "high": "_high"}
    assert [
        {"key": [str(row["carrots"])], "values": [{part: row["count(*)" + name] for part, name in value.items()}]}
        for row in written
    ] == printed["rows"]
    assert (told["rows"], told["guarantee"]) == (len(written), printed["guarantee"])


def test_a_file_of_answers_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    sfumato("data", "zoo", cwd=tmp_path)
    for out, said in [("found.xlsx", "end it in .parquet"), ("none/found.csv", "does not exist"), ("zoo.yaml", "end")]:
        refused = sfumato("query", *COUNTED, "--limit", "1", "--create", "--out", out, cwd=tmp_path, code=2)
        assert said in refused.stderr
    sfumato("query", *COUNTED, "--accuracy", "--out", "found.csv", cwd=tmp_path, code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["zoo.parquet", "zoo.yaml"]


@pytest.mark.parametrize("address", ["{}", "spark:{}", "sqlite:///{}"])
def test_a_file_is_known_by_any_of_its_addresses(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is read"):
        refuse_clashes([tmp_path / "t"], inputs=[address.format(tmp_path / "t")], overwrite=True)
    refuse_clashes([tmp_path / "t"], inputs=[address.format(tmp_path / "u")], overwrite=True)


@pytest.mark.parametrize("arguments", [("demo",), ("hierarchy", "draft", "zoo.yaml", "carrots")])
@pytest.mark.parametrize("out", ["spec.json", "spec.json/below"])
def test_a_file_in_the_place_of_a_folder_is_said(arguments: tuple[str, ...], out: str, workspace: Path) -> None:
    assert "Cannot write to the folder spec.json" in sfumato(*arguments, "--out", out, cwd=workspace, code=2).stderr


def to_a_full_disk(*words: str, cwd: Path) -> tuple[int, list[str]]:
    """Run a program whose output goes to a full disk; return its exit code and its messages."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "sfumato", *words]
        done = subprocess.run(command, cwd=cwd, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if not line.endswith(" ...")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_under_the_output_is_reported_in_a_message(tmp_path: Path) -> None:
    sfumato("data", "zoo", cwd=tmp_path)
    told = "sfumato: Standard output cannot be written: No space left on device"
    assert to_a_full_disk("domain", "show", "zoo.yaml", cwd=tmp_path) == (1, [f"{told}. Nothing was charged."])
    assert to_a_full_disk("--version", cwd=tmp_path) == (1, [f"{told}. Nothing was charged."])
    asked = ("query", *COUNTED, "--limit", "1", "--create")
    kept = "What was released is in the ledger, and asking the same again returns it at no cost"
    code, lines = to_a_full_disk(*asked, cwd=tmp_path)
    assert (code, lines[-1]) == (1, f"{told}. {kept}.")  # after what a pure ledger promises
    assert "asked and answered before" in sfumato(*asked[:-3], cwd=tmp_path).stdout


@pytest.mark.parametrize("name", ["a%41?b.ledger", "half 50%.ledger", "what?mode=ro.ledger"])
def test_a_ledger_is_the_file_of_its_name_whatever_characters_it_has(tmp_path: Path, name: str) -> None:
    sfumato("data", "zoo", cwd=tmp_path)
    sfumato("query", *COUNTED, "--limit", "1", "--create", "--ledger", name, cwd=tmp_path)
    assert (tmp_path / name).stat().st_size
    assert "Guarantee of all releases together: epsilon = 1" in sfumato("ledger", "show", name, cwd=tmp_path).stdout
    again = ("query", *COUNTED, "--ledger", name, "--out", name + ".csv")
    sfumato(*again, cwd=tmp_path)
    sfumato("ledger", "backup", name, f"copy of {name}", cwd=tmp_path)
    assert (tmp_path / f"copy of {name}").stat().st_size
    (tmp_path / "zoo.yaml").rename(tmp_path / f"{name}.yaml")
    beside = ("zoo.parquet", COUNTED[1], "--domain", f"{name}.yaml", "--epsilon", "1", "--limit", "1", "--create")
    sfumato("query", *beside, cwd=tmp_path)
    assert (tmp_path / f"{name}.ledger").stat().st_size


@pytest.mark.parametrize("name", ["a.ledger", "a%3F?.ledger"])
def test_an_output_never_takes_the_place_of_a_ledger_of_any_name(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.write_text("what was released", encoding="utf-8")
    with pytest.raises(InputError, match="is read, or written already"):
        refuse_clashes([place], inputs=[database(str(place))], overwrite=True)
    refuse_clashes([tmp_path / "b.csv"], inputs=[database(str(place))], overwrite=True)


def test_groups_that_a_condition_excludes_are_not_printed_nor_written(workspace: Path) -> None:
    statement = "SELECT carrots, COUNT(*) AS n FROM t WHERE carrots > 97 GROUP BY carrots"
    asked = ("query", "zoo.parquet", statement, "--domain", "zoo.yaml", "--epsilon", "1")
    said = json.loads(sfumato(*asked, "--json", cwd=workspace).stdout)
    assert [row["key"] for row in said["rows"]] == [["98"], ["99"], ["100"]]
    printed = sfumato(*asked, cwd=workspace).stdout
    assert [line.split()[0] for line in printed.split("\n\n")[0].splitlines()] == [
        "carrots",
        "-------",
        "98",
        "99",
        "100",
    ]
    assert "Cost: nothing" in printed  # the same question
    sfumato(*asked, "--out", "after.csv", cwd=workspace)
    assert read(workspace / "after.csv").column("carrots").to_pylist() == [98, 99, 100]


@pytest.mark.parametrize("more", [(), ("--accuracy",)])
def test_a_condition_that_leaves_no_group_is_refused_before_a_ledger_is_begun(
    workspace: Path, more: tuple[str, ...]
) -> None:
    statement = "SELECT carrots, COUNT(*) AS n FROM t WHERE carrots > 97 AND carrots < 9 GROUP BY carrots"
    begun = () if more else ("--ledger", "sqlite:///new.ledger", "--limit", "2", "--create")
    asked = ("query", "zoo.parquet", statement, "--domain", "zoo.yaml", "--epsilon", "1", *begun, *more)
    refused = sfumato(*asked, cwd=workspace, code=2)
    assert "no group can hold a row that meets the condition: change the condition" in refused.stderr
    assert not (workspace / "new.ledger").exists()
