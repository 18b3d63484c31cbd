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
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer
from sfumato.errors import LossError
from sfumato.privacy.loss import Number, exact
from sfumato.query.question import Aggregate, Count, Distinct, Extreme, Mean, Quantile, Total, Variance, numeric
from sfumato.query.tally import leaves, sum_unit
from sfumato.query.tree import consistent, increasing, rank_variance

_DIGITS = 10**12

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

    def half_width(self, noise: Noise, numbers: int = 1) -> int:
        """What the noise does not exceed on any of ``numbers`` cells, at the confidence (union bound)."""
        return _half_width(noise, self.confidence, numbers)

    def spread(self, noise: Noise, variance: Floats) -> Floats:
        """Half-width for a sum of noises of this variance: as many standard deviations as one noise needs.

        A sum of independent noises has lighter tails than one of them, at the same variance.
        """
        if not noise.variance:  # at a huge loss: too small for a double
            return np.zeros_like(variance)
        return self.half_width(noise) / math.sqrt(noise.variance) * np.sqrt(variance)

    def _counts(self, counts: Integers, noise: Noise, unit: float) -> Estimates:
        half = self.half_width(noise) * unit
        value = counts.astype(np.float64) * unit
        return Estimates(value, np.full(len(value), math.sqrt(noise.variance) * unit), value - half, value + half)

    def _means(self, mean: Mean, terms: Integers, noise: Noise) -> Estimates:
        low, width = self._scale(mean.of)
        above, below = terms.reshape(-1, 2).T.astype(np.float64)  # units from the maximum, units from the minimum
        half = self.half_width(noise, 2)
        share = _share(below, above)
        error = math.sqrt(noise.variance) * np.hypot(share, 1 - share) / np.maximum(below + above, 1)
        return Estimates(
            low + width * share,
            np.minimum(width * error, width / 2),
            low + width * _least_share(below - half, above + half),
            low + width * (1 - _least_share(above - half, below + half)),
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
        square = width**2
        if not variance.root:
            return Estimates(part * square, error * square, least * square, most * square)
        root = np.sqrt(part)
        half_root = (np.sqrt(most) - np.sqrt(least)) / 2
        spread = np.minimum(error / np.maximum(2 * root, np.sqrt(error) + 1e-300), half_root)
        return Estimates(root * width, spread * width, np.sqrt(least) * width, np.sqrt(most) * width)

    def _quantiles(self, asked: Quantile | Extreme, values: Sequence[Integers], noise: Noise) -> Estimates:
        steps = leaves(self.domain, asked.of)
        groups = len(values[0]) // steps.leaves
        counts = consistent([level.reshape(groups, -1).astype(np.float64) for level in values])
        if isinstance(asked, Extreme) and asked.largest:
            counts = counts[:, ::-1]
        cumulative = np.pad(increasing(np.cumsum(counts, axis=1)), [(0, 0), (1, 0)])
        levels = len(values)
        if isinstance(asked, Extreme):
            worst = rank_variance(np.arange(steps.leaves), np.zeros(1), steps.leaves, levels).max()
            rank = np.broadcast_to(self.spread(noise, np.array(worst * noise.variance)), (groups,))
        else:
            rank = float(asked.probability) * np.maximum(cumulative[:, -1], 0)
        share = np.full(groups, float(asked.probability) if isinstance(asked, Quantile) else 0.0)
        places = np.array([np.searchsorted(row, at) for row, at in zip(cumulative, rank, strict=True)])
        places = np.clip(places, 0, steps.leaves - 1)
        variance = rank_variance(places, share, steps.leaves, levels) * noise.variance
        half, deviation = self.spread(noise, variance), np.sqrt(variance)
        found = [self._at(asked, cumulative, rank + move) for move in (0 * half, -half, half, -deviation, deviation)]
        value, low, high, below, above = found
        if isinstance(asked, Extreme):
            end = numeric(self.domain, asked.of)
            low = np.full(groups, float(end.maximum if asked.largest else end.minimum))
            below, high = low, value
        low, high = np.minimum(low, high), np.maximum(low, high)
        return Estimates(value, np.abs(above - below) / 2, low, high)

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
