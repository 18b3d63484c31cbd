"""What noisy counts are likely to hold: cells of a table (empirical Bayes), and the long tail of a column.

A table of several attributes has many cells of few people.  A cell is taken to hold some multiple of what was expected
of it, and the distribution of these multiples is learned from all cells of the table.

A column of many ordered cells ends in a tail of few people.  What is known of such cells is where they begin, how dense
the cells before them are, and that fewer and fewer people are in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.model.coarsening import RARE, Coarsening
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
    expected_counts: FloatArray = expected * (np.maximum(seen, 0.0) + deviation) / (said + deviation)
    return expected_counts


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
    drawn: FloatArray = counts + DRAWN * (means - counts)
    return drawn


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
    posterior: FloatArray = seen.copy()
    for start in range(0, len(small), _BLOCK):
        block = small[start : start + _BLOCK]
        atoms, fits = _atoms(seen[block], before[block])
        fits *= likely
        posterior[block] = (fits * atoms).sum(axis=1) / fits.sum(axis=1)
    means: FloatArray = posterior.reshape(counts.shape) * deviation
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


STRAY = 4.5
"""Standard deviations below which cells beyond a rare group are noise as well: of so many cells, one passes three."""

_SCALES = 48
_STEEPEST, _FLATTEST = 0.02, 2.0  # lengths of decay: of the first cell's width, and of all widths
_WEIGHTS = (0.0, 0.25, 0.5, 1.0)  # of the tail: exponential, and ever heavier
_MISFIT = 3.0  # standard deviations of a sum of squares above which no falling tail explains the counts
_LEAST_COUNT = 0.5  # standard deviations that are taken for the count of cells before a tail where it came out smaller


@dataclass(frozen=True, eq=False)
class FallingTail:
    """Curves that a tail may follow, shape ``(curves, cells)`` from the inside outwards, and how likely each is."""

    curves: FloatArray
    likely: FloatArray

    @cached_property
    def counts(self) -> FloatArray:
        """Expected counts, shape ``(cells,)``."""
        return self.likely @ self.curves

    def variance(self, among: NDArray[np.bool_]) -> float:
        """How uncertain the sum of the cells ``among`` is."""
        sums = self.curves[:, among].sum(axis=1)
        return float(self.likely @ (sums - self.likely @ sums) ** 2)


def falling_tail(counts: FloatArray, widths: FloatArray, variance: float, *, density: float) -> FallingTail | None:
    """The tails that fall from ``density`` on, weighted by how well they explain noisy counts.

    Tails are generalised Pareto curves (Pickands 1975) that begin at the density of the cells before them: forty-eight
    lengths, equally likely on a logarithmic scale, by four shapes from the exponential to one of infinite mean.  Under
    noise of ``variance`` a cell their weights are likelihoods, so that counts that noise could have made stay near none
    and a tail that stands out of the noise is followed.  No cell is negative and none is denser than the one before.

    Args:
        counts: noisy counts from the inside outwards, shape ``(cells,)``.
        widths: of the cells in the attribute's own unit, positive, shape ``(cells,)``.
        variance: of the noise on a cell.
        density: people a unit just before the tail, positive.

    Returns:
        None where no such tail explains the counts: their misfit is three deviations above what noise makes.

    >>> import numpy as np
    >>> tail = falling_tail(np.array([9.0, 2.0, -3.0, 4.0]), np.ones(4), 25.0, density=20.0)
    >>> bool((np.diff(tail.counts) < 0).all() and tail.counts[-1] < 1)
    True
    """
    ends = np.concatenate(([0.0], np.cumsum(widths)))
    lengths = np.geomspace(_STEEPEST * widths[0], _FLATTEST * ends[-1], _SCALES)[:, None]
    curves = density * np.concatenate([_held(ends / lengths, weight) * lengths for weight in _WEIGHTS])
    misfits = ((curves - counts) ** 2).sum(axis=1) / variance
    if misfits.min() > len(counts) + _MISFIT * np.sqrt(2 * len(counts)):
        return None
    likely = np.exp((misfits.min() - misfits) / 2)
    return FallingTail(curves, likely / likely.sum())


def with_falling_tails(
    coarsening: Coarsening, counts: FloatArray, variance: float, widths: FloatArray
) -> tuple[Coarsening, dict[int, tuple[float, float]]]:
    """Share out the rare groups at both ends of an ordered attribute as tails, and estimate what they hold.

    Args:
        coarsening: groups of neighbours among the first ``len(widths)`` codes.
        counts: noisy counts of all codes, shape ``(codes,)``.
        variance: of the noise on a code.
        widths: of the ordered codes; single numbers among wider cells have none, and are in no tail.

    Returns:
        The same groups with the weights of the tails, and of each group in a tail its expected count with the
        variance of that.
    """
    ordered, spread = len(widths), np.flatnonzero(widths > 0)
    groups, weights = coarsening.groups, coarsening.weights.copy()
    estimates: dict[int, tuple[float, float]] = {}
    for outwards in (spread, spread[::-1]):
        start = _start(groups[outwards], counts[outwards], variance)
        codes = outwards[start:]
        if start == 0 or not len(codes):
            continue
        before = groups == groups[outwards[start - 1]]
        held = max(float(counts[before].sum()), _LEAST_COUNT * np.sqrt(variance * before.sum()))
        tail = falling_tail(
            counts[codes], widths[codes], variance, density=held / float(widths[before[:ordered]].sum())
        )
        if tail is None:
            continue
        weights[codes] = tail.counts
        for group in dict.fromkeys(groups[codes].tolist()):
            among = groups[codes] == group
            estimates[group] = (float(tail.counts[among].sum()), tail.variance(among))
    return replace(coarsening, weights=weights), estimates


def _start(groups: NDArray[np.int64], counts: FloatArray, variance: float) -> int:
    """Where the tail begins: after the outermost group that stands out of the noise."""
    firsts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    sums = np.add.reduceat(counts, firsts)
    clear = sums / np.sqrt(variance * np.diff(firsts, append=len(groups)))
    kept = len(firsts)
    while kept and (clear[kept - 1] < RARE or (clear[kept - 1] < STRAY and kept > 1 and clear[kept - 2] < RARE)):
        kept -= 1
    return int(firsts[kept]) if kept < len(firsts) else len(groups)


def _held(ends: FloatArray, weight: float) -> FloatArray:
    """What a curve of density one at zero and length one holds between neighbouring ends."""
    beyond = np.exp(-ends) if weight == 0 else (1 + weight * ends) ** (-1 / weight)
    return -np.diff(beyond)
