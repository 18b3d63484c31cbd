"""A small table with missing values, other values and every kind of attribute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.engine.open import open_table
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
        Integer(name="band", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.CLAMP, nullable=True),
        Real(name="income", edges=(0.0, 100.0, 1000.0, 5000.0), unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="member", values=(True, False), unknown=Unknown.CATEGORY),
    )
)


def rows(count: int = 4000) -> pa.Table:
    random = np.random.default_rng(5)
    sexes = random.choice(np.array(["F", "M", "X", None], dtype=object), count, p=[0.5, 0.3, 0.1, 0.1])
    ages = random.integers(0, 100, count)
    incomes = np.where(random.random(count) < 0.1, np.nan, np.round(random.gamma(2, 600, count), 2))
    bands = [None if random.random() < 0.05 else int(age) for age in ages]
    return pa.table(
        {
            "sex": pa.array(sexes.tolist()),
            "age": ages,
            "band": pa.array(bands, pa.int64()),
            "income": pa.array(incomes, from_pandas=True),
            "member": pa.array([None if age % 7 == 0 else bool(age % 2) for age in ages]),
            "city": pa.array(["Rome" if age < 80 else f"village {age}" for age in ages.tolist()]),
            "id": np.arange(count) // 2,
        }
    )


@pytest.fixture(scope="session")
def table():
    return rows()


@pytest.fixture(scope="session")
def encoded(table):
    return open_table(table).encode(DOMAIN)


@pytest.fixture
def simulated(encoded):
    return SimulatedVault(encoded, seed=11)


@pytest.fixture
def vault(encoded, tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/q.ledger", dataset="people", limit=Epsilon(3), create=True) as ledger:
        yield Vault(encoded, ledger, UNDECLARED)


@pytest.fixture(scope="session")
def by_id(table):
    return open_table(table).encode(Domain(DOMAIN.attributes, unit=Unit("id", rows=2)))
