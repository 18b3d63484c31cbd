"""The kinds of number that can be asked for: counts, sums, means and variances.

Each knows all of itself: what it needs of the vault, how its estimate and interval are read off noisy tables, and what
error to expect.  A new kind is one more class.  Quantiles are in :mod:`sfumato.query.hierarchical_histogram`.

Intervals hold for each number on its own, at the confidence asked for, over the noise alone: they say
how far the exact answer of this table may be, not how well the table stands for a population.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.domain import Domain, Integer, Real, Unknown
from sfumato.domain.attribute import null_code
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import All, Among, CodeRanges, Predicate
from sfumato.errors import LossError, QueryError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Number, exact, plain
from sfumato.query.three_valued import normal
from sfumato.vault.mechanisms import Additive
from sfumato.vault.questions import Marginal, Measurable
from sfumato.vault.value_questions import Moments, Sum, Units

_DIGITS = 10**12  # of a confidence
_MOST_STEPS = 10**8  # between zero and the farther bound: what rounding adds is far below any noise of a small loss
_MOST_SQUARED_STEPS = 23_000  # between the bounds: the square of one row must fit 29 bits, as the engines ask
_FINEST = -8  # no unit below 10^-8, which the engines do not take

NoisyAnswers: TypeAlias = Sequence[NDArray[np.int64]]
"""Noisy answers to the questions of one aggregate, flat in C order."""


@dataclass(frozen=True)
class Estimates:
    """Estimate, standard error and interval for each group: arrays of shape ``(groups,)``."""

    value: FloatArray
    error: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """All four."""
        return self.value, self.error, self.low, self.high

    def at(self, places: NDArray[np.intp]) -> Estimates:
        """Of some groups, in the order given."""
        return Estimates(*(each[places] for each in self.arrays))

    def part(self, groups: slice) -> Estimates:
        """Of groups that follow each other."""
        return Estimates(*(each[groups] for each in self.arrays))


@dataclass(frozen=True)
class Expected:
    """The error to expect of each number of an aggregate.

    Attributes:
        name: what the aggregate is called.
        standard_error: standard deviation of the noise on the answer, or a bound on it.
        half_width: half the width of its interval.
        measure: in what they are stated: the answer's own "units", the "rank" in rows, or what one "row" in a group
            would have, which shrinks in proportion to their number.
        rows: the number of rows in a group that was supposed, where the error depends on it.
    """

    name: str
    standard_error: float
    half_width: float
    measure: str
    rows: int | None = None


@dataclass(frozen=True)
class Certainty:
    """How sure an interval is to be."""

    confidence: Fraction

    @staticmethod
    def of(value: Number) -> Certainty:
        """A confidence, rounded up to twelve digits.

        Raises:
            LossError: it is not a number above 0 and at most 1 - 10^-12; intervals of more would take for ever.
        """
        return _certainty(exact(value, name="confidence"))

    def half_width(self, noise: Additive, numbers: int = 1) -> int:
        """What the noise does not exceed on any of ``numbers`` cells, at the confidence (union bound)."""
        return _half_width(noise, self.confidence, numbers)

    def deviations(self, noise: Additive) -> float:
        """Standard deviations within which a sum of noises lies, but for less than one step of its integers: as many as
        one noise or the normal distribution needs, whichever are more.

        Sums of independent noises lie between the two; below 90 % of confidence it is the normal one that is wider.
        """
        if not noise.variance:  # at a huge loss: too small for a double
            return 0.0
        normal = NormalDist().inv_cdf(float(1 + self.confidence) / 2)
        return max(self.half_width(noise) / math.sqrt(noise.variance), normal)

    def spread(self, noise: Additive, variance: FloatArray) -> FloatArray:
        """Half-width for a sum of several noises, each counted once at most, of this variance.

        It is one row more than the deviations: sums of integers have no values between, so that without it those of
        small noise lie outside up to four times as often as stated.
        """
        return self.deviations(noise) * np.sqrt(variance) + (1.0 if noise.variance else 0.0)

    def counts(self, noisy: NDArray[np.int64], noise: Additive, unit: float = 1.0) -> Estimates:
        """Noisy integers in units, each with the same noise."""
        half, value = self.half_width(noise) * unit, noisy.astype(np.float64) * unit
        error = np.broadcast_to(math.sqrt(noise.variance) * unit, value.shape)  # one number for a million groups
        return Estimates(value, error, value - half, value + half)


class Aggregate(ABC):
    """A kind of number that can be asked of the rows of each group."""

    is_count = False

    def check(self, domain: Domain) -> None:  # noqa: B027  (most kinds fit every domain)
        """Refuse what does not fit the domain.

        Raises:
            DomainError: an attribute that the domain does not have.
            QueryError: a number asked of an attribute without numbers.
        """

    @abstractmethod
    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """The noisy tables that it is read off: one, or several levels of one, that share a part of a loss equally."""

    @abstractmethod
    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, certainty: Certainty) -> Estimates:
        """What the tables say, all with the same noise a cell."""

    @abstractmethod
    def expected(
        self, name: str, noise: Additive, domain: Domain, *, certainty: Certainty, rows: int | None
    ) -> Expected:
        """The error to expect, with so many rows in each group where it depends on that; reads no data."""

    @abstractmethod
    def outweighed(self, noise: Additive, domain: Domain, certainty: Certainty) -> float:
        """How many rows may stand behind noise alone: of fewer rows the answer says nothing."""

    def widest(self, domain: Domain) -> float:  # noqa: ARG002
        """The width of an interval that excludes nothing that anyone may know; infinite where there is none."""
        return math.inf

    def remarks(self, domain: Domain) -> tuple[str, ...]:  # noqa: ARG002
        """What the exact answer is, where that is not simply the number of all rows."""
        return ()


class CountingAggregate(Aggregate):
    """A noisy count, which is its own estimate."""

    is_count = True

    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, certainty: Certainty) -> Estimates:  # noqa: ARG002
        """The counts themselves."""
        return certainty.counts(tables[0], noise)

    def expected(
        self,
        name: str,
        noise: Additive,
        domain: Domain,  # noqa: ARG002
        *,
        certainty: Certainty,
        rows: int | None,  # noqa: ARG002
    ) -> Expected:
        """The noise itself."""
        return Expected(name, math.sqrt(noise.variance), float(certainty.half_width(noise)), "units")

    def outweighed(self, noise: Additive, domain: Domain, certainty: Certainty) -> float:  # noqa: ARG002
        """The half width of the noise on one count, which is in rows already."""
        return certainty.half_width(noise)


@dataclass(frozen=True)
class Count(CountingAggregate):
    """Number of rows; of those with a value of ``of``, where it is named."""

    of: str | None = None

    def __str__(self) -> str:
        return f"count({self.of or '*'})"

    def check(self, domain: Domain) -> None:
        """Refuse an attribute that the domain does not have."""
        if self.of is not None:
            domain.index(self.of)

    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """One marginal; numbers out of bounds and other values are values."""
        code = None if self.of is None else null_code(domain[self.of])
        if self.of is None or code is None:
            return (Marginal(by, where),)
        there = Among(self.of, CodeRanges.between(0, domain[self.of].size - 1) - CodeRanges.between(code, code))
        return (Marginal(by, normal(there if where is None else All((where, there)), domain)),)


@dataclass(frozen=True)
class Distinct(CountingAggregate):
    """Number of distinct units of privacy with a row."""

    def __str__(self) -> str:
        return "count(distinct unit)"

    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:  # noqa: ARG002
        """One table of units."""
        return (Units(by, where),)


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of the clamped values of an attribute that has numbers."""

    of: str

    def check(self, domain: Domain) -> None:
        """Refuse an attribute without numbers."""
        numeric(domain, self.of)

    def remarks(self, domain: Domain) -> tuple[str, ...]:
        """Values are clamped."""
        clamps = domain[self.of].unknown is Unknown.CLAMP
        return (f"values of {self.of} beyond the declared bounds count as the bounds",) if clamps else ()


@dataclass(frozen=True)
class Total(NumericAggregate):
    """Sum of the clamped values."""

    def __str__(self) -> str:
        return f"sum({self.of})"

    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """One table of sums in the fixed point."""
        return (Sum(self.of, by, sum_unit(domain, self.of), where),)

    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, certainty: Certainty) -> Estimates:
        """The sums themselves."""
        return certainty.counts(tables[0], noise, float(sum_unit(domain, self.of)))

    def expected(
        self,
        name: str,
        noise: Additive,
        domain: Domain,
        *,
        certainty: Certainty,
        rows: int | None,  # noqa: ARG002
    ) -> Expected:
        """The noise itself, in the fixed point."""
        unit = float(sum_unit(domain, self.of))
        return Expected(name, math.sqrt(noise.variance) * unit, certainty.half_width(noise) * unit, "units")

    def outweighed(self, noise: Additive, domain: Domain, certainty: Certainty) -> float:
        """So many rows at the farther bound."""
        attribute, unit = numeric(domain, self.of), sum_unit(domain, self.of)
        largest = max(abs(Fraction(attribute.minimum)), abs(Fraction(attribute.maximum)))
        return certainty.half_width(noise) / max(1, round(largest / unit))

    def remarks(self, domain: Domain) -> tuple[str, ...]:
        """Values are clamped, and rounded."""
        unit = sum_unit(domain, self.of)
        rounded = () if unit == 1 else (f"{self} is of values rounded to multiples of {plain(unit)}",)
        return (*rounded, *super().remarks(domain))


@dataclass(frozen=True)
class Average(NumericAggregate):
    """Mean of the clamped values."""

    def __str__(self) -> str:
        return f"mean({self.of})"

    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Sums of the distances from both bounds."""
        return (Moments(self.of, by, sum_unit(domain, self.of), 1, where),)

    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, certainty: Certainty) -> Estimates:
        """The share of the distance from the minimum, with error propagation and interval arithmetic."""
        attribute = numeric(domain, self.of)
        low, width = float(attribute.minimum), float(attribute.maximum - attribute.minimum)
        above, below = tables[0].reshape(-1, 2).T.astype(np.float64)  # from the maximum, from the minimum
        half, rounded = certainty.half_width(noise, 2), _rounding(attribute, sum_unit(domain, self.of))
        share = _share(below, above)
        error = math.sqrt(noise.variance) * np.hypot(share, 1 - share) / np.maximum(below + above, 1)
        return Estimates(
            low + width * share,
            np.minimum(width * error, width / 2),
            np.maximum(low, low + width * _least_share(below - half, above + half) - rounded),
            np.minimum(low + width, low + width * (1 - _least_share(above - half, below + half)) + rounded),
        )

    def expected(
        self, name: str, noise: Additive, domain: Domain, *, certainty: Certainty, rows: int | None
    ) -> Expected:
        """A bound over all tables with so many rows in a group: the noise is largest on a mean at a bound."""
        step = self.widest(domain) / _steps(domain, self.of, sum_unit(domain, self.of)) / (rows or 1)
        found = step * math.sqrt(noise.variance), step * certainty.half_width(noise, 2)
        return _per_row(name, *found, rows, self.widest(domain))

    def outweighed(self, noise: Additive, domain: Domain, certainty: Certainty) -> float:
        """Of so many rows the interval reaches over half of the bounds to either side."""
        return certainty.half_width(noise, 2) / _steps(domain, self.of, sum_unit(domain, self.of)) * 2

    def widest(self, domain: Domain) -> float:
        """From bound to bound."""
        attribute = numeric(domain, self.of)
        return float(attribute.maximum - attribute.minimum)


@dataclass(frozen=True)
class Variance(NumericAggregate):
    """Mean squared deviation of the clamped values from their mean; its root, where ``root`` is set."""

    root: bool = False

    def __str__(self) -> str:
        return f"{'deviation' if self.root else 'variance'}({self.of})"

    def questions(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Sums of the products of the distances from both bounds."""
        return (Moments(self.of, by, square_unit(domain, self.of), 2, where),)

    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, certainty: Certainty) -> Estimates:
        """(x z - y^2/4) / n^2 in squared widths, with error propagation and interval arithmetic."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        # the exact sums are never negative
        z, y, x = np.maximum(tables[0].reshape(-1, 3).T.astype(np.float64), 0)
        rows = np.maximum(x + y + z, 1)
        part = np.clip((x * z - y**2 / 4) / rows**2, 0, 0.25)
        # the gradient is (z - 2 part n, -y/2 - 2 part n, x - 2 part n) / n^2
        slope = np.sqrt((z - 2 * part * rows) ** 2 + (y / 2 + 2 * part * rows) ** 2 + (x - 2 * part * rows) ** 2)
        error = np.minimum(math.sqrt(noise.variance) * slope / rows**2, 0.25)
        least, most = _variance_bounds((x, y, z), certainty.half_width(noise, 3))
        rounded = _rounding(attribute, square_unit(domain, self.of))
        lowest = np.maximum(np.sqrt(least) * width - rounded, 0)
        highest = np.minimum(np.sqrt(most) * width + rounded, width / 2)
        if not self.root:
            return Estimates(part * width**2, error * width**2, lowest**2, highest**2)
        root = np.sqrt(part)
        half_root = (np.sqrt(most) - np.sqrt(least)) / 2
        spread = np.minimum(error / np.maximum(2 * root, np.sqrt(error) + 1e-300), half_root)
        return Estimates(root * width, spread * width, lowest, highest)

    def expected(
        self, name: str, noise: Additive, domain: Domain, *, certainty: Certainty, rows: int | None
    ) -> Expected:
        """A bound over all tables with so many rows in a group."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        step = width**2 / _steps(domain, self.of, square_unit(domain, self.of)) ** 2 / (rows or 1)
        # the gradient of (x z - y^2/4) / n^2 is at most 1/n long, at a variance of zero at a bound
        found = step * math.sqrt(noise.variance), step * certainty.half_width(noise, 3) * 1.5
        if self.root:  # a root turns an error of its square into at most its root
            found = math.sqrt(found[0]), math.sqrt(found[1])
        return _per_row(name, *found, rows, self.widest(domain))

    def outweighed(self, noise: Additive, domain: Domain, certainty: Certainty) -> float:
        """Of so many rows the interval reaches over half of what is possible to either side."""
        half = 1.5 * certainty.half_width(noise, 3) / _steps(domain, self.of, square_unit(domain, self.of)) ** 2
        return half * (16 if self.root else 8)  # over a quarter of the width squared, over an eighth of its square

    def widest(self, domain: Domain) -> float:
        """Of values half at either bound."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        return width / 2 if self.root else width**2 / 4


def sum_unit(domain: Domain, name: str) -> Fraction:
    """The fixed point of sums and means of an attribute: 1 for integers, otherwise a power of ten."""
    attribute = numeric(domain, name)
    return _unit(attribute, max(abs(attribute.minimum), abs(attribute.maximum)), _MOST_STEPS)


def square_unit(domain: Domain, name: str) -> Fraction:
    """The fixed point of variances, coarser because squares add up."""
    attribute = numeric(domain, name)
    return _unit(attribute, attribute.maximum - attribute.minimum, _MOST_SQUARED_STEPS)


def _unit(attribute: Integer | Real, width: float, most: int) -> Fraction:
    """The smallest power of ten that divides ``width`` into at most so many steps; 1 for integers where it does."""
    if isinstance(attribute, Integer) and width <= most:
        return Fraction(1)
    if not math.isfinite(width):
        raise QueryError(f"the bounds of {attribute.name!r} are too far apart for doubles; declare tighter ones")
    return Fraction(10) ** math.ceil(math.log10(max(width / most, 10.0**_FINEST)))


def _steps(domain: Domain, name: str, unit: Fraction) -> int:
    """Number of units between what the minimum and the maximum round to, at least one."""
    attribute = numeric(domain, name)
    low, high = (round(Fraction(bound) / unit) for bound in (attribute.minimum, attribute.maximum))
    return max(1, high - low)


def _rounding(attribute: Integer | Real, unit: Fraction) -> float:
    """How far rounding to the fixed point moves a value: itself and both bounds, each by half a unit."""
    return 0.0 if unit == 1 and isinstance(attribute, Integer) else 2 * float(unit)


def _per_row(name: str, deviation: float, half: float, rows: int | None, widest: float) -> Expected:
    """Errors for one row, or for the rows supposed, where estimates lie within what is possible."""
    if rows is None:
        return Expected(name, deviation, half, "row")
    return Expected(name, min(deviation, widest), min(half, widest), "units", rows)


@cached(2_000)  # most questions have one and the same
def _certainty(value: Fraction) -> Certainty:
    rounded = Fraction(math.ceil(value * _DIGITS), _DIGITS)
    if not 0 < rounded < 1:
        shown = plain(value)
        raise LossError(f"a confidence lies strictly between 0 and 1, with twelve digits, not {shown}", culprit=value)
    return Certainty(rounded)


@cached(8_000)
def _half_width(noise: Additive, confidence: Fraction, numbers: int) -> int:
    return noise.quantile(1 - (1 - confidence) / numbers)


def _share(part: FloatArray, rest: FloatArray) -> FloatArray:
    """The quotient part / (part + rest), one half where there is nothing, always between 0 and 1."""
    part, rest = np.maximum(part, 0), np.maximum(rest, 0)
    whole = part + rest
    share: FloatArray = np.divide(part, whole, out=np.full(len(part), 0.5), where=whole > 0)
    return share


def _least_share(part: FloatArray, rest: FloatArray) -> FloatArray:
    """The least that part / (part + rest) can be, given lower and upper bounds: 0 where nothing is certain."""
    least: FloatArray = np.where(part > 0, _share(part, rest), 0.0)
    return least


def _variance_bounds(terms: tuple[FloatArray, FloatArray, FloatArray], half: float) -> tuple[FloatArray, FloatArray]:
    """Interval arithmetic on (x z - y^2/4) / n^2, in squared widths, where each term is within ``half``."""
    low = [np.maximum(term - half, 0) for term in terms]
    high = [np.maximum(term + half, 0) for term in terms]
    fewest, most = (np.maximum(sum(part), 1) for part in (low, high))
    least = np.maximum(low[0] * low[2] - high[1] ** 2 / 4, 0) / most**2
    largest = np.maximum(high[0] * high[2] - low[1] ** 2 / 4, 0) / fewest**2
    return np.clip(least, 0, 0.25), np.clip(largest, 0, 0.25)
