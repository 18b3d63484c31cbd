"""The analyst's forms: a question from a builder or in SQL, its preview and its answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field

from sfumato.app.http.forms import AggregateForm, ConditionForm, QueryForm
from sfumato.app.http.tables import Loaded
from sfumato.app.losses import limit_of, loss_of
from sfumato.app.supposing import notes
from sfumato.domain import Categorical, Domain
from sfumato.errors import DomainError, QueryError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, plain
from sfumato.query import Answer, accuracy, cost, too_small
from sfumato.query import ask as ask_query
from sfumato.query.question import Query
from sfumato.query.sql import LONGEST, parse
from sfumato.vault.vault import Vault

_CONFIDENCE = "0.95"
_MORE = "with more, the error is smaller in proportion"

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
        form = QueryForm(
            aggregates=[aggregate], by=[name for name in self.by if name], where=self._conditions(loaded.domain)
        )
        return form.read(loaded.domain, discoverable).check(loaded.domain)

    def _conditions(self, domain: Domain) -> list[ConditionForm]:
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
        return [ConditionForm.model_validate(told)]


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
    """A cap, from a number in the measure of a limit, or spelled as a limit is.

    Raises:
        LossError: neither.
    """
    if isinstance(limit, EpsilonDelta) or text.startswith("rho="):
        found = limit_of(text)
        assert found is not None  # as there is a text
        return found
    return Epsilon(text) if isinstance(limit, Epsilon) else Rho(text)


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
    said = [*notes(found, _MORE), *too_small(loaded.domain, query, loss, rows=loaded.dataset.rows)]
    return {"expected": found, "loss": str(loss), "halved": halved, "notes": said}


def answer(loaded: Loaded, vault: Vault, form: Asked) -> Answer:
    """Ask."""
    return ask_query(vault, form.read(loaded), loss=form.loss())


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
