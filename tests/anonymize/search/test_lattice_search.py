from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import counted, drawn

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.closeness import GroundDistance, TCloseness
from sfumato.anonymize.criteria.criterion import Criterion, KAnonymity
from sfumato.anonymize.criteria.diversity import DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.release.decision import loss_metric
from sfumato.anonymize.search import lattice_search
from sfumato.anonymize.search.lattice import Lattice, Problem, Vector, allowed_rows
from sfumato.anonymize.search.lattice_search import TieBreak, heuristic, least_loss, lowest_height
from sfumato.domain.hierarchy.builders import order
from sfumato.domain.hierarchy.levels import Hierarchy, read_folder
from sfumato.errors import InfeasibleError, InputError

SIZES = (5, 3, 4)


def problem(data: Microdata, criteria: tuple[Criterion, ...], allowed: int, weights: tuple[float, ...]) -> Problem:
    hierarchies = tuple(
        order(name, [str(code) for code in range(size)], fanout=2) for name, size in zip(data.quasi, SIZES, strict=True)
    )
    return Problem(data=data, hierarchies=hierarchies, criteria=criteria, allowed=allowed, weights=weights)


def brute(task: Problem, vector: Vector) -> tuple[bool, int, Fraction]:
    """Feasibility, suppressed rows and loss of one vector, row by row."""
    data = task.data
    classes: dict[tuple[int, ...], list[int]] = {}
    for number, codes in enumerate(data.codes):
        key = tuple(
            int(hierarchy.levels[level].cells[code])
            for hierarchy, level, code in zip(task.hierarchies, vector, codes, strict=True)
        )
        classes.setdefault(key, []).append(number)
    overall = {name: histogram.sum(axis=0) for name, histogram in data.sensitive.items()}
    suppressed, loss = data.excluded, Fraction(0)
    weight = sum(map(Fraction, task.weights))
    loss += weight * data.excluded
    for key, members in classes.items():
        rows = int(data.counts[members].sum())

        one = Classes(
            np.array(members[:1]),
            np.array([rows]),
            None,
            {name: histogram[members].sum(axis=0)[None] for name, histogram in data.sensitive.items()},
            overall,
        )
        if all(bool(criterion.safe_classes(one)[0]) for criterion in task.criteria):
            cells = zip(task.hierarchies, vector, key, task.weights, strict=True)
            loss += rows * sum(Fraction(w) * Fraction(float(h.levels[v].losses[c])) for h, v, c, w in cells)
        else:
            suppressed += rows
            loss += rows * weight
    return suppressed <= task.allowed, suppressed, loss


CRITERIA: list[tuple[Criterion, ...]] = [
    (KAnonymity(4),),
    (KAnonymity(9),),
    (KAnonymity(3), DistinctDiversity(2, "s")),
    (KAnonymity(3), EntropyDiversity(1.7, "s")),
    (KAnonymity(2), TCloseness(0.3, "s", GroundDistance.ORDERED)),
    (RecursiveDiversity(Fraction(2), 2, "s"),),
]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    criteria=st.sampled_from(CRITERIA),
    share=st.sampled_from(["0", "0.1", "0.3", "1"]),
    weights=st.sampled_from([(1.0, 1.0, 1.0), (2.0, 0.5, 1.0), (0.0, 1.0, 3.0)]),
    height=st.none() | st.integers(0, 7),
)
def test_optimal_is_the_least_loss_of_an_exhaustive_search(
    seed: int, criteria: tuple[Criterion, ...], share: str, weights: tuple[float, ...], height: int | None
) -> None:
    data = drawn(np.random.default_rng(seed), tuples=25, sizes=SIZES, values=3)
    task = problem(data, criteria, allowed_rows(share, data.rows), weights)
    lattice = Lattice(task)
    found = least_loss(lattice, height=height)
    vectors = [
        vector
        for vector in itertools.product(*(range(top + 1) for top in task.heights))
        if height in (None, sum(vector))
    ]
    judged = {vector: brute(task, vector) for vector in vectors}
    feasible = {vector: loss for vector, (good, _, loss) in judged.items() if good}
    assert found.certificate.nodes == len(vectors)
    assert found.certificate.proven
    assert found.certificate.bound == found.certificate.loss
    if not feasible:
        assert found.node is None
        return
    assert found.node is not None
    assert found.node.vector in feasible
    assert found.node.suppressed == judged[found.node.vector][1]
    assert math.isclose(found.node.loss, min(feasible.values()), abs_tol=1e-9)
    for vector in itertools.islice(vectors, 0, None, 7):
        node = lattice.evaluate(vector)
        assert (node.feasible, node.suppressed) == judged[vector][:2]
        assert node.hopeless or math.isclose(node.loss, judged[vector][2], abs_tol=1e-9)
        assert not (node.hopeless and node.feasible)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 8), allowed=st.integers(0, 10))
def test_samarati_takes_the_first_feasible_vector_of_the_lowest_height(seed: int, k: int, allowed: int) -> None:
    data = drawn(np.random.default_rng(seed), tuples=25, sizes=SIZES)
    task = problem(data, (KAnonymity(k),), allowed, (1.0, 1.0, 1.0))
    vectors = itertools.product(*(range(top + 1) for top in task.heights))
    feasible = [vector for vector in vectors if brute(task, vector)[0]]
    lowest = min(map(sum, feasible))
    low = [vector for vector in feasible if sum(vector) == lowest]
    lattice = Lattice(task)
    found = {each: lowest_height(lattice, order=each) for each in TieBreak}
    assert found[TieBreak.LEXICOGRAPHIC].vector == min(low)
    assert math.isclose(found[TieBreak.LEAST_LOSS].loss, min(brute(task, vector)[2] for vector in low), abs_tol=1e-9)
    rank = heuristic(task.heights, found[TieBreak.HEURISTIC].vector)
    assert rank == max(heuristic(task.heights, vector) for vector in low)


def test_samarati_refuses_criteria_it_could_miss_the_lowest_height_with() -> None:
    data = drawn(np.random.default_rng(0), tuples=25, sizes=SIZES, values=3)
    task = problem(data, (EntropyDiversity(1.5, "s"),), 3, (1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="monotone with suppression"):
        lowest_height(Lattice(task), order=TieBreak.LEXICOGRAPHIC)
    task = problem(data, (EntropyDiversity(1.5, "s"),), 0, (1.0, 1.0, 1.0))
    assert lowest_height(Lattice(task), order=TieBreak.LEXICOGRAPHIC) is not None


def test_when_time_is_up_the_bound_is_honest() -> None:
    data = drawn(np.random.default_rng(3), tuples=60, sizes=SIZES)
    task = problem(data, (KAnonymity(9),), 10, (1.0, 1.0, 1.0))
    least = least_loss(Lattice(task)).certificate.loss
    hurried = least_loss(Lattice(task), seconds=0.0)
    assert hurried.node is not None
    assert hurried.certificate.bound <= least <= hurried.certificate.loss


@pytest.mark.parametrize("seed", range(12))
def test_local_search_ends_where_no_step_loses_less(seed: int) -> None:
    data = drawn(np.random.default_rng(seed), tuples=60, sizes=SIZES)
    task = problem(data, (KAnonymity(6),), 12, (1.0, 2.0, 1.0))
    boxes = lattice_search.LatticeBoxes(Lattice(task), None)
    boxes.dive()
    assert boxes.best is not None
    first = boxes.best.loss
    boxes.descend(math.inf)
    found = boxes.best
    good, suppressed, loss = brute(task, found.vector)
    assert good
    assert found.suppressed == suppressed
    assert found.loss == pytest.approx(float(loss))
    assert found.loss <= first
    for steps in itertools.product((-1, 0, 1), repeat=3):
        vector = tuple(level + step for level, step in zip(found.vector, steps, strict=True))
        if sorted(steps) in ([-1, 0, 0], [-1, 0, 1]) and all(
            0 <= a <= b for a, b in zip(vector, task.heights, strict=True)
        ):
            feasible, _, least = brute(task, vector)
            assert not feasible or float(least) >= found.loss - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_the_least_loss_is_the_same_after_local_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = drawn(np.random.default_rng(seed), tuples=60, sizes=SIZES, values=3)
    # not monotone with suppression: a vector may lose little, not be ruled out, and still not be feasible
    task = problem(data, (KAnonymity(2), EntropyDiversity(1.9, sensitive="s")), 30, (1.0, 1.0, 1.0))
    plain = least_loss(Lattice(task))
    monkeypatch.setattr(lattice_search, "SMALL_LATTICE", 0)
    found = least_loss(Lattice(task))
    assert found.certificate.proven
    assert found.certificate.loss == pytest.approx(plain.certificate.loss)


def test_local_search_passes_by_what_is_not_feasible() -> None:
    for seed in range(30):
        data = drawn(np.random.default_rng(seed), tuples=60, sizes=SIZES, values=3)
        # not monotone with suppression: a vector may lose little, not be ruled out, and still not be feasible
        task = problem(data, (KAnonymity(2), EntropyDiversity(2.5, sensitive="s")), 20, (1.0, 1.0, 1.0))
        boxes = lattice_search.LatticeBoxes(Lattice(task), None)
        boxes.best = boxes.lattice.evaluate(boxes.lattice.top)
        if boxes.best.feasible:
            boxes.descend(math.inf)
            assert boxes.best.feasible


def test_local_search_finds_less_than_the_dive() -> None:
    dived = improved = 0.0
    for seed in range(20):
        data = drawn(np.random.default_rng(seed), tuples=60, sizes=SIZES)
        boxes = lattice_search.LatticeBoxes(Lattice(problem(data, (KAnonymity(9),), 20, (1.0, 2.0, 1.0))), None)
        boxes.dive()
        dived += boxes.loss
        boxes.descend(math.inf)
        boxes.restart(math.inf)
        improved += boxes.loss
    assert improved < 0.99 * dived


def test_a_huge_lattice_is_never_enumerated() -> None:
    sizes = (32,) * 12
    rng = np.random.default_rng(1)
    data = drawn(rng, tuples=300, sizes=sizes)
    hierarchies = tuple(order(name, [str(code) for code in range(32)], fanout=2) for name in data.quasi)
    task = Problem(
        data=data, hierarchies=hierarchies, criteria=(KAnonymity(5),), allowed=data.rows // 10, weights=(1.0,) * 12
    )
    found = least_loss(Lattice(task), seconds=1.0)
    assert found.certificate.nodes == 6**12
    assert found.certificate.evaluated < 100_000
    assert found.node is not None
    assert 0 < found.certificate.bound <= found.certificate.loss


def adult_problem(adult: list[dict[str, str]], hierarchies: tuple[Hierarchy, ...], k: int, allowed: int) -> Problem:
    data = counted(adult, {hierarchy.attribute: hierarchy.leaves for hierarchy in hierarchies})
    return Problem(
        data=data,
        hierarchies=hierarchies,
        criteria=(KAnonymity(k),),
        allowed=allowed,
        weights=(1.0,) * len(hierarchies),
    )


def metric(lattice: Lattice, vector: Vector) -> float:
    """LM summed over attributes in their order, as the published experiment adds it up."""
    task = lattice.problem
    classes, kept = lattice.safe_classes(vector)
    codes = task.data.codes[classes.members[kept]]
    levels = [hierarchy.levels[level] for hierarchy, level in zip(task.hierarchies, vector, strict=True)]
    cells = np.stack([level.losses[level.cells[column]] for level, column in zip(levels, codes.T, strict=True)], axis=1)
    return sum(loss_metric(classes.counts[kept], cells, int(classes.counts[~kept].sum())))


@pytest.mark.parametrize(
    ("k", "allowed", "published", "optimum"),
    [
        (10, 10, ((1, 0, 1, 2), 7, 2.0552459640316716), ((4, 0, 0, 2), 2.0)),
        (10, 20, ((1, 0, 1, 2), 7, 2.0552459640316716), ((4, 0, 0, 1), 1.11414472957)),
        (10, 30, ((0, 1, 1, 2), 27, 3.0008951661030436), ((4, 0, 0, 1), 1.11414472957)),
        (10, 40, ((0, 1, 1, 2), 27, 3.0008951661030436), ((4, 0, 0, 1), 1.11414472957)),
        (10, 50, ((0, 1, 1, 2), 27, 3.0008951661030436), ((4, 0, 0, 1), 1.11414472957)),
        (20, 20, ((1, 1, 1, 2), 7, 3.055013883930883), ((4, 0, 0, 2), 2.0)),
        (30, 20, ((1, 1, 1, 2), 7, 3.055013883930883), ((4, 0, 0, 2), 2.0)),
        (40, 20, ((4, 0, 0, 2), 0, 2.0), ((4, 0, 0, 2), 2.0)),
        (50, 20, ((4, 0, 0, 2), 0, 2.0), ((4, 0, 0, 2), 2.0)),
    ],
)
def test_the_published_samarati_table_to_the_last_digit(
    adult: list[dict[str, str]],
    four: tuple[Hierarchy, ...],
    k: int,
    allowed: int,
    published: tuple[Vector, int, float],
    optimum: tuple[Vector, float],
) -> None:
    lattice = Lattice(adult_problem(adult, four, k, allowed))
    node = lowest_height(lattice, order=TieBreak.LEXICOGRAPHIC)
    assert node is not None
    assert (node.vector, node.suppressed, metric(lattice, node.vector)) == published
    best = least_loss(lattice)
    assert best.certificate.proven
    assert best.node is not None
    assert best.node.vector == optimum[0]
    assert metric(lattice, best.node.vector) == pytest.approx(optimum[1], abs=1e-11)


@pytest.mark.parametrize(("limit", "score", "suppressed"), [("0", 0.635544, 0), ("0.02", 0.385681, 592)])
def test_nine_quasi_identifiers_score_as_arx_does(
    adult: list[dict[str, str]], shared_data: Path, limit: str, score: float, suppressed: int
) -> None:
    found = read_folder(shared_data / "adult" / "hierarchies")
    task = adult_problem(adult, tuple(found.values()), 10, allowed_rows(limit, len(adult)))
    best = least_loss(Lattice(task))
    assert best.certificate.proven
    assert best.certificate.nodes == 12_960
    assert best.certificate.evaluated < 810
    assert best.node is not None
    assert best.node.suppressed == suppressed
    assert best.node.loss / len(adult) / 9 == pytest.approx(score, abs=5e-7)


@pytest.mark.slow
@pytest.mark.parametrize("k", [5, 10])
@pytest.mark.parametrize("limit", ["0", "0.02", "0.05", "1"])
def test_nine_quasi_identifiers_against_an_exhaustive_search(
    adult: list[dict[str, str]], shared_data: Path, k: int, limit: str
) -> None:
    found = read_folder(shared_data / "adult" / "hierarchies")
    task = adult_problem(adult, tuple(found.values()), k, allowed_rows(limit, len(adult)))
    best = least_loss(Lattice(task))
    lattice = Lattice(task)
    nodes = (lattice.evaluate(vector) for vector in itertools.product(*(range(top + 1) for top in task.heights)))
    assert best.node is not None
    assert best.node.loss == pytest.approx(min(node.loss for node in nodes if node.feasible), rel=1e-12)


@pytest.mark.parametrize("share", ["-0.1", "1.01", "nan", "two", "1/0"])
def test_suppression_limits_outside_zero_to_one_are_refused(share: str) -> None:
    with pytest.raises(InputError, match="suppression limit"):
        allowed_rows(share, 10)


def test_suppression_limits_are_read_exactly() -> None:
    assert allowed_rows("0.3", 10) == 3  # as floats, 0.3 * 10 is 3 by luck and 0.29 * 100 is 28
    assert allowed_rows("0.29", 100) == 29


def test_problems_that_cannot_be_meant_are_refused() -> None:
    data = drawn(np.random.default_rng(0), tuples=25, sizes=SIZES)
    with pytest.raises(InputError, match="needs the sensitive attribute 's'"):
        problem(data, (DistinctDiversity(2, "s"),), 0, (1.0, 1.0, 1.0))
    with pytest.raises(InfeasibleError, match=f"largest k that this table can meet is {data.rows}"):
        problem(data, (KAnonymity(data.rows + 1),), 0, (1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="at least one criterion"):
        problem(data, (), 0, (1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="weights"):
        problem(data, (KAnonymity(2),), 0, (1.0, -1.0, 1.0))
