"""Estimates with their uncertainty, and what may be done to them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.randomizer import FrequencyOracle, RealArray, Tally

_SUREST = 1 - 1e-12  # of confidences


class Post(StrEnum):
    """A post-processing of unbiased estimates; all but NONE are biased near the edge of the simplex."""

    NONE = "none"  # unbiased; frequencies may be negative
    SIMPLEX = "simplex"  # the nearest distribution in the Euclidean sense
    MLE = "mle"  # the likeliest distribution, by expectation maximization
    SMOOTH = "smooth"  # expectation maximization with smoothing, for ordered bins


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated quantities with the variance of their unbiased estimators.

    Attributes:
        labels: what is estimated, one a value.
        values: the estimates, ``(m,)``.
        variance: of the unbiased estimates, ``(m,)``; post-processing does not change what is stated here.
        reports: number of reports behind them.
        step: by how much one report moves an estimate, ``(m,)`` or one number, where only the noise of the reports is
            uncertain; errors are whole steps, and half of one is added to an interval.
        simulated: whether the noise of any of the reports follows from a seed, so that nothing is guaranteed.
    """

    labels: tuple[str, ...]
    values: RealArray
    variance: RealArray
    reports: int
    step: RealArray | float = 0.0
    simulated: bool = False

    def interval(self, confidence: float) -> tuple[RealArray, RealArray]:
        """Return the normal confidence interval of every estimate, corrected for errors of whole steps.

        Raises:
            InputError: the confidence is not between zero and one.
        """
        if not 0 < confidence <= _SUREST:  # of more, half of the rest is lost beside one
            raise InputError(
                f"the confidence must lie between 0 and 1, with twelve digits, not {confidence}", culprit=confidence
            )
        width = NormalDist().inv_cdf((1 + confidence) / 2) * np.sqrt(self.variance) + self.step / 2
        return self.values - width, self.values + width


def frequencies(randomizer: FrequencyOracle, tally: Tally, reports: int) -> tuple[RealArray, RealArray]:
    """Estimate unbiased frequencies and their variance (Wang et al. 2017, equations 1 and 2)."""
    if reports == 0:
        raise InputError("there are no reports to estimate from")
    p, q = randomizer.p, randomizer.q
    values = (randomizer.support(tally) / reports - q) / (p - q)
    share = np.clip(values, 0, 1)
    variance = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / ((p - q) ** 2 * reports)
    return values, variance


def sampled(shares: RealArray, taken: int, people: int) -> RealArray:
    """Return the variance of shares among ``taken`` people, drawn at random out of ``people``.

    f (1 - f) / m (1 - m / n): who happened to be drawn, on top of the noise of their reports (Cochran 1977,
    theorem 3.2, with n - 1 taken as n).
    """
    held = np.clip(shares, 0, 1)
    spread: RealArray = held * (1 - held) * ((1 - taken / people) / taken)
    return spread


def simplex(values: RealArray) -> RealArray:
    """Return the Euclidean projection onto the probability simplex (Duchi, Shalev-Shwartz, Singer, Chandra 2008).

    >>> simplex(np.array([0.7, 0.5, -0.4])).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    descending = np.sort(values)[::-1]
    excess = np.cumsum(descending) - 1
    last = np.flatnonzero(descending - excess / np.arange(1, values.size + 1) > 0)[-1]
    projected: RealArray = np.maximum(values - excess[last] / (last + 1), 0)
    return projected


def likeliest(channel: RealArray, counts: NDArray[np.int64], *, smooth: bool = False) -> RealArray:
    """Return the maximum-likelihood distribution of the inputs of a channel, by expectation maximization.

    Args:
        channel: P(output | input), ``(inputs, outputs)``.
        counts: how often each output was reported, ``(outputs,)``.
        smooth: average neighbours with weights 1:2:1 after every step (EMS, Li et al. 2020, Algorithm 1), which
            keeps ordered bins from fitting the noise.
    """
    seen = counts > 0
    table, observed = channel[:, seen], counts[seen] / counts.sum()
    values = np.full(len(channel), 1 / len(channel))
    for _ in range(10_000):
        update = values * (table @ (observed / (values @ table)))
        if smooth:
            padded = np.pad(update, 1, mode="edge")
            update = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
            update /= update.sum()
        change = float(np.abs(update - values).sum())
        values = update
        if change < 1e-7:  # noqa: PLR2004 -- far below any sampling error
            break
    return values
