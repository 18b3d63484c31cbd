"""Equivalence classes of a recoded table, and how they merge when cells grow coarser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.packing import Grouping

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes with all that a criterion may ask about them.

    ``members`` names one tuple of the microdata in each class; ``counts``, ``population`` and the
    ``sensitive`` histograms, shape ``(classes, values)``, are sums over the class; ``overall`` has the
    histograms of the whole table, shape ``(values,)``, which closeness compares to.
    """

    members: Integers
    counts: Integers
    population: Integers | None
    sensitive: Mapping[str, Integers]
    overall: Mapping[str, Integers]

    def __len__(self) -> int:
        return len(self.counts)

    def or_empty(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``mask``, or true for a class without rows: nothing of it is published."""
        result: NDArray[np.bool_] = mask | (self.counts == 0)
        return result

    def merge(self, grouping: Grouping) -> Classes:
        """The classes that these become, one for each group of them."""
        return Classes(
            members=self.members[grouping.members],
            counts=grouping.sums(self.counts),
            population=None if self.population is None else grouping.sums(self.population),
            sensitive={name: grouping.sums(histogram) for name, histogram in self.sensitive.items()},
            overall=self.overall,
        )


def finest(data: Microdata) -> Classes:
    """Each tuple its own class: the table as it is."""
    return Classes(
        members=np.arange(len(data.counts)),
        counts=data.counts,
        population=data.population,
        sensitive=data.sensitive,
        overall={name: histogram.sum(axis=0) for name, histogram in data.sensitive.items()},
    )
