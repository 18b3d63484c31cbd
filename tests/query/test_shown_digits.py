"""The digits of a shown interval: its ends round outward at every size of the error."""

from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import interval_digits


@given(st.floats(-14, 14), st.floats(-1, 1), st.floats(0.01, 2))
def test_the_ends_of_an_interval_round_outward(size, place, below):
    half = 10.0**size
    estimate = place * min(1e8 * half, 1e14)
    low, high = estimate - below * half, estimate + half
    shown = [float(text.replace(",", "")) for text in interval_digits(estimate, low, high, ",")]
    rounding = 1e-5 * (high - low)
    assert shown[1] <= low + rounding
    assert shown[2] >= high - rounding
    assert shown[2] - shown[1] <= 2 * (high - low)


def test_an_interval_of_trillions_has_no_negative_number_of_decimals():
    assert interval_digits(5e11, -7.77e11, 9.1e12) == ("500000000000", "-800000000000", "9100000000000")
