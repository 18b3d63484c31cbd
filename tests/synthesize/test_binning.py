"""Measured edges: about equal bins, an exact charge, and no information from the data except the counts."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.binning import FirstTables, private_edges
from sfumato.vault.measurables import Marginal, Measurement
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Real(name="income", edges=(0.0, 1e6), unknown=Unknown.CLAMP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    )
)


def vault_of(values, seed=1):
    codes = np.zeros((len(values), 2), dtype=np.int64)
    return SimulatedVault(ArrayTable(DOMAIN, codes, values={"income": values}), seed=seed)


@pytest.mark.parametrize("loss", [Epsilon("0.5"), Rho("0.05")])
def test_bins_hold_about_as_many_rows_each(loss):
    values = np.random.default_rng(1).lognormal(10, 1, 50_000).clip(0, 1e6)
    vault = vault_of(values)
    edges = private_edges(vault, "income", loss=loss, bins=8)
    counts, _ = np.histogram(values, edges)
    assert edges[0] == 0.0
    assert edges[-1] == 1e6
    assert 5 <= len(counts) <= 9
    assert counts.max() < 2.5 * 50_000 / 8
    assert vault.spent.rho <= vault.reserved[0].rho
    assert float(vault.spent.rho) == pytest.approx(float(vault.reserved[0].rho), rel=0.99)


def test_edges_lie_on_a_grid_that_does_not_depend_on_the_data():
    edges = private_edges(vault_of(np.full(5000, 123_456.789)), "income", loss=Rho(1), bins=4)
    steps = np.array(edges) / 1e6 * 4**5
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)


def test_a_number_that_most_rows_share_leaves_bins_for_the_others():
    random = np.random.default_rng(1)
    values = np.where(random.random(30_000) < 0.92, 0.0, random.lognormal(12, 0.6, 30_000).clip(0, 1e6))
    edges = private_edges(vault_of(values), "income", loss=Rho("0.1"), bins=8)
    assert 7 <= len(edges) <= 9
    counts, _ = np.histogram(values, edges)
    assert counts[1:].max() < 0.5 * (values > 0).sum()


def test_an_empty_table_gives_no_edges_to_speak_of():
    edges = private_edges(vault_of(np.zeros(0)), "income", loss=Rho("0.5"), bins=8)
    assert edges[0] == 0.0
    assert edges[-1] == 1e6
    assert all(low < high for low, high in itertools.pairwise(edges))


def test_only_numbers_are_binned():
    vault = vault_of(np.zeros(3))
    for attribute, bins in (("sex", 4), ("income", 1)):
        with pytest.raises(QueryError):
            private_edges(vault, attribute, loss=Rho(1), bins=bins)
    assert not vault.reserved


def test_edges_of_whole_numbers_make_a_domain_and_a_single_point_has_none():
    numbers = Integer(name="x", minimum=0, maximum=99, unknown=Unknown.CLAMP)
    point = Integer(name="y", minimum=5, maximum=5, unknown=Unknown.CLAMP)
    values = np.random.default_rng(0).integers(0, 100, 2000)
    codes = np.stack([values, np.zeros_like(values)], axis=1)
    table = ArrayTable(Domain((numbers, point)), codes, values={"x": values.astype(float), "y": np.full(2000, 5.0)})
    vault = SimulatedVault(table, seed=1)
    edges = private_edges(vault, "x", loss=Epsilon(2), bins=8)
    assert Integer(name="x", minimum=0, maximum=99, edges=edges, unknown=Unknown.CLAMP).declared == len(edges) >= 2
    with pytest.raises(QueryError, match="range"):
        private_edges(vault, "y", loss=Epsilon(1), bins=4)
    assert len(vault.reserved) == 1


def test_rare_categories_share_their_group_by_posterior_means():
    """Of 240 categories, 30 have 2.5 deviations of people and 200 have none: fewer rows lie in a wrong one."""
    true = np.concatenate([np.full(10, 400.0), np.full(30, 75.0), np.zeros(200)])
    domain = Domain((Categorical(name="trade", values=tuple(f"t{code}" for code in range(240)), unknown=Unknown.DROP),))
    noise = DiscreteGaussian(Fraction(900))
    errors = {True: 0.0, False: 0.0}
    for seed in range(20):
        counts = np.rint(true + np.random.default_rng(seed).normal(0, 30, 240)).astype(np.int64)
        tables = FirstTables(domain["trade"], (1,), (Measurement(Marginal(("trade",)), counts, noise),))
        for smooths in errors:
            column = tables.grouped(domain, None, max_deviations=10.0, smooths=smooths)
            spread = column.merged.shares() * np.maximum(column.observation.counts, 0.0)[column.merged.groups]
            errors[smooths] += np.abs(spread / spread.sum() - true / true.sum()).sum() / 2 / 20
    assert errors[True] < 0.93 * errors[False]
