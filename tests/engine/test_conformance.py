"""Every engine counts the odd table like the oracle."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.hierarchy import Hierarchy, draft
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import TILES, Recode
from sfumato.errors import DomainError, InputError, QueryError, SfumatoError, SizeError, TableError
from sfumato.vault.measurables import Marginal
from sfumato.vault.mechanisms import ExactTables
from sfumato.vault.unit_measurables import Units
from sfumato.vault.value_measurables import Sum

C, D, K = Unknown.CATEGORY, Unknown.DROP, Unknown.CLAMP

WORD = Categorical(name="word", values=("a", "\u00e9", "01", "", "a\nb", 'a"b', "SS", "1"), unknown=C, nullable=True)
FLAG = Categorical(name="flag", values=(True, False), unknown=C, nullable=True)
WHOLE = Integer(name="whole", minimum=0, maximum=99, edges=(0, 5, 50), unknown=K, nullable=True)
REAL = Real(name="real", edges=(-2.5, 0.0, 0.3, 0.5, 2.5, 100.0), unknown=C, nullable=True)

ATTRIBUTES = [
    WORD,
    replace(WORD, nullable=False),
    Categorical(name="word", values=("a ", " a", "A", "e\u0301"), unknown=C),
    Categorical(name="word", values=(1, 2), unknown=C),
    Categorical(name="word", values=(True, False), unknown=C),
    Categorical(name="word", values=(*(f"w{index}" for index in range(300)), "a"), unknown=C),
    FLAG,
    replace(FLAG, unknown=D, nullable=False),
    Categorical(name="whole", values=(5, -3, (1 << 63) - 1, (1 << 53) + 1), unknown=C),
    Categorical(name="whole", values=("5", "05", "-3", "9223372036854775806"), unknown=C),
    Categorical(name="amount", values=(7, -1), unknown=C, nullable=True),
    Categorical(name="day", values=("2024-02-29", "0001-01-01"), unknown=C, nullable=True),
    WHOLE,
    Integer(name="whole", minimum=0, maximum=99, unknown=K, nullable=False),
    Integer(name="whole", minimum=-5, maximum=7, unknown=C, nullable=True),
    Integer(name="whole", minimum=-5, maximum=7, unknown=D, nullable=True),
    Integer(name="digits", minimum=0, maximum=99, unknown=C),
    Integer(name="digits", minimum=-5, maximum=50, edges=(-5, 0, 39, 40), unknown=K, nullable=True),
    Integer(name="digits", minimum=0, maximum=39, unknown=D, nullable=True),
    Integer(name="real", minimum=-1, maximum=3, unknown=C),
    REAL,
    replace(REAL, unknown=K, nullable=False),
    replace(REAL, unknown=D, nullable=False),
    Real(name="digits", edges=(-5.0, 0.0, 0.5, 39.0, 39.5), unknown=C),
    Real(name="digits", edges=(-5.0, 0.001, 0.5, 39.0, 39.5), unknown=K, nullable=True),
    Real(name="amount", edges=(-1.0, 0.1, 2.5, 1234567890123456.78), unknown=C, nullable=True),
    Real(name="whole", edges=(-3.0, 5.0, 7.0), unknown=C),
    Real(name="real", edges=(-0.0, 0.1, 1.0), unknown=C),
    Real(name="single", edges=(-0.0, 0.1, 0.1 + 1e-8, 16777216.0, 16777217.0, 3.5e38), unknown=C, nullable=True),
    Real(name="single", edges=(0.0, 1e-45, 2.5), unknown=K),
    Integer(name="single", minimum=0, maximum=20_000_000, edges=(0, 1, 16_777_216, 16_777_217), unknown=C),
    Integer(name="unsigned", minimum=0, maximum=100, unknown=C, nullable=True),
    Integer(name="unsigned", minimum=0, maximum=99, edges=(0, 7, 8), unknown=K),
    Real(name="unsigned", edges=(0.0, 9007199254740993.0, 9223372036854775808.0, 2.0**64), unknown=C),
    Real(name="precise", edges=(-1e-19, 0.0, 0.1, 0.30000000000000004, 7.0, 1e18), unknown=C, nullable=True),
    Integer(name="precise", minimum=-1, maximum=7, unknown=K),
    Categorical(name="word", values=("a",), unknown=D),
    Integer(name="whole", minimum=0, maximum=99, edges=(0,), unknown=K),
    Real(name="real", edges=(0.0, 8.0), unknown=K),
    Real(name="real", edges=(-2.5, 0.3, 100.0), points=(0.0, 0.3, 2.5, 100.0), unknown=C, nullable=True),
    Real(name="real", edges=(-2.5, 3.0), points=(-2.5, 1.0), unknown=D),
    Real(name="digits", edges=(-5.0, 50.0), points=(0.0, 39.0), unknown=K, nullable=True),
    Real(name="whole", edges=(-3.0, 99.0), points=(0.0, 99.0), unknown=C),
    Real(name="single", edges=(-1.0, 3.5e38), points=(0.0, 2.5, 16777216.0), unknown=C),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: f"{attribute.name}-{attribute.unknown}")
def test_each_odd_value_falls_into_its_cell(table, adapter, oracle, rows, attribute):
    domain = Domain((attribute,))
    expected = oracle(domain, adapter.seen(rows))
    encoded = table.encode(domain)
    counts = [reveal(exact) for exact in encoded.marginals([(attribute.name,), ()])]
    assert counts[0].dtype == np.int64
    np.testing.assert_array_equal(counts[0], expected.marginal([attribute.name]))
    np.testing.assert_array_equal(counts[1], [len(expected.codes)])


POINTS = [
    ("real", (0.0, 0.3, 2.5, 100.0), (-2.5, 100.0)),
    ("wild", (0.0, 0.25, 1.0), (0.0, 1.0)),  # next to 5e-324, the next double after 0
    ("amount", (-1.0, 0.1, 2.5, 7.0), (-1.0, 10.0)),
    ("precise", (0.1, 7.0), (-1.0, 1e6)),
    ("whole", (0.0, 5.0, 99.0), (-5.0, 100.0)),
]


@pytest.mark.parametrize(("name", "points", "edges"), POINTS, ids=[name for name, *_ in POINTS])
def test_a_point_holds_the_rows_that_are_equal_to_it_and_no_others(table, adapter, rows, name, points, edges):
    domain = Domain((Real(name=name, edges=edges, points=points, unknown=D), replace(FLAG, nullable=True)))
    encoded, attribute = table.encode(domain), domain[name]
    numbers = [float(row[name]) for row in adapter.seen(rows) if row[name] is not None]
    numbers = [number for number in numbers if edges[0] <= number <= edges[1]]
    if adapter.text_only:  # which reads no exponents of 300 and more
        numbers = [number for number in numbers if number != 5e-324]
    counts = dict(zip(attribute.labels(), reveal(encoded.marginals([(name,)])[0]).tolist(), strict=True))
    places = sorted({*edges, *points})
    for low, high in itertools.pairwise(places):
        opening, closing = "(" if low in points else "[", "]" if high == places[-1] and high not in points else ")"
        between = [each for each in numbers if low < each < high or (each == low and opening == "[")]
        between += [each for each in numbers if each == high and closing == "]"]
        assert counts.pop(f"{opening}{low}, {high}{closing}") == len(between)
    assert counts == {str(point): numbers.count(point) for point in points}
    equal = [code for code in range(attribute.declared) if attribute.labels()[code] == str(points[-1])]
    where = Among(name, frozenset(equal))
    total = reveal(encoded.sums(name, (), Fraction(1, 10), where))
    assert total.tolist() == [numbers.count(points[-1]) * round(Fraction(points[-1]) * 10)]
    assert reveal(encoded.marginals([()], Not(where))[0]).tolist() == [len(numbers) - numbers.count(points[-1])]


ONE_CELL = Real(name="real", edges=(0.0, 8.0), unknown=K)


@pytest.mark.parametrize("attributes", [(ONE_CELL,), (ONE_CELL, FLAG), (FLAG, ONE_CELL)], ids=range(3))
def test_attributes_of_one_cell_have_a_version_like_any_other(table, attributes):
    domain = Domain(attributes)
    version = table.encode(domain).version
    assert version == table.encode(domain).version
    assert version != table.encode(Domain((WHOLE, *attributes))).version


@pytest.mark.parametrize("unknown", list(Unknown))
@pytest.mark.parametrize("nullable", [True, False])
def test_nan_is_missing_and_infinity_is_out_of_bounds(table, adapter, oracle, rows, unknown, nullable):
    domain = Domain((Real(name="wild", edges=(0.0, 0.25, 1.0), unknown=unknown, nullable=nullable),))
    (counts,) = table.encode(domain).marginals([("wild",)])
    np.testing.assert_array_equal(reveal(counts), oracle(domain, adapter.seen(rows)).marginal(["wild"]))


DOMAIN = Domain((WORD, FLAG, WHOLE, REAL))
SOME = Among("word", frozenset({0, 1, WORD.declared}))
CONDITIONS = [
    None,
    SOME,
    Not(SOME),  # the missing cell is in or out like any other: no third truth value
    All((SOME, Among("flag", frozenset({0, 2})))),
    Any((Not(SOME), Among("whole", frozenset({1})))),
    All(()),
    Any(()),
    Among("word", frozenset()),
    Not(Any((All((Not(SOME), Among("real", frozenset({0, 5, 6})))), Among("flag", frozenset({2}))))),
]


@pytest.fixture(scope="module")
def encoded(table):
    return table.encode(DOMAIN)


@pytest.fixture(scope="module")
def expected(adapter, oracle, rows):
    return oracle(DOMAIN, adapter.seen(rows))


@pytest.mark.parametrize("where", CONDITIONS, ids=range(len(CONDITIONS)))
def test_marginals_of_every_size(encoded, expected, where):
    cliques = [clique for size in range(5) for clique in itertools.permutations(DOMAIN.names, size)]
    found = encoded.marginals(cliques, where)
    for clique, exact in zip(cliques, found, strict=True):
        np.testing.assert_array_equal(reveal(exact), expected.marginal(clique, where))


def test_the_same_clique_twice_and_none(encoded):
    first, second = encoded.marginals([("flag",), ("flag",)])
    np.testing.assert_array_equal(reveal(first), reveal(second))
    assert encoded.marginals([]) == ()


@pytest.mark.parametrize("where", CONDITIONS, ids=range(len(CONDITIONS)))
def test_groups(encoded, expected, where):
    names = ("whole", "word", "flag")
    groups = reveal(encoded.groups(names, where))
    assert groups.attributes == names
    assert groups.codes.shape == (len(groups.counts), 3)
    assert groups.codes.dtype.kind == "u"
    assert groups.counts.dtype == np.int64
    listed = list(zip(map(tuple, groups.codes.tolist()), groups.counts.tolist(), strict=True))
    assert listed == expected.groups(names, where)


@pytest.mark.parametrize("unit", [Fraction(1), Fraction(1, 10), Fraction(1, 3), Fraction(7, 2)], ids=str)
@pytest.mark.parametrize("value", ["whole", "real"])
def test_sums_round_half_to_even(encoded, expected, value, unit):
    for by in ((), ("flag",), ("flag", "word")):
        sums = reveal(encoded.sums(value, by, unit, CONDITIONS[2]))
        assert sums.dtype == np.int64
        np.testing.assert_array_equal(sums, expected.sums(value, by, unit, CONDITIONS[2]))


def test_sums_of_an_integer_without_edges(table, adapter, oracle, rows):
    domain = Domain((Integer(name="whole", minimum=-5, maximum=7, unknown=C, nullable=True), FLAG))
    encoded, expected = table.encode(domain), oracle(domain, adapter.seen(rows))
    sums = reveal(encoded.sums("whole", ("flag",), Fraction(2)))
    np.testing.assert_array_equal(sums, expected.sums("whole", ("flag",), Fraction(2)))
    edges = [-4, 0, 6.5]
    np.testing.assert_array_equal(
        reveal(encoded.bins("whole", edges, ("flag",))), expected.bins("whole", edges, ("flag",))
    )


@pytest.mark.parametrize("edges", [[-2.5, 100.0], [0.3, 0.5, 2.5], [-1e9, 0.0, 1e9], [7, 8, 9, 10]], ids=str)
@pytest.mark.parametrize("value", ["whole", "real"])
def test_bins(encoded, expected, value, edges):
    for by in ((), ("word", "flag")):
        np.testing.assert_array_equal(reveal(encoded.bins(value, edges, by)), expected.bins(value, edges, by))


@pytest.mark.parametrize("steps", [(2,), (1, 3, 6), (5, 10)], ids=str)
def test_round_numbers(encoded, expected, steps):
    wanted = np.zeros((expected.domain["whole"].size, len(steps) + 1), dtype=np.int64)
    for (code,), index in expected.at(("whole",)):
        number = expected.values[index][expected.domain.index("whole")]
        if number is not None:
            wanted[code, max((place for place, step in enumerate(steps) if number % step == 0), default=-1)] += 1
    assert wanted.any()
    np.testing.assert_array_equal(reveal(encoded.round_numbers("whole", steps)), wanted.reshape(-1))


LARGEST = (1 << 53) - 1
SPREAD = Integer(name="whole", minimum=-LARGEST, maximum=LARGEST, edges=(-LARGEST, -3, 5, 10**15), unknown=K)


@pytest.mark.parametrize(
    "attribute",
    [
        replace(SPREAD, nullable=True),
        replace(SPREAD, name="digits", unknown=C),
        replace(SPREAD, name="unsigned", unknown=D),
        Integer(name="whole", minimum=LARGEST - 50, maximum=LARGEST, edges=(LARGEST - 50, LARGEST - 9), unknown=K),
        Integer(name="whole", minimum=-LARGEST, maximum=40 - LARGEST, unknown=K, nullable=True),
    ],
    ids=str,
)
def test_round_numbers_up_to_the_largest_integers(table, adapter, oracle, rows, attribute):
    domain, steps = Domain((attribute,)), (1, 5, 10, 10**15, 2 * 10**15)
    encoded, expected = table.encode(domain), oracle(domain, adapter.seen(rows))
    wanted = np.zeros((attribute.size, len(steps) + 1), dtype=np.int64)
    for (code,), index in expected.at((attribute.name,)):
        if (number := expected.values[index][0]) is not None:
            wanted[code, max(place for place, step in enumerate(steps) if int(number) % step == 0)] += 1
    np.testing.assert_array_equal(reveal(encoded.round_numbers(attribute.name, steps)), wanted.reshape(-1))


def test_many_bins_of_one_width(encoded, expected):
    for value, edges in (
        ("real", np.linspace(-2.5, 2.5, 401)),
        ("real", np.arange(201) * 0.1),
        ("real", [*(-2.4 + np.arange(300) * (2.9 / 300)), 0.5]),  # as a bin is divided to choose a quantile
        ("whole", range(200)),
    ):
        wanted = expected.bins(value, [float(edge) for edge in edges], ("flag",))
        np.testing.assert_array_equal(reveal(encoded.bins(value, [float(edge) for edge in edges], ("flag",))), wanted)


@pytest.mark.parametrize("value", ["whole", "real"])
def test_moments_are_sums_of_powers(encoded, expected, value):
    unit, degree, by = Fraction(1, 2), 3, ("flag",)
    least = round(Fraction(DOMAIN[value].minimum) / unit)
    wanted = np.zeros((FLAG.size, degree + 1), dtype=np.int64)
    for (flag,), index in expected.at(by, CONDITIONS[2]):
        number = expected.values[index][DOMAIN.index(value)]
        if number is not None:
            wanted[flag] += [(round(Fraction(number) / unit) - least) ** power for power in range(degree + 1)]
    found = reveal(encoded.moments(value, by, unit=unit, degree=degree, where=CONDITIONS[2]))
    np.testing.assert_array_equal(found, wanted.reshape(-1))


def test_units_are_rows_without_an_id(encoded, expected):
    np.testing.assert_array_equal(reveal(encoded.units(("flag",))), expected.marginal(["flag"]))


@pytest.mark.parametrize("column", ["person", "number"])
def test_units_are_people_with_an_id(table, adapter, oracle, rows, column):
    domain = replace(DOMAIN, unit=Unit(column, rows=1000))
    encoded, expected = table.encode(domain), oracle(domain, adapter.seen(rows))
    assert len(expected.codes) < len(oracle(DOMAIN, adapter.seen(rows)).codes), "some ids are missing"
    for by in ((), ("flag",), ("whole", "flag")):
        np.testing.assert_array_equal(reveal(encoded.units(by)), expected.units(by))
        np.testing.assert_array_equal(reveal(encoded.marginals([by])[0]), expected.marginal(by))


def test_the_whole_table_has_the_rows_that_its_domain_drops(table, adapter, rows):
    every = len(adapter.seen(rows))
    strict = Categorical(name="word", values=("nobody says this",), unknown=Unknown.DROP)
    encoded = table.encode(Domain((strict, FLAG)))
    assert reveal(encoded.marginals([()])[0]).sum() == 0
    assert reveal(encoded.rows_before_drop()) == every
    assert reveal(encoded.unbounded()) == every


def test_the_unbounded_table_has_the_rows_that_its_unit_drops(table, adapter, rows):
    """These are the rows beyond the unit's bound, and the rows without an id."""
    every = len(adapter.seen(rows))
    encoded = table.encode(replace(DOMAIN, unit=Unit("person", rows=1)))
    assert reveal(encoded.marginals([()])[0]).sum() <= reveal(encoded.rows_before_drop()) < every
    assert reveal(encoded.unbounded()) == every


def test_batches_hold_the_rows(encoded, expected):
    batches = list(reveal(encoded.batches(("flag", "real"))))
    assert all(batch.schema.names == ["flag", "real"] for batch in batches)
    assert all(batch.num_rows <= 1 << 16 for batch in batches)
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(found) == sorted(cell for cell, _ in expected.at(["flag", "real"]))
    again = [tuple(row.values()) for batch in reveal(encoded.batches(("flag", "real"))) for row in batch.to_pylist()]
    assert found == again


def test_a_table_without_matching_rows_has_empty_tallies(table):
    domain = Domain((Categorical(name="word", values=("nowhere",), unknown=D), REAL))
    encoded = table.encode(domain)
    assert [reveal(exact).tolist() for exact in encoded.marginals([("word",), ()])] == [[0], [0]]
    assert reveal(encoded.groups(("word",))).codes.shape == (0, 1)
    assert reveal(encoded.sums("real", ("word",), Fraction(1))).tolist() == [0]
    assert reveal(encoded.bins("real", [0, 1], ("word",))).tolist() == [0]
    assert list(reveal(encoded.batches(("word",)))) == [] or reveal(encoded.groups(("word",))).counts.sum() == 0


def test_version_names_the_rows_not_their_order(adapter, rows, tmp_path):
    versions = {}
    changed = [rows[0] | {"word": "A"}, *rows[1:]]
    other = [rows[0] | {"word": "a", "real": 0.51}, *rows[1:]]
    for name, some in {"same": rows[::-1], "first": rows, "changed": changed, "value": other}.items():
        folder = tmp_path / name
        folder.mkdir()
        versions[name] = adapter.open(some, folder).encode(DOMAIN).version
    assert versions["same"] == versions["first"]
    assert len(set(versions.values())) == 3
    assert all(len(version) == 64 and int(version, 16) >= 0 for version in versions.values())


def test_version_depends_on_the_domain(table):
    assert table.encode(DOMAIN).version != table.encode(DOMAIN.project(("flag", "word"))).version


def test_exact_results_are_sealed(encoded):
    (exact,) = encoded.marginals([("flag",)])
    assert repr(exact) == "<exact result, sealed>"
    with pytest.raises(TypeError):
        pickle.dumps(exact)


KEPT = Domain(
    (Categorical(name="digits", values=("39", "+5", "1e2", "-5"), unknown=C, nullable=True), FLAG, REAL),
    unit=Unit("person", rows=3),
)


def test_each_unit_keeps_at_most_its_rows(table, adapter, oracle, rows):
    encoded, expected = table.encode(KEPT), oracle(KEPT, adapter.seen(rows))
    (total,) = reveal(encoded.marginals([()])[0])
    held = {person: expected.persons.count(person) for person in set(expected.persons)}
    assert total == sum(min(count, 3) for count in held.values())
    names = KEPT.names
    all_rows = expected.marginal(names)
    kept = reveal(encoded.marginals([names])[0])
    assert (kept <= all_rows).all()
    assert reveal(encoded.units(()))[0] == len(held)


def test_dropped_rows_are_those_over_the_bound_at_most_so_many_a_unit(table, adapter, oracle, rows):
    encoded, expected = table.encode(KEPT), oracle(KEPT, adapter.seen(rows))
    over = [count - 3 for count in map(expected.persons.count, set(expected.persons)) if count > 3]
    assert len(over) > 2
    for most in (1, 5, 10**6):
        assert reveal(encoded.dropped(most)).tolist() == [sum(min(most, count) for count in over)]
    unbounded = table.encode(replace(KEPT, unit=Unit("person", rows=10**6)))
    for where in (Among("flag", frozenset({0})), Not(Among("digits", frozenset({0, 1})))):
        every, kept = (reveal(each.marginals([()], where)[0]) for each in (unbounded, encoded))
        assert reveal(encoded.dropped(10**6, where)).tolist() == (every - kept).tolist() != [0]
    assert reveal(unbounded.dropped(1)).tolist() == [0]
    with pytest.raises(QueryError):
        encoded.dropped(1, Among("flag", frozenset({9})))


def test_bounding_does_not_depend_on_order_or_on_other_units(adapter, rows, tmp_path):
    names = KEPT.names
    kept = []
    for name, some in {"all": rows, "reversed": rows[::-1]}.items():
        (tmp_path / name).mkdir()
        kept.append(reveal(adapter.open(some, tmp_path / name).encode(KEPT).marginals([names])[0]))
    np.testing.assert_array_equal(*kept)
    (tmp_path / "without").mkdir()
    (tmp_path / "alone").mkdir()
    without = [row for row in rows if row["person"] != "p3"]
    alone = [row for row in rows if row["person"] == "p3"]
    parts = [
        reveal(adapter.open(part, tmp_path / folder).encode(KEPT).marginals([names])[0])
        for folder, part in (("without", without), ("alone", alone))
    ]
    np.testing.assert_array_equal(parts[0] + parts[1], kept[0])


def test_keys_count_units_and_bound_them(table, rows):
    words = [row["word"] for row in rows if row["word"] is not None]
    found = reveal(table.encode(DOMAIN).keys(("word",)))
    assert found.column_names == ["word", "units"]
    assert dict(zip(*found.to_pydict().values(), strict=True)) == {word: words.count(word) for word in set(words)}
    bounded = reveal(table.encode(KEPT).keys(("word",)))
    people = {row["person"] for row in rows} - {None}
    assert sum(bounded["units"].to_pylist()) == 3 * len(people), "each person holds more than three words"
    pairs = reveal(table.encode(replace(KEPT, unit=Unit("person", rows=1000))).keys(("word", "flag")))
    distinct = {(row["word"], row["flag"], row["person"]) for row in rows}
    assert sum(pairs["units"].to_pylist()) == sum(None not in triple for triple in distinct)


def test_groups_are_told_apart_by_unit(table, rows):
    encoded = table.encode(KEPT)
    found = reveal(encoded.unit_groups(("flag",)))
    assert found.units is not None
    plain = reveal(encoded.groups(("flag",)))
    merged = Counter()
    for code, units in zip(found.codes[:, 0].tolist(), found.counts.tolist(), strict=True):
        merged[code] += units
    assert merged == dict(zip(plain.codes[:, 0].tolist(), plain.counts.tolist(), strict=True))
    pairs = Counter(zip(found.codes[:, 0].tolist(), found.units.tolist(), strict=True))
    assert set(pairs.values()) == {1}
    by_flag = reveal(encoded.units(("flag",)))
    assert Counter(found.codes[:, 0].tolist()) == {code: n for code, n in enumerate(by_flag.tolist()) if n}
    assert len(set(found.units.tolist())) == len({row["person"] for row in rows} - {None})
    with pytest.raises(QueryError, match="a unit of its own"):
        table.encode(DOMAIN).unit_groups(("flag",))


@pytest.mark.parametrize("by", ["row", "person"])
def test_values_held_are_counted_in_units_without_a_bound(table, rows, by):
    domain = DOMAIN if by == "row" else KEPT
    held = {(row["word"], place if by == "row" else row["person"]) for place, row in enumerate(rows)}
    expected = Counter(word for word, unit in held if word is not None and unit is not None)
    found = reveal(table.encode(domain).held("word"))
    assert dict(zip(*found.to_pydict().values(), strict=True)) == expected
    with pytest.raises(TableError):
        table.encode(domain).held("nowhere")


def test_each_row_of_a_unit_is_kept_equally_often(adapter, tmp_path, rows):
    # 6 000 people have rows "a", "a", "01", of which one counts: "a" two times in three.
    blank = dict.fromkeys(rows[0])
    people = [blank | {"person": f"q{index}", "word": word} for index in range(6000) for word in ("a", "a", "01")]
    encoded = adapter.open(people, tmp_path).encode(Domain((WORD,), unit=Unit("person", rows=1)))
    kept = reveal(encoded.marginals([("word",)])[0])
    assert kept.sum() == 6000
    assert kept[0] + kept[2] == 6000
    # A Chernoff bound: beyond 0.06 either way has probability below 1e-20 at 2/3, and below 1e-20 within it at 1/2.
    assert abs(kept[0] / 6000 - 2 / 3) < 0.06


REFUSED = [
    (lambda encoded: encoded.marginals([("word", "word")]), QueryError),
    (lambda encoded: encoded.marginals([("nothing",)]), DomainError),
    (lambda encoded: encoded.marginals([("word",)], Among("word", frozenset({99}))), QueryError),
    (lambda encoded: encoded.marginals([("word",)], Among("nothing", frozenset({0}))), DomainError),
    (lambda encoded: encoded.groups(()), QueryError),
    (lambda encoded: encoded.sums("word", (), Fraction(1)), QueryError),
    (lambda encoded: encoded.sums("real", (), Fraction(0)), QueryError),
    (lambda encoded: encoded.sums("real", (), Fraction(1, 10**9)), SizeError),
    (lambda encoded: encoded.bins("real", [1.0], ()), QueryError),
    (lambda encoded: encoded.bins("real", [1.0, 1.0], ()), QueryError),
    (lambda encoded: encoded.bins("real", [0.0, math.inf], ()), QueryError),
    (lambda encoded: encoded.bins("word", [0.0, 1.0], ()), QueryError),
    (lambda encoded: encoded.keys(()), QueryError),
    (lambda encoded: encoded.keys(("nothing",)), TableError),
]


@pytest.mark.parametrize(("ask", "error"), REFUSED, ids=range(len(REFUSED)))
def test_questions_outside_the_domain_are_refused(encoded, ask, error):
    with pytest.raises(error) as refusal:
        ask(encoded)
    assert isinstance(refusal.value, SfumatoError)
    assert "\n" not in str(refusal.value)


def test_a_table_that_would_not_fit_is_refused(table):
    wide = tuple(Integer(name=name, minimum=0, maximum=99_999, unknown=K) for name in ("whole", "number"))
    encoded = table.encode(Domain(wide))
    for ask in (lambda: encoded.marginals([("whole", "number")]), lambda: encoded.units(("whole", "number"))):
        with pytest.raises(SizeError, match="10,000,000,000 cells"):
            ask()


@pytest.mark.parametrize(
    "attribute",
    [
        Categorical(name="nothing", values=("a",), unknown=C),
        Categorical(name="Word", values=("a",), unknown=C),
    ],
    ids=["absent", "case"],
)
def test_a_column_that_is_not_there_is_refused(table, attribute):
    with pytest.raises(TableError, match="no column"):
        table.encode(Domain((attribute,)))


RECODED = Domain((FLAG, WHOLE))
LEVELS = (np.array([0, 0, 1, 1], np.uint8), np.array([0, 1, 1, 1], np.uint8))  # flag: known or not; whole: low or not


def test_full_domain_recoding_keeps_classes_and_raw_columns(table, adapter, oracle, rows):
    encoded = table.encode(RECODED)
    labels = pa.table({"flag": ["known", "unknown"], "whole": ["low", "high or missing"]})
    recode = Recode(("flag", "whole"), LEVELS, np.array([[0, 0], [1, 1]], np.uint8), labels)
    found = reveal(encoded.recoded(recode, ("word",)))
    assert found.column_names == ["flag", "whole", "word"]
    names = {(0, 0): ("known", "low"), (1, 1): ("unknown", "high or missing")}
    seen, codes = adapter.seen(rows), oracle(RECODED, adapter.seen(rows)).codes
    wanted = [
        (*names[LEVELS[0][flag], LEVELS[1][whole]], row["word"])
        for row, (flag, whole) in zip(seen, codes, strict=True)
        if (LEVELS[0][flag], LEVELS[1][whole]) in names
    ]
    assert Counter(zip(*found.to_pydict().values(), strict=True)) == Counter(wanted)
    assert list(zip(*found.to_pydict().values(), strict=True)) != wanted, "rows are shuffled"


def test_local_recoding_deals_rows_and_marks_what_is_suppressed(table, oracle, adapter, rows):
    encoded = table.encode(RECODED)
    flags = oracle(RECODED, adapter.seen(rows)).marginal(["flag"])
    identity = (np.arange(4, dtype=np.uint8),)
    labels = pa.table({"flag": ["one", "two", "rest"]})
    rows_taken = np.array([3, flags[0] - 5, 7], np.int64)
    recode = Recode(("flag",), identity, np.array([[0], [0], [1]], np.uint8), labels, rows_taken, "*")
    found = Counter(reveal(encoded.recoded(recode, ()))["flag"].to_pylist())
    assert found == {"one": 3, "two": flags[0] - 5, "rest": 7, "*": flags.sum() - flags[0] - 5}


def test_a_recoding_is_applied_to_bounded_rows(table):
    encoded = table.encode(replace(RECODED, unit=Unit("person", rows=2)))
    recode = Recode(("flag",), (np.zeros(4, np.uint8),), np.array([[0]], np.uint8), pa.table({"flag": ["any"]}))
    (rows,) = reveal(encoded.marginals([()])[0])
    assert reveal(encoded.recoded(recode, ("digits",))).num_rows == rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_recoded_rows_are_written_whole_or_not_at_all(table, tmp_path, suffix):
    encoded = table.encode(RECODED)
    recode = Recode(("flag",), (np.zeros(4, np.uint8),), np.array([[0]], np.uint8), pa.table({"flag": ['any, "x"']}))
    encoded.write_recoded(recode, ("word",), tmp_path / f"out{suffix}")
    back = open_table(tmp_path / f"out{suffix}")
    assert [column.name for column in back.schema()] == ["flag", "word"]
    (rows,) = reveal(encoded.marginals([()])[0])
    domain = Domain((Categorical(name="flag", values=('any, "x"',), unknown=C), replace(WORD, unknown=C)))
    again = back.encode(domain)
    assert reveal(again.marginals([("flag",)])[0]).tolist() == [rows, 0]
    np.testing.assert_array_equal(
        reveal(again.marginals([("word",)])[0]), reveal(table.encode(Domain((WORD,))).marginals([("word",)])[0])
    )
    for name in ("out.txt", f"nowhere/out{suffix}"):
        with pytest.raises(InputError):
            encoded.write_recoded(recode, (), tmp_path / name)
    with pytest.raises(TableError):
        encoded.write_recoded(recode, ("nothing",), tmp_path / f"other{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"out{suffix}"]


def test_a_recoding_of_another_domain_is_refused(table):
    recode = Recode(("flag",), (np.zeros(3, np.uint8),), np.array([[0]], np.uint8), pa.table({"flag": ["any"]}))
    with pytest.raises(QueryError, match="another domain"):
        table.encode(RECODED).recoded(recode, ())


def test_schema_names_columns_in_order(table, rows):
    columns = table.schema()
    assert tuple(column.name for column in columns) == tuple(rows[0])


def test_distinct_texts_are_those_of_a_column(table, rows):
    words = {row["word"] for row in rows} - {None}
    assert set(table.distinct_texts("word")) == words
    some = [*sorted(words)[:2], "no such word"]
    assert set(table.distinct_texts("word", some)) == set(some[:2])
    with pytest.raises(TableError):
        table.distinct_texts("nowhere")


def test_profile_tells_the_owner_what_is_there(table, adapter, rows):
    profiles = {profile.column.name: profile for profile in table.profile(30)}
    assert list(profiles) == list(rows[0])
    flag, whole, day, real = (profiles[name] for name in ("flag", "whole", "day", "real"))
    assert flag.column.kind == ("integer" if adapter.finite_only else "boolean")
    assert flag.values == (False, True)
    assert flag.missing == sum(row["flag"] is None for row in rows)
    assert whole.distinct == len({row["whole"] for row in rows} - {None})
    assert real.column.kind == "real"
    assert (real.minimum, real.maximum) == (-2.5, 1e299)
    assert str(day.minimum) == str(date(1, 1, 1))
    assert profiles["word"].values is not None
    assert " a" in profiles["word"].values, "the draft shows padding"
    assert table.profile(2)[2].values is None
    tiles = real.tiles
    assert tiles, "the draft cannot see where rows are"
    assert tiles == tuple(sorted(tiles))
    assert tiles[0] == real.minimum
    assert len(tiles) <= min(TILES, real.held)


def test_groups_of_a_hierarchy_hold_what_their_codes_hold(table, adapter, oracle, rows):
    """On every engine, sums over the cells of a level equal sums over its codes, and units are counted once."""
    hierarchy = draft(replace(WHOLE, edges=None))
    word = replace(WORD, values=tuple(value for value in WORD.values if value))
    words = halves([str(value) for value in word.values])
    domain = Domain(
        (word, FLAG, replace(WHOLE, edges=None)), unit=Unit("person", rows=100), hierarchies=(hierarchy, words)
    )
    exactly, expected = ExactTables(table.encode(domain)), oracle(domain, adapter.seen(rows))
    half, decade = domain.grouping("half(word)"), domain.grouping("level_2(whole)")
    by, groups = ("word", "flag", "whole"), (half.groups, None, decade.groups)
    shape = (len(half.labels), FLAG.size, len(decade.labels))
    place = [np.array(each) for each in (half.groups, range(FLAG.size), decade.groups)]
    seen = expected.at(by)
    cells = [tuple(int(codes[code]) for codes, code in zip(place, found, strict=True)) for found, _ in seen]
    counted, units, summed = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    people = set()
    for cell, (_, index) in zip(cells, seen, strict=True):
        counted[cell] += 1
        summed[cell] += int(expected.values[index][2] or 0)
        people.add((cell, expected.persons[index]))
    for cell, _ in people:
        units[cell] += 1
    found = exactly.answers(
        [Marginal(by, groups=groups), Sum("whole", by, Fraction(1), groups=groups), Units(by, groups=groups)]
    )
    for answer, right in zip(found, (counted, summed, units), strict=True):
        np.testing.assert_array_equal(answer.reshape(shape), right)


def halves(values: list[str]) -> Hierarchy:
    """Values in two halves."""
    rows = [[value, "one" if place < len(values) // 2 else "two"] for place, value in enumerate(values)]
    return Hierarchy.from_rows("word", rows, names=["half"])
