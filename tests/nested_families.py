"""Small families of four generations: houses, persons, their jobs and the tasks of these, with what is derived of them.

Everything is worked out row by row, as the design says it, and shares no code with the engines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.arrays import ArrayTable


class Row(NamedTuple):
    """A row of a table: its codes, and the rows that belong to it."""

    codes: tuple[int, ...]
    below: tuple[Row, ...] = ()


TWO = {"type": "categorical", "values": ["no", "yes"], "nullable": False, "unknown": "drop"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "town",
    "unit": {"id": "house", "table": "houses"},
    "tables": {
        "houses": {"key": "house", "attributes": {"large": TWO}},
        "persons": {
            "key": "person",
            "unit": "house",
            "rows": 4,
            "attributes": {"age": {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "clamp"}, "work": TWO},
        },
        "jobs": {
            "key": "job",
            "through": {"holder": "persons"},
            "rows": 5,
            "attributes": {"pay": {"type": "integer", "minimum": 0, "maximum": 2, "unknown": "clamp"}},
        },
        "tasks": {"through": {"job": "jobs"}, "rows": 6, "attributes": {"done": TWO}},
    },
}
TOWN = parse_schema(DOCUMENT)
NAMES = ("houses", "persons", "jobs", "tasks")
OWN = {"houses": "house", "persons": "person", "jobs": "job", "tasks": "task"}
ABOVE = {"persons": "house", "jobs": "holder", "tasks": "job"}
UNIT_ROWS = {"persons": 4, "jobs": 5, "tasks": 6}


def nested(persons: int = 3, jobs: int = 2, tasks: int | None = None, *, memory: int = 1, tau: int = 2) -> LinkedTables:
    """Return the town with bounds on the persons of a house, jobs of a person, and tasks of a job."""
    children = [
        ChildTable(table=TOWN["persons"], order="age", falling=True, most=persons, memory=memory),
        ChildTable(table=TOWN["jobs"], order="pay", most=jobs, memory=memory),
    ]
    if tasks is not None:
        children.append(ChildTable(table=TOWN["tasks"], most=tasks))
    return LinkedTables(schema=TOWN, children=tuple(children), tau=tau)


class _Kept(NamedTuple):
    codes: tuple[int, ...]
    known: tuple[int, ...]  # of the row above
    place: int
    number: int  # in its family
    family: list[tuple[int, ...]]  # codes of all of it
    index: int  # in its unit
    below: tuple[Row, ...]
    key: str


def kept_rows(name: str, house: Row, tables: LinkedTables) -> dict[str, list[_Kept]]:
    """The rows of each table that are kept of a house, in order."""
    salt = tables.schema.hash[:16]

    def digest(text: str) -> str:
        return hashlib.md5(f"{salt}{name}|{text}".encode()).hexdigest()  # noqa: S324

    found: dict[str, list[_Kept]] = {}
    above = [_Kept(house.codes, (), 1, 1, [house.codes], 1, house.below, name)]
    for child in tables.children:
        table, rows = child.table.name, []
        for parent in above:
            keyed = [(row, f"{parent.key}.{at}") for at, row in enumerate(parent.below)]

            def order(each: tuple[Row, str], child: ChildTable = child) -> tuple[Any, ...]:
                (codes, _), key = each
                by = () if child.order is None else (-codes[0] if child.falling else codes[0],)
                return (*by, digest(" ".join(map(str, codes))), digest(key))

            family = sorted(keyed, key=order)[: child.most]
            left = UNIT_ROWS[table] - len(rows)
            family = family if table == "persons" else family[: max(left, 0)]
            codes = [row.codes for row, _ in family]
            for at, (row, key) in enumerate(family):
                place = (parent.known + parent.codes, at + 1, len(family), codes, len(rows) + 1, row.below, key)
                rows.append(_Kept(row.codes, *place))
        found[table] = above = rows
    return found


def derived_rows(houses: Sequence[Row], tables: LinkedTables) -> dict[str, list[tuple[int, ...]]]:
    """Rows of the head and of everything that is derived, codes by codes."""
    found: dict[str, list[tuple[int, ...]]] = {"head": [], **{table.name: [] for table in tables.derived}}
    sizes = {child.table.name: [each.size for each in child.table.attributes] for child in tables.children}
    for place, house in enumerate(houses):
        name = f"h{place}"
        kept = kept_rows(name, house, tables)
        persons = kept["persons"]
        none = tuple(sizes["persons"])
        found["head"].append((*house.codes, len(persons), *(persons[0].codes if persons else none)))
        for child in tables.children:
            table, rows = child.table.name, kept[child.table.name]
            if table != "persons":
                higher = kept["persons" if table == "jobs" else "jobs"]
                for row in higher:
                    own = [each for each in rows if each.key.rpartition(".")[0] == row.key]
                    number = len(higher) - 1
                    if table == "tasks":
                        number = class_of(tables.first_child(child).rows, len(higher))
                    first = own[0].codes if own else tuple(sizes[table])
                    known = row.known + row.codes
                    found[f"{table}.head"].append((*known, number, min(row.place, 5) - 1, len(own), *first))
            further = [row for row in rows if row.place > 1]
            for row in further:
                family, at = row.family, row.place - 1
                nothing = tuple(sizes[table])
                before = (family[at - 2] if at > 1 else nothing) if child.memory > 1 else ()
                own = (row.number - 2, min(row.place, 5) - 2, int(row.place == row.number), *family[at - 1])
                weigh = () if table == "persons" else (class_of(tables.next_child(child).rows, len(further)),)
                found[f"{table}.tail"].append((*row.known, *own, *before, *row.codes, *weigh))
    return found


def class_of(rows: Sequence[int], count: int) -> int:
    """The first of some numbers of rows that is no less than ``count``."""
    return next(code for code, most in enumerate(rows) if most >= count)


class NestedFamilies(ArrayTable):
    """The head of houses with everything that is derived of them: what an engine makes of them."""

    def __init__(self, houses: Sequence[Row], tables: LinkedTables) -> None:
        rows = derived_rows(houses, tables)
        super().__init__(
            tables.unit_domain, np.array(rows["head"], dtype=np.int64).reshape(-1, len(tables.unit_domain))
        )
        self._derived = {
            table.name: ArrayTable(
                table.counted,
                np.array(rows[table.name], dtype=np.int64).reshape(-1, len(table.domain)),
            )
            for table in tables.derived
        }

    def derived(self, name: str) -> ArrayTable:
        """Return one derived table."""
        return self._derived[name]


def frames(houses: Sequence[Row], random: np.random.Generator | None = None) -> dict[str, pa.Table]:
    """The tables as they lie somewhere, in random order."""
    order = random or np.random.default_rng(0)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}

    def put(level: int, row: Row, key: str, above: str) -> None:
        name = NAMES[level]
        values = [("no", "yes")[row.codes[0]]] if name in {"houses", "tasks"} else [row.codes[0]]
        values += [("no", "yes")[row.codes[1]]] if name == "persons" else []
        named = dict(zip([each.name for each in TOWN[name].attributes], values, strict=True))
        owner = {} if level == 0 else {ABOVE[name]: above}
        rows[name].append({OWN[name]: key, **owner, **named})
        for at, each in enumerate(row.below):
            put(level + 1, each, f"{key}.{at}", key)

    for place, house in enumerate(houses):
        put(0, house, f"h{place}", "")
    found = {}
    for name in NAMES:
        text = {OWN[name], ABOVE.get(name, ""), "large", "work", "done"}
        attributes = [each.name for each in TOWN[name].attributes]
        columns = list(dict.fromkeys(each for each in (OWN[name], ABOVE.get(name), *attributes) if each))
        schema = pa.schema([(column, pa.string() if column in text else pa.int64()) for column in columns])
        found[name] = pa.Table.from_pylist([rows[name][at] for at in order.permutation(len(rows[name]))], schema)
    return found


def some_houses(count: int, seed: int, *, most: int = 5) -> list[Row]:
    """Houses drawn at random, some of them empty and some too large, with equal rows among them."""
    random = np.random.default_rng(seed)

    def many(level: int) -> tuple[Row, ...]:
        return tuple(one(level) for _ in range(random.integers(0, most - level + 1)))

    def one(level: int) -> Row:
        if level == 1:
            return Row((int(random.integers(4)), int(random.integers(2))), many(2))
        return Row((int(random.integers(3)),), many(3)) if level == 2 else Row((int(random.integers(2)),))

    return [Row((int(random.integers(2)),), many(1)) for _ in range(count)]


def every_house(persons: int, jobs: int) -> Iterator[Row]:
    """Yield all houses of up to ``persons`` persons of two kinds, each with up to ``jobs`` jobs of two kinds."""
    held = [tuple(Row((pay,)) for pay in pays) for size in range(jobs + 1) for pays in product((0, 2), repeat=size)]
    each = [Row(codes, below) for codes in ((0, 0), (3, 1)) for below in held]
    for size in range(persons + 1):
        for inside in product(each, repeat=size):
            yield Row((0,), inside)
