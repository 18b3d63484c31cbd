"""What mst, aim and annealed have in common: exact spending, data seen through doors alone, and rows that fit."""

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.model.simulation import generator
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize.aim import adapt, aim
from sfumato.synthesize.annealed import anneal, annealed
from sfumato.synthesize.growth import Limits
from sfumato.synthesize.mst import mst, span
from sfumato.synthesize.total import Charged, Public, Summed
from sfumato.synthesize.workload import all_marginals
from sfumato.vault.fake import FakeVault

ROWS = 4000


def chain_table(unit=None, rows=ROWS):
    """Five attributes in a chain, each mostly copying the one before, and one apart."""
    random = np.random.default_rng(7)
    columns = [random.integers(0, 4, rows)]
    for _ in range(3):
        columns.append(np.where(random.random(rows) < 0.8, columns[-1], random.integers(0, 4, rows)))
    columns.append(random.poisson(5, rows).clip(0, 19))
    names = ["a", "b", "c", "d"]
    attributes = [Categorical(name=name, values=("w", "x", "y", "z"), unknown=Unknown.DROP) for name in names]
    attributes.append(Integer(name="n", minimum=0, maximum=19, unknown=Unknown.CLAMP))
    return ArrayTable(Domain(tuple(attributes), unit=unit or Unit.row()), np.stack(columns, axis=1))


class Recorder:
    """Doors that note every loss asked of them."""

    def __init__(self, doors):
        self._doors = doors
        self.domain = doors.domain
        self.asked = []

    def measure(self, questions, loss, *, shares=None):
        self.asked.append(loss)
        assert sum(shares or [1]) <= 1
        return self._doors.measure(questions, loss, shares=shares)

    def select(self, scores, loss):
        self.asked.append(loss)
        return self._doors.select(scores, loss)


def run_aim(vault, loss, total):
    return aim(vault, loss=loss, total=total, workload=all_marginals(3))


def run_annealed(vault, loss, total):
    return annealed(vault, loss=loss, total=total, workload=all_marginals(2), limits=Limits(cells=5000))


def run_mst(vault, loss, total):
    return mst(vault, loss=loss, total=total)


METHODS = pytest.mark.parametrize("method", [run_aim, run_annealed, run_mst])
STEPS = {
    "aim": lambda doors, loss, total: adapt(doors, loss, total, all_marginals(3), limits=Limits(), zeros=()),
    "annealed": lambda doors, loss, total: anneal(doors, loss, total, all_marginals(2), limits=Limits(cells=5000)),
    "mst": span,
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("loss", [Epsilon(1), EpsilonDelta(1, "1e-6")])
def test_the_losses_asked_of_the_doors_add_up_exactly(steps, loss):
    vault = FakeVault(chain_table(), seed=1)
    doors = Recorder(vault.doors(loss))
    steps(doors, loss, Summed())
    whole = loss if isinstance(loss, Epsilon) else loss.as_rho()
    assert reduce(type(whole).__add__, doors.asked) == whole


@METHODS
@pytest.mark.parametrize("total", [Public(3000), Summed(), Charged(Fraction(1, 10)), Charged(Fraction(9, 10))])
def test_the_row_count_is_public_or_bought(method, total):
    vault = FakeVault(chain_table(), seed=2)
    release = method(vault, Rho("0.05"), total)
    assert vault.reserved[0].rho * (1 - Fraction(1, 10**6)) <= vault.spent.rho <= vault.reserved[0].rho
    if isinstance(total, Public):
        assert release.model.total == 3000
    else:
        assert release.model.model.total != float(ROWS)
        assert abs(release.model.total - ROWS) < 400


@METHODS
def test_strong_dependence_is_kept_and_what_is_independent_stays_so(method):
    release = method(FakeVault(chain_table(), seed=3), Rho(1), Summed())
    codes = release.model.sample(generator(3), 20_000)
    truth = chain_table(rows=20_000)._codes
    for pair in ((0, 1), (1, 2), (2, 3), (0, 4)):
        tables = [np.bincount(rows[:, pair[0]] * 20 + rows[:, pair[1]], minlength=400) for rows in (codes, truth)]
        assert np.abs(tables[0] - tables[1]).sum() / 40_000 < 0.06
    assert abs(np.corrcoef(codes[:, 0], codes[:, 4])[0, 1]) < 0.08


@METHODS
def test_a_unit_of_several_rows_gets_its_noise(method):
    rows = [
        max(
            table.deviation
            for table in method(FakeVault(chain_table(unit), seed=4), Rho("0.1"), Summed()).model.measured
        )
        for unit in (Unit.row(), Unit("id", rows=50))
    ]
    assert rows[1] > 8 * rows[0]


@METHODS
def test_everything_comes_from_the_doors(method):
    """A release of an empty table is a release of noise: the method sees nothing of the table but answers."""
    empty = ArrayTable(chain_table().domain, np.zeros((0, 5), dtype=np.int64))
    release = method(FakeVault(empty, seed=5), Rho("0.5"), Summed())
    assert release.model.total < 100
    assert len(release.sample(10)) == 10


@METHODS
def test_one_attribute_is_enough(method):
    domain = Domain((Categorical(name="a", values=("x", "y"), unknown=Unknown.DROP),))
    vault = FakeVault(ArrayTable(domain, np.repeat([[0], [1]], [300, 100], axis=0)), seed=6)
    if method is run_aim:
        release = aim(vault, loss=Rho(1), total=Summed(), workload=all_marginals(1))
    elif method is run_annealed:
        release = annealed(vault, loss=Rho(1), total=Summed(), workload=all_marginals(1))
    else:
        release = method(vault, Rho(1), Summed())
    np.testing.assert_allclose(release.model.cells(("a",)), [300, 100], atol=15)
