from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import LossError
from sfumato.privacy.conversion import rho_within
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho, exact, plain

positive = st.fractions(Fraction(1, 10**6), 10**6)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (" 0.1 ", Fraction(1, 10)),
        (Decimal("0.1"), Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        (Fraction(1, 3), Fraction(1, 3)),
        ("1e-9", Fraction(1, 10**9)),
        (1e-9, Fraction(1, 10**9)),
        (3, Fraction(3)),
        (np.int64(3), Fraction(3)),
        (np.float64(0.1), Fraction(1, 10)),
    ],
)
def test_numbers_are_read_as_written(written, number):
    assert exact(written) == number
    assert type(exact(written).numerator) is int


@pytest.mark.parametrize(
    "bad",
    [
        *("nan", "inf", "-inf", float("nan"), float("inf"), "", "x", "1/0"),
        *(None, True, np.True_, [1], Decimal("sNaN"), 1j),
        *("1e999999999", "1e-999999999", "1/" + "9" * 2000),
    ],
)
def test_what_is_no_finite_number_is_refused(bad):
    with pytest.raises(LossError) as error:
        exact(bad, name="epsilon")
    assert "epsilon must be a finite number" in str(error.value)
    assert error.value.culprit is bad
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "loss", [Epsilon, Rho, lambda value: EpsilonDelta(value, "1e-6"), lambda v: EpsilonDelta(1, v)]
)
@pytest.mark.parametrize("bad", [0, -1, "0", "-0.1", 0.0, -0.0, "nan", float("inf"), True, None])
def test_losses_are_finite_and_positive(loss, bad):
    with pytest.raises(LossError):
        loss(bad)


@pytest.mark.parametrize(
    "loss", [Epsilon, Rho, lambda value: EpsilonDelta(value, "1e-6"), lambda v: EpsilonDelta(1, v)]
)
@pytest.mark.parametrize(
    "bad",
    ["1e400", "1e-400", 10**309, Fraction(1, 10**309), Decimal("1e301"), 5e-324, pytest.param(10**5000, id="10**5000")],
)
def test_losses_beyond_what_doubles_can_plan_with_are_refused(loss, bad):
    with pytest.raises(LossError, match="must lie between"):
        loss(bad)


@pytest.mark.parametrize("loss", [Epsilon("1e150"), Epsilon("1e-149"), Rho("1e300"), Rho("1e-300")])
def test_the_largest_and_least_losses_are_read_shown_and_converted(loss):
    assert eval(repr(loss), {"Rho": Rho, "Epsilon": Epsilon}) == loss  # noqa: S307
    assert 0 < float(loss.as_rho().value) < float("inf")


def test_numbers_beyond_doubles_are_spelled_out():
    for number in (Fraction(10) ** 400, Fraction(10) ** -400, Fraction(10**400, 3)):
        assert exact(plain(number)) == number


@pytest.mark.parametrize("delta", [1, "1.5", 800])
def test_delta_is_below_one(delta):
    with pytest.raises(LossError):
        EpsilonDelta(1, delta)


@pytest.mark.parametrize("loss", [Epsilon, Rho])
@given(a=positive, b=positive, parts=st.integers(1, 50))
def test_losses_add_and_divide_exactly(loss, a, b, parts):
    assert loss(a) + loss(b) == loss(b) + loss(a) == loss(a + b)
    assert loss(a) / parts * parts == loss(a)
    assert (loss(a) < loss(b)) == (a < b)
    assert hash(loss(a)) == hash(loss(a))


@given(positive)
def test_a_loss_reads_its_own_spelling(value):
    assert exact(plain(value)) == value
    assert eval(repr(Rho(value)), {"Rho": Rho}) == Rho(value)  # noqa: S307


@given(st.floats(1e-300, 1e300))
def test_a_float_is_the_shortest_decimal_that_prints_it(value):
    assert exact(value) == Fraction(Decimal(repr(value)))


def test_ten_tenths_are_one():
    assert sum((Epsilon(0.1) for _ in range(9)), Epsilon(0.1)) == Epsilon(1)


def test_rho_of_each_loss():
    assert Epsilon(1).as_rho() == Rho("0.5")
    assert Rho("0.5").as_rho() == Rho("0.5")
    assert EpsilonDelta(1, "1e-9").as_rho() == Rho(rho_within(Fraction(1), Fraction("0.99e-9")))


def test_a_loss_cannot_be_changed():
    with pytest.raises(AttributeError):
        Epsilon(1).value = Fraction(2)
