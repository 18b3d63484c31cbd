"""A threshold on noisy counts that hides data-dependent keys of few units."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.entropy import Entropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta
from sfumato.privacy.noise import first_number


@dataclass(frozen=True)
class StabilityThreshold:
    """Noise on the number of units of every key, and the smallest noisy number at which a key is shown.

    Neighbors: one unit more or less, which holds at most ``keys_per_unit`` keys and counts once in each.

    Let the larger table hold r keys that the smaller does not; each has a count of one there.  If none of them reaches
    the threshold, the output is that of noise on the shared keys, whose counts moved by at most one each: L1
    sensitivity at most ``keys_per_unit``.  That event fails with probability 1 - (1 - p)^r, p = P(1 + noise >=
    threshold), which the threshold keeps at most delta.  So the release is delta-approximately epsilon-DP with discrete
    Laplace noise, hence (epsilon, delta)-DP.  Keys with a count of zero are never used.

    Args:
        loss: the epsilon of the noise, and the delta that the threshold keeps.
        keys_per_unit: the largest number of keys of one unit.

    Raises:
        LossError: ``keys_per_unit`` is not a positive integer.

    Source: Korolova, Kenthapadi, Mishra and Ntoulas 2009; Bun and Steinke 2016, Definition 8.1.

    >>> mechanism = StabilityThreshold(EpsilonDelta(1, "1e-6"), keys_per_unit=1)
    >>> mechanism.threshold, mechanism.charge.delta
    (15, Fraction(1, 1000000))
    """

    noise: DiscreteLaplace
    delta: Fraction
    keys_per_unit: int
    threshold: int

    def __init__(self, loss: EpsilonDelta, *, keys_per_unit: int) -> None:
        noise = DiscreteLaplace.for_loss(Epsilon(loss.epsilon), keys_per_unit)

        def hides(above: int) -> bool:
            return 1 - (1 - min(Fraction(1), noise.upper_tail(above))) ** int(keys_per_unit) <= loss.delta

        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "delta", loss.delta)
        object.__setattr__(self, "keys_per_unit", int(keys_per_unit))
        object.__setattr__(self, "threshold", 1 + first_number(hides))

    @property
    def charge(self) -> Charge:
        """The charge of one release in every measure."""
        pure = self.noise.loss(self.keys_per_unit).value
        return Charge(pure, pure**2 / 2, self.delta)

    def apply(self, units: NDArray[np.int64], entropy: Entropy) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return the keys to release, and their noisy numbers of units.

        Args:
            units: distinct units of each key, int64, shape ``(keys,)``, each at least one.
            entropy: source of the noise.

        Returns:
            A mask of shape ``(keys,)`` and the noisy numbers of the keys in it.
        """
        noisy = self.noise.add(units, entropy)
        released = (units > 0) & (noisy >= self.threshold)
        return released, noisy[released]
