"""From noisy tables to estimates with their errors: post-processing, which knows no data.

Intervals hold for each number on its own, at the confidence asked for, over the noise alone: they say
how far the exact answer of this table may be, not how well the table stands for a population.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer
from sfumato.errors import LossError
from sfumato.privacy.loss import Number, exact
from sfumato.query.answer import Value
from sfumato.query.question import Aggregate, Count, Distinct, Extreme, Mean, Quantile, Total, Variance, numeric
from sfumato.query.tally import leaves, square_unit, sum_unit
from sfumato.query.tree import consistent, increasing, rank_variance

_DIGITS = 10**12
_HAIR = 1e-6  # of a row: what sums of floats may be off

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Noise(Hashable, Protocol):
    """The noise on one cell, as anyone may know it."""

    @property
    def variance(self) -> float:
        """Variance of the noise on one cell."""
        ...

    def quantile(self, probability: Fraction) -> int:
        """The smallest k that the noise does not exceed in size with this probability."""
        ...


@dataclass(frozen=True)
class Estimates:
    """Estimate, standard error and interval for each group: arrays of shape ``(groups,)``."""

    value: Floats
    error: Floats
    low: Floats
    high: Floats


def as_confidence(value: Number) -> Fraction:
    """A confidence, rounded up to twelve digits.

    Raises:
        LossError: it is not a number above 0 and at most 1 - 10^-12; intervals of more would take for ever.
    """
    rounded = Fraction(math.ceil(exact(value, name="confidence") * _DIGITS), _DIGITS)
    if not 0 < rounded < 1:
        raise LossError(f"a confidence lies strictly between 0 and 1, with twelve digits, not {value}", culprit=value)
    return rounded


@dataclass(frozen=True)
class Reading:
    """What estimates are made from: the public description, and how sure an interval is to be."""

    domain: Domain
    confidence: Fraction

    def estimates(self, aggregate: Aggregate, values: Sequence[Integers], noise: Noise) -> Estimates:
        """Estimates of one aggregate from its tally: one array a question, all with the same noise a cell."""
        match aggregate:
            case Count() | Distinct():
                return self._counts(values[0], noise, 1.0)
            case Total(of=of):
                return self._counts(values[0], noise, float(sum_unit(self.domain, of)))
            case Mean():
                return self._means(aggregate, values[0], noise)
            case Variance():
                return self._variances(aggregate, values[0], noise)
            case Quantile() | Extreme():
                return self._quantiles(aggregate, values, noise)

    def count(self, noisy: int, noise: Noise) -> Value:
        """One noisy count with its interval."""
        half = self.half_width(noise)
        return Value(float(noisy), math.sqrt(noise.variance), float(noisy - half), float(noisy + half))

    def half_width(self, noise: Noise, numbers: int = 1) -> int:
        """What the noise does not exceed on any of ``numbers`` cells, at the confidence (union bound)."""
        return _half_width(noise, self.confidence, numbers)

    def spread(self, noise: Noise, variance: Floats) -> Floats:
        """Half-width for a sum of noises of this variance: as many standard deviations as one noise or the normal
        distribution needs, whichever are more.

        Sums of independent noises lie between the two; below 90 % of confidence it is the normal one that is wider.
        """
        if not noise.variance:  # at a huge loss: too small for a double
            return np.zeros_like(variance)
        normal = NormalDist().inv_cdf(float(1 + self.confidence) / 2)
        return max(self.half_width(noise) / math.sqrt(noise.variance), normal) * np.sqrt(variance)

    def _counts(self, counts: Integers, noise: Noise, unit: float) -> Estimates:
        half = self.half_width(noise) * unit
        value = counts.astype(np.float64) * unit
        return Estimates(value, np.full(len(value), math.sqrt(noise.variance) * unit), value - half, value + half)

    def _means(self, mean: Mean, terms: Integers, noise: Noise) -> Estimates:
        low, width = self._scale(mean.of)
        above, below = terms.reshape(-1, 2).T.astype(np.float64)  # units from the maximum, units from the minimum
        half, rounded = self.half_width(noise, 2), self._rounding(mean.of, sum_unit(self.domain, mean.of))
        share = _share(below, above)
        error = math.sqrt(noise.variance) * np.hypot(share, 1 - share) / np.maximum(below + above, 1)
        return Estimates(
            low + width * share,
            np.minimum(width * error, width / 2),
            np.maximum(low, low + width * _least_share(below - half, above + half) - rounded),
            np.minimum(low + width, low + width * (1 - _least_share(above - half, below + half)) + rounded),
        )

    def _variances(self, variance: Variance, terms: Integers, noise: Noise) -> Estimates:
        _, width = self._scale(variance.of)
        z, y, x = np.maximum(terms.reshape(-1, 3).T.astype(np.float64), 0)  # the exact sums are never negative
        half = self.half_width(noise, 3)
        rows = np.maximum(x + y + z, 1)
        part = np.clip((x * z - y**2 / 4) / rows**2, 0, 0.25)
        # x z - y^2/4 over n^2 has the gradient (z - 2 part n, -y/2 - 2 part n, x - 2 part n) / n^2
        slope = np.sqrt((z - 2 * part * rows) ** 2 + (y / 2 + 2 * part * rows) ** 2 + (x - 2 * part * rows) ** 2)
        error = np.minimum(math.sqrt(noise.variance) * slope / rows**2, 0.25)
        least, most = _variance_bounds((x, y, z), half)
        rounded = self._rounding(variance.of, square_unit(self.domain, variance.of))
        lowest = np.maximum(np.sqrt(least) * width - rounded, 0)
        highest = np.minimum(np.sqrt(most) * width + rounded, width / 2)
        if not variance.root:
            return Estimates(part * width**2, error * width**2, lowest**2, highest**2)
        root = np.sqrt(part)
        half_root = (np.sqrt(most) - np.sqrt(least)) / 2
        spread = np.minimum(error / np.maximum(2 * root, np.sqrt(error) + 1e-300), half_root)
        return Estimates(root * width, spread * width, lowest, highest)

    def _rounding(self, name: str, unit: Fraction) -> float:
        """How far rounding to the fixed point moves a value: itself and both bounds, each by half a unit."""
        exactly = unit == 1 and isinstance(numeric(self.domain, name), Integer)
        return 0.0 if exactly else 2 * float(unit)

    def _quantiles(self, asked: Quantile | Extreme, values: Sequence[Integers], noise: Noise) -> Estimates:
        steps = leaves(self.domain, asked.of)
        groups, levels = len(values[0]) // steps.leaves, len(values)
        counts = consistent([level.reshape(groups, -1).astype(np.float64) for level in values])
        if isinstance(asked, Extreme) and asked.largest:
            counts = counts[:, ::-1]
        below_edge = np.pad(np.cumsum(counts, axis=1), [(0, 0), (1, 0)])  # (groups, edges)
        cumulative = np.pad(increasing(below_edge[:, 1:]), [(0, 0), (1, 0)])
        share = float(asked.probability) if isinstance(asked, Quantile) else 0.0
        edges = np.arange(steps.leaves + 1)
        variance = rank_variance(edges, np.full(edges.size, share), steps.leaves, levels) * noise.variance
        margin = self.spread(noise, variance)
        if isinstance(asked, Extreme):
            rank = np.full(groups, margin.max())
            first, last = _innermost(below_edge, margin)
        else:
            rank = share * np.maximum(cumulative[:, -1], 0)
            first, last = _possible_bins(below_edge - share * below_edge[:, -1:], margin)
        places = np.array([np.searchsorted(row, at) for row, at in zip(cumulative, rank, strict=True)])
        deviation = np.sqrt(variance[np.clip(places, 0, steps.leaves - 1)])
        value, under, over = (self._at(asked, cumulative, rank + move) for move in (0 * rank, -deviation, deviation))
        low, high = self._ends(asked, first, last)
        if isinstance(asked, Extreme):
            under = high if asked.largest else low
        return Estimates(value, np.abs(over - under) / 2, np.minimum(low, value), np.maximum(high, value))

    def _ends(self, asked: Quantile | Extreme, first: Integers, last: Integers) -> tuple[Floats, Floats]:
        """The least and the largest value of the bins from ``first`` to ``last``."""
        attribute = numeric(self.domain, asked.of)
        edges = np.array(leaves(self.domain, asked.of).edges[0])
        if isinstance(asked, Extreme) and asked.largest:
            edges = edges[::-1]
        ends = edges[first], edges[last + 1]
        high = np.maximum(*ends) - (1 if isinstance(attribute, Integer) else 0)  # the end of a bin is in the next
        low = np.clip(np.minimum(*ends), attribute.minimum, attribute.maximum)
        return low, np.clip(high, attribute.minimum, attribute.maximum)

    def _at(self, asked: Quantile | Extreme, cumulative: Floats, ranks: Floats) -> Floats:
        """Values at the ranks: the integer reached, or a point within the bin as if its rows were spread evenly."""
        attribute = numeric(self.domain, asked.of)
        edges = np.array(leaves(self.domain, asked.of).edges[0])
        if isinstance(asked, Extreme) and asked.largest:
            edges = edges[::-1]
        found = np.empty(len(ranks))
        for group, rank in enumerate(ranks):
            row = cumulative[group]
            bin_ = int(np.clip(np.searchsorted(row, rank) - 1, 0, len(row) - 2))
            inside = (rank - row[bin_]) / (row[bin_ + 1] - row[bin_]) if row[bin_ + 1] > row[bin_] else 0.5
            start, end = edges[bin_], edges[bin_ + 1]
            if isinstance(attribute, Integer) and abs(end - start) == 1:
                found[group] = min(start, end)
            else:
                found[group] = start + float(np.clip(inside, 0, 1)) * (end - start)
        return np.clip(found, attribute.minimum, attribute.maximum)

    def _scale(self, name: str) -> tuple[float, float]:
        """Least value and width of an attribute."""
        attribute = numeric(self.domain, name)
        return float(attribute.minimum), float(attribute.maximum - attribute.minimum)


@lru_cache(maxsize=1024)
def _half_width(noise: Noise, confidence: Fraction, numbers: int) -> int:
    return noise.quantile(1 - (1 - confidence) / numbers)


def _possible_bins(gap: Floats, margin: Floats) -> tuple[Integers, Integers]:
    """The first and the last bin that the quantile may lie in, for each group.

    ``gap``, shape ``(groups, edges)``, is the noisy count below an edge less that of the rank.  The bin of the quantile
    has no exact gap above zero at its left edge and none below at its right one, so it is left out wrongly only where
    the noise on one of these two passes its margin on one side.
    """
    possible = (gap[:, 1:] >= -margin[1:] - _HAIR) & (gap[:, :-1] <= margin[:-1] + _HAIR)
    nearest = np.abs(gap[:, 1:]).argmin(axis=1)  # where none is left, which takes noise beyond all margins
    some = possible.any(axis=1)
    last = possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
    return np.where(some, possible.argmax(axis=1), nearest), np.where(some, last, nearest)


def _innermost(below_edge: Floats, margin: Floats) -> tuple[Integers, Integers]:
    """The bins from the end up to the first edge from which on every noisy count below is more than noise.

    There is a row before that edge, unless the noise passes its margin at the edge where the first rows begin.
    """
    clear = below_edge[:, 1:] > margin[1:] + _HAIR  # at a huge loss the margin is none
    all_on = np.logical_and.accumulate(clear[:, ::-1], axis=1)[:, ::-1]
    last = np.where(all_on.any(axis=1), all_on.argmax(axis=1), clear.shape[1] - 1)
    return np.zeros_like(last), last


def _share(part: Floats, rest: Floats) -> Floats:
    """The quotient part / (part + rest), one half where there is nothing, always between 0 and 1."""
    part, rest = np.maximum(part, 0), np.maximum(rest, 0)
    whole = part + rest
    share: Floats = np.divide(part, whole, out=np.full(len(part), 0.5), where=whole > 0)
    return share


def _least_share(part: Floats, rest: Floats) -> Floats:
    """The least that part / (part + rest) can be, given lower and upper bounds: 0 where nothing is certain."""
    least: Floats = np.where(part > 0, _share(part, rest), 0.0)
    return least


def _variance_bounds(terms: tuple[Floats, Floats, Floats], half: float) -> tuple[Floats, Floats]:
    """Interval arithmetic on (x z - y^2/4) / n^2, in squared widths, where each term is within ``half``."""
    low = [np.maximum(term - half, 0) for term in terms]
    high = [np.maximum(term + half, 0) for term in terms]
    fewest, most = (np.maximum(sum(part), 1) for part in (low, high))
    least = np.maximum(low[0] * low[2] - high[1] ** 2 / 4, 0) / most**2
    largest = np.maximum(high[0] * high[2] - low[1] ** 2 / 4, 0) / fewest**2
    return np.clip(least, 0, 0.25), np.clip(largest, 0, 0.25)
