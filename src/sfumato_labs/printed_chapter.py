"""The textbook chapter's programs for synthetic data, as printed.  Not private: see ``FLAWS``.

Source: Near and Abuah, Programming Differential Privacy, chapter Synthetic Data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FLAWS = (
    "noise is floating-point Laplace, whose low bits tell answers apart",
    "the histogram and the number of rows cost epsilon 1 each, together 2, and no ledger adds them up",
    "the two-way table has the ages and occupations that occur in the data, which no epsilon pays for",
)


@dataclass(frozen=True, eq=False)
class Chapter:
    """The chapter's programs over true counts of age by occupation, shape ``(ages, occupations)``, at epsilon 1."""

    counts: Integers
    random: np.random.Generator

    def histogram(self) -> Floats:
        """Noisy count of every age: shape ``(ages,)``."""
        return self._noisy(self.counts.sum(axis=1))

    def direct(self, answer: int) -> float:
        """One answer with noise of its own."""
        return float(answer + self.random.laplace())

    def charged_rows(self) -> int:
        """The number of rows, bought with another epsilon of 1."""
        return int(self.counts.sum() + self.random.laplace())

    def sample(self, noisy: Floats, rows: int) -> Integers:
        """Counts of a sample drawn row by row from clipped and normalised noisy counts, in their shape."""
        clipped = np.clip(noisy, 0, None)
        return self.random.multinomial(rows, (clipped / clipped.sum()).ravel()).reshape(noisy.shape)

    def two_way(self) -> Floats:
        """Noisy counts of age by occupation over the values that occur; the others stay at zero."""
        occurs = self.counts.any(axis=1, keepdims=True) & self.counts.any(axis=0, keepdims=True)
        return np.where(occurs, self._noisy(self.counts), 0.0)

    def one_way_sample(self) -> Integers:
        """Two columns sampled from their own histograms and put side by side: counts of age by occupation."""
        rows = self.charged_rows()
        drawn = []
        for axis in (1, 0):
            marginal = self.sample(self._noisy(self.counts.sum(axis=axis)), rows)
            drawn.append(self.random.permutation(np.repeat(np.arange(marginal.size), marginal)))
        cells = np.ravel_multi_index(tuple(drawn), self.counts.shape)
        return np.bincount(cells, minlength=self.counts.size).reshape(self.counts.shape)

    def two_way_sample(self) -> Integers:
        """Both columns sampled from their joint table: counts of age by occupation."""
        return self.sample(self.two_way(), self.charged_rows())

    def _noisy(self, counts: Integers) -> Floats:
        return counts + self.random.laplace(size=counts.shape)
