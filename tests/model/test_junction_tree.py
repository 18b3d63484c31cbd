"""The defining properties of a junction tree, over random sets of cliques, and the cell count before fitting."""

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SizeError
from sfumato.model.junction_tree import junction_tree, refuse_larger, tree_cells

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
def test_greedy_elimination_is_close_to_the_best_order(cliques):
    best = brute_force(cliques)
    assert best <= tree_cells(cliques, SIZES) <= 1.5 * best


def test_a_cycle_is_triangulated_and_counted():
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    sizes = dict.fromkeys("abcd", 10)
    assert tree_cells(ring, sizes) == 2000  # the cliques alone would add up to 400


def test_too_large_a_tree_is_refused_before_any_memory_is_taken():
    sizes = {f"x{index}": 100 for index in range(12)}
    dense = [(one, other) for one in sizes for other in sizes if one < other]
    with pytest.raises(SizeError, match="more than the cap of 1,000"):
        refuse_larger(dense, sizes, 1000)
    refuse_larger([("x0",)], sizes, 1200)
