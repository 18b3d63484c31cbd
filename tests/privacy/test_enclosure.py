from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.privacy.noise import exp_enclosure, exp_sequence
from sfumato.privacy.noise_table import COARSE_BITS, exp_enclosures

FINE = Context(prec=200)


def exponential(exponent: Fraction) -> Fraction:
    """exp(-exponent) to some 190 digits."""
    ratio = FINE.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(FINE.exp(ratio.copy_negate()))


exponents = st.fractions(min_value=0, max_value=300, max_denominator=10**6)


@given(exponents, st.integers(1, 600))
def test_enclosure_holds_the_exponential_and_is_narrow(exponent, bits):
    low, high = exp_enclosure(exponent, bits)
    assert low <= exponential(exponent) * 2**bits <= high
    assert high - low <= 2


@pytest.mark.parametrize("exponent", [Fraction(10**9), Fraction(1, 10**30), Fraction(10**40 + 1, 10**40)])
@pytest.mark.parametrize("bits", [1, 64, 256])
def test_enclosure_of_extreme_exponents(exponent, bits):
    low, high = exp_enclosure(exponent, bits)
    assert low <= exponential(exponent) * 2**bits <= high
    assert high - low <= 2


def test_enclosure_of_zero_is_exact():
    assert exp_enclosure(Fraction(0), 64) == (1 << 64, 1 << 64)


@given(
    st.fractions(0, 2, max_denominator=100),
    st.fractions(0, 1, max_denominator=1000),
    st.fractions(0, 1, max_denominator=1000),
)
def test_sequence_encloses_every_entry(first, step, curvature):
    for index, (low, high) in enumerate(exp_sequence(first, step=step, curvature=curvature, count=6, bits=128)):
        exact = exponential(first + index * step + Fraction(index * (index - 1), 2) * curvature) * 2**128
        assert low <= exact <= high
        assert high - low < 1 << 10


@given(
    st.lists(st.integers(0, 2**62), min_size=1, max_size=5),
    st.fractions(Fraction(1, 10**15), 3, max_denominator=10**15),
)
def test_vectorised_enclosures_hold_the_exponential(multiples, unit):
    low, high = exp_enclosures(np.array(multiples, dtype=np.int64), unit)
    for multiple, below, above in zip(multiples, low.tolist(), high.tolist(), strict=True):
        if unit * multiple < 800:
            assert below <= exponential(unit * multiple) * 2**COARSE_BITS <= above
        else:
            assert below == 0
            assert above >= 1
        assert above - below <= 16
