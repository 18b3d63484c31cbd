"""Merge the codes of an attribute into groups by their noisy counts.  This is post-processing, so it costs nothing.

Rare codes share one group.  Neighboring codes of an ordered attribute share a group if noise hides the difference of
their counts and the group stays small.  A large group would hide how its codes differ in other attributes.  A model
over groups is smaller, and each of its cells carries the noise of one.  Within a group, rows are spread evenly or along
a fitted slope.

A table of several attributes has many more cells.  It may join neighboring groups further, into :class:`Runs` of its
own.  The model still distinguishes the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.model.row_sampling import CodeArray, GroupedCells

_Number = TypeVar("_Number", np.int64, np.float64)

RARE = 3.0
"""Standard deviations of noise below which a count is treated as zero."""

MAX_GROUP_DEVIATIONS = 10.0
"""Largest noisy count of a group of neighbors, in standard deviations of its noise.

A larger group is cut, because the pairs and triples that are measured later can distinguish its codes.
"""

MOST_CUTS = 4096
"""Largest number of places where an ordered attribute may be cut.  The search for the best cuts takes its square.

An attribute with more codes starts from runs of neighbors, so that it has no more places than this.
"""

LEAST_RUNS = 4
"""Least number of runs of an ordered attribute next to one whose values cannot be joined, if it has so many groups.

Fewer runs may leave a pair that only repeats a column, so that its distance shows no dependence.
"""

_LEAST_SHRUNK = 4  # codes in a group from which shrinkage beats the noisy counts themselves


@dataclass(frozen=True, eq=False)
class Coarsening:
    """The group of every code, and the weights that spread the rows of a group over its codes.

    ``groups`` has shape ``(codes,)`` with values 0 .. size-1; ``weights`` are not negative.
    """

    groups: NDArray[np.int64]
    weights: NDArray[np.float64]
    _labels: dict[bytes, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def size(self) -> int:
        """Return the number of groups."""
        return int(self.groups.max()) + 1

    @property
    def trivial(self) -> bool:
        """Return True if every code is its own group, in order."""
        return self.size == len(self.groups) and bool((np.diff(self.groups) > 0).all())

    @property
    def labels(self) -> tuple[int, ...] | None:
        """Return the groups as a measurement names them, or None if every code is its own group."""
        return self.labels_in(None)

    def labels_in(self, runs: NDArray[np.int64] | None, *, always: bool = False) -> tuple[int, ...] | None:
        """Return the run of each code, given the run of each group, or None if every code is its own run.

        ``always`` is True if the runs are named then, too.  Questions share equal labels, which may be millions.
        """
        single = runs is None or len(runs) == runs[-1] + 1
        if single and not always and self.trivial:
            return None
        key = b"" if runs is None or single else runs.tobytes()
        if key not in self._labels:
            self._labels[key] = tuple((self.groups if runs is None or single else runs[self.groups]).tolist())
        return self._labels[key]

    def merge(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum counts, shape ``(codes,)``, over the groups."""
        sums: NDArray[np.float64] = np.bincount(self.groups, weights=counts, minlength=self.size).astype(np.float64)
        return sums

    def shares(self) -> NDArray[np.float64]:
        """Return the share of each code in its group: shape ``(codes,)``; zeros in a group without weight."""
        sums = self.merge(self.weights)
        return self.weights / np.where(sums > 0, sums, 1.0)[self.groups]

    def restricted(self, allowed: NDArray[np.bool_]) -> Coarsening:
        """Return the same groups with weights for the allowed codes only.  A group without any allowed code must not be
        drawn.
        """
        return Coarsening(self.groups, np.where(allowed, self.weights, 0.0))

    def expand(self, groups: CodeArray, generator: np.random.Generator) -> CodeArray:
        """Return a code for every row, given its group; codes are spread by weight and rounded, not drawn."""
        if self.trivial:
            return groups
        return self._codes_by_group.give(groups, generator)[0]

    @property
    def _codes_by_group(self) -> GroupedCells:
        codes = np.argsort(self.groups, kind="stable")
        compact_codes = codes.astype(np.min_scalar_type(len(codes) - 1))
        return GroupedCells(self.weights[codes], np.cumsum(np.bincount(self.groups)), (compact_codes,))

    def smoothed(self, wider: Coarsening, counts: NDArray[np.float64]) -> tuple[Coarsening, NDArray[np.float64]]:
        """Return the groups with weights from wider groups, and the smoothed noisy count of each group.

        A large group of neighbors is cut although noise hides how its parts differ.  The smoothed counts of such parts
        lie on one line, or are equal, except for shrunken residuals.  The parts of a wider group keep their noisy
        counts if it has few codes or no positive count.

        Args:
            wider: groups of the same codes, cut only where their counts differ by more than noise.
            counts: noisy counts of the codes.

        >>> counts = np.array([9.0, 12.0, 11.0, 8.0, 50.0])
        >>> halves, runs = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 0, 0, 1])
        >>> groups = Coarsening(halves, np.ones(5))
        >>> groups.smoothed(Coarsening(runs, np.ones(5)), counts)[1].tolist()
        [20.0, 20.0, 50.0]
        """
        sums, sizes = wider.merge(counts), np.bincount(wider.groups)
        spread = np.maximum(sums, 0.0)[wider.groups] * wider.shares()
        known = ((sizes >= _LEAST_SHRUNK) & (sums > 0))[wider.groups]
        return self.weighted(spread), self.merge(np.where(known, spread, counts))

    def weighted(self, weights: NDArray[np.float64]) -> Coarsening:
        """Return the same groups with weights, shape ``(codes,)``; groups without any keep their own."""
        return Coarsening(self.groups, np.where(self.merge(weights)[self.groups] > 0, weights, self.weights))


def identity(size: int) -> Coarsening:
    """Return a coarsening in which every code is its own group."""
    return Coarsening(np.arange(size), np.ones(size))


def merge_rare(
    counts: NDArray[np.float64],
    variance: float,
    *,
    strata: NDArray[np.int64] | None = None,
    levels: Sequence[NDArray[np.int64]] = (),
) -> Coarsening:
    """Merge the codes whose noisy count is below three standard deviations; every other code is its own group.

    Rare codes share a group with the rare codes of their cell in a hierarchy.  The cell is from the finest level at
    which their noisy counts add up to three standard deviations.  Codes without such a level share one group.  Only
    noisy counts are read.

    Args:
        counts: noisy counts of the codes.
        variance: of the noise on each count.
        strata: shape ``(codes,)``; codes of different strata never share a group.
        levels: levels of a declared hierarchy, finest first: the cell of each code, shape ``(codes,)``.

    >>> import numpy as np
    >>> merge_rare(np.array([50.0, 1.0, 40.0, -2.0]), 10.0).groups.tolist()
    [0, 2, 1, 2]
    >>> merge_rare(np.array([50.0, 8.0, 7.0, 1.0, -2.0]), 10.0, levels=[np.array([0, 1, 1, 2, 2])]).groups.tolist()
    [0, 1, 1, 2, 2]
    """
    rare = counts < RARE * np.sqrt(variance)
    if rare.sum() < 2 or (rare.all() and not len(levels)):  # noqa: PLR2004  (one code alone has nothing to share with)
        return identity(len(counts))
    strata = np.zeros(len(counts), dtype=np.int64) if strata is None else strata
    groups, size = _shared_groups(counts, variance, rare, strata, levels)
    if size == 1:  # all other codes of the table form one group
        return identity(len(counts))
    return Coarsening(groups, _weights(groups, counts, variance, lines=False))


def _shared_groups(
    counts: NDArray[np.float64],
    variance: float,
    rare: NDArray[np.bool_],
    strata: NDArray[np.int64],
    levels: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], int]:
    """Return the group of each code, and the number of groups; only rare codes of one stratum share a group."""
    groups = np.cumsum(~rare) - 1
    size = int((~rare).sum())
    left = rare.copy()
    for cells in levels:
        for of, cell in np.unique(np.stack([strata[left], cells[left]], axis=1), axis=0):
            members = left & (strata == of) & (cells == cell)
            if counts[members].sum() >= RARE * np.sqrt(variance * members.sum()):
                groups[members], size = size, size + 1
                left &= ~members
    for of in np.unique(strata[left]):
        groups[left & (strata == of)], size = size, size + 1
    return groups, size


def merge_neighbours(
    counts: NDArray[np.float64],
    variance: float,
    ordered_count: int,
    *,
    max_deviations: float = MAX_GROUP_DEVIATIONS,
    strata: NDArray[np.int64] | None = None,
    cuts: int = MOST_CUTS,
) -> Coarsening:
    """Merge runs of neighboring codes among the first ``ordered_count``.

    The runs are the piecewise constant histogram that minimizes squared error plus a penalty for each run (Jackson and
    others 2005, "An algorithm for optimal partitioning").  A run of several codes counts at most ``max_deviations``
    standard deviations.  The penalty, ``2 ln(places to cut) + 1`` noise variances, is the gain of the best cut of noise
    alone.  Later codes (missing, unknown) stay separate groups.  Codes with different numbers in ``strata``, shape
    ``(codes,)``, never share a group.  There are at most ``cuts`` further places to cut.
    """
    width = -(-ordered_count // min(cuts, MOST_CUTS))  # of pieces that are never cut
    starts = np.arange(0, ordered_count, width)
    forced = np.zeros(0, dtype=np.int64) if strata is None else np.flatnonzero(np.diff(strata[:ordered_count])) + 1
    starts = np.union1d(starts, forced)
    widths = np.diff(starts, append=ordered_count).astype(np.float64)
    cut = _cheapest_cuts(
        np.add.reduceat(counts[:ordered_count], starts),
        widths,
        variance,
        max_count=max_deviations * np.sqrt(variance),
        forced=np.searchsorted(starts, forced),
    )
    first = np.ones(len(counts), dtype=np.int64)
    first[:ordered_count] = 0
    first[starts[cut]] = 1
    groups = np.cumsum(first) - 1
    return Coarsening(groups, _weights(groups, counts, variance, lines=True))


def merge_pieces(
    counts: NDArray[np.float64],
    variances: NDArray[np.float64],
    widths: NDArray[np.float64],
    *,
    max_deviations: float = MAX_GROUP_DEVIATIONS,
) -> NDArray[np.int64]:
    """Return the run of each piece of an ordered attribute, by the rule of :func:`merge_neighbours`.

    A piece has ``widths`` codes and one noisy count, whose noise has a variance of its own.

    >>> import numpy as np
    >>> merge_pieces(np.array([9.0, 11.0, 90.0, 1.0]), np.ones(4), np.array([10.0, 10.0, 1.0, 10.0])).tolist()
    [0, 1, 2, 3]
    >>> merge_pieces(np.array([4.0, 5.0, 90.0, 1.0]), np.ones(4), np.array([10.0, 10.0, 1.0, 10.0])).tolist()
    [0, 0, 1, 2]
    """
    usual = float(np.median(variances))
    cut = _cheapest_cuts(
        counts,
        widths,
        usual,
        max_count=max_deviations * np.sqrt(usual),
        forced=np.zeros(0, dtype=np.int64),
        precision=widths * usual / variances,
    )
    first = np.zeros(len(counts), dtype=np.int64)
    first[cut] = 1
    return np.cumsum(first) - 1


def _cheapest_cuts(
    counts: NDArray[np.float64],
    widths: NDArray[np.float64],
    variance: float,
    *,
    max_count: float,
    forced: NDArray[np.int64],
    precision: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Return the starts of runs, by dynamic programming; ``counts`` are sums over ``widths`` codes each.

    A run starts at each of the ``forced`` places, and wherever it would otherwise count more than ``max_count``.  The
    variance of a count is ``variance`` for each code, divided by its ``precision`` (default: 1).

    >>> import numpy as np
    >>> nowhere = np.zeros(0, dtype=np.int64)
    >>> _cheapest_cuts(np.full(4, 5.0), np.ones(4), 1.0, max_count=10.0, forced=nowhere).tolist()  # three pass ten
    [2, 0]
    """
    places = len(counts)
    precision = np.ones(places) if precision is None else precision
    sums = np.concatenate(([0.0], np.cumsum(counts)))
    weighted = np.concatenate(([0.0], np.cumsum(precision * counts)))
    squares = np.concatenate(([0.0], np.cumsum(precision * counts**2 / widths)))
    codes = np.concatenate(([0.0], np.cumsum(precision * widths)))
    charge = variance * (2 * np.log(max(places, 2)) + 1)
    since = np.zeros(places, dtype=np.int64)  # earliest start of the run of each place
    since[forced] = forced
    since = np.maximum.accumulate(since)
    best = np.zeros(places + 1)
    last = np.zeros(places + 1, dtype=np.int64)
    for end in range(1, places + 1):
        within = squares[end] - squares[:end] - (weighted[end] - weighted[:end]) ** 2 / (codes[end] - codes[:end])
        costs = best[:end] + within + charge
        costs[: since[end - 1]] = np.inf
        costs[:-1][sums[end] - sums[: end - 1] > max_count] = np.inf
        last[end] = int(costs.argmin())
        best[end] = costs[last[end]]
    cuts = [int(last[places])]
    while cuts[-1] > 0:
        cuts.append(int(last[cuts[-1]]))
    return np.array(cuts)


def _weights(
    groups: NDArray[np.int64], counts: NDArray[np.float64], variance: float, *, lines: bool
) -> NDArray[np.float64]:
    """Estimate how the rows of a group spread over its codes: evenly or along a line, with shrunken residuals.

    A line is used if it explains more than two noise variances (Akaike 1974).  The residuals of the noisy counts are
    shrunk by their signal to noise ratio (James and Stein 1961, positive part).
    """
    weights = np.ones(len(groups))
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    for codes in members:
        if len(codes) >= _LEAST_SHRUNK:
            weights[codes] = _shrunk(counts[codes], variance, line=lines)
    return weights


def _shrunk(counts: NDArray[np.float64], variance: float, *, line: bool) -> NDArray[np.float64]:
    size = len(counts)
    expected = np.full(size, counts.mean())
    places = np.arange(size) - (size - 1) / 2
    slope = float(places @ counts / (places @ places))
    if line and slope**2 * (places @ places) > 2 * variance:
        expected += slope * places
    rest = counts - expected
    squared_residual = float(rest @ rest)
    shrinkage = max(0.0, 1 - (size - 3) * variance / squared_residual) if squared_residual > 0 else 0.0
    shrunk: NDArray[np.float64] = np.maximum(expected + shrinkage * rest, 0.0)
    return shrunk if shrunk.any() else np.ones(size)


@dataclass(frozen=True)
class Runs:
    """Runs of neighboring groups that a table joins: the starts of runs among ``sizes`` groups, for each attribute.

    >>> import numpy as np
    >>> runs = Runs(((0, 2), (0, 1)), (3, 2))
    >>> runs.sum(np.array([[1, 2], [3, 4], [5, 6]])).tolist(), runs.spread(np.array([[1, 2], [3, 4]])).tolist()
    ([[4, 6], [5, 6]], [[1, 2], [1, 2], [3, 4]])
    """

    starts: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of runs of each attribute."""
        return tuple(map(len, self.starts))

    @cached_property
    def _joined(self) -> tuple[tuple[int, NDArray[np.int64], NDArray[np.int64]], ...]:
        """Return the axes on which groups are joined, each with the starts and lengths of its runs."""
        return tuple(
            (axis, np.array(starts), np.diff(starts, append=size))
            for axis, (starts, size) in enumerate(zip(self.starts, self.sizes, strict=True))
            if len(starts) < size
        )

    def sum(self, table: NDArray[_Number]) -> NDArray[_Number]:
        """Sum a table over groups, one axis for each attribute, over runs."""
        for axis, starts, _ in self._joined:
            table = np.add.reduceat(table, starts, axis=axis)
        return table

    def spread(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Repeat the number of each run in all groups of the run."""
        for axis, _, lengths in self._joined:
            table = np.repeat(table, lengths, axis=axis)
        return table

    def visible(self, table: NDArray[np.float64], least: float) -> int:
        """Return the rounded number of cells over runs with at least ``least`` people; other cells count in part.

        The result is at least one.

        >>> import numpy as np
        >>> Runs(((0, 2), (0, 1)), (3, 2)).visible(np.array([[4.0, 1.0], [2.0, 1.0], [0.0, 9.0]]), 4.0)
        2
        """
        return max(1, round(float(np.minimum(self.sum(table) / least, 1.0).sum())))

    def finest(self) -> Runs:
        """Return runs of one group each.

        >>> Runs(((0, 3),), (5,)).finest().starts
        ((0, 1, 2, 3, 4),)
        """
        return Runs(tuple(tuple(range(size)) for size in self.sizes), self.sizes)

    def labels(self, axis: int) -> NDArray[np.int64]:
        """Return the run of each group of an attribute."""
        return np.repeat(np.arange(len(self.starts[axis])), np.diff(self.starts[axis], append=self.sizes[axis]))


def join_levels(counts: NDArray[np.float64], ordered_count: int) -> NDArray[np.float64]:
    """Return, for each group, the size of the smallest run when the group stops being a start of a run.

    The smallest run joins the smaller of its neighbors, until a single run remains.  The level of a group, shape
    ``(groups,)``, is the largest count of a smallest run until then.  It is infinite for the first group and for groups
    after the first ``ordered_count``.

    >>> import numpy as np
    >>> join_levels(np.array([5.0, 1.0, 2.0, 9.0]), 4).tolist()
    [inf, 3.0, 1.0, 8.0]
    """
    levels = np.full(len(counts), np.inf)
    people, starts = np.maximum(counts[:ordered_count], 0.0), np.arange(ordered_count)
    reached = 0.0
    while len(people) > 1:
        smallest = int(people.argmin())
        reached = max(reached, float(people[smallest]))
        after = smallest == 0 or (smallest + 1 < len(people) and people[smallest + 1] < people[smallest - 1])
        falls = smallest + 1 if after else smallest
        levels[starts[falls]] = reached
        people[falls - 1] += people[falls]
        people, starts = np.delete(people, falls), np.delete(starts, falls)
    return levels


def with_least_runs(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the levels (:func:`join_levels`) so that the last :data:`LEAST_RUNS` runs are never joined.

    >>> import numpy as np
    >>> with_least_runs(np.array([np.inf, 3.0, 1.0, 8.0, 2.0])).tolist()
    [inf, inf, 1.0, inf, inf]
    """
    last = np.argsort(-levels, kind="stable")[:LEAST_RUNS]
    return np.where(np.isin(np.arange(len(levels)), last), np.inf, levels)


def runs_of_at_most(cells: float, levels: Sequence[NDArray[np.float64]]) -> Runs:
    """Return the finest runs that leave a table at most ``cells`` cells, or the coarsest if none do.

    All attributes join their groups up to the same number of people in a run (:func:`join_levels`).

    >>> import numpy as np
    >>> runs_of_at_most(6, [np.array([np.inf, 3.0, 1.0, 8.0]), np.full(2, np.inf)]).starts
    ((0, 1, 3), (0, 1))
    """
    steps = np.unique(np.concatenate([np.append(levels_of[np.isfinite(levels_of)], -1.0) for levels_of in levels]))
    run_counts = [np.count_nonzero(levels_of[None, :] > steps[:, None], axis=1) for levels_of in levels]
    enough = np.flatnonzero(np.prod(np.array(run_counts, dtype=np.float64), axis=0) <= cells)
    step = steps[enough[0]] if len(enough) else steps[-1]
    return Runs(
        tuple(tuple(np.flatnonzero(levels_of > step).tolist()) for levels_of in levels),
        tuple(len(levels_of) for levels_of in levels),
    )
