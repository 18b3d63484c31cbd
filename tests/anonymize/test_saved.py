"""Recodings, hierarchies and certificates that were saved before open, say the same, and do the same."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize import Anonymized, Cut, Hierarchy, KAnonymity, Missing, Quasi, TieBreak, parse_criterion
from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.release.recoding import load_recoding
from sfumato.vault.vault import Vault

SAVED = Path(__file__).parent / "saved"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
HIERARCHIES = {"age": "age.csv", "town": "town.yaml", "education": "education.json"}
FOUR: list[Criterion] = [KAnonymity(4)]
DIVERSE = [
    KAnonymity(3),
    parse_criterion("distinct-diversity:l=2,sensitive=ill"),
    parse_criterion("t-closeness:t=0.4,sensitive=ill,distance=equal"),
]


def hierarchies() -> dict[str, Hierarchy]:
    return {name: Hierarchy.read(SAVED / file) for name, file in HIERARCHIES.items()}


def quasi() -> list[Quasi]:
    return [Quasi(name=name, hierarchy=hierarchy) for name, hierarchy in hierarchies().items()]


def town() -> Quasi:
    return Quasi(name="town", hierarchy=hierarchies()["town"], weight=2.0, missing=Missing.SUPPRESS)


ASKED: dict[str, Callable[[Vault], Anonymized]] = {
    "optimal": lambda v: anonymize.optimal(v, quasi=quasi(), criteria=FOUR, suppression="0.05", keep=["ill"]),
    "samarati": lambda v: anonymize.samarati(
        v, quasi=quasi(), criteria=FOUR, suppression="0.05", keep=["ill"], order=TieBreak.HEURISTIC
    ),
    "diverse": lambda v: anonymize.optimal(v, quasi=quasi(), criteria=DIVERSE, suppression="0.1", keep=["ill"]),
    "mondrian": lambda v: anonymize.mondrian(v, quasi=["age", town()], criteria=FOUR, keep=["ill"]),
    "strict": lambda v: anonymize.mondrian(
        v, quasi=["age", "education"], criteria=DIVERSE, cut=Cut.STRICT, keep=["ill"]
    ),
    "k-member": lambda v: anonymize.k_member(v, quasi=quasi(), k=4, keep=["ill"]),
    "microaggregate": lambda v: anonymize.microaggregate(v, quasi=["age"], k=4, keep=["ill"]),
}


def vault(folder: Path) -> Vault:
    ledger = f"sqlite:///{folder / 'people.ledger'}"
    return sf.open(
        str(SAVED / "people.csv"), domain=SAVED / "people.yaml", ledger=ledger, limit=sf.Epsilon(1), create=True
    )


def classes(release: Anonymized) -> list[list[object]]:
    rows = release.rows.to_arrow()
    found = Counter(zip(*(rows[name].to_pylist() for name in release.recoding.quasi), strict=True))
    return sorted([*labels, count] for labels, count in found.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_saved_recoding_opens_and_applies_as_it_did(name: str, tmp_path: Path) -> None:
    path = SAVED / f"{name}.recoding.json"
    saved = load_recoding(path)
    assert saved.dumps() == path.read_text(encoding="utf-8")
    assert classes(anonymize.apply(vault(tmp_path), saved, keep=["ill"])) == EXPECTED[name]["applied"]


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_before_is_answered_as_before(name: str, tmp_path: Path) -> None:
    """Same identity in the journal, same recoding, same rows, same losses, same certificate."""
    expected, release = EXPECTED[name], ASKED[name](vault(tmp_path))
    parameters = json.dumps(release.provenance["parameters"], sort_keys=True).encode()
    assert hashlib.sha256(parameters).hexdigest() == expected["parameters"]
    assert release.recoding.dumps() == (SAVED / f"{name}.recoding.json").read_text(encoding="utf-8")
    assert classes(release) == expected["rows"]
    for fact, value in expected["facts"].items():
        assert release.facts[fact] == pytest.approx(value, rel=1e-12), fact
    if "certificate" in expected["facts"]:
        assert release.facts["certificate"] == expected["facts"]["certificate"]


@pytest.mark.parametrize("file", HIERARCHIES.values())
def test_a_saved_hierarchy_opens_and_says_the_same(file: str) -> None:
    hierarchy = Hierarchy.read(SAVED / file)
    assert Hierarchy.parse(hierarchy.describe()).rows() == hierarchy.rows()
    if file.endswith(".yaml"):
        assert hierarchy.dump() == (SAVED / file).read_text(encoding="utf-8")
