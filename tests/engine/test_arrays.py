"""Rows of codes in memory, counted against brute force over people."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Integer, Real, Unit, Unknown
from sfumato.domain.predicate import All, Among, Any, Not, Predicate
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.exact import reveal
from sfumato.errors import TableError

DOMAIN = Domain(
    (
        Integer(name="a", minimum=-1, maximum=1, unknown=Unknown.CATEGORY),
        Real(name="x", edges=(-2.0, 0.0, 3.0), unknown=Unknown.CLAMP, nullable=True),
    )
)
NUMBERS = st.sampled_from([-2.0, -1.5, -0.25, 0.0, 0.5, 2.5, 3.0, None])
PEOPLE = st.lists(st.tuples(st.integers(0, 3), NUMBERS, st.integers(0, 3)), max_size=12)
CONDITIONS: list[Predicate | None] = [
    None,
    Among("a", frozenset({0, 3})),
    Among("a", frozenset()),
    Not(Among("x", frozenset({1}))),
    All((Among("a", frozenset({1, 2})), Not(Among("x", frozenset({2}))))),
    Any((Among("a", frozenset({1})), Among("x", frozenset({0})))),
    All(()),
    Any(()),
]


def cell(number: float | None) -> int:
    return 2 if number is None else int(number >= 0)


def table(people) -> ArrayTable:
    codes = np.array([(a, cell(x)) for a, x, _ in people], dtype=np.int64).reshape(-1, 2)
    values = np.array([np.nan if x is None else x for _, x, _ in people], dtype=float)
    return ArrayTable(DOMAIN, codes, weights=np.array([w for *_, w in people], dtype=np.int64), values={"x": values})


def holds(where: Predicate | None, row: dict[str, int]) -> bool:
    match where:
        case None:
            return True
        case Among(attribute=name, codes=codes):
            return row[name] in codes
        case All(parts=parts):
            return all(holds(part, row) for part in parts)
        case Any(parts=parts):
            return any(holds(part, row) for part in parts)
        case Not(part=part):
            return not holds(part, row)


def counted(people, where):
    """Return all people who meet the condition, one entry per person."""
    return [(a, x) for a, x, w in people for _ in range(w) if holds(where, {"a": a, "x": cell(x)})]


@given(PEOPLE, st.sampled_from(CONDITIONS))
def test_marginals_groups_and_units_are_counts_of_people(people, where) -> None:
    kept = counted(people, where)
    both = Counter((a, cell(x)) for a, x in kept)
    one, two, none = (reveal(counts) for counts in table(people).marginals([("a",), ("x", "a"), ()], where))
    assert one.tolist() == [sum(both[a, c] for c in range(3)) for a in range(4)]
    assert two.tolist() == [both[a, c] for c, a in product(range(3), range(4))]
    assert none.tolist() == [len(kept)]
    groups = reveal(table(people).groups(("a", "x"), where))
    assert list(zip(map(tuple, groups.codes.tolist()), groups.counts.tolist(), strict=True)) == sorted(both.items())
    assert reveal(table(people).units(("a",), where)).tolist() == one.tolist()


@given(PEOPLE, st.sampled_from(CONDITIONS), st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(3, 7)]))
def test_sums_and_moments_round_half_to_even_within_the_rounded_bounds(people, where, unit) -> None:
    kept = [(a, x) for a, x in counted(people, where) if x is not None]
    low, high = round(Fraction(-2) / unit), round(Fraction(3) / unit)
    steps = [(a, min(max(round(Fraction(x) / unit), low), high)) for a, x in kept]
    found = reveal(table(people).sums("x", ("a",), unit, where))
    assert found.tolist() == [sum(k for a, k in steps if a == cell) for cell in range(4)]
    powers = reveal(table(people).moments("x", (), unit=unit, degree=2, where=where))
    assert powers.tolist() == [sum((k - low) ** power for _, k in steps) for power in range(3)]


@given(PEOPLE, st.sampled_from(CONDITIONS))
def test_bins_are_closed_on_the_left_and_the_last_on_both_sides(people, where) -> None:
    edges = (-1.5, 0.0, 2.5, 3.0)
    found = reveal(table(people).bins("x", edges, ("a",), where)).reshape(4, 3)
    for a in range(4):
        numbers = [x for other, x in counted(people, where) if other == a and x is not None]
        assert found[a].tolist() == [
            sum(-1.5 <= x < 0 for x in numbers),
            sum(0 <= x < 2.5 for x in numbers),
            sum(2.5 <= x <= 3 for x in numbers),
        ]


@given(PEOPLE)
def test_batches_and_keys_bring_everybody(people) -> None:
    encoded = table(people)
    rows = [tuple(row.values()) for batch in reveal(encoded.batches(("x", "a"))) for row in batch.to_pylist()]
    assert Counter(rows) == Counter((cell(x), a) for a, x in counted(people, None))
    keys = reveal(encoded.keys(("a",))).to_pylist()
    assert {row["a"]: row["units"] for row in keys} == Counter(
        ("-1", "0", "1", "(other)")[a] for a, _ in counted(people, None)
    )


def test_an_integer_without_bins_is_its_own_number() -> None:
    people = [(0, None, 1), (2, None, 5), (3, None, 9)]  # -1, five times 1, nine unknown
    assert reveal(table(people).sums("a", (), Fraction(1))).tolist() == [4]


def test_large_sums_are_exact() -> None:
    wide = Domain((Integer(name="a", minimum=0, maximum=(1 << 28) - 1, edges=(0,), unknown=Unknown.CLAMP),))
    weights = np.array([(1 << 30) + 1, 1], dtype=np.int64)
    values = {"a": np.array([(1 << 28) - 1.0, 1.0])}
    encoded = ArrayTable(wide, np.zeros((2, 1), dtype=np.int64), weights=weights, values=values)
    assert reveal(encoded.sums("a", (), Fraction(1))).tolist() == [((1 << 30) + 1) * ((1 << 28) - 1) + 1]


@given(PEOPLE, st.randoms())
def test_the_version_names_the_rows_in_any_order_and_nothing_else(people, random) -> None:
    shuffled = random.sample(people, len(people))
    assert table(people).version == table(shuffled).version
    for changed in ([*people, (0, 0.5, 1)], [(a, -1.5 if x == -2.0 else x, w) for a, x, w in people]):
        assert (table(changed).version == table(people).version) == (changed == people)


def test_what_does_not_fit_is_refused() -> None:
    codes = np.zeros((2, 2), dtype=np.int64)
    with pytest.raises(TableError, match="one column"):
        ArrayTable(DOMAIN, codes[:, :1])
    with pytest.raises(TableError, match="outside"):
        ArrayTable(DOMAIN, codes + 3)
    for weights in (np.array([1, -1]), np.array([0.5, 1.0]), np.array([1])):
        with pytest.raises(TableError, match="weights"):
            ArrayTable(DOMAIN, codes, weights=weights)
    with pytest.raises(TableError, match="one number a row"):
        ArrayTable(DOMAIN, codes, values={"x": np.zeros(3)})
    with pytest.raises(TableError, match="not its numbers"):
        ArrayTable(DOMAIN, codes).sums("x", (), Fraction(1))


def test_units_of_several_rows_cannot_be_counted_without_ids() -> None:
    encoded = ArrayTable(Domain(DOMAIN.attributes, unit=Unit("person", rows=2)), np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(TableError, match="ids"):
        encoded.units(())
    with pytest.raises(TableError, match="ids"):
        encoded.keys(("a",))
