"""Dates of children: the first one, and the gaps to the next, all within the days that the schema declares.

The order of children is a rule on the cells of a child and of the one before it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor

Codes = NDArray[np.int64]

DAY = " date"
"""What the code of a date is called beside the attributes of a tail, which have gaps."""

_ROOM = " room"


def first_dates(child: ChildTable, cells: Codes, random: np.random.Generator) -> Codes:
    """Codes of dates, drawn evenly within the cells of a first date; missing and other ones stay what they are."""
    assert child.order is not None
    declared = child.attribute(child.order).declared
    starts = np.append(child.first_dates, declared)
    inside = np.minimum(cells, len(starts) - 2)
    drawn = random.integers(starts[inside], starts[inside + 1])
    dates: Codes = np.where(cells < len(starts) - 1, drawn, cells - (len(starts) - 1) + declared)
    return dates


def dates_after(
    related: LinkedTables, child: ChildTable, cells: Codes, days: Codes, random: np.random.Generator
) -> Codes:
    """Codes of first dates, drawn evenly within the cells of their distance from the dates of the rows above.

    Those that would not be declared are moved to the nearest day that is; of rows without a date any day is drawn.
    """
    above, apart = related.above(child), related.apart(child)
    assert above is not None
    assert apart is not None
    declared, starts = child.attribute(child.order or "").declared, np.array(related.distances(child))
    inside = np.minimum(cells, len(starts) - 1)
    ends = np.append(starts[1:], apart + declared)
    low, high = starts[inside] + days - apart, ends[inside] - 1 + days - apart
    low, high = np.clip(low, 0, declared - 1), np.clip(high, 0, declared - 1)
    drawn = random.integers(low, high, endpoint=True)
    missing = child.attribute(child.order or "").size - declared
    absent = (cells >= len(starts)) & (cells < len(starts) + missing)
    free = (cells >= len(starts) + missing) | (days >= above.attribute(above.order or "").declared)
    drawn = np.where(free, random.integers(0, declared, size=len(cells)), drawn)
    dates: Codes = np.where(absent, cells - len(starts) + declared, drawn)
    return dates


def first_date_cells(related: LinkedTables, child: ChildTable, codes: Codes, days: Codes | None) -> Codes:
    """The cells in a head of first dates, given the dates of the rows above where it counts distances from these."""
    above, apart, declared = related.above(child), related.apart(child), child.attribute(child.order or "").declared
    cells, further = related.first_cells(child)
    if above is None or apart is None or days is None:
        date_cells = np.searchsorted(np.array(child.first_dates), codes, side="right") - 1
    else:
        date_cells = np.searchsorted(np.array(related.distances(child)), codes - days + apart, side="right") - 1
        undated = days >= above.attribute(above.order or "").declared
        date_cells = np.where(undated, cells + further - 1, date_cells)
    inside: Codes = np.where(codes >= declared, codes - declared + cells, date_cells)
    return inside


class Dates:
    """The dates of the children drawn last, and what is left for the next ones.

    A gap is possible where it leads to a day that is declared; whatever the date, the same day is.
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
        self.factors = [Factor((_ROOM, self.this), cells_left)]
        self.sizes = {_ROOM: gaps + 1}

    def evidence(self, rows: Codes) -> dict[str, Codes]:
        """What the next gap of some units is drawn by: the gap before, and how many cells of gaps there is room for."""
        left = np.maximum(self._declared - 1 - self.days[rows], 0)
        cells_left = np.searchsorted(self._starts, left, side="right")
        missing = self.days[rows] >= self._declared
        return {self._previous: self._before[rows], _ROOM: np.where(missing, len(self._starts), cells_left)}

    def go_on(self, rows: Codes, gaps: Codes, random: np.random.Generator) -> None:
        """Move the dates of some units on by the gaps that were drawn, to a day within the cell of the gap."""
        dated = (gaps < len(self._starts)) & (self.days[rows] < self._declared)
        inside = np.where(dated, gaps, 0)
        left = np.maximum(self._declared - 1 - self.days[rows], 0)
        ends = np.append(self._starts[1:], self._declared)
        low = np.minimum(self._starts[inside], left)
        high = np.maximum(np.minimum(ends[inside] - 1, left), low)
        moved = self.days[rows] + random.integers(low, high, endpoint=True)
        kept = np.where(self.days[rows] >= self._declared, self.days[rows], self._declared)
        self.days[rows] = np.where(dated, moved, kept)
        self._before[rows] = gaps


def ranks(child: ChildTable) -> NDArray[np.int64] | None:
    """The rank of each code of the attribute that orders the children; a child's is never less than the one before.

    None where they have no order, or one by dates, of which gaps are drawn.  Missing and other values come last, as
    engines order them.
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


def impossible(rank: NDArray[np.int64], coarsening: Coarsening) -> NDArray[np.bool_]:
    """Pairs of groups, of the child before and of a child, none of whose codes are in order."""
    least = np.full(coarsening.size, len(rank))
    most = np.full(coarsening.size, -1)
    np.minimum.at(least, coarsening.groups, rank)
    np.maximum.at(most, coarsening.groups, rank)
    barred: NDArray[np.bool_] = most[None, :] < least[:, None]
    return barred


def ordered_codes(
    rank: NDArray[np.int64],
    coarsening: Coarsening,
    groups: NDArray[np.integer],
    before: NDArray[np.integer],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Codes of children in given groups, none of them before the code of the child before.

    They are shared out as the group is, over what the order leaves of it; where it leaves nothing of the group, as the
    child before.
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
    kept: NDArray[np.int64] = np.where(left > 0, later_codes, before).astype(np.int64)
    return kept
