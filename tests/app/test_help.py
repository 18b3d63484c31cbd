"""The help of the commands, their former spellings, and what a command line may leave out."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.app.test_cli import Done, files, workspace
from tests.app.test_cli import sfumato as sfumato_with_ledger
from typer.core import TyperGroup
from typer.main import get_command

from sfumato.app.cli.main import COMMANDS, GROUPS, app

__all__ = ["workspace"]  # a fixture
COUNT = "SELECT COUNT(*) FROM people"
ELSEWHERE = ("evaluate", "attack", "audit", "frontier", "sign-off", "serve", "key", "lab")  # packages of others


def sfumato(*arguments: str, cwd: Path, code: int = 0) -> Done:
    """Run the command line as it is typed: a release gets no ``--create``."""
    with patch("tests.app.test_cli.begun", lambda arguments, _: arguments):
        return sfumato_with_ledger(*arguments, cwd=cwd, code=code)


def every_command() -> dict[str, Any]:
    """Return the commands that do something, by their path."""
    root = get_command(app)
    context = root.context_class(root, info_name="sfumato")
    tops = {name: root.get_command(context, name) for name in COMMANDS}
    paths = {
        f"{name} {below}": command.get_command(context, below)
        for name, command in tops.items()
        if isinstance(command, TyperGroup)
        for below in command.commands
    }
    return {name: command for name, command in tops.items() if not isinstance(command, TyperGroup)} | paths


EVERY = every_command()


def test_help_lists_the_commands_in_five_groups(tmp_path: Path) -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(name for name in COMMANDS if " " not in name)
    shown = sfumato("--help", cwd=tmp_path).stdout
    assert re.findall(r"^([A-Z][a-z ]+)$", shown, re.MULTILINE) == [*GROUPS, "Options"]
    assert re.findall(r"^  ([a-z-]+) {2,}", shown, re.MULTILINE)[: len(named)] == named


@pytest.mark.parametrize("path", EVERY)
def test_help_all_shows_each_option_and_the_short_help_an_example(path: str, tmp_path: Path) -> None:
    options = {each.opts[0] for each in EVERY[path].params if each.param_type_name == "option" and not each.hidden}
    everything = sfumato(*path.split(), "--help-all", cwd=tmp_path).stdout
    assert set(re.findall(r"^  (--[a-z-]+)", everything, re.MULTILINE)) == options
    short = sfumato(*path.split(), "--help", cwd=tmp_path).stdout
    assert set(re.findall(r"^  (--[a-z-]+)", short, re.MULTILINE)) <= options
    assert "str>" not in everything
    if not path.startswith(ELSEWHERE):
        assert f"\n  Example: sfumato {path}" in short


@pytest.mark.parametrize("path", [path for path in EVERY if not path.startswith(ELSEWHERE)])
def test_the_example_of_a_command_is_parsed(path: str) -> None:
    (example,) = re.findall(r"^ *Example: sfumato (.*)$", EVERY[path].help, re.MULTILINE)
    words = shlex.split(example.partition(" > ")[0])[len(path.split()) :]
    with EVERY[path].context_class(EVERY[path], info_name=path, resilient_parsing=True) as context:
        _, rest, _ = EVERY[path].make_parser(context).parse_args(args=words)
    assert rest == []


def test_no_help_and_no_version_loads_rich() -> None:
    code = (
        "import sys; sys.argv = ['', WORD]\nfrom sfumato.app.cli.main import run\ntry: run()\nexcept SystemExit: pass\n"
    )
    for word in ("--help", "--version"):
        script = code.replace("WORD", repr(word)) + "print('rich' in sys.modules, 'numpy' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("False False\n")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("query",), ["TABLE", "SELECT", "--epsilon", "--domain"]),
        (("query", "absent.csv", COUNT), ["--epsilon", "--domain"]),
        (
            ("query", "people.csv", COUNT, "--create"),
            ["--epsilon", "--limit BUDGET (such as 2,1e-9; without it, the loss"],
        ),
        (("query", "preview", "people.csv"), ["SELECT", "--epsilon"]),
        (("query", "price", "people.csv"), ["SELECT", "--error"]),
        (("synthesize", "absent.csv"), ["--out", "--epsilon", "--domain"]),
        (("synthesize", "linked", "absent"), ["--out", "--epsilon", "--schema", "'sfumato schema draft absent'"]),
        (
            ("synthesize", "people.csv"),
            ["--out", "--epsilon", "--create --limit BUDGET (there is no ledger people.ledger)"],
        ),
        (("synthesize", "people.csv", "--preview"), ["--epsilon"]),
        (("anonymize", "people.csv", "--create"), ["--quasi", "--k", "--out", "--limit"]),
        (("regress", "people.csv", "age"), ["--by", "--epsilon"]),
        (("bound", "people.csv"), ["--by COLUMN (or --cells N)", "--epsilon"]),
        (("domain", "accept"), ["PATH", "--by NAME"]),
    ],
)
def test_everything_that_is_missing_is_named_at_once(
    words: tuple[str, ...], missing: list[str], workspace: Path
) -> None:
    before = files(workspace)
    (line,) = sfumato(*words, cwd=workspace, code=2).stderr.splitlines()
    assert all(each in line for each in missing)
    assert "--domain" in missing or "--domain" not in line
    assert ("--preview" in words or "preview" in words) <= ("--create" not in line)
    assert line.removesuffix(".").endswith("--help'")
    assert files(workspace) == before


def test_the_domain_and_the_ledger_lie_next_to_the_table(workspace: Path) -> None:
    done = sfumato("query", "people.csv", COUNT, "--epsilon", "1", "--limit", "5", "--create", cwd=workspace)
    assert done.stderr.startswith("Domain: people.yaml\n")
    assert "\nLedger: people.ledger\n" in done.stderr
    (workspace / "other").mkdir()
    (workspace / "people.yaml").rename(workspace / "other" / "people.yaml")
    again = sfumato("query", "people.csv", COUNT, "--epsilon", "1", "--domain", "other/people.yaml", cwd=workspace)
    assert "Ledger: people.ledger\n" in again.stderr
    assert "nothing" in again.stdout
    (workspace / "people.yaml").write_text("")
    (workspace / "people.yml").write_text("")
    refused = sfumato("query", "people.csv", COUNT, "--epsilon", "1", cwd=workspace, code=2).stderr
    assert "people.yaml and people.yml both lie next to people.csv" in refused


def test_no_option_creates_a_ledger_but_create(workspace: Path) -> None:
    before = files(workspace)
    asked = ("people.csv", COUNT, "--epsilon", "1", "--ledger", "new.ledger")
    sfumato("query", *asked, "--limit", "2", cwd=workspace, code=2)
    sfumato("query", "preview", *asked, cwd=workspace)
    assert files(workspace) == before


def test_a_preview_and_a_price_say_what_the_former_spellings_say(workspace: Path) -> None:
    preview = sfumato("query", "preview", "people.csv", COUNT, "--epsilon", "1", "--json", cwd=workspace)
    former = sfumato("query", "people.csv", COUNT, "--epsilon", "1", "--accuracy", "--json", cwd=workspace)
    assert json.loads(preview.stdout) == json.loads(former.stdout)
    assert "'sfumato query preview'" in former.stderr
    price = sfumato("query", "price", "people.csv", COUNT, "--error", "10", "--json", cwd=workspace)
    former = sfumato("query", "people.csv", COUNT, "--cost", "10", "--json", cwd=workspace)
    assert json.loads(price.stdout) == json.loads(former.stdout)
    assert "'sfumato query price --error'" in former.stderr
    assert "'sfumato show'" in sfumato("describe", "absent.parquet", cwd=workspace, code=2).stderr
    assert not (workspace / "people.ledger").exists()


def test_a_table_named_like_a_part_of_a_command_is_reached_by_its_path(workspace: Path) -> None:
    (workspace / "preview").mkdir()
    (workspace / "preview.yaml").write_text((workspace / "people.yaml").read_text())
    (workspace / "people.csv").rename(workspace / "preview" / "part.csv")
    refused = sfumato("query", "./preview", COUNT, "--epsilon", "1", "--limit", "5", "--create", cwd=workspace, code=2)
    assert refused.stderr.startswith("Domain: preview.yaml\n")


def test_an_error_is_sentences_and_verbose_prints_exact_losses(workspace: Path) -> None:
    asked = ("query", "people.csv", COUNT, "--epsilon", "0.1", "--delta", "1e-9")
    done = sfumato(*asked, "--limit", "1,1e-9", "--create", cwd=workspace)
    assert "Cost: 1.2 % of the budget; 98.8 % is left\n" in done.stdout
    assert (
        "rho 0."
        in sfumato("query", "people.csv", f"{COUNT} WHERE age < 18", *asked[3:], "--verbose", cwd=workspace).stdout
    )
    refused = sfumato("query", "people.csv", COUNT, "--epsilon", "1", cwd=workspace, code=3).stderr
    assert refused.splitlines()[-1] == (
        "sfumato: This release needs 3,342 % of the budget, and 97 % is left. Nothing was spent. Add "
        "--delta 1e-9, then epsilon = 1 needs 100 % of the budget."
    )
    assert "Making the release" not in refused
    shown = sfumato("ledger", "show", "people.ledger", cwd=workspace).stdout
    assert "\ndefault: 97.6 % of epsilon = 1, delta = 1e-9 is left\n" in shown
    assert "left of rho = " in sfumato("ledger", "show", "people.ledger", "--verbose", cwd=workspace).stdout
    pure = ("--ledger", "pure.ledger", "--limit", "2", "--create")
    assert "--limit 2,1e-9" in sfumato(*asked, *pure, cwd=workspace, code=2).stderr


def test_the_guarantee_of_an_anonymized_table_has_labels(workspace: Path) -> None:
    asked = ("--quasi", "age", "--k", "3", "--out", "k.csv", "--create", "--limit", "1")
    shown = sfumato("anonymize", "people.csv", *asked, cwd=workspace).stdout
    labels = [line.partition(":")[0] for line in shown.splitlines()[:6]]
    assert labels == ["Guarantee", "Attacker", "Limit", "Result", "Unchanged columns", "Classes"]
    assert "This is not differential privacy." in shown


def test_all_missing_files_are_named_at_once(workspace: Path) -> None:
    release = (
        "synthesize",
        "no.csv",
        "--domain",
        "nope.yaml",
        "--zeros",
        "zeors.yaml",
        "--epsilon",
        "1",
        "--out",
        "o.csv",
    )
    said = "sfumato: There is no file no.csv and no file nope.yaml and no file zeors.yaml.\n"
    assert sfumato(*release, cwd=workspace, code=2).stderr == said
    assert ", the file no.csv. See" in sfumato("synthesize", "no.csv", cwd=workspace, code=2).stderr
    counted = ("query", "no.csv", COUNT, "--domain", "people.yaml", "--epsilon", "1")
    assert sfumato(*counted, cwd=workspace, code=2).stderr == "sfumato: There is no file no.csv.\n"
    preview = ("synthesize", "no.csv", "--domain", "people.yaml", "--epsilon", "1", "--preview")
    assert sfumato(*preview, cwd=workspace).stdout.startswith("Method: ")  # it reads no table
    expected = ("query", "preview", "no.csv", COUNT, "--domain", "people.yaml", "--epsilon", "1")
    assert "half-width" in sfumato(*expected, cwd=workspace).stdout
