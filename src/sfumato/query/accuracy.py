"""Before anything is spent: how wrong answers will be at a loss, what loss an error costs, and when noise drowns all.

Everything here is computed from the domain, the query and the loss, never from the data.  Errors of counts and sums
are exact.  The error of a mean or a variance depends on how many rows a group has, which the table does
not tell for free: it is bounded for the number of rows that the caller supposes.  The error of a
quantile is bounded as a rank: a share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sfumato.arguments import expect, whole
from sfumato.domain import Domain
from sfumato.errors import InfeasibleError, LossError, QueryError
from sfumato.privacy.loss import Epsilon, Loss, Number, exact
from sfumato.query.aggregate import Certainty, Expected
from sfumato.query.question import Query, QueryPlan, plan, refuse_no_query
from sfumato.vault.mechanisms import MANY_ROWS, Additive

_FINEST_EPSILON = -9
_ALL_ROWS = 1e18  # more than any table has
_DIGITS = 1000  # an epsilon is stated with three digits
_USUAL = Certainty(Fraction(95, 100))


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
    mechanisms = planned.mechanisms(domain, loss)
    return _expected(
        planned, query, domain=domain, mechanisms=mechanisms, certainty=Certainty.of(confidence), rows=rows
    )


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


def drowned_queries(domain: Domain, query: Query, loss: Loss, *, rows: int | None = None) -> tuple[str, ...]:
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
    return drowned_in_plan(planned, query, domain=domain, mechanisms=planned.mechanisms(domain, loss), rows=rows)


def drowned_in_plan(
    planned: QueryPlan, query: Query, *, domain: Domain, mechanisms: Sequence[Additive], rows: int | None = None
) -> tuple[str, ...]:
    """As :func:`drowned_queries`, of a plan whose noise is known."""
    said = []
    for name, aggregate, source in zip(query.labels, query.aggregates, planned.source, strict=True):
        rows_hidden = aggregate.outweighed(mechanisms[planned.places(source)[0]], domain, _USUAL)
        most = math.ceil(min(rows_hidden, _ALL_ROWS))
        if rows is not None and most >= rows:
            said.append(f"{name}: at this loss noise may outweigh all of {rows:,} rows; the answer would say nothing")
        elif rows is None and most > MANY_ROWS:
            said.append(f"{name}: at this loss noise may outweigh {most:,} rows; of fewer rows the answer says nothing")
    return tuple(said)


def expected_errors(
    planned: QueryPlan, query: Query, *, domain: Domain, mechanisms: Sequence[Additive]
) -> dict[str, float]:
    """Standard errors by name, for the statement of a release: of a query, its plan, and the noise on each question."""
    names = {"units": "", "rank": ", in rows of rank", "row": ", times the rows of a group"}
    found = _expected(planned, query, domain=domain, mechanisms=mechanisms, certainty=_USUAL, rows=None)
    return {expected.name + names[expected.measure]: expected.standard_error for expected in found}


def _expected(
    planned: QueryPlan,
    query: Query,
    *,
    domain: Domain,
    mechanisms: Sequence[Additive],
    certainty: Certainty,
    rows: int | None,
) -> tuple[Expected, ...]:
    found = [
        aggregate.expected(name, mechanisms[planned.places(source)[0]], domain, certainty=certainty, rows=rows)
        for name, aggregate, source in zip(query.labels, query.aggregates, planned.source, strict=True)
    ]
    if planned.truncation is not None:
        names = ("rows left out by the bound", "units with rows left out by the bound")
        for place, name in zip(planned.places(planned.truncation), names, strict=True):
            noise = mechanisms[place]
            found.append(Expected(name, math.sqrt(noise.variance), float(certainty.half_width(noise)), "units"))
    return tuple(found)
