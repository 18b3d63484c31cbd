"""Numbers lie where they lie within wide cells: the question, the drawing, and totals from end to end."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.synthesize import PublicTotal, aim, all_marginals, annealed, mst
from sfumato.synthesize.cell_positions import Position, drawn, question, share, within
from sfumato.vault.simulated import SimulatedVault

INCOME = Integer(
    name="income", minimum=0, maximum=99_999, edges=(0, 1, 1000, 10_000, 20_000, 50_000), unknown=Unknown.CLAMP
)
PAY = Real(name="pay", edges=(0.0, 0.5, 2.0, 10.0), unknown=Unknown.CATEGORY, nullable=True)
SEX = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
DOMAIN = Domain((INCOME, PAY, SEX))
LOSS = EpsilonDelta(1, "1e-6")


def people(rows: int) -> ArrayTable:
    """Incomes at round numbers, where cells begin, and pays that crowd at the upper ends of theirs."""
    return people_and_totals(rows)[0]


def people_and_totals(rows: int) -> tuple[ArrayTable, dict[str, float]]:
    """The same, and what their incomes and pays add up to."""
    random = np.random.default_rng(2)
    incomes = random.choice([0, 1000, 5000, 10_000, 12_000, 20_000, 25_000, 50_000], rows)
    pays = np.where(random.random(rows) < 0.1, np.nan, random.choice([0.4, 1.9, 9.0], rows))
    codes = np.stack(
        [
            np.searchsorted(INCOME.edges, incomes, side="right") - 1,
            np.where(np.isnan(pays), 3, np.searchsorted(PAY.edges, np.nan_to_num(pays), side="right") - 1),
            random.integers(0, 2, rows),
        ],
        axis=1,
    )
    totals = {"income": float(incomes.sum()), "pay": float(np.nansum(pays))}
    return ArrayTable(DOMAIN, codes, values={"income": incomes.astype(float), "pay": pays}), totals


@pytest.mark.parametrize("method", ["aim", "mst", "annealed"])
def test_totals_follow_the_numbers_and_not_the_middles_of_their_cells(method):
    """The seeds are fixed.  From the middles of cells the total of incomes is a quarter and more too large."""
    table, truth = people_and_totals(20_000)
    off: dict[str, list[float]] = {"income": [], "pay": []}
    for seed in range(3):
        vault = SimulatedVault(table, seed=seed)
        total = PublicTotal(20_000)
        if method == "mst":
            release = mst(vault, loss=LOSS, total=total)
        else:
            release = (aim if method == "aim" else annealed)(vault, loss=LOSS, total=total, workload=all_marginals(2))
        for name, errors in off.items():
            errors.append(np.nansum(release.rows.table[name].to_numpy()) / truth[name] - 1)
        cells = release.model.cells(("income",))
        middles = np.array([sum(INCOME.bounds(code)) / 2 for code in range(INCOME.declared)])
        assert cells @ middles / truth["income"] > 1.25
    assert np.abs(np.array(list(off.values()))).max() < 0.04


def test_all_of_the_loss_is_drawn_and_no_more(drawn_whole):
    for loss in (Epsilon(1), LOSS):
        vault = SimulatedVault(people(3000), seed=1)
        aim(vault, loss=loss, total=PublicTotal(3000), workload=all_marginals(2))
        assert drawn_whole(vault)


def test_nothing_is_asked_where_every_number_has_a_cell():
    ages = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP), SEX))
    assert share(ages) == 0
    assert share(DOMAIN) > 0
    vault = SimulatedVault(ArrayTable(ages, np.zeros((50, 2), dtype=np.int64)), seed=1)
    assert mst(vault, loss=LOSS, total=PublicTotal(50)).model.positions == {}


def test_a_row_counts_by_the_width_of_its_cell_up_to_that_of_nearly_all():
    counts = np.array([50.0, 100.0, 100.0, 100.0, 99.0, 1.0])
    asked = question(INCOME, counts)
    steps = [high - low for low, high in asked.steps(DOMAIN)]
    moved = [weight * step for weight, step in zip(asked.weights, steps, strict=True)]
    assert moved[0] == 0  # one number, no position
    assert max(moved) <= 1024
    assert moved[5] <= moved[4] * 1.02  # hardly anybody is in the widest
    assert 0.9 < moved[3] / moved[4] / (9999 / 29_999) < 1.1
    assert 0.9 < moved[2] / moved[4] / (8999 / 29_999) < 1.1
    assert asked.sensitivity(DOMAIN)[0] <= 1024 + 2 * max(asked.weights)


@pytest.mark.parametrize("mean", [-0.9, -0.3, -1e-5, 0.0, 0.05, 0.7])
def test_numbers_are_drawn_about_their_mean(mean):
    """False alarms: 1e-9 each, by six standard errors of 200,000 draws, whose spread is at most that of even ones."""
    random = np.random.default_rng(9)
    even = 6 * np.sqrt(1 / 3 / 200_000)
    numbers = drawn(np.full(200_000, mean), random)
    assert ((numbers >= 0) & (numbers <= 1)).all()
    assert abs((2 * numbers - 1).mean() - mean) < even
    reals = within(PAY, np.full(200_000, 2), mean, random)
    assert abs((reals.mean() - 6) / 4 - mean) < even
    integers = within(INCOME, np.full(200_000, 2), mean, random)
    assert ((integers >= 1000) & (integers <= 9999) & (integers == np.floor(integers))).all()
    assert abs((integers.mean() - 5499.5) / 4499.5 - mean) < even + 1e-3


def test_a_position_within_its_noise_is_left_alone():
    assert Position(0.1, 0.2).followed == 0
    assert Position(0.0, 1.0).followed == 0
    assert Position(-0.4, 0.2).followed == pytest.approx(-0.3)
    assert Position(3.0, 0.001).followed == 0.9


def test_rows_of_an_open_cell_are_given_its_typical_value():
    """Incomes of 400,000 and more, declared up to ten millions: evenly drawn, their mean would be five millions."""
    income = Integer(
        name="income", minimum=0, maximum=10**7, edges=(0, 1000, 400_000), unknown=Unknown.CLAMP, typical=600_000
    )
    pay = Real(name="pay", edges=(0.0, 1.0, 9e9), unknown=Unknown.CATEGORY, nullable=True, typical=7.25)
    domain = Domain((income, pay))
    codes = np.repeat([[0, 0], [1, 1], [2, 2], [2, 3]], 500, axis=0)
    values = {
        "income": np.repeat([5.0, 2000.0, 550_000.0, 610_000.0], 500),
        "pay": np.repeat([0.5, 8, np.nan, np.nan], 500),
    }
    release = mst(SimulatedVault(ArrayTable(domain, codes, values=values), seed=1), loss=LOSS, total=PublicTotal(2000))
    incomes, pays = (release.rows.table[name] for name in ("income", "pay"))
    drawn_codes = release.codes()
    assert set(incomes.to_numpy()[drawn_codes[:, 0] == 2].tolist()) == {600_000}
    assert set(pays.to_numpy()[drawn_codes[:, 1] == 1].tolist()) == {7.25}
    assert pays.null_count == int((drawn_codes[:, 1] > 1).sum())
    assert question(income, np.array([500.0, 500, 1000])).weights[2] == 0
    lone = Integer(name="x", minimum=0, maximum=99, edges=(0, 1, 2), unknown=Unknown.CLAMP, typical=5)
    assert share(Domain((lone,))) == 0


def test_a_table_in_which_nobody_seems_to_be_is_released():
    empty = ArrayTable(DOMAIN, np.zeros((0, 3), dtype=np.int64), values={"income": np.zeros(0), "pay": np.zeros(0)})
    for seed in range(4):
        release = mst(SimulatedVault(empty, seed=seed), loss=EpsilonDelta(50, "1e-6"), total=PublicTotal(7))
        assert len(release.rows) == 7
