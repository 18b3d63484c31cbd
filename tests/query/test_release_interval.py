"""Intervals of a synthetic release: exact where noise vanishes, as often right as stated where it does not.

The statistical tests have a false-alarm rate of a millionth each: every release is of its own noise, and one question
is asked of each.  Noise 30 % smaller than stated, or an interval too narrow by as much, is caught all but surely.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.domain import Categorical, Domain, Integer, Role, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import LossError, QueryError
from sfumato.model.noisy_table import NoisyDistance, NoisyTable
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.query import Share, count, interval, mean, median, table, total
from sfumato.synthesize import NoisyTotal, all_marginals, batched, histogram
from sfumato.vault.simulated import SimulatedVault

FALSE_ALARM = 1e-6

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=39, unknown=Unknown.CLAMP, nullable=True),
        Categorical(name="town", values=tuple("abcdefgh"), unknown=Unknown.DROP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    )
)
MISSING = 40


def rows(size: int = 20_000) -> np.ndarray:
    random = np.random.default_rng(3)
    age = np.minimum(random.geometric(0.12, size), 40) - 1
    town = np.minimum(random.poisson(age / 8), 7)
    age[random.random(size) < 0.05] = MISSING
    return np.stack([age, town, random.integers(0, 2, size)], axis=1)


CODES = rows()
AGE, TOWN, SEX = CODES.T
KNOWN = AGE != MISSING


@dataclass(frozen=True)
class Kept:
    """A release of noisy tables alone."""

    tables: tuple[NoisyTable, ...]
    total: int = len(CODES)
    domain: Domain = DOMAIN
    distances: tuple[NoisyDistance, ...] = ()

    @property
    def model(self) -> Kept:
        return self

    def cells(self, attributes: tuple[str, ...]) -> np.ndarray:
        return exact(CODES, attributes, tuple(np.arange(self.domain[name].size) for name in attributes)).ravel()


class Costs(Kept):
    """Another release, of one attribute of three cells."""

    def cells(self, attributes: tuple[str, ...]) -> np.ndarray:
        assert attributes == ("cost",)
        return np.array([500, 300, 200])


@cache
def counted(attributes: tuple[str, ...], groups: tuple[tuple[int, ...] | None, ...]) -> np.ndarray:
    numbers = tuple(
        np.arange(DOMAIN[name].size) if each is None else np.array(each)
        for name, each in zip(attributes, groups, strict=True)
    )
    return exact(CODES, attributes, numbers)


def exact(codes: np.ndarray, attributes: tuple[str, ...], groups: tuple[np.ndarray, ...]) -> np.ndarray:
    counts = np.zeros([int(each.max()) + 1 for each in groups], dtype=np.int64)
    np.add.at(
        counts, tuple(each[codes[:, DOMAIN.index(name)]] for name, each in zip(attributes, groups, strict=True)), 1
    )
    return counts


GROUPED = (*(min(code // 5, 7) for code in range(40)), 8)
TINY = DiscreteGaussian(Fraction(1, 100))


def noisy(attributes, groups, noise=TINY, *, seed=0, fresh=True) -> NoisyTable:
    counts = counted(attributes, groups)
    return NoisyTable(attributes, groups, noise.add(counts, SimulatedEntropy(seed)), noise, fresh)


ALL = Kept((noisy(("age", "town", "sex"), (None, None, None)),))
COARSE = Kept((noisy(("age", "sex"), (GROUPED, None)), noisy(("age", "town"), (GROUPED, None))))

QUESTIONS = [
    (count(), len(CODES)),
    (count("age = 7"), (AGE == 7).sum()),
    (count("age IS NULL AND sex = 'F'"), ((AGE == MISSING) & (SEX == 0)).sum()),
    (count("NOT (age < 10 OR town = 'a')"), ((AGE >= 10) & KNOWN & (TOWN != 0)).sum()),
    ("SELECT COUNT(age) FROM t WHERE sex = 'M'", (KNOWN & (SEX == 1)).sum()),
    (total("age", "sex = 'F'"), AGE[KNOWN & (SEX == 0)].sum()),
    (mean("age"), AGE[KNOWN].mean()),
    ("SELECT AVG(age) FROM t WHERE town IN ('b', 'c')", AGE[KNOWN & np.isin(TOWN, [1, 2])].mean()),
    (Share("sex = 'F'", among="town = 'b'"), (SEX[TOWN == 1] == 0).mean()),
    (Share("age < 10 AND sex = 'F'"), ((AGE < 10) & KNOWN & (SEX == 0)).mean()),
]


@pytest.mark.parametrize(("asked", "truth"), QUESTIONS, ids=str)
def test_without_noise_the_estimate_is_the_exact_answer(asked, truth: float) -> None:
    found = interval(ALL, asked)
    assert found.table is not None
    assert found.table.estimate == pytest.approx(truth, abs=0)
    assert found.model == pytest.approx(truth)
    assert found.widened == 0
    assert found.population is not None
    assert found.population.low < truth < found.population.high or not found.population.standard_error


def test_without_noise_a_population_is_as_uncertain_as_a_sample_of_it() -> None:
    rows_f = (SEX == 0).sum()
    errors = {
        count("sex = 'F'"): np.sqrt(rows_f * (1 - rows_f / len(CODES))),
        mean("age", "sex = 'F'"): AGE[KNOWN & (SEX == 0)].std() / np.sqrt((KNOWN & (SEX == 0)).sum()),
        total("age"): np.sqrt((AGE[KNOWN] ** 2.0).sum() - AGE[KNOWN].sum() ** 2.0 / len(CODES)),
    }
    for asked, error in errors.items():
        found = interval(ALL, asked)
        assert found.population is not None
        assert found.population.standard_error == pytest.approx(error, rel=1e-6)
    halves = interval(ALL, mean("age", "sex = 'F'"), minus=mean("age", "sex = 'M'"))
    apart = [AGE[KNOWN & (code == SEX)].std() ** 2 / (KNOWN & (code == SEX)).sum() for code in (0, 1)]
    assert halves.population is not None
    assert halves.population.standard_error == pytest.approx(np.sqrt(sum(apart)), rel=1e-6)


def test_a_difference_is_that_of_both_answers() -> None:
    found = interval(ALL, mean("age", "sex = 'F'"), minus=mean("age", "sex = 'M'"))
    assert found.table is not None
    assert found.table.estimate == pytest.approx(AGE[KNOWN & (SEX == 0)].mean() - AGE[KNOWN & (SEX == 1)].mean())
    same = interval(ALL, count("sex = 'F'"), minus=count("sex = 'F'"))
    assert same.table is not None
    assert same.table.interval == (0, 0)


def test_what_cuts_a_group_has_no_interval_and_a_price_and_what_does_not_has_one() -> None:
    assert interval(COARSE, count("age < 10 AND sex = 'F'")).table is not None
    for asked in (count("age < 11 AND sex = 'F'"), count("town = 'a' AND sex = 'F'"), mean("age", "age < 11")):
        found = interval(COARSE, asked)
        assert found.table is found.population is None
        assert "no interval; the model says" in str(found)
        assert "costs" in found.notes[-1]


def test_the_price_of_a_direct_answer_is_that_of_its_noise() -> None:
    found = interval(COARSE, count("town = 'a' AND sex = 'F'"), half_width=50)
    rho = float(found.notes[-1].rpartition("rho = ")[2])
    noise = DiscreteGaussian.for_loss(Rho(str(rho)), squared_sensitivity=1)
    assert 1.96 * np.sqrt(noise.variance) == pytest.approx(50, rel=0.01)


def test_values_in_groups_widen_the_interval_to_where_they_may_be() -> None:
    low, high = np.array([[0, 4], [5, 9], [10, 14], [15, 19], [20, 24], [25, 29], [30, 34], [35, 39]]).T
    for asked, kept in (
        (mean("age", "sex = 'F'"), KNOWN & (SEX == 0)),
        (mean("age", "town = 'c'"), KNOWN & (TOWN == 2)),
    ):
        found = interval(COARSE, asked)
        groups = np.minimum(AGE[kept] // 5, 7)
        assert found.table is not None
        assert found.table.estimate == pytest.approx(((low + high) / 2)[groups].mean(), abs=0.01)
        assert found.widened == pytest.approx(2.0, abs=0.01)
        assert found.table.low < low[groups].mean() + 0.01
        assert found.table.high > high[groups].mean() - 0.01


def test_an_open_cell_counts_with_its_typical_value_and_reaches_to_its_ends() -> None:
    cost = Integer(name="cost", minimum=0, maximum=1000, edges=(0, 10, 20), unknown=Unknown.CLAMP, typical=40)
    domain, counts = Domain((cost,)), np.array([500, 300, 200])
    table = NoisyTable(("cost",), (None,), TINY.add(counts, SimulatedEntropy(0)), TINY, fresh=True)
    found = interval(Costs((table,), domain=domain), mean("cost"))
    assert found.table is not None
    assert found.model == pytest.approx((500 * 4.5 + 300 * 14.5 + 200 * 40) / 1000)
    assert found.table.estimate == pytest.approx((500 * 4.5 + 300 * 14.5 + 200 * 40) / 1000, abs=0.01)
    assert found.table.low == pytest.approx((300 * 10 + 200 * 20) / 1000, abs=0.02)
    assert found.table.high == pytest.approx((500 * 9 + 300 * 19 + 200 * 1000) / 1000, abs=2)
    grouped = NoisyTable(("cost",), ((0, 1, 1),), TINY.add(np.array([500, 500]), SimulatedEntropy(0)), TINY, fresh=True)
    found = interval(Costs((grouped,), domain=domain), mean("cost"))
    assert found.table is not None
    assert found.table.estimate == pytest.approx((500 * 4.5 + 500 * (10 + 40) / 2) / 1000, abs=0.01)
    assert found.table.high == pytest.approx((500 * 9 + 500 * 1000) / 1000, abs=2)


def test_tables_are_weighted_by_their_precision() -> None:
    wide, narrow = DiscreteGaussian(4000), DiscreteGaussian(500)
    both = Kept((noisy(("age", "sex"), (None, None), wide), noisy(("town", "sex"), (None, None), narrow, seed=1)))
    found = interval(both, count("sex = 'F'"))
    assert found.table is not None
    variances = 41 * 4000, 8 * 500
    assert found.table.standard_error == pytest.approx((1 / sum(1 / each for each in variances)) ** 0.5)
    assert found.tables == (("age", "sex"), ("town", "sex"))


def test_a_question_about_one_attribute_is_read_off_its_first_table_alone() -> None:
    first = noisy(("age",), (None,), DiscreteGaussian(900), fresh=False)
    found = interval(Kept((first, *COARSE.tables)), count("age = 7"))
    assert found.tables == (("age",),)
    assert found.table is not None
    assert found.table.standard_error == 30
    assert interval(Kept((first, *COARSE.tables)), count()).tables == (("age",), ("age", "sex"), ("age", "town"))


def test_a_mean_of_few_rows_has_no_interval() -> None:
    wide = Kept((noisy(("age", "town"), (None, None), DiscreteGaussian(2500)),))
    found = interval(wide, mean("age", "town = 'h'"))  # 126 rows, noise of 50 in each of 40 cells
    assert found.table is None
    assert any("denominator" in remark for remark in found.notes)
    assert interval(wide, mean("age", "town IN ('a', 'b')")).table is not None


def test_rows_of_one_person_are_no_draws_of_a_population() -> None:
    people = Domain(DOMAIN.attributes, unit=Unit(column="id", rows=3))
    found = interval(Kept(ALL.tables, domain=people), count("sex = 'F'"))
    assert found.population is None
    assert found.table is not None
    assert any("at most 3 rows of one id" in remark for remark in found.notes)


def test_a_release_that_keeps_no_tables_says_what_its_model_says() -> None:
    found = interval(Kept(()), count("sex = 'F'"))
    assert found.table is None
    assert any("keeps no noisy tables" in remark for remark in found.notes)
    assert found.model == (SEX == 0).sum()


@pytest.mark.parametrize(
    "asked", [median("age"), table("sex"), count("age = "), 5, "SELECT AVG(age), COUNT(*) FROM t", count("height = 1")]
)
def test_other_questions_are_refused(asked) -> None:
    with pytest.raises(QueryError):
        interval(ALL, asked)


def test_a_confidence_or_half_width_that_is_none_is_refused() -> None:
    with pytest.raises(LossError):
        interval(ALL, count(), confidence=1)
    with pytest.raises(LossError):
        interval(ALL, count(), half_width=0)


def held(found, truth: float) -> bool:
    assert found.table is not None
    return found.table.low <= truth <= found.table.high


@pytest.mark.parametrize("loss", [Rho("0.01"), Epsilon("0.3")])
def test_intervals_of_tables_hold_as_often_as_they_say(loss) -> None:
    noise = DiscreteGaussian(700) if isinstance(loss, Rho) else DiscreteLaplace(20)
    shown, draws = [(asked, truth) for asked, truth in QUESTIONS if asked != count()], 500
    hits = 0
    for seed in range(draws):
        asked, truth = shown[seed % len(shown)]
        kept = Kept((
            noisy(("age", "town", "sex"), (None, None, None), noise, seed=2 * seed),
            noisy(("town", "sex", "age"), (None, None, None), noise, seed=2 * seed + 1),
        ))  # fmt: skip
        hits += held(interval(kept, asked), float(truth))
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws, 0.95)
    assert low <= hits <= (high if isinstance(loss, Rho) else draws)  # of Laplace noise, sums hold more often


def test_intervals_of_whole_releases_hold_as_often_as_they_say() -> None:
    """Ten releases by ``batched``, some cells of each.  Correlation within a release is allowed for, threefold."""
    asked = [
        (count(f"town = '{town}' AND sex = '{sex}'"), ((code == TOWN) & (side == SEX)).sum())
        for code, town in enumerate("abcdefgh")
        for side, sex in enumerate("FM")
    ] + [(count(f"age = {age}"), (age == AGE).sum()) for age in range(0, 40, 3)]
    hits = []
    for seed in range(10):
        vault = SimulatedVault(ArrayTable(DOMAIN, CODES), seed=seed)
        release = batched(vault, loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(2))
        found = [(interval(release, each), truth) for each, truth in asked]
        hits += [held(each, truth) for each, truth in found if each.table is not None]
    assert len(hits) > 10 * 20
    independent = len(hits) // 3
    assert np.mean(hits) * independent >= binom.ppf(FALSE_ALARM, independent, 0.95)


SPENT = Domain((Integer(name="spent", minimum=0, maximum=1060, edges=(0, 10, 20, 60), unknown=Unknown.CLAMP),))
HELD_BY_BIN = np.array([5000, 3000, 1500, 150])


@dataclass(frozen=True)
class KeptBins(Kept):
    """A release of one table of bins, the last of them very wide."""

    def cells(self, attributes: tuple[str, ...]) -> np.ndarray:
        assert attributes == ("spent",)
        return HELD_BY_BIN.astype(float)


@pytest.mark.parametrize("asked", [mean("spent"), total("spent")], ids=str)
@pytest.mark.parametrize("end", [0, 1])
def test_an_interval_of_values_in_bins_holds_as_often_wherever_the_values_lie(asked, end) -> None:
    """All values are at the lower or the upper ends of bins: the noise on the widths of bins counts too.

    With it left out, four in five would hold at the upper ends.
    """
    ends = np.array([SPENT["spent"].bounds(code)[end] for code in range(4)])
    truth = float(ends @ HELD_BY_BIN) / (HELD_BY_BIN.sum() if asked == mean("spent") else 1)
    noise, draws, hits = DiscreteGaussian(2500), 400, 0
    for seed in range(draws):
        values = noise.add(HELD_BY_BIN, SimulatedEntropy(seed))
        kept = NoisyTable(("spent",), (None,), values, noise, fresh=False)
        found = interval(KeptBins((kept,), total=int(HELD_BY_BIN.sum()), domain=SPENT), asked)
        hits += held(found, truth)
        assert found.table is not None
        assert found.table.low <= found.table.estimate <= found.table.high
    assert hits >= binom.ppf(FALSE_ALARM, draws, 0.95)


def test_a_difference_of_values_in_bins_is_as_wide_as_both_may_be_apart() -> None:
    """If one mean is at its minimum, the other may be at its maximum."""
    found = interval(COARSE, mean("age", "sex = 'F'"), minus=mean("age", "sex = 'M'"))
    assert found.table is not None
    assert found.widened == pytest.approx(4.0, abs=0.02)
    assert found.table.high - found.table.low == pytest.approx(8.0, abs=0.1)


def test_a_histogram_of_a_pure_loss_has_intervals() -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, CODES), seed=1)
    release = histogram(vault, loss=Epsilon(1), total=NoisyTotal(), attributes=("town", "sex"))
    found = interval(release, count("town = 'b'"), confidence="0.999999")
    assert held(found, (TOWN == 1).sum())
    assert release.tables[0].noise == DiscreteLaplace(1)


@pytest.mark.parametrize("noise", [DiscreteLaplace("0.2"), DiscreteGaussian("0.5"), DiscreteGaussian("0.1")], ids=str)
@pytest.mark.parametrize("most", [1, 4, 18])
def test_an_interval_of_a_sum_of_small_noise_holds_as_often_as_stated(noise, most) -> None:
    """The test is exact, by the distribution of the sum of the noise: a count has no values between integers."""
    found = interval(Kept((noisy(("age",), (None,), noise),)), count(f"age <= {most}"))
    assert found.table is not None
    half = (found.table.high - found.table.low) / 2
    single = np.array([noise.pmf(abs(k)) for k in range(-60, 61)])
    sums = np.ones(1)
    for _ in range(most + 1):
        sums = np.convolve(sums, single)
    assert sums[np.abs(np.arange(len(sums)) - len(sums) // 2) > half + 1e-9].sum() <= 0.05


def test_totals_of_a_weight_say_why_they_have_no_interval():
    """A release measures them up to a limit, and no noise says what lies above it."""
    heavy = Integer(name="heavy", minimum=0, maximum=9, unknown=Unknown.CLAMP, role=Role.WEIGHT)
    domain = Domain((heavy, *DOMAIN))
    random = np.random.default_rng(4)
    codes = np.column_stack([np.minimum(random.geometric(0.5, len(CODES)) - 1, 9), CODES])
    vault = SimulatedVault(ArrayTable(domain, codes), seed=4)
    release = batched(vault, loss=Rho("0.5"), total=NoisyTotal(), workload=all_marginals(1, named={("age", "town"): 1}))
    assert release.model.totals
    found = interval(release, total("heavy", where="sex = 'F'"))
    assert found.table is None
    assert any("above a limit" in each and "--marginals heavy,sex" in each for each in found.notes)
    held = interval(release, total("heavy"))
    assert held.table.low <= codes[:, 0].sum() <= held.table.high
    assert not any("above a limit" in each for each in interval(release, count("sex = 'F' and town = 'a'")).notes)
