"""Dates of rows that belong to dated rows are counted, and drawn, by their distance from these."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engine.test_related import rows_of

from sfumato.domain.linked_domain import WHOLE, LinkedTables, link_tables
from sfumato.domain.table_schema import Schema, parse_schema
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked
from sfumato.synthesize.linked import ModelSizes
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.unit_measurables import DerivedMarginal

FIRST, LAST = date(2023, 1, 1), date(2023, 12, 31)
TESTED, TESTED_LAST = date(2022, 12, 1), date(2023, 11, 30)


def days(first: date, last: date, **more: Any) -> dict[str, Any]:
    return {"type": "date", "first": str(first), "last": str(last), "by": "day", "unknown": "drop", **more}


def clinic(grain: str = "day") -> Schema:
    return parse_schema(
        {
            "sfumato": 2,
            "schema": "clinic",
            "unit": {"id": "patient", "table": "patients"},
            "tables": {
                "patients": {"key": "patient", "attributes": {}},
                "visits": {
                    "key": "visit",
                    "unit": "patient",
                    "rows": 3,
                    "attributes": {"came": days(FIRST, LAST, nullable=True)},
                },
                "tests": {
                    "through": {"visit": "visits"},
                    "rows": 9,
                    "attributes": {"taken": days(TESTED, TESTED_LAST, nullable=True) | {"by": grain}},
                },
            },
        }
    )


def tables_of(units: int, seed: int) -> dict[str, pa.Table]:
    """Visits at any time; tests mostly on the day of the visit or a week later, some before it or without a date."""
    random = np.random.default_rng(seed)
    visits, tests = [], []
    for unit in range(units):
        for _ in range(random.integers(0, 4)):
            came = None if random.random() < 0.05 else FIRST + timedelta(int(random.integers(365)))
            visits.append((len(visits), unit, came))
            for _ in range(random.integers(0, 3)):
                after = int(random.choice([0, 0, 0, 7, 7, -20]))
                taken = None if random.random() < 0.05 else (came or date(2023, 5, 1)) + timedelta(after)
                taken = None if taken is None else min(max(taken, TESTED), TESTED_LAST)
                tests.append((visits[-1][0], taken))
    return {
        "patients": pa.table({"patient": np.arange(units)}),
        "visits": pa.table(dict(zip(("visit", "patient", "came"), map(list, zip(*visits, strict=True)), strict=True))),
        "tests": pa.table(dict(zip(("visit", "taken"), map(list, zip(*tests, strict=True)), strict=True))),
    }


def distance_cell(tables: LinkedTables, came: date | None, taken: date | None) -> int:
    """The cell of a first date, as the design says."""
    child = tables.children[1]
    starts = tables.distances(child)
    if taken is None:
        return len(starts)
    if came is None:
        return len(starts) + 1
    return max(cell for cell, start in enumerate(starts) if (taken - came).days >= start)


def test_distances_are_counted_from_the_visit() -> None:
    tables = link_tables(clinic())
    assert tables.periods_between(tables.children[1]) == -31
    assert tables.distances(tables.children[1])[:8] == (-395, -365, -90, -30, -7, -1, 0, 1)
    assert tables.first_cells(tables.children[1]) == (len(tables.distances(tables.children[1])), 2)
    given = tables_of(60, 1)
    found = rows_of(open_tables(clinic(), given).derive(tables).derived("tests.head"))
    expected: Counter[tuple[int, int]] = Counter()
    for visit, came in zip(given["visits"]["visit"].to_pylist(), given["visits"]["came"].to_pylist(), strict=True):
        taken = [row["taken"] for row in given["tests"].to_pylist() if row["visit"] == visit]
        first = min(taken, key=lambda each: (each is None, each or FIRST)) if taken else None
        none = sum(tables.first_cells(tables.children[1]))
        expected[len(taken), distance_cell(tables, came, first) if taken else none] += 1
    counted: Counter[tuple[int, int]] = Counter()
    for row, count in found.items():
        counted[row[-2:]] += count
    assert counted == expected


def test_dates_of_another_grain_are_counted_by_themselves() -> None:
    tables = link_tables(clinic("month"))
    assert tables.periods_between(tables.children[1]) is None
    assert tables.first_cells(tables.children[1]) == (12, 1)


@pytest.mark.parametrize("grain", ["day", "month"])
def test_tests_are_near_their_visits_and_on_declared_days(tmp_path: Path, grain: str) -> None:
    schema = clinic(grain)
    ledger = f"sqlite:///{tmp_path / 'clinic.ledger'}"
    vault = open_schema(tables_of(2000, 2), schema=schema, ledger=ledger, limit=Rho(20), create=True)
    release = synthesize_linked(
        vault, loss=Rho(20), settings=ModelSizes(head_cells=20_000, tail_cells=20_000, calibration=2)
    )
    came = dict(zip(*(release.tables["visits"][name].to_pylist() for name in ("visit", "came")), strict=True))
    assert len(came) == release.tables["visits"].num_rows
    rows = release.tables["tests"].to_pylist()
    taken = [row["taken"] for row in rows if row["taken"] is not None]
    assert len(taken) > 1000
    assert min(taken) >= TESTED
    assert max(taken) <= TESTED_LAST
    (part,) = [part for part in release.codebook.parts if part.name == "tests.head"]
    (column,) = [column for column in part.columns if column.name == "tests.first.taken"]
    described = link_tables(schema)
    (table,) = [table for table in described.derived if table.name == "tests.head"]
    weighed = DerivedMarginal(table, (column.name,)).count(open_tables(schema, release.tables).derive(described))
    assert [value.units for value in column.values] == pytest.approx((reveal(weighed) / WHOLE).tolist())
    if grain == "day":
        apart = [(row["taken"] - came[row["visit"]]).days for row in rows if row["taken"] and came[row["visit"]]]
        assert np.mean(np.abs(apart) <= 31) > 0.8  # at random a sixth of them
        labels = [value.label for value in column.values]
        assert labels[-3:] == ["(missing)", "of visits without a date", "none"]
        assert "2 to 7 before that of visits" in labels
