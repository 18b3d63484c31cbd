"""The errors of the counts of a synthetic file, for declared values and for pairs.

They follow from the noisy tables of the release and from the file.  Each noisy count has noise of known size.  So the
table's own count is known up to that noise, even if the model is wrong.  The protected table is not read.  Errors of
values and pairs that were not measured are not stated.

A pair without a measured table is answered by the model, and no measured table bounds the error of the model.
Distances of all pairs do.  They are measured after the last fit, at a small part of the loss.  They hold for any model.
They are wide, because they add up the errors of all cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyDistance, NoisyTable, digest_of, integer_counts
from sfumato.model.row_sampling import CodeArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.privacy.noise import Noise
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.marginal_selection import comparable
from sfumato.synthesize.product import read_back
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Distance

CONFIDENCE = Fraction(95, 100)
"""Confidence of every stated error."""

_SMALL_VARIANCE = 16.0
_ROUNDING = 1e-12  # tolerance of a sum of probabilities
_MEAN = 0.8  # upper bound on the mean size of noise, in standard deviations: .798 for Gaussian, .707 for Laplace noise
_COUNTED = 1 << 18  # rows processed at a time, to fit the processor's cache
_ASSOCIATION_ROWS = 50_000  # leading rows of a file, in random order, for the strength of an association


@dataclass(frozen=True, eq=False)
class PooledMarginal:
    """A noisy table summed over all but some of its attributes, or several pooled by inverse variance.

    Attributes:
        counts: one axis per attribute.
        groups: the group of each code of an attribute, shape ``(codes,)``.
        noise: noise on one cell of the table.  For several tables, it is the noise of the table with the least noise on
            a count.
        summed: number of cells of this table in each count.
        left: share of the variance of its noise that remains after pooling.
    """

    counts: NDArray[np.int64] | FloatArray
    groups: tuple[NDArray[np.int64], ...]
    noise: Noise
    summed: int
    left: float = 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one count."""
        return math.sqrt(self.noise.variance * self.summed * self.left)

    def noise_bound(self, *, counts: int = 1, simultaneous: int = 1) -> float:
        """Return a bound on the noise of a sum of ``counts`` counts, with 95 %, for ``simultaneous`` such sums at once.

        Pooled noise has no heavier tails than the noise of one table, each in its own standard deviations.  Pooled
        noise has no integer values, so the bound is half a step larger before it is scaled.
        """
        alone = _quantile(self.noise, self.summed * counts, simultaneous)
        return alone if self.left == 1 else (alone + 0.5) * math.sqrt(self.left)


def pooled_marginal(tables: Sequence[NoisyTable], attributes: Sequence[str], domain: Domain) -> PooledMarginal | None:
    """Return the most precise noisy table of the given attributes, summed over its others; None if no table has them.

    The table with the finest groups is used.  Among several, a table that was measured before the groups were formed
    comes first, because its noise decided on the groups.  If it were used only for the groups that it formed, its
    errors would be stated only when they are large.  Then the table with the least noise is used, pooled by inverse
    variance with independent tables over the same groups.
    """
    held = [table for table in tables if set(attributes) <= set(table.attributes)]
    sums = [(table.fresh, _summed(table, tuple(attributes), domain)) for table in held]
    best = min(sums, key=lambda one: (-one[1].counts.size, one[0], one[1].deviation), default=None)
    return None if best is None else _pooled(best[1], [one for fresh, one in sums if fresh == best[0]])


def _pooled(best: PooledMarginal, others: Sequence[PooledMarginal]) -> PooledMarginal:
    """Return the pooled counts over the groups of the best table.

    If its noise is so small that single integers matter, only the best table is used.
    """
    same = [one for one in others if all(map(np.array_equal, one.groups, best.groups))]
    if len(same) == 1 or best.noise.variance < _SMALL_VARIANCE:
        return best
    precisions = np.array([1 / one.deviation**2 for one in same])
    shares = precisions / precisions.sum()
    counts: FloatArray = np.tensordot(shares, np.array([one.counts for one in same], dtype=np.float64), axes=1)
    return replace(best, counts=counts, left=float(1 / (precisions.sum() * best.deviation**2)))


def _summed(table: NoisyTable, attributes: tuple[str, ...], domain: Domain) -> PooledMarginal:
    others = tuple(axis for axis, name in enumerate(table.attributes) if name not in attributes)
    left = [name for name in table.attributes if name in attributes]
    counts = table.values.sum(axis=others).transpose([left.index(name) for name in attributes])
    groups = tuple(table.group_numbers(name, domain) for name in attributes)
    return PooledMarginal(counts, groups, table.noise, table.values.size // max(1, counts.size))


def _quantile(noise: Noise, summed: int, simultaneous: int) -> int:
    """Return the smallest k with P(|sum of noise| <= k) at the stated confidence; for a sum it is nearly the smallest.

    A sum of m draws is assumed to reach root m times as far as one draw, including the half step of rounding.  A sum of
    discrete Gaussians is nearly a discrete Gaussian of m times the variance (Canonne, Kamath and Steinke 2020).  Sums
    of Laplace noise have lighter tails than one draw, each in its own standard deviations.  If the noise is so small
    that single integers matter, its distribution is summed exactly.
    """
    missed = (1 - CONFIDENCE) / simultaneous
    if summed == 1:
        return noise.quantile(1 - missed)
    if noise.variance >= _SMALL_VARIANCE:
        return math.ceil((noise.quantile(1 - missed) + 0.5) * math.sqrt(summed))
    return int(np.argmax(2 * _tails(noise, summed) <= max(float(missed), _ROUNDING))) - 1


def _tails(noise: Noise, summed: int) -> FloatArray:
    """Return P(sum >= k) for k from 0, for ``summed`` independent draws, by the product of their characteristic
    functions.
    """
    support = 128 + math.ceil(64 * math.sqrt(noise.variance * summed))
    probabilities = np.zeros(2 * support)
    for k in range(-support + 1, support):
        if abs(k) <= 128:  # noqa: PLR2004  (beyond, noise of such a variance has no probability)
            probabilities[k] = noise.pmf(abs(k))
    sums = np.maximum(np.fft.irfft(np.fft.rfft(probabilities) ** summed, 2 * support)[:support], 0.0)
    tails: FloatArray = np.cumsum(sums[::-1])[::-1]
    return tails


@dataclass(frozen=True, eq=False)
class ValueErrors:
    """The possible counts of an attribute's values in the table, and the counts in a file.

    Attributes:
        rows: counts of the file by value, scaled to the rows of the table: shape ``(values,)``.
        low, high: interval of the table's own count, each with 95 % confidence.
        worst: largest error of a value of the file, with 95 % confidence for all values at once.
    """

    rows: FloatArray
    low: FloatArray
    high: FloatArray
    worst: float

    @property
    def off_by(self) -> FloatArray:
        """The largest difference of each count of the file from the table's, each with 95 % confidence."""
        return _farthest(self.rows, self.low, self.high)


def value_errors(measured: PooledMarginal, rows: FloatArray, runs: NDArray[np.int64]) -> ValueErrors:
    """Return the errors of an attribute's runs of codes: ``runs`` has a number per code, ``rows`` a count per run.

    A count that was measured alone is known up to its noise.  For a run inside a group, only the group was measured, so
    the run has between none and all of its rows.
    """
    (groups,) = measured.groups
    (run, group), inside = np.unique(np.stack([runs, groups]), axis=1, return_counts=True)
    complete = inside == np.bincount(groups)[group]

    def end(chosen: NDArray[np.bool_], side: int, simultaneous: int) -> FloatArray:
        sums = np.bincount(run[chosen], weights=measured.counts[group[chosen]], minlength=len(rows))
        number, place = np.unique(np.bincount(run[chosen], minlength=len(rows)), return_inverse=True)
        bounds = [measured.noise_bound(counts=int(many), simultaneous=simultaneous) if many else 0 for many in number]
        return np.maximum(sums + side * np.array(bounds, dtype=np.float64)[place], 0.0)

    every = np.ones(len(run), dtype=np.bool_)
    low, high = end(complete, -1, 1), end(every, 1, 1)
    worst = _farthest(rows, end(complete, -1, len(rows)), end(every, 1, len(rows))).max()
    return ValueErrors(rows, low, high, float(worst))


@dataclass(frozen=True)
class PairErrors:
    """The errors of the counts of a pair of attributes in a file.

    Attributes:
        cells: number of cells of the measured table.
        grouped: True if some of them are groups of values.
        deviation: standard deviation of the noise on one of them.
        worst: largest error of a cell, with 95 % confidence for all cells at once.
        worst_of_values: largest error of a combination of single values.  For a value inside a group only the group was
            measured, so the error may be all the rows of the group.
        misplaced: largest share of the rows that would have to move to another cell, with 95 % confidence.  It is half
            of the sum of the differences of cells, and is larger if file and table have different numbers of rows.
    """

    cells: int
    grouped: bool
    deviation: float
    worst: float
    worst_of_values: float
    misplaced: float


def pair_errors(measured: PooledMarginal, codes: tuple[CodeArray, CodeArray], scale: float) -> PairErrors:
    """Return the errors of a measured pair in a file with these codes, which represent ``scale`` rows of the table."""
    rows = (scale * tally(codes, measured.groups, measured.counts.shape)).astype(np.float64)
    cells = measured.counts.size
    bound = measured.noise_bound(simultaneous=cells)
    most = np.maximum(measured.counts + bound, 0.0)
    off_by = _farthest(rows, np.maximum(measured.counts - bound, 0.0), most)
    alone = np.logical_and.outer(*(np.bincount(groups) == 1 for groups in measured.groups))
    of_values = np.where(alone, off_by, np.maximum(most, rows))
    # the sum of n sizes of independent noise exceeds n means by root n times the excess of one
    mean = _MEAN * measured.deviation
    noise = cells * mean + math.sqrt(cells) * max(measured.noise_bound() - mean, 0.0)
    misplaced = (np.abs(rows - measured.counts).sum() + noise) / (2 * max(float(rows.sum()), 1.0))
    return PairErrors(
        cells=cells,
        grouped=not alone.all(),
        deviation=measured.deviation,
        worst=float(off_by.max()),
        worst_of_values=float(of_values.max()),
        misplaced=min(float(misplaced), 1.0),
    )


def occurrences(codes: CodeArray, size: int) -> NDArray[np.int64]:
    """Count the rows of each code of an attribute: shape ``(size,)``."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(codes), _COUNTED):
        counts += np.bincount(codes[start : start + _COUNTED], minlength=size)
    return counts


def tally(
    codes: tuple[CodeArray, CodeArray], groups: tuple[NDArray[np.int64], ...], shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Count rows by the groups of two attributes, by code if there are more rows than pairs of codes."""
    sizes = (len(groups[0]), len(groups[1]))
    if math.prod(sizes) > len(codes[0]):
        one, other = (number[code] for number, code in zip(groups, codes, strict=True))
        cell_counts: NDArray[np.int64] = np.bincount(one * shape[1] + other, minlength=math.prod(shape))
        return cell_counts.reshape(shape)
    cells, counts = np.min_scalar_type(math.prod(sizes)), np.zeros(math.prod(sizes), dtype=np.int64)
    for start in range(0, len(codes[0]), _COUNTED):
        flat = codes[0][start : start + _COUNTED].astype(cells)
        flat *= sizes[1]
        flat += codes[1][start : start + _COUNTED].astype(cells, copy=False)
        counts += np.bincount(flat, minlength=len(counts))
    table = np.zeros(shape, dtype=np.int64)
    np.add.at(table, np.ix_(*groups), counts.reshape(sizes))
    return table


def association(codes: tuple[CodeArray, CodeArray], groups: tuple[NDArray[np.int64], ...]) -> float:
    """Return the strength of the association of two attributes in a file, 0 to 1: Cramer's V, corrected for chance
    (Bergsma 2013).

    It uses the first 50 000 rows, which are in random order.
    """
    one, other = (number[code[:_ASSOCIATION_ROWS]] for number, code in zip(groups, codes, strict=True))
    size, width = len(one), int(groups[1].max()) + 1
    cells, counts = np.unique(one * width + other, return_counts=True)
    sides = np.bincount(one), np.bincount(other)
    rows, columns = (int((side > 0).sum()) for side in sides)
    if min(rows, columns, size - 1) <= 1:
        return 0.0
    squared = float((counts**2 / (sides[0][cells // width] * sides[1][cells % width])).sum()) - 1
    corrected = max(0.0, squared - (rows - 1) * (columns - 1) / (size - 1))
    least = min(side - (side - 1) ** 2 / (size - 1) for side in (rows, columns)) - 1
    return min(1.0, math.sqrt(corrected / least)) if least > 0 else 0.0


def _farthest(rows: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the largest distance of a count from the numbers between low and high."""
    return np.maximum(rows - low, high - rows)


PAIR_SHARE = Fraction(3, 100)
"""Share of a release's loss for the distances."""

_MOST_KEPT = 1 << 18  # cells of all pairs whose counts are stored in a file, 2 MiB
_MOST_CELLS = 1 << 26  # cells of all pairs together, half of the vault's limit


def measure_pair_distances(mechanisms: Mechanisms, model: Graphical, loss: Epsilon | Rho) -> tuple[NoisyDistance, ...]:
    """Measure noisy L1 distances between the table and integer counts of the model, for all pairs over single codes.

    Neighboring tables differ in one unit.  A row is in one cell of each pair, so it changes each distance by at most
    one.  The pairs share the loss equally.  The largest pairs are left out if all together cannot be counted.
    """
    domain = model.domain
    pairs = comparable(list(combinations(domain.names, 2)), domain, _MOST_CELLS)
    questions = [Distance(pair, integer_counts(model.cells(pair), model.total)) for pair in pairs]
    distances = []
    for pair, answer in zip(pairs, mechanisms.measure(questions, loss) if pairs else (), strict=True):
        distances.append(NoisyDistance((pair[0], pair[1]), int(answer.values[0]), answer.noise))
    return tuple(distances)


def distances_of_rows(model: Graphical, codes: CodeArray) -> tuple[NoisyDistance, ...]:
    """Return the distances for a file with these rows.

    The model counts behind a distance are stored with it, for small pairs first, if there is room.  Bounds around these
    counts are narrower than bounds around the rows, which differ from them by chance.
    """
    distances = []
    sizes = sorted((model.domain.project(each.attributes).size, each.attributes) for each in model.distances)
    cells_so_far = dict(zip((pair for _, pair in sizes), accumulate(size for size, _ in sizes), strict=True))
    for each in model.distances:
        shape = model.domain.project(each.attributes).shape
        columns = [(model.domain[name], codes[:, model.domain.index(name)]) for name in each.attributes]
        places = [read_back(attribute, column).astype(np.int64) for attribute, column in columns]
        rows = np.bincount(np.ravel_multi_index(places, shape), minlength=shape[0] * shape[1])
        scaled = rows * (model.total / max(1, len(codes)))
        model_counts = integer_counts(model.cells(each.attributes), model.total)
        rows_distance = float(np.abs(model_counts - scaled).sum())
        reference = model_counts.reshape(shape) if cells_so_far[each.attributes] <= _MOST_KEPT else None
        distances.append(replace(each, rows_distance=rows_distance, rows=digest_of(rows), reference=reference))
    return tuple(distances)
