"""Lower bounds on the loss of a mechanism, from event frequencies on two inputs or from one run with canaries.

A synthesizer is audited in one run with many canaries, each included by a fair coin.  The source is Steinke, Nasr and
Jagielski 2023, "Privacy auditing with one (1) training run", Theorems 5.1 and 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho

EventCounts: TypeAlias = NDArray[np.intp]
Bounds: TypeAlias = NDArray[np.float64]

_ORDERS = np.concatenate([np.linspace(1.01, 3, 40), np.geomspace(3.2, 200, 40)])


@dataclass(frozen=True)
class PureOrApproximate:
    """The epsilon at a given delta: ln((P(event | first) - delta)/P(event | second))."""

    claimed: float
    delta: float
    name: str = "epsilon"

    def bound(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Return bounds from a lower bound on the likelier and an upper bound on the rarer probability."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(likelier - self.delta, 0.0)) - np.log(rarer)


@dataclass(frozen=True)
class Gaussian:
    """The mu of Gaussian differential privacy (Dong, Roth, Su 2022): the shift of a unit normal."""

    claimed: float
    name: str = "mu"

    def bound(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Return the difference of the normal quantiles."""
        from scipy.special import ndtri

        with np.errstate(invalid="ignore"):
            difference = ndtri(likelier) - ndtri(rarer)
        return np.where(np.isnan(difference), -np.inf, difference)


@dataclass(frozen=True)
class Concentrated:
    """The rho of zCDP: the largest Renyi divergence of order alpha between the two coins, divided by alpha."""

    claimed: float
    name: str = "rho"

    def bound(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Return lower bounds on rho: zero if the event is not surely likelier on the first input."""
        apart = likelier > rarer
        p = np.where(apart, likelier, 0.5)[:, None]
        q = np.clip(np.where(apart, rarer, 0.5), 1e-300, 1 - 1e-16)[:, None]
        p = np.clip(p, 1e-300, 1 - 1e-16)
        terms = np.logaddexp(
            _ORDERS * np.log(p) + (1 - _ORDERS) * np.log(q), _ORDERS * np.log1p(-p) + (1 - _ORDERS) * np.log1p(-q)
        )
        return np.where(apart, (terms / ((_ORDERS - 1) * _ORDERS)).max(axis=1), 0.0)


@dataclass(frozen=True)
class Distinguished:
    """The advantage of distinguishing two inputs: the difference of an event's probabilities."""

    claimed: float
    name: str = "advantage"

    def bound(self, likelier: Bounds, rarer: Bounds) -> Bounds:
        """Return a bound, below zero if the event is not surely likelier."""
        return likelier - rarer


Measure: TypeAlias = PureOrApproximate | Gaussian | Concentrated | Distinguished


def measure_of(claim: Loss, mu: float | None) -> Measure:
    """Return the measure to bound for a claimed loss: mu if Gaussian noise is claimed, else rho or epsilon."""
    if mu is not None:
        return Gaussian(mu)
    if isinstance(claim, Rho):
        return Concentrated(float(claim.value))
    stated = claim.amounts
    return PureOrApproximate(float(stated["epsilon"]), float(stated.get("delta", 0)))


def lower_bounds(measure: Measure, likelier: EventCounts, rarer: EventCounts, draws: int, *, error: float) -> Bounds:
    """Return bounds that exceed the true loss with probability at most ``error`` each.

    Args:
        measure: the unit of the loss.
        likelier: outputs in the event, out of ``draws``, on the input with the higher probability.
        rarer: the same on the other input.
        draws: outputs per input.
        error: split evenly over the two Clopper-Pearson bounds.
    """
    from scipy.special import betaincinv

    half = error / 2
    with np.errstate(invalid="ignore"):
        low = np.where(likelier > 0, betaincinv(np.maximum(likelier, 1), draws - likelier + 1, half), 0.0)
        high = np.where(rarer < draws, betaincinv(rarer + 1, np.maximum(draws - rarer, 1), 1 - half), 1.0)
    return measure.bound(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))


# audits in one run with canaries

_STEPS = 60  # bisections: they locate the bound to 2^-60 of its range
_LARGEST = 60.0  # largest epsilon that is reported

Run = Callable[[NDArray[np.bool_]], NDArray[np.float64]]


@dataclass(frozen=True)
class OneRun:
    """The number of guesses, the correct ones, and the epsilon that they prove."""

    guesses: int
    correct: int
    claimed: float
    proven: float

    @property
    def passed(self) -> bool:
        """True if the guesses are compatible with the claim."""
        return self.proven <= self.claimed


def audit_one_run(
    run: Run,
    *,
    canaries: int,
    guesses: int,
    claim: Epsilon | EpsilonDelta,
    error: float,
    generator: np.random.Generator,
) -> OneRun:
    """Include each canary by a fair coin, run the mechanism once, and guess the coins from one score per canary.

    Args:
        run: takes the included canaries, boolean ``(canaries,)``, and returns a score per canary.  A high score means
            "included", 0 is undecided.  Canaries must not share a measured cell.
        canaries: number of canaries, each one privacy unit.
        guesses: number of guesses.  Canaries with the most extreme scores are guessed; the others are skipped.
        claim: the claimed loss of the run.
        error: probability of rejecting a run whose claim is true.
        generator: source of the coins.

    Raises:
        InputError: no guesses, or more guesses than canaries.
    """
    if not 0 < guesses <= canaries:
        raise InputError(f"guesses lie between 1 and the {canaries} canaries, not {guesses}", culprit=guesses)
    included = generator.random(canaries) < 1 / 2
    scores = np.asarray(run(included), dtype=np.float64)
    if scores.shape != (canaries,):
        raise InputError("a run returns one score a canary", culprit=scores.shape)
    sure = np.lexsort((generator.random(canaries), -np.abs(scores)))[:guesses]
    correct = int(np.count_nonzero((scores[sure] > 0) == included[sure]))
    claimed, delta = (float(claim.amounts.get(name, 0)) for name in ("epsilon", "delta"))
    proven = _proven(correct, guesses, canaries, delta=delta, error=error)
    return OneRun(guesses, correct, claimed, proven)


def chance_of(correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """Return the largest probability of this many correct guesses under (epsilon, delta): Theorem 5.2.

    With delta = 0 it is the upper tail of Binomial(guesses, e^eps/(1 + e^eps)).
    """
    from scipy.special import bdtrc

    rate = 1 / (1 + math.exp(-epsilon))
    tails = bdtrc(np.arange(correct, -1, -1) - 1.0, guesses, rate) if correct else np.ones(1)
    tails = np.where(np.arange(correct, -1, -1) == 0, 1.0, tails)
    if delta == 0:
        return float(tails[0])
    gains = (tails[1:] - tails[0]) / np.arange(1, correct + 1)
    return min(1.0, float(tails[0] + 2 * canaries * delta * max(0.0, gains.max(initial=0.0))))


def _proven(correct: int, guesses: int, canaries: int, *, delta: float, error: float) -> float:
    low, high = 0.0, _LARGEST
    if chance_of(correct, guesses, canaries, epsilon=low, delta=delta) > error:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if chance_of(correct, guesses, canaries, epsilon=middle, delta=delta) > error:
            high = middle
        else:
            low = middle
    return low
