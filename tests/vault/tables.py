"""Tiny neighboring tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.exact import Exact

TINY = Domain(
    (
        Integer(name="a", minimum=0, maximum=1, unknown=Unknown.CLAMP),
        Integer(name="b", minimum=-2, maximum=1, edges=(-2, 0), unknown=Unknown.CLAMP),
    )
)
ROWS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def table(rows: list[tuple[int, int]], unit: Unit | None = None) -> ArrayTable:
    """Rows of codes; ``b`` takes the extreme of its bin, where a sum moves most."""
    domain = TINY if unit is None else Domain(TINY.attributes, unit=unit)
    codes = np.array(rows, dtype=np.int64).reshape(-1, 2)
    values = {"a": codes[:, 0].astype(float), "b": np.where(codes[:, 1] == 0, -2.0, 1.0)}
    return ArrayTable(domain, codes, values=values)


def neighbours(most_rows: int, unit_rows: int = 1) -> list[tuple[ArrayTable, ArrayTable]]:
    """Return all pairs of tables of up to ``most_rows`` rows, the second with one more unit of 1 .. ``unit_rows``
    rows.
    """
    unit = Unit("person", rows=unit_rows) if unit_rows > 1 else None
    return [
        (table(list(rows), unit), table([*rows, *extra], unit))
        for size in range(most_rows + 1)
        for rows in combinations_with_replacement(ROWS, size)
        for more in range(1, unit_rows + 1)
        for extra in combinations_with_replacement(ROWS, more)
    ]


class People(ArrayTable):
    """Rows with the id of a person each, of whom at most the unit's rows count: the first ones."""

    def __init__(self, persons: Sequence[Sequence[tuple[int, int]]], bound: int) -> None:
        domain = Domain(TINY.attributes, unit=Unit("person", rows=bound))
        kept = [(person, row) for person, rows in enumerate(persons) for row in rows[:bound]]
        codes = np.array([row for _, row in kept], dtype=np.int64).reshape(-1, 2)
        values = {"a": codes[:, 0].astype(float), "b": np.where(codes[:, 1] == 0, -2.0, 1.0)}
        super().__init__(domain, codes, values=values)
        self._persons = [person for person, _ in kept]
        self._beyond = [len(rows) - len(rows[:bound]) for rows in persons]
        self._rows = persons

    def units(self, by, where=None):
        """Distinct persons, one by one."""
        cells, kept = self._cells(by), self._arrays(where)
        seen = {(cell, person) for cell, person, counts in zip(cells, self._persons, kept, strict=True) if counts}
        found = Counter(cell for cell, _ in seen)
        return Exact(np.array([found[cell] for cell in range(self._size(by))], dtype=np.int64))

    def dropped(self, most, where=None):
        """Rows beyond the bound; without a filter."""
        assert where is None
        return Exact(np.array([sum(min(most, beyond) for beyond in self._beyond)], dtype=np.int64))

    def unit_sizes(self, starts, of):
        """Persons by their rows, or by the values of one attribute in them, one by one."""
        cells = [[row[:1] if of.by == ("a",) else () for row in rows] for rows in self._rows]
        sizes = [len({*own}) if of.cells else max(Counter(own).values()) for own in cells]
        bins = [sum(start <= size for start in starts) - 1 for size in sizes]
        return Exact(np.bincount(bins, minlength=len(starts)).astype(np.int64))


def people(most_persons: int, bound: int, most_rows: int) -> list[tuple[People, People]]:
    """Return all pairs of tables of persons with one row each, the second with one more person of up to ``most_rows``
    rows.
    """
    return [
        (People([[row] for row in rows], bound), People([*([row] for row in rows), list(extra)], bound))
        for size in range(most_persons + 1)
        for rows in combinations_with_replacement(ROWS, size)
        for more in range(1, most_rows + 1)
        for extra in combinations_with_replacement(ROWS, more)
    ]
