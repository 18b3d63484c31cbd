"""The analyst's forms: a question from a builder or in SQL, its preview, its answer and its chart."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field

from sfumato.app.http.forms import AggregateForm, ConditionForm, QueryForm
from sfumato.app.http.tables import Loaded
from sfumato.app.losses import limit_of, loss_of
from sfumato.domain import Categorical, Domain
from sfumato.errors import DomainError, LossError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, plain
from sfumato.query import Answer, accuracy, cost
from sfumato.query import ask as ask_query
from sfumato.query.question import Query
from sfumato.query.sql import LONGEST, parse
from sfumato.vault.vault import Vault

_MOST_BARS = 100
_CONFIDENCE = "0.95"

Short = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
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

    def loss(self) -> Loss:
        """What the question may cost.

        Raises:
            LossError: the fields say nothing, or too much.
        """
        return loss_of(*(text.strip() or None for text in (self.epsilon, self.delta, self.rho)))

    def read(self, loaded: Loaded) -> Query:
        """The question.

        Raises:
            QueryError, DomainError: it is outside the language.
        """
        discoverable = loaded.dataset.discoverable
        if self.how == "sql":
            return parse(self.sql, loaded.domain, discoverable=discoverable)
        aggregate = AggregateForm.model_validate({"aggregate": self.aggregate, "of": self.of or None})
        where = []
        if self.attribute:
            values = (
                [] if self.comparison in ("missing", "present") else [_typed(loaded.domain, self.attribute, self.value)]
            )
            where = [
                ConditionForm.model_validate(
                    {"attribute": self.attribute, "comparison": self.comparison, "values": values}
                )
            ]
        form = QueryForm(aggregates=[aggregate], by=[name for name in self.by if name], where=where)
        return form.read(loaded.domain, discoverable).check(loaded.domain)


class NewDataset(BaseModel):
    """What the steward's form for datasets sends."""

    name: Short
    source: Annotated[str, Field(max_length=2000)]
    domain: Annotated[str, Field(max_length=200_000)]
    limit: Short
    second_budget: bool = False


class NewCap(BaseModel):
    """What the steward's form for caps sends."""

    dataset: Short
    analyst: Short
    most: Short = ""
    lift: bool = False


class NewKey(BaseModel):
    """What the steward's form for keys sends."""

    holder: Short
    scope: Literal["steward", "analyst"]
    days: Annotated[int, Field(ge=1, le=3650)]


def numbers(domain: Domain) -> tuple[str, ...]:
    """Attributes that have sums, means and quantiles."""
    return tuple(attribute.name for attribute in domain if not isinstance(attribute, Categorical))


def document(text: str) -> dict[str, Any]:
    """A domain's YAML as plain values.

    Raises:
        DomainError: it is not YAML, or no mapping.
    """
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DomainError("the domain is not YAML") from None
    if not isinstance(found, dict):
        raise DomainError("the domain is a mapping with 'sfumato', 'unit' and 'attributes'")
    return found


def cap(limit: Loss, text: str) -> Loss:
    """A cap in the measure of a limit, from one number.

    Raises:
        LossError: no number.
    """
    match limit:
        case Epsilon():
            return Epsilon(text)
        case Rho():
            return Rho(text)
        case EpsilonDelta():
            found = limit_of(text)
            if found is None:
                raise LossError("state epsilon,delta")
            return found


def preview(loaded: Loaded, form: Asked) -> dict[str, Any]:
    """What the question would cost and how wrong its answers would be."""
    query, loss = form.read(loaded), form.loss()
    found = accuracy(loaded.domain, query, loss, confidence=_CONFIDENCE, rows=loaded.dataset.rows)
    halved = None
    widest = max((each.half_width for each in found if each.measure == "units"), default=0.0)
    if (
        isinstance(loss, Epsilon) and widest > 0 and all(each.measure == "units" for each in found)
    ):  # at a large loss every count is exact
        wanted = repr(widest / 2)
        halved = plain(cost(loaded.domain, query, wanted, confidence=_CONFIDENCE, rows=loaded.dataset.rows).value)
    return {"expected": found, "loss": str(loss), "halved": halved}


def answer(loaded: Loaded, vault: Vault, form: Asked) -> Answer:
    """Ask."""
    return ask_query(vault, form.read(loaded), loss=form.loss())


def chart(found: Answer) -> dict[str, Any] | None:
    """Bars with their intervals, as a Vega-Lite specification; none where there is one number, or too many."""
    if not found.groups or not 1 < len(found.keys) <= _MOST_BARS:
        return None
    name = found.columns[0]
    values = [
        {"group": ", ".join(key), "estimate": row[0].estimate, "low": row[0].low, "high": row[0].high}
        for key, row in zip(found.keys, found.values, strict=True)
    ]
    x = {
        "field": "group",
        "type": "nominal",
        "sort": None,
        "title": ", ".join(found.groups),
        "axis": {"labelAngle": -40},
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
