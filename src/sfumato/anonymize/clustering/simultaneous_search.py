"""Local search for large tables: the neighborhood search of k-member clustering, in disjoint neighborhoods at once.

It starts from Mondrian's greedy cuts.  Each round draws disjoint neighborhoods of a few close classes and dissolves
them.  They grow again together, and each is accepted if its loss does not rise.  Rounds of swaps of single rows
alternate with these rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic

import numpy as np

from sfumato.anonymize.clustering.mondrian_cuts import greedy_partition
from sfumato.anonymize.clustering.regrowth import JoinCosts, Neighbourhoods, Regrowth, Singles
from sfumato.anonymize.clustering.row_swaps import NearestBoxes, RowSwaps, Swaps
from sfumato.anonymize.clustering.space import Group, Partition, Space
from sfumato.domain.hierarchy.levels import Integers, Reals

REGROWTHS = 14  # rounds per cycle and unit of effort
SWAPS = 14  # rounds of swaps per cycle and unit of effort
THRESHOLDS = (0.2, 0.1, 0.05, 0.05)  # thresholds of the swaps in each cycle
DISSOLVED = (2, 3, 3, 3)  # largest number of classes in a neighborhood, per cycle
HOMES = 2  # nearest homes that may lend rows to a tuple
PLENTY = 4  # a home offers at most this many times k rows to one neighborhood
BATCH = 1024  # neighborhoods that grow together
LOOKED_UP = 32  # classes whose nearest classes are computed together
ROUNDING = 1e-4  # relative rounding of the loss of a neighborhood in single precision


SearchOutcome = tuple[list[Group], bool]
"""The tuples and rows of every class, and whether the deadline ended the search."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """A division of the rows: at home in a class of one tuple, or in classes of mixed tuples (None: there are none)."""

    home: Integers
    mixed: Partition | None

    def loss(self, space: Space) -> float:
        """Return the loss of all rows; rows at home lose nothing."""
        return 0.0 if self.mixed is None else self.mixed.loss(space)

    def groups(self) -> list[Group]:
        """Return the tuples and rows of every class, homes first."""
        homes: list[Group] = [(np.array([each]), self.home[each : each + 1]) for each in np.flatnonzero(self.home)]
        return homes + mixed_groups(self)


def mixed_groups(division: Clustering) -> list[Group]:
    """Return the tuples and rows of every class of mixed tuples."""
    mixed = division.mixed
    if mixed is None:
        return []
    cuts = np.searchsorted(mixed.classes, np.arange(1, mixed.size))
    return list(zip(np.split(mixed.tuples, cuts), np.split(mixed.rows, cuts), strict=True))


def divided(home: Integers, tuples: Integers, classes: Integers, rows: Integers) -> Clustering:
    """Assign numbers to the classes in order.  A class of a single tuple becomes that tuple's home."""
    order = np.argsort(classes, kind="stable")
    tuples, classes, rows = tuples[order], classes[order], rows[order]
    _, number, parts = np.unique(classes, return_inverse=True, return_counts=True)
    single = parts[number] == 1
    home = home.copy()
    np.add.at(home, tuples[single], rows[single])
    if single.all():
        return Clustering(home, None)
    _, number = np.unique(number[~single], return_inverse=True)
    return Clustering(home, Partition(tuples[~single], number, rows[~single]))


def first_division(space: Space, k: int) -> Clustering:
    """Assign a home to each tuple of k rows, and cut the other tuples (all, if they are too few) by greedy Mondrian."""
    home = np.where(space.counts >= k, space.counts, 0)
    others = np.flatnonzero(home == 0)
    if not len(others):
        return Clustering(home, None)
    if space.counts[others].sum() < k:
        home, others = np.zeros_like(home), np.arange(len(home))
    part = space.part(others, space.counts[others])
    cut = greedy_partition(part, least=k)
    return divided(home, others[cut.tuples], cut.classes, cut.rows)


def search(space: Space, *, k: int, effort: int, rng: np.random.Generator, deadline: float = math.inf) -> SearchOutcome:
    """Search for the classes of at least k rows with the least loss, until the deadline.

    Args:
        space: the points; at least k rows.
        k: minimum rows of a class.
        effort: multiplies the number of rounds.
        rng: random numbers of the search.
        deadline: on the monotonic clock; the first division is made in any case.
    """
    division = first_division(space, k)
    best, least = division, division.loss(space)
    costs = JoinCosts(space)
    rounds = Rounds(space, costs, k, rng)
    for dissolved, threshold in zip(DISSOLVED, THRESHOLDS, strict=True):
        for _ in range(REGROWTHS * effort):
            if division.mixed is None or division.mixed.size == 1:
                return best.groups(), False
            if monotonic() > deadline:
                return best.groups(), True
            division = rounds.regrown(division, most=dissolved)
            if (loss := division.loss(space)) < least:
                best, least = division, loss
        division = swapped(division, costs, k=k, swaps=Swaps(SWAPS * effort, threshold, deadline), rng=rng)
        if (loss := division.loss(space)) < least:
            best, least = division, loss
    return best.groups(), SWAPS * effort > 0 and monotonic() > deadline  # the deadline also ends the last swaps


def swapped(division: Clustering, costs: JoinCosts, *, k: int, swaps: Swaps, rng: np.random.Generator) -> Clustering:
    """Return the division after rounds of swaps of single rows."""
    if division.mixed is None or not swaps.rounds:
        return division
    groups = RowSwaps(costs, mixed_groups(division), k=k, rng=rng).run(swaps)
    mixed = Partition.from_groups(groups)
    return divided(division.home, mixed.tuples, mixed.classes, mixed.rows)


@dataclass(frozen=True, eq=False)
class Dissolved:
    """The dissolved neighborhoods: their tuples in one list, and the rows of each tuple.

    ``where`` is the neighborhood of each class, -1 for none.  ``place``, ``tuples``, ``need``, ``spare`` and
    ``returned`` describe each tuple of each neighborhood, in order of ``place``.  ``returned`` rows left a class for
    home; ``spare`` rows, including returned ones, may be lent.  ``loss`` is the loss of the dissolved classes.
    """

    where: Integers
    place: Integers
    tuples: Integers
    need: Integers
    spare: Integers
    returned: Integers
    loss: Reals


class Rounds:
    """The rounds of the neighborhood search over one space."""

    def __init__(self, space: Space, costs: JoinCosts, k: int, rng: np.random.Generator) -> None:
        self.space, self.costs, self.k, self.rng = space, costs, k, rng
        self._homes = self._nearest_homes()

    def regrown(self, division: Clustering, *, most: int) -> Clustering:
        """Dissolve disjoint neighborhoods of 2 to ``most`` classes and regrow them.  Accept those whose loss does not
        rise.
        """
        dissolved = self._dissolve(division, most)
        places = len(dissolved.loss)
        if not places:
            return division
        items = np.bincount(dissolved.place, minlength=places)
        first = np.cumsum(items) - items
        better = np.zeros(places, dtype=bool)
        new_parts: list[Integers] = []  # per new part: neighborhood, class, tuple, rows
        for some in np.split(np.argsort(items, kind="stable"), range(BATCH, places, BATCH)):
            columns = np.arange(int(items[some].max()))
            listed = columns < items[some][:, None]
            index = np.where(listed, first[some][:, None] + columns, 0)
            tuples, need, spare = (each[index] for each in (dissolved.tuples, dissolved.need, dissolved.spare))
            around = Neighbourhoods(tuples, need * listed, spare * listed)
            grown = Regrowth(self.costs, around, k=self.k, rng=self.rng, most=dissolved.loss[some] + ROUNDING).run()
            good = np.isfinite(grown.loss)
            better[some[good]] = True
            class_, line, item = np.nonzero(grown.rows * good[:, None])
            new_parts.append(np.stack([some[line], class_, tuples[line, item], grown.rows[class_, line, item]]))
        return self._replaced(division, dissolved, better, np.concatenate(new_parts, axis=1))

    def _replaced(self, division: Clustering, dissolved: Dissolved, better: Integers, new: Integers) -> Clustering:
        """Replace the dissolved classes of the neighborhoods whose loss is smaller after regrowth."""
        mixed = division.mixed
        assert mixed is not None
        home = division.home.copy()
        back = better[dissolved.place]
        np.add.at(home, dissolved.tuples[back], dissolved.returned[back])
        places, classes, tuples, rows = new
        lent = home[tuples] > 0
        np.subtract.at(home, tuples[lent], rows[lent])
        where = dissolved.where[mixed.classes]
        stays = (where < 0) | ~better[np.maximum(where, 0)]
        most = int(classes.max(initial=0)) + 1
        return divided(
            home,
            np.concatenate([mixed.tuples[stays], tuples]),
            np.concatenate([mixed.classes[stays], mixed.size + places * most + classes]),
            np.concatenate([mixed.rows[stays], rows]),
        )

    def _dissolve(self, division: Clustering, most: int) -> Dissolved:
        mixed = division.mixed
        assert mixed is not None
        where, places = self._drawn(mixed, most)
        inside = where[mixed.classes] >= 0
        tuples, place, rows = mixed.tuples[inside], where[mixed.classes[inside]], mixed.rows[inside]
        at_home = division.home[tuples] > 0
        near = self._homes[tuples[~at_home]]
        lender_keys = np.repeat(place[~at_home], near.shape[1]) * len(self.space.counts) + near.ravel()
        keys = np.concatenate([place * len(self.space.counts) + tuples, lender_keys])
        distinct, number = np.unique(keys, return_inverse=True)
        nothing = np.zeros(len(lender_keys))
        need = np.bincount(number, weights=np.concatenate([rows * ~at_home, nothing])).astype(np.int64)
        returned = np.bincount(number, weights=np.concatenate([rows * at_home, nothing])).astype(np.int64)
        place, tuples = np.divmod(distinct, len(self.space.counts))
        home = division.home[tuples]
        # neighborhoods that use the same home share the rows that it can spare
        shared = np.bincount(tuples, minlength=len(division.home))[tuples]
        spare = returned + np.where(home > 0, np.minimum((home - self.k) // shared, PLENTY * self.k), 0)
        some = (need > 0) | (spare > 0)
        lost = mixed.counts() * self.space.cost(*mixed.boxes(self.space))
        loss = np.bincount(where[where >= 0], weights=lost[where >= 0], minlength=places).astype(np.float64)
        return Dissolved(where, place[some], tuples[some], need[some], spare[some], returned[some], loss)

    def _drawn(self, mixed: Partition, most: int) -> tuple[Integers, int]:
        """Draw neighborhoods of a class and its nearest.  Return the neighborhood of each class (-1: none), and the
        number.
        """
        classes, rng = mixed.size, self.rng
        starts = np.searchsorted(mixed.classes, np.arange(classes + 1))
        ends = self._ends(mixed, starts[:-1])
        seeds = rng.permutation(classes)[: -(-2 * classes // (2 + most))]
        parts = np.diff(starts)[seeds]
        rows = mixed.tuples[starts[seeds] + (rng.random(len(seeds)) * parts).astype(np.int64)]
        sizes = rng.integers(2, most + 1, size=len(seeds))
        boxes = NearestBoxes(self.costs, ends, rng)
        where = np.full(classes, -1)
        places = 0
        for start in range(0, len(seeds), LOOKED_UP):
            part = np.arange(start, min(start + LOOKED_UP, len(seeds)))
            part = part[where[seeds[part]] < 0]
            near = boxes.to(rows[part], number=3 * most, own=seeds[part])
            for seed, others, size in zip(seeds[part].tolist(), near, sizes[part].tolist(), strict=True):
                free = [seed, *others[where[others] < 0].tolist()][:size]
                if where[seed] < 0 and len(free) > 1:
                    where[free] = places
                    places += 1
        return where, places

    def _ends(self, mixed: Partition, starts: Integers) -> tuple[list[Singles], list[Singles]]:
        values = [value[mixed.tuples] for value in self.costs.values]
        lows = [np.minimum.reduceat(value, starts) for value in values]
        return lows, [np.maximum.reduceat(value, starts) for value in values]

    def _nearest_homes(self) -> Integers:
        """Return, for each tuple, the closest tuples with at least k rows."""
        homes = np.flatnonzero(self.space.counts >= self.k)
        if not len(homes):
            return np.zeros((len(self.space.counts), 0), dtype=np.int64)
        points = [value[homes] for value in self.costs.values]
        number = min(HOMES, len(homes))
        result = np.empty((len(self.space.counts), number), dtype=np.int64)
        for start in range(0, len(result), BATCH):
            point = [value[start : start + BATCH, None] for value in self.costs.values]
            distances = self.costs.joined(points, points, point, point)
            result[start : start + BATCH] = homes[np.argpartition(distances, number - 1, axis=1)[:, :number]]
        return result
