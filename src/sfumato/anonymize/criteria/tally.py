"""Counts of one class in exact integers, for the verification by definition. It shares no code with the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

ValueSets = Mapping[frozenset[int], int]
"""The number of units per set of several values."""


@dataclass(frozen=True)
class ValueTally:
    """The number of rows or units with each value of a sensitive attribute.

    ``cells`` counts rows or units with one value, and ``several`` counts units with more.
    """

    cells: Sequence[int]
    several: ValueSets = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of rows or units."""
        return sum(self.cells) + sum(self.several.values())

    @property
    def having(self) -> list[int]:
        """The numbers of rows or units with each value."""
        sets = self.several.items()
        return [alone + sum(many for held, many in sets if cell in held) for cell, alone in enumerate(self.cells)]

    @property
    def divided(self) -> list[Fraction | int]:
        """The numbers of units with each value, with each unit divided equally over its values."""
        sets = self.several.items()
        return [
            alone + sum(Fraction(many, len(held)) for held, many in sets if cell in held)
            for cell, alone in enumerate(self.cells)
        ]

    def among(self, most: int) -> ValueTally:
        """Return the counts of the first ``most`` cells alone."""
        cells, several = list(self.cells[:most]), dict[frozenset[int], int]()
        for held, many in self.several.items():
            left = frozenset(cell for cell in held if cell < most)
            if len(left) == 1:
                cells[min(left)] += many
            elif left:
                several[left] = several.get(left, 0) + many
        return ValueTally(cells, several)

    @property
    def dealt(self) -> list[int]:
        """The numbers of units under each value, each unit under one: the most frequent value takes all of its units
        first.
        """
        result, rest = list(self.cells), self
        while rest.several:
            frequent = rest.having
            taken = frequent.index(max(frequent))
            result[taken] += frequent[taken] - rest.cells[taken]
            cells = [0 if cell == taken else alone for cell, alone in enumerate(rest.cells)]
            rest = ValueTally(cells, {held: many for held, many in rest.several.items() if taken not in held})
        return result


@dataclass(frozen=True)
class ClassTally:
    """The counts of one class: its rows, its units, its people in the population, and its sensitive values.

    ``table`` has the same values over all rows that count; the first ``declared[name]`` cells are declared. If rows are
    counted, ``size`` is the number of rows.
    """

    rows: int
    size: int
    people: int | None
    values: Mapping[str, ValueTally]
    table: Mapping[str, ValueTally]
    declared: Mapping[str, int]
