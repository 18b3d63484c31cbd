"""The script that measures the structure finds what it looks for, in small packages and in this one."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import LONGEST

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "structure"

# No figure may rise above these.  To lower one, write the smaller number that scripts/structure prints here.
# A new part raises none: files in the folders of parts have no ceiling.
CEILINGS = {
    "files outside the folders of parts": 291,
    "folders over 15 files": 0,
    "files over 500 lines": 0,
    "functions over 40 lines": 0,
    "public classes and aliases defined twice": 0,
    "file names that repeat": 0,
    "circles of imports": 0,
    "private words": 233,
    "the private word found": 0,
    "modules entered by one query": 60,
    "deepest stack of one query": 18,
    "frames from the command to the noise": 7,
    "frames from the command to its random words": 9,
    "classes held in frames at the noise": 11,
    "classes created in app, ledger, query, vault": 45,
}


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    loader = SourceFileLoader("structure", str(SCRIPT))
    spec = spec_from_loader("structure", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured() -> dict[str, dict]:
    """Return the script's output for this tree, from a fresh process."""
    ended = subprocess.run([sys.executable, SCRIPT, "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_no_figure_is_above_its_ceiling(measured: dict[str, dict]) -> None:
    above = [
        above_ceiling(name, measured["figures"][name], measured["behind"].get(name, []), changed_files())
        for name, most in CEILINGS.items()
        if measured["figures"][name] > most
    ]
    assert not above, "\n".join([*above, "scripts/structure --names lists everything behind a figure"])


def above_ceiling(name: str, figure: int, behind: list[str], changed: set[str]) -> str:
    """Say which figure is above its ceiling, and at most five places: those in changed files, if there are any."""
    own = [place for place in behind if any(file in place for file in changed)]
    return "; ".join([f"{name}: {figure}, but its ceiling is {CEILINGS[name]}", *(own or behind)[:5]])


def changed_files() -> set[str]:
    """Return the sources that differ from the merge base with main, as the figures name them."""
    fork = "".join(_git("merge-base", "HEAD", "main")) or "HEAD"
    lines = _git("diff", "--name-only", fork) + _git("ls-files", "--others", "--exclude-standard")
    return {line.removeprefix("src/").removeprefix("sfumato/") for line in lines if line.startswith("src/")}


def _git(*arguments: str) -> list[str]:
    git = subprocess.run(["git", *arguments], cwd=SCRIPT.parent.parent, capture_output=True, text=True, check=False)
    return git.stdout.splitlines()


def test_a_figure_above_its_ceiling_is_said_with_the_changed_files() -> None:
    places = [f"query/{name}.py keep 1" for name in "abcdefgh"]
    start = f"private words: 300, but its ceiling is {CEILINGS['private words']}; "
    assert above_ceiling("private words", 300, places, {"query/h.py"}) == start + "query/h.py keep 1"
    assert above_ceiling("private words", 300, places, set()) == start + "; ".join(places[:5])


def test_figures_of_a_small_package(structure: ModuleType) -> None:
    text = (
        '''import os
from p import a  # noqa: F401

# why
class One:
    def of(self):
        """Say nothing.

        Twice.
        """
        found = 1
        _found = found

def long():
'''
        + "    x = 1\n" * 40
    )
    files = [
        structure.SourceFile(structure.SOURCE / "sfumato" / "q" / name, text)
        for name, text in (("one.py", text), ("two.py", "from sfumato.q.one import One\n"), ("__init__.py", ""))
    ]
    figures = structure.Figures()
    for measure in (structure.measure_sizes, structure.measure_functions, structure.measure_names):
        measure(files, figures)
    assert figures.values["files"] == 3
    assert figures.values["files without __init__"] == 2
    assert figures.values["lines"] == 55
    assert figures.values["comments in 1000 lines"] == round(1000 / 55, 1)
    assert figures.values["lines of imports in 100 lines"] == round(300 / 55, 1)
    assert figures.behind["functions over 40 lines"] == ["q/one.py:long 41"]
    assert figures.behind["methods called begin/of/over/read/said/shown"] == ["q/one.py:One.of"]
    assert figures.behind["public names used in one other file"] == ["q/one.py:One"]
    assert figures.behind["public names used in no other file"] == ["q/one.py:long"]
    assert figures.values["the private word found"] == figures.values["private words"] == 3


def test_a_docstring_and_a_decorator_do_not_make_a_function_long(structure: ModuleType) -> None:
    tree = ast.parse('@property\ndef f():\n    """One.\n\n    Two.\n    """\n    return (\n        1\n    )')
    assert structure.function_lines(tree.body[0]) == 4


def test_crowded_folders_and_long_files_are_counted(structure: ModuleType) -> None:
    folder = structure.SOURCE / "sfumato" / "q"
    files = [structure.SourceFile(folder / f"f{number}.py", "\n" * (485 + number)) for number in range(1, 17)]
    figures = structure.Figures()
    structure.measure_sizes(files, figures)
    assert figures.behind["folders over 15 files"] == ["q 16"]
    assert figures.behind["files over 500 lines"] == ["q/f16.py 501"]


def test_nouns_are_seen_in_containers_and_enums_and_errors_are_none(structure: ModuleType) -> None:
    from sfumato.errors import SfumatoError
    from sfumato.privacy import Epsilon
    from sfumato.query import Count

    assert set(structure.nouns_in([{"a": (Epsilon(1),)}])) == set()
    assert set(structure.nouns_in(({"a": Epsilon(1)}, Count))) == {"privacy.loss.Epsilon", _name(Count)}
    assert set(structure.nouns_in([SfumatoError("none"), 1, "word"])) == set()


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix('sfumato.')}.{kind.__qualname__}"


def test_a_circle_of_imports_is_found(structure: ModuleType) -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert structure.circles(arrows) == [["b", "c"]]


def test_a_straight_line_of_imports_is_no_circle(structure: ModuleType) -> None:
    assert structure.circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_found_in_every_place_of_a_file(structure: ModuleType) -> None:
    tree = ast.parse("import p.a\nif x:\n    from p import b\ndef f():\n    from p.c import thing")
    assert structure.imports(tree, ["p", "p.a", "p.b", "p.c", "p.d"]) == {"p.a", "p.b", "p.c"}


def test_classes_and_aliases_are_names_and_constants_are_not(structure: ModuleType) -> None:
    tree = ast.parse("class One: ...\nTwo = int | str\nTHREE = 3\nthree = 3\nFour: type = int")
    assert list(structure.defined(tree)) == ["One", "Two", "Four"]


def test_a_name_repeats_only_where_two_places_bear_it(structure: ModuleType) -> None:
    assert structure.repeated([("A", "x"), ("A", "y"), ("B", "x"), ("B", "x")]) == {"A": ["x", "y"]}


def test_the_way_of_a_query_leads_from_the_command_to_random_words(measured: dict[str, dict]) -> None:
    behind = measured["behind"]
    to_noise = behind["frames from the command to the noise"]
    to_words = behind["frames from the command to its random words"]
    assert to_noise[0] == "app/cli/query.py:query"
    assert to_noise[-1].startswith("privacy/")
    assert to_words[: len(to_noise)] == to_noise
    assert len(to_words) <= measured["figures"]["deepest stack of one query"]
    assert {"app/cli/query.py", "privacy/entropy.py"} < set(behind["modules entered by one query"])
    assert "privacy.loss.Epsilon" in behind["classes created by one query"]


# private words with a term of the field instead: transaction, charge, mechanisms, filter
PRIVATE_WORDS = re.compile(
    r"\b(paid|pays?|bought|buys?|purses?|books|desks?|doors?|billed|as said|enrolment|nobody is told)\b",
    re.IGNORECASE,
)
TEXTS = {".py", ".j2", ".js"}


def test_private_words_are_caught() -> None:
    assert PRIVATE_WORDS.findall("A Purse pays, as said; a codebook, outdoor and payment are none.") == [
        "Purse",
        "pays",
        "as said",
    ]


def test_the_code_speaks_the_words_of_the_field() -> None:
    source = SCRIPT.parent.parent / "src"
    found = [
        f"{path.relative_to(source)}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*"))
        if path.suffix in TEXTS and "vendor" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PRIVATE_WORDS.search(line) and "frozenset((" not in line  # names that owners give columns
    ]
    assert not found


def test_the_longest_test_files_are_there() -> None:
    root = SCRIPT.parent.parent
    assert [group for group in LONGEST if group != "spark" and not (root / group).is_file()] == []


def test_names_of_tests_are_short_enough_to_be_read_in_a_list() -> None:
    long = [
        f"{file.name}: {node.name}"
        for file in (SCRIPT.parent.parent / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) >= 80
    ]
    assert long == []


def _names_something(name: str) -> bool:
    """Return whether a dotted name is a module, or leads from one to its content, including a field of a class."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            fields = {each for base in getattr(found, "__mro__", ()) for each in getattr(base, "__annotations__", ())}
            if part in fields:
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_every_dotted_name_that_a_text_refers_to_is_there() -> None:
    root = SCRIPT.parent.parent
    texts = [*root.glob("src/**/*.py"), *root.glob("src/**/*.md"), *root.glob("docs/**/*.md"), root / "README.md"]
    referred = re.compile(r"`~?(sfumato(?:_labs)?(?:\.[A-Za-z_]\w*)+)")
    named = {(text.name, name) for text in texts for name in referred.findall(text.read_text(encoding="utf-8"))}
    assert len(named) > 50
    assert {(text, name) for text, name in named if not _names_something(name)} == set()


def test_a_dotted_name_of_nothing_is_found() -> None:
    assert _names_something("sfumato.vault.release.loss_json")
    assert _names_something("sfumato.privacy.loss.Charge.rho")
    assert not _names_something("sfumato.vault.guarantee.loss_json")
    assert not _names_something("sfumato.privacy.loss.Charge.sigma")
