"""The batched method keeps the marginals that are named, of any size, and the pairs that are not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import QueryError, SizeError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import NoisyTotal, PublicTotal, aim, all_marginals, auto, batched, cells_of, mwem
from sfumato.synthesize.methods.batched import marginals_request
from sfumato.synthesize.methods.mwem import Schedule
from sfumato.synthesize.synthesis_method import Task
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import Marginals

ROWS = 4000
XOR = ("b0", "b1", "b2", "y")


def bits(names: list[str]) -> Domain:
    return Domain(tuple(Integer(name=name, minimum=0, maximum=1, unknown=Unknown.DROP) for name in names))


@pytest.fixture
def parity() -> SimulatedVault:
    """Eight fair bits, ``y`` as the parity of three of them, and ``z`` equal to another one."""
    random = np.random.default_rng(4)
    columns = {f"b{place}": random.integers(0, 2, ROWS) for place in range(8)}
    columns["y"] = (columns["b0"] + columns["b1"] + columns["b2"]) % 2
    columns["z"] = columns["b7"]
    return SimulatedVault(open_table(pa.table(columns)).encode(bits(list(columns))), seed=5)


def agreement(vault: SimulatedVault, workload: Marginals) -> tuple[float, float]:
    """Return the shares of rows with the right parity, and with ``z`` equal to its other column."""
    rows = batched(vault, loss=Rho("0.02"), total=NoisyTotal(), workload=workload).to_pandas()
    return float(((rows.b0 + rows.b1 + rows.b2) % 2 == rows.y).mean()), float((rows.b7 == rows.z).mean())


@pytest.mark.parametrize(
    "workload",
    [cells_of([XOR]), all_marginals(2, named=[XOR]), cells_of([XOR, *((f"b{place}", "y") for place in range(3, 8))])],
    ids=["alone", "with all pairs", "with the pairs of y"],
)
def test_a_named_marginal_of_four_columns_is_kept_and_the_rest_too(parity, workload: Marginals) -> None:
    right, equal = agreement(parity, workload)
    assert right > 0.95
    assert equal > 0.9


def test_the_rest_can_be_left_out(parity) -> None:
    right, equal = agreement(parity, all_marginals(1, named=[XOR]))
    assert right > 0.97
    assert 0.4 < equal < 0.6


def test_parity_is_lost_if_it_is_not_named(parity) -> None:
    assert 0.4 < agreement(parity, all_marginals(2))[0] < 0.6


@pytest.mark.parametrize("loss", [Rho("0.02"), Epsilon(1), Rho("0.0001")])
@pytest.mark.parametrize("workload", [cells_of([XOR, ("b3", "b4")]), all_marginals(2, named={XOR: 9, ("b5", "z"): 2})])
def test_named_marginals_spend_no_more_than_is_charged(parity, loss, workload: Marginals) -> None:
    batched(parity, loss=loss, total=PublicTotal(ROWS), workload=workload)
    assert parity.reserved == [loss.charge]
    assert parity.spent.rho <= loss.charge.rho
    assert loss.charge.epsilon is None or parity.spent.epsilon <= loss.charge.epsilon


def test_a_weight_lowers_the_noise_of_a_named_marginal(parity) -> None:
    def deviation(workload: Marginals) -> float:
        release = batched(parity, loss=Rho("0.02"), total=PublicTotal(ROWS), workload=workload)
        errors = [each.deviation for each in release.model.measured if each.attributes == ("b3", "b4")]
        return sum(error**-2.0 for error in errors) ** -0.5

    weights = (1, 9, 81)
    light, middle, heavy = (deviation(all_marginals(2, named={("b3", "b4"): weight})) for weight in weights)
    assert heavy < middle / 1.3 < light / 1.6


def test_a_sparse_named_marginal_is_closer_than_without_its_name() -> None:
    """Three columns of twelve values have 1,728 cells, three quarters of them empty.  No pair of them tells which."""
    random = np.random.default_rng(7)
    columns = {name: random.integers(0, 12, 6000) for name in "abd"}
    columns["c"] = (columns["a"] + columns["b"] + random.integers(0, 3, 6000)) % 12
    domain = Domain(tuple(Integer(name=n, minimum=0, maximum=11, unknown=Unknown.DROP) for n in columns))
    table = open_table(pa.table(columns)).encode(domain)
    true = np.bincount(np.ravel_multi_index([columns[n] for n in "abc"], (12, 12, 12)), minlength=12**3)

    def off(workload: Marginals) -> float:
        vault = SimulatedVault(table, seed=8)
        cells = batched(vault, loss=Rho("0.05"), total=PublicTotal(6000), workload=workload).model.cells(tuple("abc"))
        return float(np.abs(cells.ravel() - true).sum()) / 12_000

    assert off(all_marginals(2, named=[tuple("abc")])) < off(all_marginals(2)) - 0.2


def test_what_does_not_fit_is_refused_before_the_charge() -> None:
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=49, unknown=Unknown.DROP) for name in "abcdefgh"))
    vault = SimulatedVault(open_table(pa.table({name: [1, 2] for name in "abcdefgh"})).encode(domain), seed=1)
    for method, (ways, named, refusal) in product(
        (batched, auto),
        (
            (2, "abcd", "the marginal of a, b, c, d has 6,250,000 cells, more than the 4,194,304 of one marginal"),
            (None, "abcdefgh", "the marginal of a, b, c, d, e, f, g, h has 8 columns"),
        ),
    ):
        with pytest.raises((QueryError, SizeError), match=refusal):
            method(vault, loss=Rho(1), total=NoisyTotal(), workload=Marginals(ways, (tuple(named),)))
    assert not vault.reserved


def test_other_methods_refuse_weights(parity) -> None:
    weighted = all_marginals(2, named={("b0", "b1"): 2})
    with pytest.raises(QueryError, match="aim takes no weights of marginals: only batched does"):
        aim(parity, loss=Rho(1), total=NoisyTotal(), workload=weighted)
    with pytest.raises(QueryError, match="mwem takes no weights of marginals"):
        mwem(parity, loss=Rho(1), total=PublicTotal(ROWS), workload=weighted, schedule=Schedule(3, 2))
    assert not parity.reserved


def test_the_journal_names_weights_only_if_there_are_any() -> None:
    def workload(asked: Marginals) -> object:
        task = Task(loss=Rho(1), total=NoisyTotal(), workload=asked)
        return marginals_request(bits(["a", "b", "c"]), "batched", task).parameters["workload"]

    assert workload(cells_of([("a", "b")])) == {"ways": None, "cliques": [["a", "b"]]}
    assert workload(all_marginals(2)) == {"ways": 2, "cliques": []}
    both = {"ways": 2, "cliques": [["a", "b"]], "weights": ["4"]}
    assert workload(all_marginals(2, named={("a", "b"): 4})) == both
