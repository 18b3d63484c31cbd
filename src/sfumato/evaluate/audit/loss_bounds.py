"""From how often an event holds on two inputs to a lower bound on the loss of the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho

EventCounts: TypeAlias = NDArray[np.intp]
Bounds: TypeAlias = NDArray[np.float64]

_ORDERS = np.concatenate([np.linspace(1.01, 3, 40), np.geomspace(3.2, 200, 40)])


@dataclass(frozen=True)
class PureOrApproximate:
    """epsilon at a given delta: ln((P(event | first) - delta)/P(event | second))."""

    claimed: float
    delta: float
    name: str = "epsilon"

    def of(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Bounds from a lower bound of the likelier and an upper bound of the rarer probability."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(likelier - self.delta, 0.0)) - np.log(rarer)


@dataclass(frozen=True)
class Gaussian:
    """mu of Gaussian differential privacy (Dong, Roth, Su 2022): the shift of a unit normal."""

    claimed: float
    name: str = "mu"

    def of(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Difference of the normal quantiles."""
        from scipy.special import ndtri

        with np.errstate(invalid="ignore"):
            found = ndtri(likelier) - ndtri(rarer)
        return np.where(np.isnan(found), -np.inf, found)


@dataclass(frozen=True)
class Concentrated:
    """rho of zCDP: the largest Renyi divergence of order alpha between the two coins, over alpha."""

    claimed: float
    name: str = "rho"

    def of(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Zero where the event is not surely likelier on the first input."""
        apart = likelier > rarer
        p = np.where(apart, likelier, 0.5)[:, None]
        q = np.clip(np.where(apart, rarer, 0.5), 1e-300, 1 - 1e-16)[:, None]
        p = np.clip(p, 1e-300, 1 - 1e-16)
        terms = np.logaddexp(
            _ORDERS * np.log(p) + (1 - _ORDERS) * np.log(q), _ORDERS * np.log1p(-p) + (1 - _ORDERS) * np.log1p(-q)
        )
        return np.where(apart, (terms / ((_ORDERS - 1) * _ORDERS)).max(axis=1), 0.0)


Measure: TypeAlias = PureOrApproximate | Gaussian | Concentrated


def measure_of(claim: Loss, mu: float | None) -> Measure:
    """What is bounded for a claimed loss; ``mu`` where Gaussian noise is claimed."""
    if mu is not None:
        return Gaussian(mu)
    match claim:
        case Epsilon(value=epsilon):
            return PureOrApproximate(float(epsilon), delta=0.0)
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return PureOrApproximate(float(epsilon), float(delta))
        case Rho(value=rho):
            return Concentrated(float(rho))


def lower_bounds(measure: Measure, likelier: EventCounts, rarer: EventCounts, draws: int, *, error: float) -> Bounds:
    """Bounds that exceed the true loss with probability at most ``error`` each.

    Args:
        measure: the unit of the loss.
        likelier: outputs in the event, out of ``draws`` on the input where it is likelier.
        rarer: the same on the other input.
        draws: outputs on each input.
        error: split evenly over the two Clopper-Pearson bounds.
    """
    from scipy.special import betaincinv

    half = error / 2
    with np.errstate(invalid="ignore"):
        low = np.where(likelier > 0, betaincinv(np.maximum(likelier, 1), draws - likelier + 1, half), 0.0)
        high = np.where(rarer < draws, betaincinv(rarer + 1, np.maximum(draws - rarer, 1), 1 - half), 1.0)
    return measure.of(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
