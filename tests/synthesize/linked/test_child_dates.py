"""Dates of children: gaps are counted as Python counts them, and what is drawn rises within the declared days."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain.linked_domain import GAPS, ChildTable, LinkedTables, link_tables
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.errors import DomainError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.child_dates import Dates
from sfumato.vault.schema_vault import open_schema

FIRST = date(2023, 1, 1)
DAYS = 365
CLINIC = parse_schema(
    {
        "sfumato": 2,
        "schema": "clinic",
        "unit": {"id": "patient", "table": "patients"},
        "tables": {
            "patients": {
                "key": "patient",
                "attributes": {
                    "sex": {"type": "categorical", "values": ["F", "M"], "nullable": False, "unknown": "drop"}
                },
            },
            "visits": {
                "key": "visit",
                "unit": "patient",
                "rows": 6,
                "attributes": {
                    "day": {
                        "type": "date",
                        "first": "2023-01-01",
                        "last": "2023-12-31",
                        "by": "day",
                        "nullable": True,
                        "unknown": "drop",
                    },
                    "end": {
                        "type": "categorical",
                        "values": ["home", "ward", "dead"],
                        "nullable": False,
                        "unknown": "drop",
                    },
                },
            },
        },
    }
)
VISITS = CLINIC["visits"]
Visit = tuple[int | None, int]  # the day of the year, and how it ended


def patients(count: int, seed: int) -> list[list[Visit]]:
    """Visits a week or a month apart, some without a date, some after a death, as real tables have them."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        at, visits = int(random.integers(300)), []
        for _ in range(int(random.integers(0, 8))):
            visits.append((None if random.random() < 0.05 else at, int(random.choice(3, p=[0.6, 0.35, 0.05]))))
            at = min(DAYS - 1, at + int(random.choice([0, 1, 7, 30])))
        found.append(visits)
    return found


def frames(found: list[list[Visit]]) -> dict[str, pa.Table]:
    rows = [(f"p{place}", day, end) for place, visits in enumerate(found) for day, end in visits]
    return {
        "patients": pa.table(
            {
                "patient": [f"p{place}" for place in range(len(found))],
                "sex": ["FM"[place % 2] for place in range(len(found))],
            }
        ),
        "visits": pa.table(
            {
                "visit": pa.array([f"v{place}" for place in range(len(rows))], pa.string()),
                "patient": pa.array([name for name, _, _ in rows], pa.string()),
                "day": pa.array(
                    [None if day is None else FIRST + timedelta(days=day) for _, day, _ in rows], pa.date32()
                ),
                "end": pa.array([("home", "ward", "dead")[end] for _, _, end in rows], pa.string()),
            }
        ),
    }


def tables(most: int, **more) -> LinkedTables:
    return LinkedTables(schema=CLINIC, children=(ChildTable(table=VISITS, order="day", most=most, **more),))


def rows_of(encoded) -> Counter:
    batches = reveal(encoded.batches(encoded.domain.names))
    return Counter(row for batch in batches for row in zip(*(column.to_pylist() for column in batch), strict=True))


@pytest.mark.parametrize("memory", [1, 2])
def test_first_dates_and_gaps_are_what_python_makes_of_the_rows(memory) -> None:
    described, found = tables(4, memory=memory), patients(80, 1)
    starts = [start for start in GAPS if start < DAYS]
    salt = CLINIC.hash[:16]

    def gap(later: int | None, earlier: int | None) -> int:
        if later is None or earlier is None:
            return len(starts)
        return sum(start <= later - earlier for start in starts) - 1

    heads, tails = Counter(), Counter()
    for place, visits in enumerate(found):

        def key(visit: Visit, unit: int = place) -> tuple[object, ...]:
            code = DAYS if visit[0] is None else visit[0]
            return code, hashlib.md5(f"{salt}p{unit}|{code} {visit[1]}".encode()).hexdigest()  # noqa: S324

        kept = sorted(visits, key=key)[:4]
        first = (46, 3)
        if kept:
            first = (46 if kept[0][0] is None else kept[0][0] // 8, kept[0][1])
            if kept[0][0] is None:
                first = (46, kept[0][1])
        heads[place % 2, len(kept), 47 if not kept else first[0], first[1]] += 1
        for at in range(1, len(kept)):
            before = () if memory == 1 else (kept[at - 2][1] if at > 1 else 3,)
            none = len(starts) + 1 if kept[at - 1][0] is not None else len(starts)
            previous = gap(kept[at - 1][0], kept[at - 2][0]) if at > 1 else none
            row = (place % 2, len(kept) - 2, at - 1, int(at + 1 == len(kept)), kept[at - 1][1], *before, kept[at][1])
            tails[(*row, previous, gap(kept[at][0], kept[at - 1][0]))] += 1
    encoded = open_tables(CLINIC, frames(found)).derive(described)
    assert rows_of(encoded) == heads
    assert rows_of(encoded.derived("visits.tail")) == tails


@pytest.mark.parametrize("most", [1, 5])
def test_dates_rise_within_the_declared_days_and_nothing_follows_what_is_final(most, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'clinic.ledger'}"
    vault = open_schema(frames(patients(1500, 2)), schema=CLINIC, ledger=ledger, limit=Rho(1), create=True)
    child = ChildTable(table=VISITS, order="day", most=most, final=("end", "dead"))
    settings = ModelSizes(head_cells=50_000, tail_cells=50_000, calibration=2)
    release = synthesize_linked(vault, loss=Rho(1), children=[child], settings=settings)
    visits: dict[int, list[tuple[date | None, str]]] = {}
    for row in release.tables["visits"].to_pylist():
        visits.setdefault(row["patient"], []).append((row["day"], row["end"]))
    assert max(map(len, visits.values())) == most
    assert {end for held in visits.values() for _, end in held} == {"home", "ward", "dead"}
    gaps = []
    for held in visits.values():
        assert all(end != "dead" for _, end in held[:-1])
        days = [day for day, _ in held]
        dated = [day for day in days if day is not None]
        assert days == [*sorted(dated), *[None] * (len(days) - len(dated))]
        assert all(FIRST <= day < FIRST + timedelta(days=DAYS) for day in dated)
        gaps += [(later - earlier).days for earlier, later in pairwise(dated)]
    if most > 1:
        assert sum(3 <= gap < 7 for gap in gaps) < 0.2 * len(gaps)
        assert 0.1 < sum(gap == 0 for gap in gaps) / len(gaps) < 0.5


def test_no_gap_leads_past_the_last_day() -> None:
    (child,) = tables(5).children
    dates = Dates(child, np.repeat([0, 350, 360, 364], 500))
    rows, random = np.arange(2000), np.random.default_rng(0)
    widest = next(codes for name, codes in dates.known(rows).items() if name not in child.named("previous", "day"))
    dates.move_on(rows, widest - 1, random)
    assert (dates.days < DAYS).all()
    assert (dates.days >= np.repeat([180, 357, 362, 364], 500)).all()


def test_the_first_date_orders_where_nothing_is_said() -> None:
    (child,) = link_tables(CLINIC).children
    assert (child.order, child.most, child.dated) == ("day", 6, True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"falling": True}, "which must rise"),
        ({"final": ("end", "moved")}, "no such cell"),
        ({"final": ("day", "2023-01-01")}, "no such cell"),
    ],
)
def test_wrong_orders_and_ends_are_refused(wrong, words) -> None:
    with pytest.raises(DomainError, match=words):
        ChildTable(**{"table": VISITS, "order": "day", "most": 3, **wrong})
