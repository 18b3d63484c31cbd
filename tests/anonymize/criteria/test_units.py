"""Criteria that count units, against their definitions over sets of units; and what of them a search may prune with."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.anonymize.criteria.test_criteria import CRITERIA, KINDS, ground, instances, moved

from sfumato.anonymize.criteria.classes import Classes, finest
from sfumato.anonymize.criteria.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    EnhancedBetaLikeness,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import Criterion, DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.anonymize.criteria.n_t_closeness import NTCloseness
from sfumato.anonymize.criteria.tally import ClassTally, ValueTally
from sfumato.anonymize.microdata import KeyClasses, Microdata, from_groups
from sfumato.anonymize.search.lattice import Problem
from sfumato.domain.hierarchy.builders import flat
from sfumato.engine.port import SparseTable

CELLS, TUPLES, UNITS = 4, 5, 6
Row = tuple[int, int, int]  # tuple, unit, sensitive value
rows = st.lists(
    st.tuples(st.integers(0, TUPLES - 1), st.integers(0, UNITS - 1), st.integers(0, CELLS - 1)), min_size=1, max_size=14
)
people = st.lists(st.tuples(st.integers(0, TUPLES - 1), st.integers(100, 108)), max_size=8)
declared = st.integers(1, CELLS)
names = st.integers(0, 2)  # of classes


def grouped(table: list[tuple[int, ...]], attributes: tuple[str, ...]) -> SparseTable:
    """Return an engine's counts: groups of equal codes and units, with the unit second in each row."""
    found, counts = np.unique(np.array(table), axis=0, return_counts=True)
    codes = np.delete(found, 1, axis=1).astype(np.uint8)
    return SparseTable(attributes, codes, counts, found[:, 1])


def microdata(table: list[Row], around: list[tuple[int, int]], values: int) -> Microdata:
    """The table within a population of its own units and of others."""
    sizes = {"q": TUPLES, "s": CELLS}
    data = from_groups(grouped(table, ("q", "s")), ("q",), sizes=sizes, declared={"s": values})
    everybody = [(tuple_, unit) for tuple_, unit, _ in table] + around
    return data.with_population(grouped(everybody, ("q",)))


def sets_of(table: list[Row]) -> dict[int, set[int]]:
    """The values of each unit."""
    held: dict[int, set[int]] = {}
    for _, unit, value in table:
        held.setdefault(unit, set()).add(value)
    return held


def dealt(held: dict[int, set[int]], values: int) -> list[int]:
    """Each unit under one value: the value that most of the units left have takes all of these, and so on."""
    result, left = [0] * values, [codes & set(range(values)) for codes in held.values()]
    left = [codes for codes in left if codes]
    while left:
        best = max(range(values), key=lambda value: (sum(value in codes for codes in left), -value))
        result[best] = sum(best in codes for codes in left)
        left = [codes for codes in left if best not in codes]
    return result


def slow(  # noqa: C901, PLR0912  (a line for each criterion)
    criterion: Criterion, part: list[Row], table: list[Row], around: int, values: int
) -> bool:
    """Apply each definition to the rows of one class and of the table; ``around`` people are in the class."""
    held, whole = sets_of(part), sets_of(table)
    size = len(held)
    if isinstance(criterion, DeltaPresence):
        return criterion.low <= Fraction(size, around) <= criterion.high if around else criterion.low == 0
    if size == 0:
        return True
    p = [Fraction(sum(value in codes for codes in held.values()), size) for value in range(CELLS)]
    q = [Fraction(sum(value in codes for codes in whole.values()), len(whole)) for value in range(CELLS)]
    split_p = [sum(Fraction(value in codes, len(codes)) for codes in held.values()) / size for value in range(CELLS)]
    split_q = [
        sum(Fraction(value in codes, len(codes)) for codes in whole.values()) / len(whole) for value in range(CELLS)
    ]
    both = [(x, y) for x, y in zip(p, q, strict=True) if y]
    ways = [dealt(held, CELLS), dealt(held, values)]
    answering = sum(any(code < values for code in codes) for codes in held.values())

    def entropy(counts: list[int]) -> float:
        return -sum(count / sum(counts) * math.log(count / sum(counts)) for count in counts if count)

    match criterion:
        case KAnonymity():
            return size >= criterion.k
        case KMap():
            return around >= criterion.k
        case DistinctDiversity():
            return sum(count > 0 for count in ways[1]) >= criterion.l
        case EntropyDiversity():
            return all(sum(way) and entropy(way) >= math.log(criterion.l) - 1e-9 for way in ways)
        case RecursiveDiversity():
            falling = [sorted(way, reverse=True) for way in ways]
            return all(way[0] < criterion.c * sum(way[criterion.l - 1 :]) for way in falling)
        case AlphaK():
            codes = range(CELLS) if criterion.code is None else [criterion.code]
            counts = [int(share * size) for share in p]
            every = all(counts[code] <= criterion.alpha * size for code in codes)
            among = all(counts[code] <= criterion.alpha * answering for code in codes if code < values)
            return size >= criterion.k and every and among
        case TCloseness():
            far = ground(criterion.distance, CELLS, values)
            return moved(split_p, split_q, far) <= criterion.t + 1e-9
        case NTCloseness():
            far = ground(criterion.distance, CELLS, values)
            return size >= criterion.n or (
                len(whole) >= criterion.n and moved(split_p, split_q, far) <= criterion.t + 1e-9
            )
        case DeltaDisclosure():
            return all(x and abs(math.log(x / y)) < criterion.delta for x, y in both)
        case BasicBetaLikeness():
            return all((x - y) / y <= criterion.beta for x, y in both)
        case EnhancedBetaLikeness():
            return all((x - y) / y <= min(criterion.beta, -math.log(y)) + 1e-9 for x, y in both)
    raise AssertionError(criterion)


def merged(data: Microdata, classes: list[int]) -> Classes:
    """The tuples of the microdata in classes, in order of their names: first the even and odd ones of each apart."""
    found, names = finest(data), np.array([classes[code] for code in data.codes[:, 0]])
    for apart in (data.codes[:, 0] % 2, None):
        step = names if apart is None else 2 * names + apart
        _, members, grouping = np.unique(step, return_index=True, return_inverse=True)
        found, names = found.merge(KeyClasses(grouping, members)), names[members]
    return found


def tally(part: list[Row], table: list[Row], around: int, values: int) -> ClassTally:
    def tallied(some: list[Row]) -> ValueTally:
        cells, several = [0] * CELLS, dict[frozenset[int], int]()
        for codes in sets_of(some).values():
            if len(codes) == 1:
                cells[min(codes)] += 1
            else:
                several[frozenset(codes)] = several.get(frozenset(codes), 0) + 1
        return ValueTally(cells, several)

    held = {"s": tallied(part)}
    return ClassTally(len(part), len(sets_of(part)), around, held, {"s": tallied(table)}, {"s": values})


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@settings(max_examples=120, deadline=None)
@given(
    table=rows, around=people, values=declared, classes=st.lists(st.integers(0, 2), min_size=TUPLES, max_size=TUPLES)
)
def test_each_criterion_over_units_is_its_definition(
    criterion: Criterion, table: list[Row], around: list[tuple[int, int]], values: int, classes: list[int]
) -> None:
    data = microdata(table, around, values)
    found = merged(data, classes)
    of_tuples = sorted({classes[code] for code in data.codes[:, 0]})
    for name, holds in zip(of_tuples, criterion.safe_classes(found).tolist(), strict=True):
        part = [row for row in table if classes[row[0]] == name]
        here = {unit for _, unit, _ in part} | {unit for tuple_, unit in around if classes[tuple_] == name}
        expected = slow(criterion, part, table, len(here), values)
        assert holds == expected
        assert criterion.is_safe(tally(part, table, len(here), values)) == expected


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(
    drawn=st.data(),
    table=rows,
    around=people,
    values=declared,
    classes=st.lists(names, min_size=TUPLES, max_size=TUPLES),
)
def test_search_and_recount_agree_over_units(
    kind: type[Criterion],
    drawn: st.DataObject,
    table: list[Row],
    around: list[tuple[int, int]],
    values: int,
    classes: list[int],
) -> None:
    criterion = drawn.draw(st.sampled_from(instances(kind)))
    data = microdata(table, around, values)
    of_tuples = sorted({classes[code] for code in data.codes[:, 0]})
    for name, holds in zip(of_tuples, criterion.safe_classes(merged(data, classes)).tolist(), strict=True):
        part = [row for row in table if classes[row[0]] == name]
        here = {unit for _, unit, _ in part} | {unit for tuple_, unit in around if classes[tuple_] == name}
        assert criterion.is_safe(tally(part, table, len(here), values)) == holds


@settings(max_examples=200, deadline=None)
@given(
    drawn=st.data(),
    table=rows,
    around=people,
    classes=st.lists(st.integers(0, 1), min_size=TUPLES, max_size=TUPLES),
)
def test_what_a_search_prunes_with_is_true_of_every_merge(
    drawn: st.DataObject, table: list[Row], around: list[tuple[int, int]], classes: list[int]
) -> None:
    """If units spread over tuples or values, only criteria that stay monotone remain for pruning."""
    data = microdata(table, around, CELLS)
    assume(data.holders >= 3)
    hierarchy = flat("q", [str(code) for code in range(TUPLES)])
    population = data.source.population if data.source else None
    assert population is not None
    small = ([each for each in instances(kind.values[0]) if each.least_rows <= data.holders] for kind in KINDS)
    one_of_each = [drawn.draw(st.sampled_from(criteria)) for criteria in small]
    criteria = tuple(
        KMap(2, population) if isinstance(each, KMap) else each
        for each in (*CRITERIA, *one_of_each)
        if not isinstance(each, DeltaPresence)
    )

    def prunable(allowed: int) -> tuple[Criterion, ...]:
        task = Problem(data=data, hierarchies=(hierarchy,), criteria=criteria, allowed=allowed, weights=(1.0,))
        return task.prunable

    parts, whole = merged(data, classes), merged(data, [0] * TUPLES)
    for criterion in prunable(len(table)):
        assert whole_holds(criterion, whole) or not criterion.safe_classes(parts)[parts.counts > 0].any(), criterion
    for criterion in prunable(0):
        assert whole_holds(criterion, whole) or not criterion.safe_classes(parts).all(), criterion
    spread = any(len({(tuple_, value) for tuple_, unit, value in table if unit == each}) > 1 for each in range(UNITS))
    if spread:
        of_any_spread = {kind.values[0] for kind in KINDS if kind.values[0].monotone_with_spread}
        assert {type(each) for each in prunable(len(table))} <= {*of_any_spread, DistinctDiversity}


def whole_holds(criterion: Criterion, whole: Classes) -> bool:
    return bool(criterion.safe_classes(whole)[0])


@pytest.mark.parametrize("criterion", [each for each in CRITERIA if not each.monotone_with_spread], ids=str)
def test_any_other_criterion_may_fail_of_a_class_made_of_two_that_hold(criterion: Criterion) -> None:
    rng = np.random.default_rng(4)
    size, values = 10, 3
    if isinstance(criterion, DeltaDisclosure):  # a share doubles at most, and no value is absent
        criterion, size, values = DeltaDisclosure(0.6, "s"), 12, 2
    for _ in range(3000):
        drawn = np.stack([rng.integers(most, size=size) for most in (3, 4, values)], axis=1)
        table: list[Row] = [tuple(row) for row in drawn.tolist()]
        around = np.stack([rng.integers(3, size=8), rng.integers(100, 104, size=8)], axis=1).tolist()
        data = microdata(table, [tuple(each) for each in around], CELLS)
        apart, together = merged(data, [0, 1, 2, 2, 2]), merged(data, [0, 0, 2, 2, 2])
        if len(apart) == 3 and criterion.safe_classes(apart)[:2].all() and not criterion.safe_classes(together)[0]:
            return
    pytest.fail("no merge spoilt two classes that hold: not to prune with it costs time for nothing")


def test_ten_patients_who_all_have_flu_and_fever_are_not_two_diverse() -> None:
    table = [(0, unit, value) for unit in range(UNITS) for value in (0, 1)]
    both = merged(microdata(table, [], CELLS), [0] * TUPLES)
    assert both.having("s").tolist() == [[UNITS, UNITS, 0, 0]]
    assert both.dealt("s")[0].tolist() == [[UNITS, 0, 0, 0]]
    for criterion in (DistinctDiversity(2, "s"), EntropyDiversity(2, "s"), AlphaK(Fraction(1, 2), 2, "s")):
        assert not criterion.safe_classes(both)[0]
