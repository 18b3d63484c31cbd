"""When is a class safe to publish?  Criteria on the size of a class; on sensitive values: ``diversity``, ``closeness``.

A criterion looks at one class at a time.  It declares two properties that a search may prune with:

* ``monotone``: two classes that hold merge into one that holds, so a table that holds keeps holding when
  it is generalised further;
* ``monotone_with_suppression``: a class that holds keeps holding whatever is merged into it, so generalising
  further never suppresses more rows.

It is written twice: ``holds`` looks at all classes at once, in floating point, for the search; ``recounted`` looks at
one class in whole numbers, by the definition, and is asked before anything is published.  Neither calls the other, and
they share no arithmetic.

Cells for missing and unknown values never count in a class's favour: diversity has to hold with them and among the
declared values alone, and in t-closeness they are as far from any value as two values can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.classes import Classes
from sfumato.arguments import expect, whole
from sfumato.engine.port import Groups
from sfumato.errors import InputError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Tally:
    """One class, counted again: its rows, its people in the population, and the rows of each sensitive cell.

    ``table`` has the same cells over all rows that count; the first ``declared[name]`` of them are values.
    """

    rows: int
    people: int | None
    cells: Mapping[str, Sequence[int]]
    table: Mapping[str, Sequence[int]]
    declared: Mapping[str, int]


@runtime_checkable
class Criterion(Protocol):
    """What a class must satisfy, with the attacker it answers to."""

    monotone: ClassVar[bool]
    monotone_with_suppression: ClassVar[bool]
    attacker: ClassVar[str]

    @property
    def sensitive(self) -> str | None:
        """The sensitive attribute it looks at, or None."""
        ...

    @property
    def population(self) -> Groups | None:
        """The population it compares with, or None."""
        ...

    @property
    def least_rows(self) -> int:
        """No class with rows, but fewer than these, can satisfy it."""
        ...

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it."""
        ...

    def recounted(self, tally: Tally) -> bool:
        """Whether a class satisfies it, by the definition."""
        ...


@dataclass(frozen=True)
class KAnonymity:
    """Every class has at least k rows (Samarati and Sweeney 1998)."""

    k: int

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = True
    attacker: ClassVar[str] = "prosecutor: knows that a person is in the table, and their quasi-identifiers"
    sensitive: ClassVar[None] = None
    population: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole(self.k, "k is a whole number"))
        at_least("k", self.k, 1)

    @property
    def least_rows(self) -> int:
        """A class has at least k rows."""
        return self.k

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        return classes.or_empty(classes.counts >= self.k)

    def recounted(self, tally: Tally) -> bool:
        """Whether a class satisfies it; one without rows does."""
        return tally.rows == 0 or tally.rows >= self.k

    def __str__(self) -> str:
        return f"{self.k}-anonymity"


@dataclass(frozen=True, eq=False)
class KMap:
    """Every published class has at least k people in the population (Sweeney 2001)."""

    k: int
    population: Groups

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = True
    attacker: ClassVar[str] = "journalist: knows a person of the population, not whether they are in the table"
    sensitive: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole(self.k, "k is a whole number"))
        at_least("k", self.k, 1)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        assert classes.population is not None
        return classes.or_empty(classes.population >= self.k)

    def recounted(self, tally: Tally) -> bool:
        """Whether a class satisfies it; one without rows does."""
        return tally.rows == 0 or (tally.people is not None and tally.people >= self.k)

    def __str__(self) -> str:
        return f"{self.k}-map"


@dataclass(frozen=True, eq=False)
class DeltaPresence:
    """The share of a class's population that is in the table lies in ``[low, high]`` (Nergiz et al. 2007).

    A class with people but without rows fails for ``low`` above zero, and suppression cannot cure it.
    """

    low: Fraction
    high: Fraction
    population: Groups

    monotone: ClassVar[bool] = True  # the share of a merged class lies between the shares of its parts
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = "knows a person of the population and asks whether they are in the table"
    sensitive: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise InputError("delta-presence needs 0 <= low <= high <= 1", culprit=(self.low, self.high))

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it."""
        assert classes.population is not None
        share = classes.counts / np.maximum(classes.population, 1)
        inside: Mask = (share >= float(self.low)) & (share <= float(self.high))
        return inside

    def recounted(self, tally: Tally) -> bool:
        """Whether a class satisfies it; one without people has a share of zero."""
        share = Fraction(tally.rows, tally.people) if tally.people else Fraction(0)
        return Fraction(self.low) <= share <= Fraction(self.high)

    def __str__(self) -> str:
        return f"delta-presence in [{float(self.low):g}, {float(self.high):g}]"


def safe(criteria: Sequence[Criterion], classes: Classes) -> Mask:
    """Whether each class satisfies every criterion."""
    result = np.ones(len(classes), dtype=bool)
    for criterion in criteria:
        result &= criterion.holds(classes)
    return result


CRITERIA = "criteria are a list, such as [KAnonymity(10)]"
"""What a caller who handed over something else is told."""


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a parameter below its least value, or NaN.

    Raises:
        InputError: it is.
    """
    expect(value, int | float | Fraction, f"{name} is a number")
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, not {value}", culprit=value)
