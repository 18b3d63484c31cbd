"""Shares and mean values of keys, if every person has a set of key-value pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import parse_integer
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.randomizers.integer_table import below, coins, column_counts
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    InputCodes,
    Layout,
    Numerator,
    Randomizer,
    ReportArray,
    Tally,
    check_enumerable,
    claimed,
    derive,
    exp_below,
)
from sfumato.local.randomizers.unary_encoding import flips
from sfumato.local.specs.frequency import codes_of, size_of_domain
from sfumato.local.specs.mean import check_bounds, numbers
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

MOST_PAIRS = 1 << 16
"""Largest number of pairs of one person; the one that is reported represents all of them."""

_HALF = DENOMINATOR // 2


@dataclass(frozen=True)
class SignedUnary(Randomizer):
    """A randomizer that reports every key as absent, -1 or +1 (PCKV-UE, Gu et al. 2020).

    Input ``2 k + s`` is key k with sign s (1 for +1).  Input ``2 keys`` is a person without a key to report.  The
    person's key is present with probability ``one``; other keys with probability ``zero`` and a fair sign.  The key's
    sign is true with probability ``sign``.  All three are numerators over 2^64.  A report is the packed presences, then
    the packed signs.
    """

    keys: int
    one: Numerator
    zero: Numerator
    sign: Numerator

    kind: ClassVar[str] = "signed"

    def __post_init__(self) -> None:
        if not (0 < self.zero < self.one < DENOMINATOR and _HALF < self.sign < DENOMINATOR):
            raise InputError("the coins of a key-value randomizer are out of order", culprit=self)
        derive(self, inputs=2 * self.keys + 1, layout=Layout(np.dtype(np.uint8), 2 * -(-self.keys // 8)))
        derive(self, tally_size=2 * self.keys)

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        own, other = self._cell(own=True), self._cell(own=False)
        up = max(a / b for a, b in zip(own, other, strict=True))
        down = max(b / a for a, b in zip(own, other, strict=True))
        flipped = Fraction(self.sign, DENOMINATOR - self.sign)
        return max(up * down if self.keys > 1 else max(up, down), flipped)

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        check_enumerable(self.inputs, 3**self.keys)
        plus, minus, absent = self._cell(own=True)
        other = self._cell(own=False)
        table = []
        for code in range(self.inputs):
            key, positive = divmod(code, 2)
            mine = (plus, minus, absent) if positive else (minus, plus, absent)
            cells = [mine if k == key else other for k in range(self.keys)]
            table.append([math.prod(chances, start=Fraction(1)) for chances in product(*cells)])
        return table

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        present = flips(entropy, (codes.size, self.keys), self.zero)
        positive = flips(entropy, (codes.size, self.keys), _HALF)
        key, sign = np.divmod(codes, 2)
        mine = np.flatnonzero(key < self.keys)
        present[mine, key[mine]] = coins(entropy, mine.size, self.one)
        positive[mine, key[mine]] = coins(entropy, mine.size, self.sign) == (sign[mine] == 1)
        bits = [np.packbits(plane, axis=1, bitorder="little") for plane in (present, positive & present)]
        return np.concatenate(bits, axis=1)

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        present, positive = self._planes(reports)
        spare = self.keys % 8
        tail = spare != 0 and bool(np.any(present[:, -1] >> np.uint8(spare)))
        return not tail and not np.any(positive & ~present)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        present, positive = self._planes(reports)
        return np.concatenate([column_counts(plane)[: self.keys] for plane in (present, positive)])

    def _planes(self, reports: ReportArray) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        present, positive = np.split(reports.astype(np.uint8, copy=False), 2, axis=1)
        return present, positive

    def _cell(self, *, own: bool) -> tuple[Fraction, Fraction, Fraction]:
        """Return the probabilities that a key is reported with the true sign, the other sign, and as absent."""
        present, sign = (self.one, self.sign) if own else (self.zero, _HALF)
        there = Fraction(present, DENOMINATOR)
        true = there * Fraction(sign, DENOMINATOR)
        return true, there - true, 1 - there


@dataclass(frozen=True)
class KeyValue(Spec):
    """The share of people with each key, and the mean of their values.

    Attributes:
        keys: the public keys, or their number.
        low: least value.
        high: largest value.
        pairs: people with more pairs report a random one, which biases shares downward; people with fewer are padded.
        epsilon: the claimed loss of every report, for any change of the whole set of pairs.
        randomizer: the channel for one sampled pair.
    """

    keys: tuple[str, ...] | tuple[int, ...] | int
    low: float
    high: float
    pairs: int
    epsilon: Fraction
    randomizer: SignedUnary

    kind: ClassVar[str] = "key_value"
    neighbours: ClassVar[str] = "one person's whole set of pairs replaced by any other"

    def _check(self) -> None:
        check_bounds(self.low, self.high)
        if not 1 <= self.pairs <= MOST_PAIRS or _number_of(self.keys) != self.randomizer.keys:
            raise InputError(
                f"a key-value spec needs 1 to {MOST_PAIRS} pairs, and a randomizer for all its keys", culprit=self
            )

    @classmethod
    def design(
        cls, keys: tuple[str, ...] | tuple[int, ...] | int, low: float, high: float, *, pairs: int, epsilon: Number
    ) -> KeyValue:
        """Return a PCKV-UE spec with its optimized budgets (Gu, Li, Cheng, Xiong, Cao 2020).

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InputError: there are no keys, the bounds do not increase, or there is less than one pair.
        """
        exact = claimed(epsilon)
        check_bounds(low, high)
        pairs = parse_integer(pairs, "pairs are a whole number")
        if not isinstance(keys, tuple):
            keys = parse_integer(keys, "keys are a tuple of values, or their number")
        size = _number_of(keys)
        limit = exp_below(exact)
        zero = math.ceil(DENOMINATOR * 2 / (limit + 3))
        # the sign coin uses the loss that remains after the presence coins
        sign = int(min(DENOMINATOR * limit / (limit + 1), limit * zero * _HALF / (DENOMINATOR - zero)))
        return cls(
            keys,
            float(low),
            float(high),
            pairs,
            exact,
            SignedUnary(size, Numerator(_HALF), Numerator(zero), Numerator(sign)),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the shares, then of the means, of every key."""
        names = [str(key) for key in (range(self.keys) if isinstance(self.keys, int) else self.keys)]
        return (*(f"{name}: share" for name in names), *(f"{name}: mean" for name in names))

    def encode(self, values: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], entropy: Entropy) -> InputCodes:
        """Draw one pair per person.

        Args:
            values: keys and numbers of all pairs, person after person, and the number of pairs of each person.
            entropy: draws the pair and rounds its value.

        Raises:
            InputError: a key is unknown, a value is outside its bounds, or the counts do not add up.
        """
        keys, column, counts = (np.asarray(part) for part in values)
        scaled = (numbers(column, self.low, self.high) - self.low) / (self.high - self.low)
        codes = codes_of(self.keys, keys).astype(np.int64)
        if (
            counts.dtype.kind not in "iu"
            or (counts.size and int(counts.min()) < 0)
            or codes.size != int(counts.sum())
            or codes.size != scaled.size
        ):
            raise InputError("the counts of pairs must be whole numbers that add up to the number of pairs")
        place = below(entropy, np.maximum(counts, self.pairs).astype(np.uint32), counts.size)
        held = np.flatnonzero(place < counts)
        pair = (np.cumsum(counts) - counts)[held] + place[held]
        up = entropy.words(held.size) * 2.0**-64 < scaled[pair]
        chosen = np.full(counts.size, 2 * self.randomizer.keys)
        chosen[held] = 2 * codes[pair] + up
        return chosen

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate shares and means.  Means are ratios: asymptotically unbiased, with variance by the delta method.

        Shares are unbiased if no person has more than ``pairs`` pairs.  Shares are too small if people have more,
        because one reported pair then represents ``pairs``.

        Raises:
            InputError: there are no reports, or the post-processing is not none.
        """
        if reports == 0 or post is not Post.NONE:
            raise InputError("key-value estimates need reports, and no post-processing")
        one, zero, sign = (
            part / DENOMINATOR for part in (self.randomizer.one, self.randomizer.zero, self.randomizer.sign)
        )
        present, positive = np.split(tally / reports, 2)
        held = (present - zero) / (one - zero)  # share of people who sampled the key
        signed = (2 * positive - present) / (one * (2 * sign - 1))  # mean sign times that share
        variance_held = present * (1 - present) / ((one - zero) ** 2 * reports)
        variance_signed = (present - (2 * positive - present) ** 2) / ((one * (2 * sign - 1)) ** 2 * reports)
        safe = np.maximum(held, 1 / reports)
        mean = np.clip(signed / safe, -1, 1)
        variance_mean = (variance_signed + mean**2 * variance_held) / safe**2
        half, centre = (self.high - self.low) / 2, (self.high + self.low) / 2
        values = np.concatenate([held * self.pairs, centre + half * mean])
        return Estimate(
            self.labels, values, np.concatenate([variance_held * self.pairs**2, half**2 * variance_mean]), reports
        )


def _number_of(keys: tuple[str, ...] | tuple[int, ...] | int) -> int:
    """Return the number of keys: a domain, or a single key."""
    size = keys if isinstance(keys, int) else len(keys)
    if size < 1:
        raise InputError("a key-value spec needs at least one key", culprit=keys)
    return size if size == 1 else size_of_domain(keys)
