"""Common properties of mst, batched and aim: exact spending, data seen through mechanisms alone, and rows that fit."""

import math
from fractions import Fraction
from functools import reduce
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import marginal_selection
from sfumato.synthesize.budget_allocation import BudgetShare, BudgetSplit, NoisyTotal, PublicTotal
from sfumato.synthesize.initial_marginals import OneWayMarginals, measure_one_way
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.aim import aim, run_aim
from sfumato.synthesize.methods.batched import batched, run_batched
from sfumato.synthesize.methods.mst import mst, run_mst
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import all_marginals

ROWS = 4000
annealing = import_module("sfumato.synthesize.methods.aim")


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
    """Mechanisms that note every loss asked of them."""

    def __init__(self, mechanisms):
        self._inner = mechanisms
        self.domain = mechanisms.domain
        self.asked = []
        self.cells = []

    def measure(self, questions, loss, *, shares=None):
        self.asked.append(loss)
        sizes = dict(zip(self.domain.names, self.domain.shape, strict=True))
        self.cells.append(sum(math.prod(sizes[name] for name in question.attributes) for question in questions))
        assert sum(shares or [1]) <= 1
        return self._inner.measure(questions, loss, shares=shares)

    def stored_marginals(self):
        return self._inner.stored_marginals()

    def generator(self):
        return self._inner.generator()

    def select(self, scores, loss):
        self.asked.append(loss)
        return self._inner.select(scores, loss)


def released_by_batched(vault, loss, total):
    return batched(vault, loss=loss, total=total, workload=all_marginals(3))


def released_by_aim(vault, loss, total):
    return aim(vault, loss=loss, total=total, workload=all_marginals(2), limits=SizeLimits(cells=5000))


def released_by_mst(vault, loss, total):
    return mst(vault, loss=loss, total=total)


METHODS = pytest.mark.parametrize("method", [released_by_batched, released_by_aim, released_by_mst])
STEPS = {
    "batched": lambda mechanisms, loss, total: run_batched(
        mechanisms, loss, total, all_marginals(3), limits=SizeLimits(), zeros=()
    ),
    "aim": lambda mechanisms, loss, total: run_aim(
        mechanisms, loss, total, all_marginals(2), limits=SizeLimits(cells=5000)
    ),
    "mst": lambda mechanisms, loss, total: run_mst(mechanisms, loss, total, limits=SizeLimits()),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("loss", [Epsilon(1), EpsilonDelta(1, "1e-6")])
def test_the_losses_asked_of_the_mechanisms_add_up_exactly(steps, loss):
    vault = SimulatedVault(chain_table(), seed=1)
    mechanisms = Recorder(vault.mechanisms(loss))
    steps(mechanisms, loss, NoisyTotal())
    whole = loss if isinstance(loss, Epsilon) else loss.as_rho()
    assert reduce(type(whole).__add__, mechanisms.asked) == whole


@METHODS
@pytest.mark.parametrize(
    "total", [PublicTotal(3000), NoisyTotal(), BudgetShare(Fraction(1, 10)), BudgetShare(Fraction(9, 10))]
)
def test_the_row_count_is_public_or_bought(method, total):
    vault = SimulatedVault(chain_table(), seed=2)
    release = method(vault, Rho("0.05"), total)
    assert vault.reserved[0].rho * (1 - Fraction(1, 10**6)) <= vault.spent.rho <= vault.reserved[0].rho
    if isinstance(total, PublicTotal):
        assert release.model.total == 3000
    else:
        assert release.model.model.total != float(ROWS)
        assert abs(release.model.total - ROWS) < 400


@METHODS
def test_a_simulation_can_be_repeated(method):
    """Scores of triples count on drawn rows: of the seed too, as the noise is."""
    seeds = [method(SimulatedVault(chain_table(), seed=seed), Rho(1), NoisyTotal()).seed for seed in (3, 3, 4)]
    assert seeds[0] == seeds[1] != seeds[2]


@METHODS
def test_strong_dependence_is_kept_and_what_is_independent_stays_so(method):
    release = method(SimulatedVault(chain_table(), seed=3), Rho(1), NoisyTotal())
    codes = release.model.sample(generator(3), 20_000)
    truth = chain_table(rows=20_000).codes
    for pair in ((0, 1), (1, 2), (2, 3), (0, 4)):
        tables = [np.bincount(rows[:, pair[0]] * 20 + rows[:, pair[1]], minlength=400) for rows in (codes, truth)]
        assert np.abs(tables[0] - tables[1]).sum() / 40_000 < 0.06
    assert abs(np.corrcoef(codes[:, 0], codes[:, 4])[0, 1]) < 0.08


@METHODS
def test_a_unit_of_several_rows_gets_its_noise(method):
    rows = [
        max(
            table.deviation
            for table in method(SimulatedVault(chain_table(unit), seed=4), Rho("0.1"), NoisyTotal()).model.measured
        )
        for unit in (Unit.row(), Unit("id", rows=50))
    ]
    assert rows[1] > 8 * rows[0]


@METHODS
def test_everything_comes_from_the_doors(method):
    """A release of an empty table is a release of noise: the method sees nothing of the table but answers."""
    empty = ArrayTable(chain_table().domain, np.zeros((0, 5), dtype=np.int64))
    release = method(SimulatedVault(empty, seed=5), Rho("0.5"), NoisyTotal())
    assert release.model.total < 100
    assert len(release.sample(10)) == 10


@pytest.mark.parametrize("method", [released_by_batched, released_by_mst])
@pytest.mark.parametrize("loss", [Rho(10**12), Epsilon(10**6), Rho(10**60), Epsilon(10**40)])
def test_a_loss_so_large_that_noise_is_a_float_zero_fits_all_the_same(method, loss):
    release = method(SimulatedVault(chain_table(), seed=5), loss, NoisyTotal())
    truth = np.bincount(chain_table().codes[:, 0], minlength=4)
    np.testing.assert_allclose(release.model.cells(("a",)), truth, atol=0.01 * ROWS)


@pytest.mark.parametrize("steps", [STEPS["batched"], STEPS["mst"]])
def test_marginals_are_measured_in_parts_that_the_vault_can_count(steps, monkeypatch):
    monkeypatch.setattr(marginal_selection, "_CHUNK_CELLS", 100)
    mechanisms = Recorder(SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)))
    steps(mechanisms, Rho(1), NoisyTotal())
    assert max(cells for cells in mechanisms.cells[2:]) <= 320  # one triple of 4 x 4 x 20 cells; the first are one-way
    assert reduce(Rho.__add__, mechanisms.asked) == Rho(1)


def test_mst_leaves_out_pairs_that_nobody_could_count():
    random = np.random.default_rng(1)
    codes = np.stack(
        [random.integers(0, 50_000, 3000), random.integers(0, 50_000, 3000)] + [np.arange(3000) % 3] * 2, 1
    )
    wide = [Integer(name=name, minimum=0, maximum=49_999, unknown=Unknown.CLAMP) for name in "xy"]
    narrow = [Categorical(name=name, values=(0, 1, 2), unknown=Unknown.DROP) for name in "pq"]
    vault = SimulatedVault(ArrayTable(Domain((*wide, *narrow)), codes), seed=1)
    release = mst(vault, loss=Rho(1), total=NoisyTotal())
    measured = {table.attributes for table in release.model.measured}
    assert ("x", "y") not in measured
    assert ("p", "q") in measured
    assert vault.spent.rho <= vault.reserved[0].rho
    assert len(release.model.sample(generator(1), 100)) == 100


@pytest.mark.parametrize(
    ("limits", "edges"), [(SizeLimits(cells=60), 0), (SizeLimits(cells=79, marginal=20), 3), (SizeLimits(cells=400), 4)]
)
def test_mst_stays_within_its_limit_of_cells_and_spends_all_the_same(limits, edges):
    vault = SimulatedVault(chain_table(), seed=2)
    release = mst(vault, loss=Rho(1), total=NoisyTotal(), limits=limits)
    pairs = [table.attributes for table in release.model.measured if len(table.attributes) == 2]
    assert len(pairs) == edges
    model = release.model.model
    assert sum(math.prod(model.sizes[name] for name in pair) for pair in pairs) <= limits.cells
    if not edges:
        assert vault.spent.rho == vault.reserved[0].rho


@pytest.mark.parametrize(("loss", "factor"), [(Epsilon("0.01"), 2), (Rho("0.00001"), 4)])
def test_annealing_halves_the_noise_and_no_more(loss, factor):
    domain = chain_table().domain
    mechanisms = Recorder(SimulatedVault(ArrayTable(domain, np.zeros((0, 5), dtype=np.int64)), seed=3).mechanisms(loss))
    run_aim(mechanisms, loss, PublicTotal(100), all_marginals(2), limits=SizeLimits())
    rounds = [asked.value for asked in mechanisms.asked[2::2]]  # what measures, after the one-way marginals
    ratios = {after / before for before, after in pairwise(rounds[:-1])}
    assert factor in ratios
    assert ratios <= {1, factor}


def test_annealing_considers_all_marginals_inside_the_workload():
    state = measure_one_way(
        SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)),
        BudgetSplit(Rho(1), 1),
        PublicTotal(ROWS),
        OneWayMarginals(),
        zeros=(),
    )
    found = annealing.closure(
        SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)), state, all_marginals(3), SizeLimits(candidates=1)
    )
    assert len(found) == 5 + 10 + 10
    assert found[("a",)] * 2 == found[("a", "b")]
    assert found[("a",)] * 3 == found[("a", "b", "c")]


def test_aim_measures_columns_and_candidates_as_published():
    """All columns have equal noise at 9/160 of the loss, and candidates have up to six attributes."""
    domain = chain_table().domain
    mechanisms = Recorder(SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)))
    run_aim(mechanisms, Rho(1), PublicTotal(ROWS), all_marginals(4), limits=SizeLimits())
    assert mechanisms.asked[0] == Rho(Fraction(9, 160))
    state = measure_one_way(
        SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)),
        BudgetSplit(Rho(1), 1),
        PublicTotal(ROWS),
        OneWayMarginals(Fraction(1), as_published=True),
        zeros=(),
    )
    assert len({each.deviation for each in state.measured}) == 1
    assert not state.shrinks
    found = annealing.closure(
        SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1)), state, all_marginals(4), SizeLimits()
    )
    assert {len(clique) for clique in found} == {1, 2, 3, 4}
    assert len(domain) == len({name for clique in found for name in clique})


@pytest.mark.parametrize(
    ("columns", "smooth"),
    [
        (OneWayMarginals(Fraction(1)), True),
        (OneWayMarginals(Fraction(1), as_published=True), False),
        (OneWayMarginals(Fraction(1), for_children=True), False),
    ],
)
def test_only_batched_smooths_even_ages(columns, smooth):
    """Eighty ages of 500 people each, with noise of 71 a count: groups hold 10 deviations, and noise alone tells them
    apart.
    """
    domain = Domain((Integer(name="age", minimum=0, maximum=79, unknown=Unknown.DROP),))
    vault = SimulatedVault(ArrayTable(domain, np.repeat(np.arange(80), 500)[:, None]), seed=1)
    fit = measure_one_way(
        vault.mechanisms(Rho("0.0001")), BudgetSplit(Rho("0.0001"), 1), PublicTotal(40_000), columns, zeros=()
    )
    sizes = np.bincount(fit.coarsenings["age"].groups)
    assert len(sizes) > 30
    assert (np.ptp(fit.observations[-1].counts / sizes) < 1e-6) == smooth


def test_annealing_scores_by_weighted_distance_less_the_noise():
    mechanisms = SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1))
    state = measure_one_way(mechanisms, BudgetSplit(Rho(1), 1), PublicTotal(ROWS), OneWayMarginals(), zeros=())
    candidates = {("a",): 1, ("a", "b"): 3}
    errors = annealing.selection_scores(state, candidates, 2.5, generator(1))
    assert errors.weights == (1, 3)
    assert errors.penalties == (Fraction(10), Fraction(40))  # 4 and 16 cells
    for distance in errors.distances:
        np.testing.assert_array_equal(
            distance.reference, np.rint(state.model.expected(distance.attributes)).astype(int).ravel()
        )


def test_a_group_has_the_noise_of_its_codes_and_two_measurements_less_than_either():
    mechanisms = SimulatedVault(chain_table(), seed=1).mechanisms(Rho(1))
    state = measure_one_way(
        mechanisms, BudgetSplit(Rho(1), 1), PublicTotal(ROWS), OneWayMarginals(Fraction(1, 10**6)), zeros=()
    )
    groups = state.coarsenings["n"].groups
    (deviation,) = (table.deviation for table in state.measured if table.attributes == ("n",))
    observed = {observation.attributes: observation for observation in state.observations}
    assert len(set(groups)) < len(groups)
    np.testing.assert_allclose(observed["n",].variance, np.bincount(groups) * deviation**2)
    (again,) = mechanisms.measure([state.question(("n",))], Rho("0.1"))
    pooled = {each.attributes: each for each in state.with_measurements([again]).observations}["n",]
    old, new = 1 / observed["n",].variance, 1 / again.noise.variance
    np.testing.assert_allclose(pooled.variance, 1 / (old + new))
    np.testing.assert_allclose(pooled.counts, (old * observed["n",].counts + new * again.values) / (old + new))


@METHODS
def test_one_attribute_is_enough(method):
    domain = Domain((Categorical(name="a", values=("x", "y"), unknown=Unknown.DROP),))
    vault = SimulatedVault(ArrayTable(domain, np.repeat([[0], [1]], [300, 100], axis=0)), seed=6)
    if method is released_by_batched:
        release = batched(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(1))
    elif method is released_by_aim:
        release = aim(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(1))
    else:
        release = method(vault, Rho(1), NoisyTotal())
    np.testing.assert_allclose(release.model.cells(("a",)), [300, 100], atol=15)
