"""Classes of equal quasi-identifiers with the counts that criteria need, for the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import KeyClasses, Microdata, TupleUnits
from sfumato.anonymize.unit_classes import UnitClasses, UnitCounts, UnitValues
from sfumato.domain.hierarchy.levels import Integers, Reals


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes with the counts that criteria need.

    A criterion reads :attr:`sizes`, :attr:`people` and the values of sensitive attributes.  These count rows, or units
    if ``units`` is given.  Losses and suppressed shares always count rows, ``counts``.

    ``members`` has one tuple of the microdata per class.  ``counts``, ``population`` and the ``sensitive`` histograms,
    shape ``(classes, cells)``, are sums over the class.  ``overall`` has the histograms, shape ``(cells,)``, that
    closeness compares with, including suppressed rows.  The first ``declared[name]`` cells of a histogram are values;
    later cells are missing and unknown values.  Default: all cells are values.
    """

    members: Integers
    counts: Integers
    population: Integers | None
    sensitive: Mapping[str, Integers]
    overall: Mapping[str, Integers]
    declared: Mapping[str, int] = field(default_factory=dict)
    units: UnitClasses | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def sizes(self) -> Integers:
        """The number of rows, or of different units, of each class."""
        return self.counts if self.units is None else self.units.sizes.counts

    @property
    def people(self) -> Integers | None:
        """The number of people, or of different units, of each class in the population."""
        units = self.units
        return self.population if units is None or units.people is None else units.people.counts

    def or_empty(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return ``mask`` with True for classes without rows, because none of their rows is published."""
        result: NDArray[np.bool_] = mask | (self.counts == 0)
        return result

    def having(self, name: str) -> Integers:
        """Return how many rows or units of each class have each sensitive value, shape ``(classes, cells)``.

        A unit with several values counts for each.
        """
        return self.sensitive[name] if self.units is None else self.units.values[name].having

    def declaring(self, name: str) -> Integers:
        """Return how many rows or units of each class have a declared sensitive value."""
        most = self.values(name)
        if self.units is None:
            return np.asarray(self.sensitive[name][:, :most].sum(axis=1))
        return self.units.values[name].among(most).holders

    def dealt(self, name: str) -> tuple[Integers, Integers]:
        """Return the counts per value of each class, over all cells and over the declared values alone.

        A unit with several values counts for one of them: see :attr:`UnitValues.dealt`.
        """
        most = self.values(name)
        if self.units is None:
            return self.sensitive[name], self.sensitive[name][:, :most]
        values = self.units.values[name]
        return values.dealt, values.among(most).dealt

    def shares(self, name: str) -> tuple[Reals, Reals]:
        """Return the share of each class that has each value, ``(classes, cells)``, and of the table, ``(cells,)``.

        The shares of a class sum to more than one if units have several values.
        """
        if self.units is None:
            return _shares(self.sensitive[name]), _shares(self.overall[name][None])[0]
        values, overall = self.units.values[name], self.units.overall[name]
        table_shares = overall.having / np.maximum(overall.holders[:, None], 1)
        return values.having / np.maximum(values.holders[:, None], 1), table_shares[0]

    def distributions(self, name: str) -> tuple[Reals, Reals]:
        """Return ``shares`` with each unit divided equally over its values, so that they sum to one."""
        if self.units is None:
            return self.shares(name)
        return _shares(self.units.values[name].divided), _shares(self.units.overall[name].divided)[0]

    def everybody(self, name: str) -> int:
        """Return how many rows, or different units, of the whole table count for a sensitive attribute."""
        if self.units is None:
            return int(self.overall[name].sum())
        return int(self.units.overall[name].holders.sum())

    def values(self, name: str) -> int:
        """Return the number of declared values of a sensitive attribute, which are its first cells."""
        return self.declared.get(name, self.sensitive[name].shape[1])

    def part(self, which: Integers) -> Classes:
        """Return some of the classes."""
        return replace(
            self,
            members=self.members[which],
            counts=self.counts[which],
            population=None if self.population is None else self.population[which],
            sensitive={name: histogram[which] for name, histogram in self.sensitive.items()},
            units=None if self.units is None else self.units.part(which),
        )

    def merge(self, grouping: KeyClasses) -> Classes:
        """Return the merged classes, one per group."""
        return replace(
            self,
            members=self.members[grouping.members],
            counts=grouping.sums(self.counts),
            population=None if self.population is None else grouping.sums(self.population),
            sensitive={name: grouping.sums(histogram) for name, histogram in self.sensitive.items()},
            units=None if self.units is None else self.units.merge(grouping),
        )


def finest(data: Microdata) -> Classes:
    """Return the unchanged table, with each tuple as a class."""
    return Classes(
        members=np.arange(len(data.counts)),
        counts=data.counts,
        population=data.population,
        sensitive=data.sensitive,
        overall=data.overall,
        declared=data.declared,
        units=None if data.units is None else _finest_units(data, data.units),
    )


def _finest_units(data: Microdata, held: TupleUnits) -> UnitClasses:
    tuples, (everybody, codes) = len(data.counts), held.every
    cells = {name: histogram.shape[1] for name, histogram in data.sensitive.items()}
    one_class = np.zeros(len(everybody), dtype=np.int64)
    return UnitClasses(
        sizes=UnitCounts.from_pairs(held.tuples, held.units, tuples),
        people=None if held.people is None else UnitCounts.from_pairs(*held.people, tuples),
        values={
            name: UnitValues.from_entries(held.tuples, held.units, held.cells[name], (tuples, size))
            for name, size in cells.items()
        },
        overall={
            name: UnitValues.from_entries(one_class, everybody, codes[name], (1, size)) for name, size in cells.items()
        },
    )


def _shares(histogram: Integers | Reals) -> Reals:
    """Return the shares of the cells of each row of a histogram; zeros if the row is empty."""
    totals = histogram.sum(axis=1, keepdims=True)
    return np.asarray(histogram / np.where(totals > 0, totals, 1))
