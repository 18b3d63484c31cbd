"""The reference pages that the documentation generates hold every command, option and public name."""

from __future__ import annotations

import re
from functools import cache

import pytest
from scripts import reference_pages
from typer.testing import CliRunner

from sfumato.app.cli.main import COMMANDS, app

OPTION = re.compile(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
FORBIDDEN = ("Built-in", "Represent a PEP")  # docstrings of Python's own classes


@cache
def pages() -> dict[str, str]:
    return dict(reference_pages.pages())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_page_with_each_option_of_its_help(command: str) -> None:
    page = pages()[f"reference/cli/{command}.md"]
    for path in re.findall(r"^#+ `sfumato (.+)`$", page, re.MULTILINE):
        printed = CliRunner().invoke(app, [*path.split(), "--help"]).output
        section = page.partition(f"`sfumato {path}`\n")[2].partition("\n#")[0]
        missing = [each for each in OPTION.findall(printed) if each != "--help" and each not in section]
        assert not missing, f"sfumato {path}"
        below = re.findall(r"^  ([a-z-]+)  ", printed.partition("Commands:\n")[2], re.MULTILINE)
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
