"""Answers to queries: one release for all tables of a query, and the estimates from them.

All quantiles of an attribute come from one release, each with its interval, because it is a noisy tree of counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Unpack

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import LossError, QueryError
from sfumato.privacy.loss import Charge, EpsilonDelta, Loss, Number
from sfumato.privacy.noise import Noise
from sfumato.privacy.threshold import StabilityThreshold
from sfumato.query.aggregates import Confidence, Estimates
from sfumato.query.answer import Answer
from sfumato.query.answer_expression import MeasuredAggregates
from sfumato.query.plan import plan
from sfumato.query.question import Query, refuse_no_query
from sfumato.vault.interface import (
    Mechanisms,
    Payload,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.release import loss_json

if TYPE_CHECKING:
    from sfumato.vault.schema_vault import SchemaVault
    from sfumato.vault.vault import Vault

CONFIDENCE = Fraction(95, 100)


@states_loss
def ask(
    vault: VaultInterface,
    query: Query,
    *,
    confidence: Number = CONFIDENCE,
    retry_key: str | None = None,
    **stated: Unpack[StatedLoss],
) -> Answer:
    """Answer a query under one loss, charged before the data is touched.

    The loss is divided equally over the tables of the query.  If an earlier query used the same tables at the same
    loss, the stored numbers are returned, and nothing is charged.

    Args:
        vault: the protected table.
        query: the query.
        confidence: the confidence of the intervals, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.
        **stated: ``loss``, or ``epsilon`` with or without ``delta``: the total loss of the release, for the privacy
            unit of the vault's domain (add/remove).

    Raises:
        QueryError, DomainError: the query does not fit the domain; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
        LossError: a confidence outside (0, 1), or undeclared values without a delta; nothing was spent.
        TableError: the table lacks a column whose values are to be found; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    refuse_no_query(query)
    level = Confidence.from_number(confidence)
    if query.data_dependent_groups:
        return _discover(vault, query, loss, level, retry_key)
    plan_ = plan(query, vault.domain, vault.view)
    plan_.noises(loss)  # refuse before the charge if the noise cannot be drawn
    released = vault.release(plan_.request, loss, partial(plan_.run, loss=loss), retry_key=retry_key)
    return plan_.answer(released, loss, level)


@states_loss
def sql(
    vault: VaultInterface | SchemaVault,
    text: str,
    *,
    groupable_undeclared: Sequence[str] = (),
    confidence: Number = CONFIDENCE,
    retry_key: str | None = None,
    **stated: Unpack[StatedLoss],
) -> Answer:
    """Answer a SELECT of the subset under one loss, like :func:`ask`.

    The subset is described in :mod:`sfumato.query.statements.select_statement`.

    Args:
        vault: the protected table, or the tables of a schema: then the statement may join them
            (:mod:`sfumato.query.statements.table_statement`).
        text: the statement.
        groupable_undeclared: columns outside the domain that may be used in GROUP BY; needs a loss with a delta.
        confidence: the confidence of the intervals, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.
        **stated: ``loss``, or ``epsilon`` with or without ``delta``: the total loss of the release, for the privacy
            unit of the vault's domain (add/remove).

    Raises:
        QueryError: the statement is no text, or outside the subset; the message names the place and the reason, and
            nothing was spent.
        LossError: the loss is missing, or the confidence is outside (0, 1); nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    loss = stated_loss(stated)
    if not isinstance(vault, VaultInterface):  # a single table needs no import for several
        if groupable_undeclared:
            raise QueryError(
                "values cannot be found in the data of several tables; declare them in the schema",
                culprit=groupable_undeclared,
            )
        return _of_tables(vault, text, loss=loss, confidence=confidence, retry_key=retry_key)
    from sfumato.query.statements.select_statement import parse

    try:
        query = parse(text, vault.domain, groupable_undeclared=groupable_undeclared)
    except QueryError as error:
        vault, query = _with_view(vault, text, error, groupable_undeclared)
    return ask(vault, query, loss=loss, confidence=confidence, retry_key=retry_key).apply_clauses()


def _with_view(
    vault: VaultInterface, text: str, refused: QueryError, groupable_undeclared: Sequence[str]
) -> tuple[VaultInterface, Query]:
    """Return the query of a statement about one table, and the vault of the view that it queries."""
    from sfumato.query.statements.table_statement import parse_with_view
    from sfumato.vault.vault import Vault

    query, view = parse_with_view(text, vault.domain, refused, groupable_undeclared=groupable_undeclared)
    if view is None:
        return vault, query
    if not isinstance(vault, Vault):
        raise QueryError("this statement computes with rows, which only the vault of a table can do", culprit=text)
    return vault.for_view(view), query


def _of_tables(vault: object, text: str, *, loss: Loss, confidence: Number, retry_key: str | None) -> Answer:
    from sfumato.query.statements.table_statement import parse_tables
    from sfumato.vault.schema_vault import SchemaVault

    if not isinstance(vault, SchemaVault):
        refuse_no_vault(vault)
    assert isinstance(vault, SchemaVault)
    statement = parse_tables(text, vault.schema)
    view_vault = vault.for_view(statement.view)
    return ask(view_vault, statement.query, loss=loss, confidence=confidence, retry_key=retry_key).apply_clauses()


def view(vault: SchemaVault, text: str) -> Vault:
    """Return the vault of a view, for any family: ``SELECT *`` FROM tables and joins, or a statement of one row per
    unit.

    Raises:
        QueryError: the statement is outside the grammar, with its place.
    """
    from sfumato.query.statements.table_statement import parse_view

    return vault.for_view(parse_view(text, vault.schema))


def price(query: Query, domain: Domain, loss: Loss) -> Charge:
    """Return the charge of a query at a loss, if it is new.

    Raises:
        LossError: undeclared values at a loss without a delta.
    """
    return _threshold(_with_delta(loss), domain).charge if query.data_dependent_groups else loss.charge


def _discover(vault: VaultInterface, query: Query, loss: Loss, confidence: Confidence, retry_key: str | None) -> Answer:
    import pyarrow as pa

    loss = _with_delta(loss)
    mechanism = _threshold(loss, vault.domain)
    columns = query.data_dependent_groups
    vault.refuse_keys(columns)

    def run(mechanisms: Mechanisms) -> Payload:
        keys = mechanisms.threshold(columns, loss)
        units = np.asarray(keys["units"].to_numpy(), dtype=np.int64)
        return {"keys": [keys[column].to_pylist() for column in columns], "units": units}

    parameters = {"columns": list(columns), "of": loss_json(loss)}
    released = vault.release(
        ReleaseRequest("query", "threshold", parameters, query.describe(vault.domain)),
        mechanism.charge,
        run,
        retry_key=retry_key,
    )
    estimates, aggregates = _estimates(query, vault.domain, released.payload, mechanism.noise, confidence)
    return Answer(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error=dict.fromkeys(query.labels, math.sqrt(mechanism.noise.variance)),
        provenance=released.provenance,
        query=query,
        labels=tuple(pa.array(each, pa.string()) for each in released.payload["keys"]),
        estimates=estimates,
        aggregates=aggregates,
        confidence=confidence.probability,
        notes=(
            f"values are shown from a noisy count of {mechanism.threshold} units; others are not",
            "the confidence is over all values, shown or not; of those shown with little more, fewer intervals hold",
            *query.population_notes(vault.domain),
        ),
    )


def _estimates(
    query: Query, domain: Domain, payload: Payload, noise: Noise, confidence: Confidence
) -> tuple[tuple[Estimates, ...], tuple[Estimates, ...]]:
    """Return the estimates of the columns, and the estimates of the aggregates behind them."""
    units, number = np.asarray(payload["units"], dtype=np.int64), len(query.aggregates)

    def at(level: Confidence) -> tuple[Estimates, ...]:
        return (level.counts(units, noise),) * number

    if not query.columns:
        return at(confidence), ()
    measured = MeasuredAggregates(query.aggregates, domain, (0,) * number, (noise,) * number, at)
    return measured.columns(query.columns, confidence), at(confidence)


def _threshold(loss: EpsilonDelta, domain: Domain) -> StabilityThreshold:
    return StabilityThreshold(loss, keys_per_unit=domain.unit.rows)


def _with_delta(loss: Loss) -> EpsilonDelta:
    if not isinstance(loss, EpsilonDelta):
        raise LossError(
            "values found in the data are released behind a threshold that needs a delta; state epsilon and delta",
            culprit=loss,
        )
    return loss
