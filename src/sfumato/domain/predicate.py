"""Conditions on a row, in terms of declared cells: what a filter of a counting query may say.

A condition names cells, never expressions, so whether it can be evaluated depends on the domain alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Fold(Generic[T]):
    """What each kind of condition becomes, given what its parts became: SQL, an array, JSON, words."""

    among: Callable[[Among], T]
    every: Callable[[Iterator[T]], T]
    some: Callable[[Iterator[T]], T]
    negated: Callable[[T], T]


class Predicate(ABC):
    """A condition on a row."""

    @property
    @abstractmethod
    def inner(self) -> tuple[Predicate, ...]:
        """The conditions that it is put together from."""

    @abstractmethod
    def fold(self, how: Fold[T]) -> T:
        """The condition put together from its parts, innermost first; each is made when it is asked for."""

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the condition looks at.

        >>> sorted(All((Among("age", frozenset({1})), Not(Among("sex", frozenset())))).attributes)
        ['age', 'sex']
        """
        return self.fold(_ATTRIBUTES)


@dataclass(frozen=True)
class Among(Predicate):
    """The attribute's code is one of ``codes``."""

    attribute: str
    codes: frozenset[int]

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """No condition."""
        return ()

    def fold(self, how: Fold[T]) -> T:
        """What the comparison becomes."""
        return how.among(self)


@dataclass(frozen=True)
class All(Predicate):
    """Every part holds; no parts hold for every row."""

    parts: tuple[Predicate, ...]

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The parts."""
        return self.parts

    def fold(self, how: Fold[T]) -> T:
        """What the conjunction becomes."""
        return how.every(part.fold(how) for part in self.parts)


@dataclass(frozen=True)
class Any(Predicate):
    """At least one part holds; no parts hold for no row."""

    parts: tuple[Predicate, ...]

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The parts."""
        return self.parts

    def fold(self, how: Fold[T]) -> T:
        """What the disjunction becomes."""
        return how.some(part.fold(how) for part in self.parts)


@dataclass(frozen=True)
class Not(Predicate):
    """The part does not hold."""

    part: Predicate

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The one part."""
        return (self.part,)

    def fold(self, how: Fold[T]) -> T:
        """What the negation becomes."""
        return how.negated(self.part.fold(how))


def _union(parts: Iterator[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*parts)


_ATTRIBUTES = Fold(
    among=lambda part: frozenset((part.attribute,)), every=_union, some=_union, negated=lambda part: part
)


def named(predicate: Predicate | None) -> frozenset[str]:
    """The attributes that a condition looks at, none without a condition."""
    return frozenset() if predicate is None else predicate.attributes
