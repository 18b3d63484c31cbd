"""Noisy tables: their cost, their noise, and their post-processing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError, LossError, QueryError, SizeError
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import BudgetShare, NoisyTotal, PublicTotal, histogram, marginals
from sfumato.synthesize.methods.histogram import project_to_total
from sfumato.vault.simulated import SimulatedVault

TABLES = st.lists(st.integers(-50, 50), min_size=1, max_size=8).map(np.array)


@given(TABLES, st.integers(1, 60), st.integers(0, 1 << 32))
def test_the_projection_is_the_nearest_table_of_that_sum(values, total, seed):
    projected = project_to_total(values, total)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(total)
    # nearest in a convex set: no other member is seen from the values at an acute angle
    others = np.random.default_rng(seed).dirichlet(np.ones(values.size), size=50) * total
    corners = np.eye(values.size) * total
    for other in (*others, *corners):
        assert (values - projected) @ (other - projected) <= 1e-6


def test_projection_to_nothing_is_nothing():
    assert project_to_total(np.array([3, -1]), 0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("loss", [Epsilon("0.3"), Rho("0.1"), EpsilonDelta(1, "1e-9")])
@pytest.mark.parametrize("total", [PublicTotal(60_000), BudgetShare(Fraction(1, 10)), NoisyTotal()])
def test_exactly_the_loss_is_drawn(vault_over, drawn_whole, domain, counts, loss, total):
    vault = vault_over(domain, counts)
    histogram(vault, loss=loss, total=total)
    marginals(vault, loss=loss, total=total, cliques=[["age"], ["sex", "mood"]])
    assert len(vault.reserved) == 2
    assert drawn_whole(vault)


def residuals(vault_over, counts, loss):
    domain = Domain((Integer(name="cell", minimum=0, maximum=counts.size - 1, unknown=Unknown.DROP),))
    release = histogram(vault_over(domain, counts), loss=loss, total=NoisyTotal())
    return release.model.cells(("cell",)) - counts


def looks_like(noise, variance):
    """Return whether the mean square fits: its standard deviation is sqrt(5 / n) of it, here 1.6 %; the gate is 12
    %.
    """
    return abs(np.mean(np.square(noise)) / variance - 1) < 0.12


def test_the_whole_path_carries_the_noise_that_it_states(vault_over):
    counts = np.full(20_000, 1000)
    noise = residuals(vault_over, counts, Epsilon("0.5"))
    np.testing.assert_allclose(noise, np.rint(noise), atol=1e-6)
    stated = DiscreteLaplace(2).variance
    assert looks_like(noise, stated)
    assert abs(noise.mean()) < 6 * np.sqrt(stated / counts.size)
    # the same gate refuses noise that is 30 % too small
    small = DiscreteLaplace(Fraction(14, 10)).draw(counts.size, SimulatedEntropy(1))
    assert not looks_like(small, stated)


def test_expected_errors_are_the_noise_on_a_cell(vault_over, domain, counts):
    release = marginals(
        vault_over(domain, counts),
        loss=Epsilon(1),
        total=BudgetShare(Fraction(1, 5)),
        cliques=[["age"], ["mood", "sex"]],
    )
    deviation = DiscreteLaplace(Fraction(5, 2)).variance ** 0.5
    assert release.expected_error == {
        "standard deviation of a cell of age": pytest.approx(deviation),
        "standard deviation of a cell of mood, sex": pytest.approx(deviation),
    }


def test_a_unit_of_three_rows_gets_three_times_the_scale(vault_over):
    cell = Integer(name="cell", minimum=0, maximum=9, unknown=Unknown.DROP)
    domain = Domain((cell,), unit=Unit("id", rows=3))
    release = histogram(vault_over(domain, np.full(10, 100)), loss=Epsilon(1), total=NoisyTotal())
    (deviation,) = release.expected_error.values()
    assert deviation == pytest.approx(DiscreteLaplace(3).variance ** 0.5)


def test_a_public_total_is_met(vault_over, domain, counts):
    release = histogram(vault_over(domain, counts), loss=Epsilon(1), total=PublicTotal(int(counts.sum())))
    assert release.model.cells(domain.names).sum() == pytest.approx(counts.sum())
    assert len(release.rows) == counts.sum()


def test_a_charged_total_is_noisy(vault_over, domain, counts):
    vault = vault_over(domain, counts)
    totals = {
        histogram(vault, loss=Epsilon(1), total=total).model.total
        for total in (NoisyTotal(), BudgetShare(Fraction(1, 20)))
        for _ in range(20)
    }
    assert len(totals) > 10
    assert all(abs(total - counts.sum()) < 1000 for total in totals)


def test_an_empty_table_gives_few_rows_or_none(vault_over, domain):
    vault = vault_over(domain, np.zeros(domain.shape))
    totals = [histogram(vault, loss=Epsilon(1), total=NoisyTotal()).model.total for _ in range(20)]
    assert min(totals) == 0
    assert max(totals) < 60
    release = histogram(vault, loss=Epsilon(20), total=NoisyTotal())
    assert release.model.total == 0
    assert release.rows.table.column_names == list(domain.names)


def test_clean_tables_are_reproduced(vault_over, domain, counts):
    release = marginals(
        vault_over(domain, counts), loss=Epsilon(60), total=NoisyTotal(), cliques=[["sex", "age"], ["mood"]]
    )
    np.testing.assert_array_equal(
        release.model.cells(("age", "sex")).round(6), counts.sum(axis=1).ravel(), err_msg="axes follow the attributes"
    )
    drawn = release.rows.table.group_by("sex").aggregate([([], "count_all")]).sort_by("sex")
    assert drawn["count_all"].to_pylist() == counts.sum(axis=(0, 1)).tolist()


def test_overlapping_marginals_are_refused_before_anything_is_spent(vault_over, domain, counts):
    vault = vault_over(domain, counts)
    with pytest.raises(QueryError, match="age stands in two marginals"):
        marginals(vault, loss=Epsilon(1), total=NoisyTotal(), cliques=[["age", "sex"], ["age"]])
    with pytest.raises(QueryError, match="at least one attribute"):
        marginals(vault, loss=Epsilon(1), total=NoisyTotal(), cliques=[])
    assert vault.reserved == []


def test_a_table_too_large_is_refused_with_the_remedy():
    names = [Integer(name=f"a{i}", minimum=0, maximum=999, unknown=Unknown.DROP) for i in range(3)]
    people = ArrayTable(Domain(tuple(names)), np.zeros((1, 3), np.int64), weights=np.array([1000]))
    vault = SimulatedVault(people, seed=1)
    with pytest.raises(SizeError, match=r"1,000,000,000 cells.*mst or batched"):
        histogram(vault, loss=Epsilon(1), total=NoisyTotal())


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_a_share_of_nothing_or_everything_is_refused(share):
    with pytest.raises(LossError):
        BudgetShare(share)


def test_a_public_total_counts_somebody():
    with pytest.raises(InputError):
        PublicTotal(0)
