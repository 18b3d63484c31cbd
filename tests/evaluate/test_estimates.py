from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.errors import TableError
from sfumato.evaluate.released import AnsweredWorkload, Perturbed, Released, Rows, onto_simplex


@given(arrays(np.float64, st.integers(1, 6), elements=st.floats(-5, 5)))
def test_the_simplex_projection_is_nearest(values):
    found = onto_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    total = values.sum()
    if total > 1e-3:
        scaled = values / total
        luck = np.random.default_rng(0)
        for other in luck.dirichlet(np.ones(len(values)), size=20):
            assert ((found - scaled) ** 2).sum() <= ((other - scaled) ** 2).sum() + 1e-9


def test_answered_projects_what_was_asked_and_is_uniform_elsewhere(people):
    real = Released.raw(people.population(3000, seed=0))
    counts = real.marginal(("town", "job", "rich")) * 3000
    answered = AnsweredWorkload(people.DOMAIN, {("town", "job", "rich"): counts, ("rooms",): real.marginal(("rooms",))})
    np.testing.assert_allclose(answered.marginal(("rich", "town")), real.marginal(("rich", "town")), atol=1e-12)
    expected = np.multiply.outer(real.marginal(("job",)), real.marginal(("rooms",)))
    np.testing.assert_allclose(answered.marginal(("job", "rooms")), expected, atol=1e-12)
    np.testing.assert_allclose(answered.marginal(("age",)), 1 / 60)
    np.testing.assert_allclose(answered.marginal(("age", "rich")).sum(axis=0), real.marginal(("rich",)), atol=1e-12)


def test_perturbed_inverts_its_channels(people):
    truth = people.population(200_000, seed=0)
    luck = np.random.default_rng(1)
    kept = 0.6
    channels = tuple(np.full((n, n), (1 - kept) / n) + np.eye(n) * kept for n in people.DOMAIN.shape)
    noise = luck.integers(0, people.DOMAIN.shape, size=truth.codes.shape)
    reports = Rows(people.DOMAIN, np.where(luck.random(truth.codes.shape) < kept, truth.codes, noise))
    perturbed = Perturbed(Released.raw(reports), channels)
    real = Released.raw(truth).marginal(("rich", "job"))
    assert np.abs(perturbed.marginal(("rich", "job")) - real).sum() < 0.05
    assert np.abs(perturbed.reports.marginal(("rich", "job")) - real).sum() > 0.1  # and would be off without


def test_channels_must_fit_the_domain(people):
    with pytest.raises(TableError, match="square channel"):
        Perturbed(Released.raw(people.population(5, seed=0)), (np.eye(2),) * 6)
