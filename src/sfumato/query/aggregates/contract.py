"""The contract of an aggregate: its noisy tables, its estimate from them, and its expected error.

A new aggregate is one class of this folder and its name in ``AGGREGATES``.  SQL, HTTP, the page, the documentation and
intervals of releases read its class.

An interval covers each number alone, at the requested confidence, and accounts for the noise alone.  It bounds the
distance to the exact answer of this table.  It does not state how well the table represents a population.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.domain import Domain, Unknown
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.errors import LossError, interval_digits
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Number, exact, plain
from sfumato.privacy.noise import Noise
from sfumato.vault.measurables import Measurable

_DIGITS = 10**12  # denominator of a confidence

NoisyAnswers: TypeAlias = Sequence[NDArray[np.int64]]
"""Noisy answers to the questions of one aggregate, flat in C order."""


@dataclass(frozen=True)
class Estimates:
    """The estimate, standard error and interval for each group: arrays of shape ``(groups,)``."""

    value: FloatArray
    error: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The four arrays."""
        return self.value, self.error, self.low, self.high

    def take(self, places: NDArray[np.intp]) -> Estimates:
        """Return the estimates of some groups, in the order given."""
        return Estimates(*(each[places] for each in self.arrays))

    def slice_groups(self, groups: slice) -> Estimates:
        """Return the estimates of groups that follow each other."""
        return Estimates(*(each[groups] for each in self.arrays))


@dataclass(frozen=True)
class NoisyValue(NDArrayOperatorsMixin):
    """An estimate, its standard error, and an interval that contains the exact answer with the stated confidence.

    It is a number: arithmetic and comparisons with numbers use the estimate and lose the interval.

    The exact answer refers to the table as the domain reads it: bounded, clamped, without dropped rows.  See the notes
    of the :class:`Answer`.
    """

    estimate: float
    standard_error: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def __float__(self) -> float:
        return self.estimate

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __int__(self) -> int:
        return int(self.estimate)

    def __format__(self, spec: str) -> str:
        return format(self.estimate, spec) if spec else str(self)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.estimate, digits)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401, FBT001
        """Return the estimate as an array without dimensions, for NumPy."""
        return np.asarray(self.estimate, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:  # noqa: ANN401
        numbers = (each.estimate if isinstance(each, NoisyValue) else each for each in inputs)
        return getattr(ufunc, method)(*numbers, **more)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, informative: bool = True) -> str:
        """Return the estimate with its interval; an interval of all possible values has no estimate."""
        estimate, low, high = interval_digits(self.estimate, self.low, self.high)
        return f"{estimate if informative else 'too few rows to tell'} ({low} to {high})"


@dataclass(frozen=True)
class ExpectedError:
    """The error to expect of each number of an aggregate.

    Attributes:
        name: the name of the aggregate.
        standard_error: standard deviation of the noise on the answer, or a bound on it.
        half_width: half the width of its interval.
        measure: the measure of both errors.  They are "units" of the answer, a "rank" in rows, or the error of a group
            of one "row", which shrinks in proportion to the rows.  If an answer uses several quantiles, its rank is the
            sum of their errors of rank.
        rows: the supposed number of rows in a group, if the error depends on it.
    """

    name: str
    standard_error: float
    half_width: float
    measure: str
    rows: int | None = None


@dataclass(frozen=True)
class Confidence:
    """The probability that an interval contains the exact answer."""

    probability: Fraction

    @staticmethod
    def from_number(value: Number) -> Confidence:
        """Return a confidence, rounded up to twelve digits.

        Raises:
            LossError: the value is not a number above 0 and at most 1 - 10^-12.  Intervals at a higher confidence would
                take too long to compute.
        """
        number = exact(value, name="confidence")
        rounded = Fraction(math.ceil(number * _DIGITS), _DIGITS)
        if not 0 < rounded < 1:
            raise LossError(
                f"a confidence lies strictly between 0 and 1, with twelve digits, not {plain(number)}", culprit=number
            )
        return Confidence(rounded)

    def for_each(self, intervals: int) -> Confidence:
        """Return the confidence of each of several intervals that makes all of them hold with this one (union
        bound).
        """
        return Confidence.from_number(1 - (1 - self.probability) / intervals)

    def half_width(self, noise: Noise, numbers: int = 1) -> int:
        """Return the bound that noise exceeds on none of ``numbers`` cells, at the confidence (union bound)."""
        return _half_width(noise, self.probability, numbers)

    def standard_deviations(self, noise: Noise) -> float:
        """Return the half-width of an interval for a sum of noises, in standard deviations.

        It is exact up to less than one step of the integers.  A sum of independent noises lies between one noise and
        the normal distribution, so the larger of both deviations is used.  Below 90 % of confidence the normal
        distribution is wider.
        """
        if not noise.variance:  # at a huge loss: too small for a double
            return 0.0
        normal = NormalDist().inv_cdf(float(1 + self.probability) / 2)
        return max(self.half_width(noise) / math.sqrt(noise.variance), normal)

    def interval_half_width(self, noise: Noise, variance: FloatArray) -> FloatArray:
        """Return the half-width for a sum of several noises, each counted once at most, of this variance.

        It is one row more than the deviations, because sums of integers have no values between.  Without that row,
        intervals for small noise would miss up to four times as often as stated.
        """
        return self.standard_deviations(noise) * np.sqrt(variance) + (1.0 if noise.variance else 0.0)

    def counts(self, noisy: NDArray[np.int64], noise: Noise, unit: float = 1.0) -> Estimates:
        """Return noisy integers in units, each with the same noise."""
        half, value = self.half_width(noise) * unit, noisy.astype(np.float64) * unit
        error = np.broadcast_to(math.sqrt(noise.variance) * unit, value.shape)  # one number, also for many groups
        return Estimates(value, error, value - half, value + half)


class Takes(Enum):
    """The argument of an aggregate."""

    NOTHING = "nothing"
    ATTRIBUTE = "an attribute, or nothing for all rows"
    NUMBER = "an attribute with numbers"


@dataclass(frozen=True)
class AggregateForm:
    """A name for an aggregate in queries.

    Attributes:
        name: the name in HTTP requests and in TypeScript.
        title: the name on the page.
        function: the name of the function in SQL.
        takes: the kind of argument in its parentheses.
        make: builds the aggregate of the attribute, if there is one, and of the parameters.
        parameters: the numbers that follow the attribute.
    """

    name: str
    title: str
    function: str
    takes: Takes
    make: Callable[..., Aggregate]
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinearTerm:
    """An aggregate as a weighted sum of the cells of a released table.

    Attributes:
        of: the attribute whose values are the weights; None: rows are counted.
        valued: the condition that a row has a value, for the included rows; None: all rows.
        ratio: true if the sum is divided by the number of included rows.
    """

    of: str | None = None
    valued: Predicate | None = None
    ratio: bool = False


class Aggregate(ABC):
    """A number that a query asks for each group of rows."""

    is_count = False

    @classmethod
    @abstractmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return the names of the aggregate."""

    def check(self, domain: Domain) -> None:  # noqa: B027  (most kinds fit every domain)
        """Refuse the aggregate if it does not fit the domain.

        Raises:
            DomainError: an attribute that the domain does not have.
            QueryError: a number of an attribute without numbers.
        """

    @abstractmethod
    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return the noisy tables of the aggregate, or the levels of one table, which share a part of a loss
        equally.
        """

    @abstractmethod
    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return estimates from the noisy tables, all with the same noise per cell."""

    @abstractmethod
    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return the expected error, given ``rows`` rows per group if the error depends on it; read no data."""

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows that noise can hide: an answer about fewer rows is not informative.

        The default is the half-width of an answer in rows, or in rows of rank.
        """
        return self.expected("", noise, domain, confidence=confidence, rows=None).half_width

    def largest_interval(self, domain: Domain) -> float:
        """Return the width of an interval that excludes no value allowed by the domain."""
        return math.inf

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """Describe the exact answer, unless it is simply the number of all rows."""
        return ()

    def on_released_tables(self, domain: Domain) -> LinearTerm | None:
        """Return the aggregate as a term over the tables of a release; None if they give no interval for it."""
        return None


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of the clamped values of an attribute that has numbers."""

    of: str

    def check(self, domain: Domain) -> None:
        """Refuse an attribute without numbers."""
        numeric(domain, self.of)

    def largest_interval(self, domain: Domain) -> float:
        """Return the distance between the declared bounds."""
        attribute = numeric(domain, self.of)
        return float(attribute.maximum - attribute.minimum)

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """Say that values are clamped, if they are."""
        clamps = domain[self.of].unknown is Unknown.CLAMP
        return (f"values of {self.of} beyond the declared bounds count as the bounds",) if clamps else ()


@cached(8_000)  # without it a program of 200 counts at one loss takes 6 % more CPU time
def _half_width(noise: Noise, confidence: Fraction, numbers: int) -> int:
    return noise.quantile(1 - (1 - confidence) / numbers)
