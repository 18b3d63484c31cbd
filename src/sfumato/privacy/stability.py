"""Release of keys that the data itself names: noise and a threshold that hides what one unit brought in."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import LossError
from sfumato.privacy.accountant import Charge
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Number, Rho, exact
from sfumato.privacy.noise import Integers, as_sensitivity, first_below


@dataclass(frozen=True)
class StabilityThreshold:
    """Noise on the number of units of every key, and the least noisy number at which a key is shown.

    Neighbours: one unit more or less, which holds at most ``keys_per_unit`` keys and counts once in each.
    Let the larger table hold r keys that the smaller does not; each has a count of one there.  Given that
    none of them reaches the threshold, the output is that of noise on the shared keys, whose counts
    moved by at most one each: L1 and squared L2 sensitivity at most ``keys_per_unit``.  That event fails with
    probability 1 - (1 - p)^r, p = P(1 + noise >= threshold), which the threshold keeps at most delta.  So
    the release is delta-approximately epsilon-DP (hence (epsilon, delta)-DP) with discrete Laplace noise,
    and delta-approximately rho-zCDP with discrete Gaussian noise.  Counts of zero are never looked at.
    Source: Korolova, Kenthapadi, Mishra and Ntoulas 2009; Bun and Steinke 2016, Definition 8.1.

    >>> bought = StabilityThreshold.for_epsilon(Epsilon(1), delta="1e-6", keys_per_unit=1)
    >>> bought.threshold, bought.charge.delta
    (15, Fraction(1, 1000000))
    """

    noise: DiscreteLaplace | DiscreteGaussian
    delta: Fraction
    keys_per_unit: int
    threshold: int

    def __init__(self, noise: DiscreteLaplace | DiscreteGaussian, *, delta: Number, keys_per_unit: int) -> None:
        chance = exact(delta, name="delta")
        if not 0 < chance < 1:
            raise LossError(f"delta must be strictly between 0 and 1, not {delta}", culprit=delta)
        keys = int(as_sensitivity(keys_per_unit))

        def failure(above: int) -> Fraction:
            return 1 - (1 - min(Fraction(1), noise.upper_tail(above))) ** keys

        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "delta", chance)
        object.__setattr__(self, "keys_per_unit", keys)
        object.__setattr__(self, "threshold", 1 + first_below(chance, failure))

    @classmethod
    def for_epsilon(cls, epsilon: Epsilon, *, delta: Number, keys_per_unit: int) -> StabilityThreshold:
        """Discrete Laplace noise that costs exactly (epsilon, delta).

        Raises:
            LossError: delta is not strictly between 0 and 1, or ``keys_per_unit`` not a positive integer.
        """
        return cls(DiscreteLaplace.for_loss(epsilon, keys_per_unit), delta=delta, keys_per_unit=keys_per_unit)

    @classmethod
    def for_rho(cls, rho: Rho, *, delta: Number, keys_per_unit: int) -> StabilityThreshold:
        """Discrete Gaussian noise that costs exactly delta-approximate rho-zCDP.

        Raises:
            LossError: delta is not strictly between 0 and 1, or ``keys_per_unit`` not a positive integer.
        """
        return cls(DiscreteGaussian.for_loss(rho, keys_per_unit), delta=delta, keys_per_unit=keys_per_unit)

    @classmethod
    def for_loss(cls, loss: EpsilonDelta, *, keys_per_unit: int) -> StabilityThreshold:
        """Discrete Laplace noise of ``loss.epsilon``, and a threshold of ``loss.delta``."""
        return cls.for_epsilon(Epsilon(loss.epsilon), delta=loss.delta, keys_per_unit=keys_per_unit)

    @property
    def charge(self) -> Charge:
        """What one release costs in every measure."""
        match self.noise.loss(self.keys_per_unit):
            case Epsilon(value=value):
                return Charge(value, value**2 / 2, self.delta)
            case Rho(value=value):
                return Charge(None, value, self.delta)

    def release(self, units: Integers, entropy: Entropy) -> tuple[NDArray[np.bool_], Integers]:
        """Which keys are shown, and their noisy numbers of units.

        Args:
            units: distinct units of each key, int64, shape ``(keys,)``, each at least one.
            entropy: source of the noise.

        Returns:
            A mask of shape ``(keys,)`` and the noisy numbers of the keys it shows.
        """
        noisy = self.noise.add(units, entropy)
        shown = (units > 0) & (noisy >= self.threshold)
        return shown, noisy[shown]
