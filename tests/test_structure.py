"""The script that measures the structure finds what it looks for, in small packages and in this one."""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import LONGEST

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "structure"


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    loader = SourceFileLoader("structure", str(SCRIPT))
    spec = spec_from_loader("structure", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


def test_a_circle_of_imports_is_found(structure: ModuleType) -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert structure.circles(arrows) == [["b", "c"]]


def test_a_straight_line_of_imports_is_no_circle(structure: ModuleType) -> None:
    assert structure.circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_seen_wherever_they_stand(structure: ModuleType) -> None:
    tree = ast.parse("import p.a\nif x:\n    from p import b\ndef f():\n    from p.c import thing")
    assert structure.imports(tree, ["p", "p.a", "p.b", "p.c", "p.d"]) == {"p.a", "p.b", "p.c"}


def test_classes_and_aliases_are_names_and_constants_are_not(structure: ModuleType) -> None:
    tree = ast.parse("class One: ...\nTwo = int | str\nTHREE = 3\nthree = 3\nFour: type = int")
    assert list(structure.defined(tree)) == ["One", "Two", "Four"]


def test_a_name_repeats_only_where_two_places_bear_it(structure: ModuleType) -> None:
    assert structure.repeated([("A", "x"), ("A", "y"), ("B", "x"), ("B", "x")]) == {"A": ["x", "y"]}


def test_the_way_of_a_query_leads_from_the_command_to_random_words(structure: ModuleType) -> None:
    seen = structure.trip()
    assert seen.to_draw[0] == "app/cli/query.py:query"
    assert seen.to_draw[-1].startswith("privacy/")
    assert seen.to_words[: len(seen.to_draw)] == seen.to_draw
    assert len(seen.to_words) <= seen.deepest
    assert {"app/cli/query.py", "privacy/entropy.py"} < seen.files


# private words of earlier days, for which the field has its own: transaction, charge, mechanisms, filter
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
        if PRIVATE_WORDS.search(line)
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
    """Whether a dotted name is a module, or leads from one to what it holds, a field of a class included."""
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
    texts = [*root.glob("src/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md"]
    referred = re.compile(r"`~?(sfumato(?:_labs)?(?:\.[A-Za-z_]\w*)+)")
    named = {(text.name, name) for text in texts for name in referred.findall(text.read_text(encoding="utf-8"))}
    assert len(named) > 50
    assert {(text, name) for text, name in named if not _names_something(name)} == set()


def test_a_dotted_name_of_nothing_is_found() -> None:
    assert _names_something("sfumato.vault.release.loss_json")
    assert _names_something("sfumato.privacy.loss.Charge.rho")
    assert not _names_something("sfumato.vault.guarantee.loss_json")
    assert not _names_something("sfumato.privacy.loss.Charge.sigma")


def test_no_two_files_or_public_classes_share_a_name_and_no_imports_go_round(structure: ModuleType) -> None:
    parsed = structure.modules()
    names = structure.repeated((name, module) for module, tree in parsed.items() for name in structure.defined(tree))
    assert {name: where for name, where in names.items() if not name.startswith("_")} == {}
    paths = [path for path in structure.PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert structure.repeated((path.name, str(path)) for path in paths) == {}
    assert structure.circles({name: structure.imports(tree, parsed) - {name} for name, tree in parsed.items()}) == []
