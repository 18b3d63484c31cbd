"""A synthesis keeps its name in the journal, so that ledgers of every version repeat their releases free.

``identities.json`` was written by the version before the first that compares with it, as were the models of ``saved``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.synthesize.identities import identities

from sfumato.synthesize.synthetic import load

SAVED = Path(__file__).parent / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text())


def test_every_kind_of_synthesis_has_the_name_that_it_always_had() -> None:
    assert identities() == json.loads((Path(__file__).parent / "identities.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_saved_by_an_older_version_opens_and_says_the_same(name: str) -> None:
    expected, release = EXPECTED[name], load(SAVED / f"{name}.model")
    assert release.statement() == expected["statement"]
    assert (release.seed, release.model.total) == (expected["seed"], expected["total"])
    assert list(release.model.domain.names) == expected["attributes"]
    for attribute, cells in expected["cells"].items():
        assert release.model.cells((attribute,)) == pytest.approx(cells, abs=1e-5)
    assert len(release.sample(20)) == 20
