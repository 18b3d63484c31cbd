"""The full-domain recoding of proven least loss: branch and bound over boxes of level vectors.

The loss of a level vector v is G(v) + p(v).  G, the loss of generalisation, is separable over attributes and
rises with v.  p, what suppressed rows add, falls as v rises (counted with the criteria that are declared
monotone under the suppression allowed).  A box holds every vector between ``low`` and ``high``: nothing in it
loses less than G(low) + p(high), and if ``high`` suppresses too much, so does all of the box.

The box of least bound is cut in two until no bound is below the best loss found, which is the certificate; or
until time is up, and then the least bound of the boxes left is still proven.  Boxes are made as they are
needed, so the size of the lattice costs nothing by itself.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from time import monotonic

from sfumato.anonymize.lattice import Lattice, Node
from sfumato.anonymize.problem import Vector

Box = tuple[float, Vector, Vector]  # bound, low, high

ROUNDING = 1e-12  # relative rounding of a sum of losses


@dataclass(frozen=True)
class Certificate:
    """Why a loss is the least: every vector that was not counted is proven to lose at least ``bound``.

    ``loss`` and ``bound`` are in cells (weights times rows); both are infinite where nothing is feasible.
    ``nodes`` is the size of the lattice, ``evaluated`` how many of them were counted.
    """

    loss: float
    bound: float
    nodes: int
    evaluated: int

    @property
    def proven(self) -> bool:
        """Whether nothing better can exist."""
        return self.bound >= self.loss * (1 - ROUNDING)


@dataclass(frozen=True)
class Optimum:
    """The best vector found, or None where no vector is feasible, with its certificate."""

    node: Node | None
    certificate: Certificate


def search(lattice: Lattice, *, height: int | None = None, seconds: float = math.inf) -> Optimum:
    """Least loss over the whole lattice, or over the vectors of one height.

    Args:
        lattice: the problem.
        height: look only at vectors whose levels sum to this.
        seconds: stop after this long with the best so far and the bound proven by then.
    """
    deadline = monotonic() + seconds
    boxes = _Boxes(lattice, height)
    if height is None:
        boxes.dive()
    boxes.push((0,) * len(lattice.top), lattice.top)
    while boxes.open and monotonic() <= deadline:
        boxes.split()
    certificate = Certificate(boxes.loss, boxes.bound, boxes.nodes, lattice.evaluated)
    return Optimum(boxes.best, certificate)


class _Boxes:
    """The boxes not yet ruled out, the least bound first, and the best vector so far."""

    def __init__(self, lattice: Lattice, height: int | None) -> None:
        self.lattice = lattice
        self.height = height
        self.best: Node | None = None
        self.heap: list[Box] = []

    @property
    def loss(self) -> float:
        """Loss of the best vector."""
        return math.inf if self.best is None else self.best.loss

    @property
    def bound(self) -> float:
        """No vector loses less."""
        return min(self.heap[0][0], self.loss) if self.heap else self.loss

    @property
    def open(self) -> bool:
        """Whether something better may be left."""
        return self.bound < self.loss

    @property
    def nodes(self) -> int:
        """Number of vectors in the lattice, or of its height."""
        ways = [1]  # ways[h]: vectors of the attributes so far whose levels sum to h
        for top in self.lattice.top:
            ways = [sum(ways[max(h - top, 0) : h + 1]) for h in range(len(ways) + top)]
        return sum(ways) if self.height is None else ways[self.height] if self.height < len(ways) else 0

    def push(self, low: Vector, high: Vector) -> None:
        """Keep a box unless its top rules it out."""
        if self.height is not None and not sum(low) <= self.height <= sum(high):
            return
        node = self._count(high)
        if not node.hopeless:
            heapq.heappush(self.heap, (self.lattice.floor(low) + node.penalty, low, high))

    def split(self) -> None:
        """Cut the box of least bound where its loss of generalisation spans most."""
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
        """A first good vector: where the cheapest chain from bottom to top becomes feasible, by bisection."""
        chain = _cheapest_chain(self.lattice)
        low, high = 0, len(chain) - 1
        while low <= high:
            middle = (low + high) // 2
            if self._count(chain[middle]).feasible:
                high = middle - 1
            else:
                low = middle + 1

    def _count(self, vector: Vector) -> Node:
        node = self.lattice.evaluate(vector)
        if node.feasible and node.loss < self.loss and self.height in (None, sum(vector)):
            self.best = node
        return node


def _cheapest_chain(lattice: Lattice) -> list[Vector]:
    """Vectors from bottom to top, each step the one that adds the least loss of generalisation."""
    vector = [0] * len(lattice.top)
    chain = [tuple(vector)]
    while chain[-1] != lattice.top:
        losses = lattice.generalisation
        steps = [(losses[a][v + 1] - losses[a][v], a) for a, v in enumerate(vector) if v < lattice.top[a]]
        vector[min(steps)[1]] += 1
        chain.append(tuple(vector))
    return chain
