"""Graded protection with an explicit guarantee: three variants, each named after what it protects.

- :class:`GradedMean` (MinID-LDP): the *smaller* budget of two levels protects any two of their values.
- :class:`PublicLevels` (personalized LDP): people's levels are public, only values are protected.
- :class:`Block` (block or metric LDP): the level of a value is disclosed, the value is protected within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.randomizers.composite import Labelled
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.randomizers.randomizer import InputCodes, Tally, claimed, derive, exp_below, proven
from sfumato.local.specs.frequency import codes_of
from sfumato.local.specs.hiera import check_division, levels_of
from sfumato.local.specs.mean import Mean, average, check_table, grid_codes, numbers, worst_variance
from sfumato.local.specs.optimal import solve, within
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

_POINTS = 5  # grid points per level, ends included


@dataclass(frozen=True)
class GradedMean(Spec):
    """The mean of a number whose levels have budgets: MinID-LDP (Gu, Li, Xiong, Cao 2020) by an optimal table.

    Attributes:
        divisions: ends of the levels.
        budgets: epsilon of each level; two values are protected by the smaller budget of their levels.
        randomizer: rows are five grid points of every level, both ends included.
        outputs: the number in [-1, 1] units that each report represents.
        epsilon: ordinary LDP of the table; at most the larger budget, and at most twice the smaller.
    """

    divisions: tuple[float, ...]
    budgets: tuple[Fraction, ...]
    randomizer: IntegerTable
    outputs: tuple[float, ...]

    kind: ClassVar[str] = "graded_mean"
    claims: ClassVar[bool] = False
    neighbours: ClassVar[str] = (
        "one person's value replaced; each pair of values has the smaller budget of their levels"
    )

    def _check(self) -> None:
        check_division(self.divisions, len(self.budgets))
        levels = level_rows(len(self.budgets))
        check_table(self.randomizer, len(levels))
        if self.randomizer.inputs != len(levels) or self.randomizer.outputs != len(self.outputs):
            raise InputError("the table of a graded mean does not fit its levels", culprit=self)
        if not all(map(math.isfinite, self.outputs)):
            raise InputError("a mean needs one finite number for every output of its table", culprit=self)
        if not within(self.randomizer, levels, [exp_below(claimed(budget)) for budget in self.budgets]):
            raise InputError("the probability table exceeds the budgets that the spec claims", culprit=self)
        derive(self, epsilon=proven(self.randomizer.ratio()))

    @classmethod
    def design(cls, low: float, high: float, *, divisions: Sequence[float], budgets: Sequence[Number]) -> GradedMean:
        """Return the table of least average variance over the grid, by linear programming (about a second).

        Raises:
            InputError: the divisions do not increase from ``low`` to ``high``.
            LossError: a budget is outside [1e-9, 32].
        """
        expect(budgets, Sequence, "budgets are a list, one a level")
        check_division(divisions, len(budgets))
        if (divisions[0], divisions[-1]) != (low, high):
            raise InputError(f"the ends of levels must start at {low} and end at {high}", culprit=divisions)
        exact = tuple(claimed(budget) for budget in budgets)
        edges = np.array(divisions, dtype=np.float64)
        scaled = (2 * edges - edges[0] - edges[-1]) / (edges[-1] - edges[0])
        grid = np.concatenate([np.linspace(a, b, _POINTS) for a, b in pairwise(scaled.tolist())])
        solution = solve(grid, level_rows(len(budgets)), exact)
        return cls(tuple(map(float, divisions)), exact, solution.table, solution.values)

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:
        """Return the grid points of values, rounded at random within their level.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        edges = np.array(self.divisions)
        column = numbers(values, self.divisions[0], self.divisions[-1])
        level = levels_of(column, edges)
        inside = (column - edges[level]) / np.diff(edges)[level]
        return np.uint16(_POINTS) * level + grid_codes(inside, entropy, low=0, high=1, inputs=_POINTS)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the mean without bias.

        Raises:
            InputError: there are fewer than two reports, or the post-processing is not none.
        """
        return average(tally, reports, bounds=(self.divisions[0], self.divisions[-1]), outputs=self.outputs, post=post)


@dataclass(frozen=True)
class PublicLevels(Spec):
    """The mean of a number whose owners chose public levels of protection: personalized LDP.

    Attributes:
        parts: one mean per level, with its epsilon.
        independent: true if levels are independent of values.  Levels are then weighted by reports over worst-case
            variance, which depends on no report.  Otherwise they are weighted by their share of people, which is
            unbiased for any levels.
    """

    parts: tuple[Mean, ...]
    independent: bool

    randomizer: Labelled = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "public_levels"
    discloses_labels: ClassVar[bool] = True
    neighbours: ClassVar[str] = (
        "one person's value replaced, with the epsilon of the person's own level; levels are public"
    )

    def _check(self) -> None:
        if len({(part.low, part.high) for part in self.parts}) > 1:
            raise InputError("all public levels need the same bounds", culprit=self)
        _derive_levels(self, self.parts)

    @classmethod
    def design(cls, low: float, high: float, *, budgets: Sequence[Number], independent: bool) -> PublicLevels:
        """Return a spec with one optimal mean per level.

        Raises:
            LossError: a budget is outside [1e-9, 32].
            InputError: the bounds do not increase.
        """
        return cls(tuple(Mean.design(low, high, epsilon=budget) for budget in budgets), independent)

    def encode(self, values: tuple[NDArray[Any], NDArray[Any]], entropy: Entropy) -> InputCodes:
        """Return public levels ``0 .. levels - 1`` and codes of values, ``(n, 2)``.

        Raises:
            InputError: a value outside the bounds, an unknown level, or columns of different lengths.
        """
        column, levels = values
        level = codes_of(len(self.parts), np.asarray(levels)).astype(np.int64)
        scaled = numbers(column, self.parts[0].low, self.parts[0].high)
        return _labelled(self.parts, scaled, level, entropy)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the mean of all people.

        Raises:
            InputError: a level has exactly one report, or the post-processing is not none.
        """
        split = self.randomizer.split(tally)
        made = _by_level(self.parts, split, post)
        counts = np.array([each.reports for each in made], dtype=np.float64)
        if not self.independent:
            return _pooled(made, counts, reports)
        noise = np.array([worst_variance(part) for part, (count, _) in zip(self.parts, split, strict=True) if count])
        return _pooled(made, counts / noise, reports)


@dataclass(frozen=True)
class Block(Spec):
    """The mean of a number whose level is disclosed and whose value is protected within it: block LDP.

    Attributes:
        parts: one mean per level, between the ends of that level, with the level's epsilon.
    """

    parts: tuple[Mean, ...]

    randomizer: Labelled = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "block"
    discloses_labels: ClassVar[bool] = True
    neighbours: ClassVar[str] = "one person's value replaced by another of the same level; the level is disclosed"

    def _check(self) -> None:
        if any(before.high != after.low for before, after in pairwise(self.parts)):
            raise InputError("each level must start where the one before ends", culprit=self)
        _derive_levels(self, self.parts)

    @classmethod
    def design(cls, divisions: Sequence[float], *, budgets: Sequence[Number]) -> Block:
        """Return a spec with one optimal mean within every level.

        Raises:
            LossError: a budget is outside [1e-9, 32].
            InputError: the divisions do not increase or do not fit the budgets.
        """
        check_division(divisions, len(budgets))
        ends = pairwise(map(float, divisions))
        return cls(tuple(Mean.design(a, b, epsilon=budget) for (a, b), budget in zip(ends, budgets, strict=True)))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:
        """Return the level and code of each value, ``(n, 2)``.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        column = numbers(values, self.parts[0].low, self.parts[-1].high)
        edges = np.array([part.low for part in self.parts] + [self.parts[-1].high])
        return _labelled(self.parts, column, levels_of(column, edges), entropy)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the mean without bias, from the exactly known share of every level.

        Raises:
            InputError: a level has a single report, or the post-processing is not none.
        """
        made = _by_level(self.parts, self.randomizer.split(tally), post)
        return _pooled(made, np.array([each.reports for each in made], dtype=np.float64), reports)


def _derive_levels(spec: PublicLevels | Block, parts: tuple[Mean, ...]) -> None:
    """Set the channel, whose level is public, and the largest epsilon of the levels.

    Raises:
        InputError: there is no level.
    """
    derive(spec, randomizer=Labelled(tuple(part.randomizer for part in parts)))
    derive(spec, epsilon=max(part.epsilon for part in parts))


def level_rows(levels: int) -> list[int]:
    """Return the level of each row of a graded table."""
    return [level for level in range(levels) for _ in range(_POINTS)]


def _labelled(parts: Sequence[Mean], column: NDArray[np.float64], level: InputCodes, entropy: Entropy) -> InputCodes:
    codes = np.empty((column.size, 2), dtype=np.int64)
    codes[:, 0] = level
    for index, part in enumerate(parts):
        mine = np.flatnonzero(level == index)
        codes[mine, 1] = part.encode(column[mine], entropy)
    return codes


def _by_level(parts: Sequence[Mean], tallies: Sequence[tuple[int, Tally]], post: Post) -> list[Estimate]:
    made = [part.estimate(mine, count, post) for part, (count, mine) in zip(parts, tallies, strict=True) if count]
    if not made:
        raise InputError("there are no reports to estimate from")
    return made


def _pooled(made: Sequence[Estimate], weights: NDArray[np.float64], reports: int) -> Estimate:
    share = weights / weights.sum()
    mean = np.array([float(each.values[0]) for each in made])
    variance = np.array([float(each.variance[0]) for each in made])
    return Estimate(("mean",), np.array([share @ mean]), np.array([share**2 @ variance]), reports)
