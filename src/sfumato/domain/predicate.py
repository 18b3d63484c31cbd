"""Conditions on a row, in terms of declared cells: what a filter of a counting query may say.

A condition names cells, never expressions, so whether it can be evaluated depends on the domain alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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
