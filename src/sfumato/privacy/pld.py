"""A tighter figure for many pure-epsilon events at a given delta: to be shown, never enforced.

Any epsilon-DP event is a post-processing of randomised response with that epsilon (Kairouz, Oh and
Viswanath 2015, Theorem 3.3 and its proof; adaptive composition included), whose privacy loss is
+epsilon with probability e^epsilon / (1 + e^epsilon) and -epsilon otherwise.  For discrete Laplace noise on a
count (sensitivity 1) this *is* the privacy loss, so the figure is exact there; for other events it is
an upper bound.  It is computed in floating point, so the ledger never decides by it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.loss import Epsilon

Floats = NDArray[np.float64]

_GRID = 1 << 15
_BISECTIONS = 60


def composed_epsilon(losses: Iterable[Epsilon], delta: Fraction) -> float:
    """An epsilon for which all ``losses`` together are (epsilon, delta)-DP.

    Events of the same loss are composed in closed form (binomial).  Different losses are laid on a grid of
    2^15 points, rounded towards more loss, so that the figure errs upward.

    Args:
        losses: the pure losses of the events; none gives zero.
        delta: strictly between zero and one.

    Returns:
        At most the sum of the losses.

    >>> round(composed_epsilon([Epsilon("0.1")] * 1000, Fraction(1, 10**6)), 3)
    19.345
    """
    groups = [(float(loss.value), times) for loss, times in Counter(losses).items()]
    if not groups:
        return 0.0
    values, masses = _same(*groups[0]) if len(groups) == 1 else _mixed(groups)
    wanted = float(delta)

    def exceeds(epsilon: float) -> bool:
        above = values > epsilon
        return float(masses[above] @ -np.expm1(epsilon - values[above])) > wanted

    low, high = 0.0, math.fsum(epsilon * times for epsilon, times in groups)
    if not exceeds(low):
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _same(epsilon: float, times: int) -> tuple[Floats, Floats]:
    """Privacy losses and their probabilities, shape ``(times + 1,)``, for equal events: a binomial."""
    wins = np.arange(times + 1, dtype=np.float64)
    ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(times, 0, -1) / np.arange(1, times + 1)))])
    log_masses = ways - (times - wins) * epsilon - times * math.log1p(math.exp(-epsilon))
    return epsilon * (2 * wins - times), np.exp(log_masses)


def _mixed(groups: list[tuple[float, int]]) -> tuple[Floats, Floats]:
    """The same for different events: shifts of one grid, each group rounded up to its next point."""
    most = math.fsum(epsilon * times for epsilon, times in groups)
    step = 2 * most / _GRID
    masses: Floats = np.zeros(_GRID + len(groups) + 2)
    masses[0] = 1.0
    lowest, reached = 0.0, 1  # the first point, and how many points have mass
    for epsilon, times in groups:
        values, weights = _same(epsilon, times)
        shifts = np.ceil((values - values[0]) / step).astype(np.int64)
        lowest += float(values[0])
        before = masses[:reached].copy()
        reached += int(shifts[-1])
        masses[:reached] = 0.0
        for shift, weight in zip(shifts, weights, strict=True):
            if weight:
                masses[shift : shift + before.size] += weight * before
    return lowest + step * np.arange(reached, dtype=np.float64), masses[:reached]
