"""Samples follow their tables, estimates are unbiased, and reports look alike whatever they hide."""

from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from sfumato.local.estimators import Post
from sfumato.local.protocol.device import simulate
from sfumato.local.randomizers.composite import Sampled
from sfumato.local.randomizers.integer_table import Sampler, below, coins
from sfumato.local.randomizers.longitudinal import Rappor
from sfumato.local.randomizers.two_valued import SubsetSelection, TwoValued
from sfumato.local.randomizers.unary_encoding import unpack
from sfumato.local.specs.distribution import Distribution, Range
from sfumato.local.specs.frequency import Frequency, Method
from sfumato.local.specs.key_value import SignedUnary
from sfumato.local.specs.mean import Mean, MeanMethod
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy

FALSE_ALARM = 1e-20
LIMIT = -NormalDist().inv_cdf(FALSE_ALARM)

ORACLES = [method for method in Method if method is not Method.AUTO]


def oracle(method: Method, size: int, epsilon: str = "1") -> Frequency:
    first = Fraction(epsilon) / 2 if method in (Method.RAPPOR, Method.LOLOHA) else None
    return Frequency.design(size, epsilon=epsilon, method=method, instantaneous_epsilon=first)


def deviations(seen: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square of counts as standard normal deviations (Wilson and Hilferty)."""
    kept = expected > 0
    assert not seen[~kept].any()
    degrees = int(kept.sum()) - 1
    chi = float(((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    return ((chi / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / (2 / (9 * degrees)) ** 0.5


def outputs(spec: Frequency, reports: np.ndarray) -> np.ndarray:
    """Index of each report among the rows of the enumerated table."""
    randomizer = spec.randomizer
    if isinstance(randomizer, TwoValued) and isinstance(randomizer.design, SubsetSelection):
        weights = 1 << np.arange(randomizer.inputs)
        order = {int(mask): place for place, mask in enumerate(weights @ randomizer.design.incidence())}
        return np.array([order[mask] for mask in (unpack(reports, randomizer.inputs) @ weights).tolist()])
    if reports.ndim == 1 and not hasattr(randomizer, "coins"):
        return reports.astype(np.int64)
    bits = unpack(reports, randomizer.inputs)
    return bits @ (1 << np.arange(randomizer.inputs)[::-1])


@pytest.mark.parametrize(
    "method",
    [
        Method.GRR,
        Method.SS,
        Method.PGR,
        Method.HR,
        Method.BLH,
        Method.OLH,
        Method.HCMS,
        Method.SUE,
        Method.OUE,
        Method.THE,
    ],
)
@pytest.mark.parametrize("size", [3, 6])
def test_samples_follow_the_enumerated_table_and_reject_another(method: Method, size: int) -> None:
    spec = oracle(method, size)
    number = 40_000
    table = np.array([[float(chance) for chance in row] for row in spec.randomizer.rows()])
    for value in range(size):
        reports = simulate(spec, np.full(number, value), seed=7 + value).data
        seen = np.bincount(outputs(spec, reports), minlength=table.shape[1])
        assert deviations(seen, number * table[value]) < LIMIT
        assert deviations(seen, number * table[(value + 1) % size]) > LIMIT  # the test can distinguish tables


@pytest.mark.parametrize("method", ORACLES)
@pytest.mark.parametrize("size", [2, 9, 66])
def test_frequencies_are_unbiased_with_the_stated_variance(method: Method, size: int) -> None:
    spec = oracle(method, size)
    people = 2_000
    shares = np.arange(1, size + 1) / (size * (size + 1) / 2)
    values = np.repeat(
        np.arange(size), np.diff(np.round(np.concatenate([[0], np.cumsum(shares)]) * people).astype(int))
    )
    truth = np.bincount(values, minlength=size) / people
    runs = 12
    made = []
    for seed in range(runs):
        data = simulate(spec, values, seed=seed).data
        assert spec.randomizer.layout.fits(data)
        assert spec.randomizer.valid_reports(data)
        made.append(spec.estimate(spec.randomizer.tally(data), people, Post.NONE))
    average = np.mean([each.values for each in made], axis=0)
    stated = np.mean([each.variance for each in made], axis=0)
    assert np.abs((average - truth) / np.sqrt(stated / runs)).max() < LIMIT
    squares = np.mean([(each.values - truth) ** 2 for each in made], axis=0)
    ratio = float((squares / stated).mean())
    assert abs(ratio - 1) < LIMIT * np.sqrt(2 / runs)  # entries of one run may move together


@pytest.mark.parametrize("method", ORACLES)
def test_reports_take_the_same_space_whatever_they_hide(method: Method) -> None:
    spec = oracle(method, 20)
    shapes = {
        (simulate(spec, np.full(50, v), seed=1).data.dtype, simulate(spec, np.full(50, v), seed=1).data.shape)
        for v in range(20)
    }
    assert len(shapes) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 60, 256, 257, 5000, 1 << 20, 3 << 33])
def test_bounded_integers_are_uniform(size: int) -> None:
    drawn = below(SimulatedEntropy(size), size, 200_000).astype(np.float64)
    assert drawn.min() >= 0
    assert drawn.max() < size
    if size > 1:
        cells = min(size, 50)
        seen = np.bincount((drawn * cells / size).astype(int), minlength=cells)
        edges = np.ceil(np.arange(cells + 1) * size / cells)
        assert deviations(seen, 200_000 * np.diff(edges) / size) < LIMIT


def test_bounds_may_differ_from_draw_to_draw() -> None:
    bounds = np.tile(np.array([1, 3, 1000, 12870], dtype=np.uint32), 50_000)
    drawn = below(SimulatedEntropy(3), bounds, bounds.size)
    assert (drawn < bounds).all()
    seen = np.bincount(drawn[bounds == 3], minlength=3)
    assert deviations(seen, np.full(3, 50_000 / 3)) < LIMIT


def test_rejection_keeps_small_words_uniform() -> None:
    """Every 16-bit word occurs once: each integer below 200 must come from equally many words."""

    class Every16:
        def __init__(self) -> None:
            self.first = True

        def words(self, count: int) -> np.ndarray:
            if self.first:
                self.first = False
                return np.arange(1 << 16, dtype=np.uint16).view(np.uint64)[:count]
            return np.full(count, (1 << 64) - 1, dtype=np.uint64)  # redraws give the last integer

    seen = np.bincount(below(Every16(), 200, 1 << 16), minlength=200)
    assert set(seen[:-1]) == {(1 << 16) // 200}
    assert seen[-1] == (1 << 16) // 200 + (1 << 16) % 200


def test_a_coin_takes_its_ties_from_further_bits() -> None:
    numerator = (12345 << 48) + (1 << 47)  # half of the words that start with 12345

    class Ties:
        def __init__(self) -> None:
            self.calls = 0

        def words(self, count: int) -> np.ndarray:
            self.calls += 1
            if self.calls == 1:
                return np.full(count * 4, 12345, dtype=np.uint16).view(np.uint64)
            return np.random.default_rng(5).integers(0, 1 << 64, size=count, dtype=np.uint64)

    heads = coins(Ties(), 100_000, numerator)
    assert abs(float(heads.mean()) - 0.5) < LIMIT * 0.5 / np.sqrt(100_000)


def test_tables_with_rare_outputs_are_sampled_exactly() -> None:
    rare = 1 << 40  # far below the resolution of the guide
    rows = [[rare, (1 << 64) - 2 * rare, rare], [1 << 63, rare, (1 << 63) - rare]]
    sampler = Sampler(rows)

    class Edge:
        """Words at both ends of the range, where the rare outputs live."""

        def __init__(self, word: int) -> None:
            self.word = word
            self.calls = 0

        def words(self, count: int) -> np.ndarray:
            self.calls += 1
            part = (self.word >> 48) if self.calls == 1 else (self.word & ((1 << 48) - 1)) << 16
            if self.calls == 1:
                return np.full(4 * count, part, dtype=np.uint16).view(np.uint64)
            return np.full(count, part, dtype=np.uint64)

    def output(row: int, word: int) -> int:
        return int(sampler.draw(np.array([row]), Edge(word))[0])

    assert [output(0, 0), output(0, rare - 1), output(0, rare)] == [0, 0, 1]
    assert [output(0, (1 << 64) - rare - 1), output(0, (1 << 64) - rare), output(0, (1 << 64) - 1)] == [1, 2, 2]
    assert [output(1, (1 << 63) - 1), output(1, 1 << 63), output(1, (1 << 63) + rare)] == [0, 1, 2]


@pytest.mark.parametrize("method", [m for m in MeanMethod if m is not MeanMethod.AUTO])
def test_means_are_unbiased_at_every_value_in_exact_expectation(method: MeanMethod) -> None:
    for epsilon in ("0.5", "1.3", "6"):
        spec = Mean.design(-1, 1, epsilon=epsilon, method=method)
        grid = np.linspace(-1, 1, spec.randomizer.inputs)
        # rounding between grid points is linear, so exactness on the grid is exactness everywhere
        assert np.allclose(spec.randomizer.probabilities @ spec.outputs, grid, atol=1e-11)


def test_rounding_to_the_grid_keeps_the_mean() -> None:
    spec = Mean.design(10, 20, epsilon=1)
    codes = spec.encode(np.full(400_000, 13.123), SimulatedEntropy(2))
    values = 10 + 10 * codes / (spec.randomizer.inputs - 1)
    assert set(np.unique(codes)) == {6, 7}
    assert abs(values.mean() - 13.123) < LIMIT * 0.5 / np.sqrt(400_000)


def test_mean_estimates_in_the_units_of_the_data() -> None:
    spec = Mean.design(0, 100, epsilon=2)
    values = np.linspace(20, 60, 50_000)
    data = simulate(spec, values, seed=4).data
    made = spec.estimate(spec.randomizer.tally(data), values.size, Post.NONE)
    assert abs(made.values[0] - 40) < LIMIT * np.sqrt(made.variance[0])
    low, high = made.interval(0.95)
    assert high[0] - low[0] == pytest.approx(2 * 1.959964 * np.sqrt(made.variance[0]), rel=1e-6)


def test_distributions_unbiased_and_smoothed() -> None:
    spec = Distribution.design(0, 1, bins=64, epsilon=1)
    values = np.random.default_rng(0).beta(2, 5, 100_000)
    truth = np.histogram(values, bins=spec.edges)[0] / values.size
    tally = spec.randomizer.tally(simulate(spec, values, seed=1).data)
    plain = spec.estimate(tally, values.size, Post.NONE)
    assert (np.abs(plain.values - truth) < LIMIT * np.sqrt(plain.variance)).all()
    smooth = spec.estimate(tally, values.size, Post.SMOOTH)
    assert smooth.values.sum() == pytest.approx(1)
    assert np.abs(smooth.values - truth).sum() < np.abs(plain.values - truth).sum()
    assert spec.estimate(tally, values.size, Post.SIMPLEX).values.min() >= 0


def test_ranges_are_consistent_and_better_than_sums_of_cells() -> None:
    spec = Range.design(64, epsilon=1, fanout=4)
    values = np.random.default_rng(1).binomial(63, 0.4, 100_000)
    assert isinstance(spec.randomizer, Sampled)
    tally = spec.randomizer.tally(simulate(spec, values, seed=2).data)
    halves = spec.answer([(0, 31), (32, 63), (0, 63), (10, 20)], tally=tally, reports=values.size, post=Post.NONE)
    assert halves.values[0] + halves.values[1] == pytest.approx(1)
    assert halves.values[2] == pytest.approx(1)
    truth = [np.mean((values >= a) & (values <= b)) for a, b in [(0, 31), (32, 63), (0, 63), (10, 20)]]
    assert (np.abs(halves.values - truth) < LIMIT * np.sqrt(halves.variance) + 1e-9).all()
    cells = spec.estimate(tally, values.size, Post.NONE)
    assert halves.variance[0] < cells.variance[:32].sum() / 2


def test_likeliest_distributions_are_distributions_and_close() -> None:
    spec = Frequency.design(16, epsilon=2, method=Method.PGR)
    values = np.random.default_rng(3).binomial(15, 0.3, 50_000)
    tally = spec.randomizer.tally(simulate(spec, values, seed=2).data)
    truth = np.bincount(values, minlength=16) / values.size
    plain, likely = (spec.estimate(tally, values.size, post).values for post in (Post.NONE, Post.MLE))
    assert likely.min() >= 0
    assert likely.sum() == pytest.approx(1)
    assert ((likely - truth) ** 2).sum() < ((plain - truth) ** 2).sum()


def test_repeated_instant_reports_of_a_kept_answer_reveal_only_the_kept_answer() -> None:
    spec = oracle(Method.RAPPOR, 6, "2")
    randomizer = spec.randomizer
    assert isinstance(randomizer, Rappor)
    kept = randomizer.permanent(np.array([2]), SimulatedEntropy(1))
    many = np.repeat(kept, 20_000, axis=0)
    counts = randomizer.tally(randomizer.instant(many, SimulatedEntropy(2)))
    chance = np.where(unpack(kept, 6)[0], randomizer.second.one / 2**64, randomizer.second.zero / 2**64)
    assert (np.abs(counts - 20_000 * chance) < LIMIT * np.sqrt(20_000 * chance * (1 - chance))).all()


def test_no_float_of_a_report_tells_inputs_apart() -> None:
    """The published attack on floating-point mechanisms: is a report possible under one input and not another?"""
    for method in MeanMethod:
        spec = Mean.design(-1, 1, epsilon=1, method=method)
        assert min(min(row) for row in spec.randomizer.numerators) > 0  # every report is possible under every input
        first = set(np.unique(simulate(spec, np.full(100_000, 0.3), seed=1).data).tolist())
        second = set(np.unique(simulate(spec, np.full(100_000, 0.3 + 1e-9), seed=2).data).tolist())
        assert first | second <= set(range(spec.randomizer.outputs))


def test_the_system_draws_new_noise_every_time() -> None:
    spec = oracle(Method.OUE, 64)
    draws = {spec.randomizer.draw(np.zeros(4, dtype=np.uint8), OsEntropy()).tobytes() for _ in range(8)}
    assert len(draws) == 8


def test_signed_unary_samples_follow_the_table() -> None:
    from sfumato.local.specs.key_value import KeyValue

    spec = KeyValue.design(("a", "b"), -1, 1, pairs=1, epsilon=1)
    randomizer = spec.randomizer
    assert isinstance(randomizer, SignedUnary)
    number = 100_000
    for code in range(randomizer.inputs):
        reports = randomizer.draw(np.full(number, code), SimulatedEntropy(code))
        present, positive = reports[:, 0], reports[:, 1]
        state = [np.where(present >> k & 1, np.where(positive >> k & 1, 0, 1), 2) for k in range(2)]
        seen = np.bincount(3 * state[0] + state[1], minlength=9)
        expected = np.array([float(chance) for chance in randomizer.rows()[code]])
        assert deviations(seen, number * expected) < LIMIT
