"""A number or date of very many cells is also measured in groups: its sums are right, and its statements hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.synthesize.conftest import binding
from tests.synthesize.test_stated_errors import most_misses

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import NoisyTotal, all_marginals, batched, binning, mst
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.methods.independent import independent
from sfumato.synthesize.stated_errors import measured_column
from sfumato.vault.simulated import SimulatedVault

CELLS = 20_000
DOMAIN = Domain(
    (
        Integer(name="income", minimum=0, maximum=CELLS - 1, unknown=Unknown.CATEGORY),
        Categorical(name="town", values=tuple("abcd"), unknown=Unknown.DROP),
    )
)
ROWS = 4_000
RELEASES = 60


def income() -> np.ndarray:
    random = np.random.default_rng(1)
    smooth = random.lognormal(math.log(3_000), 0.6, ROWS - 1_100).astype(int)
    spikes = np.repeat([2_000, 2_500, 5_000], [600, 300, 100])
    return np.concatenate([np.minimum(smooth, CELLS - 1), spikes, np.full(100, CELLS)])  # the last are missing


INCOME = income()
CODES = np.column_stack([INCOME, np.arange(ROWS) % 4])


def vault(seed: int) -> SimulatedVault:
    return SimulatedVault(ArrayTable(DOMAIN, CODES), seed=seed)


def first_tables(model):
    return [table for table in model.tables if not table.fresh and table.attributes == ("income",)]


def test_all_nested_tables_add_up_to_the_charge() -> None:
    for loss in (Rho("0.02"), Epsilon("0.2")):
        protected = vault(1)
        released = independent(protected, loss=loss, total=NoisyTotal())
        sizes = [table.values.size for table in first_tables(released.model)]
        assert sizes == [13, 140, 1_668, 20_001]  # missing values have a cell of their own
        scales = [table.noise.variance for table in released.model.tables]
        # the standard formulas of one row: rho = 1 / (2 variance), epsilon = sqrt(2 / variance)
        spent = sum(1 / (2 * each) if isinstance(loss, Rho) else math.sqrt(2 / each) for each in scales)
        assert spent == pytest.approx(float(loss.value), rel=0.01)
        (reserved,) = protected.reserved
        assert binding(protected.spent) == binding(reserved)


def test_groups_follow_from_public_facts_alone() -> None:
    attribute = DOMAIN["income"]
    assert binning.first_widths(attribute, 10.0, 100_000.0) == (1,)
    assert binning.first_widths(attribute, 100.0, 100_000.0) == (1_728, 144, 12, 1)
    narrow = Integer(name="age", minimum=0, maximum=998, unknown=Unknown.DROP)
    assert binning.first_widths(narrow, 1e6, 1.0) == (1,)
    listed = Categorical(name="code", values=tuple(map(str, range(5_000))), unknown=Unknown.DROP)
    assert binning.first_widths(listed, 1e6, 1.0) == (1,)


@pytest.mark.parametrize("method", ["batched", "mst", "independent"])
def test_quantiles_and_mean_of_a_wide_column_are_those_of_the_table(method: str, monkeypatch) -> None:
    def released(seed: int) -> np.ndarray:
        settings = {"loss": Rho("0.01"), "total": PublicTotal(ROWS)}
        if method == "batched":
            made = batched(vault(seed), workload=all_marginals(2), **settings)
        else:
            made = (mst if method == "mst" else independent)(vault(seed), **settings)
        codes = made.codes()[:, 0]
        return codes[codes < CELLS]

    real = INCOME[INCOME < CELLS]

    def errors() -> tuple[float, float]:
        made = [released(seed) for seed in range(4)]
        deciles = [
            np.searchsorted(np.sort(real), np.quantile(each, np.arange(1, 10) / 10)) / len(real) for each in made
        ]
        off = np.abs(np.array(deciles) - np.arange(1, 10) / 10).mean()
        return float(off), float(np.mean([abs(each.mean() / real.mean() - 1) for each in made]))

    deciles, mean = errors()
    monkeypatch.setattr(binning, "MOST_NOISE", math.inf)  # one table, over single codes
    assert deciles < 0.06
    assert mean < 0.2
    assert errors()[0] > 2 * deciles


def test_stated_intervals_hold_for_values_and_groups_of_a_wide_column() -> None:
    exact = np.bincount(INCOME, minlength=CELLS + 1)
    kinds = {
        "none": np.flatnonzero(exact == 0)[::400],
        "few": np.flatnonzero(exact == 1)[::40],
        "many": np.flatnonzero(exact > 50),
    }
    hits = {kind: np.zeros(len(values)) for kind, values in kinds.items()}
    group_hits: np.ndarray | None = None
    for seed in range(RELEASES):
        model = batched(vault(seed), loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(2)).model
        column = measured_column(model.tables, "income", DOMAIN)
        assert column is not None
        for kind, values in kinds.items():
            runs = np.searchsorted(values, np.arange(CELLS + 1))
            runs = np.where(np.isin(np.arange(CELLS + 1), values), runs, len(values))
            low, high = column.intervals(runs, len(values) + 1, 1)
            hits[kind] += ((low <= np.append(exact[values], 0)) & (np.append(exact[values], 0) <= high))[:-1]
        groups = first_tables(model)[1].group_numbers("income", DOMAIN)
        sums = np.bincount(groups, weights=exact)
        low, high = column.intervals(groups, len(sums), 1)
        held = (low <= sums) & (sums <= high)
        group_hits = held.astype(float) if group_hits is None else group_hits + held
        assert np.median(high - low) < 8 * first_tables(model)[1].noise.variance ** 0.5
    for each in (*hits.values(), group_hits):
        assert RELEASES - each.min() <= most_misses(RELEASES, len(each))
        assert each.mean() / RELEASES >= float(Fraction(94, 100))


def test_the_codebook_lists_complete_groups_of_a_wide_column() -> None:
    release = batched(vault(5), loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(2))
    (column, _) = release.codebook.columns
    tables = first_tables(release.model)
    step = tables[2].groups[0].count(0)
    assert column.values[0].values % step == 0
    widths = [each.high - each.low for each in column.values if each.values == column.values[0].values]
    assert np.median(widths) < 8 * tables[-1].noise.variance ** 0.5 * math.sqrt(column.values[0].values / step)


def test_the_codebook_takes_slightly_wider_groups_rather_than_single_cells() -> None:
    domain = Domain((Integer(name="day", minimum=0, maximum=9_496, unknown=Unknown.DROP), DOMAIN["town"]))
    codes = np.column_stack([np.minimum(INCOME, 9_496), np.arange(ROWS) % 4])
    release = independent(SimulatedVault(ArrayTable(domain, codes), seed=5), loss=Rho("0.02"), total=NoisyTotal())
    (column, _) = release.codebook.columns
    assert column.values[0].values == 22  # 500 lines would have 19 cells each, whose noise adds up
    widths = [each.high - each.low for each in column.values[:-1]]
    assert np.median(widths) < 8 * release.model.tables[1].noise.variance ** 0.5
