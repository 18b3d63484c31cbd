"""Junction trees: how large exact inference would be, known before anything is fitted.

Cliques of measured marginals are made chordal by greedy elimination; the maximal cliques, joined by a
maximum spanning tree of their separators, form the tree (Lauritzen and Spiegelhalter 1988; Koller and
Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sfumato.errors import SizeError

Clique = tuple[str, ...]


@dataclass(frozen=True)
class JunctionTree:
    """Maximal cliques with parents before children; ``parents[i]`` is -1 for the root of a component.

    ``separators[i]`` are the attributes that clique i shares with its parent, empty for a root.
    """

    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    separators: tuple[Clique, ...]

    def cells(self, sizes: Mapping[str, int]) -> int:
        """Cells of all cliques together."""
        return sum(_volume(clique, sizes) for clique in self.cliques)

    def holder(self, attributes: Iterable[str]) -> int | None:
        """A clique with the fewest attributes that contains all of ``attributes``, or None."""
        wanted = set(attributes)
        holding = [index for index, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(holding, key=lambda index: len(self.cliques[index]), default=None)


def junction_tree(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> JunctionTree:
    """A junction tree over the attributes of ``sizes`` in which every given clique lies within one node.

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
    waiting = list(maximal)
    # Prim's algorithm on separator sizes: a maximum spanning tree of a chordal graph's cliques is a junction tree
    while waiting:
        shared, _, index, parent = max(
            (len(set(clique) & set(other)), -index, index, at)
            for index, clique in enumerate(waiting)
            for at, other in [*enumerate(order), (-1, ())]
        )
        clique = waiting.pop(index)
        parents.append(parent if shared else -1)
        separators.append(tuple(name for name in clique if shared and name in order[parent]))
        order.append(clique)
    return JunctionTree(tuple(order), tuple(parents), tuple(separators))


def maximal_cliques(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> list[frozenset[str]]:
    """Maximal cliques after triangulation; the better of greedy min-fill and greedy min-size elimination."""
    neighbours: dict[str, set[str]] = {name: set() for name in sizes}
    for clique in cliques:
        for name in clique:
            neighbours[name].update(other for other in clique if other != name)
    found = [_eliminate(neighbours, sizes, by_fill=by_fill) for by_fill in (True, False)]
    return min(found, key=lambda nodes: sum(_volume(node, sizes) for node in nodes))


def tree_cells(cliques: Sequence[Clique], sizes: Mapping[str, int]) -> int:
    """Cells that a junction tree of these cliques would have: what a cap is compared with."""
    return sum(_volume(clique, sizes) for clique in maximal_cliques(cliques, sizes))


def refuse_larger(cliques: Sequence[Clique], sizes: Mapping[str, int], cap: int) -> None:
    """Refuse cliques whose junction tree exceeds ``cap`` cells.

    Raises:
        SizeError: it does.
    """
    needed = tree_cells(cliques, sizes)
    if needed > cap:
        raise SizeError(
            f"inference over these marginals needs {needed:,} cells ({8 * needed / 2**20:,.0f} MiB a copy), "
            f"more than the cap of {cap:,}; measure fewer or smaller marginals",
            culprit=tuple(cliques),
        )


def _eliminate(neighbours: Mapping[str, set[str]], sizes: Mapping[str, int], *, by_fill: bool) -> list[frozenset[str]]:
    graph = {name: set(adjacent) for name, adjacent in neighbours.items()}
    found: list[frozenset[str]] = []
    costs = {name: _cost(graph, name, sizes, by_fill=by_fill) for name in graph}
    while graph:
        name = min(costs, key=costs.__getitem__)
        adjacent = graph.pop(name)
        del costs[name]
        node = frozenset((name, *adjacent))
        if not any(node <= other for other in found):
            found.append(node)
        touched = set(adjacent)
        for one in adjacent:
            graph[one].discard(name)
            missing = adjacent - graph[one] - {one}
            graph[one] |= missing
            if missing and by_fill:
                touched.update(*(graph[end] for end in (one, *missing)))
        for one in touched - {name}:
            costs[one] = _cost(graph, one, sizes, by_fill=by_fill)
    return found


def _cost(graph: Mapping[str, set[str]], name: str, sizes: Mapping[str, int], *, by_fill: bool) -> tuple[float, float]:
    adjacent = graph[name]
    volume = math.log(sizes[name]) + sum(math.log(sizes[other]) for other in adjacent)
    if not by_fill:
        return volume, 0.0
    fill = sum(len(adjacent - graph[one]) - 1 for one in adjacent)
    return fill, volume


def _volume(clique: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in clique)
