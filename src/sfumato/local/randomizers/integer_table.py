"""Randomizers given by a full table of integers: mean, square wave, graded and optimal mechanisms."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.accounting.bounds import DENOMINATOR, exp_below
from sfumato.local.randomizers.randomizer import (
    InputCodes,
    Layout,
    Numerator,
    Randomizer,
    ReportArray,
    Tally,
    all_below,
    count_outputs,
    derive,
)
from sfumato.local.randomizers.table_sampling import Sampler, smallest
from sfumato.privacy.entropy import Entropy

_FLOAT_BITS = 53


@dataclass(frozen=True)
class IntegerTable(Randomizer):
    """P(output | input) as numerators over 2^64, ``(inputs, outputs)``."""

    numerators: tuple[tuple[Numerator, ...], ...] = field(metadata={"name": "rows"})
    outputs: int = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        width = len(self.numerators[0]) if self.numerators else 0
        if not width or any(len(row) != width for row in self.numerators):
            raise InputError("a probability table must be a rectangle with at least one entry", culprit=self)
        if any(min(row) <= 0 or sum(row) != DENOMINATOR for row in self.numerators):
            raise InputError("every row of a probability table must be positive and sum to 2^64", culprit=self)
        derive(self, inputs=len(self.numerators), outputs=width, tally_size=width, layout=Layout(smallest(width)))

    @classmethod
    def rounded(cls, probabilities: NDArray[np.float64], limit: Fraction) -> IntegerTable:
        """Integers near ``probabilities`` whose likelihood ratios integers show to be at most ``limit``.

        The floating-point table is drawn towards the mean of its rows just as far as needed, which shrinks every
        ratio.  Entries of a column must be all positive.

        Raises:
            InputError: the table is further from ``limit`` than one part in a thousand.
        """
        centre = probabilities.mean(axis=0)
        for exponent in range(_FLOAT_BITS - 1, 9, -3):
            blend = 2.0**-exponent
            table = cls.nearest((1 - blend) * probabilities + blend * centre)
            if table.ratio() <= limit:
                return table
        raise InputError("the probability table is further from its epsilon than rounding can explain")

    @classmethod
    def nearest(cls, probabilities: NDArray[np.float64]) -> IntegerTable:
        """The integers next to positive rows that sum to one, whatever their likelihood ratios."""
        return cls(tuple(_integers(row) for row in probabilities))

    @classmethod
    def windows(cls, inputs: int, outputs: int, epsilon: Fraction) -> IntegerTable:
        """Input ``i`` favours the outputs ``i .. i + outputs - inputs`` by ``e^epsilon`` over all others."""
        return cls(tuple(_window(i, outputs - inputs + 1, outputs, exp_below(epsilon)) for i in range(inputs)))

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """The table as floats, for estimation."""
        return np.array([[float(Fraction(n, DENOMINATOR)) for n in row] for row in self.numerators])

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        worst = (1, 1)
        for column in zip(*self.numerators, strict=True):
            high, low = max(column), min(column)
            if high * worst[1] > worst[0] * low:
                worst = high, low
        return Fraction(*worst)

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        return [[Fraction(numerator, DENOMINATOR) for numerator in row] for row in self.numerators]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomise codes to reports."""
        return self._sampler.draw(codes, entropy).astype(self.layout.dtype, copy=False)

    def possible(self, reports: ReportArray) -> bool:
        """Whether every report can occur."""
        return all_below(reports, self.outputs)

    def tally(self, reports: ReportArray) -> Tally:
        """Counts that add up over disjoint reports."""
        return count_outputs(reports, self.outputs)

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.numerators)


def _integers(row: NDArray[np.float64]) -> tuple[Numerator, ...]:
    numerators = [max(1, int(p * float(DENOMINATOR))) for p in row.tolist()]  # a power of two: exact
    numerators[int(np.argmax(row))] += DENOMINATOR - sum(numerators)
    return tuple(map(Numerator, numerators))


def _window(start: int, length: int, outputs: int, limit: Fraction) -> tuple[Numerator, ...]:
    """The integer row nearest to the window whose largest entry is at most ``limit`` times its smallest."""
    low = int(DENOMINATOR / (length * limit + outputs - length))
    while True:
        high, spare = divmod(DENOMINATOR - (outputs - length) * low, length)
        if high + (spare > 0) <= limit * low:
            break
        low += 1
    row = [high if start <= output < start + length else low for output in range(outputs)]
    for place in range(start, start + spare):
        row[place] += 1
    return tuple(map(Numerator, row))
