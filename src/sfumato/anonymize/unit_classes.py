"""Classes that count units: the different units of each class, and the units with each sensitive value.

A unit with several rows in one class counts once there.  A unit with rows in several classes counts in each of them.
So the counts of merged classes do not add up, because a unit of both counts once.  Units in a single class are stored
as numbers that add up.  Other units are listed individually, so that a merge can find duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import KeyClasses
from sfumato.domain.hierarchy.levels import Integers, Reals


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """The different units of each class.

    ``alone`` counts the units with rows in no other class, shape ``(classes,)``.  For the other units, ``units[i]`` has
    rows in class ``classes[i]``; pairs are distinct and sorted by class.
    """

    alone: Integers
    classes: Integers
    units: Integers

    @classmethod
    def from_pairs(cls, classes: Integers, units: Integers, size: int) -> UnitCounts:
        """Count the units of ``size`` classes: ``units[i]`` has rows in ``classes[i]``, and pairs may repeat."""
        return cls._count_unshared(np.zeros(size, dtype=np.int64), *_distinct(classes, units))

    @classmethod
    def _count_unshared(cls, alone: Integers, classes: Integers, units: Integers) -> UnitCounts:
        """Move the units that are in one class only from the pairs to ``alone``."""
        unshared = _once(units)
        alone = alone + np.bincount(classes[unshared], minlength=len(alone))
        return cls(alone, classes[~unshared], units[~unshared])

    @property
    def counts(self) -> Integers:
        """The different units of each class, shape ``(classes,)``."""
        counts: Integers = self.alone + np.bincount(self.classes, minlength=len(self.alone))
        return counts

    @property
    def spread(self) -> bool:
        """True if a unit has rows in several classes."""
        return bool(len(self.units))

    def part(self, which: Integers) -> UnitCounts:
        """Return some of the classes."""
        places, numbers = _runs(self.classes, which)
        return UnitCounts(self.alone[which], numbers, self.units[places])

    def merge(self, grouping: KeyClasses) -> UnitCounts:
        """Return the merged classes, one per group."""
        pairs = _distinct(grouping.classes[self.classes], self.units)
        return UnitCounts._count_unshared(grouping.sums(self.alone), *pairs)


@dataclass(frozen=True, eq=False)
class UnitValues:
    """The different units of each class that have each value of a sensitive attribute.

    ``single`` counts the units with one value and rows in no other class: shape ``(classes, cells)``.  For the other
    units, ``units[i]`` has the value ``cells[i]`` in class ``classes[i]``; entries are distinct and sorted.
    """

    single: Integers
    classes: Integers
    units: Integers
    cells: Integers

    @classmethod
    def from_entries(cls, classes: Integers, units: Integers, cells: Integers, shape: tuple[int, int]) -> UnitValues:
        """Count the values of ``shape[0]`` classes: ``units[i]`` has ``cells[i]`` in ``classes[i]``."""
        return cls._count_unshared(np.zeros(shape, dtype=np.int64), *_distinct(classes, units, cells))

    @classmethod
    def _count_unshared(cls, single: Integers, classes: Integers, units: Integers, cells: Integers) -> UnitValues:
        """Move the units with one value in one class only from the entries to ``single``."""
        unshared = _once(units)
        single = single.copy()
        np.add.at(single, (classes[unshared], cells[unshared]), 1)
        return cls(single, classes[~unshared], units[~unshared], cells[~unshared])

    @property
    def spread(self) -> bool:
        """True if a unit has rows in several classes, or several values."""
        return bool(len(self.units))

    def part(self, which: Integers) -> UnitValues:
        """Return some of the classes."""
        places, numbers = _runs(self.classes, which)
        return UnitValues(self.single[which], numbers, self.units[places], self.cells[places])

    def merge(self, grouping: KeyClasses) -> UnitValues:
        """Return the merged classes, one per group."""
        listed = _distinct(grouping.classes[self.classes], self.units, self.cells)
        return UnitValues._count_unshared(grouping.sums(self.single), *listed)

    def among(self, most: int) -> UnitValues:
        """Return the counts of the first ``most`` cells; units without such a value are excluded."""
        declared = self.cells < most
        return UnitValues(self.single[:, :most], self.classes[declared], self.units[declared], self.cells[declared])

    @property
    def having(self) -> Integers:
        """The units that have each value; a unit counts for each of its values: shape ``(classes, cells)``."""
        result = self.single.copy()
        np.add.at(result, (self.classes, self.cells), 1)
        return result

    @property
    def holders(self) -> Integers:
        """The units that have any value, shape ``(classes,)``."""
        first = self._first
        return np.asarray(self.single.sum(axis=1) + np.bincount(self.classes[first], minlength=len(self.single)))

    @property
    def divided(self) -> Reals:
        """The units by value, each divided equally over its values: shape ``(classes, cells)``."""
        first = self._first
        values = np.diff(np.append(np.flatnonzero(first), len(first)))  # number of values of each unit in each class
        result = self.single.astype(np.float64)
        np.add.at(result, (self.classes, self.cells), 1 / np.repeat(values, values))
        return result

    @property
    def dealt(self) -> Integers:
        """The units by value, each unit under one of its values: shape ``(classes, cells)``.

        The value that most units of the class have takes all of these units.  The value that most remaining units have
        takes those, and so on.  In a tie, the first value goes first.
        """
        result, left = self.single.copy(), self
        while len(left.units):
            used, numbers = np.unique(left.classes, return_inverse=True)
            frequent = replace(left, single=left.single[used], classes=numbers).having
            taken = frequent.argmax(axis=1)
            result[used, taken] += frequent[np.arange(len(used)), taken] - left.single[used, taken]
            left = left._without(used, taken)
        return result

    def _without(self, classes: Integers, cells: Integers) -> UnitValues:
        """Return the units that do not have the given values, one value for each of the given classes."""
        single = self.single.copy()
        single[classes, cells] = 0
        taken = np.full(len(single), -1)
        taken[classes] = cells
        unit = np.cumsum(self._first) - 1  # unit number of each entry
        gone = np.zeros(int(unit[-1]) + 1, dtype=bool)
        gone[unit[taken[self.classes] == self.cells]] = True
        remaining = ~gone[unit]
        return UnitValues(single, self.classes[remaining], self.units[remaining], self.cells[remaining])

    @property
    def _first(self) -> NDArray[np.bool_]:
        """True if an entry is the first of its unit in its class."""
        first = np.ones(len(self.units), dtype=bool)
        first[1:] = (self.classes[1:] != self.classes[:-1]) | (self.units[1:] != self.units[:-1])
        return first


@dataclass(frozen=True, eq=False)
class UnitClasses:
    """Classes with the units that criteria count.

    ``people`` has the units of the population in each class.  ``overall`` has the values of all rows that count, as one
    class.
    """

    sizes: UnitCounts
    people: UnitCounts | None = None
    values: Mapping[str, UnitValues] = field(default_factory=dict)
    overall: Mapping[str, UnitValues] = field(default_factory=dict)

    def part(self, which: Integers) -> UnitClasses:
        """Return some of the classes."""
        return replace(
            self,
            sizes=self.sizes.part(which),
            people=None if self.people is None else self.people.part(which),
            values={name: values.part(which) for name, values in self.values.items()},
        )

    def merge(self, grouping: KeyClasses) -> UnitClasses:
        """Return the merged classes, one per group."""
        return replace(
            self,
            sizes=self.sizes.merge(grouping),
            people=None if self.people is None else self.people.merge(grouping),
            values={name: values.merge(grouping) for name, values in self.values.items()},
        )

    def spread(self, sensitive: str | None, *, population: bool) -> bool:
        """Return whether counts of merged classes may not add up for a criterion."""
        people = population and self.people is not None and self.people.spread
        return people or (self.sizes.spread if sensitive is None else self.values[sensitive].spread)


def _distinct(*columns: Integers) -> tuple[Integers, ...]:
    """Return the distinct rows of the columns, in lexicographic order."""
    if not len(columns[0]):
        return columns
    sizes = [int(column.max()) + 1 for column in columns]
    keys = np.unique(np.ravel_multi_index(columns, sizes)) if np.prod(np.array(sizes, dtype=object)) < 1 << 62 else None
    if keys is None:
        return tuple(np.unique(np.stack(columns, axis=1), axis=0).T)
    return tuple(column.astype(np.int64) for column in np.unravel_index(keys, sizes))


def _once(numbers: Integers) -> NDArray[np.bool_]:
    """Return whether each number occurs once."""
    return np.asarray(np.bincount(numbers)[numbers] == 1) if len(numbers) else np.zeros(0, dtype=bool)


def _runs(classes: Integers, which: Integers) -> tuple[Integers, Integers]:
    """Return the positions of the entries of some classes, and the number of each entry in ``which``."""
    start = np.searchsorted(classes, which)
    lengths = np.searchsorted(classes, which, side="right") - start
    before = np.cumsum(lengths) - lengths
    numbers = np.repeat(np.arange(len(which)), lengths)
    return np.arange(len(numbers)) + (start - before)[numbers], numbers
