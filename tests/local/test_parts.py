"""Fields, designs and counters against slow and obvious versions."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.local.randomizers.composite import Joint, Sampled
from sfumato.local.randomizers.finite_field import ProjectiveGeometry, finite_field, points, prime_of, prime_powers
from sfumato.local.randomizers.integer_table import Sampler, below, column_counts
from sfumato.local.randomizers.local_hashing import LARGEST_TALLY, LocalHash
from sfumato.local.randomizers.two_valued import (
    DirectResponse,
    Hadamard,
    Subsets,
    SubsetSelection,
    SupportDesign,
    TwoValued,
    transform,
)
from sfumato.local.randomizers.unary_encoding import CountMeanSketch, HadamardSketch, pack, symmetric
from sfumato.local.specs.frequency import Frequency, Method
from sfumato.privacy.entropy import SimulatedEntropy

DESIGNS: list[SupportDesign] = [
    DirectResponse(7),
    SubsetSelection(6, 2),
    ProjectiveGeometry(7, 2, 3),
    ProjectiveGeometry(18, 4, 3),
    Hadamard(6),
    LocalHash(9, 2),
    LocalHash(9, 3),
    LocalHash(10, 4),
    HadamardSketch(5, 4),
]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 9, 16, 25, 27])
def test_fields_obey_their_laws(size: int) -> None:
    arithmetic = finite_field(size)
    add, multiply = arithmetic.add.astype(int), arithmetic.multiply.astype(int)
    a, b, c = np.ogrid[:size, :size, :size]
    assert (add[a, add[b, c]] == add[add[a, b], c]).all()
    assert (multiply[a, multiply[b, c]] == multiply[multiply[a, b], c]).all()
    assert (multiply[a, add[b, c]] == add[multiply[a, b], multiply[a, c]]).all()
    assert (add == add.T).all()
    assert (multiply == multiply.T).all()
    assert (add[0] == np.arange(size)).all()
    assert (multiply[1] == np.arange(size)).all()
    assert all(sorted(row) == list(range(size)) for row in multiply[1:])


def test_prime_powers_are_found() -> None:
    assert prime_powers()[:12] == (2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19)
    assert [prime_of(size) for size in (6, 8, 10, 121)] == [None, 2, None, 11]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: f"{type(design).__name__}-{design.inputs}")
def test_designs_have_the_shares_that_they_state(design: SupportDesign) -> None:
    incidence = design.incidence()
    assert incidence.shape == (design.inputs, design.outputs)
    assert set(incidence.sum(axis=1)) == {int(design.share * design.outputs)}
    inside, outside = design.pair_support
    for first in range(design.inputs):
        for second in set(range(design.inputs)) - {first}:
            met = int((incidence[first] & incidence[second]).sum())
            assert met == inside * int(incidence[first].sum())
            assert int((~incidence[first] & incidence[second]).sum()) == outside * int((~incidence[first]).sum())


@pytest.mark.parametrize(
    "design", [d for d in DESIGNS if not isinstance(d, SubsetSelection)], ids=lambda d: type(d).__name__
)
def test_support_counts_are_those_of_the_incidence(design: SupportDesign) -> None:
    reports = np.random.default_rng(1).integers(0, design.outputs, 500).astype(design.layout.dtype)
    assert design.support(design.tally(reports)).tolist() == design.incidence()[:, reports].sum(axis=1).tolist()
    assert design.valid_reports(reports)
    assert not design.valid_reports(np.array([design.outputs]))


def one_by_one(design: LocalHash, reports: np.ndarray) -> list[int]:
    """Return the number of reports that support each value, value by value and digit by digit."""
    function, bucket = np.divmod(reports.astype(np.int64), design.buckets)
    values = np.arange(design.inputs)
    counts = np.zeros(design.inputs, dtype=np.int64)
    for coefficients, wanted in zip(function, bucket, strict=True):
        counts += design.hash(values, coefficients) == wanted
    return counts.tolist()


@pytest.mark.parametrize(
    ("size", "buckets"),
    [(2, 2), (9, 2), (20, 3), (64, 4), (70, 5), (50, 7), (100, 8), (700, 9), (300, 16), (630, 25), (60, 49)],
)
def test_the_transform_gives_the_integers_of_the_loop(size: int, buckets: int) -> None:
    design = LocalHash(size, buckets)
    reports = np.random.default_rng(3).integers(0, design.outputs, 400).astype(design.layout.dtype)
    reports[:9] = 0  # the function that sends every value to zero
    assert design.support(design.tally(reports)).tolist() == one_by_one(design, reports)


@pytest.mark.parametrize(("size", "buckets"), [(3000, 53), (100_000, 49), (20_000, 128), (5000, 1021)])
def test_reports_too_many_to_count_each_give_the_integers_of_the_loop(size: int, buckets: int) -> None:
    design = LocalHash(size, buckets)
    assert design.outputs > LARGEST_TALLY
    reports = np.random.default_rng(4).integers(0, design.outputs, 60).astype(design.layout.dtype)
    reports[:2] = 0
    assert design.tally(reports).tolist() == one_by_one(design, reports)


@pytest.mark.parametrize("buckets", [3, 4, 49])
def test_counts_beyond_floating_point_are_added_exactly(buckets: int) -> None:
    design = LocalHash(60, buckets)
    tally = np.zeros(design.outputs, dtype=np.int64)
    places = np.random.default_rng(5).integers(0, design.outputs, 90)
    tally[places] = np.random.default_rng(6).integers(1 << 50, 1 << 54, 90)
    expected = [int(tally[row].sum()) for row in design.incidence()]
    assert design.support(tally).tolist() == expected


@pytest.mark.parametrize("width", [2, 4, 8])
def test_sketches_support_what_their_tables_say(width: int) -> None:
    sketch = CountMeanSketch(40, width, symmetric(Fraction(1)))
    tally = np.random.default_rng(7).integers(0, 99, sketch.tally_size)
    cells = LocalHash(40, width).incidence()
    assert sketch.support(tally).tolist() == [int(tally[row].sum()) for row in cells]
    signs = HadamardSketch(40, width)
    counts = np.random.default_rng(8).integers(0, 99, signs.outputs)
    assert signs.support(counts).tolist() == [int(counts[row].sum()) for row in signs.incidence()]


def test_points_of_projective_space_are_distinct_lines() -> None:
    assert points(3, 3) == 13
    assert ProjectiveGeometry(13, 3, 3).incidence().sum() == 13 * 4


@given(st.lists(st.integers(-9, 9), min_size=8, max_size=8))
def test_the_fast_transform_is_the_hadamard_matrix(values: list[int]) -> None:
    matrix = [[(-1) ** (i & j).bit_count() for j in range(8)] for i in range(8)]
    assert transform(np.array(values)).tolist() == (np.array(matrix) @ values).tolist()


@given(st.integers(0, 600), st.integers(1, 17), st.integers(0, 2**32 - 1))
def test_bitwise_adders_count_columns(rows: int, width: int, seed: int) -> None:
    packed = np.random.default_rng(seed).integers(0, 256, (rows, width), dtype=np.uint8)
    slow = np.unpackbits(packed, axis=1, bitorder="little").sum(axis=0)
    assert column_counts(packed).tolist() == slow.tolist()


@pytest.mark.parametrize(("count", "size"), [(5, 2), (17, 3), (20, 19), (4, 0), (33, 2)])
def test_subsets_are_uniform(count: int, size: int) -> None:
    number = 200 * comb(count, size)
    drawn = Subsets(count, (size, size)).draw(np.arange(number) % 2 == 1, SimulatedEntropy(count))
    assert set(np.bitwise_count(drawn).tolist()) == {size}
    assert int(drawn.max()) < 1 << count
    seen = np.unique(drawn, return_counts=True)[1]
    assert seen.size == comb(count, size)
    assert float(((seen - 200) ** 2 / 200).sum()) < seen.size + 9.3 * (2 * seen.size) ** 0.5 + 90  # 1e-20


def test_subsets_of_the_widest_word_have_the_right_size_and_spread() -> None:
    drawn = Subsets(63, (17, 16)).draw(np.ones(40_000, dtype=np.bool_), SimulatedEntropy(9))
    bits = drawn[:, None] >> np.arange(63, dtype=np.uint64)[None, :] & np.uint64(1)
    assert (bits.sum(axis=1) == 16).all()
    share = bits.mean(axis=0)
    assert np.abs(share - 16 / 63).max() < 9.3 * (16 / 63 * 47 / 63 / 40_000) ** 0.5
    pair = (bits[:, 0] & bits[:, 62]).mean()
    assert abs(pair - 16 * 15 / (63 * 62)) < 9.3 * (0.0615 / 40_000) ** 0.5


@pytest.mark.parametrize("rows", [1, 2, 5, 300])
def test_every_bit_of_a_word_counts(rows: int) -> None:
    """Outputs next to each other, some of one word only, in every row: the words around each end of theirs."""
    random = np.random.default_rng(rows)
    small = random.integers(1, 5, (rows, 6)).tolist()
    table = [[*row[:3], (1 << 63) - sum(row[:3]), *row[3:], (1 << 63) - sum(row[3:])] for row in small]
    sampler = Sampler(table)

    class Given:
        """A source of one word, drawn in two pieces."""

        def __init__(self, word: int) -> None:
            self.pieces = [(word >> 48) * (1 + (1 << 16) + (1 << 32) + (1 << 48)), (word << 16) % (1 << 64)]

        def words(self, number: int) -> np.ndarray:
            return np.full(number, self.pieces.pop(0), dtype=np.uint64)

        def renew(self) -> None:
            raise AssertionError

    for number in {0, rows // 2, rows - 1}:
        ends = np.cumsum(np.array(table[number], dtype=object)).tolist()
        for word in sorted({0, *(end - 1 for end in ends), *ends[:-1]}):
            expected = next(output for output, end in enumerate(ends) if word < end)
            assert int(sampler.draw(np.array([number]), Given(word))[0]) == expected


@pytest.mark.parametrize(("count", "size"), [(7, 1), (15, 4), (16, 3), (31, 9), (40, 40), (47, 13), (63, 17)])
def test_each_subset_has_the_size_that_is_asked_for(count: int, size: int) -> None:
    smaller = np.random.default_rng(count).random(20_000) < 0.4
    drawn = Subsets(count, (size, size - 1)).draw(smaller, SimulatedEntropy(count))
    assert np.array_equal(np.bitwise_count(drawn), np.where(smaller, size - 1, size))
    assert int(drawn.max()) < 1 << count


@pytest.mark.parametrize(("size", "value"), [(16, 0), (16, 15), (24, 23), (40, 7), (64, 0), (64, 37), (64, 63)])
def test_reports_of_subsets_support_the_values_as_stated(size: int, value: int) -> None:
    """The true value with p, each other one with q, to 9.3 standard deviations: a false alarm in 10^20."""
    people = 60_000
    randomizer = Frequency.design(size, epsilon=1, method=Method.SS).randomizer
    reports = randomizer.draw(np.full(people, value, dtype=np.uint8), SimulatedEntropy(size + value))
    assert randomizer.valid_reports(reports)
    stated = np.full(size, randomizer.q)
    stated[value] = randomizer.p
    deviations = np.abs(randomizer.tally(reports) / people - stated) / np.sqrt(stated * (1 - stated) / people)
    assert deviations.max() < 9.3


def test_hashes_of_digits_and_of_tables_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    design = LocalHash(100, 5)
    codes, functions = np.arange(100)[:, None], np.arange(design.functions)[None, :]
    looked_up = design.hash(codes, functions)
    monkeypatch.setattr("sfumato.local.randomizers.local_hashing.LARGEST_LOOKUP", 0)
    assert (looked_up == LocalHash(100, 5).hash(codes, functions)).all()


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 63, 256, 257])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_bits_are_packed_row_by_row(rows: int, width: int) -> None:
    bits = np.random.default_rng(width).random((rows, width)) < 0.5
    expected = np.packbits(bits, axis=1, bitorder="little")
    found = pack(bits)
    assert np.array_equal(found.reshape(expected.shape), expected)
    assert found.ndim == (1 if width <= 8 else 2)


def test_the_report_of_a_part_is_its_own_persons() -> None:
    """At an epsilon of 32 a thousand reports are all right but for one test in 10^8."""
    parts = tuple(Frequency.design(size, epsilon=32, method=Method.GRR).randomizer for size in (5, 300, 70))
    random = np.random.default_rng(2)
    codes = np.stack([random.integers(0, part.inputs, 1000) for part in parts], axis=1)
    chosen = random.integers(0, 3, 1000)
    reports = Sampled(parts).address(chosen, codes, SimulatedEntropy(1))
    assert reports.shape == (1000, 3)
    assert np.array_equal(reports[:, 0], chosen)
    assert np.array_equal(reports[:, 1] + 256 * reports[:, 2].astype(int), codes[np.arange(1000), chosen])


@pytest.mark.parametrize(
    ("numbers", "subsets", "width"),
    [
        ((5, 7), (), 1),
        ((5, 300), (7,), 2),
        ((5,), (20,), 3),
        ((300, 70_000), (9,), 4),
        ((2,), (33,), 5),
        ((4, 300), (16, 64, 20), 8),
        ((300,), (70,), 9),
    ],
)
def test_reports_of_parts_of_all_widths_are_filled_up_with_zeros(
    numbers: tuple[int, ...], subsets: tuple[int, ...], width: int
) -> None:
    """At an epsilon of 32 numbers are reported as they are, and subsets have one member: the value."""
    parts = tuple(Frequency.design(size, epsilon=32, method=Method.GRR).randomizer for size in numbers)
    parts += tuple(Frequency.design(size, epsilon=32, method=Method.SS).randomizer for size in subsets)
    random = np.random.default_rng(3)
    codes = np.stack([random.integers(0, part.inputs, 400) for part in parts], axis=1)
    chosen = random.integers(0, len(parts), 400)
    reports = Sampled(parts).address(chosen, codes, SimulatedEntropy(1))
    assert reports.shape == (400, 1 + width)
    values = [(part, int(codes[person, part])) for person, part in enumerate(chosen.tolist())]
    expected = [part + 256 * (value if part < len(numbers) else 1 << value) for part, value in values]
    assert [int.from_bytes(report.tobytes(), "little") for report in reports] == expected


@pytest.mark.parametrize(("inputs", "size"), [(2, 1), (5, 2), (8, 7), (9, 4), (16, 5)])
@pytest.mark.parametrize("inside", [True, False])
def test_each_number_that_is_drawn_is_another_subset(monkeypatch, inputs: int, size: int, *, inside: bool) -> None:
    """Exact: the numbers below the bound that is drawn from are all subsets with, or without, the value once each."""
    design = SubsetSelection(inputs, size)
    number = comb(inputs - 1, size - inside)

    def each(_entropy: object, bounds: np.ndarray, drawn: int) -> np.ndarray:
        assert set(bounds.tolist()) == {number}
        return np.arange(drawn, dtype=np.uint32)

    monkeypatch.setattr("sfumato.local.randomizers.two_valued.below", each)
    for value in range(inputs):
        picked = design.pick(np.full(number, value), np.full(number, inside), SimulatedEntropy(0))
        assert design.valid_reports(picked)
        members = np.unpackbits(picked.reshape(number, -1), axis=1, bitorder="little")
        assert (members[:, value] == inside).all()
        assert len(np.unique(members, axis=0)) == number


@pytest.mark.parametrize(
    "parts",
    [
        (DirectResponse(7), SubsetSelection(20, 3)),
        (DirectResponse(7), SubsetSelection(12, 3)),
        (DirectResponse(3), Hadamard(300)),
    ],
)
def test_bytes_beyond_a_short_part_are_refused_and_others_counted(parts: tuple[SupportDesign, ...]) -> None:
    """The longest part has three bytes, or two, or is a number of two bytes; the other one."""
    sampled = Sampled(tuple(TwoValued.within(part, Fraction(1)) for part in parts))
    codes = np.random.default_rng(1).integers(0, 3, (200, 2))
    reports = sampled.draw(codes, SimulatedEntropy(2))
    assert sampled.valid_reports(reports)
    first, second = reports[reports[:, 0] == 0], reports[reports[:, 0] == 1]
    pieces = sampled.split(sampled.tally(reports))
    assert [count for count, _ in pieces] == [len(first), len(second)]
    assert pieces[0][1].tolist() == np.bincount(first[:, 1], minlength=parts[0].outputs).tolist()
    for place in range(2, reports.shape[1]):
        wrong = reports.copy()
        wrong[np.flatnonzero(reports[:, 0] == 0)[0], place] = 1
        assert not sampled.valid_reports(wrong)


class Scripted:
    """Words of zeros, then of a script, then of ones."""

    def __init__(self, zeros: int, script: np.ndarray) -> None:
        self._words = np.concatenate([np.zeros(zeros, dtype=np.uint64), script])

    def words(self, count: int) -> np.ndarray:
        given, self._words = self._words[:count], self._words[count:]
        return np.concatenate([given, np.full(count - given.size, (1 << 64) - 1, dtype=np.uint64)])

    def renew(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(("count", "size", "block"), [(16, 5, 0), (20, 6, 0), (20, 6, 1), (63, 17, 2), (63, 17, 3)])
def test_every_subset_of_a_block_stands_for_equally_many_draws(count: int, size: int, block: int) -> None:
    """Exact: of all 16 bits that one block can draw, those left over are drawn again, here as the last subset."""
    draws = np.zeros((1 << 16, 4), dtype="<u2")
    draws[:] = (1 << 16) - 1
    draws[:, block] = np.arange(1 << 16)
    entropy = Scripted((1 << 16) // 4, draws.view("<u8").ravel())  # zeros for one way to divide the size into blocks
    drawn = Subsets(count, (size, size)).draw(np.zeros(1 << 16, dtype=np.bool_), entropy)
    part = drawn >> np.uint64(16 * block) & np.uint64(0xFFFF)
    members = set(np.bitwise_count(part).tolist())
    assert len(members) == 1
    length = min(16, count - 16 * block)
    number = comb(length, members.pop())
    subsets, times = np.unique(part, return_counts=True)
    assert subsets.size == number > 1
    assert int(subsets.max()) < 1 << length
    even, left = divmod(1 << 16, number)
    assert sorted(times.tolist()) == [even] * (number - 1) + [even + left]


def test_what_no_way_to_divide_a_subset_takes_is_drawn_again() -> None:
    """The last of all words names no way; eight people draw it in two pieces, and then the first."""
    script = np.array([(1 << 64) - 1] * 10 + [0] * 2, dtype=np.uint64)
    drawn = Subsets(63, (17, 16)).draw(np.zeros(8, dtype=np.bool_), Scripted(0, script))
    assert np.bitwise_count(drawn).tolist() == [17] * 8


@pytest.mark.parametrize("bound", [3, 364, 4368, 40_000])
def test_every_number_below_a_short_bound_stands_for_equally_many_draws(bound: int) -> None:
    """Exact: of all 16 bits that are drawn, those left over are drawn again, here as the last number."""
    bounds = np.full(1 << 16, bound, dtype=np.uint16)
    script = np.arange(1 << 16, dtype="<u2").view("<u8")
    times = np.bincount(below(Scripted(0, script), bounds, 1 << 16))
    even, left = divmod(1 << 16, bound)
    assert times.tolist() == [even] * (bound - 1) + [even + left]


@pytest.mark.parametrize("bound", [3, 5, 6, 7])
def test_numbers_below_a_few_are_those_of_the_product_of_the_same_words(bound: int) -> None:
    """The test is exact: all 16 bits occur once, and rejected ones are redrawn as 16 bits, with one rejection."""
    script = np.concatenate([np.arange(1 << 16, dtype="<u2"), np.array([0, 9, 65_535, 1, 40_000, 7] * 4, dtype="<u2")])
    drawn = below(Scripted(0, script.view("<u8")), bound, 1 << 16)
    product = below(Scripted(0, script.view("<u8")), np.full(1 << 16, bound, dtype=np.uint16), 1 << 16)
    assert drawn.tolist() == product.tolist()
    assert np.ptp(np.bincount(drawn)) <= (1 << 16) % bound


def test_people_of_parts_are_drawn_many_at_a_time_but_not_without_end() -> None:
    part = TwoValued.within(DirectResponse(4), Fraction(1))
    assert part.chunk_size <= Sampled((part,) * 3).chunk_size == 3 * part.chunk_size
    assert Joint((part,) * 3).chunk_size == part.chunk_size
    assert Sampled((part,) * 256).chunk_size * 256 <= 1 << 23


@pytest.mark.parametrize(("inputs", "size"), [(17, 4), (40, 11), (64, 17)])
@pytest.mark.parametrize("inside", [True, False])
def test_the_value_is_a_member_as_the_coin_says_and_all_others_alike(inputs: int, size: int, *, inside: bool) -> None:
    number, others = 20_000, inputs - 1
    design = SubsetSelection(inputs, size)
    share = (size - inside) / others
    for value in {0, 1, inputs // 2, inputs - 1}:
        picked = design.pick(np.full(number, value), np.full(number, inside), SimulatedEntropy(value))
        assert design.valid_reports(picked)
        members = np.unpackbits(picked, axis=1, bitorder="little", count=inputs).mean(axis=0)
        assert members[value] == inside
        assert np.abs(np.delete(members, value) - share).max() < 9.3 * (share * (1 - share) / number) ** 0.5  # 1e-20
