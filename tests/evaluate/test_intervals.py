from __future__ import annotations

from itertools import product
from math import comb

import pytest

from sfumato.evaluate.intervals import Proportion, newcombe, wilson


# Newcombe 1998, Table II, method 10
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_newcombe_gives_the_published_intervals(first, second, low, high):
    interval = newcombe(Proportion(*first), Proportion(*second), error=0.05)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_newcombe_covers_almost_as_often_as_it_says_by_enumeration():
    trials = 30
    for one, two in product((0.05, 0.3, 0.5), (0.05, 0.4)):
        covered = sum(
            _mass(a, trials, one) * _mass(b, trials, two)
            for a, b in product(range(trials + 1), repeat=2)
            if one - two in newcombe(Proportion(a, trials), Proportion(b, trials), error=0.05)
        )
        assert covered > 0.93


def test_wilson_narrows_with_more_trials():
    few, many = (wilson(Proportion(n // 2, n), error=0.05) for n in (20, 2000))
    assert many.high - many.low < (few.high - few.low) / 5


def _mass(successes: int, trials: int, rate: float) -> float:
    return comb(trials, successes) * rate**successes * (1 - rate) ** (trials - successes)
