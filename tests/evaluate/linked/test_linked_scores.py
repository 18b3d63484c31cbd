"""The scores of families against counting by hand, and the order in which releases must stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pytest
from tests.evaluate.linked_tables import schema, write_hospital

from sfumato.evaluate.linked import linked_scores
from sfumato.evaluate.linked.linked_scores import GAP, GAPS, SIZE, LinkedPair, LinkScores, scores
from sfumato.evaluate.linked.table_tree import LinkedTable, TableTree, orders, read_table_tree


def families(folder: Path, seed: int, patients: int = 60) -> TableTree:
    return read_table_tree(write_hospital(folder, patients=patients, seed=seed), schema(), orders=orders(schema()))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableTree, TableTree]:
    place = tmp_path_factory.mktemp("hospitals")
    return families(place / "one", 1), families(place / "two", 2)


def by_hand(parent: LinkedTable, child: LinkedTable) -> list[tuple[dict[str, int], list[dict[str, int]]]]:
    """Return every family as dictionaries."""
    found: list[tuple[dict[str, int], list[dict[str, int]]]] = []
    for row in range(parent.length):
        own = [place for place in range(child.length) if child.owner[place] == row]
        children = []
        for number, place in enumerate(own):
            cells = {each.name: int(codes[place]) for each, codes in zip(child.attributes, child.codes, strict=True)}
            if child.days is not None:
                since = 0 if number == 0 else int(child.days[place] - child.days[own[number - 1]])
                cells[GAP] = 0 if number == 0 else sum(since >= edge for edge in GAPS)
            children.append(cells)
        cells = {each.name: int(codes[row]) for each, codes in zip(parent.attributes, parent.codes, strict=True)}
        found.append((cells | {SIZE: len(own)}, children))
    return found


def distance(one: Iterable[object], other: Iterable[object]) -> float:
    first, second = Counter(one), Counter(other)
    cells = set(first) | set(second)
    a, b = sum(first.values()), sum(second.values())
    return 0.5 * sum(abs(first[cell] / a - second[cell] / b) for cell in cells)


def means(real: list[object], other: list[object], pick: object, ways: Iterable[object]) -> float:
    assert callable(pick)
    return float(np.mean([distance(pick(real, way), pick(other, way)) for way in ways]))


def parents_of(every: list, names: tuple) -> list[object]:
    return [tuple(parent[name] for name in names) for parent, _ in every]


def children_of(every: list, names: tuple) -> list[object]:
    return [tuple(child[name] for name in names) for _, children in every for child in children]


def across_of(every: list, names: tuple) -> list[object]:
    high, low = names
    return [
        tuple(parent[name] for name in high) + tuple(child[name] for name in low)
        for parent, children in every
        for child in children
    ]


def siblings_of(every: list, names: tuple) -> list[object]:
    one, other = names
    return [
        (children[a][one], children[b][other])
        for _, children in every
        for a, b in product(range(len(children)), repeat=2)
        if a != b
    ]


def in_order_of(every: list, names: tuple) -> list[object]:
    return [
        tuple(child[name] for child, name in zip(children[start:], names, strict=False))
        for _, children in every
        for start in range(len(children) - len(names) + 1)
    ]


@pytest.mark.parametrize("dense", [1 << 21, 1])
def test_scores_are_those_counted_by_hand(
    two: tuple[TableTree, TableTree], dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked_scores, "_DENSE", dense)
    for (parent, child), other in zip(two[0].edges(), two[1].edges(), strict=True):
        compared = scores((parent, child), {"other": LinkedPair.from_tables(*other)}, seed=0)["other"]
        found = compared.scores
        assert float(np.mean([*compared.crosses.values()])) == pytest.approx(found.cross2)
        one, two_ = by_hand(parent, child), by_hand(*other)
        above, below = list(one[0][0]), list(next(children for _, children in one if children)[0])
        expected: dict[str, float | None] = {"size": means(one, two_, parents_of, [(SIZE,)])}
        for n in (1, 2, 3):
            for measure, pick, names in (("parent", parents_of, above), ("child", children_of, below)):
                ways = list(combinations(names, n))
                expected[f"{measure}{n}"] = means(one, two_, pick, ways) if ways else None
        expected["cross2"] = means(one, two_, across_of, [((a,), (b,)) for a in above for b in below])
        three = [((a,), pair) for a in above for pair in combinations(below, 2)]
        three += [(pair, (b,)) for pair in combinations(above, 2) for b in below]
        expected["cross3"] = means(one, two_, across_of, three)
        expected["sibling"] = means(one, two_, siblings_of, combinations_with_replacement(below, 2))
        expected["sibling_same"] = means(one, two_, siblings_of, [(name, name) for name in below])
        ordered = child.order.by is not None
        expected["transition"] = means(one, two_, in_order_of, product(below, below)) if ordered else None
        expected["trigram"] = means(one, two_, in_order_of, [(name,) * 3 for name in below]) if ordered else None
        for measure, value in expected.items():
            assert getattr(found, measure) == (None if value is None else pytest.approx(value)), measure


def test_what_is_the_same_is_not_apart(two: tuple[TableTree, TableTree]) -> None:
    for edge in two[0].edges():
        found = scores(edge, {"same": LinkedPair.from_tables(*edge)}, seed=0)["same"].scores
        assert found.worst == 0


def test_children_dealt_at_random_keep_tables_and_lose_ties(tmp_path: Path) -> None:
    real = families(tmp_path, 3, patients=800)
    edge = next(real.edges())
    truth = LinkedPair.from_tables(*edge)
    luck = np.random.default_rng(0)
    drawn = real.taken(luck.integers(0, real.units, real.units))
    others = {
        "drawn": LinkedPair.from_tables(*next(drawn.edges())),
        "dealt": truth.dealt(luck),
        "alone": truth.independent(luck),
    }
    found = {name: each.scores for name, each in scores(edge, others, seed=0).items()}
    assert found["dealt"].child3 == 0
    assert found["dealt"].size == 0
    assert found["alone"].child1 == 0
    assert value(found["alone"], "child2") > 1.5 * value(found["drawn"], "child2")
    for measure in ("cross2", "sibling_same", "transition"):
        assert value(found["dealt"], measure) > 2 * value(found["drawn"], measure), measure


def value(found: LinkScores, measure: str) -> float:
    score = getattr(found, measure)
    assert isinstance(score, float)
    return score


def test_nobody_with_three_children_has_no_trigram(two: tuple[TableTree, TableTree]) -> None:
    families = two[0]
    size = np.bincount(families["visits"].owner, minlength=families.units)
    small = families.taken(np.flatnonzero(size < 3))
    edge = next(small.edges())
    found = scores(edge, {"same": LinkedPair.from_tables(*edge)}, seed=0)["same"].scores
    assert found.trigram is None
    assert found.transition == 0


def test_a_release_without_children_is_wholly_apart(two: tuple[TableTree, TableTree]) -> None:
    families = two[0]
    size = np.bincount(families["visits"].owner, minlength=families.units)
    none = families.taken(np.flatnonzero(size == 0))
    edge = next(families.edges())
    found = scores(edge, {"none": LinkedPair.from_tables(*next(none.edges()))}, seed=0)["none"].scores
    assert (found.child1, found.sibling, found.trigram) == (1, 1, 1)


def test_many_columns_are_sampled_alike(two: tuple[TableTree, TableTree], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_scores, "_MOST", 4)
    edge, other = next(two[0].edges()), LinkedPair.from_tables(*next(two[1].edges()))
    once, again = (scores(edge, {"a": other, "b": other}, seed=1) for _ in range(2))
    assert once == again
    assert once["a"] == once["b"]
    assert len(once["a"].siblings) == 4
