"""Estimate true counts from noisy ones: cells of a table, the long tail of a column, and sums of a very wide column.

A table of several attributes has many cells of few people.  The true count of a cell is modeled as a multiple of its
expected count, and the distribution of these multiples is estimated from all cells of the table.

A column of many ordered cells ends in a tail of few people.  The model of a tail needs its start, the density of the
cells before it, and the fact that counts fall.

A column of a million cells has few people in each of them.  The noise of the cells adds up in every sum, so the
released values may lie anywhere.  Tables over nested groups of neighbors have sums with less noise.  All tables are
made consistent by weighted least squares (Hay, Rastogi, Miklau and Suciu 2010, "Boosting the accuracy of differentially
private histograms through consistency").  Then groups are divided where the smaller groups in them differ by more than
noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, MOST_CUTS, RARE, Coarsening
from sfumato.model.factor import FloatArray

SHRINKAGE = 0.7
"""Share of the way from a noisy count to its posterior mean.  It was chosen by trial: 0.5 and 1 give larger errors."""

_SURE = 8.0  # deviations of noise above which a noisy count is not shrunk
_COUNTS = np.arange(0.0, 10.25, 0.5)  # possible true counts of a cell, in deviations
_RATIOS = np.geomspace(0.05, 20.0, 40)  # possible true counts as multiples of the expected count
_ROUNDS = 40
_PLACES = 4.0  # bins for each deviation and each doubling of the expected count; cells of one bin share a weight
_NEAR = (1.0, 0.5)  # weights of the nearest and the second nearest neighbors
_LEAST = 2.0**-10  # deviations: the least expected count
_BLOCK = 1 << 14  # cells at a time


def expected_from_neighbors(
    counts: FloatArray, expected: FloatArray, deviation: FloatArray | float, ordered_counts: Sequence[int]
) -> FloatArray:
    """Return expected counts that are scaled by the noisy counts of neighboring cells.

    Neighbors along an ordered axis resemble each other: if more of the married are thirty than independence predicts,
    more are thirty-five.  The noisy count of a cell does not enter its own expectation.  A deviation of noise is added
    to both sums, so that small neighbors change little.

    Args:
        counts: noisy counts.
        expected: counts expected before the table was measured, of the same shape, non-negative.
        deviation: standard deviation of the noise on each cell, positive.
        ordered_counts: for each axis, the number of leading places that are ordered.

    >>> expected_from_neighbors(np.array([0.0, 9.0, 0.0, 5.0]), np.full(4, 4.0), 1.0, [3]).round(1).tolist()
    [5.7, 0.4, 5.7, 4.0]
    """
    observed_nearby, expected_nearby = np.zeros_like(counts), np.zeros_like(expected)
    for axis, places in enumerate(ordered_counts):
        for table, near in ((counts, observed_nearby), (expected, expected_nearby)):
            held, into = (np.moveaxis(each, axis, 0)[:places] for each in (table, near))
            for distance, weight in enumerate(_NEAR, start=1):
                into[distance:] += weight * held[:-distance]
                into[:-distance] += weight * held[distance:]
    expected_counts: FloatArray = (
        expected * (np.maximum(observed_nearby, 0.0) + deviation) / (expected_nearby + deviation)
    )
    return expected_counts


def shrunken_counts(
    counts: FloatArray,
    expected: FloatArray,
    deviation: FloatArray | float,
    ordered_counts: Sequence[int] = (),
    *,
    shrinkage: float = SHRINKAGE,
) -> FloatArray:
    """Shrink noisy counts toward their posterior means. :func:`expected_from_neighbors` describes the arguments.

    If axes have an order, a second prior comes from the neighbors of each cell.  The prior under which the noisy counts
    are likelier is used: ages resemble their neighbors, numbers that are codes do not.

    A posterior mean treats all cells alike.  Large neighboring cells then err to the same side, and these errors add up
    in sums, where noise would average out.  Keeping part of each noisy count limits that (compare Efron and Morris
    1972, "Limiting the risk of Bayes and empirical Bayes estimators").  ``shrinkage`` is the part of the way to
    the mean.
    """
    means, likelihood = posterior_means(counts, expected, deviation)
    if any(places > 1 for places in ordered_counts):
        nearby = expected_from_neighbors(counts, expected, deviation, ordered_counts)
        by_neighbors = posterior_means(counts, nearby, deviation)
        means = means if likelihood >= by_neighbors[1] else by_neighbors[0]
    shrunken: FloatArray = counts + shrinkage * (means - counts)
    return shrunken


def posterior_means(
    counts: FloatArray, expected: FloatArray, deviation: FloatArray | float
) -> tuple[FloatArray, float]:
    """Return posterior means of the cells of a table, and the log likelihood of its noisy counts.

    The prior of a cell has 61 atoms: 21 numbers of people and 40 multiples of its expected count.  Their weights
    maximize the likelihood of the noisy counts of all cells (Kiefer and Wolfowitz 1956; by expectation maximization,
    stopped early).  The noise is modeled as normal.  Counts of eight deviations or more are not changed.

    Args:
        counts: noisy counts.
        expected: counts expected before the table was measured, of the same shape, non-negative.
        deviation: standard deviation of the noise on each cell, positive: one number, or one for each cell.

    >>> means, _ = posterior_means(np.array([30.0] * 2 + [1.0, -1.0] * 20), np.full(42, 1.0), 1.0)
    >>> float(means[0]), bool(means[2:].max() < 0.2)
    (30.0, True)
    """
    seen, before = (counts / deviation).ravel(), np.maximum((expected / deviation).ravel(), _LEAST)
    small = np.flatnonzero(seen < _SURE)
    if not len(small):
        return counts, 0.0
    likely, likelihood = _weights(seen[small], before[small])
    posterior: FloatArray = seen.copy()
    for start in range(0, len(small), _BLOCK):
        block = small[start : start + _BLOCK]
        atoms, fits = _atoms(seen[block], before[block])
        fits *= likely
        posterior[block] = (fits * atoms).sum(axis=1) / fits.sum(axis=1)
    means: FloatArray = posterior.reshape(counts.shape) * deviation
    return means, likelihood


def _weights(seen: FloatArray, before: FloatArray) -> tuple[FloatArray, float]:
    """Return the prior weights of the atoms, and the log likelihood of all cells."""
    places = np.stack([np.maximum(np.rint(seen * _PLACES), -6 * _PLACES), np.rint(np.log2(before) * _PLACES)])
    binned, times = np.unique(places, axis=1, return_counts=True)
    _, fits = _atoms(binned[0] / _PLACES, 2.0 ** (binned[1] / _PLACES))
    likely: FloatArray = np.full(fits.shape[1], 1 / fits.shape[1])
    for _ in range(_ROUNDS):
        likely = likely * ((times / (fits @ likely)) @ fits)
        likely /= likely.sum()
    return likely, float(times @ np.log(fits @ likely))


def _atoms(seen: FloatArray, before: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the atoms of each cell, shape ``(cells, atoms)``, and their likelihood given the noisy count."""
    atoms = np.concatenate([np.broadcast_to(_COUNTS, (len(seen), len(_COUNTS))), before[:, None] * _RATIOS], axis=1)
    fits: NDArray[np.float64] = np.exp(-((seen[:, None] - atoms) ** 2) / 2) + 1e-300
    return atoms, fits


_APART = 2  # largest number of counts at each end that do not take part in shrinking
_LEAST_ALIKE = 5  # smallest number of counts that shrink towards each other


def shrunken_column(counts: FloatArray, variance: float) -> FloatArray:
    """Shrink noisy counts of categories towards their mean, as far as noise explains how they differ.

    This is the positive-part estimator of James and Stein (1961) for an unknown mean (Efron and Morris 1973).  Up to
    two counts at each end do not take part if the noisy counts are likelier so.  A count that does not take part is
    modeled as uniform over the range of all counts, and its choice costs a factor.

    >>> shrunken_column(np.array([102.0, 900.0, 101.0, 100.0, 99.0, 98.0]), 100.0).tolist()
    [100.0, 900.0, 100.0, 100.0, 100.0, 100.0]
    """
    many, order = len(counts), np.argsort(counts)
    held = counts[order]
    ends = [
        (low, high)
        for low, high in product(range(_APART + 1), repeat=2)
        if many - low - high >= max(_LEAST_ALIKE, many - many // 2)
    ]
    if not ends:
        return counts
    apart = math.log(1.5 * max(float(np.ptp(held)), math.sqrt(variance)) * many) + 2.0
    fits = [_likelihood(held[low : many - high], variance) - (low + high) * apart for low, high in ends]
    low, high = ends[int(np.argmax(fits))]
    alike = held[low : many - high]
    squares = float(((alike - alike.mean()) ** 2).sum())
    factor = max(0.0, 1.0 - (len(alike) - 3) * variance / max(squares, _LEAST))
    shrunken = counts.copy()
    shrunken[order[low : many - high]] = alike.mean() + factor * (alike - alike.mean())
    return shrunken


def _likelihood(counts: FloatArray, variance: float) -> float:
    """Return the largest log likelihood of noisy counts whose true counts are normal around a mean."""
    squares = float(((counts - counts.mean()) ** 2).sum())
    spread = max(variance, squares / (len(counts) - 1))
    return -0.5 * (len(counts) * math.log(2 * math.pi * spread) + squares / spread)


STRAY = 4.5
"""Standard deviations below which cells beyond a rare group count as noise, because among many cells one exceeds
three.
"""

_SCALES = 48
_STEEPEST, _FLATTEST = 0.02, 2.0  # decay lengths: relative to the first cell's width, and to all widths
_WEIGHTS = (0.0, 0.25, 0.5, 1.0)  # shapes of the tail: exponential, then heavier
_MISFIT = 3.0  # standard deviations of a sum of squares above which no falling tail explains the counts
_MISFIT_OF_SUMS = 3.5  # standard deviations of a sum of cells from either end, above which there is no tail
_LEAST_SUM = 3  # minimum cells of such a sum
_LEAST_COUNT = 0.5  # minimum count of the cells before a tail, in standard deviations


@dataclass(frozen=True, eq=False)
class FallingTail:
    """The curves that a tail may follow, shape ``(curves, cells)``, from the inside outward, and their weights."""

    curves: FloatArray
    likely: FloatArray

    @property
    def counts(self) -> FloatArray:
        """Return expected counts, shape ``(cells,)``."""
        return self.likely @ self.curves

    def variance(self, among: NDArray[np.bool_]) -> float:
        """Return the variance of the sum of the cells ``among``."""
        sums = self.curves[:, among].sum(axis=1)
        return float(self.likely @ (sums - self.likely @ sums) ** 2)


def falling_tail(counts: FloatArray, widths: FloatArray, variance: float, *, density: float) -> FallingTail | None:
    """Return tails that fall from ``density`` on, weighted by their likelihood.

    Tails are generalized Pareto curves (Pickands 1975) that begin at the density of the cells before them.  They have
    48 lengths, equally likely on a logarithmic scale, and four shapes from the exponential to one of infinite mean.  So
    counts that noise explains stay near zero, and counts above the noise shape the tail.  No cell is negative, and no
    cell is denser than the one before.

    Args:
        counts: noisy counts from the inside outward, shape ``(cells,)``.
        widths: of the cells in the attribute's own unit, positive, shape ``(cells,)``.
        variance: of the noise on a cell.
        density: people per unit just before the tail, positive.

    Returns:
        None if no such tail explains the counts: their misfit is three deviations above that of noise, or the sum of
            the cells from one end on is too far off.  Noise hides a misfit of single cells, and sums show it.

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
    tail = FallingTail(curves, likely / likely.sum())
    return tail if _explains_sums(counts - tail.counts, variance) else None


def _explains_sums(residuals: FloatArray, variance: float) -> bool:
    """Return True if no sum of residuals from either end on is larger than its noise explains."""
    cells = np.arange(1, len(residuals) + 1)
    sums = np.abs([np.cumsum(residuals), np.cumsum(residuals[::-1])]) / np.sqrt(variance * cells)
    return bool((sums[:, cells >= min(_LEAST_SUM, len(cells))] <= _MISFIT_OF_SUMS).all())


def with_falling_tails(
    coarsening: Coarsening, counts: FloatArray, variance: float, widths: FloatArray
) -> tuple[Coarsening, dict[int, tuple[float, float]]]:
    """Spread the rare groups at both ends of an ordered attribute as tails, and estimate their counts.

    Args:
        coarsening: groups of neighbors among the first ``len(widths)`` codes.
        counts: noisy counts of all codes, shape ``(codes,)``.
        variance: of the noise on a code.
        widths: of the ordered codes.  Single numbers among wider cells have width zero and are in no tail.

    Returns:
        The same groups with the weights of the tails, and for each group in a tail the mean and variance of its count.
    """
    ordered_count, spread = len(widths), np.flatnonzero(widths > 0)
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
            counts[codes], widths[codes], variance, density=held / float(widths[before[:ordered_count]].sum())
        )
        if tail is None:
            continue
        weights[codes] = tail.counts
        for group in dict.fromkeys(groups[codes].tolist()):
            among = groups[codes] == group
            estimates[group] = (float(tail.counts[among].sum()), tail.variance(among))
    return replace(coarsening, weights=weights), estimates


def _start(groups: NDArray[np.int64], counts: FloatArray, variance: float) -> int:
    """Return the start of the tail: the position after the outermost group whose count exceeds the noise."""
    firsts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    sums = np.add.reduceat(counts, firsts)
    clear = sums / np.sqrt(variance * np.diff(firsts, append=len(groups)))
    inner = len(firsts)
    while inner and (clear[inner - 1] < RARE or (clear[inner - 1] < STRAY and inner > 1 and clear[inner - 2] < RARE)):
        inner -= 1
    return int(firsts[inner]) if inner < len(firsts) else len(groups)


def _held(ends: FloatArray, weight: float) -> FloatArray:
    """Integrate a curve of density one at zero and length one between neighboring ends."""
    beyond = np.exp(-ends) if weight == 0 else (1 + weight * ends) ** (-1 / weight)
    return -np.diff(beyond)


MOST_BRANCHES = 24
"""Largest number of groups of a table within one group of the table before it, and of groups of the first table."""


def nested_widths(cells: int) -> tuple[int, ...]:
    """Return the codes in a group of each table, coarsest first, for a column of ``cells`` codes.

    Every width is a multiple of the next one.  The last table is over single codes.

    >>> nested_widths(65_744), nested_widths(1_500_000), nested_widths(1_500)
    ((4913, 289, 17, 1), (104976, 5832, 324, 18, 1), (144, 12, 1))
    """
    tables = max(1, math.ceil(math.log(cells) / math.log(MOST_BRANCHES)))
    branches = math.ceil(cells ** (1 / tables))
    return tuple(branches**power for power in reversed(range(tables)))


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of neighboring codes, each with one noisy count: shape ``(pieces,)``.

    Attributes:
        widths: numbers of codes.
        counts: estimated numbers of rows.
        variances: variances of their noise.
    """

    widths: NDArray[np.int64]
    counts: FloatArray
    variances: FloatArray


@dataclass(frozen=True, eq=False)
class NestedCounts:
    """Consistent noisy counts of an ordered column over nested groups, coarsest first; the last are of single codes.

    Attributes:
        widths: codes in a group of each table.
        counts: counts of each table; groups inside a group add up to it.
        variances: variances of their noise, before the counts above were used.
    """

    widths: tuple[int, ...]
    counts: tuple[FloatArray, ...]
    variances: tuple[FloatArray, ...]

    @staticmethod
    def of_tables(widths: Sequence[int], tables: Sequence[FloatArray], variances: Sequence[float]) -> NestedCounts:
        """Return consistent counts: sums are pooled from single codes upwards, and differences are spread downwards.

        >>> tables = np.array([6.0, 4.0]), np.array([1.0, 3.0, 2.0, 2.0])
        >>> [each.round(2).tolist() for each in NestedCounts.of_tables((2, 1), tables, (1.0, 1.0)).counts]
        [[5.33, 4.0], [1.67, 3.67, 2.0, 2.0]]
        """
        pooled, noise = [tables[-1]], [np.full(len(tables[-1]), variances[-1])]
        inside: list[tuple[FloatArray, FloatArray]] = []
        for level in reversed(range(len(tables) - 1)):
            starts = np.arange(0, len(pooled[0]), widths[level] // widths[level + 1])
            sums, spread = np.add.reduceat(pooled[0], starts), np.add.reduceat(noise[0], starts)
            inside.insert(0, (sums, spread))
            noise.insert(0, 1 / (1 / variances[level] + 1 / spread))
            pooled.insert(0, noise[0] * (tables[level] / variances[level] + sums / spread))
        counts = pooled[:1]
        for level, (sums, spread) in enumerate(inside, start=1):
            parent = np.arange(len(pooled[level])) // (widths[level - 1] // widths[level])
            counts.append(pooled[level] + noise[level] * ((counts[-1] - sums) / spread)[parent])
        return NestedCounts(tuple(widths), tuple(counts), tuple(noise))

    def pieces(self) -> Pieces:
        """Divide the column into groups of the first table, and these into smaller groups where noise allows.

        There are at most :data:`sfumato.model.coarsening.MOST_CUTS` pieces; groups of many people are divided first.
        """
        starts, counts, variances = [], [], []
        groups, left = np.arange(len(self.counts[0])), MOST_CUTS - len(self.counts[0])
        for level, width in enumerate(self.widths):
            branches = width // self.widths[level + 1] if level + 1 < len(self.widths) else 1
            divided = groups[self._divisible(level, groups)]
            divided = divided[np.argsort(-self.counts[level][divided], kind="stable")][: left // branches]
            left -= len(divided) * branches
            undivided = np.setdiff1d(groups, divided)
            starts.append(undivided * width)
            counts.append(self.counts[level][undivided])
            variances.append(self.variances[level][undivided])
            groups = (divided[:, None] * branches + np.arange(branches)).ravel()
            groups = groups[groups * (width // branches) < len(self.counts[-1])]
        first = np.concatenate(starts)
        order = np.argsort(first)
        widths = np.diff(first[order], append=len(self.counts[-1]))
        return Pieces(widths, np.concatenate(counts)[order], np.concatenate(variances)[order])

    def _divisible(self, level: int, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return True for groups whose smaller groups differ by clearly more than noise, or that have many people.

        Later tables may tell the codes of a group of many people apart.
        """
        if level + 1 == len(self.widths):
            return np.zeros(len(groups), dtype=bool)
        branches, many = self.widths[level] // self.widths[level + 1], len(self.counts[level + 1])
        inner = groups[:, None] * branches + np.arange(branches)
        there, inner = inner < many, np.minimum(inner, many - 1)
        rows, numbers = self.counts[level][groups], there.sum(axis=1)
        deviations = np.sqrt(self.variances[level + 1][inner])
        off = np.where(there, (self.counts[level + 1][inner] - (rows / numbers)[:, None]) / deviations, 0.0)
        clear = (off**2).sum(axis=1) > numbers - 1 + RARE * np.sqrt(2 * numbers)
        stands_out = off.max(axis=1) > math.sqrt(2 * math.log(many)) + 1
        people = rows / deviations[:, 0]
        divisible: NDArray[np.bool_] = (people > MAX_GROUP_DEVIATIONS) | (clear & (people > RARE)) | stands_out
        return divisible
