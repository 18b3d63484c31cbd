"""A dataset's page for questions, with previews and answers.

A question comes from the builder or in SQL.  Scripts insert previews and answers into the page.  Without scripts, each
is a page of its own that repeats the form.

A question that would take more than a tenth of the rest of the budget is charged only after the analyst confirmed its
cost.  The page states the loss and the rest, and the server charges only if both, the dataset, the analyst and the
question are as they were confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from sfumato.app.api.questions import AskRequest, CostEstimate, CostRequest, LossFields, validate_fields
from sfumato.privacy.loss import Epsilon, Loss, plain
from sfumato.query.plan import accuracy
from sfumato.report.linked_tables_page import drawing
from sfumato_server.access import Anyone, CurrentService
from sfumato_server.datasets import ParsedQuestion, read_question, summary
from sfumato_server.registry import Key
from sfumato_server.rules import naming_spenders
from sfumato_server.service import Service
from sfumato_server.stewards import PAGE_SIZE, entry_facts
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.budgets import (
    Accounts,
    Spending,
    cost_words,
    gauge,
    loss_words,
    refused_loss,
    set_delta,
    share_of,
    steps,
)
from sfumato_server.ui.question_form import AGGREGATES, JoinedQuestion, QuestionForm, controls, offered_tables
from sfumato_server.ui.rendering import REFUSALS, answer_table, files, fragment, is_htmx, page
from sfumato_server.ui.sql_box import completed_names, refusal
from sfumato_server.work import Job

_MORE = "state yours in the form"
_MAX_STATEMENT = 10_000  # characters, as the form takes
_MAX_LISTED = 20  # earlier questions

router = APIRouter(include_in_schema=False)


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
    own = Accounts.for_key(service, loaded, key).tightest
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
            account = Accounts.for_key(service, loaded, key).tightest
            spending = Spending(ask_request.loss.loss(), account, (loaded.dataset.name, key.name, form.sent_fields()))
            confirmation = _confirmation(service, loaded, form, key, spending=spending)
            if confirmation is not None:
                return confirmation if is_htmx(request) else _dataset(name, key, service, form, confirmation)
            answer = question.answer(ask_request, loaded, key, service, None)
    except REFUSALS as error:
        result = _refused(error, form, loaded, Accounts.for_key(service, loaded, key))
        return result if is_htmx(request) else _dataset(name, key, service, form, result)
    words = question.query.describe(question.domain)
    service.registry.jobs.remember_question(loaded.dataset.name, key.name, {"ask": form.sent_fields(), "words": words})
    context: dict[str, Any] = {
        "answer": answer,
        "table": answer_table(answer, question.domain),
        "files": files(answer),
        "statement": ask_request.sql,
        "words": words,
        "cost": cost_words(answer.cost, spending),
        "dataset": summary(loaded),
    }
    if is_htmx(request):
        return fragment("answer.html.j2", **context, **_status(service, loaded, key), full_page=False)
    return _dataset(name, key, service, form, fragment("answer.html.j2", **context, full_page=True))


def _confirmation(
    service: Service, loaded: ServedDataset, form: QuestionForm, key: Key, *, spending: Spending
) -> Response | None:
    """Return the request to confirm an expensive question; None if it is cheap, confirmed, or answered before.

    The confirmation is for one question, one loss and one rest of the budget.  The ledger refuses a question that
    exceeds the rest.
    """
    if spending.is_confirmed(form.confirmed) or _is_repeat(service, loaded, form, key):
        return None
    return fragment(
        "confirm.html.j2",
        what="question",
        button="Ask and spend it",
        remedy=" and press Ask again",
        action=f"/datasets/{loaded.dataset.called}/ask",
        fields=[*pairs(form.sent_fields()), ("confirmed", spending.statement)],
        spending=spending,
        own=gauge(spending.account),
        expected=QuestionPreview.of_form(loaded, form, key).estimate().expected,
    )


def pairs(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return fields as a form sends them: a list has a pair for each of its texts."""
    return [(name, text) for name, value in fields.items() for text in (value if isinstance(value, list) else [value])]


def _is_repeat(service: Service, loaded: ServedDataset, form: QuestionForm, key: Key) -> bool:
    """Return whether the analyst got an answer to the same form within the current version, which is free to repeat."""
    version, fields = loaded.ledger.data_version(), form.sent_fields()
    return version is not None and any(
        job.request["ask"] == fields and job.updated > datetime.fromisoformat(version.time)
        for job in _questions(service, loaded, key)
    )


def _refused(error: Exception, form: QuestionForm, loaded: ServedDataset, accounts: Accounts | None = None) -> Response:
    """Render a refusal, with the place in a typed statement and links to statements that work."""
    content = refusal(error, form.sql if form.how == "sql" else "")
    if accounts is not None:
        content["problem"] |= refused_loss(error, form.loss(), accounts)
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
    delta = set_delta(loaded.ledger.limit)
    form = QuestionForm(**status["last_loss"] | ({"delta": delta} if delta else {})) if form is None else form
    return page(
        "dataset.html.j2",
        status=200 if result is None else result.status_code,
        key=key,
        dataset=summary(loaded),
        **builder,
        aggregates=AGGREGATES,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        delta=delta,
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
    accounts, questions = Accounts.for_key(service, loaded, key), _questions(service, loaded, key)
    last = questions[0].request["ask"] if questions else {}
    return {
        "gauge": gauge(accounts.dataset),
        "own": gauge(accounts.own),
        "tightest": gauge(accounts.tightest),
        "last_loss": {name: last[name] for name in LossFields.model_fields if name in last},
        "questions": [_listed(job) for job in questions],
        "history": [entry_facts(entry) for entry in ledger.newest(PAGE_SIZE, analyst=key.name)][::-1],
    }


def _questions(service: Service, loaded: ServedDataset, key: Key) -> tuple[Job, ...]:
    return service.registry.jobs.questions(loaded.dataset.name, key.name, most=_MAX_LISTED)


def _listed(job: Job) -> dict[str, str]:
    """Return an earlier question for a list."""
    return {
        "id": job.id,
        "when": job.updated.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "words": str(job.request.get("words", "")),
        "loss": _loss_words(job.request.get("ask", {})),
    }


def _loss_words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {fields[name]}" for name in ("epsilon", "delta", "rho") if fields.get(name))


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
    previewed, own = QuestionPreview.of_form(loaded, form, key), Accounts.for_key(service, loaded, key).tightest
    loss, estimate, halved = previewed.loss.loss(), previewed.estimate(), None
    widest = max((each.half_width for each in estimate.expected if each.measure == "units"), default=0.0)
    only_counts = all(each.measure == "units" for each in estimate.expected)
    if isinstance(loss, Epsilon) and widest > 0 and only_counts:  # at a large loss every count is exact
        cost = previewed.estimate(error=widest / 2).cost
        halved = None if cost is None else plain(cost.value)
    return {
        "expected": estimate.expected,
        "loss": loss_words(loss),
        "statement": previewed.fields["sql"],
        "halved": halved,
        "notes": estimate.notes,
        "share": share_of(loss, own),
        "own": gauge(own),
        "steps": steps(loss, previewed.errors_at, own),
    }
