from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.evaluate.audit.loss_bounds import audit_one_run, chance_of
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.methods.batched import batched
from sfumato.synthesize.methods.histogram import histogram as histogram_synthesizer
from sfumato.synthesize.methods.histogram import marginals
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import all_marginals


def histogram(epsilon, seed):
    """Each canary owns a cell of a noisy histogram: its count is 0 or 1."""

    def run(included):
        return DiscreteLaplace(1 / epsilon).add(included.astype(np.int64), SimulatedEntropy(1000 + seed)) - 0.5

    return run


def found(epsilon, claim, seed, canaries=400):
    luck = np.random.default_rng(seed)
    return audit_one_run(
        histogram(epsilon, seed), canaries=canaries, guesses=canaries, claim=claim, error=1e-3, generator=luck
    )


def synthesized(method, epsilon, seed):
    """A synthesizer over one column with a cell for each canary: each looks included by its cell of the model."""
    domain = Domain((Integer(name="cell", minimum=0, maximum=399, unknown=Unknown.DROP),))

    def run(included):
        vault = SimulatedVault(
            ArrayTable(domain, np.flatnonzero(included)[:, None].astype(np.uint16)), seed=1000 + seed
        )
        release = method(vault, loss=Epsilon(epsilon), total=PublicTotal(200))
        return release.model.cells(("cell",)) - 0.5

    return run


SYNTHESIZERS = {
    "histogram": histogram_synthesizer,
    "marginals": partial(marginals, cliques=[("cell",)]),
    "batched": partial(batched, workload=all_marginals(1)),
}


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_synthesizers_keep_their_word_and_a_false_claim_is_seen(name):
    found = []
    for real, claim in ((1, 1), (4, 1)):
        run = synthesized(SYNTHESIZERS[name], real, seed=1)
        luck = np.random.default_rng(5)
        found.append(
            audit_one_run(run, canaries=400, guesses=400, claim=Epsilon(claim), error=1e-3, generator=luck).passed
        )
    assert found == [True, False]


def test_a_run_at_twice_its_claim_is_rejected_with_400_canaries():
    assert sum(not found(2, Epsilon(1), seed).passed for seed in range(20)) >= 19


def test_an_honest_run_passes():
    results = [found(1, Epsilon(1), seed) for seed in range(50)]
    assert all(result.passed for result in results)
    assert np.mean([result.proven for result in results]) > 0.5


def test_the_chance_is_the_binomial_tail_and_delta_adds_to_it():
    rate = 1 / (1 + math.exp(-1))
    assert chance_of(300, 400, 400, epsilon=1, delta=0) == pytest.approx(binom.sf(299, 400, rate))
    assert chance_of(0, 400, 400, epsilon=1, delta=0) == 1
    beta = binom.sf(299, 400, rate)
    alpha = max(binom.cdf(299, 400, rate) / i - binom.cdf(299 - i, 400, rate) / i for i in range(1, 301))
    expected = beta + 2 * 400 * 1e-5 * alpha
    assert chance_of(300, 400, 400, epsilon=1, delta=1e-5) == pytest.approx(expected)


def test_delta_loosens_the_bound_and_unguessed_canaries_do_not_count():
    strict, loose = (found(2, claim, 0).proven for claim in (Epsilon(1), EpsilonDelta(1, "1e-3")))
    assert loose < strict
    luck = np.random.default_rng(0)
    few = audit_one_run(histogram(2, 0), canaries=400, guesses=50, claim=Epsilon(1), error=1e-3, generator=luck)
    assert few.guesses == 50
    assert few.correct > 40


def test_guesses_and_scores_must_fit_the_canaries():
    luck = np.random.default_rng(0)
    with pytest.raises(InputError, match="guesses lie"):
        audit_one_run(histogram(1, 0), canaries=4, guesses=5, claim=Epsilon(1), error=0.1, generator=luck)
    with pytest.raises(InputError, match="one score a canary"):
        audit_one_run(lambda _: np.zeros(3), canaries=4, guesses=4, claim=Epsilon(1), error=0.1, generator=luck)
