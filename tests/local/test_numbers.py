"""The numbers that the design states are the numbers of the code."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from sfumato.errors import InfeasibleError
from sfumato.local.randomizers.finite_field import geometries
from sfumato.local.randomizers.integer_table import smallest
from sfumato.local.randomizers.local_hashing import hash_designs
from sfumato.local.randomizers.two_valued import DirectResponse, TwoValued
from sfumato.local.specs.frequency import Frequency, Method
from sfumato.local.specs.graded import GradedMean
from sfumato.local.specs.hiera import DIVISIONS, Hiera, variance
from sfumato.local.specs.mean import Mean, MeanMethod, worst_variance
from sfumato.local.specs.optimal import GRID, Solution, variances

EPSILONS = ("0.25", "0.5", "1", "1.5", "2", "2.5")


def spread(method: Method, size: int, epsilon: str) -> float:
    return Frequency.design(size, epsilon=epsilon, method=method).randomizer.variance(1 / size)


@pytest.mark.parametrize(
    ("epsilon", "size", "grr", "pgr", "bits", "olh", "oue"),
    [
        ("0.5", 16, 2.81, 1.10, 6, 1.16, 1.15),
        ("1", 4, 1.00, 1.00, 2, 2.05, 2.08),
        ("1", 16, 1.94, 1.05, 5, 1.18, 1.18),
        ("1", 1024, 94.6, 1.003, 11, 1.005, 1.002),
        ("3", 64, 1.39, 1.15, 9, 1.19, 1.19),
        ("4", 64, 1.00, 1.01, 7, 1.55, 1.56),  # 1.56 with 56 buckets; 53, a prime, are better here
    ],
)
def test_variances_relative_to_subset_selection(
    epsilon: str, size: int, grr: float, pgr: float, bits: int, olh: float, oue: float
) -> None:
    best = spread(Method.SS, size, epsilon)
    digits = 0.0006 if size == 1024 else 0.006
    assert spread(Method.GRR, size, epsilon) / best == pytest.approx(grr, rel=0.001, abs=0.006)
    assert spread(Method.PGR, size, epsilon) / best == pytest.approx(pgr, abs=digits)
    assert spread(Method.OLH, size, epsilon) / best == pytest.approx(olh, abs=digits)
    assert spread(Method.OUE, size, epsilon) / best == pytest.approx(oue, abs=digits)
    design = Frequency.design(size, epsilon=epsilon, method=Method.PGR).randomizer
    assert isinstance(design, TwoValued)
    assert math.ceil(math.log2(design.design.outputs)) == bits


def test_automatic_choice_is_the_least_exact_variance() -> None:
    for size in (2, 4, 16, 40, 64, 100, 1024, 1 << 15):
        for epsilon in ("0.5", "1", "3", "5"):
            chosen = Frequency.design(size, epsilon=epsilon)
            candidates = [Method.GRR, Method.HR, Method.OLH]
            candidates += [Method.SS] if size <= 64 else []
            candidates += [Method.PGR] if geometries(size) else []
            least = min(spread(method, size, epsilon) for method in candidates)
            assert chosen.randomizer.variance(1 / size) == least
            expected = {Method.GRR, Method.SS} if size <= 64 else {Method.PGR, Method.GRR}
            assert chosen.method in (expected if size <= 1024 else {Method.OLH, Method.GRR})


def test_open_domains_hash_with_prime_powers_around_the_ideal() -> None:
    assert [design.buckets for design in hash_designs(1 << 20, Fraction(1))] == [3, 4]
    assert [design.buckets for design in hash_designs(1 << 20, Fraction(4))] == [53, 59]


@pytest.mark.parametrize(
    ("epsilon", "table"), [("0.5", 16.00), ("1", 3.991), ("2", 0.865), ("3", 0.304), ("4", 0.127), ("5", 0.057)]
)
def test_worst_variances_of_optimal_tables(epsilon: str, table: float) -> None:
    spec = Mean.design(-1, 1, epsilon=epsilon, method=MeanMethod.OPTIMAL)
    grid = np.linspace(-1, 1, GRID)
    on_grid = float(variances(Solution(spec.randomizer, spec.outputs), grid).max())
    assert on_grid == pytest.approx(table, rel=0.0007, abs=0.0006)
    assert worst_variance(spec) <= on_grid + 0.0025 + 1e-9
    assert spec.randomizer.outputs <= 64  # six bits
    assert np.allclose(spec.randomizer.probabilities @ spec.outputs, grid, atol=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "best"), [("0.5", 16.67), ("1", 4.289), ("2", 1.042), ("3", 0.432), ("4", 0.219), ("5", 0.122)]
)
def test_the_best_of_duchi_and_pieces_is_about_as_good_as_in_the_continuum(epsilon: str, best: float) -> None:
    methods = (MeanMethod.DUCHI, MeanMethod.PIECEWISE, MeanMethod.HYBRID)
    assert min(worst_variance(Mean.design(-1, 1, epsilon=epsilon, method=m)) for m in methods) <= 1.02 * best


def test_automatic_mean_takes_the_least_worst_case() -> None:
    methods = set(MeanMethod) - {MeanMethod.AUTO, MeanMethod.LAPLACE}
    for epsilon in ("0.02", "1", "4", "9"):
        chosen = worst_variance(Mean.design(0, 9, epsilon=epsilon))
        assert chosen == min(worst_variance(Mean.design(0, 9, epsilon=epsilon, method=m)) for m in methods)


def graded(e: str, steps: tuple[str, ...] = ("5", "4", "3", "2", "1")) -> Hiera:
    return Hiera.design(-1, 1, divisions=DIVISIONS, budgets=[Fraction(e) * Fraction(step) for step in steps])


@pytest.mark.parametrize(
    ("e", "whole", "level", "mild"),
    [
        ("0.25", 2.151, 1.141, 0.933),
        ("0.5", 3.947, 2.351, 1.827),
        ("1", 8.067, 4.956, 3.472),
        ("1.5", 12.580, 7.492, 4.956),
        ("2", 17.083, 9.999, 6.585),
        ("2.5", 21.584, 12.500, 8.455),
    ],
)
def test_exact_epsilon_of_hiera(e: str, whole: float, level: float, mild: float) -> None:
    spec = graded(e)
    assert round(float(spec.epsilon), 3) == whole
    assert round(float(spec.level_epsilon), 3) == level
    assert round(float(graded(e, ("2", "1.75", "1.5", "1.25", "1")).epsilon), 3) == mild


@pytest.mark.parametrize(("target", "times"), [("0.5", 23.3), ("1", 21.6), ("4", 28.8)])
def test_hiera_at_equal_real_epsilon_is_many_times_worse(target: str, times: float) -> None:
    low, high = 0.01, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if graded(f"{middle:.9f}").epsilon < Fraction(target) else (low, middle)
    spec = graded(f"{low:.9f}")
    worst = max(float(variance(np.array([v]), spec, mu=1)) for v in np.linspace(-1, 1, 2001))
    best = {"0.5": 16.67, "1": 4.289, "4": 0.219}[target]
    assert worst / best == pytest.approx(times, rel=0.1)


@pytest.mark.parametrize(
    ("e", "gain"),
    [
        pytest.param(e, gain, marks=[] if e == "1" else [pytest.mark.slow])  # each solves two programmes
        for e, gain in zip(EPSILONS, (1.010, 1.041, 1.125, 1.190, 1.246, 1.282), strict=True)
    ],
)
def test_graded_tables_gain_at_least_what_was_promised(e: str, gain: float) -> None:
    grid = np.concatenate([np.linspace(a, b, 5) for a, b in pairwise(DIVISIONS)])
    average = []
    for steps in (("5", "4", "3", "2", "1"), ("1",) * 5):
        budgets = [Fraction(e) * Fraction(step) for step in steps]
        spec = GradedMean.design(-1, 1, divisions=DIVISIONS, budgets=budgets)
        average.append(float(variances(Solution(spec.randomizer, spec.outputs), grid).mean()))
    assert gain - 0.0005 <= average[1] / average[0] < gain + 0.025


def test_reuse_never_helps() -> None:
    values = np.linspace(-1, 1, 1001)
    for e in EPSILONS:
        by_mu = [variance(values, graded(e), mu=mu) for mu in range(1, 6)]
        assert by_mu[0] == min(by_mu)


def test_report_types_are_the_smallest() -> None:
    assert DirectResponse(256).layout.dtype == np.uint8
    assert DirectResponse(257).layout.dtype == np.uint16
    assert smallest(2) == np.uint8


@pytest.mark.parametrize("epsilon", ["1e-9", "1e-6"])
def test_the_mean_is_designed_of_the_mechanisms_that_there_are_for_the_epsilon(epsilon: str) -> None:
    for missing in (MeanMethod.OPTIMAL, MeanMethod.LAPLACE):
        with pytest.raises(InfeasibleError, match="use pm or hm"):
            Mean.design(0, 1, epsilon=epsilon, method=missing)
    others = [Mean.design(0, 1, epsilon=epsilon, method=each) for each in (MeanMethod.DUCHI, MeanMethod.PIECEWISE)]
    assert worst_variance(Mean.design(0, 1, epsilon=epsilon)) == min(map(worst_variance, others))
