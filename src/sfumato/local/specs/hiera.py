"""HierA: budgets graded by the sensitivity of values, as published, with its actual guarantee.

The domain is cut into levels with decreasing budgets.  A person reports a level, randomized with the budget of the
*true* level, then the sign of the value, randomized with the budget of the *reported* level (LHP).  The collector also
re-randomizes reports of levels with large budgets to smaller ones, so that it can use them there too (PLC).  It pools
all levels.

The budgets are not the guarantee.  The level alone, and level and sign together, distinguish values by more than the
budget of either.  ``Hiera.epsilon`` is the exact worst case, by enumeration of the integer table.  With budgets (5, 4,
3, 2, 1) it is 8.067, not 1 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, expect_all
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.randomizers.randomizer import InputCodes, RealArray, Tally, claimed, derive, proven
from sfumato.local.specs.mean import check_bounds, check_table, grid_codes, numbers
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

DIVISIONS = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)
"""The published division of [-1, 1]."""


@dataclass(frozen=True)
class Hiera(Spec):
    """The mean of a number whose levels have different budgets.

    Attributes:
        divisions: ends of the levels, increasing; the first and last are the bounds of the domain.
        budgets: nominal budget of each level, not increasing.  They are parameters, not guarantees.
        randomizer: LHP as a table; inputs are the two ends of every level, outputs are level and sign.
        epsilon: the guarantee, the exact worst case over all pairs of values and all reports.
    """

    divisions: tuple[float, ...]
    budgets: tuple[Fraction, ...]
    randomizer: IntegerTable

    kind: ClassVar[str] = "hiera"
    claims: ClassVar[bool] = False
    neighbours: ClassVar[str] = "one person's value replaced by any other value between the bounds"

    def _check(self) -> None:
        check_division(self.divisions, len(self.budgets))
        if any(low < high for low, high in pairwise(self.budgets)):
            raise InputError("the budgets of levels must not increase", culprit=self.budgets)
        depth = len(self.budgets)
        check_table(self.randomizer, 2 * depth)
        for budget in self.budgets:
            claimed(budget)
        if (self.randomizer.inputs, self.randomizer.outputs) != (2 * depth, 2 * depth):
            raise InputError("the table of a graded mean does not fit its levels", culprit=self)
        derive(self, epsilon=proven(self.randomizer.ratio()))

    @classmethod
    def design(cls, low: float, high: float, *, divisions: Sequence[float], budgets: Sequence[Number]) -> Hiera:
        """Return a spec for levels and their budgets; the first level is the least sensitive.

        Raises:
            InputError: the divisions do not increase from ``low`` to ``high``, do not fit the budgets, or the budgets
                increase.
            LossError: a budget is outside [1e-9, 32].
        """
        expect(budgets, Sequence, "budgets are a list, one a level")
        check_division(divisions, len(budgets))
        if (divisions[0], divisions[-1]) != (low, high):
            raise InputError(f"the ends of levels must start at {low} and end at {high}", culprit=divisions)
        exact = tuple(claimed(budget) for budget in budgets)
        return cls(tuple(map(float, divisions)), exact, IntegerTable.nearest(lhp(divisions, exact)))

    @property
    def low(self) -> float:
        """The least value."""
        return self.divisions[0]

    @property
    def high(self) -> float:
        """The largest value."""
        return self.divisions[-1]

    @property
    def level_epsilon(self) -> Fraction:
        """The epsilon of the reported level alone."""
        levels = [
            [plus + minus for plus, minus in zip(row[::2], row[1::2], strict=True)]
            for row in self.randomizer.numerators
        ]
        return proven(max(Fraction(max(column), min(column)) for column in zip(*levels, strict=True)))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:
        """Return the level of each value, and one of its ends by random rounding: ``2 level + end``.

        The sign's probability is linear in the value, so rounding within the level does not change LHP.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        column = numbers(values, self.low, self.high)
        edges = np.array(self.divisions)
        level = levels_of(column, edges)
        within = (column - edges.take(level)) * (1 / np.diff(edges)).take(level)
        return np.uint16(2) * level + grid_codes(within, entropy, low=0, high=1, inputs=2)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the mean without reuse (mu = 1), which is best, and without bias.

        Raises:
            InputError: there are fewer than two reports, or the post-processing is not none.
        """
        if post is not Post.NONE or reports < 2:  # noqa: PLR2004
            raise InputError("a graded mean needs at least two reports, and no post-processing")
        plus, minus = tally[::2], tally[1::2]
        weight = 1 / attenuation(self.budgets)
        mean = float(weight @ (plus - minus)) / reports
        spread = (float(weight**2 @ (plus + minus)) / reports - mean**2) / (reports - 1)
        half, centre = (self.high - self.low) / 2, (self.high + self.low) / 2
        return Estimate(self.labels, np.array([centre + half * mean]), np.array([half**2 * spread]), reports)


def lhp(divisions: Sequence[float], budgets: Sequence[Fraction]) -> RealArray:
    """Return P(level, sign | value) of the local hierarchical perturbation, at both ends of every level.

    Rows are the low and the high end of each level in turn; columns are each level with sign +1, then with -1.
    """
    edges = np.array(divisions, dtype=np.float64)
    scaled = (2 * edges - edges[0] - edges[-1]) / (edges[-1] - edges[0])
    depth = len(budgets)
    strength = np.exp([float(budget) for budget in budgets])
    levels = np.full((depth, depth), 1.0) + np.diag(strength - 1)
    levels /= (strength + depth - 1)[:, None]
    rows = np.empty((2 * depth, 2 * depth))
    for level in range(depth):
        for end in range(2):
            up = (1 + scaled[level + end] * attenuation(budgets)) / 2
            rows[2 * level + end, ::2] = levels[level] * up
            rows[2 * level + end, 1::2] = levels[level] * (1 - up)
    return rows


def convert(
    plus: int, minus: int, *, source: Fraction, target: Fraction, generator: np.random.Generator
) -> tuple[int, int]:
    """Re-randomize a level's sign counts to the smaller budget of another level (PLC).

    A sign is unchanged with probability (p_i + p_j - 1) / (2 p_i - 1), with p = e^epsilon / (e^epsilon + 1), and
    flipped otherwise.  Two binomial draws flip the counts.  This is post-processing of reports.

    Raises:
        InputError: the target budget is larger than the source's; reports cannot be made more accurate.
    """
    if target > source:
        raise InputError("reports can be converted to a smaller budget only", culprit=(source, target))
    from_level, to_level = attenuation((source, target))
    chance = (1 + to_level / from_level) / 2
    kept_plus, kept_minus = int(generator.binomial(plus, chance)), int(generator.binomial(minus, chance))
    return kept_plus + minus - kept_minus, kept_minus + plus - kept_plus


def aggregate(
    tally: Tally, budgets: Sequence[Fraction], *, mu: int, clamp: bool, generator: np.random.Generator
) -> float:
    """Return the published estimate: every report is used ``mu`` times, in its own level and in stricter ones below.

    Level j uses its own reports mu - k + j times if j + mu - 1 > k (otherwise once), and the conversions from levels j
    - 1 down to j - mu + 1.  Its sum is (n1 - n2) / (2 p - 1).  With ``clamp``, counts of the true signs are cut to [0,
    N] as printed, which biases the mean.  The result is in [-1, 1] units.

    Raises:
        InputError: ``mu`` is outside 1 .. number of levels, or there are no reports.
    """
    depth = len(budgets)
    if not 1 <= mu <= depth:
        raise InputError(f"reports can be used 1 to {depth} times, not {mu}", culprit=mu)
    plus, minus = tally[::2].tolist(), tally[1::2].tolist()
    if not sum(plus) + sum(minus):
        raise InputError("there are no reports to estimate from")
    total = people = 0.0
    for level, rate in enumerate(attenuation(budgets).tolist()):
        copies = max(1, mu - depth + level + 1)
        up, down = copies * plus[level], copies * minus[level]
        for source in range(max(0, level - mu + 1), level):
            more = convert(
                plus[source], minus[source], source=budgets[source], target=budgets[level], generator=generator
            )
            up, down = up + more[0], down + more[1]
        number = up + down
        people += number
        if clamp:
            true = (1 + rate) / 2
            first = min(max((true * number - down) / rate, 0), number)
            second = min(max((true * number - up) / rate, 0), number)
            total += first - second
        else:
            total += (up - down) / rate
    return total / people


def variance(values: RealArray, spec: Hiera, *, mu: int) -> float:
    """Return the exact variance of the unclamped mean of these values, in ``[-1, 1]`` units.

    A report of level i contributes 1/a_i^2 - v^2 + mu^-2 sum_j (1/a_j^2 - 1/a_i^2) over its target levels j, with a =
    tanh(budget / 2).  Reuse only adds variance, so mu = 1 is best.
    """
    rate = attenuation(spec.budgets)
    depth = rate.size
    noise = rate**-2.0
    for level in range(depth):
        reused = range(level + 1, min(depth, level + mu))
        noise[level] += sum(rate[j] ** -2 - rate[level] ** -2 for j in reused) / mu**2
    strength = np.exp([float(budget) for budget in spec.budgets])
    reported = (np.ones((depth, depth)) + np.diag(strength - 1)) / (strength + depth - 1)[:, None]
    scaled = (2 * values - spec.low - spec.high) / (spec.high - spec.low)
    people = np.bincount(levels_of(values, np.array(spec.divisions)), minlength=depth)
    return (float(people @ reported @ noise) - float(np.square(scaled).sum())) / values.size**2


def attenuation(budgets: Sequence[Fraction]) -> RealArray:
    """Return 2 p - 1 = tanh(epsilon / 2) of each budget, the factor by which randomized response shrinks a sign's
    mean.
    """
    return np.tanh([float(budget) / 2 for budget in budgets])


def levels_of(values: RealArray, divisions: RealArray) -> NDArray[np.uint16]:
    """Return the level of each value; a value on an inner end belongs to the level that starts there."""
    level = np.zeros(values.shape, dtype=np.uint16)
    for end in divisions[1:-1].tolist():  # a few comparisons are faster than a search
        level += values >= end
    return level


def check_division(divisions: Sequence[float], levels: int) -> None:
    """Refuse divisions that are not finite and increasing, or not one more than the levels.

    Raises:
        InputError: the divisions are invalid.
    """
    expect_all(divisions, int | float, "the ends of levels are a list of numbers")
    if any(not -math.inf < low < high < math.inf for low, high in pairwise(divisions)):
        raise InputError("the ends of levels must be finite and increase", culprit=divisions)
    for low, high in pairwise(divisions):
        check_bounds(low, high)
    if levels < 1 or len(divisions) != levels + 1:
        raise InputError(f"{levels} budgets need {levels + 1} ends of levels, not {len(divisions)}", culprit=divisions)
