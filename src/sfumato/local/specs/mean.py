"""The mean of a bounded number: the spec, and its five mechanisms as finite tables.

A value is scaled to [-1, 1] and rounded at random to a neighboring grid input, which preserves its mean.  The table
randomizes the grid input, and every output represents a number.  Estimates are unbiased for all values.  Finite tables
are necessary for privacy.  In floating point, a single report of the piecewise mechanism shows with probability of
about one half that one of two inputs was impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.bounded_cache import cached
from sfumato.errors import InfeasibleError, InputError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.randomizers.randomizer import InputCodes, RealArray, Tally, claimed, exp_below
from sfumato.local.specs.optimal import Solution, optimal, unbiased
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

_PIECES = 129  # outputs of the piecewise mechanism
_LAPLACE_INPUTS = 33
_LAPLACE_REACH = 20  # outputs reach this many scales beyond the inputs; the ends absorb e^-20 of the noise
_LAPLACE_LONGEST = 1 << 21  # outputs on each side: more would not fit in memory
_LAPLACE_OUTPUTS = 1025
_HYBRID_FROM = 0.61  # up to this epsilon, the hybrid mechanism is Duchi's (Wang et al. 2019, Section III-C)


LARGEST_GRID = 1 << 12
"""Largest number of inputs of a table that randomizes numbers."""

LEAST_WIDTH, LARGEST_BOUND = 1e-100, 1e100
"""Limits of bounds, so that squares and quotients stay within the range of floats."""


class MeanMethod(StrEnum):
    """A mechanism for a mean."""

    AUTO = "auto"  # the least worst-case variance of all except Laplace
    LAPLACE = "laplace"  # Laplace noise on a grid
    DUCHI = "duchi"  # one bit (Duchi, Jordan, Wainwright 2018), also known as Harmony
    PIECEWISE = "pm"  # piecewise mechanism (Wang et al. 2019, Algorithm 2)
    HYBRID = "hm"  # hybrid of the two (Wang et al. 2019, Section III-C)
    OPTIMAL = "optimal"  # least worst-case variance of all tables on a grid


@dataclass(frozen=True)
class Mean(Spec):
    """The mean of a number between ``low`` and ``high``.

    Attributes:
        low: the least value, public.
        high: the largest value, public.
        epsilon: the claimed loss of every report, proven in integers from ``randomizer``.
        method: the mechanism's name.
        randomizer: the table, one row per input of the grid from ``low`` to ``high``.
        outputs: the number in [-1, 1] units that each report represents.
    """

    low: float
    high: float
    epsilon: Fraction
    method: MeanMethod
    randomizer: IntegerTable
    outputs: tuple[float, ...]

    kind: ClassVar[str] = "mean"
    neighbours: ClassVar[str] = "one person's value replaced by any other value between the bounds"

    def _check(self) -> None:
        check_bounds(self.low, self.high)
        check_table(self.randomizer, LARGEST_GRID)
        if len(self.outputs) != self.randomizer.outputs or not all(map(math.isfinite, self.outputs)):
            raise InputError("a mean needs one finite number for every output of its table", culprit=self)

    @classmethod
    def design(cls, low: float, high: float, *, epsilon: Number, method: MeanMethod = MeanMethod.AUTO) -> Mean:
        """Return a spec for numbers between public bounds.

        Args:
            low: the least value.
            high: the largest value, above ``low``.
            epsilon: per report, in [1e-9, 32].
            method: AUTO computes the worst-case variance of every mechanism that exists for the epsilon, and chooses
                the least.

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InfeasibleError: the given method has no table for this small epsilon.
            InputError: the bounds are not finite and increasing.
        """
        check_bounds(low, high)
        exact = claimed(epsilon)
        if method is not MeanMethod.AUTO:
            return cls(float(low), float(high), exact, method, *_mechanism(method, exact))
        specs = []
        for each in (MeanMethod.DUCHI, MeanMethod.PIECEWISE, MeanMethod.HYBRID, MeanMethod.OPTIMAL):
            with suppress(InfeasibleError):  # the solver may fail for an epsilon beyond any use
                specs.append(cls(float(low), float(high), exact, each, *_mechanism(each, exact)))
        return min(specs, key=worst_variance)

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:
        """Return the grid inputs of values ``(n,)``, rounded at random between neighbors.

        Raises:
            InputError: a value outside the bounds, NaN, or no number.
        """
        column = numbers(values, self.low, self.high)
        return grid_codes(column, entropy, low=self.low, high=self.high, inputs=self.randomizer.inputs)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate the mean from a tally, in the units of the data, with the variance of the reports.

        Raises:
            InputError: there are fewer than two reports, or the post-processing is not none.
        """
        return average(tally, reports, bounds=(self.low, self.high), outputs=self.outputs, post=post)


def average(
    tally: Tally, reports: int, *, bounds: tuple[float, float], outputs: Sequence[float], post: Post
) -> Estimate:
    """Average outputs in [-1, 1] units, and return the mean in the units of ``bounds``.

    Raises:
        InputError: there are fewer than two reports, or the post-processing is not none.
    """
    if post is not Post.NONE:
        raise InputError("a mean has no post-processing: use none")
    if reports < 2:  # noqa: PLR2004
        raise InputError(f"a mean needs at least two reports, not {reports}")
    low, high = bounds
    values, half, centre = np.array(outputs), (high - low) / 2, (high + low) / 2
    mean = float(values @ tally) / reports
    spread = float(np.square(values - mean) @ tally) / (reports - 1)
    return Estimate(("mean",), np.array([centre + half * mean]), np.array([half**2 * spread / reports]), reports)


def worst_variance(spec: Mean) -> float:
    """Return the exact largest variance of one report in [-1, 1] units, rounding to the grid included.

    Between two grid inputs the second moment is linear, so the variance is a parabola.
    """
    grid = np.linspace(-1, 1, spec.randomizer.inputs)
    second = spec.randomizer.probabilities @ np.square(spec.outputs)
    slope = np.diff(second) / np.diff(grid)
    peak = np.clip(slope / 2, grid[:-1], grid[1:])
    return float(np.max(second[:-1] + slope * (peak - grid[:-1]) - peak**2))


def check_table(table: IntegerTable, most: int) -> None:
    """Refuse a table with fewer than two or more than ``most`` inputs.

    Raises:
        InputError: the number of inputs is out of range.
    """
    if not 2 <= table.inputs <= most:  # noqa: PLR2004
        raise InputError(f"a table for numbers has from 2 to {most} inputs, not {table.inputs}", culprit=table)


def check_bounds(low: float, high: float) -> None:
    """Refuse bounds that are not finite and increasing, or that cause overflow or loss of precision.

    Raises:
        InputError: the bounds are invalid.
    """
    for bound in (low, high):
        expect(bound, int | float, "bounds are numbers")
    if not (-math.inf < low < high < math.inf):
        raise InputError(f"bounds must be finite and increasing, not {low} and {high}", culprit=(low, high))
    if max(abs(low), abs(high)) > LARGEST_BOUND or high - low < LEAST_WIDTH:
        raise InputError(
            f"bounds must be {LEAST_WIDTH} apart and within {LARGEST_BOUND}, so that floats hold the squares of values "
            "between them; choose another unit",
            culprit=(low, high),
        )


def numbers(values: NDArray[Any] | Sequence[Any], low: float, high: float) -> RealArray:
    """Return values as floats between the bounds.

    Raises:
        InputError: a value is outside the bounds, NaN, or no number; the message names positions only.
    """
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "iuf":
        raise InputError("values must come as one column of numbers")
    column = column.astype(np.float64, copy=False)
    if column.size and not (float(column.min()) >= low and float(column.max()) <= high):  # NaN fails both
        wrong = ~((column >= low) & (column <= high))
        raise InputError(
            f"{int(wrong.sum())} values lie outside [{low}, {high}] or are missing, the first in row "
            f"{1 + int(np.argmax(wrong))}"
        )
    return column


def grid_codes(values: RealArray, entropy: Entropy, *, low: float, high: float, inputs: int) -> InputCodes:
    """Round numbers at random to ``inputs`` grid points, so that the mean is preserved."""
    scaled = (values - low) * ((inputs - 1) / (high - low))
    scaled += entropy.words(values.size) * 2.0**-64
    return np.minimum(scaled, inputs - 1).astype(np.uint16)


@cached()  # uncached, a spec of ten numeric attributes takes six times the CPU
def _mechanism(method: MeanMethod, epsilon: Fraction) -> tuple[IntegerTable, tuple[float, ...]]:
    match method:
        case MeanMethod.DUCHI:
            solution = duchi(epsilon)
        case MeanMethod.PIECEWISE:
            solution = piecewise(epsilon)
        case MeanMethod.HYBRID:
            solution = hybrid(epsilon)
        case MeanMethod.LAPLACE:
            solution = laplace(epsilon)
        case _:
            solution = optimal(epsilon)
    return solution.table, solution.values


def duchi(epsilon: Fraction) -> Solution:
    """Return the table of Duchi's bit: the value rounded at random to -1 or 1, under randomized response."""
    table = IntegerTable.windows(2, 2, epsilon)
    return Solution(table, unbiased(table, np.zeros(2), np.array([-1.0, 1.0])))


def piecewise(epsilon: Fraction) -> Solution:
    """Return the piecewise mechanism with 129 outputs: each input favors a window of outputs around it.

    Windows move by one output from input to input, so means are exactly evenly spaced.  The window has the length of
    least worst-case variance.
    """
    limit = float(exp_below(epsilon))
    lengths = np.arange(1, _PIECES)
    place = np.arange(_PIECES) - (_PIECES - 1) / 2
    low = 1 / (lengths * limit + _PIECES - lengths)
    favoured = (limit - 1) * low
    scale = 1 / (favoured * lengths * (_PIECES - lengths) / 2)  # so that the last window has mean one
    squares = np.concatenate([[0], np.cumsum(place**2)])
    windows = [
        np.max((squares[n:] - squares[:-n]) * f - ((place[n - 1 :] + place[: _PIECES - n + 1]) / 2 * n * f) ** 2)
        for n, f in zip(lengths, favoured, strict=True)
    ]
    length = int(lengths[np.argmin(scale**2 * (low * squares[-1] + windows))])
    table = IntegerTable.windows(_PIECES - length + 1, _PIECES, epsilon)
    return Solution(table, unbiased(table, place * scale[length - 1], np.linspace(-1, 1, table.inputs)))


def hybrid(epsilon: Fraction) -> Solution:
    """Mix piecewise, with probability 1 - e^(-epsilon/2), and Duchi's bit, which is used alone up to epsilon 0.61."""
    if epsilon <= Fraction(_HYBRID_FROM):
        return duchi(epsilon)
    share = 1 - math.exp(-float(epsilon) / 2)
    first, second = piecewise(epsilon), duchi(epsilon)
    grid = np.linspace(-1, 1, first.table.inputs)
    up = (1 + grid) / 2
    signs = np.stack([1 - up, up], axis=1) @ second.table.probabilities
    rows = np.concatenate([share * first.table.probabilities, (1 - share) * signs], axis=1)
    table = IntegerTable.rounded(rows, exp_below(epsilon))
    return Solution(table, unbiased(table, np.array([*first.values, *second.values]), grid))


def laplace(epsilon: Fraction) -> Solution:
    """Return two-sided geometric noise of scale 2 / epsilon on a grid; the last outputs absorb the far tails.

    An output at either end represents the mean of all outputs that it absorbs, so the estimate stays unbiased.
    """
    scale = 2 / float(epsilon)
    step = max(2 / (_LAPLACE_INPUTS - 1), 2 * (1 + _LAPLACE_REACH * scale) / _LAPLACE_OUTPUTS)
    per_side = max(1, round(1 / step))
    step = 1 / per_side
    decay = math.exp(-step / scale)
    tail = math.ceil(_LAPLACE_REACH * scale / step)
    if tail > _LAPLACE_LONGEST:
        raise InfeasibleError("noise for so small an epsilon reaches too far for a table: use pm or hm")
    grid = np.arange(-per_side, per_side + 1)
    outputs = np.arange(-per_side - tail, per_side + tail + 1)
    rows = (1 - decay) / (1 + decay) * decay ** np.abs(outputs[None, :] - grid[:, None]).astype(np.float64)
    rows[:, [0, -1]] /= 1 - decay
    rows /= rows.sum(axis=1, keepdims=True)
    values: RealArray = (outputs * step).astype(np.float64)
    values[[0, -1]] += np.array([-1, 1]) * step * decay / (1 - decay)
    table = IntegerTable.rounded(rows, exp_below(epsilon))
    return Solution(table, unbiased(table, values, (grid * step).astype(np.float64)))
