"""Junction trees: the size of exact inference, known before a model is fitted.

Greedy elimination makes the cliques of measured marginals chordal.  The maximal cliques, joined by a maximum spanning
tree of their separators, form the tree (Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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


class Triangulation:
    """Two greedy eliminations that make cliques chordal: by the edges that a step adds, and by the cells of its node.

    Ties go to the first attribute.  The steps are stored, so that :meth:`fits` repeats only the steps that one more
    clique changes.
    """

    def __init__(self, cliques: Iterable[Clique], sizes: Mapping[str, int]) -> None:
        self._cliques, self._of = tuple(cliques), sizes
        self._places = {name: place for place, name in enumerate(sizes)}
        graph = [0] * len(sizes)
        for mask in map(self._mask, self._cliques):
            for place in _bits(mask):
                graph[place] |= mask & ~(1 << place)
        volumes = tuple(sizes.values())
        self._runs = tuple(_Elimination(graph, volumes, by_fill=by_fill) for by_fill in (True, False))

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
        return Triangulation((*self._cliques, clique), self._of)

    def _mask(self, clique: Clique) -> int:
        return sum(1 << self._places[name] for name in set(clique))


@dataclass(frozen=True)
class CellBudget:
    """The largest number of cells of a junction tree, and the cliques of the current tree.

    Attributes:
        held: the cliques of the tree.
        most: the largest number of cells.
        tied: cliques that were measured.
        outside: largest number of attributes of a clique that is measured even if the tree has no room for it.
    """

    held: Triangulation
    most: int
    tied: tuple[Clique, ...] = ()
    outside: int = 0

    def fits(self, clique: Clique) -> bool:
        """Return True if one more clique keeps the tree within the budget."""
        return self.held.fits(clique, self.most)

    def adding(self, clique: Clique) -> CellBudget:
        """Return the budget of the tree with one more clique."""
        return replace(self, held=self.held.adding(clique))


@dataclass
class _Step:
    """The state of an elimination.  Sets of attributes are bits of an integer.

    Attributes:
        graph: the neighbors of each remaining attribute.
        volumes: cells of an attribute with its neighbors.
        costs: costs of the remaining attributes.
        nodes: the nodes until then, with ``cells`` cells in total.
        separators: the neighbors of each eliminated attribute when it was eliminated.
        changed: attributes whose neighbors, or the edges among these, the previous step changed.
    """

    graph: list[int]
    volumes: list[int]
    costs: dict[int, _Cost]
    nodes: tuple[int, ...] = ()
    cells: int = 0
    changed: int = 0
    separators: set[int] = field(default_factory=set)

    @property
    def cost(self) -> _Cost:
        """Return the least cost, which names the attribute to eliminate."""
        return min(self.costs.values())

    def copy(self) -> _Step:
        """Return a copy that may be changed."""
        return _Step(
            list(self.graph),
            list(self.volumes),
            dict(self.costs),
            self.nodes,
            self.cells,
            separators=set(self.separators),
        )


class _Elimination:
    """A greedy elimination, step by step."""

    def __init__(self, graph: Sequence[int], sizes: Sequence[int], *, by_fill: bool) -> None:
        self._sizes, self._by_fill = sizes, by_fill
        step = _Step(
            list(graph), [size * self._cells(adjacent) for size, adjacent in zip(sizes, graph, strict=True)], {}
        )
        step.costs = {place: self._cost(place, step.graph, step.volumes[place]) for place in range(len(graph))}
        self.steps: list[_Step] = []
        while step.costs:
            self.steps.append(step)
            step = self._next(step.copy())
        self.nodes, self.cells = step.nodes, step.cells

    def fits(self, clique: int, most: int) -> bool:
        """Return True if there would be at most ``most`` cells with the edges of one more clique.

        A step does not change until an attribute of the clique is eliminated, or until an attribute whose cost the
        edges change would come first.  No step changes after the elimination has added these edges.
        """
        least: _Cost | None = None
        affected = 0
        for step in self.steps:
            graph = step.graph
            extra = {place: missing for place in _bits(clique) if (missing := clique & ~graph[place] & ~(1 << place))}
            if not extra:
                break
            if least is None or step.changed & affected:
                affected = clique
                for place, missing in extra.items():
                    for other in _bits(missing):
                        affected |= graph[place] & graph[other]
                least = min(self._with(extra, step.copy(), affected).values())
            chosen = step.cost[-1]
            if clique >> chosen & 1 or (least < step.cost and least[-1] != chosen):
                changed = step.copy()
                changed.costs |= self._with(extra, changed, affected)
                while changed.costs and changed.cells <= most:
                    changed = self._next(changed)
                return changed.cells <= most
            if affected >> chosen & 1:
                least = None  # the attribute is eliminated
        return self.cells <= most

    def _with(self, extra: Mapping[int, int], step: _Step, affected: int) -> dict[int, _Cost]:
        """Add edges to a step, and return the costs of the attributes that they affect."""
        for place, missing in extra.items():
            step.graph[place] |= missing
            step.volumes[place] *= self._cells(missing)
        return {place: self._cost(place, step.graph, step.volumes[place]) for place in _bits(affected)}

    def _next(self, step: _Step) -> _Step:
        """Eliminate the attribute of least cost; ``step`` is changed."""
        graph, volumes, costs = step.graph, step.volumes, step.costs
        chosen = min(costs.values())[-1]
        del costs[chosen]
        adjacent = graph[chosen]
        node = adjacent | 1 << chosen
        if node not in step.separators:  # else the node is within an earlier one, because separators are cliques
            step.nodes, step.cells = (*step.nodes, node), step.cells + volumes[chosen]
        step.separators.add(adjacent)
        step.changed = adjacent
        for place in _bits(adjacent):
            missing = adjacent & ~graph[place] & ~(1 << place)
            graph[place] = (graph[place] | missing) & ~(1 << chosen)
            volumes[place] = volumes[place] // self._sizes[chosen] * self._cells(missing)
            for other in _bits(missing):
                step.changed |= graph[place] & graph[other]
        for place in _bits(step.changed):
            costs[place] = self._cost(place, graph, volumes[place])
        return step

    def _cost(self, place: int, graph: Sequence[int], volume: int) -> _Cost:
        if not self._by_fill:
            return 0, volume, place
        adjacent = graph[place]
        return sum((adjacent & ~graph[other]).bit_count() - 1 for other in _bits(adjacent)), volume, place

    def _cells(self, attributes: int) -> int:
        return math.prod(self._sizes[place] for place in _bits(attributes))


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
