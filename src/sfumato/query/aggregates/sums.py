"""Sums and means of clamped values, and the fixed point in which both are measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Among, Predicate
from sfumato.errors import QueryError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import plain
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    LinearTerm,
    NoisyAnswers,
    NumericAggregate,
    Takes,
)
from sfumato.vault.measurables import Measurable
from sfumato.vault.value_measurables import Moments, Sum

_MOST_STEPS = 10**8  # from zero to the farther bound: rounding adds far less than the noise of a small loss
_FINEST = -8  # the engines take no unit below 10^-8


@dataclass(frozen=True)
class Total(NumericAggregate):
    """The sum of the clamped values."""

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return SUM."""
        return (AggregateForm("sum", "Sum", "SUM", Takes.NUMBER, cls),)

    def __str__(self) -> str:
        return f"sum({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return one table of sums in the fixed point."""
        return (Sum(self.of, by, sum_unit(domain, self.of), where),)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the sums themselves."""
        return confidence.counts(tables[0], noise, float(sum_unit(domain, self.of)))

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return the noise itself, in the fixed point."""
        unit = float(sum_unit(domain, self.of))
        return ExpectedError(name, math.sqrt(noise.variance) * unit, confidence.half_width(noise) * unit, "units")

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows at the farther bound whose sum equals the half-width of the interval."""
        attribute, unit = numeric(domain, self.of), sum_unit(domain, self.of)
        largest = max(abs(Fraction(attribute.minimum)), abs(Fraction(attribute.maximum)))
        return confidence.half_width(noise) / max(1, round(largest / unit))

    def largest_interval(self, domain: Domain) -> float:
        """Return infinity: the number of rows is not declared."""
        return math.inf

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """State that values are clamped and rounded, if they are."""
        unit = sum_unit(domain, self.of)
        rounded = () if unit == 1 else (f"{self} is of values rounded to multiples of {plain(unit)}",)
        return (*rounded, *super().notes(domain))

    def on_released_tables(self, domain: Domain) -> LinearTerm:
        """Return the sum of the values."""
        return LinearTerm(self.of, Among(self.of, range(domain[self.of].declared)))


@dataclass(frozen=True)
class Average(NumericAggregate):
    """The mean of the clamped values."""

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return AVG."""
        return (AggregateForm("mean", "Mean", "AVG", Takes.NUMBER, cls),)

    def __str__(self) -> str:
        return f"mean({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return sums of the distances from both bounds."""
        return (Moments(self.of, by, sum_unit(domain, self.of), 1, where),)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the relative distance from the minimum, with error propagation and interval arithmetic."""
        attribute = numeric(domain, self.of)
        low, width = float(attribute.minimum), float(attribute.maximum - attribute.minimum)
        above, below = tables[0].reshape(-1, 2).T.astype(np.float64)  # distances from the maximum and from the minimum
        half, rounded = confidence.half_width(noise, 2), rounding(attribute, sum_unit(domain, self.of))
        share = _share(below, above)
        error = math.sqrt(noise.variance) * np.hypot(share, 1 - share) / np.maximum(below + above, 1)
        mean = low + width * share
        least = np.maximum(low, low + width * _least_share(below - half, above + half) - rounded)
        most = np.minimum(low + width, low + width * (1 - _least_share(above - half, below + half)) + rounded)
        error = np.minimum(width * error, width / 2)
        return Estimates(
            mean, error, np.minimum(least, mean), np.maximum(most, mean)
        )  # without noise, rounded doubles may cross

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound over all tables with ``rows`` rows per group: the noise on a mean is largest at a bound."""
        step = self.largest_interval(domain) / steps_between(domain, self.of, sum_unit(domain, self.of)) / (rows or 1)
        errors = step * math.sqrt(noise.variance), step * confidence.half_width(noise, 2)
        return error_per_row(name, *errors, rows, self.largest_interval(domain))

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows whose interval spans half of the bounds to either side."""
        return confidence.half_width(noise, 2) / steps_between(domain, self.of, sum_unit(domain, self.of)) * 2

    def on_released_tables(self, domain: Domain) -> LinearTerm:
        """Return the sum of the values divided by the number of rows with a value."""
        return LinearTerm(self.of, Among(self.of, range(domain[self.of].declared)), ratio=True)


def sum_unit(domain: Domain, name: str) -> Fraction:
    """Return the fixed point of sums and means of an attribute: 1 for integers, otherwise a power of ten."""
    attribute = numeric(domain, name)
    return fixed_point(attribute, max(abs(attribute.minimum), abs(attribute.maximum)), _MOST_STEPS)


def fixed_point(attribute: Integer | Real, width: float, most: int) -> Fraction:
    """Return the smallest power of ten that divides ``width`` into at most ``most`` steps; 1 for integers if
    possible.
    """
    if isinstance(attribute, Integer) and width <= most:
        return Fraction(1)
    if not math.isfinite(width):
        raise QueryError(f"the bounds of {attribute.name!r} are too far apart for doubles; declare tighter ones")
    return Fraction(10) ** math.ceil(math.log10(max(width / most, 10.0**_FINEST)))


def steps_between(domain: Domain, name: str, unit: Fraction) -> int:
    """Return the number of units between the rounded minimum and the rounded maximum, at least one."""
    attribute = numeric(domain, name)
    low, high = (round(Fraction(bound) / unit) for bound in (attribute.minimum, attribute.maximum))
    return max(1, high - low)


def rounding(attribute: Integer | Real, unit: Fraction) -> float:
    """Return the largest change of a value by rounding to the fixed point: the value and both bounds by half a unit
    each.
    """
    return 0.0 if unit == 1 and isinstance(attribute, Integer) else 2 * float(unit)


def error_per_row(name: str, deviation: float, half: float, rows: int | None, largest_interval: float) -> ExpectedError:
    """Return the errors for one row, or for the supposed rows, if estimates lie within the possible values."""
    if rows is None:
        return ExpectedError(name, deviation, half, "row")
    return ExpectedError(name, min(deviation, largest_interval), min(half, largest_interval), "units", rows)


def _share(part: FloatArray, rest: FloatArray) -> FloatArray:
    """Return the quotient part / (part + rest), or one half if both are zero; it is always between 0 and 1."""
    part, rest = np.maximum(part, 0), np.maximum(rest, 0)
    both = part + rest
    share: FloatArray = np.divide(part, both, out=np.full(len(part), 0.5), where=both > 0)
    return share


def _least_share(part: FloatArray, rest: FloatArray) -> FloatArray:
    """Return the smallest possible part / (part + rest), given lower and upper bounds: 0 if nothing is certain."""
    least: FloatArray = np.where(part > 0, _share(part, rest), 0.0)
    return least
