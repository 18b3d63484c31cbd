"""Numbers that a statement computes from noisy answers: post-processing, without privacy loss.

One evaluator serves SELECT, HAVING and ORDER BY.  Sums of aggregates have the exact variance of their noise.  Ratios,
products and functions get their intervals by interval arithmetic.  The intervals of the aggregates inside hold together
with the stated confidence (union bound), and the result covers all values that they allow.  Their standard errors are
first-order approximations (delta method).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.domain import numeric
from sfumato.model.factor import FloatArray
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates import Aggregate, Confidence, Estimates, Filtered, Total
from sfumato.query.aggregates.sums import sum_unit

_Mask: TypeAlias = NDArray[np.bool_]
_MOST: Final = float(np.finfo(np.float64).max)  # stands for infinity, which JSON does not have
_EXACT: Final = 1 << 53  # integers up to it are exact doubles
_ROUNDING: Final = 1e-9  # relative widening of intervals against rounding of doubles
_ROUNDED: Final = -1  # key of the error added by ROUND, FLOOR, CEIL and CAST


@dataclass(frozen=True)
class NoisyNumbers:
    """A number for each group, its interval, and its error by aggregate.

    Attributes:
        value: estimates.
        low: lower ends of intervals.
        high: upper ends.
        missing: the groups that may be NULL in SQL.
        errors: the change of the number per standard error of an aggregate, by the aggregate's index.
        step: every exact number is a multiple of it; zero if there is no such step.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    missing: _Mask
    errors: Mapping[int, FloatArray] = field(default_factory=dict)
    step: Fraction = Fraction(0)


def evaluate(
    expression: AnswerExpression,
    aggregates: Sequence[Aggregate],
    estimates: Sequence[Estimates],
    domain: Domain,
    exact: Mapping[int, NoisyNumbers] | None = None,
) -> NoisyNumbers:
    """Return the numbers of an expression from the estimates of all aggregates.

    ``exact`` has the numbers of groups, keyed by negative indices.

    A group has no mean, variance or quantile if the interval excludes no value allowed by the domain.  A function of
    counts assumes that none is below zero.  A sum of counts keeps their noise, so that it is unbiased.
    """
    measured = dict(exact or {})
    for place in expression.places - measured.keys():
        aggregate, each = aggregates[place], estimates[place]
        widest = aggregate.largest_interval(domain)
        value, low, high = each.value, each.low, each.high
        unknown = (widest > 0) & (each.high - each.low >= widest * (1 - _ROUNDING))
        if not isinstance(expression, Linear) and _is_positive(aggregate, domain):
            value, low, high = (np.maximum(part, 0) for part in (value, low, high))
        measured[place] = NoisyNumbers(value, low, high, unknown, {place: each.error}, unit_of(aggregate, domain))
    with np.errstate(all="ignore"):  # unbounded ends
        return expression.evaluate(measured)


def _is_positive(aggregate: Aggregate, domain: Domain) -> bool:
    """Return whether an aggregate is a count, or a sum of non-negative values."""
    if isinstance(aggregate, Filtered):
        return _is_positive(aggregate.of, domain)
    return numeric(domain, aggregate.of).minimum >= 0 if isinstance(aggregate, Total) else aggregate.is_count


def unit_of(aggregate: Aggregate, domain: Domain) -> Fraction:
    """Return the unit of an aggregate that is the exact number plus noise; zero for other aggregates."""
    if isinstance(aggregate, Filtered):
        return unit_of(aggregate.of, domain)
    return sum_unit(domain, aggregate.of) if isinstance(aggregate, Total) else Fraction(aggregate.is_count)


class AnswerExpression(ABC):
    """A number computed from the aggregates of a query, which it references by index."""

    @property
    @abstractmethod
    def places(self) -> frozenset[int]:
        """The indices of its aggregates."""

    @abstractmethod
    def evaluate(self, measured: Mapping[int, NoisyNumbers]) -> NoisyNumbers:
        """Compute the expression from the numbers of its aggregates."""

    @abstractmethod
    def rewrite(self, change: Callable[[AnswerExpression], AnswerExpression]) -> AnswerExpression:
        """Return the expression with ``change`` applied to each part, and finally to itself."""


@dataclass(frozen=True)
class Linear(AnswerExpression):
    """A weighted sum of aggregates plus a constant; ``weights`` has the weight per index."""

    constant: Fraction = Fraction(0)
    weights: tuple[tuple[int, Fraction], ...] = ()

    @property
    def places(self) -> frozenset[int]:
        """The indices of its aggregates."""
        return frozenset(place for place, _ in self.weights)

    @property
    def bare(self) -> int | None:
        """The index of the aggregate if the expression is nothing else; None otherwise."""
        return self.weights[0][0] if not self.constant and [weight for _, weight in self.weights] == [1] else None

    def plus(self, other: Linear) -> Linear:
        """Return the sum of both."""
        weights = dict(self.weights)
        for place, weight in other.weights:
            weights[place] = weights.get(place, Fraction(0)) + weight
        return Linear(self.constant + other.constant, tuple(each for each in weights.items() if each[1]))

    def moved(self, places: Mapping[int, int]) -> Linear:
        """Return the expression with new indices for its aggregates; several may become one."""
        parts = (Linear(weights=((places[place], weight),)) for place, weight in self.weights)
        return reduce(Linear.plus, parts, Linear(self.constant))

    def evaluate(self, measured: Mapping[int, NoisyNumbers]) -> NoisyNumbers:
        """Compute the sum from the numbers of its aggregates."""
        parts = [_scaled(weight, measured[place]) for place, weight in self.weights]
        return reduce(_sum, parts, _constant(self.constant))

    def rewrite(self, change: Callable[[AnswerExpression], AnswerExpression]) -> AnswerExpression:
        """Return the changed sum."""
        return change(self)


@dataclass(frozen=True)
class AnswerFunction(AnswerExpression):
    """A function of the numbers of other expressions."""

    function: Callable[..., NoisyNumbers]
    parts: tuple[AnswerExpression, ...]

    @property
    def places(self) -> frozenset[int]:
        """The indices of its aggregates."""
        return frozenset().union(*(part.places for part in self.parts))

    def evaluate(self, measured: Mapping[int, NoisyNumbers]) -> NoisyNumbers:
        """Compute the function from the numbers of its aggregates."""
        return self.function(*(part.evaluate(measured) for part in self.parts))

    def rewrite(self, change: Callable[[AnswerExpression], AnswerExpression]) -> AnswerExpression:
        """Return the function with ``change`` applied to each part, and finally to itself; sums of sums become one
        sum.
        """
        parts = tuple(part.rewrite(change) for part in self.parts)
        if self.function is _sum:
            return change(added(*parts))
        if isinstance(self.function, partial) and self.function.func is _scaled:
            return change(scaled(parts[0], *self.function.args))
        return change(AnswerFunction(self.function, parts))


@dataclass(frozen=True)
class AnswerColumn:
    """A selected column of a statement: its name, its numbers, and a note on its measurement."""

    name: str
    expression: AnswerExpression
    note: str = ""

    def largest_interval(self, aggregates: Sequence[Aggregate], domain: Domain) -> float:
        """Return the width of an interval that excludes no value allowed by the domain."""
        match self.expression:
            case Linear(weights=[(place, weight)]) if weight:
                return float(abs(weight)) * aggregates[place].largest_interval(domain)
        return math.inf


def column_notes(columns: Sequence[AnswerColumn]) -> list[str]:
    """Return sentences for the notes of an answer: how its columns are measured and computed."""
    notes = [column.note for column in columns if column.note]
    names = [column.name for column in columns if not isinstance(column.expression, Linear)]
    if names:
        notes.append(
            f"computed from noisy answers, at no cost: {', '.join(names)}; such an interval is all that the intervals "
            "of its parts allow, which hold together with the stated confidence, and its standard error is approximate"
        )
    return notes


@dataclass(frozen=True)
class MeasuredAggregates:
    """The aggregates of a query with their noise.

    Attributes:
        aggregates: the aggregates.
        domain: the domain of the rows.
        sources: the index of the noisy table of each aggregate; tables have independent noise.
        noises: the noise on the cells of each table.
        at: returns the estimates with intervals at a given confidence; None in a preview.
    """

    aggregates: tuple[Aggregate, ...]
    domain: Domain
    sources: tuple[int, ...]
    noises: tuple[Noise, ...]
    at: Callable[[Confidence], tuple[Estimates, ...]] | None = None

    def columns(self, columns: Sequence[AnswerColumn], confidence: Confidence) -> tuple[Estimates, ...]:
        """Return the estimates of columns; each interval holds with the confidence."""
        return tuple(self._column(column.expression, confidence) for column in columns)

    def error(self, column: AnswerColumn, confidence: Confidence) -> tuple[float, float] | None:
        """Return the standard error and the half-width of a sum of counts and sums; None if they depend on the
        answers.
        """
        linear = column.expression.rewrite(self._merged)
        if not isinstance(linear, Linear):
            return None
        parts = [(weight * unit_of(self.aggregates[p], self.domain), self.noises[p]) for p, weight in linear.weights]
        if not all(unit for unit, _ in parts):
            return None
        each = _of_each(confidence, len(parts))
        union = sum(float(abs(unit)) * each.half_width(noise) for unit, noise in parts)
        if len(parts) < 2:  # noqa: PLR2004
            return sum(float(abs(unit)) * math.sqrt(noise.variance) for unit, noise in parts), union
        error = math.hypot(*(float(unit) * math.sqrt(noise.variance) for unit, noise in parts))
        widest = max(confidence.standard_deviations(noise) for _, noise in parts)
        return error, min(union, widest * error + float(max(abs(unit) for unit, _ in parts)))

    def _column(self, expression: AnswerExpression, confidence: Confidence) -> Estimates:
        expression = expression.rewrite(self._merged)
        assert self.at is not None
        if isinstance(expression, Linear) and expression.bare is not None:
            return self.at(confidence)[expression.bare]
        estimates = self.at(_of_each(confidence, len(expression.places)))
        numbers = evaluate(expression, self.aggregates, estimates, self.domain)
        error = self._standard_error(numbers.errors)
        low, high = (np.nan_to_num(each, nan=end, posinf=_MOST, neginf=-_MOST) for each, end in _ends(numbers))
        exact = self.error(AnswerColumn("", expression), confidence)
        if exact is not None and len(expression.places) > 1:
            error, low, high = np.asarray(exact[0]), numbers.value - exact[1], numbers.value + exact[1]
        elif not isinstance(expression, Linear):
            error = np.abs(np.minimum(error, high / 2 - low / 2))
        shape = estimates[0].value.shape
        return Estimates(*(np.broadcast_to(each, shape) for each in (numbers.value, error, low, high)))

    def _merged(self, expression: AnswerExpression) -> AnswerExpression:
        """Return an expression in which counts from one noisy table are one aggregate, because they share their
        noise.
        """
        if not isinstance(expression, Linear):
            return expression
        first: dict[tuple[int, bool], int] = {}
        places = {}
        for place, (aggregate, source) in enumerate(zip(self.aggregates, self.sources, strict=True)):
            same = aggregate.is_count
            places[place] = first.setdefault((source, same), place) if same else place
        return expression.moved(places)

    def _standard_error(self, errors: Mapping[int, FloatArray]) -> FloatArray:
        """Return the standard error: errors of different tables are independent, errors within one table may add up."""
        by_source: dict[int, FloatArray] = {}
        for place, error in errors.items():
            source = place if place == _ROUNDED else self.sources[place]
            by_source[source] = by_source.get(source, np.float64(0)) + np.abs(error)
        return np.sqrt(sum((error**2 for error in by_source.values()), np.float64(0)))


def _of_each(confidence: Confidence, intervals: int) -> Confidence:
    """Return the confidence of each of several intervals that makes all of them hold with this one (union bound)."""
    return Confidence(1 - (1 - confidence.probability) / max(1, intervals))


def _ends(numbers: NoisyNumbers) -> tuple[tuple[FloatArray, float], tuple[FloatArray, float]]:
    return (numbers.low, -_MOST), (numbers.high, _MOST)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _constant(value: Fraction) -> NoisyNumbers:
    number_ = np.float64(value)
    return NoisyNumbers(number_, number_, number_, np.bool_(False), step=abs(value))  # type: ignore[arg-type]


def _scaled(weight: Fraction, numbers: NoisyNumbers) -> NoisyNumbers:
    factor, divisor = float(weight), 1.0
    if max(abs(weight.numerator), weight.denominator) <= _EXACT:  # 49 / 49 is 1, and 49 * (1 / 49) is less
        factor, divisor = float(weight.numerator), float(weight.denominator)
    value, low, high = (each * factor / divisor for each in (numbers.value, numbers.low, numbers.high))
    low, high = (low, high) if factor >= 0 else (high, low)
    errors = {place: factor / divisor * error for place, error in numbers.errors.items()}
    return NoisyNumbers(value, low, high, numbers.missing, errors, abs(weight) * numbers.step)


def _sum(one: NoisyNumbers, other: NoisyNumbers) -> NoisyNumbers:
    low, high = one.low + other.low, one.high + other.high
    errors = _added(one.errors, other.errors)
    known = all(each.step or not (np.any(each.low) or np.any(each.high)) for each in (one, other))  # zero has no step
    step = _common(one.step, other.step) if known else Fraction(0)
    return NoisyNumbers(one.value + other.value, low, high, one.missing | other.missing, errors, step)


def _common(one: Fraction, other: Fraction) -> Fraction:
    """Return the greatest common divisor of two fractions."""
    below = math.lcm(one.denominator, other.denominator)
    return Fraction(math.gcd(int(one * below), int(other * below)), below)


def _added(
    one: Mapping[int, FloatArray], other: Mapping[int, FloatArray], by: FloatArray | float = 1.0
) -> dict[int, FloatArray]:
    errors = dict(one)
    for place, error in other.items():
        errors[place] = errors.get(place, np.float64(0)) + by * error
    return errors


def product(one: NoisyNumbers, other: NoisyNumbers) -> NoisyNumbers:
    """Return products; their intervals come from the products of the ends."""
    corners = [a * b for a in (one.low, one.high) for b in (other.low, other.high)]
    errors = _added({place: other.value * error for place, error in one.errors.items()}, other.errors, one.value)
    low, high = reduce(np.minimum, corners), reduce(np.maximum, corners)
    return NoisyNumbers(one.value * other.value, low, high, one.missing | other.missing, errors, one.step * other.step)


def quotient(above: NoisyNumbers, below: NoisyNumbers) -> NoisyNumbers:
    """Return quotients: a non-zero divisor is at least its step away from zero.

    A group's quotient may be NULL if the interval of the divisor contains zero.
    """
    step = float(below.step)
    positive, negative = below.high >= max(step, np.nextafter(0, 1)), below.low <= -max(step, np.nextafter(0, 1))
    positive = positive | ~negative
    divisors = [
        (positive, np.maximum(below.low, step), np.maximum(below.high, step)),
        (negative, np.minimum(below.low, -step), np.minimum(below.high, -step)),
    ]
    lows, highs = [], []
    for possible, *ends in divisors:
        for end in (np.where(each == 0, np.nan, each) for each in ends):
            for corner in (above.low / end, above.high / end):
                lows.append(np.where(possible, np.where(np.isnan(corner), -np.inf, corner), np.inf))
                highs.append(np.where(possible, np.where(np.isnan(corner), np.inf, corner), -np.inf))
    backward = negative & (~positive | (below.value < 0))
    divisor = np.where(backward, np.minimum(below.value, -step), np.maximum(below.value, step))
    divisor = np.where(divisor == 0, np.inf, divisor)
    value = above.value / divisor
    errors = _added({place: error / divisor for place, error in above.errors.items()}, below.errors, -value / divisor)
    missing = above.missing | below.missing | ((below.low <= 0) & (below.high >= 0))
    return NoisyNumbers(value, reduce(np.minimum, lows), reduce(np.maximum, highs), missing, errors)


def rounded(how: Callable[[FloatArray], FloatArray], digits: int, numbers: NoisyNumbers) -> NoisyNumbers:
    """Return numbers rounded to ``digits`` decimal places by a non-decreasing function."""
    scale = 10.0**digits
    value, low, high = (how(each * scale) / scale for each in (numbers.value, numbers.low, numbers.high))
    errors = _added(numbers.errors, {_ROUNDED: np.asarray(1 / scale / math.sqrt(6))})  # both numbers are rounded
    return NoisyNumbers(value, low, high, numbers.missing, errors, Fraction(10) ** -digits)


def raised(exponent: int, numbers: NoisyNumbers) -> NoisyNumbers:
    """Return numbers to the power of a positive integer exponent."""
    ends = numbers if exponent % 2 else absolute(numbers)
    errors = {place: exponent * numbers.value ** (exponent - 1) * error for place, error in numbers.errors.items()}
    step = numbers.step**exponent
    return NoisyNumbers(numbers.value**exponent, ends.low**exponent, ends.high**exponent, numbers.missing, errors, step)


def exact_numbers(values: FloatArray) -> NoisyNumbers:
    """Return numbers without an error; NaN means NULL."""
    return NoisyNumbers(values, values, values, np.isnan(values))


def half_away(numbers: FloatArray) -> FloatArray:
    """Round halves away from zero, as ROUND does."""
    return np.trunc(numbers + np.copysign(0.5, numbers))


def absolute(numbers: NoisyNumbers) -> NoisyNumbers:
    """Return absolute values."""
    low = np.maximum(np.maximum(numbers.low, -numbers.high), 0)
    high = np.maximum(np.abs(numbers.low), np.abs(numbers.high))
    return NoisyNumbers(np.abs(numbers.value), low, high, numbers.missing, numbers.errors, numbers.step)


def otherwise(numbers: NoisyNumbers, other: NoisyNumbers) -> NoisyNumbers:
    """Return COALESCE; the interval of a possibly missing number covers both numbers."""
    missing = numbers.missing
    value = np.where(missing, other.value, numbers.value)
    low = np.where(missing, np.minimum(numbers.low, other.low), numbers.low)
    high = np.where(missing, np.maximum(numbers.high, other.high), numbers.high)
    return NoisyNumbers(value, low, high, missing & other.missing, _added(numbers.errors, other.errors))


def null_if(numbers: NoisyNumbers, other: NoisyNumbers) -> NoisyNumbers:
    """Return NULLIF: a number equal to the other becomes missing."""
    missing = numbers.missing | (numbers.value == other.value)
    return NoisyNumbers(numbers.value, numbers.low, numbers.high, missing, numbers.errors, numbers.step)


def least(*parts: NoisyNumbers) -> NoisyNumbers:
    """Return LEAST, which ignores missing numbers."""
    there = [np.where(part.missing, np.inf, part.value) for part in parts]
    value = reduce(np.minimum, there)
    missing = reduce(np.logical_and, (part.missing for part in parts))
    value = np.where(missing, parts[0].value, value)
    low = reduce(np.minimum, (part.low for part in parts))
    high = reduce(np.minimum, (np.where(part.missing, np.inf, part.high) for part in parts))
    high = np.where(missing, reduce(np.maximum, (part.high for part in parts)), high)
    errors: dict[int, FloatArray] = {}
    for part in parts:
        errors = _added(errors, part.errors, np.where(part.value == value, 1.0, 0.0))
    return NoisyNumbers(value, low, high, missing, errors)


def greatest(*parts: NoisyNumbers) -> NoisyNumbers:
    """Return GREATEST, which ignores missing numbers."""
    return _scaled(Fraction(-1), least(*(_scaled(Fraction(-1), part) for part in parts)))


def aggregate_at(place: int) -> Linear:
    """Return the aggregate at an index."""
    return Linear(weights=((place, Fraction(1)),))


def scaled(expression: AnswerExpression, weight: Fraction) -> AnswerExpression:
    """Return an expression times a number."""
    if isinstance(expression, Linear):
        weights = tuple((place, each * weight) for place, each in expression.weights if weight)
        return Linear(expression.constant * weight, weights)
    return expression if weight == 1 else AnswerFunction(partial(_scaled, weight), (expression,))


def added(one: AnswerExpression, other: AnswerExpression) -> AnswerExpression:
    """Return the sum of two expressions."""
    return (
        one.plus(other) if isinstance(one, Linear) and isinstance(other, Linear) else AnswerFunction(_sum, (one, other))
    )


def parts_of(expression: AnswerExpression) -> tuple[AnswerExpression, ...]:
    """Return an expression and all expressions inside."""
    parts: list[AnswerExpression] = []
    expression.rewrite(lambda each: parts.append(each) or each)  # type: ignore[func-returns-value]
    return tuple(parts)
