"""The variance of clamped values, and its square root, the standard deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.model.factor import FloatArray
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    NoisyAnswers,
    NumericAggregate,
    Takes,
)
from sfumato.query.aggregates.sums import error_per_row, fixed_point, rounding, steps_between
from sfumato.vault.measurables import Measurable
from sfumato.vault.value_measurables import Moments

_SHAPES = ((True, False), (False, True), (True, True))  # root, sample
_MOST_SQUARED_STEPS = 23_000  # between the bounds: the engines require the square of one row to fit 29 bits


@dataclass(frozen=True)
class Variance(NumericAggregate):
    """The mean squared deviation of the clamped values from their mean.

    Attributes:
        root: true for its square root, the standard deviation.
        sample: true to divide the sum of squares by one less than the number of rows, as VAR_SAMP does.  The noisy
            moments include that number, so this form has the same privacy loss, and its interval covers the division.
    """

    root: bool = False
    sample: bool = False

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return VAR_POP, STDDEV_POP, VAR_SAMP and STDDEV_SAMP."""
        root, sample, both = (partial(cls, root=root, sample=sample) for root, sample in _SHAPES)
        return (
            AggregateForm("variance", "Variance", "VAR_POP", Takes.NUMBER, cls),
            AggregateForm("deviation", "Standard deviation", "STDDEV_POP", Takes.NUMBER, root),
            AggregateForm("sample_variance", "Sample variance", "VAR_SAMP", Takes.NUMBER, sample),
            AggregateForm("sample_deviation", "Sample standard deviation", "STDDEV_SAMP", Takes.NUMBER, both),
        )

    def __str__(self) -> str:
        return f"{'sample_' if self.sample else ''}{'deviation' if self.root else 'variance'}({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return sums of the products of the distances from both bounds."""
        return (Moments(self.of, by, _square_unit(domain, self.of), 2, where),)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return (x z - y^2/4) / n^2 in squared widths, with error propagation and interval arithmetic."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        # the exact sums are never negative
        z, y, x = np.maximum(tables[0].reshape(-1, 3).T.astype(np.float64), 0)
        rows = np.maximum(x + y + z, 1)
        part = np.clip((x * z - y**2 / 4) / rows**2, 0, 0.25)
        # the gradient is (z - 2 part n, -y/2 - 2 part n, x - 2 part n) / n^2
        slope = np.sqrt((z - 2 * part * rows) ** 2 + (y / 2 + 2 * part * rows) ** 2 + (x - 2 * part * rows) ** 2)
        error = np.minimum(math.sqrt(noise.variance) * slope / rows**2, 0.25)
        least, most = _variance_bounds((x, y, z), confidence.half_width(noise, 3))
        rounded = rounding(attribute, _square_unit(domain, self.of))
        lowest = np.maximum(np.sqrt(least) * width - rounded, 0)
        highest = np.minimum(np.sqrt(most) * width + rounded, width / 2)
        root = np.sqrt(part)
        if not self.root:
            squared = error * width**2 + (2 * root * width + rounded) * rounded
            of_rows = Estimates(part * width**2, np.minimum(squared, width**2 / 4), lowest**2, highest**2)
            return self._of_sample(of_rows, (x, y, z), noise, domain, confidence)
        half_root = (np.sqrt(most) - np.sqrt(least)) / 2
        spread = np.minimum(error / np.maximum(2 * root, np.sqrt(error) + 1e-300), half_root)
        of_rows = Estimates(root * width, np.minimum(spread * width + rounded, width / 2), lowest, highest)
        return self._of_sample(of_rows, (x, y, z), noise, domain, confidence)

    def _of_sample(
        self,
        of_rows: Estimates,
        terms: tuple[FloatArray, FloatArray, FloatArray],
        noise: Noise,
        domain: Domain,
        confidence: Confidence,
    ) -> Estimates:
        """Return estimates times n / (n - 1), or the square root; the noisy terms bound the number n of rows."""
        if not self.sample:
            return of_rows
        one_row = steps_between(domain, self.of, _square_unit(domain, self.of)) ** 2
        half = confidence.half_width(noise, 3)
        fewest, rows, most = (sum(np.maximum(term + move, 0) for term in terms) / one_row for move in (-half, 0, half))
        power = 0.5 if self.root else 1.0
        by_fewest, by_rows, by_most = (
            (n / np.maximum(n - 1, n / 2)) ** power for n in (np.maximum(each, 1) for each in (fewest, rows, most))
        )
        largest = self.largest_interval(domain)
        # the factor decreases in n: the noise on n changes it by its slope at n
        moved = of_rows.value * math.sqrt(3 * noise.variance) / one_row / np.maximum(rows - 1, 1) ** 2
        undefined = most < 2 - 1e-9
        return Estimates(
            np.minimum(of_rows.value * by_rows, largest),
            np.minimum(of_rows.error * by_rows + moved, largest),
            np.where(undefined, 0, np.minimum(of_rows.low * by_most, largest)),
            np.where(undefined, largest, np.minimum(of_rows.high * by_fewest, largest)),
        )

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound over all tables with ``rows`` rows per group."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        step = width**2 / steps_between(domain, self.of, _square_unit(domain, self.of)) ** 2 / (rows or 1)
        # the gradient of (x z - y^2/4) / n^2 has length at most 1/n, at variance zero at a bound
        errors = step * math.sqrt(noise.variance), step * confidence.half_width(noise, 3) * 1.5
        if self.root:  # the error of a square root is at most the root of the error
            errors = math.sqrt(errors[0]), math.sqrt(errors[1])
        return error_per_row(name, *errors, rows, self.largest_interval(domain))

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows whose interval spans half of the possible range to either side."""
        half = (
            1.5 * confidence.half_width(noise, 3) / steps_between(domain, self.of, _square_unit(domain, self.of)) ** 2
        )
        return half * (16 if self.root else 8)  # the limits are (width / 4)^2 and width^2 / 8

    def largest_interval(self, domain: Domain) -> float:
        """Return the value for a group with half of its rows at one bound and half at the other."""
        attribute = numeric(domain, self.of)
        width = float(attribute.maximum - attribute.minimum)
        largest = width**2 / (2 if self.sample else 4)  # two rows, one at each bound
        return math.sqrt(largest) if self.root else largest


def _square_unit(domain: Domain, name: str) -> Fraction:
    """Return the fixed point of variances, which is coarser because squares add up."""
    attribute = numeric(domain, name)
    return fixed_point(attribute, attribute.maximum - attribute.minimum, _MOST_SQUARED_STEPS)


def _variance_bounds(terms: tuple[FloatArray, FloatArray, FloatArray], half: float) -> tuple[FloatArray, FloatArray]:
    """Bound (x z - y^2/4) / n^2 by interval arithmetic, in squared widths, if each term is within ``half``."""
    low = [np.maximum(term - half, 0) for term in terms]
    high = [np.maximum(term + half, 0) for term in terms]
    fewest, most = (np.maximum(sum(part), 1) for part in (low, high))
    least = np.maximum(low[0] * low[2] - high[1] ** 2 / 4, 0) / most**2
    largest = np.maximum(high[0] * high[2] - low[1] ** 2 / 4, 0) / fewest**2
    largest = np.where((half > 0) | (sum(low) > 0), largest, 0.25)  # without noise the group is empty
    return np.clip(least, 0, 0.25), np.clip(largest, 0, 0.25)
