from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

import sfumato.anonymize.criteria
from sfumato.anonymize.criteria import CRITERIA as DECLARED
from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    EnhancedBetaLikeness,
    GroundDistance,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import CountedIn, Criterion, DeltaPresence, KAnonymity, KMap, Mask, safe
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.anonymize.criteria.n_t_closeness import NTCloseness
from sfumato.anonymize.criteria.parameters import split_optional
from sfumato.anonymize.criteria.tally import ClassTally, ValueTally
from sfumato.anonymize.release.request import parse_criterion
from sfumato.engine.port import SparseTable
from sfumato.errors import InputError

NOBODY = SparseTable(("q",), np.zeros((0, 1), dtype=np.uint8), np.zeros(0, dtype=np.int64))
CRITERIA: list[Criterion] = [
    KAnonymity(3),
    KMap(4, NOBODY),
    DeltaPresence(Fraction(1, 4), Fraction(2, 3), NOBODY),
    DistinctDiversity(2, "s"),
    EntropyDiversity(1.8, "s"),
    RecursiveDiversity(Fraction(2), 2, "s"),
    AlphaK(Fraction(1, 2), 3, "s"),
    AlphaK(Fraction(1, 3), 2, "s", code=1),
    TCloseness(0.25, "s", GroundDistance.EQUAL),
    TCloseness(0.2, "s", GroundDistance.ORDERED),
    DeltaDisclosure(1.0, "s"),
    BasicBetaLikeness(0.5, "s"),
    EnhancedBetaLikeness(2.0, "s"),
    NTCloseness(4, 0.25, "s", GroundDistance.EQUAL),
    NTCloseness(4, 0.2, "s", GroundDistance.ORDERED),
]
KINDS = [pytest.param(kind, id=kind.name) for kind in DECLARED]
VALUES: dict[object, list[object]] = {
    int: [0, 1, 2, 3, 5],
    float: [0.1, 0.25, 0.5, 1.0, 1.8],
    Fraction: [Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(2)],
    str: ["s"],
    SparseTable: [NOBODY],
}


@cache
def instances(kind: type[Criterion]) -> list[Criterion]:
    """Criteria of a class with values of all its fields, by their types alone."""
    choices: dict[str, list[object]] = {}
    for name, hint in kind.field_types.items():
        of_type, optional = split_optional(hint)
        choices[name] = [*VALUES.get(of_type, of_type), *([None] if optional else [])]
    choices["count"] = [CountedIn.UNITS]
    result = []
    for given_values in product(*choices.values()):
        with suppress(InputError):
            result.append(kind(**dict(zip(choices, given_values, strict=True))))
    return result


pairs = st.lists(st.integers(0, 4), min_size=2, max_size=2)
histograms = st.lists(st.integers(0, 4), min_size=3, max_size=3)


values = st.sampled_from([1, 2, 3])  # how many of the cells are declared values; the others: missing, unknown


def classes_of(rows: list[list[int]], overall: list[int], absent: list[int], declared: int = 3) -> Classes:
    histogram = np.array(rows)
    counts = histogram.sum(axis=1)
    people = counts + np.array(absent)
    return Classes(np.arange(len(rows)), counts, people, {"s": histogram}, {"s": np.array(overall)}, {"s": declared})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.values[0].monotone])
@given(data=st.data(), a=histograms, b=histograms, rest=histograms, outside=pairs, declared=values)
def test_two_classes_that_hold_merge_into_one_that_holds(
    kind: type[Criterion],
    data: st.DataObject,
    a: list[int],
    b: list[int],
    rest: list[int],
    outside: list[int],
    declared: int,
) -> None:
    criterion = data.draw(st.sampled_from(instances(kind)))
    union = [x + y for x, y in zip(a, b, strict=True)]
    overall = [x + y for x, y in zip(union, rest, strict=True)]
    assume(sum(union) > 0)
    parts = safe([criterion], classes_of([a, b], overall, outside, declared))
    merged = safe([criterion], classes_of([union], overall, [sum(outside)], declared))
    assert merged[0] or not parts.all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.values[0].monotone_with_suppression])
@given(data=st.data(), a=histograms, b=histograms, rest=histograms, outside=pairs, declared=values)
def test_a_class_that_holds_keeps_holding_whatever_is_merged_into_it(
    kind: type[Criterion],
    data: st.DataObject,
    a: list[int],
    b: list[int],
    rest: list[int],
    outside: list[int],
    declared: int,
) -> None:
    criterion = data.draw(st.sampled_from(instances(kind)))
    assume(sum(a) > 0)
    union = [x + y for x, y in zip(a, b, strict=True)]
    overall = [x + y for x, y in zip(union, rest, strict=True)]
    alone = safe([criterion], classes_of([a], overall, outside[:1], declared))
    merged = safe([criterion], classes_of([union], overall, [sum(outside)], declared))
    assert merged[0] or not alone[0]


@dataclass(frozen=True)
class AtMost(Criterion):
    """A criterion that declares what is false: a merge may have more than n rows."""

    n: int

    name = "at-most"
    attacker = "knows nobody"
    monotone_with_suppression = True

    def _check_values(self) -> None: ...

    def _safe_classes(self, classes: Classes) -> Mask:
        return np.asarray(classes.sizes <= self.n)

    def _is_safe(self, tally: ClassTally) -> bool:
        return tally.size < self.n


@pytest.mark.parametrize(
    "declaration",
    [
        test_two_classes_that_hold_merge_into_one_that_holds,
        test_a_class_that_holds_keeps_holding_whatever_is_merged_into_it,
    ],
)
def test_a_false_declaration_is_caught(declaration: Callable[..., None]) -> None:
    def repeated() -> None:
        for _ in range(50):  # a hundred drawn examples may miss the few that show it
            declaration(kind=AtMost)

    with pytest.raises(AssertionError):
        repeated()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), row=histograms, rest=histograms, outside=st.integers(0, 4), declared=values)
def test_search_and_recount_agree(
    kind: type[Criterion], data: st.DataObject, row: list[int], rest: list[int], outside: int, declared: int
) -> None:
    criterion = data.draw(st.sampled_from(instances(kind)))
    overall = [x + y for x, y in zip(row, rest, strict=True)]
    assume(sum(overall) > 0)
    holds = bool(safe([criterion], classes_of([row], overall, [outside], declared))[0])
    assert criterion.is_safe(tally(row, overall, sum(row) + outside, declared)) is holds


def test_a_recount_that_differs_from_the_search_is_caught() -> None:
    with pytest.raises(AssertionError):
        test_search_and_recount_agree(kind=AtMost)


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


def entropy(row: list[int]) -> float:
    shares = [count / sum(row) for count in row if count]
    return -sum(p * math.log(p) for p in shares)


def slow(criterion: Criterion, row: list[int], overall: list[int], people: int, declared: int) -> bool:
    """Each definition as its authors print it, over exact shares, with all cells and with the declared ones alone."""
    size = sum(row)
    if isinstance(criterion, DeltaPresence):
        return criterion.low <= Fraction(size, max(people, 1)) <= criterion.high
    if size == 0:
        return True
    p = [Fraction(count, size) for count in row]
    q = [Fraction(count, sum(overall)) for count in overall]
    both = [(x, y) for x, y in zip(p, q, strict=True) if y]
    ways = [row, row[:declared]]

    def recursive(counts: list[int]) -> bool:
        falling = sorted(counts, reverse=True)
        return falling[0] < criterion.c * sum(falling[criterion.l - 1 :])

    def rare(counts: list[int]) -> bool:
        watched = counts if criterion.code is None else counts[criterion.code : criterion.code + 1]
        return all(count <= criterion.alpha * sum(counts) for count in watched)

    rules: dict[type, Callable[[], bool]] = {
        KAnonymity: lambda: size >= criterion.k,
        KMap: lambda: people >= criterion.k,
        DistinctDiversity: lambda: sum(count > 0 for count in row[:declared]) >= criterion.l,
        EntropyDiversity: lambda: all(sum(way) and entropy(way) >= math.log(criterion.l) - 1e-9 for way in ways),
        RecursiveDiversity: lambda: all(recursive(way) for way in ways),
        AlphaK: lambda: size >= criterion.k and all(rare(way) for way in ways),
        TCloseness: lambda: moved(p, q, ground(criterion.distance, len(p), declared)) <= criterion.t + 1e-9,
        DeltaDisclosure: lambda: all(x and abs(math.log(x / y)) < criterion.delta for x, y in both),
        BasicBetaLikeness: lambda: all((x - y) / y <= criterion.beta for x, y in both),
        EnhancedBetaLikeness: lambda: all((x - y) / y <= min(criterion.beta, -math.log(y)) + 1e-9 for x, y in both),
        NTCloseness: lambda: (
            size >= criterion.n
            or (
                sum(overall) >= criterion.n
                and moved(p, q, ground(criterion.distance, len(p), declared)) <= criterion.t + 1e-9
            )
        ),
    }
    return rules[type(criterion)]()


def ground(distance: GroundDistance, cells: int, declared: int) -> list[list[float]]:
    """Ground distance of every two cells, as it is written down."""
    far = [[float(here != there) for there in range(cells)] for here in range(cells)]
    if distance is GroundDistance.ORDERED and declared > 1:
        for here in range(declared):
            for there in range(declared):
                far[here][there] = abs(here - there) / (declared - 1)
    return far


def moved(p: list[Fraction], q: list[Fraction], far: list[list[float]]) -> float:
    """The earth mover's distance as the linear program that defines it: what goes from where to where."""
    cells = len(p)
    leaves = np.kron(np.eye(cells), np.ones(cells))
    arrives = np.kron(np.ones(cells), np.eye(cells))
    found = linprog(
        np.ravel(far),
        A_eq=np.vstack([leaves, arrives]),
        b_eq=np.array([*map(float, p), *map(float, q)]),
        method="highs",
    )
    return float(found.fun)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@given(row=histograms, rest=histograms, outside=st.integers(0, 4), declared=values)
def test_each_criterion_is_its_definition(
    criterion: Criterion, row: list[int], rest: list[int], outside: int, declared: int
) -> None:
    overall = [x + y for x, y in zip(row, rest, strict=True)]
    assume(sum(overall) > 0)
    expected = slow(criterion, row, overall, sum(row) + outside, declared)
    assert bool(safe([criterion], classes_of([row], overall, [outside], declared))[0]) == expected
    assert criterion.is_safe(tally(row, overall, sum(row) + outside, declared)) == expected


def tally(row: list[int], overall: list[int], people: int, declared: int) -> ClassTally:
    return ClassTally(sum(row), sum(row), people, {"s": ValueTally(row)}, {"s": ValueTally(overall)}, {"s": declared})


wide = st.integers(1, 5).flatmap(
    lambda declared: st.tuples(
        st.just(declared), *(st.lists(st.integers(0, 9), min_size=declared + 2, max_size=declared + 2) for _ in "pq")
    )
)


@given(wide)
def test_the_ordered_distance_is_the_least_work(given: tuple[int, list[int], list[int]]) -> None:
    """Search and recount find the same as the linear program, whatever is missing or unknown on either side."""
    declared, row, rest = given
    overall = [x + y for x, y in zip(row, rest, strict=True)]
    assume(sum(row) > 0)
    shares = [[Fraction(count, sum(counts)) for count in counts] for counts in (row, overall)]
    least = moved(shares[0], shares[1], ground(GroundDistance.ORDERED, declared + 2, declared))
    for slack, holds in ((1e-7, True), (-1e-7, False)):
        if not 0 <= least + slack <= 1:
            continue
        criterion = TCloseness(least + slack, "s", GroundDistance.ORDERED)
        assert bool(safe([criterion], classes_of([row], overall, [0], declared))[0]) is holds
        assert criterion.is_safe(tally(row, overall, sum(row), declared)) is holds


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_of_two_values_equal_and_ordered_agree(row: list[int], rest: list[int]) -> None:
    overall = [x + y for x, y in zip(row, rest, strict=True)]
    for t in (0.0, 0.1, 0.3, 0.5, 0.9):
        answers = {
            bool(safe([TCloseness(t, "s", distance)], classes_of([row], overall, [0], 2))[0])
            for distance in GroundDistance
        }
        assert len(answers) == 1


def test_unknown_and_missing_cells_do_not_stretch_the_order() -> None:
    """Two classes of ten, one all yes and one all no: that everything is disclosed is half of the mass moved."""
    everybody, ten = [10, 10, 0, 0], [10, 0, 0, 0]
    for distance in GroundDistance:
        assert not safe([TCloseness(0.49, "s", distance)], classes_of([ten], everybody, [0], 2))[0]
        assert safe([TCloseness(0.5, "s", distance)], classes_of([ten], everybody, [0], 2))[0]


def test_missing_values_do_not_make_a_class_diverse() -> None:
    """Whoever knows that the value is recorded reads it off: five of one value, five missing."""
    row = classes_of([[5, 0, 5]], [50, 50, 50], [0], 2)
    for criterion in (
        DistinctDiversity(2, "s"),
        EntropyDiversity(2, "s"),
        RecursiveDiversity(Fraction(2), 2, "s"),
        AlphaK(Fraction(1, 2), 2, "s"),
        AlphaK(Fraction(1, 2), 2, "s", code=0),
    ):
        assert not safe([criterion], row)[0], criterion
        assert not criterion.is_safe(tally([5, 0, 5], [50, 50, 50], 10, 2)), criterion


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if c.population is None], ids=str)
def test_spelling_is_read_back(criterion: Criterion) -> None:
    assert parse_criterion(criterion.spell()) == criterion


def test_every_criterion_is_in_the_tuple_with_a_test_and_a_line_of_the_docs() -> None:
    for path in Path(sfumato.anonymize.criteria.__file__).parent.glob("*.py"):
        import_module(f"sfumato.anonymize.criteria.{path.stem}")
    own = {kind for kind in Criterion.__subclasses__() if kind.__module__.startswith("sfumato.")}
    assert own == set(DECLARED)
    assert own == {type(criterion) for criterion in CRITERIA}, "each class has a definition to compare with"
    here, page = Path(__file__).parent, Path(__file__).parents[3] / "docs" / "how-to" / "anonymize.md"
    tests = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_*.py"))
    for kind in DECLARED:
        assert f" {kind.__name__}(" in tests, f"no test makes {kind.__name__}"
        assert re.search(rf"^\| `?{kind.name}\b", page.read_text(encoding="utf-8"), flags=re.MULTILINE), kind.name


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
        parse_criterion(text)
