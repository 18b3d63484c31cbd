"""Fewer cells for an attribute, decided from its noisy counts: post-processing, so it costs nothing.

Rare codes share one group; neighbouring codes of an ordered attribute share one where the noise cannot
tell their counts apart, as long as the group stays small: codes of like counts may have nothing else in common, and
a group of many people would hide what each code goes with.  A model over groups is smaller, and each of its cells
carries the noise of one.  Within a group rows are shared out evenly or along a fitted slope.

A table of several attributes divides its people over many more cells, so it may join neighbouring groups further, into
:class:`Runs` of its own; the model keeps the groups apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.model.row_sampling import CodeArray, GroupedCells

_Number = TypeVar("_Number", np.int64, np.float64)

RARE = 3.0
"""Standard deviations of noise below which a count cannot be told from none."""

CROWDED = 10.0
"""Standard deviations of noise that the noisy count of neighbours in a group may reach; above it they are cut, where
the pairs and triples that are measured later can tell them apart."""

MOST_CUTS = 4096
"""Places where an ordered attribute may be cut; the best cuts take the square of them.  With more codes than this,
neighbours are taken together from the start, as many as bring the places down to it."""

_LEAST_SHRUNK = 4  # codes in a group from which shrinkage beats the noisy counts themselves


@dataclass(frozen=True, eq=False)
class Coarsening:
    """The group of every code, and how the rows of a group are shared out over its codes.

    ``groups`` has shape ``(codes,)`` with values 0 .. size-1; ``weights`` are not negative.
    """

    groups: NDArray[np.int64]
    weights: NDArray[np.float64]

    @cached_property
    def size(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1

    @cached_property
    def trivial(self) -> bool:
        """Whether every code is its own group, in order."""
        return self.size == len(self.groups) and bool((np.diff(self.groups) > 0).all())

    @cached_property
    def labels(self) -> tuple[int, ...] | None:
        """The groups as a question names them, or None where every code is its own."""
        return None if self.trivial else tuple(self.groups.tolist())

    def labels_in(self, runs: NDArray[np.int64] | None) -> tuple[int, ...] | None:
        """The labels of runs of groups, given the run of each group."""
        if runs is None or len(runs) == runs[-1] + 1:
            return self.labels
        return tuple(runs[self.groups].tolist())

    def merge(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of counts, shape ``(codes,)``, over the groups."""
        sums: NDArray[np.float64] = np.bincount(self.groups, weights=counts, minlength=self.size).astype(np.float64)
        return sums

    def shares(self) -> NDArray[np.float64]:
        """Share of each code in its group: shape ``(codes,)``; zeros in a group without any weight."""
        sums = self.merge(self.weights)
        return self.weights / np.where(sums > 0, sums, 1.0)[self.groups]

    def restricted(self, allowed: NDArray[np.bool_]) -> Coarsening:
        """The same groups, shared out over the allowed codes alone; a group without any must not be drawn."""
        return Coarsening(self.groups, np.where(allowed, self.weights, 0.0))

    def expand(self, groups: CodeArray, generator: np.random.Generator) -> CodeArray:
        """For every row a code of its group, shared out by weight and rounded, not drawn."""
        if self.trivial:
            return groups
        return self._codes_by_group.give(groups, generator)[0]

    @cached_property
    def _codes_by_group(self) -> GroupedCells:
        codes = np.argsort(self.groups, kind="stable")
        kept = codes.astype(np.min_scalar_type(len(codes) - 1))
        return GroupedCells(self.weights[codes], np.cumsum(np.bincount(self.groups)), (kept,))


def identity(size: int) -> Coarsening:
    """Every code its own group."""
    return Coarsening(np.arange(size), np.ones(size))


def merge_rare(
    counts: NDArray[np.float64],
    variance: float,
    *,
    apart: NDArray[np.int64] | None = None,
    levels: Sequence[NDArray[np.int64]] = (),
) -> Coarsening:
    """Groups for the codes whose noisy count is below three standard deviations, each other code its own.

    Rare codes share a group with those of their cell in the finest of ``levels`` at which their noisy counts together
    reach three standard deviations, and those that reach it in none share one.  All is decided by noisy counts.

    Args:
        counts: noisy counts of the codes.
        variance: of the noise on each.
        apart: shape ``(codes,)``; codes with different numbers never share a group: there is one for each number.
        levels: of a declared hierarchy, finest first: the cell of each code, shape ``(codes,)``.

    >>> import numpy as np
    >>> merge_rare(np.array([50.0, 1.0, 40.0, -2.0]), 10.0).groups.tolist()
    [0, 2, 1, 2]
    >>> merge_rare(np.array([50.0, 8.0, 7.0, 1.0, -2.0]), 10.0, levels=[np.array([0, 1, 1, 2, 2])]).groups.tolist()
    [0, 1, 1, 2, 2]
    """
    rare = counts < RARE * np.sqrt(variance)
    if rare.sum() < 2 or (rare.all() and not len(levels)):  # noqa: PLR2004  (one code alone has nothing to share with)
        return identity(len(counts))
    kind = np.zeros(len(counts), dtype=np.int64) if apart is None else apart
    groups, size = _shared_groups(counts, variance, rare, kind, levels)
    if size == 1:  # all that is left of the table is one group
        return identity(len(counts))
    return Coarsening(groups, _weights(groups, counts, variance, lines=False))


def _shared_groups(
    counts: NDArray[np.float64],
    variance: float,
    rare: NDArray[np.bool_],
    kind: NDArray[np.int64],
    levels: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], int]:
    """Return the group of each code, and the number of groups; only rare codes of one kind share a group."""
    groups = np.cumsum(~rare) - 1
    size = int((~rare).sum())
    left = rare.copy()
    for cells in levels:
        for of, cell in np.unique(np.stack([kind[left], cells[left]], axis=1), axis=0):
            members = left & (kind == of) & (cells == cell)
            if counts[members].sum() >= RARE * np.sqrt(variance * members.sum()):
                groups[members], size = size, size + 1
                left &= ~members
    for of in np.unique(kind[left]):
        groups[left & (kind == of)], size = size, size + 1
    return groups, size


def merge_neighbours(
    counts: NDArray[np.float64],
    variance: float,
    ordered: int,
    *,
    crowded: float = CROWDED,
    apart: NDArray[np.int64] | None = None,
) -> Coarsening:
    """Runs of neighbouring codes among the first ``ordered``: the piecewise constant histogram that minimises
    squared error plus a charge a run (Jackson and others 2005, "An algorithm for optimal partitioning"), among those
    whose runs of several codes count at most ``crowded`` standard deviations.

    The charge, ``2 ln(places to cut) + 1`` noise variances, is what the noise alone gains by the best of all cuts.
    Codes after the first ``ordered`` (missing, unknown) stay their own groups.  Codes with different numbers in
    ``apart``, shape ``(codes,)``, never share one.
    """
    starts = np.arange(0, ordered, -(-ordered // MOST_CUTS))  # of what is never cut
    forced = np.zeros(0, dtype=np.int64) if apart is None else np.flatnonzero(np.diff(apart[:ordered])) + 1
    starts = np.union1d(starts, forced)
    widths = np.diff(starts, append=ordered).astype(np.float64)
    cut = _cheapest_cuts(
        np.add.reduceat(counts[:ordered], starts),
        widths,
        variance,
        crowded=crowded * np.sqrt(variance),
        forced=np.searchsorted(starts, forced),
    )
    first = np.ones(len(counts), dtype=np.int64)
    first[:ordered] = 0
    first[starts[cut]] = 1
    groups = np.cumsum(first) - 1
    return Coarsening(groups, _weights(groups, counts, variance, lines=True))


def _cheapest_cuts(
    counts: NDArray[np.float64],
    widths: NDArray[np.float64],
    variance: float,
    *,
    crowded: float,
    forced: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Where runs start, by dynamic programming; ``counts`` are sums over ``widths`` codes each.

    A run starts at each of the ``forced`` places at least, and where it would count more than ``crowded``.

    >>> import numpy as np
    >>> nowhere = np.zeros(0, dtype=np.int64)
    >>> _cheapest_cuts(np.full(4, 5.0), np.ones(4), 1.0, crowded=10.0, forced=nowhere).tolist()  # three pass ten
    [2, 0]
    """
    places = len(counts)
    sums = np.concatenate(([0.0], np.cumsum(counts)))
    squares = np.concatenate(([0.0], np.cumsum(counts**2 / widths)))
    codes = np.concatenate(([0.0], np.cumsum(widths)))
    charge = variance * (2 * np.log(max(places, 2)) + 1)
    since = np.zeros(places, dtype=np.int64)  # of each place, where its run may start at the earliest
    since[forced] = forced
    since = np.maximum.accumulate(since)
    best = np.zeros(places + 1)
    last = np.zeros(places + 1, dtype=np.int64)
    for end in range(1, places + 1):
        within = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (codes[end] - codes[:end])
        costs = best[:end] + within + charge
        costs[: since[end - 1]] = np.inf
        costs[:-1][sums[end] - sums[: end - 1] > crowded] = np.inf
        last[end] = int(costs.argmin())
        best[end] = costs[last[end]]
    cuts = [int(last[places])]
    while cuts[-1] > 0:
        cuts.append(int(last[cuts[-1]]))
    return np.array(cuts)


def _weights(
    groups: NDArray[np.int64], counts: NDArray[np.float64], variance: float, *, lines: bool
) -> NDArray[np.float64]:
    """How the rows of a group are likely to lie over its codes: even, or along a line, less what is noise.

    A line is taken where it explains more than two noise variances (Akaike 1974).  What is left of the
    noisy counts around it is shrunk by its signal to noise ratio (James and Stein 1961, positive part).
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
    spread_out = float(rest @ rest)
    kept = max(0.0, 1 - (size - 3) * variance / spread_out) if spread_out > 0 else 0.0
    shrunk: NDArray[np.float64] = np.maximum(expected + kept * rest, 0.0)
    return shrunk if shrunk.any() else np.ones(size)


@dataclass(frozen=True)
class Runs:
    """Neighbouring groups that a table joins: one tuple an attribute of where its runs start, among ``sizes`` groups.

    >>> import numpy as np
    >>> runs = Runs(((0, 2), (0, 1)), (3, 2))
    >>> runs.sum(np.array([[1, 2], [3, 4], [5, 6]])).tolist(), runs.spread(np.array([[1, 2], [3, 4]])).tolist()
    ([[4, 6], [5, 6]], [[1, 2], [1, 2], [3, 4]])
    """

    starts: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of runs of each attribute."""
        return tuple(map(len, self.starts))

    @cached_property
    def _joined(self) -> tuple[tuple[int, NDArray[np.int64], NDArray[np.int64]], ...]:
        """Of each axis on which groups are joined: the axis, where runs start, how long they are."""
        return tuple(
            (axis, np.array(starts), np.diff(starts, append=size))
            for axis, (starts, size) in enumerate(zip(self.starts, self.sizes, strict=True))
            if len(starts) < size
        )

    def sum(self, table: NDArray[_Number]) -> NDArray[_Number]:
        """A table over groups, one axis an attribute, summed over runs."""
        for axis, starts, _ in self._joined:
            table = np.add.reduceat(table, starts, axis=axis)
        return table

    def spread(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """A table over groups that holds in each cell the number of its runs."""
        for axis, _, lengths in self._joined:
            table = np.repeat(table, lengths, axis=axis)
        return table

    def finest(self) -> Runs:
        """Every group a run by itself.

        >>> Runs(((0, 3),), (5,)).finest().starts
        ((0, 1, 2, 3, 4),)
        """
        return Runs(tuple(tuple(range(size)) for size in self.sizes), self.sizes)

    def labels(self, axis: int) -> NDArray[np.int64]:
        """The run of each group of an attribute."""
        return np.repeat(np.arange(len(self.starts[axis])), np.diff(self.starts[axis], append=self.sizes[axis]))


def join_levels(counts: NDArray[np.float64], ordered: int) -> NDArray[np.float64]:
    """Of each group the least people of a run at which it no longer starts one: shape ``(groups,)``.

    The smallest run is joined to the smaller of its neighbours, again and again; a group stops to start a run when
    that smallest one counts so many people.  Infinite for the first group and for those after the first ``ordered``.

    >>> import numpy as np
    >>> join_levels(np.array([5.0, 1.0, 2.0, 9.0]), 4).tolist()
    [inf, 3.0, 1.0, 8.0]
    """
    levels = np.full(len(counts), np.inf)
    held, starts = np.maximum(counts[:ordered], 0.0), np.arange(ordered)
    reached = 0.0
    while len(held) > 1:
        smallest = int(held.argmin())
        reached = max(reached, float(held[smallest]))
        after = smallest == 0 or (smallest + 1 < len(held) and held[smallest + 1] < held[smallest - 1])
        falls = smallest + 1 if after else smallest
        levels[starts[falls]] = reached
        held[falls - 1] += held[falls]
        held, starts = np.delete(held, falls), np.delete(starts, falls)
    return levels


def runs_of_at_most(cells: float, levels: Sequence[NDArray[np.float64]]) -> Runs:
    """The finest runs with which a table has at most so many cells, or the coarsest where it has more with any.

    All attributes join their groups up to the same number of people in a run (:func:`join_levels`).

    >>> import numpy as np
    >>> runs_of_at_most(6, [np.array([np.inf, 3.0, 1.0, 8.0]), np.full(2, np.inf)]).starts
    ((0, 1, 3), (0, 1))
    """
    steps = np.unique(np.concatenate([np.append(levels_of[np.isfinite(levels_of)], -1.0) for levels_of in levels]))
    kept = [np.count_nonzero(levels_of[None, :] > steps[:, None], axis=1) for levels_of in levels]
    enough = np.flatnonzero(np.prod(np.array(kept, dtype=np.float64), axis=0) <= cells)
    step = steps[enough[0]] if len(enough) else steps[-1]
    return Runs(
        tuple(tuple(np.flatnonzero(levels_of > step).tolist()) for levels_of in levels),
        tuple(len(levels_of) for levels_of in levels),
    )
