from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import FALSE_ALARMS, Subject, audit, audit_all, subject_of
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho

ERROR = FALSE_ALARMS / 9  # nine planted bugs are one run


def two_sided(draw, first, second, claim=Epsilon(1), mu=None):  # noqa: B008 (losses are frozen)
    """A subject from ``draw(answer, count)``."""
    return Subject("planted", claim, lambda count: draw(first, count), lambda count: draw(second, count), mu)


def scores_up_and_down(luck, epsilon):
    """An exponential mechanism on scores that move by 1 in opposite directions, at exp(epsilon * score)."""

    def draw(scores, count):
        weights = np.exp(epsilon * np.array(scores, dtype=float))
        return luck.choice(len(weights), size=count, p=weights / weights.sum())

    return draw


def randomized_response(luck, epsilon, values=4):
    keep = np.exp(epsilon) / (np.exp(epsilon) + values - 1)

    def draw(value, count):
        other = (value + luck.integers(1, values, size=count)) % values
        return np.where(luck.random(count) < keep, value, other)

    return draw


def discrete(scale, seed):
    entropy = SimulatedEntropy(seed)
    return lambda answer, count: DiscreteLaplace(scale).add(np.full(count, answer, dtype=np.int64), entropy)


def planted(name, seed):
    luck = np.random.default_rng(seed)
    match name:
        case "half the noise":
            return two_sided(lambda answer, n: np.round((answer + luck.laplace(0, 0.5, n)) * 2**20) / 2**20, 0, 1)
        case "half the discrete noise":
            return two_sided(discrete("0.5", seed), 0, 1)
        case "four fifths of the noise":
            return two_sided(discrete("0.8", seed), 0, 1)
        case "floating point":
            return two_sided(lambda answer, n: answer + luck.laplace(0, 1, n), 0, 1)
        case "budget not split over ten counts":
            return two_sided(lambda answer, n: answer + discrete(1, seed + answer)(0, 10 * n).reshape(n, 10), 0, 1)
        case "sum not clamped":
            return two_sided(discrete(10, seed), 0, 10_000)
        case "exponential without its factor 2":
            return two_sided(scores_up_and_down(luck, 1.0), [1] + [0] * 8, [0] + [1] * 8)
        case "randomized response at twice epsilon":
            return two_sided(randomized_response(luck, 2.0), 0, 1)
        case "half of sigma":
            return two_sided(lambda answer, n: answer + luck.normal(0, 0.5, n), 0, 1, Rho("0.5"), mu=1.0)
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "draws"),
    [
        ("half the noise", 1600),
        ("half the discrete noise", 400),
        ("four fifths of the noise", 25_600),
        ("floating point", 400),
        ("budget not split over ten counts", 400),
        ("sum not clamped", 100),
        ("exponential without its factor 2", 3200),
        ("randomized response at twice epsilon", 1600),
        ("half of sigma", 6400),
    ],
)
def test_planted_bugs_are_caught(name, draws):
    caught = [not audit(planted(name, seed), draws=draws, error=ERROR).passed for seed in range(20)]
    assert sum(caught) >= 19


HONEST = {
    "laplace": lambda seed: two_sided(discrete(1, seed), 0, 1),
    "exponential": lambda seed: two_sided(
        scores_up_and_down(np.random.default_rng(seed), 0.5), [1] + [0] * 8, [0] + [1] * 8
    ),
    "randomized response": lambda seed: two_sided(randomized_response(np.random.default_rng(seed), 1.0), 0, 1),
}


@pytest.mark.parametrize("name", HONEST)
def test_the_false_alarm_rate_is_held(name):
    """At an error of 0.2, 600 audits reject at most 0.2 of honest mechanisms: 0.28 would be 5 sigma."""
    rejected = 0
    for seed in range(200):
        subject = HONEST[name](seed)
        rejected += not audit(subject, draws=400, error=0.2).passed
    assert rejected <= 200 * 0.28


def test_delta_is_granted_and_no_more():
    """Showing the person outright with probability 0.05 is (0, 0.05) private, and nothing below."""

    def draw_with(luck):
        return lambda present, n: present * (luck.random(n) < 0.05)

    for delta, passes in (("0.05", True), ("0.01", False)):
        subject = two_sided(draw_with(np.random.default_rng(0)), 0, 1, EpsilonDelta("0.01", delta))
        assert audit(subject, draws=6400, error=ERROR).passed is passes


def test_rho_is_bounded_without_assuming_a_gaussian():
    for rho, passes in (("0.5", True), ("0.1", False)):
        entropy = SimulatedEntropy(3)
        noise = DiscreteGaussian.for_loss(Rho("0.5"), squared_sensitivity=1)
        subject = two_sided(
            lambda answer, n, noise=noise, entropy=entropy: noise.add(np.full(n, answer, dtype=np.int64), entropy),
            0,
            1,
            Rho(rho),
        )
        assert audit(subject, draws=6400, error=ERROR).passed is passes


def test_any_callable_is_audited():
    luck = np.random.default_rng(0)
    naive = subject_of(lambda table: len(table) + luck.laplace(0, 1), ([], ["a"]), name="naive", claim=Epsilon(1))
    assert not audit(naive, draws=400, error=ERROR).passed
    rounded = subject_of(
        lambda table: round(len(table) + luck.laplace(0, 1)), ([], ["a"]), name="rounded", claim=Epsilon(1)
    )
    assert audit(rounded, draws=400, error=ERROR).passed


@pytest.mark.parametrize("function", [lambda _: "text", lambda _: float("nan"), lambda _: None])
def test_callables_that_return_no_numbers_are_refused(function):
    with pytest.raises(InputError):
        audit(subject_of(function, (0, 1), name="odd", claim=Epsilon(1)), draws=40)


def test_outputs_of_unequal_shapes_and_too_few_draws_are_refused():
    uneven = Subject("uneven", Epsilon(1), np.zeros, lambda count: np.zeros((count, 2)))
    with pytest.raises(InputError, match="different shapes"):
        audit(uneven, draws=40)
    with pytest.raises(InputError, match="at least 20"):
        audit(uneven, draws=10)
    short = Subject("short", Epsilon(1), lambda _: np.zeros(3), lambda _: np.zeros(3))
    with pytest.raises(InputError, match="asked for 40 outputs"):
        audit(short, draws=40)


def test_the_error_is_split_over_the_subjects():
    subjects = [two_sided(discrete(1, seed), 0, 1) for seed in range(5)]
    seen = []
    findings = audit_all(subjects, draws=800, error=0.05, watch=seen.append)
    assert len(findings) == len(seen) == 5
    alone = audit(two_sided(discrete(1, 4), 0, 1), draws=800, error=0.01)
    assert findings[4] == alone
