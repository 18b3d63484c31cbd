"""HierA: its parts do what the print says, and pooling is unbiased only without clamping."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.local.estimators import Post
from sfumato.local.protocol.device import simulate
from sfumato.local.specs.hiera import DIVISIONS, Hiera, aggregate, attenuation, convert, lhp, variance

LIMIT = 9.3  # standard deviations: a false alarm in 10^20


def graded(e: str) -> Hiera:
    return Hiera.design(-1, 1, divisions=DIVISIONS, budgets=[Fraction(e) * step for step in (5, 4, 3, 2, 1)])


def test_lhp_is_level_response_then_sign_response_with_the_reported_levels_budget() -> None:
    budgets = (Fraction(2), Fraction(1))
    rows = lhp((-1, 0.5, 1), budgets)
    stay = math.exp(2) / (math.exp(2) + 1)
    sign = lambda value, epsilon: 0.5 + value * math.tanh(epsilon / 2) / 2  # noqa: E731
    # the high end of the first level, at 0.5: level 0 kept, then level 1 reported
    assert rows[1, 0] == pytest.approx(stay * sign(0.5, 2))
    assert rows[1, 2] == pytest.approx((1 - stay) * sign(0.5, 1))
    assert np.allclose(rows.sum(axis=1), 1)


def test_values_within_a_level_keep_their_mean_and_level() -> None:
    from sfumato.privacy.entropy import SimulatedEntropy

    spec = graded("1")
    codes = spec.encode(np.full(200_000, -0.5), SimulatedEntropy(1))
    assert set(codes // 2) == {1}
    ends = np.where(codes % 2, -0.2, -0.6)
    assert abs(ends.mean() + 0.5) < LIMIT * 0.2 / math.sqrt(200_000)
    assert spec.encode(np.array([-1, -0.6, 0.2, 1]), SimulatedEntropy(2)).tolist() == [0, 2, 6, 9]


def test_conversion_has_the_target_budgets_flip_probability() -> None:
    source, target = Fraction(2), Fraction(1)
    p, q = (math.exp(e) / (math.exp(e) + 1) for e in (2, 1))
    keep = (p + q - 1) / (2 * p - 1)
    assert keep * p + (1 - keep) * (1 - p) == pytest.approx(q)
    plus, minus = convert(10**6, 0, source=source, target=target, generator=np.random.default_rng(1))
    assert plus + minus == 10**6
    assert abs(plus - keep * 10**6) < LIMIT * math.sqrt(keep * (1 - keep) * 10**6)
    with pytest.raises(InputError, match="smaller"):
        convert(1, 1, source=target, target=source, generator=np.random.default_rng(1))


@pytest.mark.parametrize("mu", [1, 2, 3, 5])
def test_pooling_is_unbiased_and_has_the_exact_variance(mu: int) -> None:
    spec, values = graded("0.5"), np.random.default_rng(3).uniform(-1, 1, 400)
    generator = np.random.default_rng(mu)
    runs = 2_000
    everyone = np.tile(values, runs)
    data = simulate(spec, everyone, seed=mu).data.reshape(runs, -1)
    made = [
        aggregate(spec.randomizer.tally(row), spec.budgets, mu=mu, clamp=False, generator=generator) for row in data
    ]
    exact = variance(values, spec, mu=mu)
    assert abs(np.mean(made) - values.mean()) < LIMIT * math.sqrt(exact / runs)
    assert abs(np.var(made) / exact - 1) < LIMIT * math.sqrt(2 / runs)


def test_every_person_counts_exactly_mu_times() -> None:
    """All reports are +1 and budgets are equal, so the pooled mean is one over the rate for any weights."""
    budgets = (Fraction(3),) * 5
    tally = np.array([7, 0, 11, 0, 13, 0, 17, 0, 19, 0])
    for mu in range(1, 6):
        pooled = aggregate(tally, budgets, mu=mu, clamp=False, generator=np.random.default_rng(0))
        assert pooled == pytest.approx(1 / attenuation(budgets)[0])  # equal budgets convert without flipping
    with pytest.raises(InputError, match="1 to 5"):
        aggregate(tally, budgets, mu=6, clamp=False, generator=np.random.default_rng(0))


def test_the_printed_clamp_biases_the_mean() -> None:
    spec, values = graded("0.25"), np.clip(np.random.default_rng(5).normal(0.5, 0.1, 50), -1, 1)
    generator = np.random.default_rng(6)
    runs = 3_000
    data = simulate(spec, np.tile(values, runs), seed=1).data.reshape(runs, -1)
    clamped, plain = (
        [aggregate(spec.randomizer.tally(row), spec.budgets, mu=1, clamp=clamp, generator=generator) for row in data]
        for clamp in (True, False)
    )
    deviation = math.sqrt(variance(values, spec, mu=1) / runs)
    assert abs(np.mean(plain) - values.mean()) < LIMIT * deviation
    assert np.mean(clamped) - values.mean() < -0.1


def test_the_server_estimates_without_reuse_in_the_units_of_the_data() -> None:
    spec = Hiera.design(0, 100, divisions=(0, 50, 100), budgets=(4, 2))
    values = np.linspace(10, 70, 40_000)
    made = spec.estimate(spec.randomizer.tally(simulate(spec, values, seed=1).data), values.size, Post.NONE)
    assert abs(made.values[0] - 40) < LIMIT * math.sqrt(made.variance[0])
    assert made.variance[0] == pytest.approx(
        50**2 * variance(values, spec, mu=1) + values.var() / values.size, rel=0.03
    )
