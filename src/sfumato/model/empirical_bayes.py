"""What noisy counts of a table are likely to stand for, by what the whole table shows: post-processing of noisy counts.

Most cells of a table of several attributes are empty or nearly so, and noise fills all of them.  How many cells hold
how much can be seen in the noisy counts together, though not cell by cell (Robbins 1956, "An empirical Bayes approach
to statistics"): once it is known, the mean of what a cell may stand for is nearer to its count than the noisy count is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.model.factor import FloatArray

DRAWN = 0.7
"""How far a noisy count is drawn towards its posterior mean, found by trial: half and all of the way do less well."""

_SURE = 8.0  # deviations of noise above which a noisy count is taken as it is
_COUNTS = np.arange(0.0, 10.25, 0.5)  # what a cell may hold, in deviations
_RATIOS = np.geomspace(0.05, 20.0, 40)  # and as a multiple of what was expected of it
_ROUNDS = 40
_PLACES = 4.0  # a deviation, and a doubling of what was expected, into which cells are taken together to weigh them
_LEAST = 2.0**-10  # deviations: less is as good as none
_BLOCK = 1 << 14  # cells at a time


def drawn_counts(counts: FloatArray, expected: FloatArray, deviation: FloatArray | float) -> FloatArray:
    """Noisy counts drawn towards their posterior means, but not all the way; arguments as of :func:`posterior_means`.

    A posterior mean takes any cell for any other.  Neighbours that hold more than most then err to the same side,
    which adds up in sums over them, where noise evens out.  Part of each noisy count limits that (compare Efron and
    Morris 1972, "Limiting the risk of Bayes and empirical Bayes estimators").
    """
    found: FloatArray = counts + DRAWN * (posterior_means(counts, expected, deviation) - counts)
    return found


def posterior_means(counts: FloatArray, expected: FloatArray, deviation: FloatArray | float) -> FloatArray:
    """Means of what the cells of a table may hold, given all its noisy counts, in the shape of ``counts``.

    A cell holds one of twenty-one numbers of people or one of forty multiples of what was expected of it, each as
    likely as makes the noisy counts of all cells most likely (Kiefer and Wolfowitz 1956; by expectation maximisation,
    stopped early).  Noise is taken for normal.  Counts of eight deviations or more are left as they are.

    Args:
        counts: noisy counts.
        expected: counts that were expected before the table was measured, of the same shape, not negative.
        deviation: of the noise on each cell, positive: one number, or one for each cell.

    >>> found = posterior_means(np.array([30.0] * 2 + [1.0, -1.0] * 20), np.full(42, 1.0), 1.0)
    >>> float(found[0]), bool(found[2:].max() < 0.2)
    (30.0, True)
    """
    seen, before = (counts / deviation).ravel(), np.maximum((expected / deviation).ravel(), _LEAST)
    small = np.flatnonzero(seen < _SURE)
    if not len(small):
        return counts
    likely = _weights(seen[small], before[small])
    found: FloatArray = seen.copy()
    for start in range(0, len(small), _BLOCK):
        block = small[start : start + _BLOCK]
        atoms, fits = _atoms(seen[block], before[block])
        fits *= likely
        found[block] = (fits * atoms).sum(axis=1) / fits.sum(axis=1)
    means: FloatArray = found.reshape(counts.shape) * deviation
    return means


def _weights(seen: FloatArray, before: FloatArray) -> FloatArray:
    """How likely each number and each multiple is, before a cell is looked at."""
    places = np.stack([np.maximum(np.rint(seen * _PLACES), -6 * _PLACES), np.rint(np.log2(before) * _PLACES)])
    together, times = np.unique(places, axis=1, return_counts=True)
    _, fits = _atoms(together[0] / _PLACES, 2.0 ** (together[1] / _PLACES))
    likely: FloatArray = np.full(fits.shape[1], 1 / fits.shape[1])
    for _ in range(_ROUNDS):
        likely = likely * ((times / (fits @ likely)) @ fits)
        likely /= likely.sum()
    return likely


def _atoms(seen: FloatArray, before: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What each cell may hold, shape ``(cells, atoms)``, and how well that explains its noisy count."""
    atoms = np.concatenate([np.broadcast_to(_COUNTS, (len(seen), len(_COUNTS))), before[:, None] * _RATIOS], axis=1)
    fits: NDArray[np.float64] = np.exp(-((seen[:, None] - atoms) ** 2) / 2) + 1e-300
    return atoms, fits
