"""Growth of classes in many neighborhoods at once, for large tables.  One array step serves hundreds of neighborhoods.

A neighborhood is a small separate problem: some tuples have rows in need of a class, and others may lend rows from a
home.  Its classes grow one after the other, each from a random tuple until it has k rows.  Each step adds the tuple
with the least loss per row, and all rows inside the box.  Remaining rows join the class that they cost least.  Costs in
single precision only guide these choices.  The caller computes the loss of an accepted result in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.clustering.space import LARGEST_TABLE, Intervals, Space
from sfumato.domain.hierarchy.levels import Integers, Reals
from sfumato.errors import SizeError

Singles = NDArray[np.float32]
Ends = Sequence[NDArray[Any]]  # one array per attribute: positions, or ranks if costs come from a table
RowCounts = NDArray[np.integer]  # of a shorter type than other integers

ABSENT = 1e9  # beyond every position


class JoinCosts:
    """The cost of a row in the smallest box around two boxes, in single precision.

    An attribute with plain intervals stores positions, and its cost is their difference.  Other attributes store ranks
    and a table of pairs.  With too many values for a table, a missing value counts as the end of the range, so its cost
    next to large values is too low.  ``values[a]`` has the positions or ranks of every tuple.
    """

    def __init__(self, space: Space) -> None:
        self.values: list[NDArray[Any]] = []
        self._tables: list[tuple[Singles, int] | None] = []
        for attribute in range(space.points.shape[1]):
            ranks = np.arange(space.sizes[attribute])
            positions = space.pairs(attribute, ranks[:1], ranks)
            if len(ranks) > LARGEST_TABLE:
                if not isinstance(space.scales[attribute], Intervals):
                    raise SizeError(
                        f"k-member takes at most {LARGEST_TABLE:,} values of a hierarchy, not {len(ranks):,}"
                    )
                plain = True
            else:
                pairs = space.pairs(attribute, ranks[:, None], ranks)
                distances = np.triu(positions - positions[:, None])
                plain = np.allclose(np.triu(pairs), distances, rtol=0.0, atol=1e-9)
            if plain:
                self._tables.append(None)
                self.values.append(positions.astype(np.float32)[space.points[:, attribute]])
            else:
                self._tables.append((pairs.astype(np.float32).ravel(), len(ranks)))
                self.values.append(space.points[:, attribute].astype(np.int64))

    def between(self, lows: Ends, highs: Ends) -> Singles:
        """Return the cost of boxes from their ends."""
        total: Singles | None = None
        for table, low, high in zip(self._tables, lows, highs, strict=True):
            cost = (high - low) if table is None else table[0].take(low * table[1] + high)
            total = cost if total is None else np.asarray(total + cost)
        assert total is not None
        return total

    def joined(self, lows: Ends, highs: Ends, more_lows: Ends, more_highs: Ends) -> Singles:
        """Return the cost of the smallest box around each two boxes; shapes broadcast."""
        total: Singles | None = None
        for table, *ends in zip(self._tables, lows, highs, more_lows, more_highs, strict=True):
            least, most = np.minimum(ends[0], ends[2]), np.maximum(ends[1], ends[3])
            cost: Singles = (
                np.subtract(most, least, out=most) if table is None else table[0].take(least * table[1] + most)
            )
            total = cost if total is None else np.add(total, cost, out=total)
        assert total is not None
        return total

    def absent(self) -> list[tuple[float, float]]:
        """Return, per attribute, the ends of a box that changes no box when joined to it."""
        return [(ABSENT, -ABSENT) if table is None else (table[1] - 1, 0) for table in self._tables]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """The tuples of neighborhoods, their rows in ``need`` of a class and to ``spare``: ``(places, items)`` each."""

    tuples: Integers
    need: Integers
    spare: Integers


@dataclass(frozen=True, eq=False)
class Grown:
    """The result: class c of neighborhood p has ``rows[c, p, i]`` rows of item i; ``loss`` is infinite if growth
    failed.
    """

    rows: Integers
    loss: NDArray[np.float64]


IDLE, GROWING, JOINING, DONE = range(4)
MOST_NOISE = 0.2  # the choice of the next tuple is perturbed by up to this factor
SPLITTING = 0.6  # share of neighborhoods that may divide the rows of a tuple among classes
INSIDE = 1e-6  # tolerance for rounding of a cost in single precision


LINES = ("place", "state", "need", "spare", "needy", "lends", "lost", "most")
GROWTH = ("taken", "size", "served", "seed", "cost", "noise", "splits")


class Regrowth:
    """The state of growing neighborhoods.  Finished ones are removed from the arrays.

    A neighborhood fails as soon as its classes lose more than ``most``.
    """

    def __init__(
        self,
        costs: JoinCosts,
        around: Neighbourhoods,
        *,
        k: int,
        rng: np.random.Generator,
        most: Reals | float = math.inf,
    ) -> None:
        self.costs, self.k, self.rng = costs, k, rng
        places, _ = around.tuples.shape
        slots = int(around.need.sum(axis=1).max(initial=0)) // k + 4
        self.rows = np.zeros((slots, *around.tuples.shape), dtype=np.int32)
        self.failed = np.zeros(places, dtype=bool)
        self.bounds = np.broadcast_to(np.asarray(most, dtype=np.float64), places)
        self.classes = np.zeros(places, dtype=np.int64)  # classes of each neighborhood
        self.sizes = np.zeros((places, slots), dtype=np.int64)
        self.each = np.zeros((places, slots), dtype=np.float32)  # cost of one row
        self.values = [value[around.tuples] for value in costs.values]
        self.lows = [np.zeros((places, slots), dtype=value.dtype) for value in self.values]
        self.highs = [np.zeros((places, slots), dtype=value.dtype) for value in self.values]
        # the following arrays have one line per unfinished neighborhood
        self.place = np.arange(places)
        self.state = np.full(places, IDLE, dtype=np.int8)
        self.need, self.spare = around.need.astype(np.int32), around.spare.astype(np.int32)
        self.needy = self.need > 0
        self.lends: NDArray[np.bool_] = np.any(self.spare > 0, axis=1)
        self.lost, self.most = np.zeros(places), self.bounds  # loss of the existing classes, and the limit
        self.taken = np.zeros_like(self.need)
        self.low = [np.zeros(places, dtype=value.dtype) for value in self.values]
        self.high = [np.zeros(places, dtype=value.dtype) for value in self.values]
        self.size, self.served, self.seed = (np.zeros(places, dtype=np.int64) for _ in range(3))
        self.cost = np.zeros(places, dtype=np.float32)
        self.noise: Singles = np.multiply(MOST_NOISE, rng.random(places, dtype=np.float32))
        self.splits: NDArray[np.bool_] = np.less(rng.random(places), SPLITTING)

    def run(self) -> Grown:
        """Grow until every row has a class or a neighborhood fails."""
        while True:
            self._start_classes((self.state == IDLE).nonzero()[0])
            self._join_one((self.state == JOINING).nonzero()[0])
            self._drop_done()
            if not len(self.state):
                break
            if (self.state == GROWING).any():
                self._step()
        there = np.arange(self.rows.shape[0]) < self.classes[:, None]
        loss = (self.sizes * self.each.astype(np.float64) * there).sum(axis=1)
        return Grown(self.rows, np.where(self.failed | (loss > self.bounds), np.inf, loss))

    def _start_classes(self, lines: Integers) -> None:
        """Start the next class of each line around a tuple in need.  If fewer than k rows remain, they join other
        classes.
        """
        if not len(lines):
            return
        need = self.need[lines]
        left = need.sum(axis=1)
        full = self.classes[self.place[lines]] >= self.rows.shape[0] - 1
        short = (left + self.spare[lines].sum(axis=1) < self.k) | full
        self.state[lines] = np.where(left == 0, DONE, np.where(short, JOINING, GROWING))
        starts = (left > 0) & ~short
        lines, need = lines[starts], need[starts]
        seed = (self.rng.random(need.shape, dtype=np.float32) * (need > 0)).argmax(axis=1)
        rows = need[np.arange(len(lines)), seed]
        self.seed[lines] = seed
        self.size[lines] = self.served[lines] = rows
        self.cost[lines] = 0.0
        self.taken[lines] = 0
        self.taken[lines, seed] = rows
        self.need[lines, seed] = 0
        for low, high, value in zip(self.low, self.high, self.values, strict=True):
            low[lines] = high[lines] = value[lines, seed]

    def _join_one(self, lines: Integers) -> None:
        """Add one tuple of each line to an existing class."""
        if not len(lines):
            return
        item = (self.need[lines] > 0).argmax(axis=1)
        added, slot, cost = self._best_join(lines, item, self.need[lines, item])
        alone = ~np.isfinite(added)
        self._fail(lines[alone])
        lines, item, slot, cost = lines[~alone], item[~alone], slot[~alone], cost[~alone]
        self._join(lines, item, slot, cost, self.need[lines, item])
        self.need[lines, item] = 0
        self.state[lines[~self.need[lines].any(axis=1)]] = DONE
        self.lost[lines] += added[~alone]
        self._fail(lines[self.lost[lines] > self.most[lines]])

    def _best_join(self, lines: Integers, item: Integers, rows: RowCounts) -> tuple[Singles, Integers, Singles]:
        """Return the least added loss of one item in a class of its line, the class, and the cost of a row in it."""
        place, each = self.place[lines], np.arange(len(lines))
        there = max(int(self.classes[place].max(initial=0)), 1)
        point = [value[lines, item][:, None] for value in self.values]
        lows, highs = [low[place, :there] for low in self.lows], [high[place, :there] for high in self.highs]
        costs = self.costs.joined(lows, highs, point, point)
        sizes = self.sizes[place, :there]
        added = (sizes + rows[:, None]) * costs - sizes * self.each[place, :there]
        added[np.arange(there) >= self.classes[place][:, None]] = np.inf
        slot = added.argmin(axis=1)
        return added[each, slot], slot, costs[each, slot]

    def _join(self, lines: Integers, item: Integers, slot: Integers, cost: Singles, rows: RowCounts) -> None:
        place = self.place[lines]
        for low, high, value in zip(self.lows, self.highs, self.values, strict=True):
            here = value[lines, item]
            low[place, slot] = np.minimum(low[place, slot], here)
            high[place, slot] = np.maximum(high[place, slot], here)
        self.sizes[place, slot] += rows
        self.rows[slot, place, item] += rows
        self.each[place, slot] = cost

    def _drop_done(self) -> None:
        alive = self.state != DONE
        if np.count_nonzero(alive) > 0.7 * len(alive):
            return
        for name in (*LINES, *GROWTH):
            setattr(self, name, getattr(self, name)[alive])
        self.values = [value[alive] for value in self.values]
        self.low, self.high = [low[alive] for low in self.low], [high[alive] for high in self.high]

    def _step(self) -> None:
        """Add the rows inside its box to every growing class, then the tuple that adds the least loss, or close the
        class.
        """
        growing: NDArray[np.bool_] = self.state == GROWING
        ends = [low[:, None] for low in self.low], [high[:, None] for high in self.high]
        costs = self.costs.joined(*ends, self.values, self.values)
        self._take_inside(growing, (costs <= self.cost[:, None] + INSIDE) & growing[:, None])
        closed = growing & (self.size >= self.k)
        lines = (growing & ~closed).nonzero()[0]
        if len(lines):
            self._extend(lines, costs[lines])
        lines = closed.nonzero()[0]
        if len(lines):
            self._close(lines)

    def _take_inside(self, growing: NDArray[np.bool_], inside: NDArray[np.bool_]) -> None:
        """Add the rows in need (only up to k if the line splits tuples), then lent rows up to k."""
        taken = self.need * inside
        rows = taken.sum(axis=1)
        missing = np.maximum(self.k - self.size, 0)
        excess = (self.splits & (rows > missing)).nonzero()[0]
        if len(excess):
            taken[excess] = _first(taken[excess], missing[excess])
            rows[excess] = missing[excess]
        self.need -= taken
        self.taken += taken
        self.size += rows
        self.served += rows
        lines = (growing & self.lends & (self.size < self.k)).nonzero()[0]
        if len(lines):
            lent = _first(self.spare[lines] * inside[lines], self.k - self.size[lines])
            self.spare[lines] -= lent
            self.taken[lines] += lent
            self.size[lines] += lent.sum(axis=1)

    def _extend(self, lines: Integers, costs: Singles) -> None:
        """Add the item with the least loss per row.  A class without such an item fails."""
        missing = (self.k - self.size[lines]).astype(np.int32)[:, None]
        needed = self.need[lines]
        needed = np.where(self.splits[lines][:, None], np.minimum(needed, missing), needed)
        rows = needed
        if self.lends[lines].any():
            rows = needed + np.minimum(self.spare[lines], np.maximum(missing - needed, 0))
        size, brought = self.size[lines].astype(np.float32)[:, None], rows.astype(np.float32)
        luck = self.rng.random(costs.shape, dtype=np.float32)
        luck *= self.noise[lines][:, None]
        luck += 1
        score = size + brought
        score *= costs
        score -= size * self.cost[lines][:, None]
        score *= luck
        with np.errstate(divide="ignore", invalid="ignore"):
            score /= brought  # without rows the score is infinite or NaN
        score[rows == 0] = np.inf
        best, each = score.argmin(axis=1), np.arange(len(lines))
        taken, own = rows[each, best], needed[each, best]
        self._fail(lines[taken == 0])
        self.need[lines, best] -= own
        self.spare[lines, best] -= taken - own
        self.taken[lines, best] += taken
        self.size[lines] += taken
        self.served[lines] += own
        for low, high, value in zip(self.low, self.high, self.values, strict=True):
            low[lines] = np.minimum(low[lines], value[lines, best])
            high[lines] = np.maximum(high[lines], value[lines, best])
        self.cost[lines] = costs[each, best]

    def _close(self, lines: Integers) -> None:
        """Accept these classes, or return their rows if the first tuple costs less in an existing class."""
        seed = self.seed[lines]
        rows = self.taken[lines, seed]
        added, slot, cost = self._best_join(lines, seed, rows)
        cheaper = added / rows < self.size[lines] * self.cost[lines] / self.served[lines]
        joins, first = lines[cheaper], seed[cheaper]
        self.lost[joins] += added[cheaper]
        back = self.taken[joins]
        back[np.arange(len(joins)), first] = 0
        self.need[joins] += back * self.needy[joins]
        self.spare[joins] += back * ~self.needy[joins]
        self._join(joins, first, slot[cheaper], cost[cheaper], rows[cheaper])
        closed = lines[~cheaper]
        place = self.place[closed]
        slot = self.classes[place]
        self.rows[slot, place] = self.taken[closed]
        for lows, highs, low, high in zip(self.lows, self.highs, self.low, self.high, strict=True):
            lows[place, slot], highs[place, slot] = low[closed], high[closed]
        self.sizes[place, slot], self.each[place, slot] = self.size[closed], self.cost[closed]
        self.classes[place] += 1
        self.lost[closed] += self.size[closed] * self.cost[closed].astype(np.float64)
        self.state[lines] = IDLE
        self._fail(lines[self.lost[lines] > self.most[lines]])

    def _fail(self, lines: Integers) -> None:
        self.failed[self.place[lines]] = True
        self.state[lines] = DONE


def _first(rows: RowCounts, numbers: Integers) -> RowCounts:
    """Select rows from the left until each line has its number."""
    before = np.cumsum(rows, axis=1) - rows
    return np.clip(numbers[:, None] - before, 0, rows).astype(rows.dtype)
