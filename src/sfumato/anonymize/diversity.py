"""Criteria on how many sensitive values a class has: l-diversity and (alpha, k)-anonymity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.anonymize.classes import Classes
from sfumato.anonymize.criteria import Mask, at_least
from sfumato.errors import InputError

ATTACKER = "finds a person's class and reads off their sensitive value"
ROUNDING = 1e-12  # sums of logarithms and quotients carry this much rounding, in either direction


@dataclass(frozen=True)
class DistinctDiversity:
    """Every class has at least l different values of the sensitive attribute."""

    l: int  # noqa: E741 - the field's name
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = True
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least("l", self.l, 1)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        values = np.count_nonzero(classes.sensitive[self.sensitive], axis=1)
        return classes.or_empty(values >= self.l)

    def __str__(self) -> str:
        return f"distinct {self.l}-diversity of {self.sensitive}"


@dataclass(frozen=True)
class EntropyDiversity:
    """The entropy of the sensitive attribute in a class is at least log l (Machanavajjhala et al. 2007).

    Entropy is concave, so two classes that hold merge into one that holds; a class that fails may pull a
    class that holds below the bound.
    """

    l: float  # noqa: E741 - the field's name
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least("l", self.l, 1)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        histogram = classes.sensitive[self.sensitive]
        logs = np.log(np.maximum(histogram, 1))
        totals = np.maximum(histogram.sum(axis=1), 1)
        entropy = np.log(totals) - (histogram * logs).sum(axis=1) / totals
        return classes.or_empty(entropy >= math.log(self.l) - ROUNDING)

    def __str__(self) -> str:
        return f"entropy {self.l:g}-diversity of {self.sensitive}"


@dataclass(frozen=True)
class RecursiveDiversity:
    """The most frequent value occurs less than c times as often as the l-th and rarer ones together.

    Recursive (c, l)-diversity (Machanavajjhala et al. 2007): r1 < c (r_l + ... + r_m), r in descending order.
    """

    c: Fraction
    l: int  # noqa: E741 - the field's name
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least("l", self.l, 1)
        if not self.c > 0:
            raise InputError("c must be positive", culprit=self.c)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        falling = -np.sort(-classes.sensitive[self.sensitive], axis=1)
        tail = falling[:, self.l - 1 :].sum(axis=1)
        exact = Fraction(self.c)
        return classes.or_empty(falling[:, 0] * exact.denominator < exact.numerator * tail)

    def __str__(self) -> str:
        return f"recursive ({float(self.c):g}, {self.l})-diversity of {self.sensitive}"


@dataclass(frozen=True)
class AlphaK:
    """At least k rows, and no sensitive value in more than a share alpha of them (Wong et al. 2006).

    ``code`` restricts the second part to one value of the sensitive attribute.
    """

    alpha: Fraction
    k: int
    sensitive: str
    code: int | None = None

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)
        if not 0 < self.alpha <= 1:
            raise InputError("alpha must lie in (0, 1]", culprit=self.alpha)

    @property
    def least_rows(self) -> int:
        """A class has at least k rows."""
        return self.k

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        histogram = classes.sensitive[self.sensitive]
        watched = histogram.max(axis=1) if self.code is None else histogram[:, self.code]
        exact = Fraction(self.alpha)
        rare = watched * exact.denominator <= exact.numerator * classes.counts
        return classes.or_empty(rare & (classes.counts >= self.k))

    def __str__(self) -> str:
        return f"({float(self.alpha):g}, {self.k})-anonymity of {self.sensitive}"
