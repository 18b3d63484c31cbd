"""Ordered values: the distribution of a bounded number over bins, and shares of all ranges of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import parse_integer
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post, frequencies, likeliest, simplex
from sfumato.local.randomizers.composite import Sampled
from sfumato.local.randomizers.integer_table import IntegerTable, smallest
from sfumato.local.randomizers.randomizer import FrequencyOracle, InputCodes, Tally, claimed, derive
from sfumato.local.specs.frequency import Method, codes_of, oracle
from sfumato.local.specs.mean import check_bounds, check_table, numbers
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

LARGEST_BINS = 512
"""Largest number of bins of a distribution; its table has about twice as many outputs."""

LARGEST_RANGE = 1 << 10
"""Largest number of cells of a range domain; consistency solves a dense system of this size."""


@dataclass(frozen=True)
class Distribution(Spec):
    """The shares of equal bins between ``low`` and ``high``.

    Attributes:
        low: left end of the first bin.
        high: right end of the last bin.
        epsilon: the claimed loss of every report, proven in integers from ``randomizer``.
        randomizer: one row per bin, which favors a window of outputs around it.
    """

    low: float
    high: float
    epsilon: Fraction
    randomizer: IntegerTable

    kind: ClassVar[str] = "distribution"
    neighbours: ClassVar[str] = "one person's value replaced by any other value between the bounds"

    def _check(self) -> None:
        check_bounds(self.low, self.high)
        check_table(self.randomizer, LARGEST_BINS)

    @classmethod
    def design(cls, low: float, high: float, *, bins: int, epsilon: Number) -> Distribution:
        """Return a square-wave spec (Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020) with ``bins`` bins.

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InputError: the bounds do not increase, or the number of bins is outside 2 .. 512.
        """
        check_bounds(low, high)
        exact = claimed(epsilon)
        bins = parse_integer(bins, "bins are a whole number")
        if not 2 <= bins <= LARGEST_BINS:  # noqa: PLR2004
            raise InputError(f"a distribution needs from 2 to {LARGEST_BINS} bins, not {bins}", culprit=bins)
        window = max(1, round(2 * half_width(float(exact)) * bins))
        return cls(float(low), float(high), exact, IntegerTable.windows(bins, bins + window - 1, exact))

    @property
    def edges(self) -> NDArray[np.float64]:
        """The edges of the bins, ``(bins + 1,)``."""
        return np.linspace(float(self.low), float(self.high), self.randomizer.inputs + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The intervals of the bins."""
        edges = self.edges
        return tuple(f"[{low:.6g}, {high:.6g})" for low, high in pairwise(edges.tolist()))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:  # noqa: ARG002 -- see Spec
        """Return the bins of values ``(n,)``.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        scaled = (numbers(values, self.low, self.high) - self.low) * (self.randomizer.inputs / (self.high - self.low))
        return np.minimum(scaled.astype(np.uint16), np.uint16(self.randomizer.inputs - 1))

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the shares of the bins.

        Unbiased shares (``Post.NONE``) solve least squares and have a large variance. The published estimator is
        ``Post.SMOOTH``, expectation maximization with smoothing. The stated variance does not include its bias.

        Raises:
            InputError: no reports.
        """
        if reports == 0:
            raise InputError("there are no reports to estimate from")
        channel = self.randomizer.probabilities
        seen = tally / reports
        inverse = np.linalg.pinv(channel.T)  # (bins, outputs)
        values = inverse @ seen
        variance = (np.square(inverse) @ seen - values**2) / reports
        match post:
            case Post.SIMPLEX:
                values = simplex(values)
            case Post.MLE:
                values = likeliest(channel, tally)
            case Post.SMOOTH:
                values = likeliest(channel, tally, smooth=True)
            case Post.NONE:
                pass
        return Estimate(self.labels, values, np.maximum(variance, 0), reports)


@dataclass(frozen=True)
class Range(Spec):
    """Shares of all intervals of an ordered domain of cells ``0 .. size - 1``.

    Every person reports about one level of the hierarchy, drawn at random (Cormode, Kulkarni, Srivastava 2019).

    Attributes:
        size: number of cells.
        fanout: cells of one level per cell of the level above.
        epsilon: the claimed loss of every report.
        oracles: one frequency oracle per level, from the coarsest to single cells.
        randomizer: reports one level, drawn at random.
    """

    size: int
    fanout: int
    epsilon: Fraction
    oracles: tuple[FrequencyOracle, ...]
    randomizer: Sampled = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "range"
    neighbours: ClassVar[str] = "one person's value replaced by any other value of the domain"

    def _check(self) -> None:
        _check_shape(self.size, self.fanout)
        if tuple(each.inputs for each in self.oracles) != tuple(-(-self.size // width) for width in self.widths):
            raise InputError("the oracles of a range do not fit the levels of its hierarchy", culprit=self)
        derive(self, randomizer=Sampled(self.oracles))

    @classmethod
    def design(cls, size: int, *, epsilon: Number, fanout: int = 4) -> Range:
        """Return a spec for ``size`` ordered cells; a fanout of 4 or 5 is best in theory.

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InputError: the size is outside 2 .. 1024, or the fanout outside 2 .. size.
        """
        exact = claimed(epsilon)
        size = parse_integer(size, "the size of a range is a whole number of cells")
        fanout = parse_integer(fanout, "a fanout is a whole number")
        _check_shape(size, fanout)
        oracles = tuple(oracle(-(-size // width), exact, Method.AUTO, None)[1] for width in _widths(size, fanout))
        return cls(size, fanout, exact, oracles)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of cells in an interval of each level."""
        return _widths(self.size, self.fanout)

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the cells."""
        return tuple(map(str, range(self.size)))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:  # noqa: ARG002 -- see Spec
        """Return the interval of every level that contains each value, ``(n, levels)``.

        Raises:
            InputError: a value outside the domain.
        """
        cells = codes_of(self.size, np.asarray(values))
        codes = np.empty((len(self.widths), cells.size), dtype=smallest(self.size))
        for level, width in zip(codes, self.widths, strict=True):
            if width & (width - 1):
                np.floor_divide(cells, width, out=level, casting="unsafe")  # the result is below the size, so it fits
            else:  # takes a tenth of the time
                np.right_shift(cells, width.bit_length() - 1, out=level, casting="unsafe")
        return codes.T  # the intervals of a level are contiguous

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the shares of single cells, consistent over all levels.

        Raises:
            InputError: a level has no reports, or the post-processing is neither none nor simplex.
        """
        return self.answer([(cell, cell) for cell in range(self.size)], tally=tally, reports=reports, post=post)

    def answer(self, ranges: Sequence[tuple[int, int]], *, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the shares of inclusive ranges of cells.

        The estimates solve weighted least squares over all levels, with cells that sum to one (Hay, Rastogi, Miklau,
        Suciu 2010, with weights). The stated variance has two parts: the noise, with the intervals of a level taken as
        uncorrelated, and the random assignment of people to levels.

        Raises:
            InputError: a range is outside the domain, a level has no reports, or the post-processing is not offered.
        """
        if any(not 0 <= first <= last < self.size for first, last in ranges):
            raise InputError(f"a range must lie within 0 .. {self.size - 1} and not end before it starts")
        cells, covariance = self._consistent(tally, reports)
        match post:
            case Post.NONE:
                pass
            case Post.SIMPLEX:
                cells = simplex(cells)
            case _:
                raise InputError("ranges are post-processed by none or simplex only")
        place = np.arange(self.size)
        members = np.array([(place >= first) & (place <= last) for first, last in ranges], dtype=np.float64)
        variance = np.einsum("rc,cd,rd->r", members, covariance, members, optimize=True)
        labels = tuple(str(first) if first == last else f"{first}..{last}" for first, last in ranges)
        return Estimate(labels, members @ cells, np.maximum(variance, 0), reports)

    def _consistent(self, tally: Tally, reports: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate cells and their covariance from the noise and from the random assignment of people to levels."""
        levels = []
        precision = np.zeros((self.size, self.size))
        weighted = np.zeros(self.size)
        for width, each, (count, mine) in zip(self.widths, self.oracles, self.randomizer.split(tally), strict=True):
            values, variance = frequencies(each, mine, count)
            interval = np.arange(self.size) // width
            weight = 1 / variance.mean()
            precision += weight * (interval[:, None] == interval[None, :])
            weighted += weight * values[interval]
            levels.append((weight, width, variance, count))
        inverse = np.linalg.inv(precision)
        toward = inverse.sum(axis=1)
        total = toward.sum()
        cells = inverse @ weighted
        cells -= toward * (cells.sum() - 1) / total
        linear = inverse - np.outer(toward, toward) / total  # weights of the cells in the estimates
        shares = simplex(cells)
        covariance = -_multinomial(shares) / reports  # all levels together include every person
        for weight, width, variance, count in levels:
            starts = np.arange(0, self.size, width)
            own = weight * np.add.reduceat(linear, starts, axis=1)  # (cells, intervals of the level)
            spread = np.diag(variance) + _multinomial(np.add.reduceat(shares, starts)) / count
            covariance += own @ spread @ own.T
        return cells, covariance


def _multinomial(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance of the indicators of one random person's value."""
    spread: NDArray[np.float64] = np.diag(shares) - np.outer(shares, shares)
    return spread


def half_width(epsilon: float) -> float:
    """Return half the width of the square wave with the most information (Li et al. 2020, equation 6).

    >>> round(half_width(1.0), 4)
    0.2561
    """
    if epsilon < 1e-3:  # noqa: PLR2004 -- the limit, where the formula cancels
        return 0.5
    power = math.exp(epsilon)
    return (epsilon * power - power + 1) / (2 * power * (power - 1 - epsilon))


def _check_shape(size: int, fanout: int) -> None:
    if not 2 <= size <= LARGEST_RANGE or not 2 <= fanout <= size:  # noqa: PLR2004
        raise InputError(f"a range needs 2 to {LARGEST_RANGE} cells and a fanout from 2 to their number", culprit=size)


def _widths(size: int, fanout: int) -> tuple[int, ...]:
    widths = [1]
    while widths[-1] * fanout < size:
        widths.append(widths[-1] * fanout)
    return tuple(reversed(widths))
