from __future__ import annotations

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import SizeError
from sfumato.evaluate.attacks.answer_attacks import averaging, differencing, linear_reconstruction
from sfumato.privacy.loss import Epsilon
from sfumato.vault.measurables import Counting
from sfumato.vault.simulated import SimulatedVault

PEOPLE = 100


@pytest.fixture
def secrets() -> np.ndarray:
    return np.random.default_rng(1).random(PEOPLE) < 0.5


def without_composition(secrets, scale):
    """Each answer gets noise as if it were the only one."""
    luck = np.random.default_rng(2)
    return lambda subsets: subsets @ secrets.astype(float) + luck.laplace(0, scale, len(subsets))


def vault_of(secrets, epsilon):
    """The vault's mechanisms: all questions of a session share one loss, and a repeated question its answer."""
    domain = Domain(
        (
            Integer(name="person", minimum=0, maximum=PEOPLE - 1, unknown=Unknown.DROP),
            Categorical(name="secret", values=("no", "yes"), unknown=Unknown.DROP),
        )
    )
    vault = SimulatedVault(ArrayTable(domain, np.column_stack([np.arange(PEOPLE), secrets]).astype(np.uint8)), seed=3)
    asked: dict[bytes, np.ndarray] = {}

    def ask(subsets):
        key = subsets.tobytes()
        if key not in asked:
            matrix = np.zeros((len(subsets), PEOPLE, 2), dtype=bool)
            matrix[:, :, 1] = subsets
            question = Counting(("person", "secret"), matrix.reshape(len(subsets), -1))
            half = Epsilon(epsilon) / 2  # the attacks ask at most two different questions
            asked[key] = vault.mechanisms(half).measure((question,), half)[0].values.astype(float)
        return asked[key]

    return ask


def test_linear_reconstruction_succeeds_where_noise_forgets_composition(secrets):
    ask = without_composition(secrets, 1)
    found = linear_reconstruction(ask, people=PEOPLE, queries=4 * PEOPLE, generator=np.random.default_rng(0))
    assert found.against(secrets).value > 0.95


def test_linear_reconstruction_fails_against_the_vault(secrets):
    ask = vault_of(secrets, 1)
    found = linear_reconstruction(ask, people=PEOPLE, queries=4 * PEOPLE, generator=np.random.default_rng(0))
    assert 0.3 < found.against(secrets).value < 0.7


@pytest.mark.parametrize("attack", [averaging, differencing])
def test_repeated_questions_betray_everybody_unless_answers_are_stored(secrets, attack):
    open_door = attack(without_composition(secrets, 2), people=PEOPLE, repeats=200)
    assert open_door.against(secrets).value > 0.95
    stored = attack(vault_of(secrets, "0.1"), people=PEOPLE, repeats=20)
    assert 0.3 < stored.against(secrets).value < 0.7


def test_large_reconstructions_are_refused():
    with pytest.raises(SizeError, match="at most 200"):
        linear_reconstruction(lambda _: np.zeros(1), people=201, queries=1, generator=np.random.default_rng(0))
