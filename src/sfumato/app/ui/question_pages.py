"""The analyst's pages: a question from a builder or in SQL, its preview, its answer and a chart of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.http.access import Anyone, Worker
from sfumato.app.http.datasets import summary
from sfumato.app.http.overspent import explained
from sfumato.app.http.stewards import entries, entry
from sfumato.app.http.tables import Loaded
from sfumato.app.requests.fields import LossFields, filled
from sfumato.app.requests.questions import AggregateFields, AskRequest, ConditionFields, CostRequest, QueryFields
from sfumato.app.ui.rendering import REFUSALS, fragment, gauge, page, refused
from sfumato.domain import Categorical, Domain
from sfumato.errors import QueryError
from sfumato.ledger.registry import Key
from sfumato.privacy.loss import Epsilon, plain
from sfumato.query import Answer
from sfumato.query.aggregate import Aggregate
from sfumato.query.answer import NoisyValue
from sfumato.query.sql_condition import LONGEST

_MORE = "with more, the error is smaller in proportion"
_SHOWN = 50  # questions of the history
_MOST_BARS = 100
_WHOLE = 1 - 1e-9  # of the width of the bounds: their ends are rounded

Short = Annotated[str, Field(max_length=200)]

router = APIRouter(include_in_schema=False)


class QuestionForm(BaseModel):
    """What the analyst's form sends: SQL, or the fields of the builder; and the loss."""

    how: Literal["builder", "sql"]
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""
    sql: Annotated[str, Field(max_length=LONGEST)] = ""
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
        loss = filled(LossFields, spent)
        if self.how == "sql":
            return filled(AskRequest, {"sql": self.sql, "loss": loss})
        aggregate = filled(AggregateFields, {"aggregate": self.aggregate, "of": self.of or None})
        by, where = [name for name in self.by if name], self._conditions(loaded.domain)
        return filled(AskRequest, {"query": QueryFields(aggregates=[aggregate], by=by, where=where), "loss": loss})

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


@router.get("/datasets/{name}", response_class=HTMLResponse)
def dataset(name: str, key: Anyone, worker: Worker) -> Response:
    """Ask a dataset."""
    loaded = worker.loaded(name)
    attributes = [
        {"name": each.name, "numeric": each.name in numbers(loaded.domain), "cells": each.labels()}
        for each in loaded.domain
    ]
    return page(
        "dataset.html.j2",
        key=key,
        dataset=summary(loaded),
        attributes=attributes,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def show_preview(name: str, form: Annotated[QuestionForm, Form()], _: Anyone, worker: Worker) -> Response:
    """How wrong the answer would be; spends nothing."""
    try:
        return fragment("preview.html.j2", **preview(worker.loaded(name), form))
    except REFUSALS as error:
        return refused(error)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def ask(name: str, form: Annotated[QuestionForm, Form()], key: Anyone, worker: Worker) -> Response:
    """Answer, with what is left and the history."""
    loaded = worker.loaded(name)
    try:
        with explained(loaded.ledger, key):
            request = form.request(loaded)
            query = request.read(loaded.domain, loaded.dataset.discoverable)
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
    own = entries(worker.loaded(name).ledger.journal(), key.name)
    return [entry(each) for each in own][-_SHOWN:][::-1]


def numbers(domain: Domain) -> tuple[str, ...]:
    """Attributes that have sums, means and quantiles."""
    return tuple(attribute.name for attribute in domain if not isinstance(attribute, Categorical))


def preview(loaded: Loaded, form: QuestionForm) -> dict[str, Any]:
    """What the question would cost and how wrong its answers would be."""
    request = form.request(loaded)
    query, loss = request.read(loaded.domain, loaded.dataset.discoverable), request.loss.loss()
    asked = {"sql": request.sql, "query": request.query}
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
