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
from sfumato.model.noisy_table import (
    LEAST_POOLED,
    MISSED,
    NoisyDistance,
    NoisyTable,
    PooledMarginal,
    combined,
    digest_of,
    integer_counts,
    never_grouped,
    pooled_marginal,
    summed_table,
)
from sfumato.model.row_sampling import CodeArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.marginal_selection import comparable
from sfumato.synthesize.product import read_back
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Distance

_COLUMN_MISSED = Fraction(1, 100)  # part of the misses of a pair, for the values of each column
_MEAN = 0.8  # upper bound on the mean size of noise, in standard deviations: .798 for Gaussian, .707 for Laplace noise
_COUNTED = 1 << 18  # rows processed at a time, to fit the processor's cache
_ASSOCIATION_ROWS = 50_000  # leading rows of a file, in random order, for the strength of an association


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


@dataclass(frozen=True)
class _Split:
    """The misses that an interval may have for a range of true counts; they add up to 5 %.

    Attributes:
        end: end of the range, in standard deviations of the first table's noise.
        below, above: misses because the noise of the first table is large, with the count below or above the interval.
        pooled: misses because the noise of all tables together is large.
    """

    end: float
    below: Fraction
    above: Fraction
    pooled: Fraction = Fraction(0)


_SPLITS = (
    _Split(2.5, Fraction(5, 1000), Fraction(40, 1000), Fraction(5, 1000)),
    _Split(5.0, Fraction(10, 1000), Fraction(20, 1000), Fraction(20, 1000)),
    _Split(math.inf, Fraction(4, 1000), Fraction(4, 1000), Fraction(42, 1000)),
)
"""A count below 2.5 deviations seldom gets a group of its own, and one above 5 mostly does."""

_FIRST_ONLY = (
    _Split(2.5, Fraction(5, 1000), Fraction(45, 1000)),
    _Split(math.inf, Fraction(25, 1000), Fraction(25, 1000)),
)
"""The splits if only the first table holds the column."""


@dataclass(frozen=True, eq=False)
class MeasuredColumn:
    """The noisy tables that hold an attribute, each summed over its other attributes.

    Attributes:
        first: the table whose noise decided on the groups; None if nothing was grouped by noise.
        later: tables whose groups were fixed before they were measured, finest first.
        nested: first tables of a very wide column over nested groups of values, which are public.
    """

    first: PooledMarginal | None
    later: tuple[PooledMarginal, ...]
    nested: tuple[PooledMarginal, ...] = ()

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one count of the first table, or of the finest."""
        return (self.first or self.later[0]).deviation

    def intervals(self, runs: NDArray[np.int64], size: int, simultaneous: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals of ``size`` runs of codes: each holds with 95 %, for ``simultaneous`` at once.

        The first table knows each value.  The later tables know a run of complete groups, and all together are more
        precise.  Whether they know a run depends on the noise of the first table.  So two intervals of 95 %, each used
        where it is known, would together hold less often.  Instead, every possible count has a fixed split of the 5 %.
        It belongs to the interval if the first table and all tables together are as close to it as the split allows.
        The second condition is left out for runs that the later tables do not know.  So each true count is missed with
        at most 5 %, however groups were formed.  The splits depend on the count and on the size of noise alone.

        The noise of nested first tables decided on groups as well.  A run of complete nested groups is answered by the
        first tables alone.  Which of them know it is public, so their pooled noise needs no splits.

        Without a first table, the interval of a run of incomplete groups goes from the sum of its complete groups to
        the sum of all groups that it touches.
        """
        sums = [_RunSums.of_table(table, runs, size) for table in self._tables]
        numbers = np.concatenate([np.stack([each.inside, each.touched]) for each in sums])
        patterns, place = np.unique(numbers, axis=1, return_inverse=True)
        low, high = np.zeros(size), np.zeros(size)
        for pattern in range(patterns.shape[1]):
            alike = place.reshape(-1) == pattern
            low[alike], high[alike] = self._alike_intervals([each.at(alike) for each in sums], simultaneous)
        return np.maximum(low, 0.0), np.maximum(high, 0.0)

    @property
    def _tables(self) -> tuple[PooledMarginal, ...]:
        return self.later if self.first is None else (self.first, *self.nested, *self.later)

    def _alike_intervals(self, sums: Sequence[_RunSums], simultaneous: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals of runs that have equally many groups in each table."""
        firsts = [each.counts for each in sums[: 1 + len(self.nested)] if each.complete]
        public = self.first is not None and len(firsts) > 1
        known = firsts if public else [each.counts for each in sums if each.complete]
        if self.first is not None and sums[0].complete and not public:
            return _split_intervals(known, _SPLITS if self.later else _FIRST_ONLY, simultaneous)
        if not known:
            return sums[0].ends(simultaneous)
        pooled = combined(known)
        bound, counts = pooled.noise_bound(simultaneous=simultaneous), pooled.counts.astype(np.float64)
        return counts - bound, counts + bound


@dataclass(frozen=True, eq=False)
class _RunSums:
    """The counts of a table summed over runs of codes: over groups inside a run, and over groups that it touches.

    Attributes:
        table: the table of one attribute.
        inner, outer: sums of its counts, shape ``(runs,)``.
        inside, touched: numbers of groups in these sums, shape ``(runs,)``.
    """

    table: PooledMarginal
    inner: FloatArray
    outer: FloatArray
    inside: NDArray[np.int64]
    touched: NDArray[np.int64]

    @staticmethod
    def of_table(table: PooledMarginal, runs: NDArray[np.int64], size: int) -> _RunSums:
        """Sum the counts of a table of one attribute over runs of codes: ``runs`` has a number per code."""
        (groups,) = table.groups
        keys, codes = np.unique(runs * table.counts.size + groups, return_counts=True)
        run, group = np.divmod(keys, table.counts.size)
        inside = codes == np.bincount(groups)[group]
        counts = table.counts[group].astype(np.float64)
        inner = np.bincount(run[inside], weights=counts[inside], minlength=size)
        outer = np.bincount(run, weights=counts, minlength=size)
        numbers = np.bincount(run[inside], minlength=size), np.bincount(run, minlength=size)
        return _RunSums(table, inner.astype(np.float64), outer.astype(np.float64), *numbers)

    def at(self, chosen: NDArray[np.bool_]) -> _RunSums:
        """Return the sums over some of the runs."""
        return replace(
            self,
            inner=self.inner[chosen],
            outer=self.outer[chosen],
            inside=self.inside[chosen],
            touched=self.touched[chosen],
        )

    @property
    def complete(self) -> bool:
        """Return True if the runs, of equally many groups, hold complete groups only."""
        return bool(self.inside[0] == self.touched[0])

    @property
    def counts(self) -> PooledMarginal:
        """The counts of runs of equally many complete groups."""
        return replace(self.table, counts=self.inner, groups=(), summed=self.table.summed * int(self.inside[0]))

    def ends(self, simultaneous: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals of runs of equally many groups, which may be parts of groups."""
        inside, touched = int(self.inside[0]), int(self.touched[0])
        below = self.table.noise_bound(counts=inside, simultaneous=simultaneous) if inside else 0
        return self.inner - below, self.outer + self.table.noise_bound(counts=touched, simultaneous=simultaneous)


def _split_intervals(
    parts: Sequence[PooledMarginal], splits: Sequence[_Split], simultaneous: int
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of intervals by splits of the misses; the first of the independent ``parts`` is the first table.

    If no count is close enough, the interval goes from the lower to the higher of both estimates.
    """
    first, pooled = parts[0], combined(parts)
    low, high, start = np.full(first.counts.shape, np.inf), np.full(first.counts.shape, -np.inf), 0.0
    for split in splits:
        end = split.end * first.deviation
        above = first.noise_bound(simultaneous=simultaneous, missed=2 * split.above)
        below = first.noise_bound(simultaneous=simultaneous, missed=2 * split.below)
        lower, upper = np.maximum(first.counts - below, start), np.minimum(first.counts + above, end)
        if len(parts) > 1:
            bound = pooled.noise_bound(simultaneous=simultaneous, missed=split.pooled)
            lower, upper = np.maximum(lower, pooled.counts - bound), np.minimum(upper, pooled.counts + bound)
        accepted = lower <= upper
        low, high = np.where(accepted, np.minimum(low, lower), low), np.where(accepted, np.maximum(high, upper), high)
        start = end
    neither = low > high
    low = np.where(neither, np.minimum(first.counts, pooled.counts), low)
    return low, np.where(neither, np.maximum(first.counts, pooled.counts), high)


def measured_column(tables: Sequence[NoisyTable], name: str, domain: Domain) -> MeasuredColumn | None:
    """Return the noisy tables that hold an attribute; None if there are none.

    If noise is below a few rows, only the most precise table of the finest groups is used.
    """
    held = [(table.fresh, summed_table(table, (name,), domain)) for table in tables if name in table.attributes]
    best = pooled_marginal(tables, (name,), domain)
    if best is None:
        return None
    if min(table.noise.variance for _, table in held) < LEAST_POOLED:
        return MeasuredColumn(None, (best,))
    first = None if all(fresh for fresh, _ in held) or never_grouped((name,), domain) else best
    later = [table for fresh, table in held if fresh or first is None]
    nested = [] if first is None else [one for fresh, one in held if not fresh and one.counts.size < first.counts.size]
    ranked = tuple(sorted(later, key=lambda each: (-each.counts.size, each.deviation)))
    return MeasuredColumn(first, ranked, tuple(nested))


@dataclass(frozen=True, eq=False)
class LargestCounts:
    """The largest counts of the values of an attribute: shape ``(codes,)``.

    Attributes:
        table: bounds of the counts in the table; one of them is too small with 1 % at most.
        file: counts in the file, scaled to the rows of the table.
    """

    table: FloatArray
    file: FloatArray


def largest_counts(measured: MeasuredColumn | None, rows: FloatArray) -> LargestCounts | None:
    """Return the largest counts of single values by the first table, and ``rows`` of the file; None without a table."""
    if measured is None or (first := measured.first) is None:
        return None
    (groups,) = first.groups
    bound = first.noise_bound(simultaneous=first.counts.size, missed=2 * _COLUMN_MISSED)
    return LargestCounts(np.maximum(first.counts[groups] + bound, 0.0), rows)


def value_errors(measured: MeasuredColumn, rows: FloatArray, runs: NDArray[np.int64]) -> ValueErrors:
    """Return the errors of an attribute's runs of codes: ``runs`` has a number per code, ``rows`` a count per run."""
    low, high = measured.intervals(runs, len(rows), 1)
    worst = _farthest(rows, *measured.intervals(runs, len(rows), len(rows))).max()
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
            measured, so the error may be all the rows of the group, or of the value.
        misplaced: largest share of the rows that would have to move to another cell, with 95 % confidence.  It is half
            of the sum of the differences of cells, and is larger if file and table have different numbers of rows.
    """

    cells: int
    grouped: bool
    deviation: float
    worst: float
    worst_of_values: float
    misplaced: float


def pair_errors(
    measured: PooledMarginal,
    codes: tuple[CodeArray, CodeArray],
    scale: float,
    largest: tuple[LargestCounts | None, LargestCounts | None] = (None, None),
) -> PairErrors:
    """Return the errors of a measured pair in a file with these codes, which represent ``scale`` rows of the table.

    ``largest`` are the largest counts of the values of both columns, if known.
    """
    rows = (scale * tally(codes, measured.groups, measured.counts.shape)).astype(np.float64)
    cells = measured.counts.size
    off_by = _errors_of_cells(measured, rows, MISSED)
    alone = np.logical_and.outer(*(np.bincount(groups) == 1 for groups in measured.groups))
    of_values = _errors_of_values(measured, rows, largest, alone)
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


def _errors_of_cells(measured: PooledMarginal, rows: FloatArray, missed: Fraction) -> FloatArray:
    bound = measured.noise_bound(simultaneous=measured.counts.size, missed=missed)
    return _farthest(rows, np.maximum(measured.counts - bound, 0.0), np.maximum(measured.counts + bound, 0.0))


def _errors_of_values(
    measured: PooledMarginal,
    rows: FloatArray,
    largest: tuple[LargestCounts | None, LargestCounts | None],
    alone: NDArray[np.bool_],
) -> FloatArray:
    """Return the largest error of the combinations of single values in each cell.

    A combination has at most the rows of its cell, and at most those of each of its values.  The three bounds share the
    misses.  Each column with ``largest`` has its part, whether or not a value is in a group, because the noise behind
    ``largest`` decided on the groups.
    """
    missed = MISSED - sum(_COLUMN_MISSED for each in largest if each is not None)
    bound = measured.noise_bound(simultaneous=measured.counts.size, missed=missed)
    most, rows_in_file = np.maximum(measured.counts + bound, 0.0), rows
    for axis, (each, groups) in enumerate(zip(largest, measured.groups, strict=True)):
        if each is not None:
            shape = [-1 if place == axis else 1 for place in range(2)]
            most = np.minimum(most, _largest_by_group(each.table, groups).reshape(shape))
            rows_in_file = np.minimum(rows_in_file, _largest_by_group(each.file, groups).reshape(shape))
    return np.where(alone, _errors_of_cells(measured, rows, missed), np.maximum(most, rows_in_file))


def _largest_by_group(counts: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
    largest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(largest, groups, counts)
    return largest


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
