"""Routes of datasets: their public facts, budgets and questions.

A question is parsed before it is charged, and charged before the data is touched.  Its reply has the answer as JSON, an
Arrow stream or a Parquet file.

A large answer is sent in pieces.  One thread of a worker writes the pieces of all large answers.  So small questions
get the interpreter soon, and no large answer is in memory as text.
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
from sfumato.domain.view import BoundedView
from sfumato.errors import QueryError
from sfumato.ledger import Account
from sfumato.privacy.loss import decimals, plain
from sfumato.query import Answer, ask
from sfumato.query.answer import FORMATS, JSON
from sfumato.query.plan import released_rows
from sfumato.query.question import Query
from sfumato.query.statements.table_statement import parse_tables
from sfumato_server.access import Anyone, CurrentService, Reader, StrictRoute
from sfumato_server.problems import timed
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import naming_spenders, parse_monthly_budget, spent_by
from sfumato_server.service import Service
from sfumato_server.tables import Description, ServedDataset
from sfumato_server.work import LARGE, Permit


@dataclass(frozen=True)
class ParsedQuestion:
    """A question that fits the domain or schema of its dataset.

    Attributes:
        query: the query of the table or view.
        domain: the domain of the table or view.
        view: the view whose rows are counted; None if they are those of the one table of the dataset.
    """

    query: Query
    domain: Domain
    view: BoundedView | None = None

    @property
    def cells(self) -> int:
        """The number of estimates in the answer: groups times aggregates.

        The number of data-dependent groups is not known before, so such a question counts as large.
        """
        groups = math.prod(axis.size for axis in self.domain.axes(self.query.by)) if self.query.by else 1
        return max(groups * len(self.query.aggregates), LARGE if self.query.data_dependent_groups else 1)

    def released_rows(self, loaded: ServedDataset, key: Key) -> tuple[int, ...]:
        """Return rows of groups by counts that were released to the caller; of a view none are known."""
        return () if self.view else released_rows(loaded.ledger, self.domain, self.query, analyst=key.name)

    def answer(
        self, request: AskRequest, loaded: ServedDataset, key: Key, service: Service, retry_key: str | None
    ) -> Answer:
        """Return the answer; it is charged before the data is touched.

        Raises:
            RefusalError, BudgetError: the question is not admitted; nothing was charged.
        """
        name = loaded.dataset.called  # the ledger's name may be an earlier one
        vault = service.vault(name, key.name) if self.view is None else service.view(name, key.name, self.view)
        loss, confidence = request.loss.loss(), request.confidence
        return request.post_processed(ask(vault, self.query, loss=loss, confidence=confidence, retry_key=retry_key))


def read_question(loaded: ServedDataset, request: AskRequest | CostRequest) -> ParsedQuestion:
    """Parse the question of a request.

    Raises:
        QueryError: the question is outside the language, or a dataset of several tables gets fields instead of SQL.
    """
    schema = loaded.schema
    if schema is None:
        query, view = request.read(loaded.domain, loaded.dataset.discoverable)
        return ParsedQuestion(query, loaded.domain if view is None else view.domain, view)
    if request.sql is None or request.query is not None:
        raise QueryError("this dataset has several tables: ask it in SQL alone, which says how they are joined")
    statement = parse_tables(request.sql, schema)
    domain = statement.view.domain
    query = replace(statement.query, truncation=request.truncation).check(domain)
    return ParsedQuestion(query, domain, statement.view)


_WRITER: Final = ThreadPoolExecutor(1, "reply")

Accept = Annotated[str | None, Header(alias="Accept", include_in_schema=False)]


def answer_response(answer: Answer, accept: str | None, permit: Permit | None = None) -> Response:
    """Return the response with an answer.

    Args:
        answer: the answer.
        accept: the request's Accept header; the first supported media type is used, else JSON.
        permit: the permit of a large question, which is closed when the reply is sent or lost.
    """
    accepted = (each.partition(";")[0].strip().lower() for each in (accept or "").split(","))
    media_type = next((each for each in accepted if each in FORMATS), JSON)
    pieces = FORMATS[media_type](answer)
    if len(answer) * len(answer.columns) < LARGE:
        if permit is not None:
            permit.close()
        return Response(b"".join(pieces), media_type=media_type)
    return _LargeResponse(_stream(pieces), permit, media_type)


class _LargeResponse(StreamingResponse):
    """A response in pieces that closes the permit of its question."""

    def __init__(self, pieces: AsyncIterator[bytes], permit: Permit | None, media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._permit = permit

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._permit is not None:
                self._permit.close()


async def _stream(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(_WRITER, next, pieces, None)) is not None:
        yield piece


router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=StrictRoute)
RetryKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


@router.get("")
def datasets(key: Reader, service: CurrentService) -> dict[str, Any]:
    """List the datasets that the key may ask or read about, with their public facts."""
    return {"datasets": [summary(loaded) for loaded in service.accessible_datasets(key)]}


@router.get("/{name}")
def dataset(name: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Return a dataset's public facts, with its domain or the schema of its tables."""
    loaded = service.check_access(name, key)
    if loaded.schema is not None:
        return {**summary(loaded), "schema": loaded.schema.describe()}
    return {**summary(loaded), "domain": loaded.domain.describe()}


@router.get("/{name}/budget")
def budget(name: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Return the guarantee of all releases together, and the rest of the budget and of the caller's cap.

    Stewards see the caps of all analysts.
    """
    loaded = service.check_access(name, key)
    default_cap = limit_of(service.grants.terms(loaded.dataset.name).default_cap)
    is_new = default_cap is not None and key.scope is not Scope.STEWARD and key.name not in loaded.ledger.caps()
    return budgets(loaded, key, str(default_cap) if is_new else None)


@router.post("/{name}/cost")
def preview(name: str, form: CostRequest, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Return the cost of a question, or the expected errors of its answer.  It spends nothing and touches no data."""
    loaded = service.check_access(name, key)
    question = read_question(loaded, form)
    estimate = form.estimate_cost(
        question.domain,
        question.query,
        rows=loaded.dataset.rows,
        more="state yours with 'rows'",
        released_rows=question.released_rows(loaded, key),
    )
    if estimate.cost is not None:
        return {"epsilon": plain(estimate.cost.value), "notes": estimate.notes, "charged": False}
    return {"expected": [asdict(each) for each in estimate.expected], "notes": estimate.notes, "charged": False}


@router.post("/{name}/query", response_model=dict[str, Any])
def answer(  # noqa: PLR0917  (FastAPI passes each part of a request)
    name: str, form: AskRequest, key: Anyone, service: CurrentService, retry_key: RetryKey = None, accept: Accept = None
) -> Response:
    """Answer a question.  It is charged before the data is touched, and stored before the reply is sent.

    The answer is JSON, or an Arrow stream or a Parquet file if the request accepts that.
    """
    loaded = service.check_access(name, key)
    question = read_question(loaded, form)
    service.check_query_budget(name, key, form.loss.loss())
    with (
        service.quotas.question_slot(key.id, question.cells) as permit,
        timed("query"),
        naming_spenders(loaded.ledger, key),
    ):
        result = question.answer(form, loaded, key, service, retry_key)
    return answer_response(result, accept, permit)


def summary(loaded: ServedDataset) -> dict[str, Any]:
    """Return the public facts of a dataset in short."""
    account = loaded.ledger.remaining()
    return {
        "name": loaded.dataset.called,
        **_columns(loaded.description),
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
    """Return the months of the budget, the number begun, and the amount they still allow; None for other budgets."""
    monthly = parse_monthly_budget(loaded.dataset.limit)
    if monthly is None:
        return None
    since, now = datetime.fromisoformat(loaded.dataset.registered), datetime.now(UTC)
    left = decimals(monthly.left(account, since, now), up=False)
    begun_months = monthly.months_begun(since, now)
    return {"limit": str(monthly.monthly), "months": monthly.months, "begun": begun_months, "left": left}


def _columns(description: Description) -> dict[str, Any]:
    """Return the attributes of a table; or the tables of a schema, and attributes named by table and column."""
    if not isinstance(description, Schema):
        return {"attributes": list(description.names)}
    tables = {table.name: [each.name for each in table.attributes] for table in description}
    return {"attributes": [f"{table}.{name}" for table, names in tables.items() for name in names], "tables": tables}


def budgets(loaded: ServedDataset, key: Key, default_cap: str | None = None) -> dict[str, Any]:
    """Return the budgets that a key may see; ``default_cap`` is the cap of an analyst without one."""
    account, own = loaded.ledger.remaining(), loaded.ledger.remaining(key.name)
    facts: dict[str, Any] = {
        "dataset": str(account),
        "guarantee": account.guarantee,
        "left": None if account.left is None else decimals(account.left, up=False),
        "yours": str(own)
        if own.limit is not None or default_cap is None
        else f"{default_cap} from the first question on",
    }
    if key.scope is Scope.STEWARD:
        facts["analysts"] = {name: str(cap) for name, cap in loaded.ledger.caps().items()}
        facts["spent_by"] = spent_by(loaded.ledger)
    return facts
