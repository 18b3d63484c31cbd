"""Sessions: a budget divided over a number of queries fixed in advance, or spent as the analyst goes along.

A session bounds what its own queries cost, on top of the ledger's limits, which bound everybody together.  It lives
in one process; caps that outlive it are the ledger's, by analyst.
"""

from __future__ import annotations

import threading

from sfumato.errors import BudgetError, QueryError
from sfumato.privacy.accountant import NOTHING, admits, charge_for
from sfumato.privacy.loss import EpsilonDelta, Loss
from sfumato.query.answer import Answer
from sfumato.query.ask import Keeper, ask, request
from sfumato.query.question import Query
from sfumato.query.tally import plan
from sfumato.vault.canonical import loss as loss_in_words


class Session:
    """``queries`` queries that share ``budget`` equally; the next one is refused.

    A query that needs the same tables as an earlier one of the session returns its numbers, is not counted and
    costs nothing, so that asking again teaches nothing: averages of copies are the copy.

    Raises:
        QueryError: fewer than one query.
    """

    def __init__(self, vault: Keeper, *, budget: Loss, queries: int) -> None:
        if queries < 1:
            raise QueryError(f"a session answers at least one query, not {queries}", culprit=queries)
        self.loss = _part(budget, queries)
        self.queries = queries
        self._vault = vault
        self._asked: set[str] = set()
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many different queries can still be asked."""
        return self.queries - len(self._asked)

    def ask(self, query: Query) -> Answer:
        """Answer a query at its part of the budget.

        Raises:
            BudgetError: as many different queries as agreed were asked; nothing was spent.
        """
        key = repr(request(plan(query, self._vault.domain)))
        with self._lock:
            if key not in self._asked and not self.left:
                raise BudgetError(
                    f"this session has answered its {self.queries} queries; nothing was spent", culprit=query
                )
            self._asked.add(key)
        return ask(self._vault, query, loss=self.loss)


class Adaptive:
    """Queries that each name their loss, until the next would pass ``budget``: a filter decides, exactly.

    Pure epsilon adds up (sequential composition holds for adaptively chosen losses); rho as well
    (Whitehouse, Ramdas, Rogers and Wu 2023, Theorem 1).
    """

    def __init__(self, vault: Keeper, *, budget: Loss) -> None:
        self.budget = budget
        self.spent = NOTHING
        self._vault = vault
        self._asked: set[str] = set()
        self._lock = threading.Lock()

    def ask(self, query: Query, *, loss: Loss) -> Answer:
        """Answer a query at its loss; one that was asked before at this loss is free.

        Raises:
            BudgetError: the loss does not fit what is left; nothing was spent.
            LossError: the budget does not have the measure of the loss.
        """
        key = repr((request(plan(query, self._vault.domain)), loss_in_words(loss)))
        charge = charge_for(loss)
        with self._lock:
            if key not in self._asked:
                if not admits(self.budget, self.spent, charge):
                    raise BudgetError("this session's budget does not admit the loss; nothing was spent", culprit=loss)
                self.spent += charge
                self._asked.add(key)
        return ask(self._vault, query, loss=loss)


def _part(budget: Loss, queries: int) -> Loss:
    """An equal part; of (epsilon, delta), of the zCDP that it admits."""
    return (budget.as_rho() if isinstance(budget, EpsilonDelta) else budget) / queries
