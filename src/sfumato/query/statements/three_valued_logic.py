"""Conditions in the three-valued logic of SQL: for each row true, false, or unknown because a value is missing.

A condition is a pair of predicates: one for the rows with result true, and one for the rows with result false.  NOT
swaps them.  AND is true if both parts are and false if either is, and OR is its dual.  WHERE keeps the rows with result
true, so that rows with a missing value meet neither ``x = 1`` nor ``NOT x = 1``.

Predicates have a normal form, so that conditions of equal meaning and similar shape are one query.  Negations become
ranges of cells, nested conjunctions and disjunctions are flattened, ranges of one attribute are merged, and parts occur
once and in a fixed order.  The form is not minimal: two predicates with one meaning may still differ.  They are then
charged twice, never confused.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, time
from enum import StrEnum
from fractions import Fraction
from typing import Any as Anything

from sfumato.domain import (
    Attribute,
    Categorical,
    Date,
    Dated,
    Domain,
    Grain,
    Grouping,
    Integer,
    Numeric,
    Real,
    Timestamp,
)
from sfumato.domain.attribute import EXTRA, null_code
from sfumato.domain.calendar import DAY, HOUR, CalendarMap
from sfumato.domain.predicate import All, Among, Any, CodeRanges, Fold, Not, Predicate
from sfumato.errors import QueryError
from sfumato.query.statements.cut_cells import CutCellError
from sfumato.query.statements.declared_values import codes_meeting

Literal = str | bool | Fraction

_NOBODY = Any(())


class Comparison(StrEnum):
    """A comparison of an attribute with a literal."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True)
class Condition:
    """A condition as two predicates: for the rows with result true, and with result false.

    For all other rows it is unknown.
    """

    true: Predicate
    false: Predicate

    def __and__(self, other: Condition) -> Condition:
        return every((self, other))

    def __or__(self, other: Condition) -> Condition:
        return either((self, other))

    def __invert__(self) -> Condition:
        return Condition(self.false, self.true)

    @property
    def known(self) -> Condition:
        """``condition IS TRUE``: false where the condition is unknown."""
        return Condition(self.true, Not(self.true))


def every(conditions: Sequence[Condition]) -> Condition:
    """Return the conjunction of conditions; its nesting depth does not grow with their number."""
    return Condition(_met(All, [each.true for each in conditions]), _met(Any, [each.false for each in conditions]))


def either(conditions: Sequence[Condition]) -> Condition:
    """Return the disjunction of conditions; its nesting depth does not grow with their number."""
    return ~every([~each for each in conditions])


def _met(kind: type[All | Any], parts: Sequence[Predicate]) -> Predicate:
    """Return a conjunction or disjunction with one comparison per attribute: a list of values becomes one part."""
    cells, others = _merged(kind, parts)
    joined = (*(Among(name, codes) for name, codes in cells.items()), *others)
    return joined[0] if len(joined) == 1 else kind(joined)


def _merged(kind: type[All | Any], parts: Sequence[Predicate]) -> tuple[dict[str, CodeRanges], list[Predicate]]:
    """Return the codes of each attribute that has a part of its own, and the other parts."""
    cells: dict[str, list[CodeRanges]] = {}
    others: list[Predicate] = []
    for part in parts:
        for inner in part.inner if isinstance(part, kind) else (part,):
            if isinstance(inner, Among):
                cells.setdefault(inner.attribute, []).append(inner.codes)
            else:
                others.append(inner)
    joined = CodeRanges.intersection if kind is All else CodeRanges.union
    return {name: joined(sets) for name, sets in cells.items()}, others


def missing(domain: Domain, name: str) -> Condition:
    """Return ``name IS NULL``, which is never unknown; it is false for every row if the attribute is not nullable.

    A level of a hierarchy is missing if its attribute is, unless the level has a cell for missing values.
    """
    attribute, level = _attribute(domain, name)
    if level is not None:
        absent = _cells_of(level, "(missing)")
    else:
        code = null_code(attribute)
        absent = CodeRanges() if code is None else CodeRanges.between(code, code)
    return Condition(Among(attribute.name, absent), Among(attribute.name, _every_code(attribute) - absent))


def _every_code(attribute: Attribute) -> CodeRanges:
    return CodeRanges.between(0, attribute.size - 1)


def compare(domain: Domain, name: str, how: Comparison, literal: Literal) -> Condition:
    """Return ``name how literal``.

    The cell of undeclared values of a categorical attribute differs from every declared value.  For a numeric
    attribute, every comparison with an undeclared value is unknown, because its order is unknown.

    Raises:
        DomainError: there is no such attribute.
        QueryError: the literal does not have the attribute's kind, is not a declared value, or cuts a cell in two, so
            that the table does not determine how many rows of the cell meet the condition.
    """
    attribute, level = _attribute(domain, name)
    negated = how in _NEGATED
    cells = _cells(attribute, level, _NEGATED[how] if negated else how, literal)
    condition = _condition(attribute, level, cells)
    return ~condition if negated else condition


def among(domain: Domain, name: str, literals: Sequence[Literal]) -> Condition:
    """Return ``name IN (literals)``, with at least one literal.

    Raises:
        DomainError, QueryError: as for a comparison with one of the literals.
    """
    attribute, level = _attribute(domain, name)
    cells = [_cells(attribute, level, Comparison.EQUAL, literal) for literal in literals]
    return _condition(attribute, level, CodeRanges.union(cells))


def _condition(attribute: Attribute, level: Grouping | None, cells: CodeRanges) -> Condition:
    """Return the condition that a value lies in some cells of its attribute, hierarchy level or calendar map."""
    true = cells if level is None else _codes_in(level, cells)
    return Condition(Among(attribute.name, true), Among(attribute.name, _known(attribute, level) - true))


def _codes_in(level: Grouping, cells: CodeRanges) -> CodeRanges:
    """Return the codes of the attribute that lie in some cells of a level."""
    return CodeRanges.where(cells.contains(level.cell_of_code, len(level.labels)))


def _known(attribute: Attribute, level: Grouping | None) -> CodeRanges:
    """Return the codes for which every comparison is true or false.

    Comparisons with a missing value are unknown.  An undeclared value differs from all declared values and cells of
    categories, but it has no known order among numbers.
    """
    if not isinstance(attribute, Categorical) and (level is None or level.calendar is not None):
        return CodeRanges.between(0, attribute.declared - 1)
    if level is None:
        code = null_code(attribute)
        return _every_code(attribute) - (CodeRanges() if code is None else CodeRanges.between(code, code))
    known = _every_code(attribute) - _cells_of(level, "(missing)")
    return known if isinstance(attribute, Categorical) else known - _cells_of(level, "(other)")


def _cells(attribute: Attribute, level: Grouping | None, how: Comparison, literal: Literal) -> CodeRanges:
    """Return the cells, of the attribute or of the level, that are equal to a literal, less than it, or at most it.

    Raises:
        QueryError: see :func:`compare`.
    """
    if level is not None:
        return (
            _in_level(level, how, literal) if level.calendar is None else _in_map(level, level.calendar, how, literal)
        )
    if isinstance(attribute, Categorical):
        return _categorical(attribute, how, literal)
    if isinstance(attribute, Date | Timestamp):
        return _cells_of_comparison(attribute, how, _moment(attribute, literal))
    if isinstance(literal, bool) or not isinstance(literal, Fraction):
        raise QueryError(f"{attribute.name!r} holds numbers; compare it with a number", culprit=literal)
    return _cells_of_comparison(attribute, how, _double(literal) if isinstance(attribute, Real) else literal)


def _cells_of_comparison(attribute: Numeric | Dated, how: Comparison, literal: Fraction) -> CodeRanges:
    """Return the declared cells that are equal to a number, less than it, or at most it.

    Cells lie in order: only the last one that begins before the number may be cut by it.

    Raises:
        QueryError: the comparison holds for some values of a cell only.
    """
    if isinstance(attribute, Integer) and attribute.edges is None:  # each number is a cell
        cells_begun = math.ceil(literal) if how is Comparison.LESS else math.floor(literal) + 1
        last = min(cells_begun - attribute.minimum, attribute.declared) - 1
    else:
        bisect = bisect_left if how is Comparison.LESS else bisect_right
        last = bisect(range(attribute.declared), literal, key=lambda code: _start(attribute, code)) - 1
    if last < 0:
        return CodeRanges()
    decided = _decided(attribute, last, how, literal)
    if decided is None:
        raise CutCellError.of(attribute, last, literal)
    if how is Comparison.EQUAL:
        return CodeRanges.between(last, last) if decided else CodeRanges()
    return CodeRanges.between(0, last)


def _start(attribute: Numeric | Dated, code: int) -> Anything:  # noqa: ANN401  (int or float: both compare exactly)
    """Return the smallest value of a cell in its declared form."""
    return attribute.span(code)[0] if isinstance(attribute, Date | Timestamp) else attribute.bounds(code)[0]


def _moment(attribute: Dated, literal: Literal) -> Fraction:
    """Return a date as Python counts days, or a time stamp as seconds, to match the attribute's cells.

    Raises:
        QueryError: the literal is no date, or is finer than the attribute.
    """
    moment = _clock(literal)
    if moment is None:
        form = "a date, such as DATE '2023-03-01'"
        form += " or TIMESTAMP '2023-03-01 08:00', without a zone" if isinstance(attribute, Timestamp) else ""
        raise QueryError(f"{attribute.name!r} holds dates; compare it with {form}", culprit=literal)
    if isinstance(attribute, Timestamp):
        return _seconds(moment)
    if moment.time() != time():
        reason = f"{attribute.name!r} holds days, which are compared with dates without a time"
        raise QueryError(reason, culprit=literal)
    return Fraction(moment.toordinal())


def _double(literal: Fraction) -> Fraction:
    """Return the double nearest to a decimal, because edges and values are doubles: an edge at 0.1 is that double."""
    try:
        return Fraction(float(literal))
    except OverflowError:
        return literal


def _in_map(level: Grouping, calendar_map: CalendarMap, how: Comparison, literal: Literal) -> CodeRanges:
    """Return the cells of a calendar map that meet a comparison, by their labels or numbers.

    Longer periods are compared by their first moment, like results of ``DATE_TRUNC``; years also by their number.
    """
    if isinstance(literal, str) and literal in calendar_map.labels:
        cell_number = Fraction(calendar_map.numbers[calendar_map.labels.index(literal)])
    elif calendar_map.grain is not None:
        cell_number = _beginning(level, calendar_map.grain, how, literal)
    else:
        cell_number = _part(level, calendar_map.parts, how, literal)
    before, after = bisect_left(calendar_map.numbers, cell_number), bisect_right(calendar_map.numbers, cell_number)
    first = before if how is Comparison.EQUAL else 0
    return CodeRanges.between(first, (before if how is Comparison.LESS else after) - 1)


def _part(level: Grouping, parts: Mapping[str, int], how: Comparison, literal: Literal) -> Fraction:
    """Return the number of the calendar part in a literal; an end, such as 24 for hours, may lie one beyond the parts.

    Raises:
        QueryError: the calendar has no such part.
    """
    least, most = min(parts.values()), max(parts.values())
    if isinstance(literal, Fraction):
        exact = how in (Comparison.EQUAL, Comparison.UNEQUAL)
        if literal in parts.values() if exact else least - 1 <= literal <= most + 1:
            return literal
    elif literal in parts:
        return Fraction(parts[str(literal)])
    names = [] if str(least) in parts else list(parts)
    named = f", or one of {', '.join(names)}" if names else ""
    raise QueryError(f"{level.name} is a number, from {least} to {most}{named}", culprit=literal)


def _beginning(level: Grouping, grain: Grain, how: Comparison, literal: Literal) -> Fraction:
    """Return the beginning of the period that a literal names, in seconds.

    Raises:
        QueryError: the literal names no period.
    """
    if grain is Grain.YEAR and isinstance(literal, Fraction):
        if literal.denominator == 1 and 1 <= literal <= MAXYEAR:
            return Fraction(date(int(literal), 1, 1).toordinal() * DAY)
        raise QueryError(f"{level.name} is compared with a year", culprit=literal)
    moment = _clock(literal)
    if moment is None:
        reason = f"compare {level.name} with one of its cells, such as {level.labels[0]!r}, or with a date"
        if grain is Grain.MONTH:
            reason += f"; the month of the year is EXTRACT(MONTH FROM {level.attribute})"
        raise QueryError(reason, culprit=literal)
    hour = moment.hour if grain is Grain.HOUR else 0
    begins = datetime.combine(grain.first_day(grain.of(moment.date(), hour)), time(hour))
    if how in (Comparison.EQUAL, Comparison.UNEQUAL) and begins != moment:
        at = f"at {begins}" if grain is Grain.HOUR else f"on {begins.date()}"
        raise QueryError(f"no {grain} of {level.attribute} begins then, but one {at}", culprit=literal)
    return _seconds(moment)


def _clock(literal: Literal) -> datetime | None:
    """Return the moment that a literal names; None if it names none."""
    try:
        moment = datetime.fromisoformat(literal) if isinstance(literal, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is not None else moment


def _seconds(moment: datetime) -> Fraction:
    seconds = moment.toordinal() * DAY + moment.hour * HOUR + moment.minute * 60 + moment.second
    return seconds + Fraction(moment.microsecond, 10**6)


def _attribute(domain: Domain, name: str) -> tuple[Attribute, Grouping | None]:
    """Return the attribute of a name, and the level of its hierarchy if the name has one."""
    if name in domain:
        return domain[name], None
    grouping = domain.grouping(name)
    return domain[grouping.attribute], grouping


def _cells_of(level: Grouping, label: str) -> CodeRanges:
    """Return codes of the attribute in a level's cell with this label; none if there is no such cell."""
    cells = [cell for cell, each in enumerate(level.labels) if each == label]
    return _codes_in(level, CodeRanges.of(cells)) if cells else CodeRanges()


def _in_level(level: Grouping, how: Comparison, literal: Literal) -> CodeRanges:
    """Return the cells of a hierarchy's level with this label."""
    if how is not Comparison.EQUAL:
        raise QueryError(f"the cells of {level.name} have no order; use =, <> or IN", culprit=level.name)
    cells = [cell for cell, label in enumerate(level.labels) if label == literal]
    if literal in EXTRA or not cells:
        names = ", ".join(repr(label) for label in level.labels[:20] if label not in EXTRA)
        raise QueryError(f"this is not a cell of {level.name}, which are {names}", culprit=literal)
    return CodeRanges.of(cells)


def _categorical(attribute: Categorical, how: Comparison, literal: Literal) -> CodeRanges:
    """Return the cell of a declared value, or the cells of values that are comparable with a number or truth value.

    Raises:
        QueryError: the values have no order, or none of them equals the literal.
    """
    code = attribute.code_of(literal) if how is Comparison.EQUAL else None
    if code is not None:
        return CodeRanges.between(code, code)
    codes = codes_meeting(attribute, literal, _COMPARISONS[how])
    if how is not Comparison.EQUAL:
        if codes is not None and isinstance(literal, Fraction):
            return codes
        raise QueryError(f"the values of {attribute.name!r} have no order; use =, <> or IN", culprit=attribute.name)
    if codes:
        return codes
    values = ", ".join(repr(value) for value in attribute.values[:20])
    raise QueryError(f"this is not a declared value of {attribute.name!r}, which are {values}", culprit=literal)


_COMPARISONS: dict[Comparison, Callable[[Fraction, Fraction], bool]] = {
    Comparison.EQUAL: lambda value, literal: value == literal,
    Comparison.LESS: lambda value, literal: value < literal,
    Comparison.AT_MOST: lambda value, literal: value <= literal,
}
_NEGATED = {
    Comparison.UNEQUAL: Comparison.EQUAL,
    Comparison.AT_LEAST: Comparison.LESS,
    Comparison.GREATER: Comparison.AT_MOST,
}


def _decided(attribute: Numeric | Dated, code: int, how: Comparison, literal: Fraction) -> bool | None:
    """Return whether the comparison holds for all values of a cell, for none (False), or only for some (None)."""
    low, high = _ends(attribute, code)
    closed = not isinstance(attribute, Timestamp)  # otherwise its end is the start of the next cell
    if how is Comparison.EQUAL:
        if literal < low or literal > high or (literal == high and not closed):
            return False
        return True if low == high else None
    first = _COMPARISONS[how](low, literal)
    # an open cell excludes its right end, so it is enough that all values below it pass
    end = _COMPARISONS[how](high, literal) if closed else high <= literal
    if first and end:
        return True
    return None if first else False


def _ends(attribute: Numeric | Dated, code: int) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest value of a cell, or the start of the next cell.

    Dates have the form of :func:`_moment`.
    """
    if isinstance(attribute, Date):
        first, after = attribute.span(code)
        return Fraction(first), Fraction(after - 1)
    low, high = attribute.span(code) if isinstance(attribute, Timestamp) else attribute.bounds(code)
    if isinstance(attribute, Real) and not attribute.is_closed(code):
        high = math.nextafter(high, -math.inf)  # a cell may hold a single double
    return Fraction(low), Fraction(high)


def normal(predicate: Predicate | None, domain: Domain) -> Predicate | None:
    """Return the normal form; None if the predicate holds for every row by its shape.

    >>> from sfumato.domain import Integer, Unknown
    >>> domain = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
    >>> normal(All((Not(Among("age", [0])), Among("age", [0, 1]))), domain)
    Among(attribute='age', codes=CodeRanges(1))
    """
    return None if predicate is None else _simplify(predicate, domain, negated=False)


def _simplify(predicate: Predicate, domain: Domain, *, negated: bool) -> Predicate | None:
    match predicate:
        case Among():
            return _simplified(predicate, domain, negated=negated)
        case Not(part=part):
            return _simplify(part, domain, negated=not negated)
        case _:
            simplified = [_simplify(part, domain, negated=negated) for part in predicate.inner]
            conjunction = isinstance(predicate, All) != negated
            return _conjunction(simplified, domain) if conjunction else _disjunction(simplified, domain)


def _simplified(leaf: Among, domain: Domain, *, negated: bool) -> Predicate | None:
    every_code = _every_code(domain[leaf.attribute])
    codes = every_code - leaf.codes if negated else leaf.codes & every_code
    return None if codes == every_code else Among(leaf.attribute, codes) if codes else _NOBODY


def _conjunction(parts: Sequence[Predicate | None], domain: Domain) -> Predicate | None:
    cells, others = _merged(All, [part for part in parts if part is not None])
    if _NOBODY in others or not all(cells.values()):
        return _NOBODY
    return _joined(All, cells, others, domain)


def _disjunction(parts: Sequence[Predicate | None], domain: Domain) -> Predicate | None:
    possible = [part for part in parts if part is not None]
    if len(possible) < len(parts):
        return None
    cells, others = _merged(Any, possible)
    if any(codes == _every_code(domain[name]) for name, codes in cells.items()):
        return None
    return _joined(Any, cells, others, domain) if cells or others else _NOBODY


def _joined(
    kind: type[All | Any], cells: Mapping[str, CodeRanges], others: Sequence[Predicate], domain: Domain
) -> Predicate | None:
    """Join cells by attribute, and then other parts, in a fixed order."""
    joined: list[Predicate] = [Among(name, cells[name]) for name in sorted(cells, key=domain.index)]
    joined += sorted(set(others), key=lambda part: _order(part, domain))
    if not joined:
        return None
    return joined[0] if len(joined) == 1 else kind(tuple(joined))


def _order(part: Predicate, domain: Domain) -> str:
    return part.fold(
        Fold(
            among=lambda each: f"0 {domain.index(each.attribute):06d} {each.codes.bounds}",
            every=lambda parts: f"1 ({' '.join(parts)})",
            some=lambda parts: f"2 ({' '.join(parts)})",
            negated=lambda each: f"3 {each}",
        )
    )
