"""Exact coins and uniform integers from random words: integer arithmetic only, no floating point.

For the mechanisms of this package and for the clients of local privacy.  The noise tables are in
:mod:`sfumato.privacy.table`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.privacy.enclosure import exp_enclosure
from sfumato.privacy.entropy import Entropy

Enclosure = Callable[[int], tuple[int, int]]

WORD = 64


def uniform_below(bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent uniform integers in ``0 .. bound - 1``, shape ``(count,)``.

    Words are cut to the bits of ``bound - 1`` and drawn again where they reach ``bound`` (less than
    half of them), so no value is favoured.

    Raises:
        InputError: ``bound`` is not in 1 .. 2^63.
    """
    if not 1 <= bound <= 1 << 63:
        raise InputError(f"a uniform integer needs a bound from 1 to 2^63, not {bound}", culprit=bound)
    if bound == 1:
        return np.zeros(count, dtype=np.int64)
    shift = np.uint64(WORD - (bound - 1).bit_length())
    drawn = entropy.words(count) >> shift
    again = np.flatnonzero(drawn >= np.uint64(bound))
    while again.size:
        fresh = entropy.words(again.size) >> shift
        drawn[again] = fresh
        again = again[fresh >= np.uint64(bound)]
    return drawn.view(np.int64)


def one_below(bound: int, entropy: Entropy) -> int:
    """One uniform integer in ``0 .. bound - 1``, faster than :func:`uniform_below`, for a bound in 1 .. 2^64."""
    shift = WORD - (bound - 1).bit_length()
    while (drawn := int(entropy.words(1)[0]) >> shift) >= bound:
        pass
    return drawn


def bernoulli(probability: Fraction, count: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Independent coins that show True with exactly the rational ``probability``, shape ``(count,)``.

    A word is the first 64 binary digits of a uniform number; it decides unless it equals the first 64
    digits of the probability, and then further digits are drawn.

    Raises:
        InputError: ``probability`` is not in 0 .. 1.
    """
    if not 0 <= probability <= 1:
        raise InputError(f"a probability lies between 0 and 1, not {probability}", culprit=probability)
    if probability == 1:
        return np.ones(count, dtype=np.bool_)

    def enclosure(bits: int) -> tuple[int, int]:
        scaled = probability.numerator << bits
        return scaled // probability.denominator, -(-scaled // probability.denominator)

    words = entropy.words(count)
    leading = np.uint64(enclosure(WORD)[0])
    heads = words < leading
    for tie in np.flatnonzero(words == leading):
        heads[tie] = decide(enclosure, entropy, first=int(words[tie]))
    return heads


def bernoulli_exp(exponent: Fraction, entropy: Entropy) -> bool:
    """One coin that shows True with probability exactly exp(-exponent), for a rational exponent >= 0."""
    return decide(lambda bits: exp_enclosure(exponent, bits), entropy)


def decide(enclosure: Enclosure, entropy: Entropy, *, first: int | None = None) -> bool:
    """One coin whose probability p is only known by enclosures: whether a uniform real number U is below p.

    U is drawn digit by digit.  Its first ``bits`` digits put it into an interval of length 2^-bits; as
    soon as that interval lies on one side of ``enclosure(bits)``, U < p is decided for every continuation.
    Otherwise 64 more digits are drawn.  The answer is that of infinite precision, so the probability is
    exactly p; a round fails to decide with probability about 2^-62, so the loop ends.

    Args:
        enclosure: for a number of bits, integers ``low <= 2^bits p <= high``.
        entropy: source of the digits.
        first: the first 64 digits, where the caller has already drawn them.
    """
    drawn = int(entropy.words(1)[0]) if first is None else first
    bits = WORD
    while True:
        low, high = enclosure(bits)
        if drawn < low:
            return True
        if drawn >= high:
            return False
        drawn = drawn << WORD | int(entropy.words(1)[0])
        bits += WORD
