"""The docs are tests: every command and example in README and docs is executed in order."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import csv
from tests.page_outputs import (
    EXAMPLE,
    PAGE,
    PICTURE,
    chart_of,
    drift,
    drift_of_cell,
    numbers_of,
    stored_page,
    stored_picture,
    table,
    typical,
)

from sfumato.app.cli.main import run
from sfumato.domain import parse
from sfumato.domain.table_schema import parse_schema
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LABS = ROOT / "src" / "sfumato_labs" / "README.md"
PAGES = [ROOT / "README.md", LABS, *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "benchmarks")]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
FLAT = """
anonymize cli comparison domain evaluate hospital intervals KNOWN-WEAKNESSES labs law ledger local one-file operate
query related scale sql sql-refusals synthesize synthesize-models tables threat-model
decisions/0001-one-ledger-beside-the-domain decisions/0002-releases-not-calls-are-journal-entries
decisions/0003-unknown-values-are-declared decisions/0004-jsonschema-alone-checks-a-domain
decisions/0005-drafts-find-out-how-a-csv-file-is-written decisions/0006-the-ledger-speaks-to-its-databases-itself
""".split()  # noqa: SIM905  (addresses before the documentation had parts)
BLOCK = re.compile(r"^```(console|python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLES = re.compile(r"^<!-- tables of (\S+\.md) -->$", re.MULTILINE)  # made by the Python of that page
MACHINE = ("make ", "scripts/", 'eval "')  # run when a machine is set up, and by the tests' own runner
ELSEWHERE = ("sfumato demo",)  # takes long, and has tests of its own

FAMILIES = ("anonymize", "data", "domain", "evaluate", "local", "query", "synthesize")
SHELL = {"|", ">", "<", "&", "&&", ";"}  # signs of what only a shell understands


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder like a reader's."""
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    """Write a small table about people, and its accepted domain, into a folder."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    people = pa.table(
        {
            "age": generator.integers(0, 100, 500),
            "income": generator.integers(0, 90_000, 500).astype(float),
            "education": generator.choice(["none", "school", "degree"], 500),
        }
    )
    csv.write_csv(people, folder / "people.csv")
    (folder / "people.yaml").write_text(
        """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 120, edges: [0, 18, 40, 65], unknown: clamp}
  income: {type: real, edges: [0, 25000, 50000, 100000], unknown: clamp}
  education: {type: categorical, values: [none, school, degree], unknown: category}
"""
    )
    return folder


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.filterwarnings("default")  # as for a reader
def test_every_command_and_example_works(page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("REFRESH_OUTPUTS"):
        folders = [filled(workspace / f"run-{run}") for run in range(3)]
        page.write_text(typical([run_page(page, each, monkeypatch, refresh=True)[0] for each in folders]), "utf-8")
        return
    _, faults = run_page(page, workspace, monkeypatch, refresh=False)
    assert not faults, "\n".join([f"{page.name}: run make docs-outputs if this is right", *faults])


def run_page(page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, *, refresh: bool) -> tuple[str, list[str]]:
    """Run all examples of a page, and return it with the outputs that drifted, and how they drifted."""
    monkeypatch.chdir(workspace)
    faults: list[str] = []

    def with_output(example: re.Match[str]) -> str:
        if example["table"]:
            return example[0].replace(
                example["table"], table(example["table"], example["command"], carried_out, faults)
            )
        stated = dict(re.findall(r"(noise|rows|exit)=(\S+)", example["fence"] or ""))
        expected = int(stated.get("exit", 0))
        printed, drawing = run_block(page, example["language"], example["block"], workspace, expected)
        if marker := PICTURE.search(example["shown"] or ""):
            faults.extend(filter(None, [stored_picture(drawing, marker, page, refresh=refresh)]))
        elif marker := PAGE.search(example["shown"] or ""):
            stored = page.parent / marker["file"]
            faults.extend(filter(None, [stored_page(workspace / stored.name, stored, refresh=refresh)]))
        elif drawing:
            faults.append(f"a chart has no picture: add <!-- picture noise=N --> and ![...](images/{page.stem}-N.svg)")
        if example["output"] is None:
            return example[0]
        fault = drift(example["output"], printed, stated.get("noise", ""), int(stated.get("rows", 0)))
        faults.extend([fault] if fault else [])
        head, _, tail = example[0].rpartition(example["output"] + "```")
        return f"{head}{printed.rstrip()}\n```{tail}" if fault else example[0]

    text = page.read_text(encoding="utf-8")
    make_tables(page, workspace)
    refreshed = EXAMPLE.sub(with_output, text)
    for marker in PICTURE.finditer(text):
        if marker["source"]:
            source = (page.parent / marker["file"]).parent / marker["source"]
            drawing = chart_of(source.read_text(encoding="utf-8"), source.name)
            faults.extend(filter(None, [stored_picture(drawing, marker, page, refresh=refresh)]))
    return refreshed, faults


def make_tables(page: Path, workspace: Path) -> None:
    """Run the Python examples of the pages whose tables a page uses."""
    for other in TABLES.findall(page.read_text(encoding="utf-8")):
        for language, block in blocks(page.parent / other):
            if language == "python":
                run_block(page, language, block, workspace, expected=0)


def run_block(page: Path, language: str, block: str, workspace: Path, expected: int) -> tuple[str, str]:
    """Run an example, and return the text that it prints and the chart that it ends with.

    A command with another expected exit code than 0 is a refusal, whose message is what it prints.
    """
    printed, drawing = StringIO(), ""
    if language == "yaml" and "attributes:" in block:
        described = yaml.safe_load(block)
        (parse_schema if described.get("sfumato") == 2 else parse)(described)
    elif language == "python":
        with redirect_stdout(printed):
            drawing = chart_of(block, f"{page.name}, an example")
    elif language == "console":
        for command in commands(block):
            code, output, said = carried_out(command)
            assert code == expected, f"{page.name}: {command}\n{said}"
            printed.write(output + said * bool(expected))
            if " domain draft " in command:
                accept(workspace / "people.yaml")
    return printed.getvalue(), drawing


def carried_out(command: str) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of a command: of ours in this process, of others in a shell."""
    words = shlex.split(command)
    if words[0] != "sfumato" or SHELL & set(words):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False
        )
        return done.returncode, done.stdout, done.stderr
    said, printed = StringIO(), StringIO()
    with (
        redirect_stdout(printed),
        redirect_stderr(said),
        patch.object(sys, "argv", words),
        patch("sfumato.privacy.entropy.OsEntropy", audited_entropy if words[1] == "audit" else OsEntropy),
    ):
        try:
            run()
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue(), said.getvalue()
    return 0, printed.getvalue(), said.getvalue()


def audited_entropy() -> SimulatedEntropy:
    """The same at each run: on fresh randomness an audit rejects what is honest once in a thousand runs, as it says."""
    return SimulatedEntropy(1)


def commands(block: str) -> list[str]:
    """Lines after a prompt; a draft replaces the domain of the workspace."""
    lines = [line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    runnable = [line.split("  #")[0] for line in lines if not line.startswith(MACHINE + ELSEWHERE)]
    return [f"{line} --overwrite" if " domain draft " in line else line for line in runnable]


def accept(domain: Path) -> None:
    """Accept a draft as the docs describe."""
    domain.write_text(domain.read_text().replace("draft: true", "draft: false"))


@pytest.mark.parametrize("page", ["synthesize", "sign-off", "choose-epsilon", "describe"])
def test_a_reader_can_follow_readme_and_a_page_in_one_folder(page: str) -> None:
    named = re.compile(r"(?:--(?:out|html|markdown|ledger)[ =]|ledger=\")([\w.-]+)")
    readme, other = (
        set(named.findall("".join(body for _, body in blocks(path))))
        for path in (ROOT / "README.md", DOCS / "how-to" / f"{page}.md")
    )
    assert not (readme & other)


@pytest.mark.filterwarnings("default")
def test_a_chart_at_the_end_of_an_example_is_stored_with_its_numbers(tmp_path: Path) -> None:
    block = "import altair as alt\nrows = [{'sex': 'F', 'rows': %d}, {'sex': 'M', 'rows': 40}]\n"
    block += "alt.Chart(alt.InlineData(values=rows)).mark_bar().encode(x='rows:Q', y='sex:N')"
    page = tmp_path / "page.md"
    marker = PICTURE.search("<!-- picture noise=3 -->\n![Rows by sex](images/page-1.svg)\n")
    assert marker is not None
    drawn = {rows: chart_of(block % rows, "an example") for rows in (30, 32, 34)}
    assert "30" in numbers_of(drawn[30])
    assert "nothing" in stored_picture(drawn[30], marker, page, refresh=False)
    stored_picture(drawn[30], marker, page, refresh=True)
    assert (tmp_path / "images" / "page-1.svg").read_text().startswith("<svg")
    assert not stored_picture(drawn[32], marker, page, refresh=False)
    assert "34" in stored_picture(drawn[34], marker, page, refresh=False)


def test_a_page_that_a_command_writes_is_stored_and_compared_by_its_headings(tmp_path: Path) -> None:
    written, stored = tmp_path / "written.html", tmp_path / "stored.html"
    assert "no command wrote" in stored_page(written, stored, refresh=False)
    written.write_text("<h1>Sign-off of 3 rows</h1><p>a</p>", encoding="utf-8")
    assert "nothing" in stored_page(written, stored, refresh=True)
    written.write_text("<h1>Sign-off of 4 rows</h1><p>b</p>", encoding="utf-8")
    assert not stored_page(written, stored, refresh=False)
    written.write_text("<h1>Sign-off of 4 rows</h1><h2>Risk</h2>", encoding="utf-8")
    assert "Risk" in stored_page(written, stored, refresh=False)


def test_every_picture_of_the_docs_is_shown_and_has_its_numbers() -> None:
    shown = {
        (page.parent / file).resolve()
        for page in PAGES
        for file in re.findall(r"\]\(([^)\s]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    stored = set((ROOT / "docs" / "images").glob("*.svg"))
    assert stored == shown
    assert all(file.with_suffix(".json").exists() for file in stored)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_example_imports_from_an_inner_module(page: Path) -> None:
    examples = [ast.parse(block) for language, block in blocks(page) if language == "python"]
    named = {node.module for tree in examples for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {
        alias.name
        for tree in examples
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    ours = {name for name in named if name and name.partition(".")[0] == "sfumato"}
    assert ours <= {"sfumato", *(f"sfumato.{name}" for name in FAMILIES)}


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", str(SITE["nav"]))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == set(listed)


def test_every_old_address_leads_to_a_page() -> None:
    (redirects,) = (each["redirects"]["redirect_maps"] for each in SITE["plugins"] if "redirects" in each)
    assert set(redirects) == {f"{old}.md" for old in FLAT}
    assert [old for old, new in redirects.items() if (DOCS / old).exists() or not (DOCS / new).is_file()] == []


@pytest.mark.parametrize("page", [*PAGES, *(DOCS / "benchmarks").glob("*.md")], ids=name_of)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


VERDICT = re.compile(r"^\| \[[^\]]+\]\((\S+\.md)\) \| (.*) \|$", re.MULTILINE)
FIGURE = re.compile(r"(?<![\w.])(?:\d[\d,]*\.?\d*|\.\d+)")
UNITS = (1, 1000, 0.001, 100)  # of a page's figure in a verdict: seconds or milliseconds, shares or percent


def test_every_figure_in_a_verdict_of_the_benchmarks_is_on_its_page() -> None:
    folder = DOCS / "benchmarks"
    for page, verdict in VERDICT.findall((folder / "index.md").read_text(encoding="utf-8")):
        text = re.sub(r"(?<=\d) (?=\d{3}\b)", "", (folder / page).read_text(encoding="utf-8"))
        measured = [float(figure.replace(",", "")) for figure in FIGURE.findall(text)]
        for figure in FIGURE.findall(verdict):
            digits = figure.replace(",", "")
            places = len(digits.partition(".")[2]) or len(digits.rstrip("0")) - len(digits)
            rounded = 0.5 * 10.0**-places + 1e-9
            stated = float(digits)
            near = any(abs(value * unit - stated) <= rounded for value in measured for unit in UNITS)
            assert near, f"{page} has no figure that rounds to {figure}: {verdict}"


def test_the_ablation_replaces_parts_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    replaced = [each for part in import_module("ablation").PARTS.values() for each in part]
    assert len(replaced) > 5
    assert [name for owner, name, _ in replaced if not hasattr(owner, name)] == []


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs_redirects")
    pytest.importorskip("mkdocstrings")
    builder = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path),
    ]  # quiet warns of nothing
    done = subprocess.run(builder, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "../how-to/serve/" in (tmp_path / "operate" / "index.html").read_text(encoding="utf-8")
    unread = [each for each in tmp_path.rglob("*.html") if "```" in each.read_text(encoding="utf-8")]
    assert unread == [], "a fence that Markdown does not read is shown as text"
    reference = (tmp_path / "reference" / "python" / "sfumato-synthesize" / "index.html").read_text(encoding="utf-8")
    assert 'id="sfumato.synthesize.auto.auto"' in reference
    assert "<p>&gt;&gt;&gt;" not in reference, "a doctest is shown as a quotation"
    assert "POST /v1/datasets" in (tmp_path / "reference" / "http" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "noise", "same"),
    [
        ("5378 rows", "5391 rows", "200", True),
        ("5378 rows", "5391 rows", "3", False),
        ("5378 rows", "5378 people", "200", False),
        ("1,000", "1,040", "5%", True),
        ("about 3", "about 4", "", False),
        ("error: 63.7, of all", "error: 66, of all", "5", True),
    ],
)
def test_an_output_may_drift_within_its_noise_alone(old: str, new: str, noise: str, same: bool) -> None:  # noqa: FBT001
    assert (drift(old, new, noise) == "") is same


def test_the_stored_run_is_the_most_typical_of_several() -> None:
    assert typical(["a 10 20", "a 11 21", "a 19 40"]) == "a 11 21"
    assert typical(["one 1", "two 1 2"]) == "one 1"


def test_rows_drawn_at_random_are_not_compared() -> None:
    assert not drift("age\n0 25\n1 42\ndone", "age\n0 61\n1 19\ndone", rows=2)
    assert drift("age\n0 25\n1 42\ndone", "age\n0 61\ndone", rows=2)


def test_an_answer_in_a_table_may_drift_by_six_standard_deviations() -> None:
    assert not drift_of_cell("F: 400 ± 4", "F: 412 ± 4")
    assert drift_of_cell("F: 400 ± 4", "F: 413 ± 4")
    assert drift_of_cell("F: 400 ± 4", "M: 400 ± 4")
