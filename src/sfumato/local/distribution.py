"""The distribution of a bounded number over bins: square wave reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import whole
from sfumato.errors import InputError
from sfumato.local.bounds import check_claim, claimed
from sfumato.local.estimate import Estimate, Post, likeliest, simplex
from sfumato.local.mean import check_bounds, check_table, numbers
from sfumato.local.randomizer import Codes, Counts
from sfumato.local.table import Table
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

LARGEST_BINS = 512
"""Bins of a distribution; the table has about twice as many outputs."""


@dataclass(frozen=True)
class Distribution:
    """The shares of equal bins between ``low`` and ``high``.

    Attributes:
        low: left end of the first bin.
        high: right end of the last bin.
        epsilon: what every report claims; integers prove it from ``randomizer``.
        randomizer: one row a bin; each favours a window of outputs around it.
    """

    low: float
    high: float
    epsilon: Fraction
    randomizer: Table

    kind: ClassVar[str] = "distribution"
    neighbours: ClassVar[str] = "one person's value replaced by any other value between the bounds"

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        check_table(self.randomizer, LARGEST_BINS)
        check_claim(self.epsilon, self.randomizer.ratio(), self)

    @classmethod
    def design(cls, low: float, high: float, *, bins: int, epsilon: Number) -> Distribution:
        """Square wave (Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020) on ``bins`` bins.

        Raises:
            LossError: an epsilon outside [1e-9, 32].
            InputError: bounds that do not increase, or bins outside 2 .. 512.
        """
        check_bounds(low, high)
        exact = claimed(epsilon)
        bins = whole(bins, "bins are a whole number")
        if not 2 <= bins <= LARGEST_BINS:  # noqa: PLR2004
            raise InputError(f"a distribution needs from 2 to {LARGEST_BINS} bins, not {bins}", culprit=bins)
        window = max(1, round(2 * half_width(float(exact)) * bins))
        return cls(float(low), float(high), exact, Table.windows(bins, bins + window - 1, exact))

    @property
    def edges(self) -> NDArray[np.float64]:
        """Edges of the bins, ``(bins + 1,)``."""
        return np.linspace(self.low, self.high, self.randomizer.inputs + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """One interval a bin."""
        edges = self.edges
        return tuple(f"[{low:.6g}, {high:.6g})" for low, high in pairwise(edges.tolist()))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> Codes:  # noqa: ARG002 -- see Spec
        """Bins of values ``(n,)``.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        scaled = (numbers(values, self.low, self.high) - self.low) * (self.randomizer.inputs / (self.high - self.low))
        return np.minimum(scaled.astype(np.uint16), np.uint16(self.randomizer.inputs - 1))

    def estimate(self, tally: Counts, reports: int, post: Post) -> Estimate:
        """Shares of the bins.

        Unbiased (``Post.NONE``) shares solve least squares and vary widely; the published estimator is
        ``Post.SMOOTH``, expectation maximisation with smoothing, whose bias the stated variance does not include.

        Raises:
            InputError: no reports.
        """
        if reports == 0:
            raise InputError("there are no reports to estimate from")
        channel = self.randomizer.probabilities
        seen = tally / reports
        inverse = np.linalg.pinv(channel.T)  # (bins, outputs)
        values = inverse @ seen
        variance = (np.square(inverse) @ seen - values**2) / reports
        match post:
            case Post.SIMPLEX:
                values = simplex(values)
            case Post.MLE:
                values = likeliest(channel, tally)
            case Post.SMOOTH:
                values = likeliest(channel, tally, smooth=True)
            case Post.NONE:
                pass
        return Estimate(self.labels, values, np.maximum(variance, 0), reports)


def half_width(epsilon: float) -> float:
    """Half the width of the square wave that carries most information (Li et al. 2020, equation 6).

    >>> round(half_width(1.0), 4)
    0.2561
    """
    if epsilon < 1e-3:  # noqa: PLR2004 -- the limit, where the formula cancels
        return 0.5
    power = math.exp(epsilon)
    return (epsilon * power - power + 1) / (2 * power * (power - 1 - epsilon))
