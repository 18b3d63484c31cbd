"""A dataset's pages: a question with its preview, its answer and a chart of it; and tables made in the background.

A question comes from the builder or in SQL.  Whoever asked for a table waits for it on a page of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.http import release_jobs
from sfumato.app.http.access import Anyone, Steward, Worker
from sfumato.app.http.datasets import summary
from sfumato.app.http.problems import explained, problem
from sfumato.app.http.registry import Key
from sfumato.app.http.stewards import PAGE, entry
from sfumato.app.http.tables import Loaded
from sfumato.app.requests.fields import LossFields, filled
from sfumato.app.requests.methods import AnonymizationMethod
from sfumato.app.requests.queries import (
    AggregateFields,
    AskRequest,
    ConditionFields,
    CostRequest,
    QueryFields,
    StatementField,
)
from sfumato.app.requests.releases import AnonymizeRequest, SynthesisFields
from sfumato.app.ui.rendering import REFUSALS, fragment, gauge, page, refused
from sfumato.domain import Categorical, Domain, Integer, Real
from sfumato.errors import InputError, QueryError
from sfumato.privacy.loss import Epsilon, plain
from sfumato.query import Answer
from sfumato.query.aggregate import Aggregate
from sfumato.query.answer import NoisyValue
from sfumato.strict_documents import read_yaml_texts

_MORE = "with more, the error is smaller in proportion"
_MOST_BARS = 100
_MOST_RULES = 20_000  # characters
_WHOLE = 1 - 1e-9  # of the width of the bounds: their ends are rounded

Short = Annotated[str, Field(max_length=200)]
Chosen = Annotated[list[Short], Field(max_length=64)]

router = APIRouter(include_in_schema=False)


class QuestionForm(BaseModel):
    """What the analyst's form sends: SQL, or the fields of the builder; and the loss."""

    how: Literal["builder", "sql"]
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""
    truncation: Short = ""
    sql: StatementField = ""
    aggregate: Short = "count"
    of: Short = ""
    by: Annotated[list[Short], Field(max_length=32)] = []
    attribute: Short = ""
    comparison: Short = "="
    value: Short = ""

    def request(self, loaded: Loaded) -> AskRequest:
        """The request as HTTP takes it.

        Raises:
            QueryError, InputError: a field says nothing, or too much.
        """
        spent = {name: getattr(self, name).strip() or None for name in ("epsilon", "delta", "rho")}
        terms = {"loss": filled(LossFields, spent), "truncation": self._truncation()}
        if self.how == "sql":
            return filled(AskRequest, {"sql": self.sql, **terms})
        aggregate = filled(AggregateFields, {"aggregate": self.aggregate, "of": self.of or None})
        by, where = [name for name in self.by if name], self._conditions(loaded.domain)
        return filled(AskRequest, {"query": QueryFields(aggregates=[aggregate], by=by, where=where), **terms})

    def _truncation(self) -> int | None:
        """Of one unit at most so many of the rows that its bound leaves out are counted; None: they are not asked for.

        Raises:
            QueryError: no whole number.
        """
        text = self.truncation.strip()
        if text and not (text.isascii() and text.isdigit()):
            raise QueryError("the rows of one unit that are counted beyond the bound are a whole number, such as 20")
        return int(text) if text else None

    def _conditions(self, domain: Domain) -> list[ConditionFields]:
        """The condition, if there is one.

        Raises:
            QueryError: a half of one, which would be another question if it were overlooked.
        """
        if not self.attribute:
            if self.value.strip() or self.comparison != "=":
                raise QueryError("choose the attribute to compare; for all rows, choose 'is' and leave the value empty")
            return []
        values = [_typed(domain, self.attribute, self.value)]
        if self.comparison in ("missing", "present"):
            if self.value.strip():
                raise QueryError("'is missing' and 'is present' take no value; empty it, or choose a comparison")
            values = []
        told = {"attribute": self.attribute, "comparison": self.comparison, "values": values}
        return [filled(ConditionFields, told)]


class SynthesisForm(BaseModel):
    """What the form for a synthetic table sends."""

    method: Literal["auto", "histogram"]
    attributes: Chosen = []
    every: bool = False
    zeros: Annotated[str, Field(max_length=_MOST_RULES)] = ""
    fresh: bool = False
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
        return filled(SynthesisFields, told | ({"reuse": False} if self.fresh else {}))

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

    def read(self) -> AnonymizeRequest:
        """The request as HTTP takes it."""
        criteria = [line.strip() for line in self.criteria.splitlines() if line.strip()]
        told = self.model_dump(include={"method", "quasi", "k", "suppression"})
        return AnonymizeRequest.model_validate({**told, "criteria": criteria})


@router.get("/datasets/{name}", response_class=HTMLResponse)
def dataset(name: str, key: Anyone, worker: Worker) -> Response:
    """Ask a dataset."""
    loaded = worker.open_to(name, key)
    attributes = [
        {"name": each.name, "numeric": each.name in numbers(loaded.domain), "cells": each.labels()}
        for each in loaded.domain
    ]
    levels = [f"{level}({each.attribute})" for each in loaded.domain.hierarchies for level in each.level_names]
    return page(
        "dataset.html.j2",
        key=key,
        dataset=summary(loaded),
        attributes=attributes,
        levels=levels,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        identified=loaded.domain.unit.column,
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def show_preview(name: str, form: Annotated[QuestionForm, Form()], key: Anyone, worker: Worker) -> Response:
    """How wrong the answer would be; spends nothing."""
    try:
        return fragment("preview.html.j2", **preview(worker.open_to(name, key), form))
    except REFUSALS as error:
        return refused(error)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def ask(name: str, form: Annotated[QuestionForm, Form()], key: Anyone, worker: Worker) -> Response:
    """Answer, with what is left and the history."""
    loaded = worker.open_to(name, key)
    try:
        with explained(loaded.ledger, key):
            request = form.request(loaded)
            query = request.read(loaded.domain, loaded.dataset.discoverable)
            worker.admit(name, key, request.loss.loss())
            answer = request.answer(worker.vault(name, key.name), query)
    except REFUSALS as error:
        return refused(error)
    return fragment(
        "answer.html.j2",
        answer=answer,
        chart=chart(answer, loaded.domain),
        telling=telling(answer, loaded.domain),
        dataset=summary(loaded),
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


def _history(worker: Worker, name: str, key: Key) -> list[dict[str, Any]]:
    return [entry(each) for each in worker.loaded(name).ledger.newest(PAGE, analyst=key.name)][::-1]


@router.get("/datasets/{name}/releases", response_class=HTMLResponse)
def forms(name: str, key: Anyone, worker: Worker) -> Response:
    """Ask for a table."""
    return _forms(name, key, worker)


@router.post("/datasets/{name}/releases", response_class=HTMLResponse)
def synthesize(name: str, form: Annotated[SynthesisForm, Form()], key: Anyone, worker: Worker) -> Response:
    """Start a synthetic table."""
    try:
        return _wait_for(release_jobs.release(name, form.read(), key, worker)["job"])
    except REFUSALS as error:
        return _forms(name, key, worker, error)


@router.post("/datasets/{name}/anonymizations", response_class=HTMLResponse)
def anonymize(name: str, form: Annotated[AnonymizationForm, Form()], key: Steward, worker: Worker) -> Response:
    """Start an anonymised table."""
    try:
        return _wait_for(release_jobs.anonymization(name, form.read(), key, worker)["job"])
    except REFUSALS as error:
        return _forms(name, key, worker, error)


@router.get("/releases/{job_id}", response_class=HTMLResponse)
def wait(job_id: str, key: Anyone, worker: Worker) -> Response:
    """How far a release is; the page looks again by itself."""
    return page("release.html.j2", key=key, job=release_jobs.progress(job_id, key, worker))


@router.get("/releases/{job_id}/progress", response_class=HTMLResponse)
def progress(job_id: str, key: Anyone, worker: Worker) -> Response:
    """The part of the page that changes."""
    return fragment("progress.html.j2", job=release_jobs.progress(job_id, key, worker))


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, worker: Worker, form: release_jobs.Form = "csv") -> Response:
    """The rows as a file."""
    return release_jobs.rows(job_id, key, worker, form)


def _wait_for(job_id: str) -> Response:
    return RedirectResponse(f"/releases/{job_id}", 303)


def _forms(name: str, key: Key, worker: Worker, error: Exception | None = None) -> Response:
    loaded = worker.open_to(name, key)
    found = None if error is None else problem(error)
    return page(
        "releases.html.j2",
        key=key,
        dataset=summary(loaded),
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        problem=found,
        status=200 if found is None else found["status"],
    )


def numbers(domain: Domain) -> tuple[str, ...]:
    """Attributes that have sums, means and quantiles."""
    return tuple(attribute.name for attribute in domain if isinstance(attribute, Integer | Real))


def preview(loaded: Loaded, form: QuestionForm) -> dict[str, Any]:
    """What the question would cost and how wrong its answers would be."""
    request = form.request(loaded)
    query, loss = request.read(loaded.domain, loaded.dataset.discoverable), request.loss.loss()
    asked = {"sql": request.sql, "query": request.query, "truncation": request.truncation}
    rows = loaded.dataset.rows
    found = filled(CostRequest, asked | {"loss": request.loss}).foresee(loaded.domain, query, rows=rows, more=_MORE)
    halved = None
    widest = max((each.half_width for each in found.expected if each.measure == "units"), default=0.0)
    counted = all(each.measure == "units" for each in found.expected)
    if isinstance(loss, Epsilon) and widest > 0 and counted:  # at a large loss every count is exact
        wanted = filled(CostRequest, asked | {"error": widest / 2})
        cheaper = wanted.foresee(loaded.domain, query, rows=rows, more=_MORE)
        halved = None if cheaper.cost is None else plain(cheaper.cost.value)
    return {"expected": found.expected, "loss": str(loss), "halved": halved, "notes": found.notes}


def chart(found: Answer, domain: Domain) -> dict[str, Any] | None:
    """Bars with their intervals, as a Vega-Lite specification; none where there is one number, or too many.

    An estimate of too few rows has its interval and no bar, which would be as tall as those of many rows.
    """
    if not found.groups or not 1 < len(found.keys) <= _MOST_BARS:
        return None
    name = found.columns[0]
    values = [
        {"group": ", ".join(key), "estimate": row[0].estimate if told[0] else None}
        | {"low": row[0].low, "high": row[0].high}
        for key, row, told in zip(found.keys, found.values, telling(found, domain), strict=True)
    ]
    x = {
        "field": "group",
        "type": "nominal",
        "sort": None,
        "title": ", ".join(found.groups),
        "axis": {"labelAngle": -40, "labelOverlap": "parity"},
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{name} by {', '.join(found.groups)}, with intervals; the table has the same numbers",
        "width": "container",
        "height": 260,
        "data": {"values": values},
        "layer": [
            {"mark": "bar", "encoding": {"x": x, "y": {"field": "estimate", "type": "quantitative", "title": name}}},
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": "#222"},
                "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
            },
        ],
    }


def telling(found: Answer, domain: Domain) -> list[list[bool]]:
    """Of each estimate, by group and aggregate, whether its interval excludes anything that anyone may know."""
    return [
        [_tells(value, aggregate, domain) for value, aggregate in zip(row, found.query.aggregates, strict=True)]
        for row in found.values
    ]


def _tells(value: NoisyValue, aggregate: Aggregate, domain: Domain) -> bool:
    return value.high - value.low < aggregate.widest(domain) * _WHOLE


def _typed(domain: Domain, name: str, text: str) -> str | bool | float | int:
    """A field's text as a value of the attribute's kind; what is no number stays text and is refused as such."""
    if name not in domain:  # a level of a hierarchy
        return text
    attribute = domain[name]
    if isinstance(attribute, Categorical):
        return next((value for value in attribute.values if str(value) == text), text)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
