from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import drawn

from sfumato.anonymize.criteria.criterion import Criterion, KAnonymity
from sfumato.anonymize.criteria.diversity import DistinctDiversity, EntropyDiversity
from sfumato.anonymize.criteria.tally import ClassTally, ValueTally
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.search import lattice_search, target_proof
from sfumato.anonymize.search.lattice import Lattice, Problem, Vector
from sfumato.anonymize.search.lattice_search import least_loss
from sfumato.anonymize.search.target_proof import BucketCounts, BucketHashes, TargetProof
from sfumato.domain.hierarchy.builders import order

SIZES = (5, 2, 5, 3)
SHARES = (Fraction(1, 3), Fraction(4, 5), Fraction(99, 100), Fraction(1), Fraction(101, 100), Fraction(2))


def problem(seed: int, k: int, allowed: int, weights: tuple[float, ...], left_out: int = 0) -> Problem:
    data = drawn(np.random.default_rng(seed), tuples=30, sizes=SIZES)
    if left_out:
        data = data.without([range(left_out), (), (), ()])
    hierarchies = tuple(
        order(name, [str(code) for code in range(size)], fanout=2) for name, size in zip(data.quasi, SIZES, strict=True)
    )
    criteria = (KAnonymity(k),)
    return Problem(data=data, hierarchies=hierarchies, criteria=criteria, allowed=allowed, weights=weights)


def losses(task: Problem) -> dict[Vector, Fraction]:
    """The loss of every vector that suppresses few enough rows, by the definition, row by row."""
    (criterion,) = task.criteria
    weight = sum(map(Fraction, task.weights))
    rows = [tuple(map(int, codes)) for codes in np.repeat(task.data.codes, task.data.counts, axis=0)]
    result = {}
    for vector in itertools.product(*(range(top + 1) for top in task.heights)):
        levels = [hierarchy.levels[level] for hierarchy, level in zip(task.hierarchies, vector, strict=True)]
        published = [tuple(int(level.cells[code]) for level, code in zip(levels, row, strict=True)) for row in rows]
        sizes = Counter(published)
        suppressed, lost = task.data.excluded, weight * task.data.excluded
        for row in published:
            if sizes[row] < criterion.least_rows:
                suppressed += 1
                lost += weight
            else:
                cells = zip(task.weights, levels, row, strict=True)
                lost += sum(Fraction(each) * Fraction(float(level.losses[cell])) for each, level, cell in cells)
        if suppressed <= task.allowed:
            result[vector] = lost
    return result


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(2, 12),
    allowed=st.sampled_from([0, 8, 20, 60, 1000]),
    weights=st.sampled_from([(1.0, 1.0, 1.0, 1.0), (2.0, 0.5, 1.0, 3.0), (0.0, 1.0, 3.0, 1.0)]),
    left_out=st.sampled_from([0, 0, 1]),
    share=st.sampled_from(SHARES),
    bits=st.sampled_from([1, 3, 18]),
)
def test_a_target_is_proven_or_something_below_it_found(
    seed: int,
    k: int,
    allowed: int,
    weights: tuple[float, ...],
    left_out: int,
    share: Fraction,
    bits: int,
) -> None:
    task = problem(seed, k, allowed, weights, left_out)
    known = losses(task)
    least = min(known.values(), default=None)
    target = float(least * share) if least is not None else 1e9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_proof, "MOST_BITS", bits)  # classes that share a bucket are taken for one
        found = TargetProof(Lattice(task)).prove(target, deadline=math.inf)
    if least is None or share < 1:
        assert (found.better, found.bound) == (None, target)
    elif share > 1 and least > 0:
        assert found.better is not None
        assert float(known[found.better.vector]) == pytest.approx(found.better.loss)
        assert found.better.loss < target
    if least is not None:
        assert found.bound <= float(least) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("allowed", [0, 15, 40])
def test_a_proof_stopped_at_any_time_is_honest(seed: int, allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(seed, 6, allowed, (1.0, 1.0, 2.0, 1.0))
    least = float(min(losses(task).values()))
    bounds = []
    for looks in range(0, 60, 3):
        clock = itertools.chain([0.0] * looks, itertools.repeat(1.0))
        monkeypatch.setattr(target_proof, "monotonic", lambda clock=clock: next(clock))
        found = TargetProof(Lattice(task)).prove(least, deadline=0.5)
        assert found.better is None or found.better.loss == pytest.approx(least)
        assert found.bound <= least * (1 + 1e-12)
        bounds.append(found.bound)
    assert bounds[-1] > bounds[0]


def test_what_loses_hardly_less_than_a_target_is_found() -> None:
    for seed in range(16):
        task = problem(seed, 3, [8, 20, 60][seed % 3], (2.0, 0.5, 1.0, 3.0))
        least = float(min(losses(task).values()))
        assert TargetProof(Lattice(task)).prove(least * (1 + 1e-9), deadline=math.inf).better is not None


@pytest.mark.parametrize("allowed", [1, 2, 5])
def test_a_recoding_that_suppresses_as_many_rows_as_may_be_is_found(allowed: int) -> None:
    """Three kinds of forty rows, and others each of its own: the least is to suppress these and raise nothing."""
    kinds, alone = [(0, 0), (2, 2), (4, 4)], [(7, place) for place in range(allowed)]
    task = Problem(
        data=Microdata(
            quasi=("a", "b"), codes=np.array([*kinds, *alone]), counts=np.array([40] * len(kinds) + [1] * allowed)
        ),
        hierarchies=tuple(order(name, [str(code) for code in range(8)], fanout=2) for name in ("a", "b")),
        criteria=(KAnonymity(3),),
        allowed=allowed,
        weights=(1.0, 1.0),
    )
    least = losses(task)[0, 0]
    assert least == min(losses(task).values())
    found = TargetProof(Lattice(task)).prove(float(least) * (1 + 1e-9), deadline=math.inf).better
    assert found is not None
    assert found.vector == (0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_targets_end_at_the_least_loss_from_a_bad_start(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(seed, 5, 20, (1.0, 2.0, 1.0, 1.0))
    monkeypatch.setattr(lattice_search, "SMALL_LATTICE", 0)
    for search in ("descend", "restart"):
        monkeypatch.setattr(lattice_search.LatticeBoxes, search, lambda *_: None)
    found = least_loss(Lattice(task))
    assert found.certificate.proven
    assert found.certificate.loss == pytest.approx(float(min(losses(task).values())))


def test_what_is_ruled_out_once_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    kinds = rng.integers(0, 8, size=(6, 12))  # a row is like one of six, but for some attributes
    rows = np.where(
        rng.random((1500, 12)) < 0.08, rng.integers(0, 8, size=(1500, 12)), kinds[rng.integers(6, size=1500)]
    )
    codes, counts = np.unique(rows, axis=0, return_counts=True)
    names = tuple(f"a{number}" for number in range(12))
    task = Problem(
        data=Microdata(quasi=names, codes=codes, counts=counts),
        hierarchies=tuple(order(name, [str(code) for code in range(8)], fanout=2) for name in names),
        criteria=(KAnonymity(3),),
        allowed=30,
        weights=(1.0,) * 12,
    )
    boxes = lattice_search.LatticeBoxes(Lattice(task), None)
    boxes.dive()
    proof = TargetProof(boxes.lattice)
    assert proof.prove(0.5 * boxes.loss, deadline=math.inf).bound == 0.5 * boxes.loss
    counted = boxes.lattice.evaluated
    assert counted < 900
    assert proof.prove(0.5 * boxes.loss, deadline=math.inf).bound == 0.5 * boxes.loss
    assert boxes.lattice.evaluated < 1.05 * counted  # boxes are now other ones
    monkeypatch.setattr(TargetProof, "_raised", lambda _, vector: vector)
    plain = Lattice(task)
    assert TargetProof(plain).prove(0.5 * boxes.loss, deadline=math.inf).better is None
    assert plain.evaluated > 2 * counted


@settings(max_examples=60, deadline=None)
@given(
    vectors=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=6),
    ends=st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)] * 3),
)
def test_levels_are_left_out_that_are_ruled_out_with_all_others_at_their_highest(
    vectors: list[Vector], ends: tuple[list[int], ...]
) -> None:
    low, high = [least for least, _ in ends], [most for _, most in ends]
    ruled_out = target_proof.RuledOut((3, 3, 3))
    for vector in vectors:
        ruled_out.add(vector)

    def below(one: list[int]) -> bool:
        return any(all(a <= b for a, b in zip(one, vector, strict=True)) for vector in vectors)

    expected = [
        next((level for level in range(low[a], high[a] + 1) if not below([*high[:a], level, *high[a + 1 :]])), None)
        for a in range(3)
    ]
    assert ruled_out.least_levels(low, high) == (None if None in expected else expected)


@pytest.mark.parametrize("bits", [1, 2, 4, 18])
def test_what_is_ruled_out_suppresses_too_many_rows(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ruled_out: list[Vector] = []
    monkeypatch.setattr(target_proof, "MOST_BITS", bits)  # few: classes are taken for one
    monkeypatch.setattr(target_proof.RuledOut, "add", lambda _, vector: ruled_out.append(vector))
    for seed in range(4):
        task = problem(seed, 6, 8, (1.0, 1.0, 1.0, 1.0))
        known = losses(task)
        ruled_out.clear()
        TargetProof(Lattice(task)).prove(float(min(known.values())), deadline=math.inf)
        assert ruled_out
        assert not set(ruled_out) & set(known)


@pytest.mark.parametrize("bits", [2, 5, 18])
@pytest.mark.parametrize(
    ("allowed", "criteria"),
    [
        (12, (KAnonymity(6),)),
        (12, (KAnonymity(2), DistinctDiversity(3, "s"))),
        (0, (EntropyDiversity(1.5, "s"),)),  # of a class that holds and one that fails, both may fail
    ],
)
def test_no_more_rows_fail_in_buckets_than_do(
    bits: int, allowed: int, criteria: tuple[Criterion, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_proof, "MOST_BITS", bits)
    rng = np.random.default_rng(7)
    known = found = 0
    for seed in range(4):
        task = replace(problem(seed, 2, allowed, (1.0,) * 4), data=drawn_diverse(seed), criteria=criteria)
        lattice = Lattice(task)
        for _ in range(6):
            vector = tuple(int(rng.integers(top // 2 + 1)) for top in task.heights)
            counts = BucketCounts(BucketHashes(lattice), vector, lattice.classes(vector))
            levels = list(vector)
            for attribute in rng.permutation(4).tolist():
                levels[attribute] = int(rng.integers(levels[attribute], task.heights[attribute] + 1))
                too_many = failing_rows(task, levels) > allowed
                said = counts.too_many(attribute, levels[attribute])
                assert too_many or not said
                known, found = known + too_many, found + said
                counts.move(attribute, levels[attribute])
    assert 20 < known < 90
    if bits == 18:
        assert found == known


def drawn_diverse(seed: int) -> Microdata:
    return drawn(np.random.default_rng(seed), tuples=30, sizes=SIZES, values=4)


def failing_rows(task: Problem, levels: Sequence[int]) -> int:
    """Rows whose class does not satisfy the criteria by their definitions."""
    rows: Counter[Vector] = Counter()
    values: dict[Vector, Counter[int]] = {}
    for codes, count, histogram in zip(task.data.codes, task.data.counts, task.data.sensitive["s"], strict=True):
        cells = zip(task.hierarchies, levels, codes, strict=True)
        name = tuple(int(hierarchy.levels[level].cells[code]) for hierarchy, level, code in cells)
        rows[name] += int(count)
        values.setdefault(name, Counter()).update(dict(enumerate(histogram.tolist())))
    table = task.data.sensitive["s"].sum(axis=0).tolist()
    held = {name: ValueTally([values[name][value] for value in range(4)]) for name in rows}
    tallies = {
        name: ClassTally(count, count, None, {"s": held[name]}, {"s": ValueTally(table)}, {"s": 4})
        for name, count in rows.items()
    }
    return sum(
        tally.rows for tally in tallies.values() if not all(criterion.is_safe(tally) for criterion in task.criteria)
    )
