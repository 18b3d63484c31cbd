"""A dataset's pages: a question with its preview, its answer and a chart of it; and tables made in the background.

A question comes from the builder or in SQL.  Scripts put previews and answers in their place; without them each is a
page of its own with the form as it was sent.  Whoever asked for a table waits for it on a page of its own.
"""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from pydantic import BaseModel, Field

from sfumato.app.api.methods import AnonymizationMethod, CountOption
from sfumato.app.api.questions import AskRequest, CostRequest, LossFields, validate_fields
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields, linked_tables
from sfumato.errors import InputError
from sfumato.ledger import Account
from sfumato.privacy.loss import Epsilon, Loss, decimals, plain
from sfumato.query.plan import accuracy
from sfumato.report.linked_tables_page import drawing
from sfumato.strict_documents import read_yaml, read_yaml_texts
from sfumato_server import release_jobs
from sfumato_server.access import Anyone, CurrentService, Steward
from sfumato_server.datasets import read_question, summary
from sfumato_server.problems import problem
from sfumato_server.registry import Key
from sfumato_server.rules import explained
from sfumato_server.stewards import PAGE, entry
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.question_form import AGGREGATES, Picked, QuestionForm, Short, controls, picked_tables
from sfumato_server.ui.rendering import (
    REFUSALS,
    charts,
    files,
    fragment,
    gauge,
    in_place,
    page,
    refused,
    share_of,
    steps,
    telling,
)
from sfumato_server.work import Job

_MORE = "with more, the error is smaller in proportion"
_MOST_RULES = 20_000  # characters
_EARLIER = 20  # questions and tables that are listed

Chosen = Annotated[list[Short], Field(max_length=64)]

router = APIRouter(include_in_schema=False)


class SynthesisForm(BaseModel):
    """What the form for a synthetic table sends, or the one for tables that belong together, with ``children``."""

    method: Literal["auto", "histogram", "related"]
    attributes: Chosen = []
    every: bool = False
    zeros: Annotated[str, Field(max_length=_MOST_RULES)] = ""
    fresh: bool = False
    children: Annotated[str, Field(max_length=_MOST_RULES)] = ""
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""

    def read(self) -> SynthesisFields:
        """The request as HTTP takes it.

        Raises:
            InputError: a histogram of nothing that was chosen, or of all attributes and of some.
        """
        if self.method == "histogram" and self.every == bool(self.attributes):
            raise InputError("tick the attributes of the histogram, or 'all of them'")
        loss = LossFields(epsilon=self.epsilon or None, delta=self.delta or None, rho=self.rho or None)
        rules = self._rules()
        told = {"method": self.method, "loss": loss, "attributes": self.attributes, "zeros": rules}
        told |= {"children": self._children()} if self.children.strip() else {}
        return validate_fields(SynthesisFields, told | ({"reuse": False} if self.fresh else {}))

    def _children(self) -> list[dict[str, object]]:
        """The tables of which a person has several rows, as YAML.

        Raises:
            InputError: they are no list of them.
        """
        found = read_yaml(self.children, name="the tables")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InputError("tables are a list in YAML, such as '- {table: visits, order: admitted, most: 4}'")
        return found

    def _rules(self) -> list[dict[str, object]]:
        """The rules, as YAML.

        Raises:
            InputError: they are no list of rules.
        """
        if not self.zeros.strip():
            return []
        found = read_yaml_texts(self.zeros, name="the rules")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InputError("rules are a list in YAML, such as '- {if: {age: 0..14}, then: {married: [no]}}'")
        return found


class AnonymizationForm(BaseModel):
    """What the form for an anonymised table sends; ``criteria`` are one a line."""

    method: AnonymizationMethod
    quasi: Annotated[Chosen, Field(min_length=1)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    suppression: Short = "0"
    criteria: Annotated[str, Field(max_length=5000)] = ""
    count: CountOption = CountOption.UNITS

    def read(self) -> AnonymizeRequest:
        """The request as HTTP takes it."""
        criteria = [line.strip() for line in self.criteria.splitlines() if line.strip()]
        told = self.model_dump(include={"method", "quasi", "k", "suppression", "count"})
        return AnonymizeRequest.model_validate({**told, "criteria": criteria})


@router.get("/datasets/{name}", response_class=HTMLResponse)
def dataset(
    name: str, key: Anyone, service: CurrentService, question: Annotated[str | None, Query(max_length=60)] = None
) -> Response:
    """Ask a dataset, with the form as it was sent for an earlier question."""
    loaded = service.check_access(name, key)
    earlier = {} if question is None else {each.id: each for each in _questions(service, loaded, key)}
    again = earlier.get(question or "")
    return _dataset(name, key, service, None if again is None else QuestionForm.model_validate(again.request["ask"]))


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def show_preview(
    name: str, request: Request, form: Annotated[QuestionForm, Form()], key: Anyone, service: CurrentService
) -> Response:
    """How wrong the answer would be; spends nothing."""
    loaded = service.check_access(name, key)
    found: Response
    try:
        found = fragment("preview.html.j2", form=form, **preview(loaded, form, key))
    except REFUSALS as error:
        found = refused(error)
    return found if in_place(request) else _dataset(name, key, service, form, found)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def ask(
    name: str, request: Request, form: Annotated[QuestionForm, Form()], key: Anyone, service: CurrentService
) -> Response:
    """Answer, with what is left and the history."""
    loaded = service.check_access(name, key)
    try:
        with explained(loaded.ledger, key):
            request_of = _request(form, loaded)
            asked = read_question(loaded, request_of)
            service.quotas.refuse_page(asked.cells)
            service.admit(name, key, request_of.loss.loss())
            answer = asked.answer(request_of, loaded, key, service, None)
    except REFUSALS as error:
        found = refused(error)
        return found if in_place(request) else _dataset(name, key, service, form, found)
    fields, words = form.model_dump(exclude_defaults=True), asked.query.describe(asked.domain)
    service.registry.jobs.asked(loaded.dataset.name, key.name, {"ask": fields, "words": words})
    shown: dict[str, Any] = {
        "answer": answer,
        "charts": charts(answer, asked.domain),
        "files": files(answer),
        "telling": telling(answer, asked.domain),
        "statement": request_of.sql,
        "dataset": summary(loaded),
    }
    if in_place(request):
        return fragment("answer.html.j2", **shown, **_status(service, loaded, key), whole=False)
    found = fragment("answer.html.j2", **shown, whole=True)
    return _dataset(name, key, service, form, found)


def _request(form: QuestionForm, loaded: ServedDataset) -> AskRequest:
    """What a form asks: of several tables, what was picked is written down in SQL.

    Raises:
        QueryError, InputError: a field says nothing, or too much.
    """
    if loaded.schema is None or form.how != "joined":
        return form.request(loaded)
    picked = Picked(form.table, form.aggregate, form.of, form.by, form.chosen(), form.ends())
    return form.model_copy(update={"how": "sql", "sql": picked.sql(loaded.schema)}).request(loaded)


def _dataset(
    name: str, key: Key, service: CurrentService, form: QuestionForm | None = None, result: Response | None = None
) -> Response:
    """The page, with the form as it was sent and what came of it."""
    loaded = service.check_access(name, key)
    if loaded.schema is None:
        attributes, levels = controls(loaded.domain)
        offered: dict[str, Any] = {"attributes": attributes, "levels": levels, "tables": [], "picture": None}
    else:
        tables = picked_tables(loaded.schema)
        columns = [each for table in tables for each in table.controls]
        picture = drawing(loaded.schema)
        offered = {"attributes": columns, "levels": [], "tables": tables, "picture": picture}
    status, filled_in = _status(service, loaded, key), form or QuestionForm()
    return page(
        "dataset.html.j2",
        status=200 if result is None else result.status_code,
        key=key,
        dataset=summary(loaded),
        **offered,
        aggregates=AGGREGATES,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        identified=loaded.unit.column,
        form=filled_in,
        chosen=_filled_in(filled_in),
        result=None if result is None else Markup(bytes(result.body).decode()),  # noqa: S704  (a fragment of our own)
        **status,
    )


def _filled_in(form: QuestionForm) -> dict[str, Any]:
    """What was chosen of each attribute, as the form shows it again."""
    try:
        ends = form.ends()
    except REFUSALS:
        ends = {}
    return {"among": set(form.among), "ends": ends}


def _status(service: CurrentService, loaded: ServedDataset, key: Key) -> dict[str, Any]:
    """Budgets, and what was asked before."""
    ledger = loaded.ledger
    account, own = ledger.remaining(), ledger.remaining(key.name)
    tightest = _tightest(account, own)
    return {
        "gauge": gauge(account),
        "own": gauge(own),
        "left": None if tightest.left is None else decimals(tightest.left, up=False),
        "questions": [_earlier(each) for each in _questions(service, loaded, key)],
        "history": [entry(each) for each in ledger.newest(PAGE, analyst=key.name)][::-1],
    }


def _tightest(account: Account, own: Account) -> Account:
    """Of a dataset's account and the analyst's own, the one with less left."""
    if own.left is None or account.left is None:
        return account if own.left is None else own
    return min(account, own, key=lambda each: each.left or 0)


def _questions(service: CurrentService, loaded: ServedDataset, key: Key) -> tuple[Job, ...]:
    return service.registry.jobs.questions(loaded.dataset.name, key.name, most=_EARLIER)


def _earlier(job: Job) -> dict[str, str]:
    """An earlier question or table for a list."""
    return {
        "id": job.id,
        "when": job.updated.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "words": str(job.request.get("words", "")),
        "loss": _loss_words(job.request.get("ask", {})),
        "state": job.state.value,
        "kind": "anonymised" if "anonymize" in job.request else "synthetic",
    }


def _loss_words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {fields[name]}" for name in ("epsilon", "delta", "rho") if fields.get(name))


@router.get("/datasets/{name}/releases", response_class=HTMLResponse)
def forms(name: str, key: Anyone, service: CurrentService) -> Response:
    """Ask for a table."""
    return _forms(name, key, service)


@router.post("/datasets/{name}/releases", response_class=HTMLResponse)
def synthesize(name: str, form: Annotated[SynthesisForm, Form()], key: Anyone, service: CurrentService) -> Response:
    """Start a synthetic table."""
    try:
        return _wait_for(release_jobs.release(name, form.read(), key, service)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, error)


@router.post("/datasets/{name}/anonymizations", response_class=HTMLResponse)
def anonymize(name: str, form: Annotated[AnonymizationForm, Form()], key: Steward, service: CurrentService) -> Response:
    """Start an anonymised table."""
    try:
        return _wait_for(release_jobs.anonymization(name, form.read(), key, service)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, error)


@router.get("/releases/{job_id}", response_class=HTMLResponse)
def wait(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """How far a release is; the page looks again by itself."""
    return page("release.html.j2", key=key, job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/progress", response_class=HTMLResponse)
def progress(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """The part of the page that changes."""
    return fragment("progress.html.j2", job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, service: CurrentService, form: release_jobs.Form = "csv") -> Response:
    """The rows as a file."""
    return release_jobs.rows(job_id, key, service, form)


def _wait_for(job_id: str) -> Response:
    return RedirectResponse(f"/releases/{job_id}", 303)


def _forms(name: str, key: Key, service: CurrentService, error: Exception | None = None) -> Response:
    loaded = service.check_access(name, key)
    found = None if error is None else problem(error)
    return page(
        "releases.html.j2",
        key=key,
        attributes=loaded.domain.names if loaded.schema is None else (),
        linked=() if loaded.schema is None else [each.table.name for each in linked_tables(loaded.schema, ()).children],
        dataset=summary(loaded),
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        made=[_earlier(each) for each in service.registry.jobs.releases(loaded.dataset.name, key.name, most=_EARLIER)],
        problem=found,
        status=200 if found is None else found["status"],
    )


def preview(loaded: ServedDataset, form: QuestionForm, key: Key) -> dict[str, Any]:
    """What the question would cost, how wrong its answers would be, and what more or less would give."""
    request = _request(form, loaded)
    question, loss = read_question(loaded, request), request.loss.loss()
    query, domain = question.query, question.domain
    asked = {"sql": request.sql, "query": request.query, "truncation": request.truncation}
    rows, own = loaded.dataset.rows, _tightest(loaded.ledger.remaining(), loaded.ledger.remaining(key.name))
    found = validate_fields(CostRequest, asked | {"loss": request.loss}).estimate_cost(
        domain, query, rows=rows, more=_MORE
    )
    halved = None
    widest = max((each.half_width for each in found.expected if each.measure == "units"), default=0.0)
    counted = all(each.measure == "units" for each in found.expected)
    if isinstance(loss, Epsilon) and widest > 0 and counted:  # at a large loss every count is exact
        wanted = validate_fields(CostRequest, asked | {"error": widest / 2})
        cheaper = wanted.estimate_cost(domain, query, rows=rows, more=_MORE)
        halved = None if cheaper.cost is None else plain(cheaper.cost.value)

    def expected(other: Loss) -> Any:  # noqa: ANN401  (errors, one an answer)
        return accuracy(domain, query, other, confidence=request.confidence, rows=rows)

    return {
        "expected": found.expected,
        "loss": str(loss),
        "statement": request.sql,
        "halved": halved,
        "notes": found.notes,
        "share": share_of(loss, own),
        "steps": steps(loss, expected, own),
    }
