"""Small tables behind vaults without a ledger."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.vault.simulated import SimulatedVault


def integer(name: str, size: int) -> Integer:
    return Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP)


def table_of(domain: Domain, counts: np.ndarray) -> ArrayTable:
    codes = np.indices(domain.shape).reshape(len(domain), -1).T
    return ArrayTable(domain, codes, weights=np.asarray(counts, dtype=np.int64).ravel())


def binding(charge):
    """Return the binding part of a charge: the pure epsilon if there is one, otherwise rho."""
    return charge.rho if charge.epsilon is None else charge.epsilon


@pytest.fixture
def drawn_whole() -> Callable[[SimulatedVault], bool]:
    """Return a check that the whole reservation was drawn: exactly, except roots that a selection under rho rounds
    down.
    """

    def whole(vault: SimulatedVault) -> bool:
        drawn, reserved = binding(vault.spent), sum(binding(charge) for charge in vault.reserved)
        slack = Fraction(0) if vault.spent.epsilon is not None else Fraction(1, 10**12)
        return reserved * (1 - slack) <= drawn <= reserved

    return whole


@pytest.fixture
def domain() -> Domain:
    """Three attributes of 4, 3 and 2 cells."""
    sex = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
    return Domain((integer("age", 4), integer("mood", 3), sex))


@pytest.fixture
def counts(domain) -> np.ndarray:
    return np.random.default_rng(5).integers(1000, 5000, domain.shape)


@pytest.fixture
def vault_over() -> Callable[..., SimulatedVault]:
    return lambda domain, counts, seed=1: SimulatedVault(table_of(domain, counts), seed=seed)
