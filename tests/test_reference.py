"""The reference pages that the documentation generates hold every command, option and public name."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from scripts import reference_pages
from tests import test_docs
from typer.testing import CliRunner

from sfumato import errors
from sfumato.app.cli.main import COMMANDS, app
from sfumato.errors import SfumatoError

ROOT = test_docs.ROOT
workspace = test_docs.workspace  # a fixture
OPTION = re.compile(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
MANY = 30  # routes, and kinds of problems
FORBIDDEN = ("Built-in", "Represent a PEP")  # docstrings of Python's own classes


@cache
def pages() -> dict[str, str]:
    return dict(reference_pages.pages())


@pytest.mark.parametrize("command", [name for name in COMMANDS if " " not in name])
def test_a_command_has_a_page_with_each_option_of_its_help(command: str) -> None:
    page = pages()[f"reference/cli/{command}.md"]
    for path in re.findall(r"^#+ `sfumato (.+)`$", page, re.MULTILINE):
        printed = CliRunner().invoke(app, [*path.split(), "--help-all"]).output
        section = page.partition(f"`sfumato {path}`\n")[2].partition("\n#")[0]
        missing = [each for each in OPTION.findall(printed) if each != "--help" and each not in section]
        assert not missing, f"sfumato {path}"
        below = re.findall(r"^  ([a-z-]+)  ", printed.partition("Commands\n")[2].partition("\n\n")[0], re.MULTILINE)
        assert [name for name in below if f"`sfumato {path} {name}`" not in page] == []


def test_every_public_name_has_a_summary_and_one_documented_place() -> None:
    homes = reference_pages.homes()
    for package in reference_pages.packages():
        page = pages()[f"reference/python/{package.replace('.', '-')}.md"]
        for name, path in reference_pages.public_names(package).items():
            summary = reference_pages.summary(path)
            assert len(summary.split()) > 2, path
            assert not summary.startswith(FORBIDDEN), path
            assert f"| [`{name}`][{path}] | " in page
            assert (f"::: {path}\n" in page) == (homes[path] == package)


def test_the_page_of_http_lists_each_route_and_each_kind_of_problem() -> None:
    routes = reference_pages.route_list()
    assert "| `POST /v1/datasets/{name}/query` | Answer a question." in routes
    assert routes.count("\n| `") > MANY
    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src" / "sfumato_server").rglob("*.py"))
    kinds = {
        *re.findall(r"RefusalError\(\s*\"([a-z-]+)\"", source),
        *re.findall(r"\w+Error,\s*\(\"([a-z-]+)\"", source),
    }
    assert len(kinds) > MANY
    assert sorted(kind for kind in kinds if f"`{kind}`" not in page) == []


ERRORS = ROOT / "docs" / "reference" / "errors.md"
EXAMPLE = re.compile(r"^\| `(\w+Error)` \|(?: (\d) \|)? [^|]+ \| `([^|]+)` \|", re.MULTILINE)


def test_the_errors_page_lists_every_public_error() -> None:
    listed = {name for name, _, _ in EXAMPLE.findall(ERRORS.read_text(encoding="utf-8"))}
    public = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert public - listed == {"SfumatoError", "RetryKeyError"}  # the root, and one that is raised over HTTP alone


def test_each_example_of_the_errors_page_raises_its_error(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    text = ERRORS.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1], namespace)  # noqa: S102
    (workspace / "changed.csv").write_text((workspace / "people.csv").read_text() + "30,100.0,none\n")
    edit(workspace / "people.ledger", workspace / "edited.ledger")
    for name, code, example in EXAMPLE.findall(text):
        raised = raised_by(example, namespace, without="polars" if name == "MissingExtraError" else "")
        assert type(raised).__name__ == name, f"{example} raises {raised!r}"
        section = text[: text.index(f"| `{name}` |")].rpartition("\n## ")[2]
        assert raised.exit_code == int(code or re.findall(r"Exit code (\d)", section)[0]), name


def raised_by(example: str, namespace: dict[str, object], without: str) -> SfumatoError:
    with pytest.MonkeyPatch.context() as patched:
        if without:
            patched.setitem(sys.modules, without, None)
        try:
            eval(example, namespace)  # noqa: S307
        except SfumatoError as error:
            return error
    raise AssertionError(f"{example} raises nothing")


def edit(ledger: Path, copy: Path) -> None:
    """Copy a ledger, and change an entry of the copy by other means."""
    with closing(sqlite3.connect(ledger)) as original, closing(sqlite3.connect(copy)) as database:
        original.backup(database)
        database.execute("DROP TRIGGER ledger_entry_no_update")
        database.execute("UPDATE ledger_entry SET statement = 'nothing'")
        database.commit()
