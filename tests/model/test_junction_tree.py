"""The defining properties of a junction tree, over random sets of cliques, and the cell count before fitting."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.model.junction_tree import Triangulation, junction_tree, tree_cells

NAMES = tuple("abcdef")
SIZES = {name: size for size, name in enumerate(NAMES, start=2)}
CLIQUES = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple), max_size=8)


@given(CLIQUES)
def test_every_clique_lies_in_a_node_and_every_attribute_in_a_connected_subtree(cliques):
    tree = junction_tree(cliques, SIZES)
    for clique in [*cliques, *((name,) for name in NAMES)]:
        assert set(clique) <= set(tree.cliques[tree.holder(clique)])
    for index, (parent, separator) in enumerate(zip(tree.parents, tree.separators, strict=True)):
        above = set(tree.cliques[parent]) if parent >= 0 else set()
        assert set(separator) == set(tree.cliques[index]) & above
        assert parent < index
    for name in NAMES:  # running intersection: the nodes that hold an attribute have exactly one top
        tops = [name in clique and name not in sep for clique, sep in zip(tree.cliques, tree.separators, strict=True)]
        assert sum(tops) == 1


@given(CLIQUES)
def test_no_node_lies_within_another(cliques):
    nodes = [set(clique) for clique in junction_tree(cliques, SIZES).cliques]
    assert not any(one <= other for i, one in enumerate(nodes) for j, other in enumerate(nodes) if i != j)


@given(CLIQUES)
def test_the_cells_are_known_before_the_tree_is_built(cliques):
    assert tree_cells(cliques, SIZES) == junction_tree(cliques, SIZES).cells(SIZES)


def redone(cliques, sizes, by_fill):
    """Cells of a greedy elimination that looks at everything again before each step."""
    left, nodes = list(sizes), []
    graph = {name: {other for clique in cliques if name in clique for other in clique} - {name} for name in sizes}

    def cost(name):
        around = graph[name]
        fill = sum(other not in graph[one] for one in around for other in around if one != other)
        return fill if by_fill else 0, math.prod(sizes[one] for one in (name, *around)), list(sizes).index(name)

    while left:
        name = min(left, key=cost)
        left.remove(name)
        node = {name, *graph[name]}
        if not any(node <= other for other in nodes):
            nodes.append(node)
        for one in graph.pop(name):
            graph[one] = (graph[one] | node) - {one, name}
    return sum(math.prod(sizes[name] for name in node) for node in nodes)


WIDE = {f"x{place}": 2 + 7 * place % 5 for place in range(14)}
PAIRS = st.lists(st.lists(st.sampled_from([*WIDE]), min_size=2, max_size=3, unique=True).map(tuple), max_size=30)


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.lists(st.sampled_from([*WIDE]), min_size=1, max_size=4, unique=True).map(tuple))
def test_room_for_one_more_clique_is_that_of_an_elimination_redone(cliques, more):
    held, with_it = Triangulation(cliques, WIDE), [*cliques, more]
    cells = min(redone(with_it, WIDE, by_fill) for by_fill in (True, False))
    assert held.cells == min(redone(cliques, WIDE, by_fill) for by_fill in (True, False))
    assert held.fits(more, cells)
    assert not held.fits(more, cells - 1)
    assert held.adding(more).cells == cells


@pytest.mark.parametrize("seed", [3, 57, 76, 132])
def test_an_attribute_that_one_more_clique_puts_first_goes_first(seed):
    """Graphs in which an elimination that is kept too long gives other cells: two in a thousand do."""
    random = np.random.default_rng(seed)
    sizes = {f"x{place}": int(random.integers(2, 12)) for place in range(16)}
    names = [*sizes]
    cliques = [tuple(random.choice(names, 2, replace=False).tolist()) for _ in range(int(random.integers(14, 26)))]
    held = Triangulation(cliques, sizes)
    for _ in range(6):
        more = tuple(random.choice(names, int(random.integers(2, 4)), replace=False).tolist())
        cells = min(redone([*cliques, more], sizes, by_fill) for by_fill in (True, False))
        assert held.fits(more, cells)
        assert not held.fits(more, cells - 1)


def test_each_of_many_candidates_has_the_room_of_an_elimination_redone():
    """A graph as inference has them, a chain of 40 attributes with branches; all pairs of attributes are candidates."""
    random = np.random.default_rng(1)
    sizes = {f"x{place}": int(random.integers(2, 12)) for place in range(40)}
    cliques = [(f"x{place}", f"x{max(0, place - int(random.integers(1, 4)))}") for place in range(1, 40)]
    cliques += [(f"x{place}", f"x{place + 2}", f"x{place + 5}") for place in range(0, 30, 7)]
    held = Triangulation(cliques, sizes)
    needed = {pair: tree_cells([*cliques, pair], sizes) for pair in combinations(sizes, 2)}
    most = sorted(needed.values())[len(needed) // 2]
    assert {pair for pair in needed if held.fits(pair, most)} == {pair for pair in needed if needed[pair] <= most}
    for pair, cells in needed.items():
        assert held.fits(pair, cells)
        assert not held.fits(pair, cells - 1)


def brute_force(cliques):
    """Fewest cells over all elimination orders."""

    def cost(order):
        graph = {name: {o for clique in cliques if name in clique for o in clique} - {name} for name in NAMES}
        nodes = []
        for name in order:
            adjacent = graph.pop(name)
            nodes.append({name, *adjacent})
            for one in adjacent:
                graph[one] = (graph[one] | adjacent) - {one, name}
        maximal = [node for i, node in enumerate(nodes) if not any(node <= other for other in nodes[:i])]
        return sum(math.prod(SIZES[name] for name in node) for node in maximal)

    return min(cost(order) for order in permutations(NAMES))


@settings(max_examples=15, deadline=None)
@given(CLIQUES)
def test_greedy_elimination_has_at_least_the_cells_of_the_best_order(cliques):
    assert tree_cells(cliques, SIZES) >= brute_force(cliques)


def test_greedy_elimination_is_close_to_the_best_order():
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(30):
        cliques = [tuple(rng.choice(NAMES, size=rng.integers(1, 4), replace=False)) for _ in range(rng.integers(1, 9))]
        ratios.append(tree_cells(cliques, SIZES) / brute_force(cliques))
    assert np.mean(ratios) <= 1.05


def test_a_cycle_is_triangulated_and_counted():
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    sizes = dict.fromkeys("abcd", 10)
    assert tree_cells(ring, sizes) == 2000  # the cliques alone would add up to 400
