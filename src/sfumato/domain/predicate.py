"""Conditions on a row, in terms of declared cells: what a filter of a counting query may say.

A condition names cells, never expressions, so whether it can be evaluated depends on the domain alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never


@dataclass(frozen=True)
class Among:
    """The attribute's code is one of ``codes``."""

    attribute: str
    codes: frozenset[int]


@dataclass(frozen=True)
class All:
    """Every part holds; no parts hold for every row."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Any:
    """At least one part holds; no parts hold for no row."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Predicate


Predicate: TypeAlias = Among | All | Any | Not


def named(predicate: Predicate | None) -> frozenset[str]:
    """The attributes that a condition looks at.

    >>> sorted(named(All((Among("age", frozenset({1})), Not(Among("sex", frozenset()))))))
    ['age', 'sex']
    """
    match predicate:
        case None:
            return frozenset()
        case Among(attribute=name):
            return frozenset((name,))
        case All(parts=parts) | Any(parts=parts):
            return frozenset().union(*map(named, parts))
        case Not(part=part):
            return named(part)
        case _:
            assert_never(predicate)
