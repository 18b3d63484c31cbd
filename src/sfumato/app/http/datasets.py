"""Datasets, what questions would cost, and answers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from sfumato.app.http.access import Anyone, StrictRoute, Worker
from sfumato.app.http.answer_reply import Accept, answer_reply
from sfumato.app.http.asked_question import read_question
from sfumato.app.http.problems import timed
from sfumato.app.http.registry import Key, Scope
from sfumato.app.http.rules import explained, read_periods, spent_by
from sfumato.app.http.tables import Described, Loaded
from sfumato.app.requests.fields import limit_of
from sfumato.app.requests.queries import AskRequest, CostRequest
from sfumato.domain.table_schema import Schema
from sfumato.ledger import Account
from sfumato.privacy.loss import decimals, plain

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=StrictRoute)
RetryKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


@router.get("")
def datasets(key: Anyone, worker: Worker) -> dict[str, Any]:
    """All datasets that the key may ask, with what is public about them."""
    return {"datasets": [summary(loaded) for loaded in worker.all_open_to(key)]}


@router.get("/{name}")
def dataset(name: str, key: Anyone, worker: Worker) -> dict[str, Any]:
    """One dataset and its public domain, or the schema of its tables."""
    loaded = worker.open_to(name, key)
    if loaded.schema is not None:
        return {**summary(loaded), "schema": loaded.schema.describe()}
    return {**summary(loaded), "domain": loaded.domain.describe()}


@router.get("/{name}/budget")
def budget(name: str, key: Anyone, worker: Worker) -> dict[str, Any]:
    """Return the guarantee of all releases together, and what is left of the budget and of the caller's cap.

    Stewards see the caps of all analysts.
    """
    loaded = worker.open_to(name, key)
    coming = limit_of(worker.grants.terms(loaded.dataset.name).default_cap)
    new = coming is not None and key.scope is not Scope.STEWARD and key.name not in loaded.ledger.caps()
    return budgets(loaded, key, str(coming) if new else None)


@router.post("/{name}/cost")
def preview(name: str, form: CostRequest, key: Anyone, worker: Worker) -> dict[str, Any]:
    """What a question would cost, or how wrong its answers would be.  Spends nothing and touches no data."""
    loaded = worker.open_to(name, key)
    asked = read_question(loaded, form)
    cheaper = "it is cheaper" if form.loss is None else "the error is smaller"
    found = form.foresee(
        asked.domain, asked.query, rows=loaded.dataset.rows, more=f"suppose more with 'rows', and {cheaper}"
    )
    if found.cost is not None:
        return {"epsilon": plain(found.cost.value), "notes": found.notes, "charged": False}
    return {"expected": [asdict(each) for each in found.expected], "notes": found.notes, "charged": False}


@router.post("/{name}/query", response_model=dict[str, Any])
def answer(  # noqa: PLR0917  (the framework hands over what a request has)
    name: str, form: AskRequest, key: Anyone, worker: Worker, retry_key: RetryKey = None, accept: Accept = None
) -> Response:
    """Answer a question; charged before the data is touched, durable before the reply leaves.

    The answer is JSON, or an Arrow stream or a Parquet file if the request accepts that.
    """
    loaded = worker.open_to(name, key)
    asked = read_question(loaded, form)
    worker.admit(name, key, form.loss.loss())
    with worker.quotas.turn(key.id, asked.cells) as permit, timed("query"), explained(loaded.ledger, key):
        found = asked.answer(form, loaded, key, worker, retry_key)
    return answer_reply(found, accept, permit)


def summary(loaded: Loaded) -> dict[str, Any]:
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


def _by_month(loaded: Loaded, account: Account) -> dict[str, Any] | None:
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


def budgets(loaded: Loaded, key: Key, coming: str | None = None) -> dict[str, Any]:
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
