"""The noisy tables of a release are the measured ones, over the groups at the time."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import SizeError
from sfumato.model.noisy_table import NoisyTable, restore_tables, tables_payload
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.synthesize import BudgetShare, NoisyTotal, aim, all_marginals, batched, histogram, marginals, mst
from sfumato.synthesize.synthetic import load, save
from sfumato.vault.simulated import SimulatedVault

FALSE_ALARM = 1e-6  # of each test of noise

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=39, unknown=Unknown.CLAMP),
        Categorical(name="town", values=tuple("abcdefgh"), unknown=Unknown.DROP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    )
)


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    random = np.random.default_rng(3)
    age = np.minimum(random.geometric(0.12, 20_000), 40) - 1
    town = np.minimum(random.poisson(age / 8), 7)
    return np.stack([age, town, random.integers(0, 2, len(age))], axis=1)


def method(name: str, vault: SimulatedVault, loss: Loss):
    match name:
        case "batched":
            return batched(vault, loss=loss, total=NoisyTotal(), workload=all_marginals(2))
        case "aim":
            return aim(vault, loss=loss, total=NoisyTotal(), workload=all_marginals(2))
        case "mst":
            return mst(vault, loss=loss, total=NoisyTotal())
        case "marginals":
            return marginals(vault, loss=loss, total=BudgetShare(Fraction(1, 10)), cliques=(("age", "sex"), ("town",)))
        case _:
            return histogram(vault, loss=loss, total=NoisyTotal())


def exact(codes: np.ndarray, table: NoisyTable) -> np.ndarray:
    counts = np.zeros(table.values.shape, dtype=np.int64)
    places = [table.group_numbers(name, DOMAIN)[codes[:, DOMAIN.index(name)]] for name in table.attributes]
    np.add.at(counts, tuple(places), 1 if places else len(codes))
    return counts


@pytest.mark.parametrize("loss", [Rho("0.02"), Epsilon("0.5")])
@pytest.mark.parametrize("name", ["batched", "aim", "mst", "marginals", "histogram"])
def test_tables_are_the_exact_ones_with_the_noise_that_they_state(name: str, loss: Loss, codes: np.ndarray) -> None:
    release = method(name, SimulatedVault(ArrayTable(DOMAIN, codes), seed=7), loss)
    assert release.tables
    assert all(isinstance(table.noise, DiscreteGaussian if isinstance(loss, Rho) else DiscreteLaplace)
               for table in release.tables)  # fmt: skip
    noise = np.concatenate([
        ((table.values - exact(codes, table)) / np.sqrt(table.noise.variance)).ravel()
        for table in release.tables if table.fresh
    ])  # fmt: skip
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], len(noise))
    wide = 1 if isinstance(loss, Rho) else 2.5  # squares of Laplace noise have 2.5 times the variance
    assert len(noise) - wide * (len(noise) - low) < noise @ noise < len(noise) + wide * (high - len(noise))


def test_what_was_measured_before_the_groups_were_made_says_so(codes: np.ndarray) -> None:
    release = method("batched", SimulatedVault(ArrayTable(DOMAIN, codes), seed=7), Rho("0.02"))
    early = [table for table in release.tables if not table.fresh]
    assert [table.attributes for table in early] == [("age",), ("town",), ("sex",)]
    assert all(table.groups == (None,) for table in early)
    assert len(release.tables) == 1 + len(release.model.measured)  # and the row count
    grouped = [table for table in release.tables if table.fresh and "age" in table.attributes]
    assert grouped
    assert all(table.group_numbers("age", DOMAIN).max() + 1 == table.values.shape[0] < 40 for table in grouped)


@pytest.mark.parametrize("name", ["batched", "marginals"])
def test_tables_travel_with_the_saved_release(name: str, codes: np.ndarray, tmp_path: Path) -> None:
    release = method(name, SimulatedVault(ArrayTable(DOMAIN, codes), seed=7), Rho("0.02"))
    save(release, tmp_path / "model")
    again = load(tmp_path / "model")
    assert len(again.tables) == len(release.tables)
    for one, other in zip(release.tables, again.tables, strict=True):
        assert (one.attributes, one.groups, one.noise, one.fresh) == (
            other.attributes, other.groups, other.noise, other.fresh,
        )  # fmt: skip
        assert (one.values == other.values).all()


def test_a_release_of_an_older_version_has_none() -> None:
    assert load(Path(__file__).parent / "saved" / "aim.model").tables == ()


def test_tables_that_are_not_over_the_groups_of_the_domain_are_refused(codes: np.ndarray) -> None:
    release = method("batched", SimulatedVault(ArrayTable(DOMAIN, codes), seed=7), Rho("0.02"))
    sound = tables_payload(release.tables)
    assert len(restore_tables(DOMAIN, sound)) == len(release.tables)
    table = next(index for index, each in enumerate(release.tables) if each.attributes[:1] == ("age",) and each.fresh)
    odd = [
        sound | {f"noisy table {table}": release.tables[table].values[:-1]},
        sound | {f"noisy table {table}": release.tables[table].values.astype(np.float64)},
        sound | {"noisy groups 0": np.full(40, 3, dtype=np.int32)},
        sound | {"noisy groups 0": np.zeros(7, dtype=np.int32)},
        sound | {"noisy groups 0": np.arange(40) * 10.0**200},  # as many groups as this are not counted out
        sound | {"noisy tables": {"version": 2, "tables": []}},
    ]
    for payload in odd:
        with pytest.raises(SizeError):
            restore_tables(DOMAIN, payload)
