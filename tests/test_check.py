"""``make check`` chooses the tests of what changed by the layout that tests and packages share."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import LONGEST

ROOT = Path(__file__).resolve().parent.parent
FILES = """
  src/sfumato/query/plan.py src/sfumato/app/cli/query.py src/sfumato_server/jobs.py src/sfumato/extras.py
  src/sfumato_labs/risk.py tests/conftest.py tests/test_extras.py tests/query/helpers.py tests/query/test_plan.py
  tests/query/test_answers.py tests/app/test_cli.py tests/server/test_jobs.py tests/labs/test_risk.py
  tests/test_structure.py tests/clients/test_typescript_types.py
  scripts/check tests/test_check.py tests/mutants/query.toml docs/tutorials/first-queries.md
""".split()  # noqa: SIM905 - a listing of a folder


@pytest.fixture(scope="module")
def check() -> ModuleType:
    loader = SourceFileLoader("check", str(ROOT / "scripts" / "check"))
    module = module_from_spec(spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for file in FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


@pytest.mark.parametrize(
    ("change", "tests"),
    [
        ("src/sfumato/query/plan.py", "tests/query/test_plan.py tests/query/test_answers.py"),
        ("src/sfumato/query/inner/new.py", "tests/query/test_plan.py tests/query/test_answers.py"),
        ("src/sfumato/app/cli/query.py", "tests/app/test_cli.py"),
        ("src/sfumato_server/jobs.py", "tests/server/test_jobs.py"),
        ("src/sfumato/extras.py", "tests/test_extras.py"),
        ("src/sfumato_labs/risk.py", "tests/labs/test_risk.py"),
        ("tests/query/helpers.py", "tests/query/test_plan.py tests/query/test_answers.py"),
        ("tests/query/test_plan.py", "tests/query/test_plan.py"),
        ("tests/query/test_gone.py", ""),
        ("scripts/check", "tests/test_check.py"),
        ("tests/mutants/query.toml", ""),
        ("docs/tutorials/first-queries.md", ""),
    ],
)
def test_a_change_chooses_the_tests_that_mirror_it(check, root, change, tests):
    chosen = {str(file) for file in check.files_for([Path(change)], root)}
    own = {change} if change.startswith("src/") and (root / change).is_file() else set()
    assert chosen == set(tests.split()) | own | (set(check.ALWAYS) if change.startswith("src/") else set())


def test_a_package_brings_its_tests_and_sources(check, root):
    assert {str(file) for file in check.files_of_package("query", root)} == {
        "src/sfumato/query/plan.py",
        "tests/query/test_answers.py",
        "tests/query/test_plan.py",
        *check.ALWAYS,
    }
    assert Path("tests/labs/test_risk.py") in check.files_of_package("labs", root)
    assert Path("tests/app/test_cli.py") in check.files_of_package("app/cli", root)
    assert Path("tests/app/test_cli.py") not in check.files_of_package("query", root)


@pytest.mark.parametrize("name", ["quary", "../tests", "/"])
def test_a_package_that_is_not_there_is_refused(check, root, name):
    with pytest.raises(SystemExit, match="name one such as query"):
        check.files_of_package(name, root)


def test_the_files_that_are_always_chosen_are_there(check):
    assert [test for test in check.ALWAYS if not (ROOT / test).is_file()] == []


def test_the_longest_files_are_those_of_the_conftest(check):
    assert check.longest(ROOT) == {Path(group) for group in LONGEST if group != "spark"}
