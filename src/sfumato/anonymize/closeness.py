"""Criteria on how far a class's sensitive values are from the whole table's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.classes import Classes
from sfumato.anonymize.criteria import Mask
from sfumato.anonymize.diversity import ROUNDING
from sfumato.errors import InputError

ATTACKER = "knows the table's distribution and learns how a person's class differs from it"
Shares = NDArray[np.float64]


class Distance(StrEnum):
    """Ground distance of t-closeness."""

    EQUAL = "equal"  # any two values are at distance 1
    ORDERED = "ordered"  # values are in order, neighbours are at distance 1 / (values - 1)


@dataclass(frozen=True)
class TCloseness:
    """Earth mover's distance between a class and the table is at most t (Li, Li, Venkatasubramanian 2007).

    The distance is convex, so two classes that hold merge into one that holds.
    """

    t: float
    sensitive: str
    distance: Distance

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.t <= 1:
            raise InputError("t must lie in [0, 1]", culprit=self.t)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        share, overall = _shares(classes, self.sensitive)
        gap = share - overall
        if self.distance is Distance.EQUAL:
            moved = np.abs(gap).sum(axis=1) / 2
        else:
            moved = np.abs(np.cumsum(gap, axis=1)).sum(axis=1) / max(gap.shape[1] - 1, 1)
        return classes.or_empty(moved <= self.t + ROUNDING)

    def __str__(self) -> str:
        return f"{self.t:g}-closeness of {self.sensitive} ({self.distance} distance)"


@dataclass(frozen=True)
class DeltaDisclosure:
    """|log(p / q)| < delta for every value, p its share in the class and q in the table (Brickell, Shmatikov 2008).

    A value of the table that a class lacks makes the class fail.
    """

    delta: float
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _positive("delta", self.delta)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        share, overall = _shares(classes, self.sensitive)
        present = overall > 0
        ratio = share[:, present] / overall[present]
        close = (ratio < math.exp(self.delta)) & (ratio > math.exp(-self.delta))
        return classes.or_empty(np.asarray(close.all(axis=1)))

    def __str__(self) -> str:
        return f"{self.delta:g}-disclosure privacy of {self.sensitive}"


@dataclass(frozen=True)
class BasicBetaLikeness:
    """No value is more than beta times likelier, (p - q) / q <= beta (Cao and Karras 2012)."""

    beta: float
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _positive("beta", self.beta)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        share, overall = _shares(classes, self.sensitive)
        return classes.or_empty(_gains_at_most(share, overall, np.full(len(overall), self.beta)))

    def __str__(self) -> str:
        return f"basic {self.beta:g}-likeness of {self.sensitive}"


@dataclass(frozen=True)
class EnhancedBetaLikeness:
    """(p - q) / q <= min(beta, -log q) for every value: frequent values may gain less (Cao and Karras 2012)."""

    beta: float
    sensitive: str

    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    attacker: ClassVar[str] = ATTACKER
    population: ClassVar[None] = None
    least_rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _positive("beta", self.beta)

    def holds(self, classes: Classes) -> Mask:
        """Whether each class satisfies it; a class without rows does."""
        share, overall = _shares(classes, self.sensitive)
        surprise = -np.log(np.where(overall > 0, overall, 1.0))
        return classes.or_empty(_gains_at_most(share, overall, np.minimum(self.beta, surprise)))

    def __str__(self) -> str:
        return f"enhanced {self.beta:g}-likeness of {self.sensitive}"


def _shares(classes: Classes, sensitive: str) -> tuple[Shares, Shares]:
    """Shares of the values in each class, shape (classes, values), and in the table, shape (values,)."""
    histogram, overall = classes.sensitive[sensitive], classes.overall[sensitive]
    return histogram / np.maximum(histogram.sum(axis=1, keepdims=True), 1), overall / max(int(overall.sum()), 1)


def _gains_at_most(share: Shares, overall: Shares, limit: Shares) -> Mask:
    """Whether (share - overall) / overall <= limit for each value."""
    within = share - overall <= limit * overall + ROUNDING
    return np.asarray(within.all(axis=1))


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be positive, not {value}", culprit=value)
