from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfumato.anonymize.classes import Classes
from sfumato.anonymize.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    Distance,
    EnhancedBetaLikeness,
    TCloseness,
)
from sfumato.anonymize.criteria import Criterion, DeltaPresence, KAnonymity, KMap, safe
from sfumato.anonymize.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.anonymize.spelling import NAMES, parse, spell
from sfumato.engine.port import Groups
from sfumato.errors import InputError

NOBODY = Groups(("q",), np.zeros((0, 1), dtype=np.uint8), np.zeros(0, dtype=np.int64))
CRITERIA: list[Criterion] = [
    KAnonymity(3),
    KMap(4, NOBODY),
    DeltaPresence(Fraction(1, 4), Fraction(2, 3), NOBODY),
    DistinctDiversity(2, "s"),
    EntropyDiversity(1.8, "s"),
    RecursiveDiversity(Fraction(2), 2, "s"),
    AlphaK(Fraction(1, 2), 3, "s"),
    AlphaK(Fraction(1, 3), 2, "s", code=1),
    TCloseness(0.25, "s", Distance.EQUAL),
    TCloseness(0.2, "s", Distance.ORDERED),
    DeltaDisclosure(1.0, "s"),
    BasicBetaLikeness(0.5, "s"),
    EnhancedBetaLikeness(2.0, "s"),
]

histograms = st.lists(st.integers(0, 4), min_size=3, max_size=3)


def classes_of(rows: list[list[int]], overall: list[int], absent: list[int]) -> Classes:
    histogram = np.array(rows)
    counts = histogram.sum(axis=1)
    return Classes(np.arange(len(rows)), counts, counts + np.array(absent), {"s": histogram}, {"s": np.array(overall)})


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if c.monotone], ids=str)
@given(a=histograms, b=histograms, rest=histograms, outside=st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_two_classes_that_hold_merge_into_one_that_holds(
    criterion: Criterion, a: list[int], b: list[int], rest: list[int], outside: list[int]
) -> None:
    union = [x + y for x, y in zip(a, b, strict=True)]
    overall = [x + y for x, y in zip(union, rest, strict=True)]
    assume(sum(union) > 0)
    parts = safe([criterion], classes_of([a, b], overall, outside))
    merged = safe([criterion], classes_of([union], overall, [sum(outside)]))
    assert merged[0] or not parts.all()


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if c.monotone_with_suppression], ids=str)
@given(a=histograms, b=histograms, rest=histograms, outside=st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_a_class_that_holds_keeps_holding_whatever_is_merged_into_it(
    criterion: Criterion, a: list[int], b: list[int], rest: list[int], outside: list[int]
) -> None:
    assume(sum(a) > 0)
    union = [x + y for x, y in zip(a, b, strict=True)]
    overall = [x + y for x, y in zip(union, rest, strict=True)]
    alone = safe([criterion], classes_of([a], overall, outside[:1]))
    merged = safe([criterion], classes_of([union], overall, [sum(outside)]))
    assert merged[0] or not alone[0]


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if not c.monotone_with_suppression], ids=str)
def test_what_is_declared_not_monotone_with_suppression_is_not(criterion: Criterion) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20_000):
        a, b, rest = rng.integers(0, 5, size=(3, 3))
        outside = rng.integers(0, 5, size=2)
        overall = (a + b + rest).tolist()
        if not a.sum() or not b.sum():
            continue
        alone = safe([criterion], classes_of([a.tolist()], overall, outside[:1].tolist()))
        merged = safe([criterion], classes_of([(a + b).tolist()], overall, [int(outside.sum())]))
        if alone[0] and not merged[0]:
            return
    pytest.fail("no class that holds was spoilt by a merge: the declaration costs search time for nothing")


def entropy(shares: list[Fraction]) -> float:
    return -sum(float(p) * math.log(p) for p in shares if p)


def slow(criterion: Criterion, row: list[int], overall: list[int], people: int) -> bool:
    """Each definition as its authors print it, over exact shares."""
    size = sum(row)
    if isinstance(criterion, DeltaPresence):
        return criterion.low <= Fraction(size, max(people, 1)) <= criterion.high
    if size == 0:
        return True
    p = [Fraction(count, size) for count in row]
    q = [Fraction(count, sum(overall)) for count in overall]
    pairs = [(x, y) for x, y in zip(p, q, strict=True) if y]
    falling = sorted(row, reverse=True)
    rules: dict[type, Callable[[], bool]] = {
        KAnonymity: lambda: size >= criterion.k,
        KMap: lambda: people >= criterion.k,
        DistinctDiversity: lambda: sum(count > 0 for count in row) >= criterion.l,
        EntropyDiversity: lambda: entropy(p) >= math.log(criterion.l) - 1e-9,
        RecursiveDiversity: lambda: falling[0] < criterion.c * sum(falling[criterion.l - 1 :]),
        AlphaK: lambda: (
            size >= criterion.k and (max(p) if criterion.code is None else p[criterion.code]) <= criterion.alpha
        ),
        TCloseness: lambda: moved(p, q, criterion.distance) <= criterion.t + 1e-9,
        DeltaDisclosure: lambda: all(x and abs(math.log(x / y)) < criterion.delta for x, y in pairs),
        BasicBetaLikeness: lambda: all((x - y) / y <= criterion.beta for x, y in pairs),
        EnhancedBetaLikeness: lambda: all((x - y) / y <= min(criterion.beta, -math.log(y)) + 1e-9 for x, y in pairs),
    }
    return rules[type(criterion)]()


def moved(p: list[Fraction], q: list[Fraction], distance: Distance) -> float:
    if distance is Distance.EQUAL:
        return float(sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2)
    carried, total = Fraction(0), Fraction(0)
    for x, y in zip(p, q, strict=True):
        carried += x - y
        total += abs(carried)
    return float(total / (len(p) - 1))


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@given(row=histograms, rest=histograms, outside=st.integers(0, 4))
def test_each_criterion_is_its_definition(criterion: Criterion, row: list[int], rest: list[int], outside: int) -> None:
    overall = [x + y for x, y in zip(row, rest, strict=True)]
    assume(sum(overall) > 0)
    fast = bool(safe([criterion], classes_of([row], overall, [outside]))[0])
    assert fast == slow(criterion, row, overall, sum(row) + outside)


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if c.population is None], ids=str)
def test_spelling_is_read_back(criterion: Criterion) -> None:
    assert parse(spell(criterion)) == criterion


def test_every_criterion_has_a_spelling() -> None:
    assert {type(criterion) for criterion in CRITERIA} == set(NAMES.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l-diversity:l=2", "no criterion 'l-diversity'"),
        ("k-anonymity:k=ten", "not of the right kind"),
        ("k-anonymity", "needs 'k'"),
        ("k-anonymity:k=3,t=1", "does not know 't'"),
        ("k-anonymity:k=0", "k must be at least 1"),
        ("t-closeness:t=1.5,sensitive=s,distance=equal", "t must lie in"),
        ("alpha-k:alpha=0,k=2,sensitive=s", "alpha must lie in"),
        ("delta-disclosure:delta=nan,sensitive=s", "delta must be positive"),
        ("k-map:k=3", "needs a population"),
        ("entropy-diversity:l=nan,sensitive=s", "l must be at least 1"),
    ],
)
def test_wrong_criteria_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text)
