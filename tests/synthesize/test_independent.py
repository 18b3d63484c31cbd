"""Independent columns: the noise pays exactly the loss, the columns are close, and no two depend on each other."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.app.test_cli import sfumato

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import SizeError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import BudgetShare, NoisyTotal, PublicTotal, independent
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
        Integer(name="age", minimum=0, maximum=9, unknown=Unknown.DROP),
        Categorical(name="town", values=("A", "B", "C"), unknown=Unknown.DROP),
    )
)
ROWS = 5000


def table(seed=1):
    """Rows in which sex follows from age."""
    random = np.random.default_rng(seed)
    age = random.binomial(9, 0.3, ROWS)
    return ArrayTable(DOMAIN, np.stack([age % 2, age, random.integers(0, 3, ROWS)], axis=1))


def release(loss, total, seed=1):
    return independent(SimulatedVault(table(), seed=seed), loss=loss, total=total)


@pytest.mark.parametrize("total", [PublicTotal(ROWS), NoisyTotal(), BudgetShare(Fraction(1, 10))])
def test_the_noise_of_all_tables_costs_the_loss_and_nothing_less(total):
    # One row moves one cell of each table by one: epsilon is the sum of 1 / scale, rho the sum of 1 / (2 variance).
    paid = sum(1 / float(each.noise.scale) for each in release(Epsilon(1), total).model.tables)
    assert 0.999 < paid <= 1
    paid = sum(1 / (2 * float(each.noise.variance)) for each in release(Rho(1), total).model.tables)
    assert 0.99 < paid <= 1.0001  # the variance of a discrete Gaussian is a float


def test_the_noise_that_is_drawn_is_the_noise_that_is_stated():
    exact = np.bincount(table().codes[:, 1], minlength=10)
    drawn, stated = [], []
    for seed in range(300):
        (ages,) = (
            each for each in release(Epsilon(1), PublicTotal(ROWS), seed).model.tables if "age" in each.attributes
        )
        drawn.append(ages.values - exact)
        stated.append(float(ages.noise.variance))
    # 3000 draws: the variance of a Laplace variance estimate is 5 / n of its square, so 0.7^2 lies 12 deviations off.
    assert np.var(drawn) / np.mean(stated) == pytest.approx(1, abs=0.2)


def test_columns_are_close_and_independent():
    model = release(Rho(1), NoisyTotal()).model
    for index, name in enumerate(DOMAIN.names):
        exact = np.bincount(table().codes[:, index], minlength=DOMAIN.shape[index])
        assert np.abs(model.cells((name,)) - exact).sum() < 0.01 * ROWS
    pair = model.cells(("sex", "age")).reshape(2, 10)
    np.testing.assert_allclose(pair, np.outer(pair.sum(axis=1), pair.sum(axis=0)) / pair.sum(), rtol=1e-6)


def test_a_column_that_is_too_wide_is_refused():
    domain = Domain((Integer(name="wide", minimum=0, maximum=5_000_000, unknown=Unknown.DROP),))
    vault = SimulatedVault(ArrayTable(domain, np.zeros((1, 1), dtype=np.int64)), seed=1)
    with pytest.raises(SizeError, match="wide has"):
        independent(vault, loss=Epsilon(1), total=NoisyTotal())


def test_the_command_charges_once_and_refuses_options_of_other_methods(tmp_path):
    pq.write_table(pa.table({"sex": ["F", "M"] * 200, "age": [1, 2] * 200}), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(
        "sfumato: 1\nunit: row\nattributes:\n"
        "  sex: {type: categorical, values: [F, M], unknown: drop}\n"
        "  age: {type: integer, minimum: 0, maximum: 9, unknown: drop}\n"
    )
    given = (
        "people.parquet",
        "--domain",
        "people.yaml",
        "--epsilon",
        "1",
        "--method",
        "independent",
        "--out",
        "out.csv",
    )
    sfumato("synthesize", *given, "--way", "2", cwd=tmp_path, code=2)
    sfumato("synthesize", *given, cwd=tmp_path)
    sfumato("synthesize", *given, "--overwrite", cwd=tmp_path)
    shown = json.loads(sfumato("ledger", "show", "people.ledger", "--json", cwd=tmp_path).stdout)
    assert [entry["method"] for entry in shown["entries"] if entry["kind"] == "release"] == ["independent"]
