from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sfumato.evaluate.population_split import PopulationSplit, split_population


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def people() -> ModuleType:
    """The module ``people``: a population with structure."""
    return _load("people")


@pytest.fixture(scope="session")
def everyone(people) -> PopulationSplit:
    """Two thousand members, and four thousand others of the same population."""
    rows = people.population(6000, seed=1)
    return split_population(rows.take(np.arange(2000)), rows.take(np.arange(2000, 6000)), seed=2)
