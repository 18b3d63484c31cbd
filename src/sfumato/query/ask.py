"""Asking: one release for all the tables that a question needs, and the estimates read off them.

:func:`ask` reads quantiles off a noisy tree of counts: from one release all quantiles of an attribute follow, each
with its interval.  :func:`choose_quantile` spends everything on one number by the exponential mechanism: its error is
a few rows of rank, at the price of the interval and of the other quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Axis, Categorical, Domain, Integer, Real
from sfumato.domain.attribute import unknown_code
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.errors import LossError, QueryError
from sfumato.privacy.loss import Charge, EpsilonDelta, Loss, Number
from sfumato.privacy.selection import StabilityThreshold
from sfumato.query.accuracy import drowned_in_plan, expected_errors
from sfumato.query.aggregate import Certainty
from sfumato.query.answer import Answer, CountedTruncation, NoisyValue
from sfumato.query.hierarchical_histogram import Quantile, leaves
from sfumato.query.question import Query, QueryPlan, plan, refuse_no_query
from sfumato.vault.interface import Mechanisms, Payload, Request, Settled, VaultInterface, refuse_no_vault
from sfumato.vault.mechanisms import Additive, QuestionTally, selection, selection_charge
from sfumato.vault.release import Release, loss_json
from sfumato.vault.scores import RankErrors

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.domain.view import BoundedView
    from sfumato.vault.schema_vault import SchemaVault
    from sfumato.vault.vault import Vault

CONFIDENCE = Fraction(95, 100)
_PARTS = 4096


def ask(
    vault: VaultInterface, query: Query, *, loss: Loss, confidence: Number = CONFIDENCE, retry_key: str | None = None
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
    refuse_no_vault(vault)
    refuse_no_query(query)
    certainty = Certainty.of(confidence)
    if query.discovered:
        return _discover(vault, query, loss, certainty, retry_key)
    asked = planned_question(vault.domain, query, loss=loss, certainty=certainty, view=vault.view)
    return asked.read(vault.release(asked.request, loss, asked.run, retry_key=retry_key))


@dataclass(frozen=True)
class PlannedQuestion:
    """A query over a domain as it is measured at a loss, of which nothing was charged.

    Attributes:
        query: as it was checked.
        tables: the noisy tables that it needs.
        run: measures them.
        certainty: of the intervals.
        groups: which groups the condition leaves; None: all.
    """

    query: Query
    tables: QueryPlan
    run: QuestionTally
    certainty: Certainty
    groups: NDArray[np.bool_] | None = None

    @property
    def request(self) -> Request:
        """What its release is called in the journal."""
        return request(self.tables)

    def read(self, settled: Settled) -> Answer:
        """The answer, from what was released."""
        tables, query, domain, added = self.tables, self.query, self.run.domain, self.run.added
        answer = _read(settled, tables, query, domain=domain, added=added, certainty=self.certainty)
        return answer if self.groups is None else answer.at(np.flatnonzero(self.groups))


def planned_question(
    domain: Domain, query: Query, *, loss: Loss, certainty: Certainty, view: BoundedView | None = None
) -> PlannedQuestion:
    """Plan a query whose values are all declared.

    Args:
        domain: of the rows.
        query: what is asked of them.
        loss: what its release costs in all.
        certainty: of the intervals.
        view: whose rows they are, if they are of several tables.

    Raises:
        QueryError, DomainError, LossError: it cannot be measured, or no group can hold a row that it is about.
    """
    query = query.check(domain)
    groups = query.possible_groups(domain, view)
    tables = plan(query, domain)
    # refuses, for free, what cannot be measured
    run = QuestionTally(domain, tables.questions, loss, shares=tables.shares)
    return PlannedQuestion(query, tables, run, certainty, groups)


def sql(
    vault: VaultInterface | SchemaVault,
    text: str,
    *,
    loss: Loss,
    discoverable: Sequence[str] = (),
    confidence: Number = CONFIDENCE,
    retry_key: str | None = None,
) -> Answer:
    """Answer a SELECT of the subset (see :mod:`sfumato.query.select_statement`) under one loss, as :func:`ask` does.

    Args:
        vault: the protected table, or the tables of a schema: then the statement may join them, as
            :mod:`sfumato.query.table_statement` says.
        text: the statement.
        loss: what the release costs in all, for the unit of the vault's domain (add/remove).
        discoverable: columns outside the domain by whose values may be grouped; takes a loss with a delta.
        confidence: of the intervals, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.

    Raises:
        QueryError: the statement is no text, or outside the subset; the message says where and why, and nothing was
            spent.
        LossError: the loss is none, or the confidence outside (0, 1); nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    if not isinstance(vault, VaultInterface):  # of one table nothing of several is loaded
        if discoverable:
            raise QueryError("of several tables no values are found in the data: declare them", culprit=discoverable)
        return _of_tables(vault, text, loss=loss, confidence=confidence, retry_key=retry_key)
    from sfumato.query.select_statement import parse

    parsed = parse(text, vault.domain, discoverable=discoverable)
    return ask(vault, parsed, loss=loss, confidence=confidence, retry_key=retry_key)


def _of_tables(vault: object, text: str, *, loss: Loss, confidence: Number, retry_key: str | None) -> Answer:
    from sfumato.query.table_statement import parse_tables
    from sfumato.vault.schema_vault import SchemaVault

    if not isinstance(vault, SchemaVault):
        refuse_no_vault(vault)
    assert isinstance(vault, SchemaVault)
    asked = parse_tables(text, vault.schema)
    over = vault.over(asked.view)
    answer = ask(over, asked.query, loss=loss, confidence=confidence, retry_key=retry_key)
    return asked.arranged.of(answer)


def view(vault: SchemaVault, text: str) -> Vault:
    """The vault of a view, for any family: ``SELECT *`` FROM tables and joins, or a statement of one row a unit.

    Raises:
        QueryError: the statement is outside the grammar, with its place.
    """
    from sfumato.query.table_statement import parse_view

    return vault.over(parse_view(text, vault.schema))


def price(query: Query, domain: Domain, loss: Loss) -> Charge:
    """What a query costs at a loss, the first time that it is asked.

    Raises:
        LossError: values to be found in the data at a loss without a delta.
    """
    return _threshold(_with_delta(loss), domain).charge if query.discovered else loss.charge


def request(planned: QueryPlan) -> Request:
    """What the release of a plan is called in the journal."""
    return Request("query", "tally", planned.parameters, planned.words)


def _read(
    settled: Settled,
    planned: QueryPlan,
    query: Query,
    *,
    domain: Domain,
    added: Sequence[Additive],
    certainty: Certainty,
) -> Answer:
    columns = []
    for aggregate, source in zip(query.aggregates, planned.source, strict=True):
        places = planned.places(source)
        tables = [settled.payload[str(place)] for place in places]
        columns.append(aggregate.estimates(tables, added[places[0]], domain, certainty))
    truncation = None
    if planned.truncation is not None and query.truncation is not None:
        rows, units = (
            NoisyValue(*(float(part[0]) for part in certainty.counts(settled.payload[str(place)], added[place]).arrays))
            for place in planned.places(planned.truncation)
        )
        truncation = CountedTruncation(rows, units, query.truncation)
    return Answer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=expected_errors(planned, query, domain=domain, mechanisms=added),
        provenance=settled.provenance,
        query=query,
        labels=_cells(query.by, domain.axes(query.by)),
        estimates=tuple(columns),
        confidence=certainty.confidence,
        remarks=(
            *query.meaning(domain, settled.view),
            *drowned_in_plan(planned, query, domain=domain, mechanisms=added),
        ),
        truncation=truncation,
        integers=frozenset(name for name in query.by if _spells_integers(name, domain)),
    )


def _spells_integers(name: str, domain: Domain) -> bool:
    """Whether the cells that one groups by are single whole numbers that fit 64 bits, and at most missing values."""
    if name not in domain or unknown_code(domain[name]) is not None:
        return False
    attribute = domain[name]
    if isinstance(attribute, Integer):
        return attribute.edges is None and max(abs(attribute.minimum), abs(attribute.maximum)) < 1 << 63
    if not isinstance(attribute, Categorical):
        return False
    return all(type(value) is int and abs(value) < 1 << 63 for value in attribute.values)


def _cells(by: Sequence[str], axes: Sequence[Axis]) -> tuple[pa.Array, ...]:
    """Labels of all cells in C order of the axes: an array of shape ``(cells,)`` a grouping, as they were asked for."""
    if not axes:
        return ()
    import pyarrow as pa

    sizes = [each.size for each in axes]
    found = {}
    for number, axis in enumerate(axes):
        along = [1] * number + [axis.size] + [1] * (len(axes) - number - 1)
        for grouping, own in zip(axis.groupings, axis.cells, strict=True):
            places = np.broadcast_to(np.asarray(own, dtype=np.int32).reshape(along), sizes).reshape(-1)
            found[grouping.name] = pa.DictionaryArray.from_arrays(places, pa.array(grouping.labels, pa.string()))
    return tuple(found[name] for name in by)


def _discover(vault: VaultInterface, query: Query, loss: Loss, certainty: Certainty, retry_key: str | None) -> Answer:
    import pyarrow as pa

    loss = _with_delta(loss)
    mechanism = _threshold(loss, vault.domain)
    columns = query.discovered
    vault.refuse_keys(columns)

    def run(mechanisms: Mechanisms) -> Payload:
        found = mechanisms.threshold(columns, loss)
        units = np.asarray(found["units"].to_numpy(), dtype=np.int64)
        return {"keys": [found[column].to_pylist() for column in columns], "units": units}

    settled = vault.release(
        Request(
            "query",
            "threshold",
            {"columns": list(columns), "of": loss_json(loss)},
            query.describe(vault.domain),
        ),
        mechanism.charge,
        run,
        retry_key=retry_key,
    )
    units = certainty.counts(np.asarray(settled.payload["units"], dtype=np.int64), mechanism.noise)
    return Answer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=dict.fromkeys(query.labels, math.sqrt(mechanism.noise.variance)),
        provenance=settled.provenance,
        query=query,
        labels=tuple(pa.array(each, pa.string()) for each in settled.payload["keys"]),
        estimates=(units,) * len(query.labels),
        confidence=certainty.confidence,
        remarks=(
            f"values are shown from a noisy count of {mechanism.threshold} units; others are not",
            "the confidence is over all values, shown or not; of those shown with little more, fewer intervals hold",
            *query.meaning(vault.domain),
        ),
    )


def _threshold(loss: EpsilonDelta, domain: Domain) -> StabilityThreshold:
    return StabilityThreshold(loss, keys_per_unit=domain.unit.rows)


def _with_delta(loss: Loss) -> EpsilonDelta:
    if not isinstance(loss, EpsilonDelta):
        raise LossError(
            "values found in the data are released behind a threshold that needs a delta; state epsilon and delta",
            culprit=loss,
        )
    return loss


@dataclass(frozen=True, kw_only=True, repr=False)
class ChosenQuantile(Release):
    """A value near a quantile; ``expected_error`` bounds, with 95 %, by how many rows it misses the rank."""

    value: float
    quantile: Quantile

    @property
    def headline(self) -> str:
        """The value."""
        return f"{self.quantile} {self.value:.6g}"


def choose_quantile(
    vault: VaultInterface,
    quantile: Quantile,
    *,
    loss: Loss,
    where: Predicate | str | None = None,
    retry_key: str | None = None,
) -> ChosenQuantile:
    """Choose a value near a quantile of the rows that meet a condition.

    Exponential mechanism over a grid of up to 2^24 cells between the declared bounds, single integers where they are
    no more; exact.  Neighbours, sensitivity and scores: :class:`sfumato.vault.scores.RankErrors`.  Loss: epsilon,
    or what rho admits (:class:`sfumato.privacy.selection.Exponential`).  Source: Smith 2011, algorithm 2, on a grid.

    Args:
        vault: the protected table.
        quantile: of which attribute, and which.
        loss: what the release costs in all, for the unit of the vault's domain (add/remove).
        where: None: all rows.
        retry_key: the same for all attempts at one request.

    Raises:
        QueryError, DomainError: the question does not fit the domain, or no row that meets the condition can have a
            value; nothing was spent.
        LossError: no loss; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    if not isinstance(loss, Loss):
        raise LossError("state a loss: Epsilon, Rho or EpsilonDelta", culprit=loss)
    domain = vault.domain
    query = Query((quantile,), where=where).check(domain)
    where = query.condition(domain)
    least, greatest = _possible_ends(quantile.of, where, domain, vault.view)
    asked = rank_errors(domain, quantile, where)
    mechanism = selection(domain, asked, loss)  # refuses what cannot be chosen, for free

    def run(mechanisms: Mechanisms) -> Payload:
        return {"cell": mechanisms.select(asked, loss)}

    asked_for = Request("query", "choice", {"scores": asked.canonical()}, f"chosen {query.describe(domain)}")
    settled = vault.release(asked_for, loss, run, charge=selection_charge(mechanism, loss), retry_key=retry_key)
    bin_, part = divmod(int(settled.payload["cell"]), asked.parts)
    start, end = asked.edges[bin_], asked.edges[bin_ + 1]
    attribute = numeric(domain, quantile.of)
    low = start + part * (end - start) / asked.parts
    value = math.ceil(low) if isinstance(attribute, Integer) else low + (end - start) / asked.parts / 2
    cells = (len(asked.edges) - 1) * asked.parts
    # McSherry and Talwar 2007, Theorem 6: some cell misses nothing, and the rest are no more than all
    missed = 2 * float(mechanism.sensitivity / mechanism.epsilon.value) * math.log(cells / float(1 - CONFIDENCE))
    return ChosenQuantile(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error={f"{quantile}, in rows of rank": missed / quantile.probability.denominator},
        provenance=settled.provenance,
        value=float(min(max(value, least), greatest)),
        quantile=quantile,
    )


def _possible_ends(name: str, where: Predicate | None, domain: Domain, view: BoundedView | None) -> tuple[float, float]:
    """Return the least and the greatest value of an attribute that rows which meet a condition can have.

    Raises:
        QueryError: they can have none.
    """
    attribute = numeric(domain, name)
    if where is None and view is None:
        return attribute.minimum, attribute.maximum
    from sfumato.query.possible_groups import possible_cells

    cells = possible_cells((name,), where, domain, view)
    codes = range(attribute.declared) if cells is None else np.flatnonzero(cells[: attribute.declared]).tolist()
    if not codes:
        raise QueryError(
            f"no row that meets this condition has a value of {name!r}; change the condition", culprit=where
        )
    greatest: float = attribute.bounds(codes[-1])[1]
    if isinstance(attribute, Real) and not attribute.is_closed(codes[-1]):
        greatest = math.nextafter(greatest, -math.inf)
    return attribute.bounds(codes[0])[0], greatest


def rank_errors(domain: Domain, quantile: Quantile, where: Predicate | None) -> RankErrors:
    """The scores: bins of the attribute's quantiles, divided to single integers or into 4096 cells each.

    Raises:
        QueryError, DomainError: the attribute has no numbers, or there is none.
    """
    attribute = numeric(domain, quantile.of)
    edges = leaves(domain, quantile.of).edges[0]
    width = edges[1] - edges[0]
    parts = min(_PARTS, int(width)) if isinstance(attribute, Integer) else _PARTS
    if parts < 1:
        raise QueryError(f"the bins of {quantile.of!r} are too narrow to be divided", culprit=quantile)
    return RankErrors(quantile.of, quantile.probability, edges, parts, where)
