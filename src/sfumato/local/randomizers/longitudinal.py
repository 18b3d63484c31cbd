"""Two rounds for repeated collection: one permanent answer per value, and a fresh report from it each time.

The permanent answer bounds what any number of reports can reveal about one value.  The instantaneous round prevents
single reports from being linked.  Two things are *not* covered.  A change of the value shows as a change of the
permanent answer, and a person with several values loses epsilon for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from sfumato.errors import InputError
from sfumato.local.randomizers.finite_field import prime_powers
from sfumato.local.randomizers.integer_table import below, coins
from sfumato.local.randomizers.local_hashing import LocalHash
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    FrequencyOracle,
    InputCodes,
    Numerator,
    OracleMethod,
    ReportArray,
    Tally,
    derive,
)
from sfumato.local.randomizers.two_valued import TwoValued
from sfumato.local.randomizers.unary_encoding import BitFlipProbabilities, Unary, pack, symmetric, unpack
from sfumato.privacy.entropy import Entropy

_MOST_BUCKETS = 64


@runtime_checkable
class TwoRounds(Protocol):
    """A randomizer whose first round is stored permanently."""

    def permanent(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Draw the permanent answer for each value.  It alone has the claimed epsilon."""
        ...

    def instant(self, answers: ReportArray, entropy: Entropy) -> ReportArray:
        """Draw fresh reports from permanent answers."""
        ...


@dataclass(frozen=True)
class Rappor(FrequencyOracle):
    """Basic RAPPOR (Erlingsson, Pihur, Korolova 2014): unary encoding with permanent and instantaneous coins."""

    inputs: int
    first: BitFlipProbabilities = field(metadata={"name": "permanent"})
    second: BitFlipProbabilities = field(metadata={"name": "instant"})
    _once: Unary = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "rappor"

    def __post_init__(self) -> None:
        once = Unary(self.inputs, self.first)
        derive(self, _once=once, layout=once.layout, tally_size=self.inputs)
        derive(self, p=self._chance(self.first.one), q=self._chance(self.first.zero))

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return self.first.ratio

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        return self._once.rows()

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return self.instant(self.permanent(codes, entropy), entropy)

    def permanent(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Draw the permanent answer for each value."""
        return self._once.draw(codes, entropy)

    def instant(self, answers: ReportArray, entropy: Entropy) -> ReportArray:
        """Draw fresh reports from permanent answers."""
        bits = unpack(answers, self.inputs)
        ones = coins(entropy, bits.size, self.second.one).reshape(bits.shape)
        zeros = coins(entropy, bits.size, self.second.zero).reshape(bits.shape)
        return pack(np.where(bits, ones, zeros))

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        return self._once.valid_reports(reports)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return self._once.tally(reports)

    def _chance(self, numerator: int) -> float:
        permanent = Fraction(numerator, DENOMINATOR)
        return float((permanent * self.second.one + (1 - permanent) * self.second.zero) / DENOMINATOR)


@dataclass(frozen=True)
class Loloha(FrequencyOracle):
    """Longitudinal local hashing (Arcolezi et al. 2023): a permanent hashed answer, then direct response over it.

    Every value gets its own hash, so d values lose d times epsilon, as with RAPPOR. In the paper, a person has one hash
    for life, and loses at most epsilon for each of its buckets.  ``first`` / 2^64 is the probability that the permanent
    bucket is the value's.  ``second`` / 2^64 is the probability that a report repeats the permanent bucket.
    """

    hashed: LocalHash = field(metadata={"name": "design"})
    first: Numerator = field(metadata={"name": "permanent"})
    second: Numerator = field(metadata={"name": "instant"})
    _first_round: TwoValued = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "loloha"

    def __post_init__(self) -> None:
        hashed, buckets = self.hashed, self.hashed.buckets
        if not DENOMINATOR < self.second * buckets <= DENOMINATOR * buckets:
            raise InputError(
                "the second round of a memoized randomizer must be a probability above 1 / buckets and at most 1",
                culprit=self,
            )
        first, second = Fraction(self.first, DENOMINATOR), Fraction(self.second, DENOMINATOR)
        derive(self, _first_round=TwoValued(hashed, self.first), inputs=hashed.inputs, layout=hashed.layout)
        derive(self, tally_size=hashed.tally_size, q=1 / buckets)
        derive(self, p=float(first * second + (1 - first) * (1 - second) / (buckets - 1)))

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return self._first_round.ratio()

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        return self._first_round.rows()

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return self.instant(self.permanent(codes, entropy), entropy)

    def permanent(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Draw the permanent answer for each value."""
        return self._first_round.draw(codes, entropy)

    def instant(self, answers: ReportArray, entropy: Entropy) -> ReportArray:
        """Draw fresh reports from permanent answers."""
        buckets = self.hashed.buckets
        bucket = answers % answers.dtype.type(buckets)
        stay = coins(entropy, answers.size, self.second)
        other = below(entropy, buckets - 1, answers.size).astype(answers.dtype)
        other += other >= bucket
        return answers - bucket + np.where(stay, bucket, other)

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        return self.hashed.valid_reports(reports)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return self.hashed.tally(reports)

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return self.hashed.support(tally)


def _rappor(size: int, epsilon: Fraction, instantaneous_epsilon: Fraction) -> Rappor:
    """Return two rounds of symmetric coins that together have the odds of ``instantaneous_epsilon``."""
    permanent, both = symmetric(epsilon), symmetric(instantaneous_epsilon)
    stay = Fraction(both.one + permanent.one - DENOMINATOR, 2 * permanent.one - DENOMINATOR)
    one = int(DENOMINATOR * stay)
    return Rappor(size, permanent, BitFlipProbabilities(Numerator(one), Numerator(DENOMINATOR - one)))


def _loloha(size: int, epsilon: Fraction, instantaneous_epsilon: Fraction) -> Loloha:
    """Return two rounds of direct response over the buckets that together have the odds of
    ``instantaneous_epsilon``.
    """

    def made(hashed: LocalHash) -> Loloha:
        buckets = hashed.buckets
        permanent = TwoValued.within(hashed, epsilon).numerator
        both = Fraction(TwoValued.within(hashed, instantaneous_epsilon).numerator, DENOMINATOR)
        chance = Fraction(permanent, DENOMINATOR)
        stay = (both * (buckets - 1) - (1 - chance)) / (chance * buckets - 1)
        return Loloha(hashed, permanent, Numerator(int(DENOMINATOR * stay)))

    candidates = [made(LocalHash(size, buckets)) for buckets in prime_powers() if buckets <= _MOST_BUCKETS]
    return min(candidates, key=lambda candidate: candidate.variance(1 / size))


RAPPOR = OracleMethod("rappor", _rappor, memoized=True)
LOLOHA = OracleMethod("loloha", _loloha, memoized=True)
