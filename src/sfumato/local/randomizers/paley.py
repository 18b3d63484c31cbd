"""Response over a Paley design: nearly the variance of subset selection at small epsilon, in a report of few bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from math import isqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.integer_table import below
from sfumato.local.randomizers.randomizer import InputCodes, OracleMethod, ReportArray, Tally, check, derive
from sfumato.local.randomizers.two_valued import SupportDesign, TwoValued
from sfumato.privacy.entropy import Entropy

LARGEST_PALEY = 1 << 13
"""Largest number of values of a domain: counting supported values takes time that grows with its square."""


@dataclass(frozen=True)
class Paley(SupportDesign):
    """Numbers below a prime: a report supports a value if report - value is a square modulo the prime.

    The prime is the least one of at least ``inputs`` with remainder 3 modulo 4.  Its nonzero squares are a difference
    set (Paley 1933).  Half of the other reports support a value, and equally many support both of any two values.  The
    source is Park, Nam and Lee 2023, Exactly optimal and communication-efficient private estimation via block designs.

    If ``inputs`` is such a prime, half of the reports is the best size of a subset at a small epsilon.  Any other
    number of values costs variance, in proportion to the distance to the prime.
    """

    inputs: int
    _squares: NDArray[np.bool_] = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "paley"

    def __post_init__(self) -> None:
        check(1 < self.inputs <= LARGEST_PALEY, self)
        prime = next(n for n in count(self.inputs) if n % 4 == 3 and all(n % d for d in range(2, isqrt(n) + 1)))  # noqa: PLR2004
        squares = np.zeros(prime, dtype=np.bool_)
        squares[np.arange(1, prime, dtype=np.int64) ** 2 % prime] = True
        inside, others = prime // 2, prime - 1
        derive(self, _squares=squares)
        self._numbered(prime, Fraction(inside, prime), (Fraction(inside - 1, others), Fraction(inside, others)))

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        squares = np.flatnonzero(self._squares)
        rest = np.flatnonzero(~self._squares)  # includes zero, so one more than squares
        place = below(entropy, np.where(inside, squares.size, rest.size).astype(np.uint32), codes.size)
        shift = np.where(inside, squares[np.minimum(place, squares.size - 1)], rest[place])
        report: ReportArray = ((codes.astype(np.int64) + shift) % self.outputs).astype(self.layout.dtype)
        return report

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        around = np.concatenate([tally, tally])
        shifted = np.lib.stride_tricks.sliding_window_view(around, self.outputs)[: self.inputs]
        counts: Tally = shifted @ self._squares.astype(np.int64)
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        shift = np.arange(self.outputs)[None, :] - np.arange(self.inputs)[:, None]
        supports: NDArray[np.bool_] = self._squares[shift % self.outputs]
        return supports


def _paley(size: int, epsilon: Fraction) -> TwoValued:
    if size > LARGEST_PALEY:
        raise InputError(f"paley serves at most {LARGEST_PALEY} values, not {size}: use hr or olh", culprit=size)
    return TwoValued.within(Paley(size), epsilon)


PALEY = OracleMethod("paley", _paley)
