"""Estimates with their uncertainty, and their post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.randomizer import FrequencyOracle, RealArray, Tally

_SUREST = 1 - 1e-12  # largest confidence


class Post(StrEnum):
    """A post-processing of unbiased estimates. All except NONE are biased near the edge of the simplex."""

    NONE = "none"  # unbiased; frequencies may be negative
    SIMPLEX = "simplex"  # the nearest distribution in Euclidean distance
    MLE = "mle"  # the maximum-likelihood distribution, by expectation maximization
    SMOOTH = "smooth"  # expectation maximization with smoothing, for ordered bins


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated quantities with the variance of their unbiased estimators.

    Attributes:
        labels: names of the estimated quantities.
        values: the estimates, ``(m,)``.
        variance: of the unbiased estimates, ``(m,)``; post-processing does not change it.
        reports: number of reports behind the estimates.
        step: change of an estimate by one report, ``(m,)`` or one number, if only the noise of the reports is
            uncertain. Errors are then whole steps, and half a step is added to an interval.
        simulated: true if a seed determined the noise of any report, so that nothing is guaranteed.
    """

    labels: tuple[str, ...]
    values: RealArray
    variance: RealArray
    reports: int
    step: RealArray | float = 0.0
    simulated: bool = False

    def interval(self, confidence: float) -> tuple[RealArray, RealArray]:
        """Return the normal confidence interval of every estimate, corrected for errors in whole steps.

        Raises:
            InputError: the confidence is not between zero and one.
        """
        if not 0 < confidence <= _SUREST:  # a larger confidence loses digits in the next line
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

    The value f (1 - f) / m (1 - m / n) is the variance of the draw, in addition to the noise of the reports (Cochran
    1977, theorem 3.2, with n - 1 taken as n).
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
        counts: number of reports of each output, ``(outputs,)``.
        smooth: average neighbors with weights 1:2:1 after every step (EMS, Li et al. 2020, Algorithm 1), so that
            ordered bins do not fit the noise.
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
