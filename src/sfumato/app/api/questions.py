"""Questions to a table, with their loss and their cost.

The module imports no engine, so that the clients state their questions by the same models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from sfumato.bounded_cache import cached
from sfumato.errors import InputError, LossError, QueryError, pluralize
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, exact, plain

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.domain.view import BoundedView
    from sfumato.query import Answer
    from sfumato.query.aggregates import Aggregate, ExpectedError
    from sfumato.query.question import Query
    from sfumato.query.statements.three_valued_logic import Condition


_LEAST, _MOST = 1e-12, 1e6
EXAMPLES = (100, 1_000, 10_000)
"""Rows of a group in a preview, if nothing is known of them."""
_PLACES = 10**18
RequestModel = TypeVar("RequestModel", bound="StrictModel")


def _decimal_text(value: object) -> object:
    """Return a number as its shortest decimal.  Text is returned unchanged."""
    match value:
        case bool():
            return value
        case float():
            return repr(float(value))  # of NumPy's as well
        case int():
            return repr(int(value))
        case Decimal() | Fraction():
            return plain(exact(value))
        case _:
            return value


_Text = Annotated[str, Field(max_length=60)]
NumberText = Annotated[
    _Text, BeforeValidator(_decimal_text, json_schema_input_type=_Text | float), Field(examples=["0.1"])
]
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _confidence(text: str) -> str:
    try:
        confidence = exact(text)
    except LossError:
        confidence = Fraction(0)
    if not 0 < confidence < 1:
        raise ValueError("a confidence is a number between 0 and 1, such as 0.95")
    return text


ConfidenceText = Annotated[NumberText, AfterValidator(_confidence)]


class StrictModel(BaseModel):
    """A model that refuses unknown fields and types."""

    model_config = ConfigDict(extra="forbid", strict=True)


def validate_fields(kind: type[RequestModel], fields: Mapping[str, Any]) -> RequestModel:
    """Return a request from the fields of a front end.

    Raises:
        InputError: a field is beyond its limits.  The message names the field and quotes no value.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{place}: {reason[:1].lower()}{reason[1:]}" if place else reason, culprit=place) from None


@cached(8_000)  # the same few are asked for again and again
def loss_of(epsilon: str | None, delta: str | None, rho: str | None) -> Loss:
    """Parse a loss.

    Raises:
        LossError: no loss is given, or the combination has no meaning.
    """
    loss: Loss
    match epsilon, delta, rho:
        case str(), None, None:
            loss = Epsilon(epsilon)
        case str(), str(), None:
            loss = EpsilonDelta(epsilon, delta)
        case None, None, str():
            loss = Rho(rho)
        case str(), _, str():
            raise LossError("epsilon and rho both state the privacy loss; give one of them")
        case None, str(), _:
            raise LossError("a delta alone is no privacy loss; give epsilon with it")
        case _:
            raise LossError(
                "the privacy loss is missing; give an epsilon, an epsilon with a delta, or a rho, such as epsilon 1 "
                "with delta 1e-9"
            )
    if not _LEAST <= next(iter(loss.amounts.values())) <= _MOST:
        raise LossError(
            "a loss above a million protects no person, and a loss below 1e-12 leaves only noise; choose another"
        )
    return loss


def limit_of(text: str | None) -> Loss | None:
    """Parse a limit: ``1``, ``1,1e-9`` or ``rho=0.5``.

    Raises:
        LossError: the text has another form.
    """
    if text is None:
        return None
    epsilon, _, delta = text.partition(",")
    try:
        if text.startswith("rho="):
            return loss_of(None, None, text.removeprefix("rho="))
        return loss_of(epsilon, delta or None, None)
    except LossError as error:
        raise LossError(f"a limit is EPSILON, EPSILON,DELTA or rho=RHO, not {text[:40]!r}: {error}") from None


class LossFields(StrictModel):
    """A privacy loss: epsilon, epsilon with delta, or rho.  Text and numbers are read exactly: 0.1 is one tenth."""

    epsilon: NumberText | None = None
    delta: NumberText | None = None
    rho: NumberText | None = None

    def loss(self) -> Loss:
        """Return the exact loss.

        Raises:
            LossError: no loss is given, the combination has no meaning, or a number has more than 18 places.
        """
        for name, text in (("epsilon", self.epsilon), ("delta", self.delta), ("rho", self.rho)):
            if text is not None and _PLACES % exact(text, name=name).denominator:
                raise LossError(f"state {name} as a decimal of at most 18 places, such as 0.333", culprit=text)
        return loss_of(self.epsilon, self.delta, self.rho)


LONGEST = 1_000_000
"""Characters of a statement; the parser refuses longer ones as well."""
StatementField = Annotated[str, Field(max_length=LONGEST)]
TruncationField = Annotated[int, Field(ge=1, le=10**6)] | None
"""Count also what the bound on rows of a unit leaves out, at most so many rows of one unit."""


class _AggregateName:
    """A check for names of aggregates.  It looks them up late, so that loading these models loads no numpy."""

    @staticmethod
    def _names() -> list[str]:
        from sfumato.query.aggregates import FORMS

        return [form.name for form in FORMS]

    def _check(self, value: str) -> str:
        try:
            names = self._names()
        except ImportError:  # a client without numpy: the server checks the name
            return value
        if value not in names:
            *others, last = map(repr, names)
            raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        """Check the name after its type."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """List the names."""
        return handler(schema) | {"enum": self._names()}


class AggregateFields(StrictModel):
    """An aggregate.  ``probability`` belongs to a quantile."""

    aggregate: Annotated[str, _AggregateName()]
    of: Name | None = None
    probability: NumberText | None = None

    def read(self) -> Aggregate:
        """Return the aggregate."""
        from sfumato.query.aggregates import FORMS, Takes

        (form,) = (form for form in FORMS if form.name == self.aggregate)
        if (self.probability is not None) != ("probability" in form.parameters):
            raise QueryError("a quantile, and nothing else, has a probability")
        allowed = {Takes.NOTHING: self.of is None, Takes.ATTRIBUTE: True, Takes.NUMBER: self.of is not None}
        if not allowed[form.takes]:
            raise QueryError(f"{self.aggregate} needs an attribute, and distinct takes none")
        given = [] if form.takes is Takes.NOTHING else [self.of]
        numbers = [] if self.probability is None else [exact(self.probability, name="probability")]
        return form.make(*given, *numbers)


class ConditionFields(StrictModel):
    """A condition on an attribute.  ``values`` are alternatives, and conditions are joined by AND."""

    attribute: Name
    comparison: Literal["=", "<>", "<", "<=", ">", ">=", "in", "missing", "present"]
    values: Annotated[list[Annotated[str, Field(max_length=500)] | bool | int | float], Field(max_length=10_000)] = []

    def read(self, domain: Domain) -> Condition:
        """Return the condition, with the cells that make it true and false."""
        from sfumato.query.statements.three_valued_logic import Comparison, among, compare, missing

        if self.comparison in ("missing", "present"):
            if self.values:
                raise QueryError(f"{self.comparison!r} takes no value")
            condition = missing(domain, self.attribute)
            return condition if self.comparison == "missing" else ~condition
        if not self.values or (self.comparison != "in" and len(self.values) != 1):
            raise QueryError("a comparison takes one value, and 'in' one or more")
        values = [_literal(value) for value in self.values]
        if self.comparison == "in":
            return among(domain, self.attribute, values)
        return compare(domain, self.attribute, Comparison(self.comparison), values[0])


class QueryFields(StrictModel):
    """A question without SQL."""

    aggregates: Annotated[list[AggregateFields], Field(min_length=1, max_length=200)]
    by: Annotated[list[Name], Field(max_length=32)] = []
    where: Annotated[list[ConditionFields], Field(max_length=64)] = []

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> Query:
        """Return the question."""
        from sfumato.domain.predicate import All
        from sfumato.query.question import Query

        parts = tuple(condition.read(domain).true for condition in self.where)
        return Query(
            tuple(each.read() for each in self.aggregates),
            by=tuple(name for name in self.by if name in domain or name not in discoverable),
            where=All(parts) if parts else None,
            data_dependent_groups=tuple(name for name in self.by if name not in domain and name in discoverable),
        )


class AskRequest(StrictModel):
    """A question in SQL or as fields, its loss, and the confidence of its intervals."""

    sql: StatementField | None = None
    query: QueryFields | None = None
    loss: LossFields
    confidence: ConfidenceText = "0.95"
    whole: bool = False
    truncation: TruncationField = None

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> tuple[Query, BoundedView | None]:
        """Return the question, and the view that it is about: see :func:`question`."""
        return question(self.sql, self.query, domain, discoverable, truncation=self.truncation)

    def post_processed(self, answer: Answer) -> Answer:
        """Return the groups that the statement shows, in non-negative integers if the request says so."""
        from sfumato.query import non_negative_integers

        return (non_negative_integers(answer) if self.whole else answer).apply_clauses()


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a question and the expected errors of its answers.  ``cost`` is set if an error was stated."""

    cost: Epsilon | None
    expected: tuple[ExpectedError, ...]
    notes: list[str]


class CostRequest(StrictModel):
    """A question with a loss, to estimate its error, or with an error, to estimate its loss."""

    sql: StatementField | None = None
    query: QueryFields | None = None
    loss: LossFields | None = None
    error: NumberText | None = None
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    confidence: ConfidenceText = "0.95"
    truncation: TruncationField = None

    def read(self, domain: Domain, discoverable: tuple[str, ...]) -> tuple[Query, BoundedView | None]:
        """Return the question, and the view that it is about: see :func:`question`."""
        return question(self.sql, self.query, domain, discoverable, truncation=self.truncation)

    def supposed(self, rows: int | None, released_rows: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the rows of a group to suppose: the request's, numbers from released counts, ``rows``, or examples."""
        if self.rows is not None:
            return (self.rows,)
        return tuple(released_rows) or ((rows,) if rows is not None else EXAMPLES)

    def estimate_cost(
        self, domain: Domain, query: Query, *, rows: int | None, more: str, released_rows: Sequence[int] = ()
    ) -> CostEstimate:
        """Estimate the cost of the question, or the errors of its answers.  This spends nothing and reads no data.

        Args:
            domain: domain of the table.
            query: the question, from :meth:`read`.
            rows: the public number of rows, used if the request names none and no counts were released.
            more: advice for errors that depend on the rows of a group, if examples are supposed.
            released_rows: rows of small and large groups by counts that were released before.

        Raises:
            QueryError: neither a loss nor an error is stated, or both.
        """
        from sfumato.query.plan import accuracy, cost, low_signal_warnings

        if (self.loss is None) == (self.error is None):
            raise QueryError("state a loss, to be told the error, or an error, to be told the loss")
        supposed, confidence = self.supposed(rows, released_rows), self.confidence
        why = f"by counts that were released before; {more}" if released_rows else more
        why = "" if len(supposed) == 1 and not released_rows else why
        if self.loss is not None:
            loss = self.loss.loss()
            errors = [accuracy(domain, query, loss, confidence=confidence, rows=each) for each in supposed]
            warnings = low_signal_warnings(domain, query, loss, rows=self.rows or rows)
            expected = tuple(dict.fromkeys(each for places in zip(*errors, strict=True) for each in places))
            return CostEstimate(None, expected, [*error_notes(expected, why), *_computed(query, expected), *warnings])
        assert self.error is not None
        needed = cost(domain, query, self.error, confidence=confidence, rows=supposed[0])
        expected = accuracy(domain, query, needed, confidence=confidence, rows=supposed[0])
        notes = error_notes(expected, why) + _computed(query, expected)
        for each in supposed[1:] if any(one.rows for one in expected) else ():
            other = cost(domain, query, self.error, confidence=confidence, rows=each)
            notes.append(f"For groups of {pluralize(each, 'row')} epsilon = {plain(other.value)} is enough.")
        return CostEstimate(needed, expected, notes)


def error_notes(expected: Sequence[ExpectedError], why: str) -> list[str]:
    """Explain the errors that are not in the units of the answer.

    Args:
        expected: the errors.
        why: the origin of the supposed rows, and advice; empty for rows that were stated.
    """
    notes = [
        f"{each.name}: in rows of rank, not in units of the answer." for each in expected if each.measure == "rank"
    ]
    supposed: dict[str, list[str]] = {}
    for each in expected:
        if each.rows is not None:
            supposed.setdefault(each.name, []).append(f"{each.rows:,}")
    reason = f"; {why}" if why else ""
    return notes + [f"{name}: supposing {_either(rows)} rows in each group{reason}." for name, rows in supposed.items()]


def _computed(query: Query, expected: Sequence[ExpectedError]) -> list[str]:
    """Return notes on columns whose error no preview can state."""
    stated = {each.name for each in expected}
    others = [name for name in query.column_names if name not in stated]
    return [f"{name}: its error depends on the answers; those of its parts are stated." for name in others]


def _either(words: Sequence[str]) -> str:
    """Return words with ``or`` before the last."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def question(
    sql: str | None,
    query: QueryFields | None,
    domain: Domain,
    discoverable: tuple[str, ...],
    *,
    truncation: int | None = None,
) -> tuple[Query, BoundedView | None]:
    """Return the question of a request, from its SQL or from its fields.

    Returns:
        The query, and the view of the table whose rows it counts; None if these are the rows of the table.

    Raises:
        QueryError: the request has both or neither, or the question is outside the language.
    """
    from sfumato.query.statements.select_statement import parse

    if sql is not None and query is None:
        view = None
        try:
            read = parse(sql, domain, groupable_undeclared=discoverable)
        except QueryError as error:
            from sfumato.query.statements.table_statement import parse_with_view  # most statements need none of it

            read, view = parse_with_view(sql, domain, error, groupable_undeclared=discoverable)
        read = read if truncation is None else replace(read, truncation=truncation)
        return read.check(domain if view is None else view.domain), view
    if query is not None and sql is None:
        return replace(query.read(domain, discoverable), truncation=truncation).check(domain), None
    raise QueryError("state the question once, as sql or as query")


def _literal(value: str | float | bool) -> str | bool | Fraction:  # noqa: FBT001
    if isinstance(value, str | bool):
        return value
    try:
        return exact(value)
    except LossError:
        raise QueryError("a number stands here") from None
