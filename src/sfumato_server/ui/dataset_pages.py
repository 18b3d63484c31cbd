"""A dataset's pages: questions with previews and answers, and tables that are released in the background.

A question comes from the builder or in SQL.  Scripts insert previews and answers into the page.  Without scripts, each
is a page of its own that repeats the form.  A release has a page that shows its progress.

A question that would take more than a tenth of the rest of the budget is charged only after the analyst confirmed its
cost.  The page states the loss and the rest, and the server charges only if both are as they were confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from pydantic import BaseModel, Field

from sfumato.app.api.methods import AnonymizationMethod, CountOption
from sfumato.app.api.questions import AskRequest, CostEstimate, CostRequest, LossFields, limit_of, validate_fields
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields, linked_tables
from sfumato.errors import InputError
from sfumato.ledger import Account
from sfumato.privacy.loss import Epsilon, Loss, decimals, plain
from sfumato.query.plan import accuracy
from sfumato.report.linked_tables_page import drawing
from sfumato.strict_documents import read_yaml, read_yaml_texts
from sfumato_server import release_jobs
from sfumato_server.access import Anyone, CurrentService, Steward
from sfumato_server.datasets import ParsedQuestion, read_question, summary
from sfumato_server.problems import problem
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import naming_spenders, parse_monthly_budget
from sfumato_server.service import Service
from sfumato_server.stewards import PAGE_SIZE, entry_facts
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.question_form import AGGREGATES, JoinedQuestion, QuestionForm, Short, controls, offered_tables
from sfumato_server.ui.rendering import (
    REFUSALS,
    answer_table,
    files,
    fragment,
    gauge,
    is_htmx,
    page,
    share_of,
    steps,
)
from sfumato_server.ui.sql_box import completed_names, refusal
from sfumato_server.work import Job

_MORE = "state yours in the form"
_MAX_YAML = 20_000  # characters
_MAX_STATEMENT = 10_000  # characters, as the form takes
_MAX_LISTED = 20  # earlier questions and tables
SHARE_TO_CONFIRM = 0.1
"""The largest share of the rest of a budget that a question takes without a confirmation."""

Chosen = Annotated[list[Short], Field(max_length=64)]

router = APIRouter(include_in_schema=False)


class SynthesisForm(BaseModel):
    """The form of a synthetic table, or with ``children`` that of linked tables."""

    method: Literal["auto", "histogram", "related"]
    attributes: Chosen = []
    every: bool = False
    zeros: Annotated[str, Field(max_length=_MAX_YAML)] = ""
    fresh: bool = False
    children: Annotated[str, Field(max_length=_MAX_YAML)] = ""
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""

    def read(self) -> SynthesisFields:
        """Return the request as HTTP takes it.

        Raises:
            InputError: a histogram has no attributes, or both some and all.
        """
        if self.method == "histogram" and self.every == bool(self.attributes):
            raise InputError("tick the columns of the histogram, or 'all of them'")
        loss = LossFields(epsilon=self.epsilon or None, delta=self.delta or None, rho=self.rho or None)
        rules = self._rules()
        fields = {"method": self.method, "loss": loss, "attributes": self.attributes, "zeros": rules}
        fields |= {"children": self._children()} if self.children.strip() else {}
        return validate_fields(SynthesisFields, fields | ({"reuse": False} if self.fresh else {}))

    def _children(self) -> list[dict[str, object]]:
        """Return the tables with several rows per person, from YAML.

        Raises:
            InputError: the YAML is not a list of tables.
        """
        tables = read_yaml(self.children, name="the tables")
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise InputError("tables are a list in YAML, such as '- {table: visits, order: admitted, most: 4}'")
        return tables

    def _rules(self) -> list[dict[str, object]]:
        """Return the rules, from YAML.

        Raises:
            InputError: the YAML is not a list of rules.
        """
        if not self.zeros.strip():
            return []
        rules = read_yaml_texts(self.zeros, name="the rules")
        if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
            raise InputError("rules are a list in YAML, such as '- {if: {age: 0..14}, then: {married: [no]}}'")
        return rules


class AnonymizationForm(BaseModel):
    """The form of an anonymized table; ``criteria`` has one per line."""

    method: AnonymizationMethod
    quasi: Annotated[Chosen, Field(min_length=1)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    suppression: Short = "0"
    criteria: Annotated[str, Field(max_length=5000)] = ""
    count: CountOption = CountOption.UNITS

    def read(self) -> AnonymizeRequest:
        """Return the request as HTTP takes it."""
        criteria = [line.strip() for line in self.criteria.splitlines() if line.strip()]
        fields = self.model_dump(include={"method", "quasi", "k", "suppression", "count"})
        return AnonymizeRequest.model_validate({**fields, "criteria": criteria})


@router.get("/datasets/{name}", response_class=HTMLResponse)
def dataset(
    name: str,
    key: Anyone,
    service: CurrentService,
    question: Annotated[str | None, Query(max_length=60)] = None,
    sql: Annotated[str | None, Query(max_length=_MAX_STATEMENT)] = None,
) -> Response:
    """Show a dataset with the form for a question, filled in with an earlier question or a statement."""
    loaded = service.check_access(name, key)
    earlier = {} if question is None else {each.id: each for each in _questions(service, loaded, key)}
    job = earlier.get(question or "")
    if job is not None:
        return _dataset(name, key, service, QuestionForm.model_validate(job.request["ask"]))
    return _dataset(name, key, service, None if sql is None else QuestionForm(how="sql", sql=sql))


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def show_preview(
    name: str, request: Request, form: Annotated[QuestionForm, Form()], key: Anyone, service: CurrentService
) -> Response:
    """Show the expected errors of an answer; it spends nothing."""
    loaded = service.check_access(name, key)
    result: Response
    try:
        result = fragment("preview.html.j2", form=form, **preview(service, loaded, form, key))
    except REFUSALS as error:
        result = _refused(error, form, loaded)
    return result if is_htmx(request) else _dataset(name, key, service, form, result)


@router.post("/datasets/{name}/expected", response_class=HTMLResponse)
def show_expected(name: str, form: Annotated[QuestionForm, Form()], key: Anyone, service: CurrentService) -> Response:
    """Render the expected error and the cost for the place next to the loss, which follows the form while it is typed.

    It spends nothing and reads no rows.  A question that is not complete gets the reason instead.
    """
    loaded = service.check_access(name, key)
    own = tightest_account(service, loaded, key)
    try:
        estimate = QuestionPreview.of_form(loaded, form, key).estimate()
    except REFUSALS as error:
        reason = "" if form.loss() == LossFields() else refusal(error, "")["problem"]["detail"]
        return fragment("expected.html.j2", expected=(), reason=reason, own=gauge(own), share=None)
    share = share_of(form.loss().loss(), own)
    return fragment("expected.html.j2", expected=estimate.expected, reason="", own=gauge(own), share=share)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def answer_question(
    name: str, request: Request, form: Annotated[QuestionForm, Form()], key: Anyone, service: CurrentService
) -> Response:
    """Show the answer of a question, with the rest of the budget and the history; ask first if it is expensive."""
    loaded = service.check_access(name, key)
    try:
        with naming_spenders(loaded.ledger, key):
            ask_request = _request(form, loaded)
            question = read_question(loaded, ask_request)
            service.quotas.refuse_page(question.cells)
            service.check_query_budget(name, key, ask_request.loss.loss())
            confirmation = _confirmation(service, loaded, form, key)
            if confirmation is not None:
                return confirmation if is_htmx(request) else _dataset(name, key, service, form, confirmation)
            answer = question.answer(ask_request, loaded, key, service, None)
    except REFUSALS as error:
        result = _refused(error, form, loaded)
        return result if is_htmx(request) else _dataset(name, key, service, form, result)
    words = question.query.describe(question.domain)
    service.registry.jobs.remember_question(loaded.dataset.name, key.name, {"ask": form.sent_fields(), "words": words})
    context: dict[str, Any] = {
        "answer": answer,
        "table": answer_table(answer, question.domain),
        "files": files(answer),
        "statement": ask_request.sql,
        "dataset": summary(loaded),
    }
    if is_htmx(request):
        return fragment("answer.html.j2", **context, **_status(service, loaded, key), full_page=False)
    return _dataset(name, key, service, form, fragment("answer.html.j2", **context, full_page=True))


def _confirmation(service: Service, loaded: ServedDataset, form: QuestionForm, key: Key) -> Response | None:
    """Return the request to confirm an expensive question; None if it is cheap, confirmed, or answered before.

    The confirmation is for one loss and one rest of the budget.  The ledger refuses a question that exceeds the rest.
    """
    loss, own = form.loss().loss(), tightest_account(service, loaded, key)
    share = share_of(loss, own)
    if share is None or not SHARE_TO_CONFIRM < share <= 1:
        return None
    stated = f"{loss} of {decimals(own.left or Fraction(0), up=False)}"
    if form.confirmed == stated or _is_repeat(service, loaded, form, key):
        return None
    return fragment(
        "confirm.html.j2",
        dataset=loaded.dataset.called,
        fields=[*_pairs(form.sent_fields()), ("confirmed", stated)],
        loss=loss,
        own=gauge(own),
        share=share,
        expected=QuestionPreview.of_form(loaded, form, key).estimate().expected,
    )


def _pairs(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return fields as a form sends them: a list has a pair for each of its texts."""
    return [(name, text) for name, value in fields.items() for text in (value if isinstance(value, list) else [value])]


def _is_repeat(service: Service, loaded: ServedDataset, form: QuestionForm, key: Key) -> bool:
    """Return whether the analyst got an answer to the same form within the current version, which is free to repeat."""
    version, fields = loaded.ledger.data_version(), form.sent_fields()
    return version is not None and any(
        job.request["ask"] == fields and job.updated > datetime.fromisoformat(version.time)
        for job in _questions(service, loaded, key)
    )


def _refused(error: Exception, form: QuestionForm, loaded: ServedDataset) -> Response:
    """Render a refusal, with the place in a typed statement and links to statements that work."""
    content = refusal(error, form.sql if form.how == "sql" else "")
    return fragment("refused.html.j2", status=content["problem"]["status"], dataset=loaded.dataset.called, **content)


def _request(form: QuestionForm, loaded: ServedDataset) -> AskRequest:
    """Return the request of a form.  A question of several tables becomes SQL.

    Raises:
        QueryError, InputError: a field is invalid.
    """
    if loaded.schema is None or form.how != "joined":
        return form.request(loaded)
    question = JoinedQuestion(form.table, form.aggregate, form.of, form.by, form.chosen(), form.ends())
    return form.model_copy(update={"how": "sql", "sql": question.sql(loaded.schema)}).request(loaded)


def _dataset(
    name: str, key: Key, service: CurrentService, form: QuestionForm | None = None, result: Response | None = None
) -> Response:
    """Render the dataset's page with a form and its result."""
    loaded = service.check_access(name, key)
    if loaded.schema is None:
        attributes, levels = controls(loaded.domain)
        builder: dict[str, Any] = {"attributes": attributes, "levels": levels, "tables": [], "picture": None}
    else:
        tables = offered_tables(loaded.schema)
        columns = [each for table in tables for each in table.controls]
        picture = drawing(loaded.schema)
        builder = {"attributes": columns, "levels": [], "tables": tables, "picture": picture}
    status = _status(service, loaded, key)
    form = QuestionForm(**status["last_loss"]) if form is None else form
    return page(
        "dataset.html.j2",
        status=200 if result is None else result.status_code,
        key=key,
        dataset=summary(loaded),
        **builder,
        aggregates=AGGREGATES,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        identified=loaded.unit.column,
        names=completed_names(loaded),
        form=form,
        chosen=_chosen(form),
        result=None if result is None else Markup(bytes(result.body).decode()),  # noqa: S704  (a rendered template)
        **status,
    )


def _chosen(form: QuestionForm) -> dict[str, Any]:
    """Return the boxes and ends of ranges that were chosen."""
    try:
        ends = form.ends()
    except REFUSALS:
        ends = {}
    return {"among": set(form.among), "ends": ends}


def _status(service: Service, loaded: ServedDataset, key: Key) -> dict[str, Any]:
    """Return budgets, earlier questions, the loss of the last one, and the history."""
    ledger = loaded.ledger
    account, own = ledger.remaining(), ledger.remaining(key.name)
    tightest, questions = tightest_account(service, loaded, key), _questions(service, loaded, key)
    last = questions[0].request["ask"] if questions else {}
    return {
        "gauge": gauge(account),
        "own": gauge(own),
        "tightest": gauge(tightest),
        "left": None if tightest.left is None else decimals(tightest.left, up=False),
        "last_loss": {name: last[name] for name in LossFields.model_fields if name in last},
        "questions": [_listed(job) for job in questions],
        "history": [entry_facts(entry) for entry in ledger.newest(PAGE_SIZE, analyst=key.name)][::-1],
    }


def tightest_account(service: Service, loaded: ServedDataset, key: Key) -> Account:
    """Return the account with the least left for a question: of the dataset, its months, or the analyst's cap.

    An analyst who has not asked yet has the default cap of the dataset.
    """
    account, own = loaded.ledger.remaining(), loaded.ledger.remaining(key.name)
    default_cap = limit_of(service.grants.terms(loaded.dataset.name).default_cap)
    if default_cap is not None and key.scope is not Scope.STEWARD and own.limit is None:
        own = replace(own, limit=default_cap)
    monthly, limits = parse_monthly_budget(loaded.dataset.limit), [account, own]
    if monthly is not None:
        since = datetime.fromisoformat(loaded.dataset.registered)
        months = monthly.months_begun(since, datetime.now(UTC))
        limits += [replace(account, limit=monthly.monthly * months)] if months else []
    return min((each for each in limits if each.left is not None), key=lambda each: each.left or 0)


def _questions(service: Service, loaded: ServedDataset, key: Key) -> tuple[Job, ...]:
    return service.registry.jobs.questions(loaded.dataset.name, key.name, most=_MAX_LISTED)


def _listed(job: Job) -> dict[str, str]:
    """Return an earlier question or release for a list."""
    return {
        "id": job.id,
        "when": job.updated.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "words": str(job.request.get("words", "")),
        "loss": _loss_words(job.request.get("ask", {})),
        "state": job.state.value,
        "kind": "anonymized" if "anonymize" in job.request else "synthetic",
    }


def _loss_words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {fields[name]}" for name in ("epsilon", "delta", "rho") if fields.get(name))


@router.get("/datasets/{name}/releases", response_class=HTMLResponse)
def forms(name: str, key: Anyone, service: CurrentService) -> Response:
    """Show the forms for a release."""
    return _forms(name, key, service)


@router.post("/datasets/{name}/releases", response_class=HTMLResponse)
def synthesize(name: str, form: Annotated[SynthesisForm, Form()], key: Anyone, service: CurrentService) -> Response:
    """Start the release of a synthetic table."""
    try:
        return _wait_for(release_jobs.release(name, form.read(), key, service)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, error)


@router.post("/datasets/{name}/anonymizations", response_class=HTMLResponse)
def anonymize(name: str, form: Annotated[AnonymizationForm, Form()], key: Steward, service: CurrentService) -> Response:
    """Start the release of an anonymized table."""
    try:
        return _wait_for(release_jobs.anonymization(name, form.read(), key, service)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, error)


@router.get("/releases/{job_id}", response_class=HTMLResponse)
def wait(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """Show the progress of a release; the page refreshes it."""
    return page("release.html.j2", key=key, job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/progress", response_class=HTMLResponse)
def progress(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """Render the part of the page that changes."""
    return fragment("progress.html.j2", job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, service: CurrentService, form: release_jobs.Form = "csv") -> Response:
    """Send the rows as a file."""
    return release_jobs.rows(job_id, key, service, form)


def _wait_for(job_id: str) -> Response:
    return RedirectResponse(f"/releases/{job_id}", 303)


def _forms(name: str, key: Key, service: CurrentService, error: Exception | None = None) -> Response:
    loaded = service.check_access(name, key)
    content = None if error is None else problem(error)
    return page(
        "releases.html.j2",
        key=key,
        attributes=loaded.domain.names if loaded.schema is None else (),
        linked=() if loaded.schema is None else [each.table.name for each in linked_tables(loaded.schema, ()).children],
        dataset=summary(loaded),
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        made=[_listed(job) for job in service.registry.jobs.releases(loaded.dataset.name, key.name, most=_MAX_LISTED)],
        problem=content,
        status=200 if content is None else content["status"],
    )


@dataclass(frozen=True)
class QuestionPreview:
    """A question of a form with the rows that it supposes, to estimate its errors.  This spends nothing.

    Attributes:
        question: the question.
        fields: the question as the fields of a request for its cost.
        loss: the loss of the form.
        rows: the public number of rows of the dataset; None if it is not public.
        released_rows: rows of groups by counts that were released to the analyst.
    """

    question: ParsedQuestion
    fields: dict[str, Any]
    loss: LossFields
    rows: int | None
    released_rows: tuple[int, ...]

    @staticmethod
    def of_form(loaded: ServedDataset, form: QuestionForm, key: Key) -> QuestionPreview:
        """Read the question of a form.

        Raises:
            QueryError, InputError: a field is invalid.
        """
        request = _request(form, loaded)
        question = read_question(loaded, request)
        fields = {"sql": request.sql, "query": request.query, "truncation": request.truncation}
        supposed = {"rows": form.supposed()}
        return QuestionPreview(
            question, fields | supposed, request.loss, loaded.dataset.rows, question.released_rows(loaded, key)
        )

    def estimate(self, error: float | None = None) -> CostEstimate:
        """Return the expected errors at the loss, or the cost of an error."""
        stated = {"loss": self.loss} if error is None else {"error": error}
        return validate_fields(CostRequest, self.fields | stated).estimate_cost(
            self.question.domain, self.question.query, rows=self.rows, more=_MORE, released_rows=self.released_rows
        )

    def errors_at(self, loss: Loss) -> Any:  # noqa: ANN401  (one error per answer)
        """Return the expected errors at another loss, for the first of the supposed numbers of rows."""
        request = validate_fields(CostRequest, self.fields | {"loss": self.loss})
        (rows, *_) = request.supposed(self.rows, self.released_rows)
        return accuracy(self.question.domain, self.question.query, loss, confidence=request.confidence, rows=rows)


def preview(service: Service, loaded: ServedDataset, form: QuestionForm, key: Key) -> dict[str, Any]:
    """Return the cost of a question, its expected errors, and the effects of other losses."""
    previewed, own = QuestionPreview.of_form(loaded, form, key), tightest_account(service, loaded, key)
    loss, estimate, halved = previewed.loss.loss(), previewed.estimate(), None
    widest = max((each.half_width for each in estimate.expected if each.measure == "units"), default=0.0)
    only_counts = all(each.measure == "units" for each in estimate.expected)
    if isinstance(loss, Epsilon) and widest > 0 and only_counts:  # at a large loss every count is exact
        cost = previewed.estimate(error=widest / 2).cost
        halved = None if cost is None else plain(cost.value)
    return {
        "expected": estimate.expected,
        "loss": str(loss),
        "statement": previewed.fields["sql"],
        "halved": halved,
        "notes": estimate.notes,
        "share": share_of(loss, own),
        "own": gauge(own),
        "steps": steps(loss, previewed.errors_at, own),
    }
