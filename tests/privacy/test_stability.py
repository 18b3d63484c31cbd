import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.errors import LossError
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import EpsilonDelta
from sfumato.privacy.threshold import StabilityThreshold


@pytest.mark.parametrize("delta", ["0.3", "0.01", "1e-9"])
@pytest.mark.parametrize("keys", [1, 2, 7])
def test_the_threshold_is_the_least_that_keeps_delta(delta, keys):
    mechanism = StabilityThreshold(EpsilonDelta("0.7", delta), keys_per_unit=keys)

    def failure(threshold):
        """The chance that any of the unit's keys, each of count one, is shown: summed over the noise."""
        reach = 60 * math.isqrt(int(mechanism.noise.variance) + 1) + 200
        shown = sum(mechanism.noise.enclose_pmf(k)[0] for k in range(threshold - 1, reach))
        return 1 - (1 - shown) ** keys

    assert failure(mechanism.threshold) <= Fraction(delta)
    assert failure(mechanism.threshold - 1) > Fraction(delta)


@pytest.mark.parametrize("keys", [1, 2])
def test_pure_noise_with_threshold_is_epsilon_delta(keys):
    """Enumerate every set of outputs in both directions: one shared key of count 2, and the keys of one unit.

    The hockey-stick divergence is summed over the outputs (mask and noisy numbers) of the keys.
    """
    epsilon, delta = Fraction(7, 10), Fraction(1, 20)
    mechanism = StabilityThreshold(EpsilonDelta(epsilon, delta), keys_per_unit=keys)
    span = range(-80, 81)

    def outputs(count):
        """Law of what is shown of one key: None, or its noisy number."""
        if count == 0:
            return {None: 1.0}
        law = {None: 0.0}
        for k in span:
            law_key = count + k if count + k >= mechanism.threshold else None
            law[law_key] = law.get(law_key, 0.0) + mechanism.noise.pmf(k)
        return law

    def together(first, second):
        return {(a, b): p * q for a, p in first.items() for b, q in second.items()}

    # the unit adds to `keys` keys: the first is shared (2 -> 3), the second, if any, is new (0 -> 1)
    cases = [(outputs(2), outputs(3)), (outputs(0), outputs(1))]
    if keys == 2:
        cases += [(together(outputs(2), outputs(0)), together(outputs(3), outputs(1)))]
        cases += [(together(outputs(0), outputs(0)), together(outputs(1), outputs(1)))]
    worst = 0.0
    for small, large in cases:
        for here, there in ((small, large), (large, small)):
            excess = sum(max(0.0, p - math.exp(epsilon) * there.get(out, 0.0)) for out, p in here.items())
            assert excess <= float(delta) + 1e-12
            worst = max(worst, excess)
    assert worst > float(delta) / 4  # the threshold is not idle


def test_charges():
    pure = StabilityThreshold(EpsilonDelta("0.5", "1e-6"), keys_per_unit=3)
    assert (pure.charge.epsilon, pure.charge.rho, pure.charge.delta) == (
        Fraction(1, 2),
        Fraction(1, 8),
        Fraction(1, 10**6),
    )
    assert pure.noise == DiscreteLaplace(6)


def test_release_shows_common_keys_and_hides_rare_ones():
    mechanism = StabilityThreshold(EpsilonDelta(1, "1e-9"), keys_per_unit=1)
    units = np.array([1] * 1000 + [10_000] * 10, dtype=np.int64)
    shown, noisy = mechanism.apply(units, OsEntropy())
    assert shown.tolist() == [False] * 1000 + [True] * 10
    assert noisy.shape == (10,)
    assert (noisy >= mechanism.threshold).all()


def test_a_count_of_zero_is_never_shown():
    mechanism = StabilityThreshold(EpsilonDelta("0.01", "0.49"), keys_per_unit=1)
    shown, _ = mechanism.apply(np.zeros(2000, dtype=np.int64), SimulatedEntropy(1))
    assert not shown.any()


@pytest.mark.parametrize("keys", [0, -1, 1.5, True])
def test_keys_per_unit_is_a_positive_integer(keys):
    with pytest.raises(LossError):
        StabilityThreshold(EpsilonDelta(1, "1e-6"), keys_per_unit=keys)
