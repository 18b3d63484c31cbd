"""The full-domain recoding of proven least loss, by branch and bound over boxes of level vectors.

The loss of a level vector v is G(v) + p(v).  G is the loss of generalization: a sum over attributes that rises with v.
p is the loss added by suppressed rows.  It falls as v rises, if it counts criteria that are monotone under the allowed
suppression.  A box contains every vector between ``low`` and ``high``.  No vector of it loses less than G(low) +
p(high).  If ``high`` suppresses too many rows, so does the whole box.

The search cuts the box of least bound in two until no bound is below the best loss.  That bound is the certificate.  If
the time is up first, the least bound of the remaining boxes is still proven.  Boxes are created on demand, so a large
lattice costs nothing in itself.

The module also has Samarati's search (2001): the lowest height with a feasible vector, and one vector of that height.
If no vector is feasible, ``nearest`` searches for the fewest suppressed rows of any recoding.  With criteria that are
monotone under suppression, the top suppresses least.  With others, such as entropy-diversity, a lower vector may
suppress less, because a class that fails may spoil a class that it is merged with.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from time import monotonic

import numpy as np

from sfumato.anonymize.criteria.criterion import safe
from sfumato.anonymize.search.lattice import Lattice, Node, Vector, sufficient_share
from sfumato.anonymize.search.target_proof import TargetProof
from sfumato.errors import InputError

Sublattice = tuple[float, Vector, Vector]  # bound, low, high

ROUNDING = 1e-12  # relative rounding of a sum of losses
SMALL_LATTICE = 1 << 16  # level vectors; smaller lattices need no good first vector
PATIENCE = 2000  # vectors counted without a gain
FIRST_PROOF, FIRST_SHARE = 20.0, 0.3  # seconds, and share of the time, for a first proof
SEARCH_SHARE = 0.6  # share of the time after which no restart begins
SHARES = (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0)  # of the best loss, in turn


@dataclass(frozen=True)
class Certificate:
    """A proof of the least loss: every vector that was not counted loses at least ``bound``.

    ``loss`` and ``bound`` are in cells (weights times rows); both are infinite if no vector is feasible.  ``nodes`` is
    the size of the lattice, and ``evaluated`` the number of counted vectors.
    """

    loss: float
    bound: float
    nodes: int
    evaluated: int

    @property
    def proven(self) -> bool:
        """True if no vector can have a smaller loss."""
        return self.bound >= self.loss * (1 - ROUNDING)


@dataclass(frozen=True)
class Optimum:
    """The best vector, or None if no vector is feasible, with its certificate."""

    node: Node | None
    certificate: Certificate


def least_loss(lattice: Lattice, *, height: int | None = None, seconds: float = math.inf) -> Optimum:
    """Search for the least loss over the whole lattice, or over the vectors of one height.

    Args:
        lattice: the problem.
        height: search only vectors whose levels sum to this.
        seconds: stop after this time, with the best vector and the bound proven by then.
    """
    deadline = monotonic() + seconds
    boxes = LatticeBoxes(lattice, height)
    large = height is None and boxes.nodes > SMALL_LATTICE
    if height is None:
        boxes.dive()
    if large:
        boxes.descend(deadline)
    if large and boxes.best is not None and TargetProof.applies(lattice):
        return _proved_by_targets(boxes, seconds)
    if large:
        boxes.restart(monotonic() + SEARCH_SHARE * seconds)
    boxes.push((0,) * len(lattice.top), lattice.top)
    while boxes.open and monotonic() <= deadline:
        loss = boxes.loss
        boxes.split()
        if large and boxes.loss < loss:
            boxes.descend(deadline)
    certificate = Certificate(boxes.loss, boxes.bound, boxes.nodes, lattice.evaluated)
    return Optimum(boxes.best, certificate)


def _proved_by_targets(boxes: LatticeBoxes, seconds: float) -> Optimum:
    """Prove the best loss for a short time.  If that is not enough, search by restarts, then prove again."""
    start = monotonic()
    proof = TargetProof(boxes.lattice)
    bound = _prove_shares(boxes, proof, 0.0, start + min(FIRST_PROOF, FIRST_SHARE * seconds))
    if bound < boxes.loss * (1 - ROUNDING):
        boxes.restart(start + SEARCH_SHARE * seconds)
        bound = _prove_shares(boxes, proof, bound, start + seconds)
    evaluated = min(boxes.lattice.evaluated + proof.evaluated, boxes.nodes)
    return Optimum(boxes.best, Certificate(boxes.loss, min(bound, boxes.loss), boxes.nodes, evaluated))


def _prove_shares(boxes: LatticeBoxes, proof: TargetProof, bound: float, deadline: float) -> float:
    """Prove shares of the best loss, one after the other, and return the proven bound.

    A vector that loses less than a target becomes the best one.
    """
    while shares := [share for share in SHARES if share * boxes.loss > bound]:
        target = shares[0] * boxes.loss
        result = proof.prove(target, deadline=deadline)
        bound = max(bound, result.bound)
        if result.better is not None:
            boxes.best = result.better
            boxes.descend(deadline)
        elif result.bound < target:
            break  # the time is up
    return bound


class LatticeBoxes:
    """The boxes that are not ruled out, sorted by bound, and the best vector."""

    def __init__(self, lattice: Lattice, height: int | None) -> None:
        self.lattice = lattice
        self.height = height
        self.best: Node | None = None
        self.heap: list[Sublattice] = []

    @property
    def loss(self) -> float:
        """The loss of the best vector."""
        return math.inf if self.best is None else self.best.loss

    @property
    def bound(self) -> float:
        """The proven lower bound on the loss of every vector."""
        return min(self.heap[0][0], self.loss) if self.heap else self.loss

    @property
    def open(self) -> bool:
        """True if a better vector may exist."""
        return self.bound < self.loss

    @property
    def nodes(self) -> int:
        """The number of vectors in the lattice, or of its height."""
        ways = [1]  # ways[h]: vectors over the attributes processed, with levels that sum to h
        for top in self.lattice.top:
            ways = [sum(ways[max(h - top, 0) : h + 1]) for h in range(len(ways) + top)]
        return sum(ways) if self.height is None else ways[self.height] if self.height < len(ways) else 0

    def push(self, low: Vector, high: Vector) -> None:
        """Add a box unless its top rules it out."""
        if self.height is not None and not sum(low) <= self.height <= sum(high):
            return
        node = self._count(high)
        if not node.hopeless:
            heapq.heappush(self.heap, (self.lattice.floor(low) + node.penalty, low, high))

    def split(self) -> None:
        """Cut the box of least bound along the attribute with the largest range of generalization loss."""
        _, low, high = heapq.heappop(self.heap)
        if low == high:
            return  # a single vector, counted when it was pushed
        losses = self.lattice.generalisation
        spans = [(losses[a][high[a]] - losses[a][low[a]], a) for a in range(len(low)) if low[a] < high[a]]
        attribute = max(spans)[1]
        middle = (low[attribute] + high[attribute]) // 2
        self.push(low, (*high[:attribute], middle, *high[attribute + 1 :]))
        self.push((*low[:attribute], middle + 1, *low[attribute + 1 :]), high)

    def dive(self) -> None:
        """Bisect the cheapest chain from bottom to top for its first feasible vector."""
        chain = _cheapest_chain(self.lattice)
        low, high = 0, len(chain) - 1
        while low <= high:
            middle = (low + high) // 2
            if self._count(chain[middle]).feasible:
                high = middle - 1
            else:
                low = middle + 1

    def descend(self, deadline: float) -> None:
        """Descend from the best vector in two ways.

        A descent proves nothing.  But boxes are ruled out by the loss of the best vector, and the time may be up before
        boxes lead to a good one.
        """
        if self.best is not None:
            lower = (self._descended(self.best, sizes, deadline) for sizes in self._step_sizes)
            self.best = min(lower, key=lambda node: node.loss)

    def restart(self, deadline: float) -> None:
        """Raise a few attributes of the best vector at random and descend from there, repeatedly.

        It stops after as many vectors without a gain as were counted up to the last gain, and at least
        :data:`PATIENCE`.  The random numbers have a fixed seed, so that a search is reproducible.
        """
        if self.best is None:
            return
        random = Random(0)  # noqa: S311  (a search, no noise)
        patience = gained = self.lattice.evaluated
        while monotonic() <= deadline and self.lattice.evaluated < gained + max(patience, PATIENCE):
            before = self.lattice.evaluated
            node = self.lattice.evaluate(_raised(self.best.vector, self.lattice.top, random))
            sizes = random.choice(self._step_sizes)
            if node.feasible and (lower := self._descended(node, sizes, deadline)).loss < self.best.loss:
                self.best, patience, gained = lower, self.lattice.evaluated, self.lattice.evaluated
            gained -= self.lattice.evaluated == before  # no vector was evaluated: the lattice may be exhausted

    @property
    def _step_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The ways to descend: small steps before large ones, or steps of any size."""
        return (1, max(self.lattice.top)), (max(self.lattice.top),)

    def _descended(self, node: Node, sizes: Sequence[int], deadline: float) -> Node:
        """Lower one attribute, or lower one and raise another, while the loss falls.

        Steps have at most the first of ``sizes`` levels.  If none of them helps, the next size is tried.
        """
        while True:
            steps = (self._lower(node, most, deadline) for most in sizes)
            lower = next((step for step in steps if step is not None), None)
            if lower is None:
                return node
            node = lower

    def _lower(self, node: Node, most: int, deadline: float) -> Node | None:
        """Return the first feasible vector of less loss within ``most`` levels; None if there is none or the time is
        up.
        """
        for vector in _moved(node, self.lattice, most):
            if monotonic() > deadline:
                return None
            step = self.lattice.evaluate(vector)
            if step.feasible and step.loss < node.loss:
                return step
        return None

    def _count(self, vector: Vector) -> Node:
        node = self.lattice.evaluate(vector)
        if node.feasible and node.loss < self.loss and self.height in (None, sum(vector)):
            self.best = node
        return node


def _moved(node: Node, lattice: Lattice, most: int) -> Iterator[Vector]:
    """Yield vectors with one attribute lower, alone and with another one higher, by at most ``most`` levels.

    Vectors whose loss of generalization alone reaches the loss of ``node`` are skipped.  The others are sorted by that
    loss: ascending if ``most`` is one level, otherwise descending.
    """
    vector, losses = node.vector, lattice.generalisation
    changes: list[tuple[int, int, float]] = []  # attribute, new level, change of the loss
    for attribute, level in enumerate(vector):
        near = range(max(0, level - most), min(level + most, lattice.top[attribute]) + 1)
        changes += [(attribute, new, losses[attribute][new] - losses[attribute][level]) for new in near if new != level]
    lower = [change for change in changes if change[1] < vector[change[0]]]
    higher = [(-1, 0, 0.0), *(change for change in changes if change[1] > vector[change[0]])]
    if not lower:
        return
    floors = lattice.floor(vector) + np.add.outer([change[2] for change in lower], [change[2] for change in higher])
    same = np.equal.outer([change[0] for change in lower], [change[0] for change in higher])
    places = np.flatnonzero((floors < node.loss) & ~same)
    order = np.argsort(floors.ravel()[places], kind="stable")
    for place in places[order if most == 1 else order[::-1]].tolist():
        moved = list(vector)
        for attribute, level, _ in (lower[place // len(higher)], higher[place % len(higher)]):
            if attribute >= 0:
                moved[attribute] = level
        yield tuple(moved)


def _raised(vector: Vector, top: Vector, random: Random) -> Vector:
    """Return the vector with two to four random attributes raised to a random level."""
    raised = list(vector)
    for _ in range(random.randint(2, 4)):
        attribute = random.randrange(len(top))
        raised[attribute] = random.randint(raised[attribute], top[attribute])
    return tuple(raised)


def _cheapest_chain(lattice: Lattice) -> list[Vector]:
    """Return vectors from bottom to top, each step with the least added loss of generalization."""
    vector = [0] * len(lattice.top)
    chain = [tuple(vector)]
    while chain[-1] != lattice.top:
        losses = lattice.generalisation
        steps = [(losses[a][v + 1] - losses[a][v], a) for a, v in enumerate(vector) if v < lattice.top[a]]
        vector[min(steps)[1]] += 1
        chain.append(tuple(vector))
    return chain


class TieBreak(StrEnum):
    """A rule to choose among the feasible vectors of the lowest height."""

    LEXICOGRAPHIC = "lexicographic"  # the first in ascending order of the levels, as published
    HEURISTIC = "heuristic"  # the largest F = sum of level times hierarchy height; computes no loss
    LEAST_LOSS = "least-loss"  # the least loss of that height; ties by ascending levels


def lowest_height(lattice: Lattice, *, order: TieBreak) -> Node | None:
    """Bisect on the height, then return the feasible vector of that height chosen by ``order``; None if there is none.

    Raises:
        InputError: a criterion is not monotone under the allowed suppression, so the search could miss the lowest
            height.
    """
    if not lattice.problem.monotone:
        raise InputError(
            "samarati needs criteria that are monotone with suppression, and where units have rows of several tuples, "
            "or several sensitive values, only k-anonymity is; use the optimal search, suppress nothing, or count rows",
            culprit=lattice.problem.criteria,
        )
    low, high = 0, sum(lattice.top)
    if _first(lattice, high) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if _first(lattice, middle) is None:
            low = middle + 1
        else:
            high = middle
    if order is TieBreak.LEXICOGRAPHIC:
        return _first(lattice, low)
    ranking = partial(heuristic, lattice.top) if order is TieBreak.HEURISTIC else None
    return best_at_height(lattice, low, ranking=ranking)


def best_at_height(lattice: Lattice, height: int, *, ranking: Callable[[Vector], int] | None) -> Node | None:
    """Return the feasible vector of one height with the highest rank.  Default ranking: the least loss.

    Ties go to the first in ascending lexicographic order.
    """
    feasible = [
        node for vector in vectors_of_height(lattice.top, height) if (node := lattice.evaluate(vector)).feasible
    ]
    if ranking is None:
        return min(feasible, key=lambda node: node.loss, default=None)
    return max(feasible, key=lambda node: ranking(node.vector), default=None)


def heuristic(heights: Vector, vector: Vector) -> int:
    """Return F, the sum of level times hierarchy height.  A step in a tall hierarchy tends to cost little.

    F ignores the data and the losses.  It prefers a tall hierarchy's top to the cheap first step of a low one, and
    ignores the cost of suppression.

    >>> heuristic((4, 1, 1, 2), (1, 0, 1, 2))
    9
    """
    return sum(level * height for level, height in zip(vector, heights, strict=True))


def vectors_of_height(heights: Vector, height: int) -> Iterator[Vector]:
    """Yield level vectors whose levels sum to ``height``, in ascending lexicographic order.

    >>> list(vectors_of_height((2, 1), 2))
    [(1, 1), (2, 0)]
    """
    if not heights:
        if height == 0:
            yield ()
        return
    rest = sum(heights[1:])
    for level in range(max(0, height - rest), min(heights[0], height) + 1):
        for tail in vectors_of_height(heights[1:], height - level):
            yield (level, *tail)


def _first(lattice: Lattice, height: int) -> Node | None:
    """Return the first feasible vector of a height in ascending lexicographic order."""
    nodes = (lattice.evaluate(vector) for vector in vectors_of_height(lattice.top, height))
    return next((node for node in nodes if node.feasible), None)


LARGEST_SEARCH = 1 << 28  # distinct tuples processed, over all vectors: some seconds


@dataclass(frozen=True)
class Nearest:
    """The fewest suppressed rows, None if no vector is feasible, and whether this number is proven minimal."""

    suppressed: int | None
    proven: bool

    def limit(self, rows: int) -> str:
        """Return the suppression limit in words.  The printed limit suffices as an argument."""
        if self.suppressed is None or self.suppressed >= rows:
            return "no limit below 1 would do" if self.proven else "no limit below 1 that would do was found"
        share = sufficient_share(self.suppressed, rows)
        return f"the nearest limit is {share}" if self.proven else f"a limit of {share} would do, perhaps a lower one"


def nearest(lattice: Lattice, *, height: int | None = None, largest: int = LARGEST_SEARCH) -> Nearest:
    """Search for the vector that suppresses the fewest rows, from the top down.

    Below a vector, no vector suppresses fewer rows than fail there by the criteria that are monotone under suppression.
    The search opens the vector with the least such bound next, until no bound is below the best number.

    Args:
        lattice: the problem; its suppression limit is ignored.
        height: search only vectors whose levels sum to this.
        largest: limit on distinct tuples processed, at the number of tuples of the bottom per vector.
    """
    sound = lattice.problem.monotone_with_suppression
    left = max(largest // max(len(lattice.problem.data.counts), 1), 1)
    best: int | None = None
    heap: list[tuple[int, Vector]] = [(0, lattice.top)]
    seen = {lattice.top}
    while heap and (best is None or heap[0][0] < best):
        if not left:
            return Nearest(best, proven=False)
        left -= 1
        _, vector = heapq.heappop(heap)
        classes, safe_mask = lattice.safe_classes(vector)
        excluded = lattice.problem.data.excluded
        bound = int(classes.counts[~safe(sound, classes)].sum()) + excluded
        if height in (None, sum(vector)) and classes.counts[~safe_mask].all():
            suppressed = int(classes.counts[~safe_mask].sum()) + excluded
            best = suppressed if best is None else min(best, suppressed)
        if height is None or sum(vector) > height:
            for attribute, level in enumerate(vector):
                below = (*vector[:attribute], level - 1, *vector[attribute + 1 :])
                if level and below not in seen:
                    seen.add(below)
                    heapq.heappush(heap, (bound, below))
    return Nearest(best, proven=True)
