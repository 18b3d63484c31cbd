"""A fit uses earlier released marginals if they are precise enough, at no loss."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.model.coarsening import Coarsening
from sfumato.model.graphical_model import GraphicalModel
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Rho
from sfumato.synthesize import NoisyTotal, SizeLimits, all_marginals, batched
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import Fit, merge_into_groups
from sfumato.vault.measurables import StoredMarginal
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=19, unknown=Unknown.CLAMP),
        Categorical(name="town", values=tuple("abcdef"), unknown=Unknown.DROP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
        Categorical(name="job", values=tuple("uvwxyz"), unknown=Unknown.DROP),
    )
)


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    random = np.random.default_rng(3)
    age = np.minimum(random.geometric(0.2, 4000), 20) - 1
    town = np.minimum(random.poisson(age / 5), 5)
    sex = random.integers(0, 2, len(age))
    return np.stack([age, town, sex, (town + 2 * sex + (random.random(len(age)) < 0.2)) % 6], axis=1)


def counts(codes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    shape = [DOMAIN[name].size for name in names]
    cells = np.ravel_multi_index([codes[:, DOMAIN.index(name)] for name in names], shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


def stored(codes: np.ndarray, names: tuple[str, ...], rho: str, seed: int) -> StoredMarginal:
    noise = DiscreteGaussian.for_loss(Rho(rho), squared_sensitivity=1)
    return StoredMarginal(names, noise.add(counts(codes, names), SimulatedEntropy(seed)), noise, Fraction(rho), seed)


def released(codes: np.ndarray, known: list[StoredMarginal], loss: str, seed: int = 1) -> Graphical:
    vault = SimulatedVault(ArrayTable(DOMAIN, codes), seed=seed, stored=known)
    release = batched(vault, loss=Rho(loss), total=NoisyTotal(), workload=all_marginals(2))
    assert vault.spent.rho <= Fraction(loss)
    assert isinstance(release.model, Graphical)
    return release.model


def off(model: Graphical, codes: np.ndarray) -> float:
    """Mean total variation over all pairs."""
    names = DOMAIN.names
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return float(np.mean([
        np.abs(model.cells(pair) - counts(codes, pair).ravel()).sum() / 2 / len(codes) for pair in pairs
    ]))  # fmt: skip


PAIRS = [("town", "job"), ("job", "sex"), ("town", "age")]


def test_what_was_released_before_brings_the_model_nearer(codes: np.ndarray) -> None:
    """Three seeds together; the errors differ by more than half, so that chance does not decide."""
    with_known, without = [], []
    for seed in range(3):
        known = [stored(codes, pair, "0.02", 10 * seed + place) for place, pair in enumerate(PAIRS)]
        with_known.append(off(released(codes, known, "0.002", seed), codes))
        without.append(off(released(codes, [], "0.002", seed), codes))
    assert sum(with_known) < 0.7 * sum(without)


def test_a_release_names_the_entries_that_it_used(codes: np.ndarray) -> None:
    known = [stored(codes, ("town", "job"), "0.02", 7), stored(codes, ("age",), "0.02", 9)]
    model = released(codes, known, "0.002")
    assert model.reused == (7, 9)
    assert Graphical.restore(DOMAIN, model.payload()).reused == (7, 9)


def test_who_wants_none_of_it_gets_the_release_of_an_empty_journal(codes: np.ndarray) -> None:
    known = [stored(codes, ("town", "job"), "0.02", 7)]
    vaults = [SimulatedVault(ArrayTable(DOMAIN, codes), seed=1, stored=each) for each in (known, [])]
    terms = {"loss": Rho("0.002"), "total": NoisyTotal(), "workload": all_marginals(2)}
    alone, empty = (batched(vault, **terms, limits=SizeLimits(prior_marginals=False)) for vault in vaults)
    assert alone.model.reused == ()
    assert "beyond" not in alone.guarantee
    assert (alone.model.cells(("town", "job")) == empty.model.cells(("town", "job"))).all()
    assert alone.provenance["parameters"]["limits"]["earlier"] is False


def test_the_guarantee_holds_beyond_what_was_reused(codes: np.ndarray) -> None:
    known = [stored(codes, ("town", "job"), "0.02", 7), stored(codes, ("age",), "0.02", 9)]
    with_known, without = (
        batched(
            SimulatedVault(ArrayTable(DOMAIN, codes), seed=1, stored=each),
            loss=Rho("0.002"),
            total=NoisyTotal(),
            workload=all_marginals(1),
        )
        for each in (known, [])
    )
    assert with_known.guarantee.endswith("beyond what journal entries 7, 9 released, of which it was made as well")
    assert with_known.guarantee.startswith(without.guarantee)
    assert with_known.codebook.guarantee.text == with_known.guarantee
    assert "beyond" not in without.guarantee


def test_a_release_that_costs_more_than_they_did_leaves_them(codes: np.ndarray) -> None:
    known = [stored(codes, ("town", "job"), "0.002", 7)]
    plain, coarsened_marginals = released(codes, [], "0.0021"), released(codes, known, "0.0021")
    assert coarsened_marginals.reused == ()
    assert (coarsened_marginals.cells(("town", "job")) == plain.cells(("town", "job"))).all()


def test_cells_are_summed_into_groups_with_their_noise(codes: np.ndarray) -> None:
    coarsenings = {
        "age": Coarsening(np.repeat([0, 1, 2], [5, 5, 10]), np.ones(20)),
        "town": Coarsening(np.array([0, 2, 1, 2, 2, 3]), np.ones(6)),
    }
    asked = stored(codes, ("town", "age"), "0.02", 1)
    found = merge_into_groups(DOMAIN, Fit(coarsenings, (), GraphicalModel({}, (), 1.0), (), (), {}), asked)
    assert found.attributes == ("age", "town")
    assert found.counts.shape == (3, 4)
    assert found.counts[2, 2] == asked.values[[1, 3, 4]][:, 10:].sum()
    assert found.variance[2, 2] == pytest.approx(30 * 25)
    assert found.variance[0, 0] == pytest.approx(5 * 25)
