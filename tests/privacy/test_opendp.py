"""Agreement with the reference implementation: two samples, one chi-square, which also rejects 30 % off."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from sfumato.privacy.entropy import OsEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace

DRAWS = 30_000


def p_value(ours, theirs, scale):
    edges = np.unique(np.round(np.linspace(-3 * scale, 3 * scale, 31)))
    table = np.array(
        [np.bincount(np.searchsorted(edges, sample), minlength=edges.size + 1) for sample in (ours, theirs)]
    )
    return chi2_contingency(table[:, table.sum(axis=0) > 10]).pvalue


@pytest.fixture(scope="module")
def opendp():
    from opendp import prelude

    prelude.enable_features("contrib")
    return prelude


@pytest.mark.parametrize("scale", [1.5, 12.0, 3000.0])
def test_laplace(opendp, scale):
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    theirs = np.array(opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=scale)([0] * DRAWS))
    zeros = np.zeros(DRAWS, dtype=np.int64)
    assert p_value(DiscreteLaplace(scale).add(zeros, OsEntropy()), theirs, scale) > 1e-20
    assert p_value(DiscreteLaplace(1.3 * scale).add(zeros, OsEntropy()), theirs, scale) < 1e-20
    assert p_value(DiscreteLaplace(0.7 * scale).add(zeros, OsEntropy()), theirs, scale) < 1e-20


@pytest.mark.parametrize("sigma", [1.5, 12.0, 3000.0])
def test_gaussian(opendp, sigma):
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    theirs = np.array(opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=sigma)([0] * DRAWS))
    zeros = np.zeros(DRAWS, dtype=np.int64)
    assert p_value(DiscreteGaussian(sigma**2).add(zeros, OsEntropy()), theirs, sigma) > 1e-20
    assert p_value(DiscreteGaussian((1.3 * sigma) ** 2).add(zeros, OsEntropy()), theirs, sigma) < 1e-20
    assert p_value(DiscreteGaussian((0.7 * sigma) ** 2).add(zeros, OsEntropy()), theirs, sigma) < 1e-20
