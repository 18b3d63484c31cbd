"""Equivalence classes of a recoded table, and how they merge when cells grow coarser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.packing import Grouping

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes with all that a criterion may ask about them.

    ``members`` names one tuple of the microdata in each class; ``counts``, ``population`` and the
    ``sensitive`` histograms, shape ``(classes, cells)``, are sums over the class; ``overall`` has the histograms,
    shape ``(cells,)``, that closeness compares to: of all rows that count, suppressed ones included.  The first
    ``declared[name]`` cells of a histogram are values, those after them stand for missing and unknown ones; without
    an entry all cells are values.
    """

    members: Integers
    counts: Integers
    population: Integers | None
    sensitive: Mapping[str, Integers]
    overall: Mapping[str, Integers]
    declared: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.counts)

    def or_empty(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``mask``, or true for a class without rows: nothing of it is published."""
        result: NDArray[np.bool_] = mask | (self.counts == 0)
        return result

    def values(self, name: str) -> Integers:
        """The histograms of a sensitive attribute over its declared values alone, shape ``(classes, values)``."""
        histogram = self.sensitive[name]
        return histogram[:, : self.declared.get(name, histogram.shape[1])]

    def part(self, which: Integers) -> Classes:
        """Some of the classes."""
        return replace(
            self,
            members=self.members[which],
            counts=self.counts[which],
            population=None if self.population is None else self.population[which],
            sensitive={name: histogram[which] for name, histogram in self.sensitive.items()},
        )

    def merge(self, grouping: Grouping) -> Classes:
        """The classes that these become, one for each group of them."""
        return replace(
            self,
            members=self.members[grouping.members],
            counts=grouping.sums(self.counts),
            population=None if self.population is None else grouping.sums(self.population),
            sensitive={name: grouping.sums(histogram) for name, histogram in self.sensitive.items()},
        )


def finest(data: Microdata) -> Classes:
    """Each tuple its own class: the table as it is."""
    return Classes(
        members=np.arange(len(data.counts)),
        counts=data.counts,
        population=data.population,
        sensitive=data.sensitive,
        overall=data.overall,
        declared=data.declared,
    )
