"""The textbook chapter's programs for synthetic data, as printed.  They are not private: see ``FLAWS``.

The source is Near and Abuah, Programming Differential Privacy, chapter Synthetic Data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FLAWS = (
    "noise is floating-point Laplace, whose low bits tell answers apart",
    "the histogram and the number of rows cost epsilon each, together two, and no ledger adds them up",
    "the two-way table has the ages and occupations that occur in the data, which is charged to no epsilon",
)


# percent errors in the first and the second edition of the chapter, each from one run on its copy of the table
PUBLISHED: Mapping[tuple[str, str], tuple[float, float]] = {
    ("21 <= age < 33", "printed histogram"): (0.0836, 0.016452),
    ("30 <= age < 31", "printed histogram"): (0.0159, 0.1710780390938941),
    ("30 <= age < 31", "printed direct"): (0.0732, 0.05817208752574446),
    ("30 <= age < 71", "printed histogram"): (0.0610, 0.024854856598939393),
    ("30 <= age < 71", "printed direct"): (0.00295, 0.0009579983848163375),
    ("mean age", "printed, 10 000 rows"): (0.965, 0.57685958093368),
    ("20 <= age < 65", "printed, 10 000 rows"): (69.5, 69.2674512987013),
    ("20 <= age < 65", "printed, charged rows"): (0.471, 0.06764069264069264),
    ("20 <= age < 30", "printed two-way"): (2.43, 0.2110752421157189),
}
PUBLISHED_PROBABILITY = 0.000776459  # of (17, Adm-clerical), in the second edition


@dataclass(frozen=True, eq=False)
class Chapter:
    """The chapter's programs over true counts of age by occupation, shape ``(ages, occupations)``."""

    counts: Integers
    random: np.random.Generator
    epsilon: float

    def histogram(self) -> Floats:
        """Return a noisy count of every age: shape ``(ages,)``."""
        return self._noisy(self.counts.sum(axis=1))

    def direct(self, answer: int) -> float:
        """Return one answer with its own noise."""
        return float(answer + self.random.laplace(0, 1 / self.epsilon))

    def charged_rows(self) -> int:
        """Return the number of rows, measured at another epsilon."""
        return int(self.counts.sum() + self.random.laplace(0, 1 / self.epsilon))

    def sample(self, noisy: Floats, rows: int) -> Integers:
        """Return counts of a sample drawn row by row from clipped and normalized noisy counts, in their shape."""
        return self.random.multinomial(max(rows, 0), normalised(noisy).ravel()).reshape(noisy.shape)

    def two_way(self) -> Floats:
        """Return noisy counts of age by occupation over the values that occur; the others stay zero."""
        occurs = self.counts.any(axis=1, keepdims=True) & self.counts.any(axis=0, keepdims=True)
        return np.where(occurs, self._noisy(self.counts), 0.0)

    def one_way_sample(self) -> Integers:
        """Return counts of age by occupation after sampling both columns from their own histograms."""
        rows = self.charged_rows()
        drawn = []
        for axis in (1, 0):
            marginal = self.sample(self._noisy(self.counts.sum(axis=axis)), rows)
            drawn.append(self.random.permutation(np.repeat(np.arange(marginal.size), marginal)))
        cells = np.ravel_multi_index(tuple(drawn), self.counts.shape)
        return np.bincount(cells, minlength=self.counts.size).reshape(self.counts.shape)

    def two_way_sample(self) -> Integers:
        """Return counts of age by occupation after sampling both columns from their joint table."""
        return self.sample(self.two_way(), self.charged_rows())

    def _noisy(self, counts: Integers) -> Floats:
        return counts + self.random.laplace(0, 1 / self.epsilon, counts.shape)


def normalised(noisy: Floats) -> Floats:
    """Return noisy counts as probabilities.  Negative counts become zero; if none is positive, all are equal."""
    clipped = np.clip(noisy, 0, None)
    if not clipped.any():  # in a table of few rows
        clipped = np.ones(clipped.shape)
    probabilities: Floats = clipped / clipped.sum()
    return probabilities
