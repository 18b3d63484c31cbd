"""What can be asked: aggregates over filtered rows, by groups.  A closed language, so that whether a question
can be answered depends on the domain alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from sfumato.domain import Categorical, Domain, Integer, Real
from sfumato.domain.predicate import All, Among, Any, Not, Predicate
from sfumato.errors import QueryError
from sfumato.privacy.loss import plain

MOST_AGGREGATES = 32
MOST_CONDITIONS = 4096
DEEPEST = 200
MOST_GROUPS = 1 << 20


@dataclass(frozen=True)
class Count:
    """Number of rows; of those with a value of ``of``, where it is named."""

    of: str | None = None

    def __str__(self) -> str:
        return f"count({self.of or '*'})"


@dataclass(frozen=True)
class Distinct:
    """Number of distinct units of privacy with a row."""

    def __str__(self) -> str:
        return "count(distinct unit)"


@dataclass(frozen=True)
class Total:
    """Sum of the clamped values."""

    of: str

    def __str__(self) -> str:
        return f"sum({self.of})"


@dataclass(frozen=True)
class Mean:
    """Mean of the clamped values."""

    of: str

    def __str__(self) -> str:
        return f"mean({self.of})"


@dataclass(frozen=True)
class Variance:
    """Mean squared deviation of the clamped values from their mean; its root, where ``root`` is set."""

    of: str
    root: bool = False

    def __str__(self) -> str:
        return f"{'deviation' if self.root else 'variance'}({self.of})"


@dataclass(frozen=True)
class Quantile:
    """The value that a share ``probability`` of the values does not exceed."""

    of: str
    probability: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.probability, Fraction):
            raise QueryError("the probability of a quantile is a fraction, such as Fraction(1, 2)", culprit=self.of)
        if not 0 < self.probability < 1:
            raise QueryError("a quantile lies strictly between 0 and 1; ask for the minimum or maximum", culprit=self)

    def __str__(self) -> str:
        return f"median({self.of})" if self.probability * 2 == 1 else f"quantile({self.of}, {plain(self.probability)})"


@dataclass(frozen=True)
class Extreme:
    """The innermost value that noise cannot explain away: a quantile of as few rows as the loss can tell from none."""

    of: str
    largest: bool

    def __str__(self) -> str:
        return f"{'max' if self.largest else 'min'}({self.of})"


Aggregate: TypeAlias = Count | Distinct | Total | Mean | Variance | Quantile | Extreme


@dataclass(frozen=True)
class Query:
    """Aggregates over the rows that meet ``where``, for each cell of ``by``.

    Attributes:
        aggregates: one or more.
        by: declared attributes, whose cells are all answered for, empty or not.
        where: None: all rows.
        discovered: columns outside the domain, whose values are found in the data: those held by enough units,
            behind a stability threshold.  Only units are counted then, without ``by`` and ``where``.
        names: what to call the answers; they do not change what is asked.
        truncation: None, or ask also, for a part of the loss, how many rows that meet ``where`` the bound on rows of a
            unit leaves out: of one unit at most so many are counted.
    """

    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...] = ()
    where: Predicate | None = None
    discovered: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)
    truncation: int | None = None

    def __post_init__(self) -> None:
        names = (self.by, self.discovered, self.names)
        if not all(isinstance(each, tuple) and all(isinstance(name, str) for name in each) for each in names):
            raise QueryError("groups and names of answers are tuples of text", culprit=names)
        if not isinstance(self.aggregates, tuple) or not 0 < len(self.aggregates) <= MOST_AGGREGATES:
            raise QueryError(f"a query asks for 1 to {MOST_AGGREGATES} aggregates, as a tuple", culprit=self.aggregates)
        if not all(isinstance(each, Aggregate) for each in self.aggregates):
            raise QueryError("an aggregate is a count, sum, mean, variance, quantile, minimum or maximum", culprit=self)
        _leaves(self.where)
        if self.names and len(self.names) != len(self.aggregates):
            raise QueryError("name each aggregate or none", culprit=self.names)
        if self.truncation is not None and (type(self.truncation) is not int or self.truncation < 1):
            raise QueryError(
                "of one unit at least one dropped row is counted, a whole number at most", culprit=self.truncation
            )
        if self.discovered and (
            self.truncation or self.by or self.where or any(each != Distinct() for each in self.aggregates)
        ):
            raise QueryError(
                "by values found in the data only distinct units can be counted, without a filter", culprit=self
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """What the answers are called."""
        return self.names or tuple(str(aggregate) for aggregate in self.aggregates)

    def check(self, domain: Domain) -> Query:
        """The query itself, if it fits the domain.

        Raises:
            DomainError: an attribute that the domain does not have.
            QueryError: a number asked of an attribute without numbers, an attribute named twice, a condition on
                cells that an attribute does not have, or too many groups.
        """
        self._refuse_no_bound(domain)
        for leaf in _leaves(self.where):
            size = domain[leaf.attribute].size
            if leaf.codes and not 0 <= min(leaf.codes) <= max(leaf.codes) < size:
                raise QueryError(f"a condition names a cell that {leaf.attribute!r} does not have", culprit=leaf)
        if len(set(self.by)) != len(self.by):
            raise QueryError("an attribute stands twice in the groups", culprit=self.by)
        if domain.project(self.by).size > MOST_GROUPS if self.by else False:
            raise QueryError(f"this groups into more than {MOST_GROUPS:,} cells; group by fewer attributes")
        for aggregate in self.aggregates:
            match aggregate:
                case Count(of=of):
                    if of is not None:
                        domain.index(of)
                case Distinct():
                    pass
                case Total() | Mean() | Variance() | Quantile() | Extreme():
                    numeric(domain, aggregate.of)
        return self

    def _refuse_no_bound(self, domain: Domain) -> None:
        if self.truncation is not None and domain.unit.column is None:
            raise QueryError("every row is a unit of its own here: no bound leaves any out, so there are none to count")


def refuse_no_query(query: object) -> None:
    """Refuse what is no query, such as its text.

    Raises:
        QueryError: as said.
    """
    if not isinstance(query, Query):
        raise QueryError(
            "what is asked is a Query, such as sf.query.count(); a statement is for sf.query.sql", culprit=query
        )


def _leaves(where: Predicate | None) -> list[Among]:
    """The comparisons of a condition, without recursion.

    Raises:
        QueryError: what is no condition, or so deep or long that an engine might fail over it.
    """
    level: list[Predicate] = [] if where is None else [where]
    found: list[Among] = []
    seen = depth = 0
    while level:
        seen, depth = seen + len(level), depth + 1
        if seen > MOST_CONDITIONS or depth > DEEPEST:
            raise QueryError(
                f"a condition has at most {MOST_CONDITIONS:,} parts, nested at most {DEEPEST} deep; list values by IN",
                culprit=seen,
            )
        if not all(isinstance(part, Predicate) for part in level):
            raise QueryError("a condition is made of Among, All, Any and Not", culprit=where)
        found += [part for part in level if isinstance(part, Among)]
        level = [part for each in level for part in _parts(each)]
    if not all(_is_set_of_codes(leaf.codes) for leaf in found):
        raise QueryError("a condition names the codes of an attribute as a frozenset of integers", culprit=where)
    return found


def _is_set_of_codes(codes: object) -> bool:
    return isinstance(codes, frozenset) and all(issubclass(kind, int) for kind in set(map(type, codes)))


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    match predicate:
        case Among():
            return ()
        case Not(part=part):
            return (part,)
        case All(parts=parts) | Any(parts=parts):
            return parts


def numeric(domain: Domain, name: str) -> Integer | Real:
    """An attribute that has numbers.

    Raises:
        QueryError: it is categorical.
        DomainError: there is none of that name.
    """
    attribute = domain[name]
    if isinstance(attribute, Categorical):
        raise QueryError(f"{name!r} is categorical: it can be counted, but has no sum, mean or quantile", culprit=name)
    return attribute


def count(where: Predicate | None = None) -> Query:
    """How many rows meet a condition."""
    return Query((Count(),), where=where)


def mean(of: str, where: Predicate | None = None) -> Query:
    """The mean of an attribute's clamped values."""
    return Query((Mean(of),), where=where)


def total(of: str, where: Predicate | None = None) -> Query:
    """The sum of an attribute's clamped values."""
    return Query((Total(of),), where=where)


def table(*attributes: str, where: Predicate | None = None) -> Query:
    """The contingency table of attributes; of one attribute: its histogram."""
    return Query((Count(),), by=attributes, where=where)


def median(attribute: str, *, by: tuple[str, ...] = (), where: Predicate | None = None) -> Query:
    """The median of an attribute in each group."""
    return Query((Quantile(attribute, Fraction(1, 2)),), by=by, where=where)
