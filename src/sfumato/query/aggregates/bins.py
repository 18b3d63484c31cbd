"""Noisy counts of nested bins, from which quantiles, the minimum and the maximum are computed.

Every level divides the bins of the level above into ``BRANCHES``.  Any prefix is then a sum of a few bins of every
level instead of thousands of the finest, and least squares over the tree make the levels agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.model.factor import FloatArray
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import Confidence, ExpectedError
from sfumato.vault.measurables import Measurable
from sfumato.vault.value_measurables import Bins

BRANCHES = 16
LEAVES = BRANCHES**3
HAIR = 1e-6  # rows: the rounding error of sums of floats


@dataclass(frozen=True)
class Ladder:
    """The edges of the levels, finest first.  Leaf i holds the values from ``edges[0][i]`` up to the next edge."""

    attribute: Integer | Real
    edges: tuple[tuple[float, ...], ...]

    @cached_property
    def leaves(self) -> int:
        """The number of bins of the finest level."""
        return len(self.edges[0]) - 1

    def variances(self, probability: float) -> FloatArray:
        """Return the :func:`rank_variance` of each edge: shape ``(leaves + 1,)``."""
        return rank_variance(np.arange(self.leaves + 1), probability, self.leaves, len(self.edges))

    def below_edges(self, levels: Sequence[NDArray[np.int64]], *, from_top: bool = False) -> FloatArray:
        """Return the noisy number of rows before each edge, counted from one end: shape ``(groups, leaves + 1)``."""
        groups = len(levels[0]) // self.leaves
        counts = consistent([level.reshape(groups, -1).astype(np.float64) for level in levels])
        from_end = counts[:, ::-1] if from_top else counts
        return np.pad(np.cumsum(from_end, axis=1), [(0, 0), (1, 0)])

    def values_at(self, cumulative: FloatArray, ranks: FloatArray, *, from_top: bool = False) -> FloatArray:
        """Return the values at the ranks: the integer reached, or a point within the bin as if its rows were spread
        evenly.
        """
        edges = self._edges(from_top=from_top)
        values = np.empty(len(ranks))
        for group, rank in enumerate(ranks):
            row = cumulative[group]
            bin_ = int(np.clip(np.searchsorted(row, rank) - 1, 0, len(row) - 2))
            inside = (rank - row[bin_]) / (row[bin_ + 1] - row[bin_]) if row[bin_ + 1] > row[bin_] else 0.5
            start, end = edges[bin_], edges[bin_ + 1]
            if isinstance(self.attribute, Integer) and abs(end - start) == 1:
                values[group] = min(start, end)
            else:
                values[group] = start + float(np.clip(inside, 0, 1)) * (end - start)
        return np.clip(values, self.attribute.minimum, self.attribute.maximum)

    def ends(
        self, first: NDArray[np.int64], last: NDArray[np.int64], *, from_top: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest value of the bins from ``first`` to ``last``."""
        edges, attribute = self._edges(from_top=from_top), self.attribute
        ends = edges[first], edges[last + 1]
        high = np.maximum(*ends) - (1 if isinstance(attribute, Integer) else 0)  # a bin excludes its right edge
        low = np.clip(np.minimum(*ends), attribute.minimum, attribute.maximum)
        return low, np.clip(high, attribute.minimum, attribute.maximum)

    def _edges(self, *, from_top: bool) -> FloatArray:
        edges = np.array(self.edges[0])
        return edges[::-1] if from_top else edges


def ladder(attribute: Integer | Real) -> Ladder:
    """Return bins of one width: single integers if there are at most 4096 of them, otherwise at most 4096 bins."""
    integers = attribute.maximum - attribute.minimum + 1 if isinstance(attribute, Integer) else None
    return Ladder(attribute, _edges(attribute.minimum, attribute.maximum, integers))


def _edges(minimum: float, maximum: float, values: int | None) -> tuple[tuple[float, ...], ...]:
    """Return the edges of the levels between two bounds, finest first.

    ``values`` is the number of integers between the bounds.
    """
    if values is not None:
        width: float = -(-values // LEAVES)
        needed = -(-values // int(width))
    else:
        needed = LEAVES
        width = (maximum - minimum) / LEAVES
        while minimum + LEAVES * width < maximum:  # rounding must not drop the largest values
            width = math.nextafter(width, math.inf)
    heights = max(1, math.ceil(math.log(needed, BRANCHES) - 1e-9))
    step = BRANCHES ** (heights - 1)
    total = -(-needed // step) * step
    finest = tuple(float(minimum + place * width) for place in range(total + 1))
    return tuple(finest[:: BRANCHES**height] for height in range(heights))


def consistent(levels: Sequence[FloatArray]) -> FloatArray:
    """Return least-squares leaves from noisy counts of all levels, finest first, of equal variance.

    Source: Hay, Rastogi, Miklau, Suciu 2010, Theorem 3, for the trees under each bin of the coarsest level.

    Args:
        levels: noisy counts, shape ``(groups, bins of the level)``.

    Returns:
        Shape ``(groups, leaves)``.
    """
    branches = BRANCHES
    up = [levels[0]]
    for height in range(1, len(levels)):
        below = up[-1].reshape(len(up[-1]), -1, branches).sum(axis=2)
        power, lower = float(branches ** (height + 1)), float(branches**height)
        own = (power - lower) / (power - 1)
        up.append(own * levels[height] + (1 - own) * below)
    down = up[-1]
    for level in reversed(up[:-1]):
        family = level.reshape(len(level), -1, branches)
        family = family + ((down - family.sum(axis=2)) / branches)[:, :, None]
        down = family.reshape(len(level), -1)
    leaves: FloatArray = down
    return leaves


def increasing(cumulative: FloatArray) -> FloatArray:
    """Return non-decreasing counts: midway between the running maximum and the running minimum from the right."""
    rising = np.maximum.accumulate(cumulative, axis=-1)
    falling = np.minimum.accumulate(cumulative[..., ::-1], axis=-1)[..., ::-1]
    return (rising + falling) / 2


def rank_variance(places: NDArray[np.int64], probability: float, leaves: int, levels: int) -> FloatArray:
    """Bound the variance of (count below ``places``) - probability * (count of all), in variances of one bin.

    The bound is the variance of an estimate that adds the fewest bins from the coarsest level down and takes the total
    from the coarsest level.  Least squares over the same counts do at least as well (Gauss and Markov).
    """
    top = leaves // BRANCHES ** (levels - 1)
    coarsest, rest = np.divmod(places, BRANCHES ** (levels - 1))
    variance: FloatArray = (1 - probability) ** 2 * coarsest + probability**2 * (top - coarsest)
    for height in range(levels - 2, -1, -1):
        bins, rest = np.divmod(rest, BRANCHES**height)
        variance = variance + np.minimum(bins, BRANCHES - bins + 1)
    return variance


def possible_bins(gap: FloatArray, margin: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last bin that may contain the quantile, for each group.

    ``gap``, shape ``(groups, edges)``, is the noisy count below an edge minus the noisy rank.  Without noise, the bin
    of the quantile has no gap above zero at its left edge and no gap below zero at its right edge.  So the bin is
    excluded wrongly only if the noise at one of these two edges exceeds its margin on one side.
    """
    possible = (gap[:, 1:] >= -margin[1:] - HAIR) & (gap[:, :-1] <= margin[:-1] + HAIR)
    nearest = np.abs(gap[:, 1:]).argmin(axis=1)  # if no bin remains: the noise exceeds all margins
    some = possible.any(axis=1)
    last = possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
    return np.where(some, possible.argmax(axis=1), nearest), np.where(some, last, nearest)


def outermost_bins(below_edges: FloatArray, margin: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last bin that may contain the outermost row, counted from the end.

    The last bin ends at the first edge from which on every noisy count below exceeds the noise margin.  There is a row
    before that edge, unless the noise exceeds its margin at the edge where the first rows begin.  The bins before the
    first one are empty: the noise margin leaves less than one row below them.  At most losses there are none.
    """
    clear = below_edges[:, 1:] > margin[1:] + HAIR  # at a huge loss the margin is zero
    all_on = np.logical_and.accumulate(clear[:, ::-1], axis=1)[:, ::-1]
    last = np.where(all_on.any(axis=1), all_on.argmax(axis=1), clear.shape[1] - 1)
    empty = np.logical_and.accumulate(below_edges[:, 1:] + margin[1:] < 1 - HAIR, axis=1).sum(axis=1)
    return np.where(empty < clear.shape[1], np.minimum(empty, last), 0), last


def leaves(domain: Domain, name: str) -> Ladder:
    """Return the bins of an attribute's quantiles, from the finest to the coarsest."""
    return ladder(numeric(domain, name))


def nested_bins(domain: Domain, of: str, by: tuple[str, ...], where: Predicate | None) -> tuple[Measurable, ...]:
    """Return the counts of the bins of an attribute, level by level."""
    return tuple(Bins(of, edges, by, where) for edges in leaves(domain, of).edges)


def rank_error(name: str, noise: Noise, confidence: Confidence, bins: Ladder, share: float) -> ExpectedError:
    """Return a bound on the error of the rank of a quantile, in rows."""
    worst = bins.variances(share)[:-1].max()
    half = confidence.interval_half_width(noise, np.array(worst * noise.variance))
    return ExpectedError(name, math.sqrt(noise.variance) * math.sqrt(worst), float(half), "rank")
