"""Queries: aggregates over filtered rows, by groups.

The language is closed, so the domain alone decides whether a query can be answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from sfumato.domain import Domain, Unknown
from sfumato.domain.predicate import Among, Predicate, describe_condition
from sfumato.domain.view import BoundedView
from sfumato.domain.view_words import left_out, may_cut
from sfumato.errors import QueryError, pluralize
from sfumato.query.aggregates import Aggregate, Average, Count, Distinct, Quantile, Total
from sfumato.query.answer_expression import AnswerColumn, column_notes
from sfumato.query.answer_ordering import UNORDERED, Ordering
from sfumato.query.statements.three_valued_logic import normal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_AGGREGATES = 200
MOST_CONDITIONS = 4096
DEEPEST = 200
MOST_GROUPS = 1 << 20
BOUNDED = "intervals are of the bounded table"
_LONGEST = 300  # characters of a description


@dataclass(frozen=True)
class Query:
    """Aggregates over the rows that meet ``where``, for each cell of ``by``.

    Attributes:
        aggregates: one or more.
        by: declared attributes, or levels of their hierarchies such as ``chapter(diag)``.  The answer has every
            declared cell that can hold a row that meets ``where``, empty or not.
        where: a condition, or its text as after WHERE; None: all rows.
        data_dependent_groups: columns outside the domain, whose values are found in the data: values of enough units,
            behind a stability threshold.  Then only units are counted, without ``by`` and ``where``.
        names: names for the answers, which do not affect the measurement.
        truncation: a cap per unit, or None.  With a cap, a part of the loss also counts the rows that meet ``where``
            and are dropped by the bound on rows per unit, at most this many of each unit.
        ordering: the noisy answers to show, and their order; it does not affect the measurement.
        columns: the columns of the answer, computed from the aggregates; empty for the aggregates themselves.  They do
            not affect the measurement.
    """

    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...] = ()
    where: Predicate | str | None = None
    data_dependent_groups: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)
    truncation: int | None = None
    ordering: Ordering = field(default=UNORDERED, compare=False, repr=False)
    columns: tuple[AnswerColumn, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        names = (self.by, self.data_dependent_groups, self.names)
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
                "truncation is the largest number of dropped rows to count per unit, a whole number from 1",
                culprit=self.truncation,
            )
        others = self.truncation or self.by or self.where is not None
        if self.data_dependent_groups and (others or any(each != Distinct() for each in self.aggregates)):
            raise QueryError(
                "groups found in the data only allow a count of distinct units, without a filter", culprit=self
            )

    def __hash__(self) -> int:
        return self._hash  # many caches use queries as keys, and conditions may be long

    @cached_property
    def _hash(self) -> int:
        return hash((self.aggregates, self.by, self.where, self.data_dependent_groups, self.truncation))

    @property
    def held_bytes(self) -> int:
        """The approximate size in bytes."""
        where = self.where
        condition = 0 if where is None else len(where) if isinstance(where, str) else where.held_bytes
        return 1_000 + 300 * (len(self.aggregates) + len(self.by)) + condition

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the aggregates."""
        return self.names or tuple(str(aggregate) for aggregate in self.aggregates)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of the answer."""
        return tuple(column.name for column in self.columns) or self.labels

    def largest_intervals(self, domain: Domain) -> tuple[float, ...]:
        """Return, for each column, the width of an interval that excludes no value allowed by the domain."""
        if not self.columns:
            return tuple(each.largest_interval(domain) for each in self.aggregates)
        return tuple(column.largest_interval(self.aggregates, domain) for column in self.columns)

    def check(self, domain: Domain) -> Query:
        """Return the query with its condition parsed, if it fits the domain.

        Raises:
            DomainError: an attribute that the domain does not have.
            QueryError: a number of an attribute without numbers, a repeated attribute, a condition that cannot be read
                or refers to unknown cells, too many groups, or no group that can hold a row that meets the condition.
        """
        if isinstance(self.where, str):
            from sfumato.query.statements.sql_condition import read_condition

            return replace(self, where=read_condition(self.where, domain)).check(domain)
        if self.truncation is not None and domain.unit.column is None:
            raise QueryError(
                "every row is its own unit, so no bound drops rows and none can be counted; leave truncation out"
            )
        for leaf in _leaves(self.where):
            if not leaf.codes.within(domain[leaf.attribute].size):
                raise QueryError(f"a condition names a cell that {leaf.attribute!r} does not have", culprit=leaf)
        by = _spelled_groups(self.by, domain)
        for aggregate in self.aggregates:
            aggregate.check(domain)
        checked = self if by == self.by else replace(self, by=by)
        checked.possible_groups(domain)  # refuse a condition that leaves no group
        return checked

    def condition(self, domain: Domain) -> Predicate | None:
        """Return the condition of a checked query in normal form; None if it holds for all rows.

        Raises:
            QueryError: the condition is text that cannot be read.
        """
        where = self.check(domain).where if isinstance(self.where, str) else self.where
        assert not isinstance(where, str)
        return normal(where, domain)

    def possible_groups(self, domain: Domain, view: BoundedView | None = None) -> NDArray[np.bool_] | None:
        """Return the groups that remain under the condition, in the order of the answer; None for all.

        Args:
            domain: the domain of the rows.
            view: the view that the rows belong to, if they come from several tables; its conditions count as well.

        Raises:
            QueryError: no group can hold a row that meets the condition.
        """
        assert not isinstance(self.where, str), "the query is checked"
        if not self.by or (self.where is None and view is None):
            return None
        grouped = {axis.attribute for axis in domain.axes(self.by)}
        if view is None and isinstance(self.where, Among) and self.where.codes and self.where.attribute not in grouped:
            return None  # a comparison of another attribute excludes no group
        from sfumato.query.possible_groups import possible_groups  # other queries do not need the import

        return possible_groups(self.by, self.where, domain, view)

    def describe(self, domain: Domain) -> str:
        """Describe the counts, their groups and the condition for readers of the journal, in at most 300 characters.

        >>> from sfumato.domain import Integer
        >>> ages = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),))
        >>> count("age BETWEEN 18 AND 65").describe(ages)
        'count(*) where age in 18 to 65'
        """
        checked = self.check(domain)
        return words(checked, checked.condition(domain), domain)

    def population_notes(self, domain: Domain, view: BoundedView | None = None) -> tuple[str, ...]:
        """Describe the exact answer that an interval covers, unless it is the answer of the whole table or view."""
        unit, notes = domain.unit, []
        nobody = "without" if view is None else "of no"  # a row may lack a unit through another table's key
        if unit.column is not None and self.data_dependent_groups:
            notes.append(f"each {unit.column} counts for at most {unit.rows} of the values found")
        elif view is not None and unit.column is not None and not may_cut(view):
            notes.append(f"rows {nobody} {unit.column} are left out")
        elif unit.column is not None:
            notes.append(
                f"{BOUNDED}: at most {pluralize(unit.rows, 'row')} of one {unit.column}{unit.by_groups}, the rest is "
                f"left out, and so are rows {nobody} {unit.column}"
            )
        notes += [] if view is None else left_out(view)
        dropping = [attribute.name for attribute in domain if attribute.unknown is Unknown.DROP]
        if dropping and view is None and not self.data_dependent_groups:
            notes.append(f"rows with an undeclared {' or '.join(dropping)} are left out, as the domain says")
        notes += [note for each in self.aggregates for note in each.notes(domain)]
        return tuple(dict.fromkeys((*notes, *column_notes(self.columns))))


def _spelled_groups(names: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
    """Return the groups in the domain's spelling.

    Raises:
        DomainError: the domain has no such group.
        QueryError: a group is repeated, or there are too many cells.
    """
    too_many = f"this groups into more than {MOST_GROUPS:,} cells; group by fewer attributes"
    if any(domain[name].size > MOST_GROUPS for name in names if name in domain):
        raise QueryError(too_many)  # before the labels are listed
    by = tuple(domain.grouping(name).name for name in names)
    if len(set(by)) != len(by):
        raise QueryError("a group is repeated; name each group once", culprit=names)
    if math.prod(each.size for each in domain.axes(by)) > MOST_GROUPS:
        raise QueryError(too_many)
    return by


def words(query: Query, where: Predicate | None, domain: Domain) -> str:
    """Return a query in words, with its condition in normal form."""
    aggregates = ", ".join(map(str, query.aggregates))
    aggregates += "" if query.truncation is None else " and rows dropped by the bound"
    groups = [*query.by, *(f"{name} as found in the data" for name in query.data_dependent_groups)]
    by = f" by {', '.join(groups)}" if groups else ""
    text = aggregates + by + ("" if where is None else f" where {describe_condition(where, domain)}")
    beginning = text[: _LONGEST + 1]
    if not beginning.isprintable():
        beginning = "".join(letter if letter.isprintable() else "?" for letter in beginning)
    return beginning if len(beginning) <= _LONGEST else f"{beginning[: _LONGEST - 4]} ..."


def refuse_no_query(query: object) -> None:
    """Refuse a value that is not a query, such as the text of one.

    Raises:
        QueryError: the value is not a Query.
    """
    if not isinstance(query, Query):
        raise QueryError(
            "the query must be a Query, such as sf.query.count(); pass a statement to sf.query.sql", culprit=query
        )


def count(where: Predicate | str | None = None) -> Query:
    """Return the query for the number of rows that meet a condition.

    >>> count("age >= 65").aggregates
    (Count(of=None),)

    Args:
        where: a condition as a predicate, or as text such as ``age >= 65 AND sex = 'F'``; None: all rows.
    """
    return Query((Count(),), where=where)


def mean(of: str, where: Predicate | str | None = None) -> Query:
    """Return the query for the mean of an attribute's clamped values.

    Args:
        of: a numeric attribute.
        where: a condition as a predicate, or as text such as ``age >= 65 AND sex = 'F'``; None: all rows.
    """
    return Query((Average(of),), where=where)


def total(of: str, where: Predicate | str | None = None) -> Query:
    """Return the query for the sum of an attribute's clamped values.

    Args:
        of: a numeric attribute.
        where: a condition as a predicate, or as text such as ``age >= 65 AND sex = 'F'``; None: all rows.
    """
    return Query((Total(of),), where=where)


def table(*attributes: str, where: Predicate | str | None = None) -> Query:
    """Return the query for the contingency table of attributes; for one attribute: its histogram.

    >>> table("age", "sex").by
    ('age', 'sex')

    Args:
        *attributes: attributes, levels such as ``chapter(diag)``, or periods such as ``month(admitted)``.
        where: a condition as a predicate, or as text such as ``age >= 65 AND sex = 'F'``; None: all rows.
    """
    return Query((Count(),), by=attributes, where=where)


def median(attribute: str, *, by: tuple[str, ...] = (), where: Predicate | str | None = None) -> Query:
    """Return the query for the median of an attribute in each group.

    Args:
        attribute: a numeric attribute.
        by: the attributes whose cells are the groups; default: one group of all rows.
        where: a condition as a predicate, or as text such as ``age >= 65 AND sex = 'F'``; None: all rows.
    """
    return Query((Quantile(attribute, Fraction(1, 2)),), by=by, where=where)


def _leaves(where: Predicate | str | None) -> Sequence[Among]:
    """Return the comparisons of a condition, without recursion; none if the condition is still text.

    Raises:
        QueryError: the condition has another type, or is so deep or long that an engine might fail.
    """
    level: list[Predicate] = [] if where is None or isinstance(where, str) else [where]
    comparisons: list[Among] = []
    seen = depth = 0
    while level:
        seen, depth = seen + len(level), depth + 1
        if seen > MOST_CONDITIONS or depth > DEEPEST:
            raise QueryError(
                f"a condition has at most {MOST_CONDITIONS:,} parts, nested at most {DEEPEST} deep; list values by IN",
                culprit=seen,
            )
        following: list[Predicate] = []
        for part in level:
            if type(part) is Among or isinstance(part, Among):  # the second takes ten times as long
                comparisons.append(part)
            elif isinstance(part, Predicate):
                following += part.inner
            else:
                raise QueryError("a condition is text, or made of Among, All, Any and Not", culprit=where)
        level = following
    return comparisons
