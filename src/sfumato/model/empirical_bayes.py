"""What noisy counts of a table are likely to stand for, by what the whole table shows: post-processing of noisy counts.

Most cells of a table of several attributes are empty or nearly so, and noise fills all of them.  How many cells hold
how much can be seen in the noisy counts together, though not cell by cell (Robbins 1956, "An empirical Bayes approach
to statistics"): once it is known, the mean of what a cell may stand for is nearer to its count than the noisy count is.
"""

from __future__ import annotations

from collections.abc import Sequence

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
_NEAR = (1.0, 0.5)  # what neighbours count for what is expected of a cell: the next ones, and those after
_LEAST = 2.0**-10  # deviations: less is as good as none
_BLOCK = 1 << 14  # cells at a time


def expected_beside(
    counts: FloatArray, expected: FloatArray, deviation: FloatArray | float, ordered: Sequence[int]
) -> FloatArray:
    """What is expected of each cell once its neighbours were seen: ``expected``, times what they hold of theirs.

    Along an axis with an order, what goes with a place mostly goes with the next as well: if more of the married are
    thirty than columns alone would tell, more are thirty-five.  A cell's own noisy count is left out, as it would be
    its own witness; a deviation of noise is added on both sides, so that neighbours that hold little say little.

    Args:
        counts: noisy counts.
        expected: counts that were expected before the table was measured, of the same shape, not negative.
        deviation: of the noise on each cell, positive.
        ordered: of each axis, how many of its first places have an order; nothing for none.

    >>> expected_beside(np.array([0.0, 9.0, 0.0, 5.0]), np.full(4, 4.0), 1.0, [3]).round(1).tolist()
    [5.7, 0.4, 5.7, 4.0]
    """
    seen, said = np.zeros_like(counts), np.zeros_like(expected)
    for axis, places in enumerate(ordered):
        for table, near in ((counts, seen), (expected, said)):
            held, into = (np.moveaxis(each, axis, 0)[:places] for each in (table, near))
            for distance, weight in enumerate(_NEAR, start=1):
                into[distance:] += weight * held[:-distance]
                into[:-distance] += weight * held[distance:]
    found: FloatArray = expected * (np.maximum(seen, 0.0) + deviation) / (said + deviation)
    return found


def drawn_counts(
    counts: FloatArray, expected: FloatArray, deviation: FloatArray | float, ordered: Sequence[int] = ()
) -> FloatArray:
    """Noisy counts drawn towards their posterior means, but not all the way; arguments as of :func:`expected_beside`.

    Where axes have an order, the means are those given what was expected, or given what neighbours make of it, as
    explains the noisy counts of the table better: ages resemble their neighbours, numbers that are codes do not.

    A posterior mean takes any cell for any other.  Neighbours that hold more than most then err to the same side,
    which adds up in sums over them, where noise evens out.  Part of each noisy count limits that (compare Efron and
    Morris 1972, "Limiting the risk of Bayes and empirical Bayes estimators").
    """
    likely, means = _explained(counts, expected, deviation)
    if any(places > 1 for places in ordered):
        beside = _explained(counts, expected_beside(counts, expected, deviation, ordered), deviation)
        means = means if likely >= beside[0] else beside[1]
    found: FloatArray = counts + DRAWN * (means - counts)
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
    return _explained(counts, expected, deviation)[1]


def _explained(counts: FloatArray, expected: FloatArray, deviation: FloatArray | float) -> tuple[float, FloatArray]:
    """How well the noisy counts are explained, the logarithm of a likelihood, and the means."""
    seen, before = (counts / deviation).ravel(), np.maximum((expected / deviation).ravel(), _LEAST)
    small = np.flatnonzero(seen < _SURE)
    if not len(small):
        return 0.0, counts
    likely, explained = _weights(seen[small], before[small])
    found: FloatArray = seen.copy()
    for start in range(0, len(small), _BLOCK):
        block = small[start : start + _BLOCK]
        atoms, fits = _atoms(seen[block], before[block])
        fits *= likely
        found[block] = (fits * atoms).sum(axis=1) / fits.sum(axis=1)
    means: FloatArray = found.reshape(counts.shape) * deviation
    return explained, means


def _weights(seen: FloatArray, before: FloatArray) -> tuple[FloatArray, float]:
    """How likely each number and each multiple is, before a cell is looked at, and how well that explains all cells."""
    places = np.stack([np.maximum(np.rint(seen * _PLACES), -6 * _PLACES), np.rint(np.log2(before) * _PLACES)])
    together, times = np.unique(places, axis=1, return_counts=True)
    _, fits = _atoms(together[0] / _PLACES, 2.0 ** (together[1] / _PLACES))
    likely: FloatArray = np.full(fits.shape[1], 1 / fits.shape[1])
    for _ in range(_ROUNDS):
        likely = likely * ((times / (fits @ likely)) @ fits)
        likely /= likely.sum()
    return likely, float(times @ np.log(fits @ likely))


def _atoms(seen: FloatArray, before: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What each cell may hold, shape ``(cells, atoms)``, and how well that explains its noisy count."""
    atoms = np.concatenate([np.broadcast_to(_COUNTS, (len(seen), len(_COUNTS))), before[:, None] * _RATIOS], axis=1)
    fits: NDArray[np.float64] = np.exp(-((seen[:, None] - atoms) ** 2) / 2) + 1e-300
    return atoms, fits
