"""Small families: a parent and its children, and their heads and tails row by row, as the design says them."""

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


class Family(NamedTuple):
    """A unit: the code of its parent, and the age and work of each child."""

    parent: int
    children: tuple[tuple[int, int], ...]


DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "village",
    "unit": {"id": "house", "table": "houses"},
    "tables": {
        "houses": {
            "key": "house",
            "attributes": {"size": {"type": "categorical", "values": ["S", "L"], "nullable": False, "unknown": "drop"}},
        },
        "persons": {
            "unit": "house",
            "rows": 6,
            "attributes": {
                "age": {"type": "integer", "minimum": 0, "maximum": 3, "nullable": True, "unknown": "clamp"},
                "work": {"type": "categorical", "values": ["no", "yes"], "nullable": False, "unknown": "category"},
            },
        },
    },
}
VILLAGE = parse_schema(DOCUMENT)
PERSONS = VILLAGE["persons"]
AGES, WORKS = 5, 3  # codes, including missing and other values


def related(most: int = 3, *, memory: int = 1, order: str | None = "age", falling: bool = True, tau: int = 2):
    """Return the village with at most ``most`` persons per house."""
    child = ChildTable(table=PERSONS, order=order, falling=falling, most=most, memory=memory)
    return LinkedTables(schema=VILLAGE, children=(child,), tau=tau)


def sorted_children(name: str, family: Family, tables: LinkedTables) -> list[tuple[int, int]]:
    """The children of a house in order; of one age by the digest of house and codes."""
    (child,) = tables.children
    salt = tables.schema.hash[:16]

    def key(codes: tuple[int, int]) -> tuple[Any, ...]:
        draw = hashlib.md5(f"{salt}{name}|{codes[0]} {codes[1]}".encode()).hexdigest()  # noqa: S324
        missing = codes[0] >= AGES - 1
        by = () if child.order is None else (missing, -codes[0] if child.falling else codes[0])
        return (*by, draw)

    return sorted(family.children, key=key)[: child.most]


def derived_rows(families: Sequence[Family], tables: LinkedTables) -> tuple[list[Any], list[Any]]:
    """Rows of the head and of the tail, codes by codes."""
    (child,) = tables.children
    head, tail = [], []
    for place, family in enumerate(families):
        kept = sorted_children(f"h{place}", family, tables)
        number = len(kept)
        head.append((family.parent, number, *(kept[0] if kept else (AGES, WORKS))))
        for at in range(1, number):
            position, last = min(at + 1, 5) - 2, int(at + 1 == number)
            before = (kept[at - 2] if at > 1 else (AGES, WORKS)) if child.memory > 1 else ()
            tail.append((family.parent, number - 2, position, last, *kept[at - 1], *before, *kept[at]))
    return head, tail


class Families(ArrayTable):
    """The head of families, with their tail: what an engine makes of them."""

    def __init__(self, families: Sequence[Family], tables: LinkedTables) -> None:
        head, tail = derived_rows(families, tables)
        super().__init__(tables.unit_domain, np.array(head, dtype=np.int64).reshape(-1, len(tables.unit_domain)))
        self._tails = {
            table.name: ArrayTable(
                table.counted, np.array(tail, dtype=np.int64).reshape(-1, len(table.counted.attributes))
            )
            for table in tables.derived
        }

    def derived(self, name: str) -> ArrayTable:
        """The tail."""
        return self._tails[name]


def every_family(most: int) -> Iterator[Family]:
    """Yield all houses of up to ``most`` persons, each with one of two ages and one of two works."""
    codes = [(0, 0), (2, 0), (2, 1)]
    for parent in (0, 1):
        for size in range(most + 1):
            for children in product(codes, repeat=size):
                yield Family(parent, children)


def frames(families: Sequence[Family], random: np.random.Generator | None = None) -> dict[str, pa.Table]:
    """The tables as they lie somewhere, in random order."""
    order = random or np.random.default_rng(0)
    houses = [{"house": f"h{place}", "size": "SL"[family.parent]} for place, family in enumerate(families)]
    persons = [
        {
            "house": f"h{place}",
            "age": None if age == AGES - 1 else age,
            "work": ("no", "yes", "other")[work],
        }
        for place, family in enumerate(families)
        for age, work in family.children
    ]
    schemas = {
        "houses": pa.schema([("house", pa.string()), ("size", pa.string())]),
        "persons": pa.schema([("house", pa.string()), ("age", pa.int64()), ("work", pa.string())]),
    }
    return {
        name: pa.Table.from_pylist([rows[at] for at in order.permutation(len(rows))], schemas[name])
        for name, rows in (("houses", houses), ("persons", persons))
    }


def some_families(count: int, seed: int, *, most: int = 8) -> list[Family]:
    """Houses drawn at random, some of them empty and some too large."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, most + 1, count)
    return [
        Family(
            int(random.integers(2)),
            tuple((int(random.integers(AGES)), int(random.integers(WORKS))) for _ in range(size)),
        )
        for size in sizes
    ]
