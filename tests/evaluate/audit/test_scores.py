from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.evaluate.audit.audit import likelihood_ratio, lowest_bit, scores_for


@given(st.floats(-1e6, 1e6, allow_subnormal=False).filter(bool))
def test_the_lowest_bit_is_that_of_the_exact_fraction(value):
    number = Fraction(value)
    numerator = abs(number.numerator)
    expected = math.log2(numerator & -numerator) - math.log2(number.denominator)
    assert lowest_bit(np.array([value]))[0] == expected


def test_the_likelihood_ratio_orders_by_evidence():
    first, second = np.repeat([0.0, 1.0, 2.0], [80, 15, 5]), np.repeat([0.0, 1.0, 2.0], [5, 15, 80])
    score = likelihood_ratio(first[:, None], second[:, None])
    zero, one, two = score(np.array([[0.0], [1.0], [2.0]]))
    assert zero > one > two
    assert zero + two < 1e-9


def test_bits_are_scored_for_doubles_only():
    whole = np.arange(10.0)[:, None]
    assert "lowest bit of coordinate 0" not in scores_for(whole, whole)
    assert "lowest bit of coordinate 0" in scores_for(whole, whole + 0.5)
    assert "sum of coordinates" in scores_for(np.ones((4, 2)), np.ones((4, 2)))
