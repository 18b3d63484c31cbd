"""Asking: one release for all the tables that a query needs, and the estimates read off them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from sfumato.domain import Domain, Unknown
from sfumato.errors import LossError
from sfumato.privacy.accountant import Charge, charge_for
from sfumato.privacy.loss import EpsilonDelta, Loss, Number, decimals
from sfumato.privacy.stability import StabilityThreshold
from sfumato.query.accuracy import drowned, expected_errors
from sfumato.query.answer import BOUNDED, Answer, Truncation, Value
from sfumato.query.estimate import Noise, Reading, as_confidence
from sfumato.query.question import Aggregate, Count, Distinct, Query, Total, refuse_no_query
from sfumato.query.tally import Plan, plan, sum_unit
from sfumato.query.words import in_words
from sfumato.vault import canonical, keeper
from sfumato.vault.doors import Doors
from sfumato.vault.noise import noises
from sfumato.vault.payload import Payload
from sfumato.vault.questions import beyond_bounds
from sfumato.vault.vault import Request, Settled

CONFIDENCE = Fraction(95, 100)


class Keeper(keeper.Keeper, Protocol):
    """What a query needs of a vault: also its limit, and columns that are not in the domain."""

    @property
    def limit(self) -> Loss | None:
        """The most that may ever be released, where it is known."""
        ...

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """See :meth:`sfumato.engine.port.Encoded.refuse_keys`."""
        ...


def ask(
    vault: Keeper, query: Query, *, loss: Loss, confidence: Number = CONFIDENCE, retry_key: str | None = None
) -> Answer:
    """Answer a query under one loss, charged before the data is touched.

    The loss is divided equally over the tables that the query needs.  A query that needs the same tables as
    one that was answered before at this loss returns its numbers, and costs the dataset nothing.

    Args:
        vault: the protected table.
        query: what is asked.
        loss: what the release costs in all, for the unit of the vault's domain (add/remove).
        confidence: of the intervals, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.

    Raises:
        QueryError, DomainError: the query does not fit the domain; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
        LossError: a confidence outside (0, 1), or values to be discovered without a delta; nothing was spent.
        TableError: values are to be found in a column that the table does not have; nothing was spent.
    """
    keeper.refuse_no_vault(vault)
    refuse_no_query(query)
    sure = as_confidence(confidence)
    if query.discovered:
        return _discover(vault, query, loss, sure, retry_key)
    planned = plan(query, vault.domain)
    # refuses what cannot be measured, for free
    mechanisms = noises(vault.domain, planned.questions, loss, planned.shares)

    def run(doors: Doors) -> Payload:
        measured = doors.measure(planned.questions, loss, shares=planned.shares)
        return {str(place): measurement.values for place, measurement in enumerate(measured)}

    settled = vault.release(request(planned), loss, run, retry_key=retry_key)
    return _read(Reading(vault.domain, sure), query, planned, mechanisms, settled)


def price(query: Query, domain: Domain, loss: Loss) -> Charge:
    """What a query costs at a loss, the first time that it is asked.

    Raises:
        LossError: values to be found in the data at a loss without a delta.
    """
    return _threshold(_with_delta(loss), domain).charge if query.discovered else charge_for(loss)


def request(planned: Plan) -> Request:
    """What the release of a plan is called in the journal."""
    return Request("query", "tally", planned.parameters, planned.words, raw=beyond_bounds(planned.questions))


def _read(reading: Reading, query: Query, planned: Plan, mechanisms: Sequence[Noise], settled: Settled) -> Answer:
    domain = reading.domain
    columns = []
    for aggregate, source in zip(query.aggregates, planned.source, strict=True):
        first = planned.first(source)
        levels = range(first, first + len(planned.tallies[source].questions))
        values = [settled.payload[str(place)] for place in levels]
        columns.append(reading.estimates(aggregate, values, mechanisms[first]))
    labels = [domain[name].labels() for name in query.by]
    keys = tuple(itertools.product(*labels))
    values_by_group = tuple(
        tuple(
            Value(*(float(part[group]) for part in (column.value, column.error, column.low, column.high)))
            for column in columns
        )
        for group in range(len(keys))
    )
    return Answer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=expected_errors(domain, query, planned, mechanisms),
        provenance=settled.provenance,
        query=query,
        keys=keys,
        values=values_by_group,
        confidence=reading.confidence,
        remarks=(*meaning(query, domain), *drowned(domain, query, planned, mechanisms)),
        truncation=_truncation(reading, query, planned, mechanisms, settled),
    )


def _truncation(
    reading: Reading, query: Query, planned: Plan, mechanisms: Sequence[Noise], settled: Settled
) -> Truncation | None:
    if planned.truncation is None or query.truncation is None:
        return None
    first = planned.first(planned.truncation)
    rows, units = (
        reading.count(int(settled.payload[str(place)][0]), mechanisms[place]) for place in (first, first + 1)
    )
    return Truncation(rows, units, query.truncation)


def meaning(query: Query, domain: Domain) -> tuple[str, ...]:
    """What the exact answer is of which an interval says where it lies, where that is not simply the table."""
    unit = domain.unit
    dropping = [attribute.name for attribute in domain if attribute.unknown is Unknown.DROP]
    numbers = sorted({of for each in query.aggregates if (of := _clamped(each, domain)) is not None})
    said = []
    if unit.column is not None and query.discovered:
        said.append(f"each {unit.column} counts for at most {unit.rows} of the values found")
    elif unit.column is not None:
        said.append(f"{BOUNDED}: at most {unit.rows} rows of one {unit.column}, the rest is left out")
    if dropping and not query.discovered:
        said.append(f"rows with an undeclared {' or '.join(dropping)} are left out, as the domain says")
    said += [
        f"{each} is of values rounded to multiples of {decimals(step, up=False)}"
        for each in query.aggregates
        if isinstance(each, Total) and (step := sum_unit(domain, each.of)) != 1
    ]
    if numbers:
        said.append(f"values of {', '.join(numbers)} beyond the declared bounds count as the bounds")
    return tuple(said)


def _clamped(aggregate: Aggregate, domain: Domain) -> str | None:
    """The attribute of which an aggregate takes clamped numbers."""
    of = None if isinstance(aggregate, Count | Distinct) else aggregate.of
    return of if of is not None and domain[of].unknown is Unknown.CLAMP else None


def _discover(vault: Keeper, query: Query, loss: Loss, confidence: Fraction, retry_key: str | None) -> Answer:
    loss = _with_delta(loss)
    mechanism = _threshold(loss, vault.domain)
    columns = query.discovered
    vault.refuse_keys(columns)

    def run(doors: Doors) -> Payload:
        found = doors.threshold(columns, loss)
        units = np.asarray(found["units"].to_numpy(), dtype=np.int64)
        return {"keys": [found[column].to_pylist() for column in columns], "units": units}

    settled = vault.release(
        Request(
            "query",
            "threshold",
            {"columns": list(columns), "of": canonical.loss(loss)},
            in_words(query, vault.domain),
            raw=columns,
        ),
        mechanism.charge,
        run,
        retry_key=retry_key,
    )
    half, error = mechanism.noise.quantile(confidence), math.sqrt(mechanism.noise.variance)
    units = [float(number) for number in settled.payload["units"]]
    return Answer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=dict.fromkeys(query.labels, error),
        provenance=settled.provenance,
        query=query,
        keys=tuple(zip(*settled.payload["keys"], strict=True)),
        values=tuple(tuple(Value(at, error, at - half, at + half) for _ in query.labels) for at in units),
        confidence=confidence,
        remarks=(
            f"values are shown from a noisy count of {mechanism.threshold} units; others are not",
            "the confidence is over all values, shown or not; of those shown with little more, fewer intervals hold",
            *meaning(query, vault.domain),
        ),
    )


def _threshold(loss: EpsilonDelta, domain: Domain) -> StabilityThreshold:
    return StabilityThreshold.for_loss(loss, keys_per_unit=domain.unit.rows)


def _with_delta(loss: Loss) -> EpsilonDelta:
    if not isinstance(loss, EpsilonDelta):
        raise LossError(
            "values found in the data are released behind a threshold that needs a delta; state epsilon and delta",
            culprit=loss,
        )
    return loss
