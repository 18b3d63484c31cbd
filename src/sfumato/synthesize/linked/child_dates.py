"""Dates and order of children: the first date, and the gaps to later ones, within the days that the schema declares.

The order of children is a rule on the cells of a child and of the child before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor

Codes = NDArray[np.int64]

DAY = " date"
"""Name suffix of the code of a date.  The attributes of later children have gaps instead of dates."""

_CELLS_LEFT = " room"
_ROUNDS = 3  # of weights in order
_MOST_CORRECTED = 10.0  # largest factor of a weight in a round

STEADY = 2.0
"""Rows added to both counts before their comparison."""


def first_dates(child: ChildTable, cells: Codes, random: np.random.Generator) -> Codes:
    """Draw codes of dates evenly within the cells of a first date; missing and other dates are not changed."""
    assert child.order is not None
    declared = child.attribute(child.order).declared
    starts = np.append(child.first_dates, declared)
    inside = np.minimum(cells, len(starts) - 2)
    drawn = random.integers(starts[inside], starts[inside + 1])
    dates: Codes = np.where(cells < len(starts) - 1, drawn, cells - (len(starts) - 1) + declared)
    return dates


def dates_after(
    linked: LinkedTables, child: ChildTable, cells: Codes, days: Codes, random: np.random.Generator
) -> Codes:
    """Draw codes of first dates evenly within the cells of their distance from the dates of the parent rows.

    A date that is not declared moves to the nearest declared day.  If the parent has no date, any day is drawn.
    """
    parent, periods = linked.parent_of(child), linked.periods_between(child)
    assert parent is not None
    assert periods is not None
    declared, starts = child.attribute(child.order or "").declared, np.array(linked.distances(child))
    inside = np.minimum(cells, len(starts) - 1)
    ends = np.append(starts[1:], periods + declared)
    low, high = starts[inside] + days - periods, ends[inside] - 1 + days - periods
    low, high = np.clip(low, 0, declared - 1), np.clip(high, 0, declared - 1)
    drawn = random.integers(low, high, endpoint=True)
    missing = child.attribute(child.order or "").size - declared
    absent = (cells >= len(starts)) & (cells < len(starts) + missing)
    free = (cells >= len(starts) + missing) | (days >= parent.attribute(parent.order or "").declared)
    drawn = np.where(free, random.integers(0, declared, size=len(cells)), drawn)
    dates: Codes = np.where(absent, cells - len(starts) + declared, drawn)
    return dates


def first_date_cells(linked: LinkedTables, child: ChildTable, codes: Codes, days: Codes | None) -> Codes:
    """Return the cells of first dates, by their distance from the dates of the parent rows if these are counted."""
    parent, periods, declared = (
        linked.parent_of(child),
        linked.periods_between(child),
        child.attribute(child.order or "").declared,
    )
    cells, further = linked.first_cells(child)
    if parent is None or periods is None or days is None:
        date_cells = np.searchsorted(np.array(child.first_dates), codes, side="right") - 1
    else:
        date_cells = np.searchsorted(np.array(linked.distances(child)), codes - days + periods, side="right") - 1
        undated = days >= parent.attribute(parent.order or "").declared
        date_cells = np.where(undated, cells + further - 1, date_cells)
    inside: Codes = np.where(codes >= declared, codes - declared + cells, date_cells)
    return inside


class Dates:
    """The dates of the children drawn last, which determine the next dates.

    A gap is possible if it leads to a declared day.  A gap of zero is always possible.
    """

    def __init__(self, child: ChildTable, first: Codes) -> None:
        assert child.order is not None
        self.days = first.copy()
        self.this = child.named("this", child.order)
        self._previous = child.named("previous", child.order)
        self._declared = child.attribute(child.order).declared
        self._starts = np.array(child.gaps)
        self._undated = child.undated
        gaps = len(child.gaps)
        self._before = np.where(first < self._declared, gaps + child.undated, gaps)
        cells_left = np.zeros((gaps + 1, gaps + child.undated))
        for many in range(gaps + 1):
            cells_left[many, many:gaps] = -np.inf
        self.factors = [Factor((_CELLS_LEFT, self.this), cells_left)]
        self.sizes = {_CELLS_LEFT: gaps + 1}

    def known(self, rows: Codes) -> dict[str, Codes]:
        """Return the codes that the next gaps depend on: the previous gap, and the number of possible cells of gaps."""
        left = np.maximum(self._declared - 1 - self.days[rows], 0)
        cells_left = np.searchsorted(self._starts, left, side="right")
        missing = self.days[rows] >= self._declared
        return {self._previous: self._before[rows], _CELLS_LEFT: np.where(missing, len(self._starts), cells_left)}

    def move_on(self, rows: Codes, gaps: Codes, random: np.random.Generator) -> None:
        """Move the dates of some units by drawn gaps, to a day within the cell of the gap."""
        dated = (gaps < len(self._starts)) & (self.days[rows] < self._declared)
        inside = np.where(dated, gaps, 0)
        left = np.maximum(self._declared - 1 - self.days[rows], 0)
        ends = np.append(self._starts[1:], self._declared)
        low = np.minimum(self._starts[inside], left)
        high = np.maximum(np.minimum(ends[inside] - 1, left), low)
        moved = self.days[rows] + random.integers(low, high, endpoint=True)
        undated = np.where(self.days[rows] >= self._declared, self.days[rows], self._declared)
        self.days[rows] = np.where(dated, moved, undated)
        self._before[rows] = gaps


def ranks(child: ChildTable) -> NDArray[np.int64] | None:
    """Return the rank of each code of the ordering attribute.  Ranks never fall from child to child.

    The result is None if the children are unordered or ordered by dates.  Missing and other values come last, as in the
    engines.
    """
    if child.order is None or child.dated:
        return None
    attribute = child.attribute(child.order)
    codes = np.arange(attribute.size)
    declared = codes < attribute.declared
    turned = -codes if child.falling else codes
    order = np.lexsort((turned, ~declared))
    rank_of = np.empty(len(codes), dtype=np.int64)
    rank_of[order] = codes
    return rank_of


def out_of_order_groups(rank: NDArray[np.int64], coarsening: Coarsening) -> NDArray[np.bool_]:
    """Mark pairs of groups, of the previous child and of a child, without any codes in order."""
    least = np.full(coarsening.size, len(rank))
    most = np.full(coarsening.size, -1)
    np.minimum.at(least, coarsening.groups, rank)
    np.maximum.at(most, coarsening.groups, rank)
    out_of_order: NDArray[np.bool_] = most[None, :] < least[:, None]
    return out_of_order


def weights_in_order(
    rank: NDArray[np.int64],
    coarsening: Coarsening,
    slots: Sequence[tuple[Codes, Codes, NDArray[np.float64]]],
    first: Codes,
    random: np.random.Generator,
) -> Coarsening:
    """Return the groups with weights under which codes in order have the shares of their groups.

    A code cannot be before that of the previous child.  So the shares alone would draw late codes of a group too often.

    Args:
        rank: the rank of each code.
        coarsening: the groups of codes.
        slots: for each slot the first rows, the groups of their children, and the weights of these.
        first: the code of each first child.
        random: generator of codes.
    """
    shares, weighted = coarsening.shares(), coarsening
    for _ in range(_ROUNDS):
        previous, counts = first.copy(), np.zeros(len(shares))
        for rows, groups, weights in slots:
            previous[rows] = ordered_codes(rank, weighted, groups, previous[rows], random)
            counts += np.bincount(previous[rows], weights=weights, minlength=len(shares))
        expected = shares * coarsening.merge(counts)[coarsening.groups]
        ratios = np.clip((expected + STEADY) / (counts + STEADY), 1 / _MOST_CORRECTED, _MOST_CORRECTED)
        weighted = Coarsening(coarsening.groups, weighted.shares() * ratios)
    return weighted


def ordered_codes(
    rank: NDArray[np.int64],
    coarsening: Coarsening,
    groups: NDArray[np.integer],
    before: NDArray[np.integer],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw codes of children in given groups, in order after the code of the previous child.

    Codes follow the weights of the group among its codes in order.  Without such a code, the child repeats the previous
    code.
    """
    codes = np.argsort(rank, kind="stable")  # by rank
    weights = np.zeros((coarsening.size, len(rank)))
    weights[coarsening.groups[codes], np.arange(len(rank))] = coarsening.shares()[codes]
    upto = np.concatenate([np.zeros((coarsening.size, 1)), np.cumsum(weights, axis=1)], axis=1)
    first = upto[groups, rank[before]]
    left = upto[groups, -1] - first
    drawn = first + random.random(len(groups)) * left
    place = (upto[groups, 1:] <= drawn[:, None]).sum(axis=1)
    later_codes = codes[np.minimum(place, len(rank) - 1)]
    in_order: NDArray[np.int64] = np.where(left > 0, later_codes, before).astype(np.int64)
    return in_order
