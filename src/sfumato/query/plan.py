"""The plan of a query: the few noisy tables that answer it, and the answer from them.

Aggregates that need the same table share it, and two queries that need the same tables are one release.  The error of
an answer follows from the plan and the loss alone, before anything is spent.  Errors of counts and sums are exact.

The error of a mean or a variance depends on the number of rows in a group, which is itself private.  So the error is
bounded for a number of rows that the caller supposes.  The error of a quantile is bounded as a rank: a share of the
rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, parse_integer
from sfumato.domain import Axis, Categorical, Domain, Integer
from sfumato.domain.attribute import unknown_code
from sfumato.domain.view import BoundedView
from sfumato.errors import InfeasibleError, LossError, QueryError, pluralize
from sfumato.privacy.loss import Epsilon, Loss, Number, exact
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates import Confidence, Estimates, ExpectedError
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.query.answer import Answer, CountedTruncation
from sfumato.query.answer_expression import MeasuredAggregates
from sfumato.query.question import Query, refuse_no_query, words
from sfumato.vault.contribution import Groups
from sfumato.vault.interface import Mechanisms, Payload, ReleasedPayload, ReleaseRequest
from sfumato.vault.measurables import Marginal, Measurable, questions_json
from sfumato.vault.mechanisms import MANY_ROWS, noises
from sfumato.vault.unit_measurables import Dropped, Units
from sfumato.vault.value_measurables import Bins, Moments, Sum

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.ledger.ledger import Ledger

_FINEST_EPSILON = -9
_ALL_ROWS = 1e18  # more rows than any table has
_DIGITS = 1000  # an epsilon is stated with three digits
_USUAL = Confidence(Fraction(95, 100))


@dataclass(frozen=True)
class Plan:
    """The noisy tables of a query, in canonical order, and the table of each aggregate.

    Attributes:
        query: the checked query.
        domain: the domain of the rows.
        tables: the measurements of each table, which divide its part of the loss equally.
        source: the index of the table of each aggregate.
        words: the query in words, for readers of the journal.
        truncation: the index of the table of dropped rows and their units; None if the query does not request it.
        groups: the groups that remain under the condition, in the order of the answer; None: all.
    """

    query: Query
    domain: Domain
    tables: tuple[tuple[Measurable, ...], ...]
    source: tuple[int, ...]
    words: str
    truncation: int | None
    groups: NDArray[np.bool_] | None

    @cached_property
    def questions(self) -> tuple[Measurable, ...]:
        """The measurements of all tables, in order."""
        return tuple(question for table in self.tables for question in table)

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """The part of the loss of each measurement; every table gets an equal part."""
        part = Fraction(1, len(self.tables))
        return tuple(part / len(table) for table in self.tables for _ in table)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters for the journal, in canonical form."""
        return {**questions_json(self.questions), "shares": [str(share) for share in self.shares]}

    @property
    def request(self) -> ReleaseRequest:
        """The request of its release."""
        return ReleaseRequest("query", "tally", self.parameters, self.words)

    def noises(self, loss: Loss) -> tuple[Noise, ...]:
        """Return the noise on each measurement at a loss; refuse, without a charge, noise that cannot be drawn.

        Raises:
            LossError: no loss, or one so small that its noise cannot be drawn.
        """
        return noises(self.domain, self.questions, loss, self.shares)

    def run(self, mechanisms: Mechanisms, loss: Loss) -> Payload:
        """Measure the tables."""
        measured = mechanisms.measure(self.questions, loss, shares=self.shares)
        return {str(place): measurement.values for place, measurement in enumerate(measured)}

    def answer(self, released: ReleasedPayload, loss: Loss, confidence: Confidence) -> Answer:
        """Return the answer from the payload of a release at a loss."""
        query, domain, added = self.query, self.domain, self.noises(loss)
        estimates = self._estimates(released.payload, loss, confidence)
        at = partial(self._estimates, released.payload, loss)
        answer = Answer(
            guarantee=released.guarantee,
            cost=released.cost,
            accepted=released.accepted,
            expected_error=self._standard_errors(loss),
            provenance=released.provenance,
            query=query,
            labels=_cells(query.by, domain.axes(query.by)),
            estimates=self._measured(loss, at).columns(query.columns, confidence) if query.columns else estimates,
            aggregates=estimates if query.columns else (),
            confidence=confidence.probability,
            notes=(*query.population_notes(domain, released.view), *self.warnings(loss)),
            truncation=self._truncation(released.payload, added, confidence),
            integers=frozenset(name for name in query.by if _spells_integers(name, domain)),
            widest=query.largest_intervals(domain),
        )
        return answer if self.groups is None else answer.take(np.flatnonzero(self.groups))

    def _estimates(self, payload: Payload, loss: Loss, confidence: Confidence) -> tuple[Estimates, ...]:
        """Return the estimates of the aggregates."""
        added, estimates = self.noises(loss), []
        for aggregate, source in zip(self.query.aggregates, self.source, strict=True):
            places = self._places(source)
            tables = [payload[str(place)] for place in places]
            estimates.append(aggregate.estimates(tables, added[places[0]], self.domain, confidence))
        return tuple(estimates)

    def _measured(
        self, loss: Loss, at: Callable[[Confidence], tuple[Estimates, ...]] | None = None
    ) -> MeasuredAggregates:
        """Return the aggregates with their noise, for computed columns."""
        added = self.noises(loss)
        noises = tuple(added[self._places(source)[0]] for source in self.source)
        return MeasuredAggregates(self.query.aggregates, self.domain, self.source, noises, at)

    def expected(self, loss: Loss, confidence: Confidence, *, rows: int | None = None) -> tuple[ExpectedError, ...]:
        """Return the errors to expect at a loss; see :func:`accuracy`."""
        added = self.noises(loss)
        errors = [
            aggregate.expected(name, added[self._places(source)[0]], self.domain, confidence=confidence, rows=rows)
            for name, aggregate, source in zip(self.query.labels, self.query.aggregates, self.source, strict=True)
        ]
        for column in self.query.columns:
            both = self._measured(loss).error(column, confidence)
            if both is not None and column.name not in self.query.labels:
                errors.append(ExpectedError(column.name, *both, "units"))
        if self.truncation is not None:
            names = ("rows left out by the bound", "units with rows left out by the bound")
            for place, name in zip(self._places(self.truncation), names, strict=True):
                noise = added[place]
                errors.append(
                    ExpectedError(name, math.sqrt(noise.variance), float(confidence.half_width(noise)), "units")
                )
        return tuple(errors)

    def warnings(self, loss: Loss, *, rows: int | None = None) -> tuple[str, ...]:
        """Return sentences about answers that noise would hide at a loss; see :func:`low_signal_warnings`."""
        warnings, added = [], self.noises(loss)
        for name, aggregate, source in zip(self.query.labels, self.query.aggregates, self.source, strict=True):
            rows_hidden = aggregate.rows_hidden_by(added[self._places(source)[0]], self.domain, _USUAL)
            most = math.ceil(min(rows_hidden, _ALL_ROWS))
            if rows is not None and most >= rows:
                warnings.append(
                    f"{name}: at this loss noise may outweigh all of {pluralize(rows, 'row')}; the answer would say "
                    "nothing"
                )
            elif rows is None and most > MANY_ROWS:
                warnings.append(
                    f"{name}: at this loss noise may outweigh {most:,} rows; of fewer rows the answer says nothing"
                )
        return tuple(warnings)

    def _standard_errors(self, loss: Loss) -> dict[str, float]:
        """Return standard errors by name, for the statement of a release."""
        names = {"units": "", "rank": ", in rows of rank", "row": ", times the rows of a group"}
        return {error.name + names[error.measure]: error.standard_error for error in self.expected(loss, _USUAL)}

    def _truncation(self, payload: Payload, added: Sequence[Noise], confidence: Confidence) -> CountedTruncation | None:
        if self.truncation is None or self.query.truncation is None:
            return None
        rows, units = (
            NoisyValue(*(float(part[0]) for part in confidence.counts(payload[str(place)], added[place]).arrays))
            for place in self._places(self.truncation)
        )
        return CountedTruncation(rows, units, self.query.truncation)

    def _places(self, table: int) -> range:
        """Return the indices of a table's measurements."""
        first = sum(len(before) for before in self.tables[:table])
        return range(first, first + len(self.tables[table]))


def plan(query: Query, domain: Domain, view: BoundedView | None = None) -> Plan:
    """Return the plan of a query whose values are all declared.

    Args:
        query: the query.
        domain: the domain of the rows.
        view: the view that the rows belong to, if they come from several tables.

    Raises:
        QueryError, DomainError: the query does not fit the domain, or no group can hold a row that meets its condition.
    """
    query = query.check(domain)
    remaining = query.possible_groups(domain, view)
    where = query.condition(domain)
    text = words(query, where, domain)
    axes = domain.axes(query.by)
    by, groups = tuple(each.attribute for each in axes), tuple(each.groups for each in axes)
    needed = [_by_groups(each.measurables(by, where, domain), groups) for each in query.aggregates]
    if query.truncation is not None:
        needed.append((Dropped(query.truncation, where), Dropped(1, where)))
    if len(needed) == 1:
        return Plan(query, domain, tuple(needed), (0,), text, None, remaining)
    distinct = sorted({_key(table): table for table in needed}.items())
    places = {key: place for place, (key, _) in enumerate(distinct)}
    source = tuple(places[_key(table)] for table in needed)
    tables = tuple(table for _, table in distinct)
    if query.truncation is None:
        return Plan(query, domain, tables, source, text, None, remaining)
    return Plan(query, domain, tables, source[:-1], text, source[-1], remaining)


def _key(table: Sequence[Measurable]) -> str:
    """Return the canonical form of a table, with the digest of its condition."""
    forms = [question.canonical() for question in table]
    for question, form in zip(table, forms, strict=True):
        where = question.table().where
        form["where"] = None if where is None else where.digest
    return json.dumps(forms, sort_keys=True)


def _by_groups(questions: tuple[Measurable, ...], groups: Groups) -> tuple[Measurable, ...]:
    """Return the measurements for coarser cells; measurements by attribute stay unchanged."""
    if all(group is None for group in groups):
        return questions
    assert all(isinstance(question, Marginal | Sum | Moments | Units | Bins) for question in questions)
    return tuple(
        replace(question, groups=(*groups, *_further_groups(question, len(groups))))  # type: ignore[type-var]
        for question in questions
    )


def _further_groups(question: Measurable, by: int) -> Groups:
    """Return the groups of a marginal's attributes that follow the GROUP BY attributes."""
    if not isinstance(question, Marginal):
        return ()
    return (question.groups or (None,) * len(question.attributes))[by:]


def accuracy(
    domain: Domain, query: Query, loss: Loss, *, confidence: Number, rows: int | None = None
) -> tuple[ExpectedError, ...]:
    """Return the errors to expect of a query at a loss.

    Args:
        domain: the public description.
        query: the query.
        loss: the total loss of the query.
        confidence: the confidence of the intervals.
        rows: the supposed number of rows in each group, from 1.  By default, errors of means and variances are stated
            for one row; they shrink in proportion to the number of rows.

    Raises:
        QueryError, DomainError: the query does not fit the domain.
    """
    expect(domain, Domain, "errors are computed for a Domain")
    refuse_no_query(query)
    if rows is not None:
        rows = parse_integer(rows, "the rows supposed in a group are a whole number")
    if rows is not None and rows < 1:
        raise QueryError(f"suppose at least one row in a group, not {rows}", culprit=rows)
    if query.data_dependent_groups:
        raise QueryError(
            "the error of values found in the data is not known in advance; declare the values", culprit=query
        )
    return plan(query, domain).expected(loss, Confidence.from_number(confidence), rows=rows)


def cost(domain: Domain, query: Query, half_width: Number, *, confidence: Number, rows: int | None = None) -> Epsilon:
    """Return the smallest pure epsilon, of three digits, at which no interval is wider than twice ``half_width``.

    ``half_width`` is in the units of the answers; for quantiles it is a number of rows.

    Raises:
        LossError: a half-width that is not positive.
        InfeasibleError: no epsilon up to a million is enough.
    """
    target = exact(half_width, name="error")
    if target <= 0:
        raise LossError(f"an error to aim at is greater than zero, not {half_width}", culprit=half_width)

    def enough(thousandths: int, exponent: int) -> bool:
        loss = Epsilon(Fraction(thousandths) * Fraction(10) ** exponent / _DIGITS)
        try:
            errors = accuracy(domain, query, loss, confidence=confidence, rows=rows)
        except LossError:  # the loss is so small that its noise does not fit 64 bits
            return False
        return all(expected.half_width <= target for expected in errors)

    accuracy(domain, query, Epsilon(1), confidence=confidence, rows=rows)  # refuse a query that is invalid at any loss
    for exponent in range(_FINEST_EPSILON, 7):
        if enough(_DIGITS, exponent):
            low, high = _DIGITS // 10, _DIGITS
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if enough(middle, exponent) else (middle, high)
            return Epsilon(Fraction(high) * Fraction(10) ** exponent / _DIGITS)
    raise InfeasibleError("no loss makes the error that small; choose a larger error", culprit=half_width)


def released_rows(ledger: Ledger, domain: Domain, query: Query, *, analyst: str | None) -> tuple[int, ...]:
    """Return the rows of the smallest, a middle and the largest group, from released counts of these groups.

    It uses stored answers, without a charge.

    Args:
        ledger: the ledger of the table.
        domain: the domain of the table.
        query: the query; only a query without a condition has known counts.
        analyst: the analyst who received the counts; None: any.
    """
    from sfumato.vault.mechanisms import STORED, stored_marginals  # most previews do not need the import

    version, axes = ledger.data_version(), domain.axes(query.by)
    if version is None or query.where is not None or any(axis.groups is not None for axis in axes):
        return ()
    names = [axis.attribute for axis in axes]
    answers = ledger.answers(STORED, str(version.number), analyst=analyst)
    tables = [each for each in stored_marginals(domain, answers) if set(names) <= set(each.attributes)]
    if not tables or query.data_dependent_groups:
        return ()
    best = min(tables, key=lambda each: each.noise.variance * np.size(each.values))
    others = tuple(place for place, name in enumerate(best.attributes) if name not in names)
    counts = np.sort(np.sum(best.values, axis=others), axis=None)
    counts = counts[counts > 0]
    return tuple(dict.fromkeys(int(counts[place]) for place in (0, len(counts) // 2, -1))) if len(counts) else ()


def low_signal_warnings(domain: Domain, query: Query, loss: Loss, *, rows: int | None = None) -> tuple[str, ...]:
    """Return warnings about answers that noise would hide at a loss, before it is charged; read no data.

    Args:
        domain: the public description.
        query: the query.
        loss: the total loss of the query.
        rows: a public number of rows of the table.  By default, only noise of more than a thousand rows is reported.

    Raises:
        QueryError, DomainError, LossError: as for :func:`accuracy`.
    """
    refuse_no_query(query)
    if query.data_dependent_groups:
        return ()
    return plan(query, domain).warnings(loss, rows=rows)


def _spells_integers(name: str, domain: Domain) -> bool:
    """Return whether the cells of a grouping are single integers of 64 bits, apart from missing values."""
    if name not in domain or unknown_code(domain[name]) is not None:
        return False
    attribute = domain[name]
    if isinstance(attribute, Integer):
        return attribute.edges is None and max(abs(attribute.minimum), abs(attribute.maximum)) < 1 << 63
    if not isinstance(attribute, Categorical):
        return False
    return all(type(value) is int and abs(value) < 1 << 63 for value in attribute.values)


def _cells(by: Sequence[str], axes: Sequence[Axis]) -> tuple[pa.Array, ...]:
    """Return the labels of all cells in C order of the axes: an array of shape ``(cells,)`` per grouping."""
    if not axes:
        return ()
    import pyarrow as pa

    sizes = [each.size for each in axes]
    labels = {}
    for number, axis in enumerate(axes):
        along = [1] * number + [axis.size] + [1] * (len(axes) - number - 1)
        for grouping, own in zip(axis.groupings, axis.cells, strict=True):
            places = np.broadcast_to(np.asarray(own, dtype=np.int32).reshape(along), sizes).reshape(-1)
            labels[grouping.name] = pa.DictionaryArray.from_arrays(places, pa.array(grouping.labels, pa.string()))
    return tuple(labels[name] for name in by)
