"""The list of mutants is kept true with every change; ``make mutants`` plants them."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def mutants():
    loader = SourceFileLoader("mutants", str(ROOT / "scripts" / "mutants"))
    module = module_from_spec(spec_from_loader("mutants", loader))
    sys.modules["mutants"] = module  # dataclasses look their module up
    loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


def test_every_mutant_can_be_planted_and_names_its_tests(mutants):
    mutants.check(mutants.load())


def test_a_mutant_whose_text_is_gone_is_named(mutants, tmp_path):
    mutant = mutants.Mutant("area", "gone", "file.py", "no such text", "x", ("tests",), "not slow")
    (tmp_path / "file.py").write_text("text", encoding="utf-8")
    with pytest.raises(mutants.UnfairMutantError, match="'gone': its text stands 0 times"):
        mutants.check([mutant], tmp_path)


def test_a_mutant_that_uses_an_undefined_name_is_refused(mutants, tmp_path):
    mutant = mutants.Mutant("area", "undefined", "file.py", "x = 1", "x = gone", ("tests",), "not slow")
    (tmp_path / "file.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(mutants.UnfairMutantError, match="'undefined': Undefined name `gone`"):
        mutants.refuse_undefined_names([mutant], tmp_path)
