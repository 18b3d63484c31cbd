"""Tables of drawn statements: their rows, their descriptions, and views of the rows as the descriptions declare them.

The views are written by hand from the documentation: they move numbers to their bounds, drop rows with undeclared
values, and make undeclared values the cell ``(other)``.  Nothing here imports the product.
"""

# ruff: noqa: DTZ001, S311 - data of tests

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

TRIPS: dict[str, Any] = {
    "age": {"type": "integer", "minimum": 0, "maximum": 99, "nullable": True, "unknown": "clamp"},
    "band": {"type": "integer", "minimum": 0, "maximum": 99, "edges": [0, 18, 65], "unknown": "clamp"},
    "fare": {"type": "real", "edges": [0.0, 25.0, 50.0, 100.0], "nullable": True, "unknown": "clamp"},
    "kind": {"type": "categorical", "values": ["ale", "rye", "tea"], "nullable": True, "unknown": "category"},
    "flag": {"type": "categorical", "values": [False, True], "nullable": True, "unknown": "drop"},
    "day": {
        "type": "date",
        "by": "day",
        "first": "2023-11-01",
        "last": "2024-03-31",
        "nullable": True,
        "unknown": "drop",
    },
    "seen": {
        "type": "timestamp",
        "by": "hour",
        "zone": "UTC",
        "first": "2024-01-01",
        "last": "2024-01-31",
        "nullable": True,
        "unknown": "drop",
    },
    "start": {"type": "date", "by": "month", "first": "2023-01-01", "last": "2024-12-31", "unknown": "clamp"},
}
DRINKS = {"kind": {"levels": ["drink"], "rows": [["ale", "wet"], ["rye", "dry"], ["tea", "wet"]]}}
ONE_TABLE: dict[str, Any] = {
    "sfumato": 1,
    "unit": {"id": "person", "rows": 8},
    "attributes": TRIPS,
    "hierarchies": DRINKS,
}
TABLES: dict[str, Any] = {
    "sfumato": 2,
    "schema": "travel",
    "draft": False,
    "unit": {"id": "person", "table": "people"},
    "tables": {
        "people": {
            "key": "person",
            "attributes": {
                "sex": {"type": "categorical", "values": ["F", "M"], "nullable": True, "unknown": "drop"},
                "town": {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "clamp"},
            },
        },
        "trips": {"key": "trip", "unit": "person", "rows": 8, "attributes": TRIPS, "hierarchies": DRINKS},
        "stops": {
            "key": "stop",
            "through": {"trip": "trips"},
            "references": {"place": "places"},
            "rows": 16,
            "attributes": {
                "wait": {"type": "integer", "minimum": 0, "maximum": 60, "nullable": True, "unknown": "clamp"},
                "gate": {"type": "categorical", "values": ["A", "B"], "nullable": True, "unknown": "category"},
            },
        },
        "places": {
            "public": True,
            "key": "place",
            "attributes": {
                "height": {"type": "integer", "minimum": 0, "maximum": 9, "nullable": True, "unknown": "clamp"},
                "side": {"type": "categorical", "values": ["east", "west"], "unknown": "drop"},
            },
        },
    },
}
VIEWS = [
    """CREATE VIEW trips AS SELECT person, trip,
       CASE WHEN age < 0 THEN 0 WHEN age > 99 THEN 99 ELSE age END AS age,
       CASE WHEN band < 0 THEN 0 WHEN band > 99 THEN 99 ELSE band END AS band,
       CASE WHEN fare < 0 THEN 0 WHEN fare > 100 THEN 100 ELSE fare END AS fare,
       CASE WHEN kind NOT IN ('ale', 'rye', 'tea') THEN '(other)' ELSE kind END AS kind,
       flag, day, seen,
       CASE WHEN start < DATE '2023-01-01' THEN DATE '2023-01-01' WHEN start > DATE '2024-12-31' THEN DATE '2024-12-01'
            ELSE DATE_TRUNC('month', start) END::DATE AS start
       FROM raw_trips
       WHERE band IS NOT NULL AND start IS NOT NULL AND (day IS NULL OR day BETWEEN '2023-11-01' AND '2024-03-31')
       AND (seen IS NULL OR (seen >= '2024-01-01' AND seen < '2024-02-01'))""",
    """CREATE VIEW people AS SELECT person, sex,
       CASE WHEN town < 0 THEN 0 WHEN town > 3 THEN 3 ELSE town END AS town
       FROM raw_people WHERE sex IS NULL OR sex IN ('F', 'M')""",
    """CREATE VIEW places AS SELECT place, height, side FROM raw_places""",
    """CREATE VIEW stops AS SELECT s.stop, s.trip, s.place, t.person,
       CASE WHEN wait < 0 THEN 0 WHEN wait > 60 THEN 60 ELSE wait END AS wait,
       CASE WHEN gate NOT IN ('A', 'B') THEN '(other)' ELSE gate END AS gate
       FROM raw_stops s JOIN raw_trips t USING (trip)""",
]


def data() -> dict[str, pa.Table]:
    """Rows with missing values, values beyond bounds, and people without trips or with trips without values."""
    chance, other = random.Random(7), random.Random(8)

    def maybe(value: Any, share: float = 0.15) -> Any:
        return None if chance.random() < share else value

    people, trips, stops = [], [], []
    for person in range(160):
        people.append(
            {"person": person, "sex": maybe(chance.choice(["F", "M", "M", "X"])), "town": chance.randrange(-1, 5)}
        )
        for _ in range(chance.randrange(0, 7) if person % 8 else 0):
            first = date(2023, 10, 25) if chance.random() < 0.1 else date(2023, 11, 1)
            trip = {
                "trip": len(trips),
                "person": person,
                "age": maybe(chance.randrange(-10, 120)),
                "band": maybe(chance.choice([-3, 5, 17, 18, 40, 64, 65, 99, 130]), 0.05),
                "fare": maybe(chance.randrange(-80, 480) / 4),
                "kind": maybe(chance.choice(["ale", "rye", "tea", "gin"])),
                "flag": maybe(chance.random() < 0.4),
                "day": maybe(first + timedelta(days=chance.randrange(152))),
                "seen": maybe(
                    datetime(2024, 1, 1)
                    + timedelta(minutes=chance.randrange(31 * 1440 + (chance.random() < 0.1) * 9000))
                ),
                "start": maybe(date(2022, 11, 1) + timedelta(days=chance.randrange(860)), 0.03),
            }
            if person % 11 == 0:
                trip |= dict.fromkeys(("age", "fare", "kind", "flag", "day", "seen"))
            trips.append(trip)
    for trip in trips:
        for _ in range(chance.randrange(3)):
            stop = {"stop": len(stops), "trip": trip["trip"], "wait": maybe(chance.randrange(-5, 80))}
            stop["place"] = other.choice([None, *range(7)])  # the public table has 0 to 5
            stops.append(stop | {"gate": maybe(chance.choice("ABC"))})
    places = [{"place": n, "height": [3, 9, None, 0, 4, 4][n], "side": ["east", "west"][n % 2]} for n in range(6)]
    rows = {"people": people, "trips": trips, "stops": stops, "places": places}
    return {name: pa.Table.from_pylist(each) for name, each in rows.items()}
