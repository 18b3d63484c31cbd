"""Routes of datasets: what is public about them, budgets, and questions, from a request to the bytes of its reply.

A question is read before it is charged, and charged before the data is touched.  Its reply holds the answer as JSON, an
Arrow stream or a Parquet file, in pieces if the answer is large.  One thread of a worker writes the pieces of all large
answers.  So small questions get the interpreter soon, and a large answer is never held as text.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from sfumato.app.api.questions import AskRequest, CostRequest, limit_of
from sfumato.domain import Domain
from sfumato.domain.table_schema import Schema
from sfumato.errors import QueryError
from sfumato.ledger import Account
from sfumato.privacy.loss import decimals, plain
from sfumato.query import Answer, ask
from sfumato.query.answer import FORMATS, JSON
from sfumato.query.question import Query
from sfumato.query.statements.table_statement import TableStatement, parse_tables
from sfumato_server.access import Anyone, CurrentService, StrictRoute
from sfumato_server.problems import timed
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import explained, read_periods, spent_by
from sfumato_server.service import Service
from sfumato_server.tables import Described, ServedDataset
from sfumato_server.work import LARGE, Permit


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
        return max(groups * len(self.query.aggregates), LARGE if self.query.data_dependent_groups else 1)

    def answer(
        self, request: AskRequest, loaded: ServedDataset, key: Key, service: Service, retry_key: str | None
    ) -> Answer:
        """Ask it: charged before the data is touched.

        Raises:
            RefusalError, BudgetError: it is not admitted; nothing was charged.
        """
        name = loaded.dataset.called  # its ledger may have a former name
        if self.statement is None:
            vault = service.vault(name, key.name)
        else:
            vault = service.view(name, key.name, self.statement.view)
        loss, confidence = request.loss.loss(), request.confidence
        answer = request.rounded(ask(vault, self.query, loss=loss, confidence=confidence, retry_key=retry_key))
        return answer if self.statement is None else self.statement.ordering.apply(answer)


def read_question(loaded: ServedDataset, request: AskRequest | CostRequest) -> AskedQuestion:
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


_WRITING: Final = ThreadPoolExecutor(1, "reply")

Accept = Annotated[str | None, Header(alias="Accept", include_in_schema=False)]


def answer_reply(answer: Answer, accept: str | None, permit: Permit | None = None) -> Response:
    """Return the reply that holds an answer.

    Args:
        answer: what it holds.
        accept: the header of the request: the first kind in it that the server writes is taken, else JSON.
        permit: of a large question, which is closed when the reply is sent or lost.
    """
    kinds = (each.partition(";")[0].strip().lower() for each in (accept or "").split(","))
    kind = next((each for each in kinds if each in FORMATS), JSON)
    pieces = FORMATS[kind](answer)
    if len(answer) * len(answer.columns) < LARGE:
        if permit is not None:
            permit.close()
        return Response(b"".join(pieces), media_type=kind)
    return _InPieces(_written(pieces), permit, kind)


class _InPieces(StreamingResponse):
    def __init__(self, pieces: AsyncIterator[bytes], permit: Permit | None, kind: str) -> None:
        super().__init__(pieces, media_type=kind)
        self._permit = permit

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._permit is not None:
                self._permit.close()


async def _written(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(_WRITING, next, pieces, None)) is not None:
        yield piece


router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=StrictRoute)
RetryKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


@router.get("")
def datasets(key: Anyone, service: CurrentService) -> dict[str, Any]:
    """All datasets that the key may ask, with what is public about them."""
    return {"datasets": [summary(loaded) for loaded in service.all_open_to(key)]}


@router.get("/{name}")
def dataset(name: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """One dataset and its public domain, or the schema of its tables."""
    loaded = service.check_access(name, key)
    if loaded.schema is not None:
        return {**summary(loaded), "schema": loaded.schema.describe()}
    return {**summary(loaded), "domain": loaded.domain.describe()}


@router.get("/{name}/budget")
def budget(name: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Return the guarantee of all releases together, and what is left of the budget and of the caller's cap.

    Stewards see the caps of all analysts.
    """
    loaded = service.check_access(name, key)
    coming = limit_of(service.grants.terms(loaded.dataset.name).default_cap)
    new = coming is not None and key.scope is not Scope.STEWARD and key.name not in loaded.ledger.caps()
    return budgets(loaded, key, str(coming) if new else None)


@router.post("/{name}/cost")
def preview(name: str, form: CostRequest, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """What a question would cost, or how wrong its answers would be.  Spends nothing and touches no data."""
    loaded = service.check_access(name, key)
    asked = read_question(loaded, form)
    cheaper = "it is cheaper" if form.loss is None else "the error is smaller"
    found = form.estimate_cost(
        asked.domain, asked.query, rows=loaded.dataset.rows, more=f"suppose more with 'rows', and {cheaper}"
    )
    if found.cost is not None:
        return {"epsilon": plain(found.cost.value), "notes": found.notes, "charged": False}
    return {"expected": [asdict(each) for each in found.expected], "notes": found.notes, "charged": False}


@router.post("/{name}/query", response_model=dict[str, Any])
def answer(  # noqa: PLR0917  (the framework hands over what a request has)
    name: str, form: AskRequest, key: Anyone, service: CurrentService, retry_key: RetryKey = None, accept: Accept = None
) -> Response:
    """Answer a question; charged before the data is touched, durable before the reply leaves.

    The answer is JSON, or an Arrow stream or a Parquet file if the request accepts that.
    """
    loaded = service.check_access(name, key)
    asked = read_question(loaded, form)
    service.admit(name, key, form.loss.loss())
    with service.quotas.turn(key.id, asked.cells) as permit, timed("query"), explained(loaded.ledger, key):
        found = asked.answer(form, loaded, key, service, retry_key)
    return answer_reply(found, accept, permit)


def summary(loaded: ServedDataset) -> dict[str, Any]:
    """What is public about a dataset, in short."""
    account = loaded.ledger.remaining()
    return {
        "name": loaded.dataset.called,
        **_described(loaded.described),
        "unit": str(loaded.unit),
        "version": version.number if (version := loaded.ledger.data_version()) is not None else None,
        "limit": str(loaded.ledger.limit),
        "left": str(account),
        "guarantee": account.guarantee,
        "by_month": _by_month(loaded, account),
        "rows": loaded.dataset.rows,
        "discoverable": list(loaded.dataset.discoverable),
        "retired": loaded.dataset.retired,
    }


def _by_month(loaded: ServedDataset, account: Account) -> dict[str, Any] | None:
    """The months of the budget, how many have begun, and what these still allow; None where it has none."""
    found = read_periods(loaded.dataset.limit)
    if found is None:
        return None
    since, now = datetime.fromisoformat(loaded.dataset.registered), datetime.now(UTC)
    left = decimals(found.left(account, since, now), up=False)
    return {"limit": str(found.each), "months": found.months, "begun": found.begun(since, now), "left": left}


def _described(found: Described) -> dict[str, Any]:
    """Attributes of a table; or tables with theirs, and then the attributes are called by both names."""
    if not isinstance(found, Schema):
        return {"attributes": list(found.names)}
    tables = {table.name: [each.name for each in table.attributes] for table in found}
    return {"attributes": [f"{table}.{name}" for table, names in tables.items() for name in names], "tables": tables}


def budgets(loaded: ServedDataset, key: Key, coming: str | None = None) -> dict[str, Any]:
    """Accounts that a key may see; ``coming`` is the cap that an analyst gets who has not asked yet."""
    account, own = loaded.ledger.remaining(), loaded.ledger.remaining(key.name)
    found: dict[str, Any] = {
        "dataset": str(account),
        "guarantee": account.guarantee,
        "left": None if account.left is None else decimals(account.left, up=False),
        "yours": str(own) if own.limit is not None or coming is None else f"{coming} from the first question on",
    }
    if key.scope is Scope.STEWARD:
        found["analysts"] = {name: str(each) for name, each in loaded.ledger.caps().items()}
        found["spent_by"] = spent_by(loaded.ledger)
    return found
