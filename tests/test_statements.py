"""Docs and docstrings agree with the code: the functions of walks run, and lists of names are complete."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from sfumato import errors

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sfumato"
WALKS = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n# Three walks")[2]

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, edges: [0, 18, 40, 65], unknown: clamp}
  education: {type: categorical, values: [none, school, degree], unknown: drop}
"""
WITNESS = """
import json, sys, threading
seen = set()
def look(frame, event, argument):
    if event == "call":
        seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))
from sfumato.app.cli.main import run
threading.setprofile(look)
sys.setprofile(look)
try:
    run()
except SystemExit as end:
    code = end.code
sys.setprofile(None)
json.dump(sorted(seen), open("seen.json", "w"))
sys.exit(code)
"""
COMMANDS = {
    "A query's epsilon": ('query people.csv "SELECT COUNT(*) FROM people" --domain people.yaml --epsilon 0.5',),
    "k": ("anonymize people.csv --domain people.yaml --quasi age,education --k 5 --suppression 0.05 --out k5.parquet",),
    "A local spec": (
        "local spec frequency --epsilon 2 --values none,school,degree --out spec.json",
        "local randomize spec.json people.csv --column education --out reports.parquet",
        "local estimate spec.json reports.parquet",
    ),
}


def walks() -> dict[str, list[tuple[str, list[str]]]]:
    """The stops of each walk: a file, and the functions that it names."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for section in WALKS.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        stops = re.findall(r"^\d+\. (.*?):", text, re.MULTILINE | re.DOTALL)
        named = [re.findall(r"`([^`]+)`", stop) for stop in stops]
        found[title] = [(names[0], names[1:]) for names in named]
    return found


@pytest.mark.parametrize("walk", COMMANDS)
def test_every_stop_of_a_walk_is_passed_by_its_commands(walk: str, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = {"age": random.integers(0, 99, 300), "education": random.choice(["none", "school", "degree"], 300)}
    csv.write_csv(pa.table(table), tmp_path / "people.csv")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    seen: set[tuple[str, str]] = set()
    for command in COMMANDS[walk]:
        begun = "" if command.startswith("local") else " --create --limit 1"
        arguments = [sys.executable, "-c", WITNESS, *shlex.split(command + begun)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen |= {
            (str(Path(file).relative_to(SOURCE)), name)
            for file, name in json.loads((tmp_path / "seen.json").read_text())
            if Path(file).is_relative_to(SOURCE)
        }
    for file, names in walks()[walk]:
        passed = [name for each, name in seen if each == file]
        assert passed, f"{walk}: nothing of {file} is run"
        for name in names:
            parts = f".{name}."
            assert any(parts in f".{each}." for each in passed), f"{walk}: {name} of {file} is not run"


def test_the_walks_are_all_tried() -> None:
    assert set(walks()) == set(COMMANDS)


def test_the_tree_of_errors_has_every_error_below_its_parent() -> None:
    assert errors.__doc__ is not None
    drawn, path = {}, []
    for line in errors.__doc__.splitlines():
        if found := re.match(r"    ([ │├└─]*)(\w+Error)\b", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else "Exception"
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert drawn == {kind.__name__: kind.__base__.__name__ for kind in kinds if kind.__module__ == errors.__name__}


def texts_for_people(source: str) -> list[str]:
    """The strings of a module that are not its docstrings."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    docstrings = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text.value for text in texts if id(text) not in docstrings]


def test_one_space_follows_a_full_stop_in_texts_for_people() -> None:
    assert texts_for_people('"""A.  B."""\nsaid = f"{1}.  C."') == [".  C."]
    for file in SOURCE.parent.rglob("*.py"):
        wide = [text for text in texts_for_people(file.read_text(encoding="utf-8")) if re.search(r"[.;:!?]  \S", text)]
        assert not wide, f"{file.relative_to(ROOT)}: {wide}"
