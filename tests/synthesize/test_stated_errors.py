"""The stated errors of a file hold for declared values: each value, each combination of two, the worst of them.

False alarms: statements hold with 95 %; a test of N releases allows as many misses as a binomial of N and 5 % has with
a probability of 1e-9, shared by all cells that it looks at.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.synthesize.conftest import table_of

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.model.noisy_table import NoisyTable, PooledMarginal, pooled_marginal
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import NoisyTotal, all_marginals, batched, histogram, mst, mwem, prefixes, stated_errors
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.methods.independent import independent
from sfumato.synthesize.methods.mwem import Schedule
from sfumato.synthesize.stated_errors import (
    LargestCounts,
    MeasuredColumn,
    association,
    measured_column,
    occurrences,
    pair_errors,
    tally,
    value_errors,
)
from sfumato.vault.simulated import SimulatedVault

RELEASES = 100
ALARM = 1e-9

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=23, unknown=Unknown.CLAMP),
        Categorical(name="town", values=tuple("abcdefgh"), unknown=Unknown.DROP),
        Categorical(name="married", values=("no", "yes"), unknown=Unknown.DROP),
    )
)


def people() -> np.ndarray:
    """Counts in which children are of one kind, and one rare age and one rare town stand out of their groups."""
    ages = np.r_[np.full(12, 9.0), 60.0, np.full(11, 11.0)]
    towns = np.array([400.0, 300.0, 30.0, 3.0, 2.0, 25.0, 1.0, 2.0])
    grown = np.arange(24) >= 14
    married = np.stack([np.where(grown, 0.2, 1.0), np.where(grown, 0.8, 0.0)], axis=1)
    return np.rint(
        3000 * (ages / ages.sum())[:, None, None] * (towns / towns.sum())[:, None] * married[:, None, :]
    ).astype(np.int64)


COUNTS = people()


def most_misses(trials: int, cells: int) -> int:
    """Misses that a statement of 95 % may have before it is taken for false: 1e-9 for a false alarm."""
    return int(stats.binom.isf(ALARM / cells, trials, 0.05))


@pytest.fixture(scope="module")
def releases():
    def released(seed: int):
        vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=seed)
        return mst(vault, loss=Rho("0.02"), total=PublicTotal(int(COUNTS.sum())))

    return [released(seed) for seed in range(RELEASES)]


def test_the_interval_and_the_error_of_each_declared_value_hold_of_the_worst_value(releases) -> None:
    size = sum(DOMAIN.shape)
    outside, beyond, beyond_all, grouped = np.zeros(size), np.zeros(size), np.zeros(len(DOMAIN)), 0
    for release in releases:
        start = 0
        for axis, column in enumerate(release.codebook.columns):
            exact = COUNTS.sum(axis=tuple({0, 1, 2} - {axis}))
            low, high, off_by, rows = (
                np.array([getattr(value, name) for value in column.values])
                for name in ("low", "high", "off_by", "rows")
            )
            place = slice(start, start + len(exact))
            outside[place] += (exact < low) | (exact > high)
            beyond[place] += np.abs(rows - exact) > off_by
            beyond_all[axis] += (np.abs(rows - exact) > column.worst).any()
            grouped += sum(value.group is not None for value in column.values)
            start += len(exact)
    assert grouped > RELEASES  # groups were formed, so that the statement is about values inside them as well
    assert outside.max() <= most_misses(RELEASES, size)
    assert beyond.max() <= most_misses(RELEASES, size)
    assert beyond_all.max() <= most_misses(RELEASES, len(DOMAIN))
    assert outside.max() > 0  # no bound so wide that it says nothing


def test_the_error_of_a_pair_holds_of_the_worst_combination_of_declared_values(releases) -> None:
    seen: dict[tuple[str, ...], list[tuple[bool, bool]]] = {}
    off_in_groups = 0
    for release in releases:
        codes = release.codes()
        for pair in release.codebook.pairs:
            if not pair.measured:
                assert (pair.cells, pair.worst, pair.worst_of_values, pair.misplaced) == (None,) * 4
                continue
            one, other = (DOMAIN.index(name) for name in pair.attributes)
            exact = COUNTS.sum(axis=({0, 1, 2} - {one, other}).pop())
            rows = np.zeros_like(exact)
            np.add.at(rows, (codes[:, one], codes[:, other]), 1)
            off = int(np.abs(rows - exact).max())
            table = pooled_marginal(release.tables, pair.attributes, DOMAIN)
            moved = np.zeros(table.counts.shape)
            np.add.at(moved, np.ix_(*table.groups), (rows - exact).astype(float))
            misplaced = np.abs(moved).sum() / 2 / len(codes) > pair.misplaced
            seen.setdefault(pair.attributes, []).append((off > pair.worst_of_values, bool(misplaced)))
            off_in_groups += off > pair.worst
    assert len(seen) >= 2
    for misses in seen.values():
        assert np.sum(misses, axis=0).max() <= most_misses(len(misses), 2 * len(seen))
    # single values have larger errors than the measured groups: the groups' bounds do not hold for them
    assert off_in_groups > 0


@pytest.mark.parametrize(
    "noise",
    [DiscreteLaplace(3), DiscreteLaplace("0.2"), DiscreteGaussian(9), DiscreteGaussian(4), DiscreteGaussian("0.1")],
)
@pytest.mark.parametrize("summed", [1, 2, 3, 20])
@pytest.mark.parametrize("together", [1, 40])
def test_the_reach_of_a_sum_is_no_less_than_its_quantile_and_not_much_more(noise, summed, together) -> None:
    """The distribution is added up term by term."""
    single = np.array([noise.pmf(abs(k)) for k in range(-120, 121)])
    sums = np.ones(1)
    for _ in range(summed):
        sums = np.convolve(sums, single)
    size = np.abs(np.arange(len(sums)) - len(sums) // 2)
    table = PooledMarginal(np.zeros(1, dtype=np.int64), (np.zeros(1, dtype=np.int64),), noise, summed)
    reach, missed = table.noise_bound(simultaneous=together), 0.05 / together
    assert sums[size > reach].sum() <= missed * (1 + 1e-9)
    assert sums[size > 0.6 * reach - 1].sum() > missed
    assert table.noise_bound(counts=4, simultaneous=together) == PooledMarginal(
        table.counts, table.groups, noise, 4 * summed
    ).noise_bound(simultaneous=together)


def noisy(values: np.ndarray, groups: tuple, variance: int = 4, *, fresh: bool = True) -> NoisyTable:
    return NoisyTable(("a", "b"), groups, values, DiscreteGaussian(variance), fresh)


def test_of_a_value_inside_a_group_only_the_group_is_known() -> None:
    table = MeasuredColumn(
        None, (PooledMarginal(np.array([100, 50]), (np.array([0, 1, 1, 1]),), DiscreteGaussian(4), 1),)
    )
    errors = value_errors(table, np.array([90.0, 20.0, 20.0, 20.0]), np.arange(4))
    assert errors.low.tolist() == [96.0, 0.0, 0.0, 0.0]
    assert errors.high.tolist() == [104.0, 54.0, 54.0, 54.0]
    assert errors.off_by.tolist() == [14.0, 34.0, 34.0, 34.0]
    runs = value_errors(table, np.array([90.0, 60.0]), np.array([0, 1, 1, 1]))  # the group as a whole is known
    assert (runs.low[1], runs.high[1]) == (46.0, 54.0)
    both = value_errors(table, np.array([110.0, 40.0]), np.array([0, 0, 1, 1]))  # a whole group and a part of another
    assert (both.low[0], both.high[0]) == (96.0, 156.0)
    assert errors.worst > errors.off_by.max()


def line(noise, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that noise takes, up to a reach, and their probabilities."""
    numbers = np.arange(-reach, reach + 1)
    return numbers, np.array([noise.pmf(abs(int(k))) for k in numbers])


@pytest.mark.parametrize("kinds", [(DiscreteGaussian(100), DiscreteGaussian(49)), (DiscreteLaplace(5),) * 2])
@pytest.mark.parametrize("truth", [0, 4, 24, 26, 49, 51, 300])
@pytest.mark.parametrize("together", [1, 20])
def test_a_count_is_missed_seldom_however_its_noise_forms_groups(kinds, truth: int, together: int) -> None:
    """Each outcome of both tables is one code.  Groups are formed at their worst for the noise of the first table."""
    (early, chance), (late, chance_late) = line(kinds[0], 70), line(kinds[1], 60)
    first = truth + np.repeat(early, len(late))
    later = truth + np.tile(late, len(early))
    each = np.arange(len(first))
    known = PooledMarginal(later, (each,), kinds[1], 1)
    unknown = PooledMarginal(later[: len(each) // 2 + 1], (each // 2,), kinds[1], 1)  # two codes in every group

    def missed(table: PooledMarginal, shrink: float = 0.0) -> np.ndarray:
        column = MeasuredColumn(PooledMarginal(first, (each,), kinds[0], 1), (table,))
        low, high = column.intervals(each, len(each), together)
        low, high = low + shrink * (high - low) / 2, high - shrink * (high - low) / 2
        return ((truth < low) | (truth > high)).reshape(len(early), len(late)) @ chance_late

    alone, grouped = missed(known), missed(unknown)
    assert np.maximum(alone, grouped) @ chance <= 0.05 / together * 1.01
    assert max(alone @ chance, grouped @ chance) <= 0.05 / together * 1.01
    if truth >= 26 and together == 1 and isinstance(kinds[0], DiscreteGaussian):
        assert max(missed(known, 0.3) @ chance, missed(unknown, 0.3) @ chance) > 0.07  # a third less is too little


def test_a_column_is_known_by_all_tables_that_hold_it() -> None:
    domain = Domain(
        (
            Integer(name="a", minimum=0, maximum=3, unknown=Unknown.DROP),
            Categorical(name="b", values=("x", "y"), unknown=Unknown.DROP),
        )
    )
    noise, groups = DiscreteGaussian(400), (0, 1, 1, 1)
    tables = [
        NoisyTable(("a",), (None,), np.array([1000, 9, 9, 9]), noise, fresh=False),
        NoisyTable(("b",), (None,), np.array([500, 527]), noise, fresh=False),
        *[noisy(np.array([[500, 500], [0, 27]]), (groups, None), variance=400) for _ in range(3)],
    ]
    a, b = (measured_column(tables, name, domain) for name in "ab")
    assert (a.first.counts.tolist(), len(a.later)) == ([1000, 9, 9, 9], 3)
    assert (b.first, len(b.later)) == (None, 4)  # two values of a list are never merged
    errors = value_errors(b, np.array([500.0, 527.0]), np.arange(2))
    left = np.sqrt(400 / (1 + 3 / 2))  # each pair has two cells a value
    assert errors.off_by == pytest.approx([1.96 * left] * 2, rel=0.05)
    errors = value_errors(a, np.array([1000.0, 9.0, 9.0, 9.0]), np.arange(4))
    assert errors.off_by[0] == pytest.approx(2.03 * left, rel=0.06)
    assert 1.7 * 20 < errors.high[1] - 9 < 2.1 * 20
    group = value_errors(MeasuredColumn(None, a.later), np.array([1000.0, 27.0]), np.array([0, 1, 1, 1]))
    assert group.off_by == pytest.approx([1.96 * np.sqrt(800 / 3)] * 2, rel=0.05)
    assert measured_column(tables[:1], "b", domain) is None


def test_a_combination_has_at_most_the_rows_of_each_of_its_values() -> None:
    table = PooledMarginal(
        np.array([[1000, 0], [0, 400]]), (np.array([0, 1, 1]), np.array([0, 1])), DiscreteGaussian(4), 1
    )
    codes = np.repeat([0, 1, 2], [1000, 390, 10]), np.repeat([0, 1], [1000, 400])
    sides = LargestCounts(np.array([1010.0, 402.0, 30.0]), np.array([1000.0, 390.0, 10.0])), None
    assert pair_errors(table, codes, 1.0, sides).worst_of_values == 402
    small = LargestCounts(np.array([1010.0, 40.0, 30.0]), np.array([1000.0, 35.0, 10.0])), None
    assert pair_errors(table, codes, 1.0, small).worst_of_values == 40
    assert pair_errors(table, codes, 1.0).worst_of_values > 402


@pytest.mark.slow
def test_intervals_of_rare_and_common_values_hold() -> None:
    """Sixty releases of all pairs: by the number of rows of the value, .93 to .985 hold."""
    held: dict[int, list[tuple[bool, bool]]] = {}
    for seed in range(60):
        vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=seed)
        release = batched(vault, loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(2))
        for axis, column in enumerate(release.codebook.columns):
            exact = COUNTS.sum(axis=tuple({0, 1, 2} - {axis}))
            for value, rows in zip(column.values, exact.tolist(), strict=True):
                size = int(np.searchsorted([1, 20, 200], rows, side="right"))
                inside = value.low <= rows <= value.high
                held.setdefault(size, []).append((inside, abs(value.rows - rows) <= value.off_by))
    assert set(held) == {1, 2, 3}
    for each in held.values():
        shares = np.mean(each, axis=0)
        assert 0.93 <= shares[0] <= 0.985
        assert shares[1] >= 0.94


def test_the_worst_error_holds_if_noise_hides_all_rows_of_one_cell() -> None:
    """The file may have none of these rows, and fewer rows than the table."""
    domain = Domain((Integer(name="n", minimum=0, maximum=1500, unknown=Unknown.DROP), DOMAIN["married"]))
    table, missed = table_of(domain, np.bincount([2 * 777], minlength=2 * 1501).reshape(1501, 2) * 50), 0
    for seed in range(RELEASES):
        made = independent(SimulatedVault(table, seed=seed), loss=Rho("0.0125"), total=NoisyTotal())
        (column, _) = made.codebook.columns
        missed += abs(int((made.codes()[:, 0] == 777).sum()) - 50) > column.worst
    assert missed <= most_misses(RELEASES, 1)


def test_a_pair_in_groups_may_be_off_by_all_of_a_group() -> None:
    table = PooledMarginal(
        np.array([[100, 0], [0, 40]]), (np.array([0, 1, 1]), np.array([0, 1])), DiscreteGaussian(4), 1
    )
    codes = np.repeat([0, 1, 2], [100, 20, 20]), np.repeat([0, 1], [100, 40])
    errors = pair_errors(table, codes, 1.0)
    reach = table.noise_bound(simultaneous=4)
    assert errors.grouped
    assert errors.worst == reach
    assert errors.worst_of_values == 40 + reach
    assert errors.misplaced < 0.06
    moved = pair_errors(table, (codes[0][::-1].copy(), codes[1]), 1.0)
    assert moved.misplaced > 0.25
    assert pair_errors(table, (codes[0][:0], codes[1][:0]), 0.0).worst == 100 + reach


def test_a_margin_is_of_the_table_that_tells_most_with_the_noise_of_its_cells() -> None:
    domain = Domain(
        (
            Integer(name="a", minimum=0, maximum=2, unknown=Unknown.DROP),
            Integer(name="b", minimum=0, maximum=1, unknown=Unknown.DROP),
        )
    )
    fine = noisy(np.array([[1, 2], [3, 4], [5, 6]]), (None, None), variance=100)
    coarse = noisy(np.array([[1, 2], [8, 10]]), ((0, 1, 1), None), variance=1)
    found = pooled_marginal([coarse, fine], ("a",), domain)
    assert found.counts.tolist() == [3, 7, 11]
    assert (found.summed, found.deviation) == (2, pytest.approx(np.sqrt(200)))
    turned = pooled_marginal([fine], ("b", "a"), domain)
    assert turned.counts.tolist() == [[1, 3, 5], [2, 4, 6]]
    assert pooled_marginal([coarse, fine], ("b",), domain).noise == DiscreteGaussian(1)
    assert pooled_marginal([], ("a",), domain) is None
    first = noisy(fine.values, (None, None), variance=400, fresh=False)  # whose noise decides on groups, or on none
    assert pooled_marginal([fine, first], ("a",), domain).noise == DiscreteGaussian(400)
    assert pooled_marginal([coarse, first], ("a",), domain).noise == DiscreteGaussian(400)


@pytest.mark.parametrize(
    ("one", "other", "kind"), [(20, 64, DiscreteGaussian), (17, 30, DiscreteGaussian), (3, 5, DiscreteLaplace)]
)
def test_tables_over_the_same_groups_are_pooled_by_inverse_variance(one, other, kind) -> None:
    """The reach of what is pooled against its distribution, added up term by term."""
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=1, unknown=Unknown.DROP) for name in "ab"))
    kinds = kind(one), kind(other)
    values = np.array([[40, 80], [120, 160]]), np.array([[50, 90], [130, 170]])
    tables = [
        NoisyTable(("a", "b"), (None, None), counts, noise, fresh=True)
        for counts, noise in zip(values, kinds, strict=True)
    ]
    weights = np.array([1 / noise.variance for noise in kinds])
    weights /= weights.sum()
    grouped = NoisyTable(("a", "b"), ((0, 0), None), values[0][:1], kinds[0], fresh=True)  # over others: left out
    early = NoisyTable(("a",), (None,), values[0][0], kinds[0], fresh=False)
    found = pooled_marginal([*tables, grouped], ("a", "b"), domain)
    assert found.counts == pytest.approx(weights[0] * values[0] + weights[1] * values[1])
    assert found.deviation**2 == pytest.approx(1 / sum(1 / noise.variance for noise in kinds))
    assert pooled_marginal([*tables, early], ("a",), domain).counts.tolist() == values[0][0].tolist()
    numbers = np.arange(-150, 151)
    chances = np.outer(*([noise.pmf(abs(int(k))) for k in numbers] for noise in kinds))
    off = np.abs(weights[0] * numbers[:, None] + weights[1] * numbers)
    for together in (1, 40):
        reach = found.noise_bound(simultaneous=together)
        assert chances[off > reach].sum() <= 0.05 / together * (1 + 1e-9)
        assert chances[off > 0.6 * reach].sum() > 0.05 / together


def test_tables_of_very_small_noise_are_not_pooled() -> None:
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=1, unknown=Unknown.DROP) for name in "ab"))
    tables = [noisy(np.array([[4, 8], [12, 16]]), (None, None), variance=1) for _ in range(2)]
    found = pooled_marginal(tables, ("a", "b"), domain)
    assert found.deviation == pytest.approx(np.sqrt(DiscreteGaussian(1).variance))
    assert found.counts.dtype == np.int64


@pytest.mark.parametrize("rows", [5, 1000])  # fewer than pairs of codes, and more
def test_rows_are_counted_by_groups_block_by_block(rows: int, monkeypatch) -> None:
    monkeypatch.setattr(stated_errors, "_COUNTED", 300)
    random = np.random.default_rng(2)
    codes = random.integers(0, 20, rows).astype(np.uint8), random.integers(0, 30, rows).astype(np.uint16)
    groups = random.integers(0, 4, 20), np.arange(30)
    counts = np.zeros((4, 30), dtype=np.int64)
    for one, other in zip(*codes, strict=True):
        counts[groups[0][one], other] += 1
    np.testing.assert_array_equal(tally(codes, groups, (4, 30)), counts)
    np.testing.assert_array_equal(occurrences(codes[0], 20), np.bincount(codes[0], minlength=20))


def test_strength_is_none_of_independent_columns_and_whole_of_equal_ones() -> None:
    generator = np.random.default_rng(1)
    one, other = generator.integers(0, 30, 3000), generator.integers(0, 30, 3000)
    each = np.arange(30)
    assert association((one, one), (each, each)) == pytest.approx(1, abs=0.01)
    assert association((one, other), (each, each)) < 0.05
    assert association((one, np.zeros_like(one)), (each, each)) == 0.0
    assert association((one[:0], one[:0]), (each, each)) == 0.0


@pytest.mark.parametrize("method", ["histogram", "mst", "mwem"])
def test_every_method_says_what_it_knows(method: str) -> None:
    vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=1)
    if method == "histogram":
        release = histogram(vault, loss=Epsilon(1), total=NoisyTotal(), attributes=("age", "married"))
    elif method == "mst":
        release = mst(vault, loss=Rho(1), total=PublicTotal(int(COUNTS.sum())))
    else:
        schedule = Schedule(rounds=3, repetitions=3)
        release = mwem(vault, loss=Rho(1), total=PublicTotal(3000), workload=prefixes(DOMAIN, "age"), schedule=schedule)
    book = release.codebook
    assert [column.name for column in book.columns] == list(release.model.domain.names)
    if method == "mwem":  # it measures queries, not tables
        assert book.columns[0].worst is None
        assert not book.measured
        assert any("no error of them is known" in sentence for sentence in book.not_for)
    else:
        assert all(column.worst is not None for column in book.columns)
        assert any(pair.measured for pair in book.pairs)
