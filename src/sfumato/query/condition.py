"""Conditions in the three-valued logic of SQL: for each row true, false, or unknown because a value is missing.

A condition is kept as the pair of predicates that say where it is true and where it is false.  NOT swaps
them; AND is true where both are and false where either is; OR the other way round.  WHERE keeps the rows
for which the condition is true, so that rows with a missing value fall out of ``x = 1`` and ``NOT x = 1`` alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from sfumato.domain import Attribute, Categorical, Domain, Integer, Unknown
from sfumato.domain.attribute import null_code, unknown_code
from sfumato.domain.predicate import All, Among, Any, Predicate
from sfumato.errors import QueryError

Literal = str | bool | Fraction


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
    """Where it is true and where it is false; elsewhere it is unknown."""

    true: Predicate
    false: Predicate

    def __and__(self, other: Condition) -> Condition:
        return every((self, other))

    def __or__(self, other: Condition) -> Condition:
        return either((self, other))

    def __invert__(self) -> Condition:
        return Condition(self.false, self.true)


def every(conditions: Sequence[Condition]) -> Condition:
    """Their conjunction: however many there are, it nests no deeper than they do."""
    return Condition(
        All(_flat(All, [each.true for each in conditions])), Any(_flat(Any, [each.false for each in conditions]))
    )


def either(conditions: Sequence[Condition]) -> Condition:
    """Their disjunction: however many there are, it nests no deeper than they do."""
    return ~every([~each for each in conditions])


def _flat(kind: type[All | Any], parts: Sequence[Predicate]) -> tuple[Predicate, ...]:
    return tuple(inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,)))


def missing(domain: Domain, name: str) -> Condition:
    """``name IS NULL``: never unknown.  Where the attribute is not nullable it is false for every row."""
    attribute = domain[name]
    code = null_code(attribute)
    found = frozenset(() if code is None else (code,))
    return Condition(Among(name, found), Among(name, frozenset(range(attribute.size)) - found))


@lru_cache(maxsize=4096, typed=True)  # every cell is looked at, and the same edges are asked about again and again
def compare(domain: Domain, name: str, how: Comparison, literal: Literal) -> Condition:
    """``name how literal``.

    The cell of other values of a categorical attribute differs from every declared value; whether one of a
    numeric attribute lies below or above is not known, so every comparison with it is unknown.

    Raises:
        DomainError: there is no such attribute.
        QueryError: the literal is not of the attribute's kind, is not a declared value, or cuts a cell in two,
            so that the table cannot say how many rows of the cell meet the condition.
    """
    attribute = domain[name]
    if isinstance(attribute, Categorical):
        return _categorical(attribute, how, literal)
    if isinstance(literal, bool) or not isinstance(literal, Fraction):
        raise QueryError(f"{name!r} holds numbers; compare it with a number", culprit=literal)
    true: set[int] = set()
    false: set[int] = set()
    for code in range(attribute.declared):
        verdict = _decided(attribute, code, how, literal)
        if verdict is None:
            raise QueryError(_cut(attribute, code), culprit=literal)
        (true if verdict else false).add(code)
    return Condition(Among(name, frozenset(true)), Among(name, frozenset(false)))


def _categorical(attribute: Categorical, how: Comparison, literal: Literal) -> Condition:
    if how not in (Comparison.EQUAL, Comparison.UNEQUAL):
        raise QueryError(f"the values of {attribute.name!r} have no order; use =, <> or IN", culprit=attribute.name)
    code = next((place for place, value in enumerate(attribute.values) if _same(value, literal)), None)
    if code is None:
        shown = ", ".join(repr(value) for value in attribute.values[:20])
        raise QueryError(f"this is not a declared value of {attribute.name!r}, which are {shown}", culprit=literal)
    other = unknown_code(attribute)
    named = set(range(attribute.declared)) | (set() if other is None else {other})
    equal = Condition(Among(attribute.name, frozenset({code})), Among(attribute.name, frozenset(named - {code})))
    return equal if how is Comparison.EQUAL else ~equal


def _same(value: object, literal: Literal) -> bool:
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    return value == literal


_HOLDS: dict[Comparison, Callable[[Fraction, Fraction], bool]] = {
    Comparison.EQUAL: lambda value, literal: value == literal,
    Comparison.LESS: lambda value, literal: value < literal,
    Comparison.AT_MOST: lambda value, literal: value <= literal,
}
_NEGATED = {
    Comparison.UNEQUAL: Comparison.EQUAL,
    Comparison.AT_LEAST: Comparison.LESS,
    Comparison.GREATER: Comparison.AT_MOST,
}


def _decided(attribute: Attribute, code: int, how: Comparison, literal: Fraction) -> bool | None:
    """Whether the comparison holds for all values of a cell, for none (False), or only for some (None)."""
    if how in _NEGATED:
        verdict = _decided(attribute, code, _NEGATED[how], literal)
        return None if verdict is None else not verdict
    assert not isinstance(attribute, Categorical)
    low, high = (Fraction(bound) for bound in attribute.bounds(code))
    last = code == attribute.declared - 1
    closed = isinstance(attribute, Integer) or last
    if how is Comparison.EQUAL:
        if literal < low or literal > high or (literal == high and not closed):
            return False
        return True if low == high else None
    first = _HOLDS[how](low, literal)
    # the right end of an open cell is not in it, so it is enough that all values below it pass
    end = _HOLDS[how](high, literal) if closed else high <= literal
    if first and end:
        return True
    return None if first else False


def _cut(attribute: Attribute, code: int) -> str:
    assert not isinstance(attribute, Categorical)
    shown = ", ".join(f"{attribute.bounds(cell)[0]}" for cell in range(attribute.declared)[:40])
    kind = "cells start" if isinstance(attribute, Integer) else "cells, which hold their left end only, start"
    beyond = "" if attribute.unknown is not Unknown.CLAMP else f"; the last ends with {attribute.maximum}"
    return (
        f"this cuts the cell {attribute.labels()[code]} of {attribute.name!r}: its {kind} at {shown}{beyond}; "
        "compare at such an edge"
    )
