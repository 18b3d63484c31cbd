"""A released model: its marginals, conditions and structural zeros, and how it is stored."""

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import DomainError, InfeasibleError, QueryError, SizeError
from sfumato.model.coarsening import Coarsening, identity
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import Rho
from sfumato.synthesize import all_marginals, graphical, ranges
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.graphical import Graphical, Measured
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.aim import aim
from sfumato.synthesize.methods.batched import batched
from sfumato.synthesize.methods.mst import mst
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.interface import decode, encode
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Categorical(name="a", values=("x", "y", "z"), unknown=Unknown.DROP),
        Integer(name="b", minimum=0, maximum=3, unknown=Unknown.DROP),
    )
)
GROUPS = Coarsening(np.array([0, 1, 1, 1]), np.array([1.0, 2.0, 1.0, 1.0]))
JOINT = np.array([[0.1, 0.2], [0.3, 0.1], [0.05, 0.25]])


@pytest.fixture
def model():
    factors = (Factor(("a", "b"), np.log(JOINT)),)
    graph = GraphicalModel({"a": 3, "b": 2}, factors, 1000.0)
    return Graphical(DOMAIN, {"a": identity(3), "b": GROUPS}, graph, (Measured(("a", "b"), 4.0),))


WHOLE = 1000 * JOINT[:, [0, 1, 1, 1]] * np.array([1.0, 0.5, 0.25, 0.25])


def test_cells_are_shared_out_over_codes(model):
    np.testing.assert_allclose(model.cells(("a", "b")), WHOLE.ravel())
    np.testing.assert_allclose(model.cells(("b", "a")), WHOLE.T.ravel())
    np.testing.assert_allclose(model.answers(ranges("b", [(1, 2)])), [WHOLE[:, 1:3].sum()])
    np.testing.assert_allclose(model.answers(all_marginals(1)), [*WHOLE.sum(axis=1), *WHOLE.sum(axis=0)])


def test_a_condition_is_that_of_the_whole_table(model):
    kept = model.given({"b": [0, 2], "a": [1, 2]})
    expected = WHOLE * np.array([[0.0], [1.0], [1.0]]) * np.array([1.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(kept.cells(("a", "b")), expected.ravel(), atol=1e-9)
    assert kept.total == round(expected.sum())
    codes = kept.sample(generator(1), 500)
    assert set(codes[:, 0]) == {1, 2}
    assert set(codes[:, 1]) == {0, 2}


def test_rows_are_drawn_in_blocks_and_each_meets_the_model(model, monkeypatch):
    monkeypatch.setattr(graphical, "_BLOCK", 300)
    codes = model.sample(generator(2), 1000)
    assert codes.shape == (1000, 2)
    for start in range(0, 1000, 300):
        block = codes[start : start + 300]
        held = np.bincount(block[:, 0], minlength=3)
        assert np.abs(held - len(block) * JOINT.sum(axis=1)).max() < 2  # two cells of the pair, each rounded
    assert model.sample(generator(2), 0).shape == (0, 2)
    with pytest.raises(SizeError):
        model.sample(generator(2), -1)


def test_conditions_that_cannot_be_met_are_refused(model):
    with pytest.raises(DomainError):
        model.given({"c": [0]})
    with pytest.raises(QueryError):
        model.given({"a": [3]})
    with pytest.raises(QueryError):
        model.given({"a": []})
    with pytest.raises(InfeasibleError):
        model.given({"a": [0]}).given({"a": [1]})


def test_a_stored_model_is_the_same_model(model):
    read = Graphical.restore(DOMAIN, decode(encode(model.payload())))
    assert read.measured == model.measured
    np.testing.assert_array_equal(read.cells(("a", "b")), model.cells(("a", "b")))
    np.testing.assert_array_equal(read.sample(generator(2), 50), model.sample(generator(2), 50))


def test_a_stored_model_does_not_depend_on_the_order_of_columns(model):
    turned = Graphical.restore(DOMAIN.project(("b", "a")), decode(encode(model.payload())))
    np.testing.assert_allclose(turned.cells(("b", "a")), model.cells(("b", "a")), rtol=1e-12)
    assert turned.sample(generator(2), 50)[:, 0].max() > 2  # codes of b, which has four


@pytest.mark.parametrize(
    ("zeros", "error"),
    [
        (Zeros(("a", "nobody"), np.zeros((3, 4), dtype=bool)), DomainError),
        (Zeros(("a", "a"), np.zeros((3, 3), dtype=bool)), DomainError),
        (Zeros(("a", "b"), np.zeros((4, 3), dtype=bool)), QueryError),
        (Zeros(("a", "b"), np.zeros(12, dtype=bool)), QueryError),
        (Zeros(("a", "b"), np.zeros((3, 4))), QueryError),
        (Zeros(("a", "b"), np.ones((3, 4), dtype=bool)), InfeasibleError),
    ],
)
def test_impossible_cells_that_do_not_fit_are_refused_before_the_charge(zeros, error):
    vault = SimulatedVault(ArrayTable(DOMAIN, np.zeros((9, 2), dtype=np.int64)), seed=1)
    with pytest.raises(error):
        batched(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(2), zeros=[zeros])
    assert vault.reserved == []


def test_zeros_that_leave_nothing_together_are_refused_before_the_charge():
    one, other = (np.arange(3) < 2, np.arange(3) >= 2)
    vault = SimulatedVault(ArrayTable(DOMAIN, np.zeros((9, 2), dtype=np.int64)), seed=1)
    with pytest.raises(InfeasibleError):
        batched(
            vault,
            loss=Rho(1),
            total=NoisyTotal(),
            workload=all_marginals(2),
            zeros=[Zeros(("a",), one), Zeros(("a",), other)],
        )
    assert vault.reserved == []


def test_many_codes_do_not_prevent_zeros_over_few_codes():
    wide = Domain(tuple(Integer(name=name, minimum=0, maximum=9, unknown=Unknown.DROP) for name in "abcdefgh"))
    vault = SimulatedVault(ArrayTable(wide, np.zeros((9, 8), dtype=np.int64)), seed=1)
    batched(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(1), limits=SizeLimits(cells=50))


@pytest.mark.parametrize(
    "method",
    [
        lambda vault, **terms: batched(vault, workload=all_marginals(2), **terms),
        lambda vault, **terms: aim(vault, workload=all_marginals(2), **terms),
        mst,
    ],
    ids=["batched", "aim", "mst"],
)
def test_impossible_cells_stay_empty_though_the_noise_says_otherwise(method):
    impossible = np.zeros((3, 4), dtype=bool)
    impossible[0, 2:] = True
    random = np.random.default_rng(3)
    codes = np.stack([random.integers(0, 3, 500), random.integers(0, 4, 500)], axis=1)
    codes = codes[~impossible[codes[:, 0], codes[:, 1]]]
    vault = SimulatedVault(ArrayTable(DOMAIN, codes), seed=3)
    release = method(vault, loss=Rho("0.001"), total=NoisyTotal(), zeros=[Zeros(("a", "b"), impossible)])
    drawn = release.model.sample(generator(3), 5000)
    assert not impossible[drawn[:, 0], drawn[:, 1]].any()


@pytest.mark.parametrize(("cells", "pairs"), [(150, 3), (300, 5), (1 << 20, 5)])  # zeros alone: 125 and 25 cells
def test_a_spanning_tree_finds_its_room_beside_the_zeros(cells, pairs):
    """Zeros over a triple and a pair close cycles with the pairs chosen: the junction tree is still within its cap."""
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=4, unknown=Unknown.DROP) for name in "abcdef"))
    random = np.random.default_rng(4)
    first, other = (random.choice(5, size, p=[0.1, 0.3, 0.15, 0.25, 0.2]) for size in (3000, (3000, 6)))  # none alike
    codes = np.where(random.random((3000, 6)) < 0.7, first[:, None], other)
    triple, pair = np.zeros((5, 5, 5), dtype=bool), np.zeros((5, 5), dtype=bool)
    triple[0, 0, 4], pair[4, 0] = True, True
    codes = codes[~triple[tuple(codes[:, :3].T)] & ~pair[codes[:, 3], codes[:, 5]]]
    zeros = [Zeros(("a", "b", "c"), triple), Zeros(("d", "f"), pair)]
    vault = SimulatedVault(ArrayTable(domain, codes), seed=5)
    release = mst(vault, loss=Rho(1), total=NoisyTotal(), limits=SizeLimits(cells=cells), zeros=zeros)
    model = release.model.model
    assert model.tree.cells(model.sizes) <= cells + 5  # an attribute alone is not counted
    measured = {table.attributes for table in release.model.measured if len(table.attributes) == 2}
    assert len(measured) == pairs
    drawn = release.model.sample(generator(3), 5000)
    assert not triple[tuple(drawn[:, :3].T)].any()
    assert not pair[drawn[:, 3], drawn[:, 5]].any()
    assert vault.spent.rho == pytest.approx(vault.reserved[0].rho)


def test_zeros_leave_alike_codes_grouped_and_impossible_rows_out():
    """Fixed noise: single ages of few people each are grouped as without zeros, but for the age where zeros end."""
    random = np.random.default_rng(4)
    age = random.integers(0, 100, 4000)
    married = (age >= 15) & (random.random(4000) < 0.5)
    domain = Domain(
        (
            Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
            Categorical(name="married", values=("no", "yes"), unknown=Unknown.DROP),
        )
    )
    table = ArrayTable(domain, np.stack([age, married], axis=1))
    impossible = np.zeros((100, 2), dtype=bool)
    impossible[:15, 1] = True
    made = {}
    for zeros in ((), (Zeros(("age", "married"), impossible),)):
        release = mst(SimulatedVault(table, seed=3), loss=Rho("0.02"), total=NoisyTotal(), zeros=zeros)
        made[len(zeros)] = release.model
    free, held = (made[some].coarsenings["age"] for some in (0, 1))
    assert free.size < 70
    assert held.size <= free.size + 2
    assert held.groups[14] != held.groups[15]
    codes = made[1].sample(generator(5), 20_000)
    assert not ((codes[:, 0] < 15) & (codes[:, 1] == 1)).any()
    shares = np.bincount(age, minlength=100) / len(age)
    off = [np.abs(made[some].cells(("age",)) / made[some].model.total - shares).sum() / 2 for some in (0, 1)]
    assert off[1] < off[0] + 0.02
