"""Confidence intervals of proportions, differences, sampled means, and attack advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import TableError

FEWEST_TESTED = 20  # tested people of each kind, the minimum for an interval
ERROR = 0.05


@dataclass(frozen=True)
class Proportion:
    """Successes out of independent trials.

    >>> Proportion(3, 4).value
    0.75
    """

    successes: int
    trials: int

    @property
    def value(self) -> float:
        """The observed share; 0 if there are no trials."""
        return self.successes / self.trials if self.trials else 0.0


@dataclass(frozen=True)
class ConfidenceInterval:
    """A two-sided confidence interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def wilson(share: Proportion, *, error: float) -> ConfidenceInterval:
    """Return the score interval of one proportion (Wilson 1927) with two-sided error probability ``error``.

    >>> wilson(Proportion(0, 10), error=0.05).low
    0.0
    """
    z = _normal_quantile(1 - error / 2)
    trials, rate = share.trials, share.value
    centre = rate + z * z / (2 * trials)
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return ConfidenceInterval(max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def newcombe(first: Proportion, second: Proportion, *, error: float) -> ConfidenceInterval:
    """Return the interval of ``first - second`` for independent proportions (Newcombe 1998, method 10).

    >>> interval = newcombe(Proportion(56, 70), Proportion(48, 80), error=0.05)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.0524, 0.3339)
    """
    one, two = wilson(first, error=error), wilson(second, error=error)
    difference = first.value - second.value
    return ConfidenceInterval(
        difference - math.hypot(first.value - one.low, two.high - second.value),
        difference + math.hypot(one.high - first.value, second.value - two.low),
    )


def _normal_quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


@dataclass(frozen=True)
class SampledMean:
    """A mean over ``taken`` of ``all`` items, and its standard error: zero if all were taken.

    >>> mean_of([0.0, 1.0], of=2)
    SampledMean(value=0.5, error=0.0, taken=2, all=2)
    """

    value: float
    error: float
    taken: int
    all: int


def mean_of(values: Sequence[float], *, of: int) -> SampledMean:
    """Return the mean of ``values``, a sample without replacement from ``of`` values."""
    taken = len(values)
    error = 0.0
    if 1 < taken < of:
        error = float(np.std(values, ddof=1)) * math.sqrt((1 - taken / of) / taken)
    return SampledMean(math.fsum(values) / taken, error, taken, of)


@dataclass(frozen=True)
class Advantage:
    """The success of one attack on equally many members and controls of the testing half.

    ``bound`` is the largest advantage that the guarantee of the release allows; None if there is no bound.
    """

    attack: str
    knowledge: str  # knowledge of the attacker besides the release
    members: Proportion
    controls: Proportion
    interval: ConfidenceInterval
    bound: float | None = None

    @property
    def value(self) -> float:
        """The success on members minus the success on controls."""
        return self.members.value - self.controls.value


def advantage(attack: str, knowledge: str, members: NDArray[np.bool_], controls: NDArray[np.bool_]) -> Advantage:
    """Return the attack's advantage with Newcombe's two-sided interval at error probability :data:`ERROR`.

    Raises:
        TableError: the numbers differ, or are too small for an interval.
    """
    if len(members) != len(controls):
        raise TableError("an attack needs equal numbers of members and controls", culprit=attack)
    if len(members) < FEWEST_TESTED:
        raise TableError(
            f"too few rows for an interval: {attack} needs at least {FEWEST_TESTED} of each kind", culprit=attack
        )
    won, guessed = (Proportion(int(outcome.sum()), len(outcome)) for outcome in (members, controls))
    return Advantage(attack, knowledge, won, guessed, newcombe(won, guessed, error=ERROR))


def worst(results: tuple[Advantage, ...]) -> Advantage:
    """Return the largest advantage, with an interval corrected for choosing it (Bonferroni)."""
    largest = max(results, key=lambda result: result.value)
    interval = newcombe(largest.members, largest.controls, error=ERROR / len(results))
    return replace(largest, interval=interval)
