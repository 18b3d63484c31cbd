"""Two rounds for repeated collection: one permanent answer a value, kept for ever, and a fresh one each time.

The permanent answer bounds what any number of reports can reveal about one value; the instantaneous one keeps
single reports from being linked.  What is *not* covered: a value that changes shows itself as a change of the
permanent answer, and a person with several values loses epsilon for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sfumato.errors import InputError
from sfumato.local.bits import Coins, Unary, pack, unpack
from sfumato.local.bounds import DENOMINATOR
from sfumato.local.choice import Choice
from sfumato.local.hashing import Hashed
from sfumato.local.randomizer import Codes, Counts, Layout, Reports
from sfumato.local.sampling import below, coins
from sfumato.privacy.entropy import Entropy


@runtime_checkable
class TwoRounds(Protocol):
    """A randomizer whose first round is meant to be kept."""

    def permanent(self, codes: Codes, entropy: Entropy) -> Reports:
        """The answer that is kept for each value; it alone has the claimed epsilon."""
        ...

    def instant(self, kept: Reports, entropy: Entropy) -> Reports:
        """Fresh reports from kept answers."""
        ...


@dataclass(frozen=True)
class Rappor:
    """Basic RAPPOR (Erlingsson, Pihur, Korolova 2014): unary encoding, permanent and instantaneous coins."""

    inputs: int
    first: Coins
    second: Coins

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return self._once.layout

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.inputs

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        return self._chance(self.first.one)

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        return self._chance(self.first.zero)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return self.first.ratio

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        return Unary(self.inputs, self.first).rows()

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        return self.instant(self.permanent(codes, entropy), entropy)

    def permanent(self, codes: Codes, entropy: Entropy) -> Reports:
        """The answer that is kept for each value."""
        return Unary(self.inputs, self.first).draw(codes, entropy)

    def instant(self, kept: Reports, entropy: Entropy) -> Reports:
        """Fresh reports from kept answers."""
        bits = unpack(kept, self.inputs)
        ones = coins(entropy, bits.size, self.second.one).reshape(bits.shape)
        zeros = coins(entropy, bits.size, self.second.zero).reshape(bits.shape)
        return pack(np.where(bits, ones, zeros))

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return self._once.possible(reports)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return self._once.tally(reports)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return tally

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "kind": "rappor",
            "inputs": self.inputs,
            "permanent": self.first.describe(),
            "instant": self.second.describe(),
        }

    @property
    def _once(self) -> Unary:
        return Unary(self.inputs, self.first)

    def _chance(self, numerator: int) -> float:
        kept = Fraction(numerator, DENOMINATOR)
        return float((kept * self.second.one + (1 - kept) * self.second.zero) / DENOMINATOR)


@dataclass(frozen=True)
class Loloha:
    """Longitudinal local hashing (Arcolezi et al. 2023): a permanent hashed answer, then direct response over it.

    Every value is hashed anew, so d values lose d times epsilon, as with RAPPOR.  In the paper a person keeps one
    hash for life, and loses no more than epsilon for each of its buckets.
    ``numerator`` / 2^64 is the chance that a report repeats the kept bucket.
    """

    hashed: Hashed
    first: int
    second: int

    def __post_init__(self) -> None:
        if not DENOMINATOR < self.second * self.hashed.buckets <= DENOMINATOR * self.hashed.buckets:
            raise InputError("the second round of a memoised randomizer says nothing or is no chance", culprit=self)

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        return self.hashed.inputs

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return self.hashed.layout

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.hashed.tally_size

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        first, second = Fraction(self.first, DENOMINATOR), Fraction(self.second, DENOMINATOR)
        return float(first * second + (1 - first) * (1 - second) / (self.hashed.buckets - 1))

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        return 1 / self.hashed.buckets

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return self._kept.ratio()

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        return self._kept.rows()

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        return self.instant(self.permanent(codes, entropy), entropy)

    def permanent(self, codes: Codes, entropy: Entropy) -> Reports:
        """The answer that is kept for each value."""
        return self._kept.draw(codes, entropy)

    def instant(self, kept: Reports, entropy: Entropy) -> Reports:
        """Fresh reports from kept answers."""
        buckets = self.hashed.buckets
        bucket = kept % kept.dtype.type(buckets)
        stay = coins(entropy, kept.size, self.second)
        other = below(entropy, buckets - 1, kept.size).astype(kept.dtype)
        other += other >= bucket
        return kept - bucket + np.where(stay, bucket, other)

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return self.hashed.possible(reports)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return self.hashed.tally(reports)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return self.hashed.support(tally)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "kind": "loloha",
            "design": self.hashed.describe(),
            "permanent": str(self.first),
            "instant": str(self.second),
        }

    @property
    def _kept(self) -> Choice:
        return Choice(self.hashed, self.first)
