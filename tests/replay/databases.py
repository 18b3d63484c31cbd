"""Drawn databases, each with a neighbor: one unit's rows are added, removed or changed, in any or all versions.

Units go to extremes: many more rows than declared, values that are unknown or missing, rows without an owner.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
Rows = dict[str, list[Row]]

OTHERS = 3
TARGET, KEPT = 7, 9  # ids: of the unit in which neighbors differ, and of one that is always there
TOWNS = ["Ulm", "Trier", "Essen", None]
DAYS = [date(2023, 1, 1), date(2023, 2, 11), date(2023, 6, 30), date(2023, 12, 31), date(1999, 1, 1), None]

ATTRIBUTES: dict[str, Any] = {
    "age": {"type": "integer", "minimum": 0, "maximum": 9},
    "sex": {"type": "categorical", "values": ["F", "M"], "nullable": True},
    "income": {"type": "real", "edges": [0, 10, 50]},
    "since": {"type": "date", "first": "2023-01-01", "last": "2023-12-31", "by": "month", "nullable": True},
}
COLUMNS = {
    "person": pa.int64(),
    "age": pa.int64(),
    "sex": pa.string(),
    "income": pa.float64(),
    "since": pa.date32(),
    "town": pa.string(),
}

SCHEMA: dict[str, Any] = {
    "sfumato": 2,
    "schema": "clinic",
    "draft": False,
    "unit": {"id": "person", "table": "people"},
    "tables": {
        "people": {
            "key": "person",
            "attributes": {
                "sex": {"type": "categorical", "values": ["F", "M"], "nullable": True, "unknown": "category"},
                "region": {"type": "integer", "minimum": 0, "maximum": 2, "unknown": "drop"},
            },
        },
        "visits": {
            "key": "visit",
            "unit": "person",
            "rows": 2,
            "references": {"code": "codes"},
            "attributes": {
                "kind": {"type": "integer", "minimum": 0, "maximum": 2, "unknown": "category"},
                "cost": {"type": "integer", "minimum": 0, "maximum": 20, "unknown": "clamp", "nullable": True},
                "code": {"type": "categorical", "values": ["c0", "c1", "c2"], "unknown": "drop"},
                "day": {
                    "type": "date",
                    "first": "2023-01-01",
                    "last": "2023-12-31",
                    "by": "quarter",
                    "unknown": "clamp",
                },
            },
        },
        "drugs": {
            "key": "drug",
            "through": {"visit": "visits"},
            "rows": 3,
            "attributes": {"dose": {"type": "real", "edges": [0.0, 2.5, 10.0], "unknown": "clamp"}},
        },
        "codes": {
            "public": True,
            "key": "code",
            "attributes": {"chapter": {"type": "integer", "minimum": 0, "maximum": 1, "unknown": "drop"}},
        },
    },
}
LINKED: dict[str, dict[str, pa.DataType]] = {
    "people": {"person": pa.int64(), "sex": pa.string(), "region": pa.int64()},
    "visits": {
        "visit": pa.int64(),
        "person": pa.int64(),
        "doctor": pa.int64(),
        "kind": pa.int64(),
        "cost": pa.int64(),
        "code": pa.string(),
        "day": pa.date32(),
    },
    "drugs": {"drug": pa.int64(), "visit": pa.int64(), "dose": pa.float64()},
    "codes": {"code": pa.string(), "chapter": pa.int64()},
}
OTHER_OWNERS = deepcopy(SCHEMA)
"""The same tables, but a visit belongs to its doctor: another neighbor relation."""
OTHER_OWNERS["tables"]["visits"]["unit"] = "doctor"
CODES = [{"code": f"c{place}", "chapter": place % 2} for place in range(3)]


@dataclass(frozen=True)
class History:
    """The versions of a database, and of its neighbor.

    Attributes:
        document: the domain or the schema.
        types: the columns of each table.
        left: the tables of each version.
        right: the tables of the neighbor.
        units: number of units added or removed between the two; a change is one removed and one added unit.
        moved: rows in which the two differ, in all tables of all versions.
    """

    document: Mapping[str, Any]
    types: Mapping[str, Mapping[str, pa.DataType]]
    left: Sequence[Rows]
    right: Sequence[Rows]
    units: int

    @property
    def linked(self) -> bool:
        """Return whether it has several tables."""
        return len(self.types) > 1

    @property
    def moved(self) -> int:
        """The most rows in which a version of one history differs from that of the other."""
        return max(
            sum(
                len([row for row in (*one[name], *other[name]) if (row in one[name]) != (row in other[name])])
                for name in one
            )
            for one, other in zip(self.left, self.right, strict=True)
        )

    def frames(self, side: str, version: int) -> dict[str, pa.Table]:
        """The tables of one side, as Arrow has them."""
        rows: Rows = (self.left if side == "left" else self.right)[version]
        return {
            table: pa.table({name: pa.array([row[name] for row in rows[table]], kind) for name, kind in kinds.items()})
            for table, kinds in self.types.items()
        }


def one_table(chance: random.Random) -> History:
    """A table of rows, or of units with bounds on their rows."""
    attributes = deepcopy(ATTRIBUTES)
    for name, unknown in (("age", "clamp"), ("sex", "category"), ("income", "clamp"), ("since", "category")):
        attributes[name]["unknown"] = chance.choice([unknown, unknown, "drop"])
    bounded: dict[str, Any] = {"id": "person", "rows": chance.choice([1, 2, 3])}
    if chance.random() < 0.3:
        bounded |= {"rows": 3, "per": {"sex": 1}}
    unit = chance.choice(["row", bounded, bounded])
    document = {"sfumato": 1, "unit": unit, "attributes": attributes}

    def rows_of(person: int | None) -> Rows:
        most = 1 if unit == "row" else chance.choice([1, 1, 2, 4, 9])
        extreme = chance.random() < 0.5
        return {"people": [_person(chance, person, extreme=extreme) for _ in range(most)]}

    loose = _person(chance, None)
    moved = {**loose, "town": "Kiel"}  # of a column that no question counts
    return _history(chance, document, {"people": COLUMNS}, rows_of, ({"people": [loose]}, {"people": [moved]}))


def _person(chance: random.Random, person: int | None, *, extreme: bool = False) -> Row:
    return {
        "person": person,
        "age": 9 if extreme else chance.choice([*range(10), -3, 40, None]),
        "sex": chance.choice(["F", "F", "M", "X", None]),
        "income": 50.0 if extreme else chance.choice([chance.random() * 50, -7.0, 99.0, None]),
        "since": chance.choice(DAYS),
        "town": chance.choice(TOWNS),
    }


def whole_unit() -> History:
    """Histories that differ in a person with as many rows as are declared, all at one end of every column."""
    kept: Row = {"person": KEPT, "age": 0, "sex": "M", "income": 0.0, "since": DAYS[0], "town": None}
    target: Row = {"person": TARGET, "age": 9, "sex": "F", "income": 50.0, "since": DAYS[3], "town": None}
    attributes = {name: {**each, "unknown": "drop"} for name, each in ATTRIBUTES.items()}
    document = {"sfumato": 1, "unit": {"id": "person", "rows": 3}, "attributes": attributes}
    one, other = {"people": [kept]}, {"people": [kept, *[target] * 3]}
    return History(document, {"people": COLUMNS}, [one, one], [other, other], units=1)


def linked_tables(chance: random.Random) -> History:
    """People with their visits, the drugs given at them, and public codes."""
    numbers = iter(range(1000, 10_000))

    def rows_of(person: int | None) -> Rows:
        found: Rows = {name: [] for name in LINKED}
        found["people"].append(
            {"person": person, "sex": chance.choice(["F", "M", "X", None]), "region": chance.randrange(4)}
        )
        kind = chance.choice([None, 0, 1, 7])
        for _ in range(chance.choice([0, 1, 2, 3, 12])):
            visit = next(numbers)
            own = chance.randrange(3) if kind is None else kind
            cost = chance.choice([20, 20, 0, chance.randrange(21), None, 55])
            found["visits"].append(
                {
                    "visit": visit,
                    "person": person,
                    "doctor": chance.choice([0, 1, KEPT, visit]),
                    "kind": own,
                    "cost": cost,
                    "code": chance.choice(["c0", "c1", "c2", "zz", None]),
                    "day": chance.choice(DAYS[:-1]),
                }
            )
            for _ in range(chance.choice([0, 0, 1, 5])):
                found["drugs"].append(
                    {"drug": next(numbers), "visit": visit, "dose": chance.choice([10.0, 0.0, 3.0, None])}
                )
        return found

    loose: Rows = {
        "people": [],
        "visits": [{"visit": 1, "person": None, "doctor": 0, "kind": 0, "cost": 1, "code": "c0", "day": None}],
        "drugs": [{"drug": 1, "visit": 2, "dose": 1.0}],  # of no visit
        "codes": CODES,
    }
    more = {**loose, "codes": [*CODES, {"code": "c9", "chapter": 0}]}  # a public table has a row more
    return _history(chance, SCHEMA, LINKED, rows_of, (loose, more))


def many_doctors() -> History:
    """Return histories that differ in a person with twelve visits to twelve doctors who have no other patients."""
    kept: Row = {"person": KEPT, "sex": "F", "region": 0}
    nobody: Rows = {"people": [kept], "visits": [], "drugs": [], "codes": CODES}
    visit: Row = {"person": TARGET, "kind": 0, "cost": 1, "code": "c0", "day": DAYS[0]}
    target: Rows = {
        "people": [{**kept, "person": TARGET}],
        "visits": [{**visit, "visit": number, "doctor": number} for number in range(12)],
        "drugs": [{"drug": number, "visit": number, "dose": 3.0} for number in range(12)],
    }
    one, other = _together(LINKED, [nobody]), _together(LINKED, [nobody, target])
    return History(SCHEMA, LINKED, [one, one], [other, other], units=1)


def _history(
    chance: random.Random,
    document: Mapping[str, Any],
    types: Mapping[str, Any],
    rows_of: Any,
    nobody: tuple[Rows, Rows],
) -> History:
    """Draw two versions of a database and of its neighbor.

    Args:
        chance: draws.
        document: describes the tables.
        types: the columns of each table.
        rows_of: draws the rows of a unit.
        nobody: rows of nobody and public ones, in the first version and as they may be in the second.
    """
    others = [rows_of(person) for person in (*range(OTHERS), KEPT)]
    later = [*others[1:], rows_of(OTHERS)]
    before, after = rows_of(TARGET), rows_of(TARGET)
    absent: Rows = {name: [] for name in types}
    kind = chance.choice(["add", "remove", "change"])
    pairs = {"add": (absent, before), "remove": (before, absent), "change": (before, after)}
    different = pairs[kind]
    same = (before, before) if chance.random() < 0.5 else (absent, absent)
    in_first, in_second = chance.choice([(True, True), (True, False), (False, True)])
    loose, moved = nobody
    second_version = chance.choice([(others, moved), (others, loose), (later, loose)])
    first, second = (different if here else same for here in (in_first, in_second))
    versions = [(others, loose, first), (*second_version, second)]
    left, right = (
        [_together(types, [*parts, of_nobody, target[side]]) for parts, of_nobody, target in versions]
        for side in (0, 1)
    )
    return History(document, types, left, right, units=2 if kind == "change" else 1)


def _together(types: Mapping[str, Any], parts: Sequence[Rows]) -> Rows:
    return {name: [row for part in parts for row in part.get(name, [])] for name in types}
