"""Before anything is spent: how wrong answers will be at a loss, and what loss an error costs.

Everything here is computed from the domain, the query and the loss, never from the data.  Errors of counts and sums
are exact.  The error of a mean or a variance depends on how many rows a group has, which the table does
not tell for free: it is bounded for the number of rows that the caller supposes.  The error of a
quantile is bounded as a rank: a share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.arguments import expect, whole
from sfumato.domain import Domain
from sfumato.errors import InfeasibleError, LossError, QueryError
from sfumato.privacy.loss import Epsilon, Loss, Number, exact
from sfumato.query.estimate import Noise, Reading, as_confidence
from sfumato.query.question import (
    Aggregate,
    Count,
    Distinct,
    Extreme,
    Mean,
    Quantile,
    Query,
    Total,
    Variance,
    numeric,
    refuse_no_query,
)
from sfumato.query.tally import Plan, leaves, plan, sum_unit
from sfumato.query.tree import rank_variance
from sfumato.vault.noise import noises

_FINEST_EPSILON = -9
_MANY_ROWS = 1000  # noise of so many rows is told where nobody says how many there are
_DIGITS = 1000  # an epsilon is stated with three digits


@dataclass(frozen=True)
class Expected:
    """The error to expect of each number of an aggregate.

    Attributes:
        name: what the aggregate is called.
        standard_error: standard deviation of the noise on the answer, or a bound on it.
        half_width: half the width of its interval.
        measure: in what they are stated: the answer's own "units", or the "rank" in rows.
        rows: the number of rows in a group that was supposed, where the error depends on it.
    """

    name: str
    standard_error: float
    half_width: float
    measure: str
    rows: int | None


def accuracy(
    domain: Domain, query: Query, loss: Loss, *, confidence: Number, rows: int | None = None
) -> tuple[Expected, ...]:
    """The errors to expect of a query at a loss.

    Args:
        domain: the public description.
        query: what would be asked.
        loss: what it would cost in all.
        confidence: of the intervals.
        rows: rows supposed in each group, from 1; without it, errors of means and variances are those of one row,
            which shrink in proportion to the number of rows.

    Raises:
        QueryError, DomainError: the query does not fit the domain.
    """
    expect(domain, Domain, "errors are those of a Domain")
    refuse_no_query(query)
    if rows is not None:
        rows = whole(rows, "the rows supposed in a group are a whole number")
    if rows is not None and rows < 1:
        raise QueryError(f"suppose at least one row in a group, not {rows}", culprit=rows)
    if query.discovered:
        raise QueryError("how many values are found in the data, and which, is not known beforehand", culprit=query)
    planned = plan(query, domain)
    mechanisms = noises(domain, planned.questions, loss, planned.shares)
    return _expected(Reading(domain, as_confidence(confidence)), query, planned, mechanisms, rows)


def _expected(
    reading: Reading, query: Query, planned: Plan, mechanisms: Sequence[Noise], rows: int | None
) -> tuple[Expected, ...]:
    found = [
        Expected(name, *_errors(reading, aggregate, mechanisms[planned.first(source)], rows))
        for name, aggregate, source in zip(query.labels, query.aggregates, planned.source, strict=True)
    ]
    if planned.truncation is not None:
        first = planned.first(planned.truncation)
        for place, name in enumerate(("rows left out by the bound", "units with rows left out by the bound"), first):
            noise = mechanisms[place]
            found.append(Expected(name, math.sqrt(noise.variance), float(reading.half_width(noise)), "units", None))
    return tuple(found)


def cost(domain: Domain, query: Query, half_width: Number, *, confidence: Number, rows: int | None = None) -> Epsilon:
    """The smallest pure epsilon, of three digits, at which no interval is wider than twice ``half_width``.

    ``half_width`` is in the units of the answers; for quantiles it is a number of rows.

    Raises:
        LossError: a half-width that is not positive.
        InfeasibleError: no epsilon up to a million is enough.
    """
    wanted = exact(half_width, name="error")
    if wanted <= 0:
        raise LossError(f"an error to aim at is greater than zero, not {half_width}", culprit=half_width)

    def enough(thousandths: int, exponent: int) -> bool:
        loss = Epsilon(Fraction(thousandths) * Fraction(10) ** exponent / _DIGITS)
        try:
            found = accuracy(domain, query, loss, confidence=confidence, rows=rows)
        except LossError:  # so little that its noise does not fit 64 bits
            return False
        return all(expected.half_width <= wanted for expected in found)

    accuracy(domain, query, Epsilon(1), confidence=confidence, rows=rows)  # refuses what cannot be asked at any loss
    for exponent in range(_FINEST_EPSILON, 7):
        if enough(_DIGITS, exponent):
            low, high = _DIGITS // 10, _DIGITS
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if enough(middle, exponent) else (middle, high)
            return Epsilon(Fraction(high) * Fraction(10) ** exponent / _DIGITS)
    raise InfeasibleError("no loss makes the error that small; ask for a larger one", culprit=half_width)


def expected_errors(domain: Domain, query: Query, planned: Plan, mechanisms: Sequence[Noise]) -> dict[str, float]:
    """Standard errors by name, for the statement of a release: of a query, its plan, and the noise on each question."""
    names = {"units": "", "rank": ", in rows of rank", "row": ", times the rows of a group"}
    found = _expected(Reading(domain, Fraction(95, 100)), query, planned, mechanisms, None)
    return {expected.name + names[expected.measure]: expected.standard_error for expected in found}


def too_small(domain: Domain, query: Query, loss: Loss, *, rows: int | None = None) -> tuple[str, ...]:
    """Which answers noise would drown at a loss, in sentences, before it is charged; it looks at no data.

    Args:
        domain: the public description.
        query: what would be asked.
        loss: what it would cost in all.
        rows: a public number of rows of the table; without it, only noise of more than a thousand rows is told.

    Raises:
        QueryError, DomainError, LossError: as :func:`accuracy`.
    """
    refuse_no_query(query)
    if query.discovered:
        return ()
    planned = plan(query, domain)
    return drowned(domain, query, planned, noises(domain, planned.questions, loss, planned.shares), rows)


def drowned(
    domain: Domain, query: Query, planned: Plan, mechanisms: Sequence[Noise], rows: int | None = None
) -> tuple[str, ...]:
    """As :func:`too_small`, of a plan whose noise is known."""
    reading, said = Reading(domain, Fraction(95, 100)), []
    for name, aggregate, source in zip(query.labels, query.aggregates, planned.source, strict=True):
        noise = mechanisms[planned.first(source)]
        most = math.ceil(_rows_hidden(reading, aggregate, noise))
        if rows is not None and most >= rows:
            said.append(f"{name}: at this loss noise may outweigh all of {rows:,} rows; the answer would say nothing")
        elif rows is None and most > _MANY_ROWS:
            said.append(f"{name}: at this loss noise may outweigh {most:,} rows; of fewer rows the answer says nothing")
    return tuple(said)


def _rows_hidden(reading: Reading, aggregate: Aggregate, noise: Noise) -> float:
    """How many rows may stand behind the noise alone: a table of fewer has an interval as wide as all it could say."""
    domain = reading.domain
    match aggregate:
        case Count() | Distinct():
            return reading.half_width(noise)
        case Total(of=of):
            attribute = numeric(domain, of)
            largest = max(abs(attribute.minimum), abs(attribute.maximum))
            return reading.half_width(noise) * float(sum_unit(domain, of)) / largest if largest else 0.0
        case Mean() | Variance():
            attribute = numeric(domain, aggregate.of)
            width = float(attribute.maximum - attribute.minimum)
            one = _per_row(reading, aggregate, noise, None)[1]  # the half-width for one row, which shrinks with them
            if isinstance(aggregate, Mean):
                return one / (width / 2) if width else 0.0
            return one / (width**2 / 8) if width and not aggregate.root else (one / (width / 4)) ** 2 if width else 0.0
        case Quantile() | Extreme():
            return _errors(reading, aggregate, noise, None)[1]


def _errors(
    reading: Reading, aggregate: Aggregate, noise: Noise, rows: int | None
) -> tuple[float, float, str, int | None]:
    """Standard error, half-width, measure, supposed rows."""
    deviation, domain = math.sqrt(noise.variance), reading.domain
    match aggregate:
        case Count() | Distinct():
            return deviation, float(reading.half_width(noise)), "units", None
        case Total(of=of):
            unit = float(sum_unit(domain, of))
            return deviation * unit, reading.half_width(noise) * unit, "units", None
        case Mean() | Variance():
            return _per_row(reading, aggregate, noise, rows)
        case Quantile(of=of) | Extreme(of=of):
            steps = leaves(domain, of)
            share = np.array([float(aggregate.probability) if isinstance(aggregate, Quantile) else 0.0])
            worst = rank_variance(np.arange(steps.leaves), share, steps.leaves, len(steps.edges)).max()
            half = reading.spread(noise, np.array(worst * noise.variance))
            return deviation * math.sqrt(worst), float(half), "rank", None


def _per_row(
    reading: Reading, aggregate: Mean | Variance, noise: Noise, rows: int | None
) -> tuple[float, float, str, int | None]:
    """Bounds over all tables with so many rows in a group: the noise is largest on a mean at a bound."""
    from sfumato.query.tally import square_unit
    from sfumato.vault.sensitivity import steps

    domain = reading.domain
    attribute = numeric(domain, aggregate.of)
    width = float(attribute.maximum - attribute.minimum)
    supposed = 1 if rows is None else rows
    if isinstance(aggregate, Mean):
        most = steps(domain, aggregate.of, sum_unit(domain, aggregate.of))
        deviation = width * math.sqrt(noise.variance) / most / supposed
        half = width * reading.half_width(noise, 2) / most / supposed
    else:
        most = steps(domain, aggregate.of, square_unit(domain, aggregate.of)) ** 2
        # the gradient of (x z - y^2/4) / n^2 is at most 1/n long, at a variance of zero at a bound
        deviation = width**2 * math.sqrt(noise.variance) / most / supposed
        half = width**2 * reading.half_width(noise, 3) * 1.5 / most / supposed
        if aggregate.root:  # a root turns an error of its square into at most its root
            deviation, half = math.sqrt(deviation), math.sqrt(half)
    if rows is not None:  # estimates lie within the bounds
        widest = width if isinstance(aggregate, Mean) else width / 2 if aggregate.root else width**2 / 4
        deviation, half = min(deviation, widest), min(half, widest)
    return deviation, half, "row" if rows is None else "units", rows
