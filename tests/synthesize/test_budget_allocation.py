"""Dividing a loss: exact sums, and the least error over all divisions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import BudgetError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.budget_allocation import BudgetSplit, fraction
from sfumato.synthesize.initial_marginals import one_way_share

CLAMP = Unknown.CLAMP

LOSSES = [Epsilon("0.5"), Rho("0.125")]
SIZES = st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=20)


@given(st.sampled_from(LOSSES), SIZES)
def test_shares_are_positive_and_never_more_than_all(loss, sizes):
    shares = BudgetSplit(loss, 1).shares(sizes)
    assert all(share > 0 for share in shares)
    assert Fraction(999_999, 10**6) < sum(shares) <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_no_other_division_has_less_expected_error(loss):
    split = BudgetSplit(loss, 2)
    sizes = [5.0, 100.0, 2000.0]
    shares = np.array([float(share) for share in split.shares(sizes)])
    least = sum(size * split.mean_absolute_noise(share) for size, share in zip(sizes, shares, strict=True))
    parts = np.array(sum(split.allocation_weight(size) for size in sizes))
    assert least == pytest.approx(float(split.error(parts, 1.0)))
    random = np.random.default_rng(1)
    for other in random.dirichlet(np.ones(3), size=500):
        assert sum(size * split.mean_absolute_noise(share) for size, share in zip(sizes, other, strict=True)) >= least


@pytest.mark.parametrize("loss", LOSSES)
def test_planned_noise_is_that_of_the_mechanisms(loss):
    from sfumato.domain import Domain, Integer, Unit, Unknown
    from sfumato.vault.measurables import Marginal
    from sfumato.vault.mechanisms import noises

    age = Integer(name="age", minimum=0, maximum=9, unknown=Unknown.DROP)
    domain = Domain((age,), unit=Unit("id", rows=3))
    (noise,) = noises(domain, [Marginal(("age",))], loss * Fraction(1, 50), None)
    assert BudgetSplit(loss, 3).deviation(1 / 50) == pytest.approx(noise.variance**0.5, rel=1e-3)


def test_an_allowance_is_spent_exactly_and_never_overdrawn():
    split = BudgetSplit(Rho("0.3"), 1)
    taken = [split.take(Fraction(1, 3)) for _ in range(3)]
    assert taken[0] + taken[1] + taken[2] == Rho("0.3")
    assert split.left == 0
    with pytest.raises(BudgetError):
        split.take(Fraction(1, 10**12))
    with pytest.raises(BudgetError):
        BudgetSplit(Epsilon(1), 1).take(Fraction(0))


def test_fractions_are_rounded_down():
    assert fraction(0.1) <= Fraction(1, 10)
    assert fraction(2 / 3) < Fraction(2, 3)


@given(st.sampled_from(LOSSES), st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 0.5)), min_size=1, max_size=8))
def test_a_further_share_levels_what_tables_have_had(loss, tables):
    split = BudgetSplit(loss, 1)
    sizes, spent = zip(*tables, strict=True)
    more = split.top_up(sizes, spent, 0.3)
    assert more.sum() == pytest.approx(0.3)
    assert (more >= 0).all()
    levels = (np.array(spent) + more) / [split.allocation_weight(size) for size in sizes]
    raised = levels[more > 0]
    assert raised == pytest.approx(raised[0])  # all that got something end at one level
    assert (levels[more == 0] >= raised[0] * (1 - 1e-9)).all()  # and the others had more already


@pytest.mark.parametrize(("narrow", "wide"), [((20,) * 10 + (60,) * 2, (65_744,) * 2), ((20,) * 10, (10**6,))])
@pytest.mark.parametrize(("rows", "rho"), [(1_000, "0.015"), (6_433, "0.015"), (48_842, "0.015"), (6_433, "1")])
def test_wide_columns_cost_the_others_little(narrow, wide, rows, rho):
    """The noise on a column of 20 cells grows by at most a quarter next to columns of very many cells."""
    split = BudgetSplit(Rho(rho), 1)

    def noise(shape):
        domain = Domain(tuple(Integer(name=str(i), minimum=1, maximum=m, unknown=CLAMP) for i, m in enumerate(shape)))
        shares = split.shares(split.column_sizes(shape, rows))
        return split.deviation(one_way_share(split, domain, rows) * float(shares[0]))

    assert noise((*narrow[:10], *wide)) < 1.25 * noise(narrow)
