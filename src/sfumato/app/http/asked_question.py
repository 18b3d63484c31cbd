"""Questions to a dataset, whether it has one table or several: read, and answered by what they are about."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.app.http.registry import Key
from sfumato.app.http.service import Service
from sfumato.app.http.tables import Loaded
from sfumato.app.http.work import LARGE
from sfumato.app.requests.queries import AskRequest, CostRequest
from sfumato.domain import Domain
from sfumato.errors import QueryError
from sfumato.query import Answer
from sfumato.query.question import Query
from sfumato.query.table_statement import TableStatement, parse_tables


@dataclass(frozen=True)
class AskedQuestion:
    """A question that fits what its dataset is described by.

    Attributes:
        query: what is asked of the table, or of the view.
        domain: of either.
        statement: over several tables; None where there is one.
    """

    query: Query
    domain: Domain
    statement: TableStatement | None = None

    @property
    def cells(self) -> int:
        """The estimates of its answer: groups times aggregates.

        How many values are found in the data is not known beforehand, so such a question counts as a large one.
        """
        groups = math.prod(axis.size for axis in self.domain.axes(self.query.by)) if self.query.by else 1
        return max(groups * len(self.query.aggregates), LARGE if self.query.discovered else 1)

    def answer(self, request: AskRequest, loaded: Loaded, key: Key, worker: Service, retry_key: str | None) -> Answer:
        """Ask it: charged before the data is touched.

        Raises:
            RefusalError, BudgetError: it is not admitted; nothing was charged.
        """
        name = loaded.dataset.called  # its ledger may have a former name
        if self.statement is None:
            return request.answer(worker.vault(name, key.name), self.query, retry_key=retry_key)
        vault = worker.view(name, key.name, self.statement.view)
        return self.statement.arranged.of(request.answer(vault, self.query, retry_key=retry_key))


def read_question(loaded: Loaded, request: AskRequest | CostRequest) -> AskedQuestion:
    """The question of a request.

    Raises:
        QueryError: outside the language, or as fields where only SQL says which tables are meant.
    """
    schema = loaded.schema
    if schema is None:
        return AskedQuestion(request.read(loaded.domain, loaded.dataset.discoverable), loaded.domain)
    if request.sql is None or request.query is not None:
        raise QueryError("this dataset has several tables: ask it in SQL alone, which says how they are joined")
    found = parse_tables(request.sql, schema)
    domain = found.view.domain
    return AskedQuestion(replace(found.query, truncation=request.truncation).check(domain), domain, found)
