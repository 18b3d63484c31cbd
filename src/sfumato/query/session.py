"""Several queries under one budget: sessions, and batches of counts that are answered together.

A session divides a budget over a fixed number of queries, or spends it as the analyst goes along.  It bounds the loss
of its own queries in memory, in addition to the limits and caps of the ledger, which outlive the process.  A batch is
answered from one optimized set of noisy counts (the matrix mechanism).  The strategy is chosen by its expected error
with the planned noise, so the choice has no privacy loss.  All answers come from one least-squares table, so that sums
and differences of queries agree.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Unpack

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.errors import BudgetError, DomainError, LossError, QueryError, SizeError
from sfumato.ledger.account import GRID, Account
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import NOTHING, Charge, Loss
from sfumato.query.answer import Answer
from sfumato.query.ask import ask, price
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
from sfumato.vault.measurables import Marginal
from sfumato.vault.release import Release
from sfumato.vault.release import loss_json as loss_in_words
from sfumato.workload import Workload
from sfumato.workload.matrix_mechanism import StrategyOption, by_attribute
from sfumato.workload.matrix_mechanism import plan as plan_workload

_DIGITS, _PLACES = 15, Decimal("1e-18")  # digits of a rounded part, as many as a float prints
REFUSALS = (BudgetError, DomainError, LossError, QueryError, SizeError)
"""What :func:`sfumato.query.ask.ask` raises before anything is charged, and only then."""


class Session:
    """A session of ``queries`` queries that share ``budget`` equally; the next query is refused.

    If a query needs the same tables as an earlier query of the session, the stored numbers are returned.  Such a query
    is not counted and not charged.  It reveals nothing: an average of equal answers is the answer.

    Raises:
        QueryError: no whole number of queries, or fewer than one.
        LossError: no loss, or a loss in another measure than the ledger's limit.
        BudgetError: the ledger's limit would never admit all of the queries.
    """

    def __init__(self, vault: VaultInterface, *, budget: Loss, queries: int) -> None:
        if not isinstance(queries, int) or queries < 1:
            raise QueryError(f"a session answers a whole number of queries, at least one, not {queries}")
        refuse_no_vault(vault)
        _refuse_no_loss(budget, "budget")
        self.loss = _part(budget, queries)
        _refuse_beyond(vault, _times(self.loss.charge, queries))
        self.queries = queries
        self._vault = vault
        self._answered_keys: set[str] = set()
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """The number of different queries that remain."""
        return self.queries - len(self._answered_keys)

    def ask(self, query: Query) -> Answer:
        """Answer a query at its part of the budget.

        Raises:
            BudgetError: the session has no query left; nothing was spent.
        """
        key = _key(query, self._vault.domain, self.loss)
        with self._lock:  # one query at a time, so that a refused query is not counted
            new = key not in self._answered_keys
            if new and not self.left:
                raise BudgetError(
                    f"this session has answered its {self.queries} queries; nothing was spent", culprit=query
                )
            self._answered_keys.add(key)
            try:
                return ask(self._vault, query, loss=self.loss)
            except REFUSALS:
                if new:
                    self._answered_keys.discard(key)
                raise


class Adaptive:
    """A session whose queries each state their loss, until the next would exceed ``budget``: an exact privacy filter.

    Pure epsilon adds up (sequential composition holds for adaptively chosen losses); so does rho (Whitehouse, Ramdas,
    Rogers and Wu 2023, Theorem 1).

    Raises:
        LossError: the budget is no loss.
        BudgetError: the budget exceeds the ledger's limit, in the limit's measure.
    """

    def __init__(self, vault: VaultInterface, *, budget: Loss) -> None:
        refuse_no_vault(vault)
        _refuse_no_loss(budget, "budget")
        if type(budget) is type(vault.limit):  # in another measure the sum depends on the division
            _refuse_beyond(vault, budget.charge)
        self.budget = budget
        self.spent = NOTHING
        self._vault = vault
        self._answered_keys: set[str] = set()
        self._lock = threading.Lock()

    @property
    def left(self) -> Fraction:
        """The largest loss of another query: epsilon under a budget of epsilon, otherwise rho."""
        left = Account(self.budget, self.spent).left
        assert left is not None, "a session has a budget"
        return left

    @states_loss
    def ask(self, query: Query, **stated: Unpack[StatedLoss]) -> Answer:
        """Answer a query at its loss; a repeated query at the same loss is free.

        Raises:
            BudgetError: the loss exceeds the remaining budget; nothing was spent.
            LossError: the loss is missing, or the budget does not have its measure.
            TableError: the table lacks a column whose values are to be found; nothing was spent.
        """
        loss = stated_loss(stated)
        _refuse_no_loss(loss, "loss")
        key = _key(query, self._vault.domain, loss)
        charge = price(query, self._vault.domain, loss)
        if query.data_dependent_groups:
            self._vault.refuse_keys(query.data_dependent_groups)  # find missing columns before the charge
        with self._lock:
            new, before = key not in self._answered_keys, self.spent
            if new:
                if not self.budget.admits(self.spent, charge):
                    raise BudgetError("this session's budget does not admit the loss; nothing was spent", culprit=loss)
                self.spent += charge
                self._answered_keys.add(key)
            try:
                return ask(self._vault, query, loss=loss)
            except REFUSALS:
                if new:
                    self._answered_keys.discard(key)
                    self.spent = before
                raise


def _key(query: Query, domain: Domain, loss: Loss) -> str:
    """Return a key of the tables of a query at a loss; values found in the data are named by their columns."""
    refuse_no_query(query)
    tables = query.data_dependent_groups or plan(query, domain).request
    return repr((tables, loss_in_words(loss)))


def _refuse_no_loss(loss: Loss, name: str) -> None:
    if not isinstance(loss, Loss):
        raise LossError(f"state a {name}: Epsilon, Rho or EpsilonDelta", culprit=loss)


def _refuse_beyond(vault: VaultInterface, charge: Charge) -> None:
    """Refuse a session that the ledger could never answer to its end, before the first query is charged."""
    if vault.limit is not None and not vault.limit.admits(NOTHING, charge):
        raise BudgetError(f"this session's budget is more than {vault.limit}, the limit of the ledger", culprit=charge)


def _times(charge: Charge, number: int) -> Charge:
    pure = None if charge.epsilon is None else charge.epsilon * number
    return Charge(pure, charge.rho * number, charge.delta * number)


def _part(budget: Loss, queries: int) -> Loss:
    """Return an equal part of a budget; for (epsilon, delta), of the zCDP that it admits.

    A part that ledgers cannot add up exactly is rounded down, so that the last query fits as well.
    """
    part = budget.divisible / queries
    if GRID % part.value.denominator == 0:
        return part
    digits = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    short = digits.divide(Decimal(part.value.numerator), Decimal(part.value.denominator))
    return type(part)(short.quantize(_PLACES, rounding=ROUND_FLOOR))


@dataclass(frozen=True, kw_only=True, repr=False)
class BatchAnswer(Release):
    """Consistent answers to a batch.

    Attributes:
        answers: shape ``(queries,)``.
        standard_errors: standard deviation of the noise on each answer, shape ``(queries,)``, known without the data.
        cells: the least-squares table whose sums are the answers, flat in C order.
        strategy: the measured strategy.
        considered: expected root mean squared error of an answer by strategy.
    """

    answers: FloatArray
    standard_errors: FloatArray
    cells: FloatArray
    strategy: str
    considered: Mapping[str, float]

    @property
    def headline(self) -> str:
        """The number of answers, and the strategy that measured them."""
        return f"{len(self.answers):,} counts by {self.strategy}"


def strategies(domain: Domain, workload: Workload, loss: Loss) -> tuple[StrategyOption, ...]:
    """Return strategies for a workload, the best first, by expected error; read no data and spend nothing.

    Raises:
        QueryError, SizeError: the workload does not fit the domain, or is too large.
    """
    expect(domain, Domain, "a batch is of a Domain")
    return plan_workload(domain, loss, workload, by_attribute(domain, workload))


@states_loss
def answer_batch(vault: VaultInterface, workload: Workload, **stated: Unpack[StatedLoss]) -> BatchAnswer:
    """Answer all queries of a workload for one loss, by the strategy of the smallest expected error.

    If single cells are best, the batch shares its table with any query that counts these cells.

    Raises:
        QueryError, SizeError: the workload does not fit the domain, or is too large; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    options = strategies(vault.domain, workload, loss)
    best, rows = options[0], workload.matrix(vault.domain)
    question = best.question

    def run(mechanisms: Mechanisms) -> Payload:
        (measured,) = mechanisms.measure([question], loss)
        if isinstance(question, Marginal):
            return {"0": measured.values}
        return {"cells": best.strategy.estimate(measured.values.astype(np.float64))}

    released = vault.release(_request(workload, vault.domain, best), loss, run)
    stored = released.payload
    cells = stored["0"].astype(np.float64) if "0" in stored else stored["cells"]
    return BatchAnswer(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error={"root mean squared error of an answer": best.error},
        provenance={**released.provenance, "strategy": best.strategy.name},
        answers=rows.astype(np.float64) @ cells,
        standard_errors=best.standard_errors(rows),
        cells=cells,
        strategy=best.strategy.name,
        considered={option.strategy.name: option.error for option in options},
    )


def _request(workload: Workload, domain: Domain, best: StrategyOption) -> ReleaseRequest:
    """Return the request, named by the workload: the last bits of optimized weights differ between machines."""
    name, names = best.strategy.name, list(best.attributes)
    words = f"{workload.length(domain):,} counting queries over {', '.join(names)}, by {name}"
    if isinstance(best.question, Marginal):
        parameters = {"questions": [best.question.canonical()], "shares": ["1"]}
        return ReleaseRequest("query", "tally", parameters, words)
    rows = workload.matrix(domain)
    digest = hashlib.sha256(np.packbits(rows).tobytes()).hexdigest()
    matrix = {"shape": list(rows.shape), "sha256": digest}
    return ReleaseRequest("query", "strategy", {"attributes": names, "strategy": name, "workload": matrix}, words)
