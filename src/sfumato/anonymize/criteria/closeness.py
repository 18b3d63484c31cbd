"""Criteria on the distance between the sensitive values of a class and of the whole table.

The table has all rows that count: rows within the domain and within the bound of their unit, including suppressed rows.

A unit may have several values.  Delta-disclosure and beta-likeness test each value separately.  They use the share of
units that have the value in any row, which is the attacker's belief about a unit of the class.  T-closeness moves one
mass per unit, divided equally over the unit's values.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, TypeAlias

import numpy as np

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.criterion import Criterion, Mask
from sfumato.anonymize.criteria.diversity import ROUNDING
from sfumato.anonymize.criteria.tally import ClassTally
from sfumato.domain.hierarchy.levels import Reals
from sfumato.errors import InputError

Amount: TypeAlias = Fraction | int
ATTACKER = "knows the table's distribution and learns how a person's class differs from it"


class GroundDistance(StrEnum):
    """A ground distance of t-closeness."""

    EQUAL = "equal"  # any two cells are at distance 1
    ORDERED = "ordered"  # neighbors in the declared order are at distance 1 / (declared values - 1)


@dataclass(frozen=True)
class TCloseness(Criterion):
    """Earth mover's distance between a class and the table is at most t (Li, Li, Venkatasubramanian 2007).

    In the ordered distance only declared values are ordered.  A cell for missing or unknown values is at distance 1
    from every other cell.  The distance is convex, so the union of two classes that satisfy the criterion satisfies it.
    """

    t: float
    sensitive: str = field()
    distance: GroundDistance

    name: ClassVar[str] = "t-closeness"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        if not 0 <= self.t <= 1:
            raise InputError("t must lie in [0, 1]", culprit=self.t)

    def _safe_classes(self, classes: Classes) -> Mask:
        share, overall = classes.distributions(self.sensitive)
        gap = share - overall
        if self.distance is GroundDistance.EQUAL:
            moved = np.abs(gap).sum(axis=1) / 2
        else:
            moved = _moved_in_order(gap, classes.values(self.sensitive))
        return np.asarray(moved <= self.t + ROUNDING)

    def _is_safe(self, tally: ClassTally) -> bool:
        pairs, scale = _pairs(tally, self.sensitive, divided=True)
        gaps = [here - there for here, there in pairs]
        declared = tally.declared[self.sensitive]
        if self.distance is GroundDistance.EQUAL or declared == 1:
            moved = Fraction(sum(gap for gap in gaps if gap > 0))
        else:
            outside = gaps[declared:]
            apart = max(sum(gap for gap in outside if gap > 0), -sum(gap for gap in outside if gap < 0))
            moved = apart + Fraction(_least_work(gaps[:declared]), declared - 1)
        return moved <= Fraction(str(self.t)) * scale

    def __str__(self) -> str:
        return f"{self.t:g}-closeness of {self.sensitive} ({self.distance} distance)"


@dataclass(frozen=True)
class DeltaDisclosure(Criterion):
    """|log(p / q)| < delta for every value, p its share in the class and q in the table (Brickell, Shmatikov 2008).

    A class fails if it lacks a value that the table has.
    """

    delta: float
    sensitive: str = field()

    name: ClassVar[str] = "delta-disclosure"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        _positive("delta", self.delta)

    def _safe_classes(self, classes: Classes) -> Mask:
        share, overall = classes.shares(self.sensitive)
        present = overall > 0
        ratio = share[:, present] / overall[present]
        close = (ratio < math.exp(self.delta)) & (ratio > math.exp(-self.delta))
        return np.asarray(close.all(axis=1))

    def _is_safe(self, tally: ClassTally) -> bool:
        pairs = [pair for pair in _pairs(tally, self.sensitive)[0] if pair[1]]
        return all(p and abs(math.log(p) - math.log(q)) < self.delta for p, q in pairs)

    def __str__(self) -> str:
        return f"{self.delta:g}-disclosure privacy of {self.sensitive}"


@dataclass(frozen=True)
class BasicBetaLikeness(Criterion):
    """No value is more than beta times likelier than in the table, (p - q) / q <= beta (Cao and Karras 2012)."""

    beta: float
    sensitive: str = field()

    name: ClassVar[str] = "basic-beta-likeness"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        _positive("beta", self.beta)
        if math.isinf(self.beta):
            raise InputError("beta must be finite", culprit=self.beta)

    def _safe_classes(self, classes: Classes) -> Mask:
        share, overall = classes.shares(self.sensitive)
        return _gains_at_most(share, overall, np.full(len(overall), self.beta))

    def _is_safe(self, tally: ClassTally) -> bool:
        return all(p - q <= Fraction(str(self.beta)) * q for p, q in _pairs(tally, self.sensitive)[0])

    def __str__(self) -> str:
        return f"basic {self.beta:g}-likeness of {self.sensitive}"


@dataclass(frozen=True)
class EnhancedBetaLikeness(Criterion):
    """(p - q) / q <= min(beta, -log q) for every value: the limit is lower for frequent values (Cao and Karras
    2012).
    """

    beta: float
    sensitive: str = field()

    name: ClassVar[str] = "enhanced-beta-likeness"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        _positive("beta", self.beta)

    def _safe_classes(self, classes: Classes) -> Mask:
        share, overall = classes.shares(self.sensitive)
        surprise = -np.log(np.where(overall > 0, overall, 1.0))
        return _gains_at_most(share, overall, np.minimum(self.beta, surprise))

    def _is_safe(self, tally: ClassTally) -> bool:
        shares, scale = _pairs(tally, self.sensitive)
        pairs = ((p, q, math.log(scale / q) if q else 0.0) for p, q in shares)
        return all(p - q <= min(self.beta, bits) * q + ROUNDING * scale for p, q, bits in pairs)

    def __str__(self) -> str:
        return f"enhanced {self.beta:g}-likeness of {self.sensitive}"


def _moved_in_order(gap: Reals, declared: int) -> Reals:
    """Return the earth mover's distance of each class if the first ``declared`` cells are ordered.

    A cell outside the order is at distance 1 from all cells, the largest distance.  Its surplus first fills deficits
    outside the order, then declared values, so that the least mass moves along the order.  If the declared values have
    a total surplus, an amount R(i) of it leaves the order up to value i.  R rises from 0 to the surplus and costs the
    sum of |G(i) - R(i)|, where G is the cumulated gap.  The best R takes only the values 0, the surplus, and values of
    G.
    """
    inside, outside = gap[:, :declared], gap[:, declared:]
    apart = np.maximum(np.maximum(outside, 0).sum(axis=1), np.maximum(-outside, 0).sum(axis=1))
    if declared == 1:
        return np.asarray(apart)
    surplus = inside.sum(axis=1, keepdims=True)
    turned = np.where(surplus < 0, -1.0, 1.0)
    carried, surplus = np.cumsum(inside * turned, axis=1)[:, :-1], np.abs(surplus)
    if outside.shape[1] == 0 or not outside.any():
        steps: Reals = np.abs(carried).sum(axis=1)
    else:
        levels = np.sort(np.hstack([np.zeros_like(surplus), np.clip(carried, 0, surplus), surplus]), axis=1)
        costs = np.zeros_like(levels)
        for column in carried.T:
            costs = np.minimum.accumulate(costs, axis=1) + np.abs(column[:, None] - levels)
        steps = costs.min(axis=1)
    return np.asarray(apart + steps / (declared - 1))


def _least_work(gaps: Sequence[Amount]) -> Amount:
    """Return the least steps that balance gaps along an order, if their surplus may leave at any value.

    The amount that has left rises from zero to the surplus.  The best such sequence is an isotonic regression of the
    cumulated gaps, computed with a heap.
    """
    surplus = sum(gaps)
    if surplus < 0:
        gaps, surplus = [-gap for gap in gaps], -surplus
    steps, carried, heap = Fraction(0), Fraction(0), list[Amount]()
    for gap in gaps[:-1]:
        carried += gap
        within = min(max(carried, Fraction(0)), surplus)
        steps += abs(carried - within)
        heapq.heappush(heap, -within)
        if -heap[0] > within:
            steps += -heapq.heapreplace(heap, -within) - within
    return steps


def _pairs(tally: ClassTally, sensitive: str, *, divided: bool = False) -> tuple[list[tuple[Amount, Amount]], int]:
    """Return each cell's share in the class and in the table, multiplied by the product of sizes, and the product.

    A unit of several values counts for each value, or is ``divided`` over them.
    """
    held, table = tally.values[sensitive], tally.table[sensitive]
    both = (held.divided, table.divided) if divided else (held.having, table.having)
    size, everybody = held.total, table.total
    return [(here * everybody, there * size) for here, there in zip(*both, strict=True)], size * everybody


def _gains_at_most(share: Reals, overall: Reals, limit: Reals) -> Mask:
    """Return whether (share - overall) / overall <= limit for each value."""
    within = share - overall <= limit * overall + ROUNDING
    return np.asarray(within.all(axis=1))


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be positive, not {value}", culprit=value)
