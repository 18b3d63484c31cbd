"""Junction trees: the size of exact inference, known before a model is fitted.

Greedy elimination makes the cliques of measured marginals chordal.  The maximal cliques, joined by a maximum spanning
tree of their separators, form the tree (Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import NamedTuple

Clique = tuple[str, ...]
_Cost = tuple[int, int, int]  # added edges, cells, place


class Axes(NamedTuple):
    """The axes of a clique's table that are summed for its separator, and the index that expands the sums again."""

    summed: tuple[int, ...]
    expanded: tuple[slice | None, ...]


@dataclass(frozen=True)
class JunctionTree:
    """The maximal cliques with parents before children; ``parents[i]`` is -1 for the root of a component.

    ``separators[i]`` are the attributes that clique i shares with its parent, empty for a root.  All cliques and
    separators have the same order of attributes.
    """

    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    separators: tuple[Clique, ...]

    def cells(self, sizes: Mapping[str, int]) -> int:
        """Return the number of cells of all cliques together."""
        return sum(_volume(clique, sizes) for clique in self.cliques)

    def holder(self, attributes: Iterable[str]) -> int | None:
        """Return the clique with the fewest attributes that contains all of ``attributes``, or None."""
        having = [self.having.get(name, frozenset()) for name in attributes]
        holding = frozenset.intersection(*having) if having else range(len(self.cliques))
        return min(holding, key=lambda index: (len(self.cliques[index]), index), default=None)

    @cached_property  # uncached, a fit of 200 columns takes a third longer
    def links(self) -> tuple[tuple[Axes, Axes], ...]:
        """Return the axes of each clique and of its parent, for the separator of the two."""
        return tuple(
            (_axes(clique, separator), _axes(self.cliques[parent], separator))
            for clique, parent, separator in zip(self.cliques, self.parents, self.separators, strict=True)
        )

    @cached_property  # uncached, a release of 200 columns takes a tenth longer
    def having(self) -> Mapping[str, frozenset[int]]:
        """Return the cliques that contain each attribute."""
        having: dict[str, set[int]] = {}
        for index, clique in enumerate(self.cliques):
            for name in clique:
                having.setdefault(name, set()).add(index)
        return {name: frozenset(indexes) for name, indexes in having.items()}


def _axes(clique: Clique, separator: Clique) -> Axes:
    return Axes(
        tuple(axis for axis, name in enumerate(clique) if name not in separator),
        tuple(slice(None) if name in separator else None for name in clique),
    )


def junction_tree(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> JunctionTree:
    """Build a junction tree over the attributes of ``sizes`` in which every given clique lies within one node.

    >>> tree = junction_tree([("a", "b"), ("b", "c"), ("d",)], {"a": 2, "b": 3, "c": 4, "d": 5})
    >>> tree.cells({"a": 2, "b": 3, "c": 4, "d": 5}), tree.holder(("c", "b")) is not None
    (23, True)
    """
    position = {name: index for index, name in enumerate(sizes)}
    maximal = [tuple(sorted(clique, key=position.__getitem__)) for clique in maximal_cliques(cliques, sizes)]
    maximal.sort(key=lambda clique: (-_volume(clique, sizes), clique))
    order: list[Clique] = []
    parents: list[int] = []
    separators: list[Clique] = []
    members = [set(clique) for clique in maximal]
    nearest = [(0, -1)] * len(maximal)  # attributes shared with the nearest clique of the tree, and its place
    waiting = list(range(len(maximal)))
    # Prim's algorithm on separator sizes: a maximum spanning tree of a chordal graph's cliques is a junction tree
    while waiting:
        index = max(waiting, key=lambda index: (nearest[index][0], -index))
        waiting.remove(index)
        shared, parent = nearest[index]
        clique = maximal[index]
        parents.append(parent if shared else -1)
        separators.append(tuple(name for name in clique if shared and name in order[parent]))
        place = len(order)
        order.append(clique)
        for other in waiting:
            nearest[other] = max(nearest[other], (len(members[index] & members[other]), place))
    return JunctionTree(tuple(order), tuple(parents), tuple(separators))


def maximal_cliques(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> list[frozenset[str]]:
    """Return the maximal cliques after triangulation, by the better of greedy min-fill and min-size elimination."""
    return Triangulation(cliques, sizes).nodes()


def tree_cells(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> int:
    """Return the number of cells that a junction tree of these cliques would have."""
    return Triangulation(cliques, sizes).cells


def spanning(pairs: Iterable[Clique]) -> Iterator[Clique]:
    """Yield pairs that close no cycle with earlier pairs: a maximum spanning tree if weights fall (Kruskal 1956).

    >>> list(spanning([("a", "b"), ("b", "c"), ("a", "c"), ("d", "e"), ("c", "d")]))
    [('a', 'b'), ('b', 'c'), ('d', 'e'), ('c', 'd')]
    """
    linked: dict[str, frozenset[str]] = {}
    for pair in pairs:
        one, other = (linked.get(name, frozenset({name})) for name in pair)
        if one != other:
            linked |= dict.fromkeys(one | other, one | other)
            yield pair


class Triangulation:
    """Two greedy eliminations that make cliques chordal: by the edges that a step adds, and by the cells of its node.

    Ties go to the first attribute.  The steps are stored, so that :meth:`fits` repeats only the steps that one more
    clique changes.
    """

    def __init__(
        self, cliques: Iterable[Clique], sizes: Mapping[str, int], runs: Sequence[_Elimination] | None = None
    ) -> None:
        self._sizes, self._places = sizes, {name: place for place, name in enumerate(sizes)}
        volumes, masks = tuple(sizes.values()), [self._mask(clique) for clique in cliques]
        self._runs = runs or [_Elimination(_State.of_cliques(masks, volumes, by_fill=fill)) for fill in (True, False)]

    @property
    def cells(self) -> int:
        """Return the number of cells of all maximal cliques, by the better elimination."""
        return min(run.cells for run in self._runs)

    def nodes(self) -> list[frozenset[str]]:
        """Return the maximal cliques of the better elimination."""
        names = tuple(self._places)
        best = min(self._runs, key=lambda run: run.cells)
        return [frozenset(names[place] for place in _bits(node)) for node in best.nodes]

    def fits(self, clique: Clique, most: int) -> bool:
        """Return True if there would be at most ``most`` cells with one more clique."""
        mask = self._mask(clique)
        return any(run.fits(mask, most) for run in self._runs)

    def adding(self, clique: Clique) -> Triangulation:
        """Return the triangulation with one more clique."""
        return Triangulation((), self._sizes, [run.adding(self._mask(clique)) for run in self._runs])

    def _mask(self, clique: Clique) -> int:
        return sum(1 << self._places[name] for name in set(clique))


@dataclass(frozen=True)
class CellBudget:
    """The largest number of cells of a junction tree, and the cliques of the current tree.

    Attributes:
        held: the cliques of the tree.
        most: the largest number of cells.
        outside: largest number of attributes of a clique that is measured even if the tree has no room for it.
    """

    held: Triangulation
    most: int
    outside: int = 0

    def fits(self, clique: Clique) -> bool:
        """Return True if one more clique keeps the tree within the budget."""
        return self.held.fits(clique, self.most)

    def adding(self, clique: Clique) -> CellBudget:
        """Return the budget of the tree with one more clique."""
        return replace(self, held=self.held.adding(clique))


@dataclass
class _State:
    """The state of an elimination.  Sets of attributes are bits of an integer.

    Attributes:
        sizes: cells of each attribute.
        by_fill: True if the edges that an elimination adds come before the cells of its node.
        graph: neighbors of each remaining attribute.
        volumes: cells of each attribute with its neighbors.
        fills: missing edges among the neighbors of each attribute, if ``by_fill``.
        costs: cost of each attribute, None after its elimination.
    """

    sizes: Sequence[int]
    by_fill: bool
    graph: list[int]
    volumes: list[int]
    fills: list[int]
    costs: list[_Cost | None]

    @staticmethod
    def of_cliques(cliques: Iterable[int], sizes: Sequence[int], *, by_fill: bool) -> _State:
        """Return the state before the first elimination."""
        many = len(sizes)
        state = _State(sizes, by_fill, [0] * many, list(sizes), [0] * many, [None] * many)
        for clique in cliques:
            state.connect(clique)
        state.costs = [(state.fills[place], state.volumes[place], place) for place in range(many)]
        return state

    def restored(self, graph: Sequence[int], costs: Sequence[_Cost | None]) -> _State:
        """Return the state with these neighbors and costs."""
        fills, volumes = [cost[0] if cost else 0 for cost in costs], [cost[1] if cost else 0 for cost in costs]
        return _State(self.sizes, self.by_fill, list(graph), volumes, fills, list(costs))

    def connect(self, clique: int) -> int:
        """Add the missing edges of a clique, and return the attributes whose costs change."""
        graph, volumes, sizes, fills = self.graph, self.volumes, self.sizes, self.fills
        changed, rest = 0, clique
        while rest:
            one = rest & -rest
            rest ^= one
            missing = rest & ~graph[place := one.bit_length() - 1]
            while missing:
                other = missing & -missing
                missing ^= other
                end = other.bit_length() - 1
                near, far = graph[place], graph[end]
                if self.by_fill:
                    shared = near & far
                    fills[place] += (near ^ shared).bit_count()
                    fills[end] += (far ^ shared).bit_count()
                    changed |= shared
                    while shared:
                        low = shared & -shared
                        shared ^= low
                        fills[low.bit_length() - 1] -= 1
                graph[place], graph[end] = near | other, far | one
                volumes[place] *= sizes[end]
                volumes[end] *= sizes[place]
                changed |= one | other
        return changed

    def remove(self, chosen: int) -> int:
        """Eliminate an attribute, and return the attributes whose costs may change."""
        graph, volumes, fills, size = self.graph, self.volumes, self.fills, self.sizes[chosen]
        adjacent, bit = graph[chosen], 1 << chosen
        self.costs[chosen] = None
        outside, rest = ~(adjacent | bit), adjacent
        while rest:
            low = rest & -rest
            rest ^= low
            place = low.bit_length() - 1
            neighbors = graph[place]
            if self.by_fill:
                fills[place] -= (neighbors & outside).bit_count()
            graph[place] = neighbors ^ bit
            volumes[place] //= size
        return adjacent if self.by_fill and not fills[chosen] else adjacent | self.connect(adjacent)

    def updated(self, attributes: int) -> list[_Cost]:
        """Update the costs of attributes, and return those that are new."""
        costs, fills, volumes = self.costs, self.fills, self.volumes
        new = []
        while attributes:
            low = attributes & -attributes
            attributes ^= low
            place = low.bit_length() - 1
            cost = fills[place], volumes[place], place
            if cost != costs[place]:
                costs[place] = cost
                new.append(cost)
        return new


class _Elimination:
    """A greedy elimination, and for each step the neighbors and costs before it.

    :meth:`fits` repeats only the steps that one more clique changes.
    """

    def __init__(self, start: _State) -> None:
        self._start = start
        self._states: list[tuple[list[int], list[_Cost | None]]] = []
        self._least: list[_Cost] = []
        self._changed = [0]
        self._separators: list[int] = []
        self._cells = [0]
        self.nodes: list[int] = []
        state, separators = start.restored(start.graph, start.costs), set[int]()
        heap = _heap(state)
        while cost := _cheapest(heap, state):
            self._states.append((state.graph[:], state.costs[:]))
            self._least.append(cost)
            chosen = cost[-1]
            adjacent = state.graph[chosen]
            node, cells = adjacent | 1 << chosen, 0
            if node not in separators:  # else the node is within an earlier one, because separators are cliques
                self.nodes.append(node)
                cells = cost[1]
            separators.add(adjacent)
            self._separators.append(adjacent)
            self._cells.append(self._cells[-1] + cells)
            self._changed.append(state.remove(chosen))
            for cost in state.updated(self._changed[-1]):
                heappush(heap, cost)
        self.cells = self._cells[-1]

    def adding(self, clique: int) -> _Elimination:
        """Return the elimination with the edges of one more clique."""
        start = self._start.restored(self._start.graph, self._start.costs)
        start.updated(start.connect(clique))
        return _Elimination(start)

    def fits(self, clique: int, most: int) -> bool:
        """Return True if there would be at most ``most`` cells with the edges of one more clique.

        A step does not change until an attribute of the clique is eliminated, or until an attribute whose cost the
        edges change would come first.  No step changes after the elimination has added these edges.
        """
        least: _Cost | None = None
        affected = 0
        for step, (cost, changed) in enumerate(zip(self._least, self._changed, strict=False)):
            if least is None or changed & affected:
                state = self._start.restored(*self._states[step])
                affected = state.connect(clique)
                if not affected:
                    break
                affected |= clique
                state.updated(affected)
                least = min(filter(None, (state.costs[place] for place in _bits(affected))))
            chosen = cost[-1]
            if clique >> chosen & 1 or (least < cost and least[-1] != chosen):
                return self._fits_from(step, clique, most)
            if affected >> chosen & 1:
                least = None  # the attribute is eliminated
        return self.cells <= most

    def _fits_from(self, step: int, clique: int, most: int) -> bool:
        """Return True if there would be at most ``most`` cells if the clique's edges change the steps from a step."""
        state, separators = self._start.restored(*self._states[step]), set(self._separators[:step])
        cells = self._cells[step]
        state.updated(state.connect(clique))
        heap = _heap(state)
        while cells <= most and (cost := _cheapest(heap, state)):
            chosen = cost[-1]
            adjacent = state.graph[chosen]
            if adjacent | 1 << chosen not in separators:
                cells += cost[1]
            separators.add(adjacent)
            for new in state.updated(state.remove(chosen)):
                heappush(heap, new)
        return cells <= most


def _heap(state: _State) -> list[_Cost]:
    heap = [cost for cost in state.costs if cost]
    heapify(heap)
    return heap


def _cheapest(heap: list[_Cost], state: _State) -> _Cost | None:
    """Remove outdated costs from a heap, and return the least cost, or None if all attributes are eliminated."""
    while heap:
        cost = heappop(heap)
        if state.costs[cost[-1]] is cost:
            return cost
    return None


def _bits(mask: int) -> Iterator[int]:
    """Yield the places of the ones.

    >>> list(_bits(0b1010))
    [1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _volume(clique: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in clique)
