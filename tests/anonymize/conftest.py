"""UCI Adult as the published experiments cut it: 30 162 rows, and small tables to enumerate."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from sfumato.anonymize.microdata import Microdata
from sfumato.domain.hierarchy.builders import flat, intervals, mapping
from sfumato.domain.hierarchy.levels import Hierarchy

MARITAL = {
    "Never-married": "Never-married",
    "Married-civ-spouse": "married",
    "Married-AF-spouse": "married",
    "Divorced": "apart",
    "Separated": "apart",
    "Widowed": "alone",
    "Married-spouse-absent": "alone",
}
FOUR = ("age", "gender", "race", "marital_status")


@pytest.fixture(scope="session")
def adult(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "adult" / "adult.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "?" not in row.values()]
    assert len(rows) == 30_162
    return rows


@pytest.fixture(scope="session")
def four(adult: list[dict[str, str]]) -> tuple[Hierarchy, ...]:
    values = {name: sorted({row[name] for row in adult}) for name in FOUR}
    return (
        intervals("age", 17, 90, widths=(5, 10, 20)),
        flat("gender", values["gender"]),
        flat("race", values["race"]),
        mapping("marital_status", [MARITAL]),
    )


def counted(rows: list[dict[str, str]], labels: dict[str, tuple[str, ...]]) -> Microdata:
    """Rows as tuples of codes of these labels."""
    places = {name: {label: code for code, label in enumerate(known)} for name, known in labels.items()}
    codes = np.array([[places[name][row[name]] for name in labels] for row in rows])
    tuples, counts = np.unique(codes, axis=0, return_counts=True)
    return Microdata(quasi=tuple(labels), codes=tuples, counts=counts)


def drawn(rng: np.random.Generator, *, tuples: int, sizes: tuple[int, ...], values: int = 0) -> Microdata:
    """A small random table, with a sensitive attribute ``s`` where ``values`` is positive."""
    codes = np.unique(np.stack([rng.integers(size, size=tuples) for size in sizes], axis=1), axis=0)
    counts = rng.integers(1, 5, size=len(codes))
    sensitive = {}
    if values:
        shares = rng.dirichlet(np.ones(values), size=len(codes))
        sensitive["s"] = np.stack([rng.multinomial(count, share) for count, share in zip(counts, shares, strict=True)])
    return Microdata(
        quasi=tuple(f"q{place}" for place in range(len(sizes))), codes=codes, counts=counts, sensitive=sensitive
    )
