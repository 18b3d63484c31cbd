"""Conditions on a row, in terms of declared cells: what a filter of a counting query may say.

A condition names cells, never expressions, so whether it can be evaluated depends on the domain alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Generic, TypeVar
from typing import Any as Anything

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

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


def holds(
    predicate: Predicate, domain: Domain, codes: Callable[[str], NDArray[np.integer[Anything]]]
) -> NDArray[np.bool_]:
    """Where a condition is true.

    Args:
        predicate: what is asked.
        domain: the domain of the codes.
        codes: the codes of an attribute; arrays of different attributes are broadcast against each other.

    Returns:
        Of the shape to which the arrays that it looks at are broadcast: none where the condition looks at no code.
    """

    def true(part: Among) -> NDArray[np.bool_]:
        table = np.zeros(domain[part.attribute].size, dtype=np.bool_)
        table[list(part.codes)] = True
        return table.take(codes(part.attribute))

    return predicate.fold(
        Fold(
            among=true,
            every=lambda parts: reduce(np.logical_and, parts, np.array(True)),
            some=lambda parts: reduce(np.logical_or, parts, np.array(False)),
            negated=np.logical_not,
        )
    )


def holds_at_cells(predicate: Predicate, names: Sequence[str], domain: Domain) -> NDArray[np.bool_]:
    """At which cells of a marginal over ``names`` a condition on them is true.

    Returns:
        One axis an attribute, of length 1 where the condition does not look at it.
    """

    def codes(name: str) -> NDArray[np.intp]:
        return np.arange(domain[name].size).reshape([-1 if each == name else 1 for each in names])

    found: NDArray[np.bool_] = np.ones((1,) * len(names), dtype=np.bool_) & holds(predicate, domain, codes)
    return found
