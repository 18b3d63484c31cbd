"""Samarati's search: the lowest height with a feasible vector, and one vector of that height (Samarati 2001)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial

from sfumato.anonymize.lattice import Lattice, Node
from sfumato.anonymize.problem import Vector
from sfumato.errors import InputError


class Order(StrEnum):
    """Which feasible vector of the lowest height is taken."""

    LEXICOGRAPHIC = "lexicographic"  # the first in ascending order of the levels, as published
    HEURISTIC = "heuristic"  # the largest F = sum of level times hierarchy height; computes no loss
    LEAST_LOSS = "least-loss"  # the least loss of that height; ties by ascending levels


def search(lattice: Lattice, *, order: Order) -> Node | None:
    """Bisect on the height, then take the first feasible vector of that height in ``order``; None if there is none.

    Raises:
        InputError: a criterion is not declared monotone under the suppression allowed, so that the lowest
            height could be missed.
    """
    if not lattice.problem.monotone:
        raise InputError(
            "samarati needs criteria that are monotone with suppression; use the optimal search, or suppress nothing",
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
    if order is Order.LEXICOGRAPHIC:
        return _first(lattice, low)
    ranking = partial(heuristic, lattice.top) if order is Order.HEURISTIC else None
    return best_at_height(lattice, low, ranking=ranking)


def best_at_height(lattice: Lattice, height: int, *, ranking: Callable[[Vector], int] | None) -> Node | None:
    """The feasible vector of one height that ranks highest, or without a ranking has the least loss.

    Ties go to the first in ascending lexicographic order.
    """
    feasible = [
        node for vector in vectors_of_height(lattice.top, height) if (node := lattice.evaluate(vector)).feasible
    ]
    if ranking is None:
        return min(feasible, key=lambda node: node.loss, default=None)
    return max(feasible, key=lambda node: ranking(node.vector), default=None)


def heuristic(heights: Vector, vector: Vector) -> int:
    """F: sum of level times hierarchy height.  A step in a tall hierarchy tends to cost little.

    F knows neither the data nor the losses: it prefers a tall hierarchy's top to the cheap first step of
    a low one, and ignores what suppression costs.

    >>> heuristic((4, 1, 1, 2), (1, 0, 1, 2))
    9
    """
    return sum(level * height for level, height in zip(vector, heights, strict=True))


def vectors_of_height(heights: Vector, height: int) -> Iterator[Vector]:
    """Level vectors whose levels sum to ``height``, in ascending lexicographic order.

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
    """The first feasible vector of a height in ascending lexicographic order."""
    nodes = (lattice.evaluate(vector) for vector in vectors_of_height(lattice.top, height))
    return next((node for node in nodes if node.feasible), None)
