"""What requests look like, and how they become questions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sfumato.app.losses import loss_of
from sfumato.domain import Domain
from sfumato.domain.predicate import All
from sfumato.errors import LossError, QueryError
from sfumato.privacy.loss import Loss, exact
from sfumato.query.condition import Comparison, Condition, compare, missing
from sfumato.query.question import Aggregate, Count, Distinct, Extreme, Mean, Quantile, Query, Total, Variance
from sfumato.query.sql import LONGEST, parse


def _spelled(value: object) -> object:
    """A number as the shortest decimal that prints it; text stays as it is."""
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_Text = Annotated[str, Field(max_length=60)]
Number = Annotated[_Text, BeforeValidator(_spelled, json_schema_input_type=_Text | float), Field(examples=["0.1"])]
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _confidence(text: str) -> str:
    try:
        found = exact(text)
    except LossError:
        found = Fraction(0)
    if not 0 < found < 1:
        raise ValueError("a confidence is a number between 0 and 1, such as 0.95")
    return text


Truncation = Annotated[int, Field(ge=1, le=10**6)] | None
"""Count also what the bound on rows of a unit leaves out, at most so many rows of one unit."""
Confidence = Annotated[Number, AfterValidator(_confidence)]


class Form(BaseModel):
    """Nothing that is not understood is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LossForm(Form):
    """A privacy loss: epsilon, epsilon with delta, or rho, as text or as numbers; 0.1 is one tenth."""

    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None

    def loss(self) -> Loss:
        """The exact loss."""
        return loss_of(self.epsilon, self.delta, self.rho)


class AggregateForm(Form):
    """One aggregate; ``probability`` belongs to a quantile."""

    aggregate: Literal[
        "count", "distinct", "sum", "mean", "variance", "deviation", "median", "quantile", "minimum", "maximum"
    ]
    of: Name | None = None
    probability: Number | None = None

    def read(self) -> Aggregate:  # noqa: C901  (one case an aggregate)
        """The aggregate."""
        if (self.probability is not None) != (self.aggregate == "quantile"):
            raise QueryError("a quantile, and nothing else, has a probability")
        match self.aggregate, self.of:
            case "count", of:
                return Count(of)
            case "distinct", None:
                return Distinct()
            case "sum", str(of):
                return Total(of)
            case "mean", str(of):
                return Mean(of)
            case "variance", str(of):
                return Variance(of)
            case "deviation", str(of):
                return Variance(of, root=True)
            case "median", str(of):
                return Quantile(of, Fraction(1, 2))
            case "quantile", str(of):
                return Quantile(of, exact(self.probability or "", name="probability"))
            case "minimum", str(of):
                return Extreme(of, largest=False)
            case "maximum", str(of):
                return Extreme(of, largest=True)
            case _:
                raise QueryError(f"{self.aggregate} needs an attribute, and distinct takes none")


class ConditionForm(Form):
    """One condition on an attribute; ``values`` are alternatives, and conditions are joined by AND."""

    attribute: Name
    comparison: Literal["=", "<>", "<", "<=", ">", ">=", "in", "missing", "present"]
    values: Annotated[list[Annotated[str, Field(max_length=500)] | bool | int | float], Field(max_length=1000)] = []

    def read(self, domain: Domain) -> Condition:
        """Where it is true and false."""
        if self.comparison in ("missing", "present"):
            if self.values:
                raise QueryError(f"{self.comparison!r} takes no value")
            found = missing(domain, self.attribute)
            return found if self.comparison == "missing" else ~found
        if not self.values or (self.comparison != "in" and len(self.values) != 1):
            raise QueryError("a comparison takes one value, and 'in' one or more")
        how = Comparison.EQUAL if self.comparison == "in" else Comparison(self.comparison)
        first, *more = (compare(domain, self.attribute, how, _literal(value)) for value in self.values)
        for other in more:
            first |= other
        return first


class QueryForm(Form):
    """A question without SQL."""

    aggregates: Annotated[list[AggregateForm], Field(min_length=1, max_length=32)]
    by: Annotated[list[Name], Field(max_length=32)] = []
    where: Annotated[list[ConditionForm], Field(max_length=64)] = []

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> Query:
        """The question."""
        parts = tuple(condition.read(domain).true for condition in self.where)
        return Query(
            tuple(each.read() for each in self.aggregates),
            by=tuple(name for name in self.by if name in domain or name not in discoverable),
            where=All(parts) if parts else None,
            discovered=tuple(name for name in self.by if name not in domain and name in discoverable),
        )


class AskForm(Form):
    """A question, in SQL or as a form, the loss it may cost, and how sure its intervals are to be."""

    sql: Annotated[str, Field(max_length=LONGEST)] | None = None
    query: QueryForm | None = None
    loss: LossForm
    confidence: Confidence = "0.95"
    whole: bool = False
    truncation: Truncation = None

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> Query:
        """The question."""
        return question(self.sql, self.query, domain, discoverable, truncation=self.truncation)


class CostForm(Form):
    """A question, and either a loss, to be told the error, or an error, to be told the loss."""

    sql: Annotated[str, Field(max_length=LONGEST)] | None = None
    query: QueryForm | None = None
    loss: LossForm | None = None
    error: Number | None = None
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    confidence: Confidence = "0.95"
    truncation: Truncation = None

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> Query:
        """The question."""
        return question(self.sql, self.query, domain, discoverable, truncation=self.truncation)


class DatasetForm(Form):
    """A dataset to register: where its table lies, its accepted domain, and the most that may ever be released."""

    name: Name
    source: Annotated[str, Field(min_length=1, max_length=2000)]
    domain: dict[str, Any]
    limit: Annotated[str, Field(min_length=1, max_length=200, examples=["1", "1,1e-9", "rho=0.5"])]
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    discoverable: Annotated[list[Name], Field(max_length=64)] = []
    second_budget: bool = False  # confirms that a table may be registered under a second name


class CapForm(Form):
    """What an analyst may spend of a dataset; no loss lifts the cap."""

    analyst: Name
    loss: LossForm | None = None


class KeyForm(Form):
    """A key to issue."""

    name: Name
    scope: Literal["steward", "analyst"]
    days: Annotated[int, Field(ge=1, le=3650)]


class ReleaseForm(Form):
    """A synthetic table to make in the background."""

    method: Literal["auto", "histogram"]
    loss: LossForm
    attributes: Annotated[list[Name], Field(max_length=64)] = []


def question(
    sql: str | None,
    query: QueryForm | None,
    domain: Domain,
    discoverable: tuple[str, ...],
    *,
    truncation: int | None = None,
) -> Query:
    """The question of a request that states it in one of two ways.

    Raises:
        QueryError: in none or both, or outside the language.
    """
    if sql is not None and query is None:
        return replace(parse(sql, domain, discoverable=discoverable), truncation=truncation).check(domain)
    if query is not None and sql is None:
        return replace(query.read(domain, discoverable), truncation=truncation).check(domain)
    raise QueryError("state the question once, as sql or as query")


def _literal(value: str | float | bool) -> str | bool | Fraction:  # noqa: FBT001
    if isinstance(value, str | bool):
        return value
    try:
        return exact(value)
    except LossError:
        raise QueryError("a number stands here") from None
