"""Positions of numbers within wide cells: the question, the drawing, and totals from end to end."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.model.row_sampling import generator
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import PublicTotal, aim, all_marginals, batched, mst
from sfumato.synthesize.cell_positions import (
    POSITIONS,
    CellPosition,
    Rounding,
    candidate_steps,
    draw_rounded,
    exponential_positions,
    fit_rounding,
    mean_positions,
    position,
    position_query,
    round_number_queries,
    sample_within_cells,
    share,
)
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.synthetic import load, save
from sfumato.vault.interface import decode, encode
from sfumato.vault.measurables import Measurement
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


@pytest.mark.parametrize("method", ["batched", "mst", "aim"])
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
            release = (batched if method == "batched" else aim)(
                vault, loss=LOSS, total=total, workload=all_marginals(2)
            )
        for name, errors in off.items():
            errors.append(np.nansum(release.rows.table[name].to_numpy()) / truth[name] - 1)
        cells = release.model.cells(("income",))
        middles = np.array([sum(INCOME.bounds(code)) / 2 for code in range(INCOME.declared)])
        assert cells @ middles / truth["income"] > 1.25
    assert np.abs(np.array(list(off.values()))).max() < 0.04


def test_all_of_the_loss_is_drawn_and_no_more(drawn_whole):
    for loss in (Epsilon(1), LOSS):
        vault = SimulatedVault(people(3000), seed=1)
        batched(vault, loss=loss, total=PublicTotal(3000), workload=all_marginals(2))
        assert drawn_whole(vault)


def test_nothing_is_asked_where_every_number_has_a_cell():
    ages = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP), SEX))
    assert share(ages) == 0
    assert share(DOMAIN) > 0
    vault = SimulatedVault(ArrayTable(ages, np.zeros((50, 2), dtype=np.int64)), seed=1)
    assert mst(vault, loss=LOSS, total=PublicTotal(50)).model.positions == {}


def test_a_row_counts_by_the_width_of_its_cell_and_wide_cells_are_another_part():
    counts = np.array([50.0, 100.0, 100.0, 100.0, 99.0, 1.0])
    asked = position_query(INCOME, counts)
    steps = [high - low for low, high in asked.steps(DOMAIN)]
    moved = [weight * step for weight, step in zip(asked.weights, steps, strict=True)]
    assert moved[0] == 0  # one number, no position
    assert asked.parts == (0, 0, 0, 0, 0, 1)  # hardly any row is in the widest cell
    assert 0.98 < moved[5] / moved[4] < 1.02  # neither part has more noise than it needs
    assert 0.9 < moved[3] / moved[4] / (9999 / 29_999) < 1.1
    assert 0.9 < moved[2] / moved[4] / (8999 / 29_999) < 1.1
    assert asked.sensitivity(DOMAIN)[0] <= 1.02 * max(moved) + 2 * max(asked.weights)


def test_cells_that_hold_nearly_all_are_one_part_and_the_widest_do_not_overflow():
    assert position_query(INCOME, np.full(6, 100.0)).parts is None
    vast = Real(name="x", edges=(-9e15, 0.0, 1e-3, 2e-3, 9e15), unknown=Unknown.CLAMP)
    asked = position_query(vast, np.array([0.0, 500.0, 500.0, 0.0]))
    assert asked.parts == (1, 0, 0, 1)
    asked.check(Domain((vast,)))


@pytest.mark.parametrize("rate", [0.03, 0.2, -0.1])
def test_noisy_counts_of_an_exponential_density_tell_where_numbers_lie_in_its_cells(rate):
    """Exact counts of cells of even and uneven widths, against the integral of the density."""
    edges = np.array([0.0, 5, 10, 20, 40, 45])
    pay = Real(name="x", edges=tuple(edges.tolist()), unknown=Unknown.CLAMP)
    sums = np.exp(-rate * edges)
    counts = np.abs(np.diff(sums)) * 1e6 / np.abs(sums[-1] - sums[0])
    means = -np.diff((edges + 1 / rate) * sums) / -np.diff(sums)
    exact = 2 * (means - edges[:-1]) / np.diff(edges) - 1
    found = mean_positions(pay, counts, 1.0)
    assert np.abs(found - exact).max() < 0.13
    assert np.abs(found - exact).mean() < 0.5 * np.abs(exact).mean()


def test_single_numbers_open_cells_and_noise_lean_on_nothing():
    alone = Integer(name="x", minimum=0, maximum=30, edges=(0, 10, 11, 21), unknown=Unknown.CLAMP)
    assert mean_positions(alone, np.array([100.0, 9000.0, 50.0, 50.0]), 1.0).tolist() == [0, 0, 0, 0]
    even = Integer(name="x", minimum=0, maximum=39, edges=(0, 10, 20, 30), unknown=Unknown.CLAMP)
    assert mean_positions(even, np.array([3.0, -8.0, 10.0, 1.0]), 10.0).tolist() == [0, 0, 0, 0]
    opened = Integer(name="x", minimum=0, maximum=39, edges=(0, 10, 20, 30), unknown=Unknown.CLAMP, typical=33)
    assert mean_positions(opened, np.array([100.0, 100.0, 100.0, 9000.0]), 1.0).tolist() == [0, 0, 0, 0]


def test_an_even_density_under_noise_hardly_leans() -> None:
    ages = Integer(name="x", minimum=0, maximum=599, edges=(0, 100, 200, 300, 400, 500), unknown=Unknown.CLAMP)
    random = np.random.default_rng(0)
    found = [np.abs(mean_positions(ages, 60 + 20 * random.standard_normal(6), 20.0)).mean() for _ in range(400)]
    # .011 with a standard error below .001; steps that are not shrunk by their noise give .045
    assert np.mean(found) < 0.02


def test_the_total_of_incomes_does_not_hang_on_the_middle_of_their_widest_cell():
    """One in seventy has more than 500,000, most of them little more, in a cell up to 1,300,000.

    The seeds are fixed.  The noise on the count and the position of that cell makes a deviation of 1.4 % of one total,
    of .6 % of the mean of six; a position of all cells together, as before, made the total 6 % too large.
    """
    income = Integer(
        name="income",
        minimum=0,
        maximum=1_300_000,
        edges=(0, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 250_000, 500_000),
        unknown=Unknown.CLAMP,
    )
    domain = Domain((income, SEX))
    random = np.random.default_rng(5)
    incomes = np.rint(np.minimum(random.exponential(45_000, 30_000), 499_999))
    incomes[:430] = np.rint(500_000 + random.exponential(90_000, 430))
    codes = np.stack([np.searchsorted(income.edges, incomes, side="right") - 1, random.integers(0, 2, 30_000)], axis=1)
    table = ArrayTable(domain, codes, values={"income": incomes})
    off = []
    for seed in range(6):
        release = mst(SimulatedVault(table, seed=seed), loss=LOSS, total=PublicTotal(30_000))
        off.append(release.rows.table["income"].to_numpy().sum() / incomes.sum() - 1)
    assert abs(np.mean(off)) < 0.025, off


@pytest.mark.parametrize("mean", [-0.9, -0.3, -1e-5, 0.0, 0.05, 0.7])
def test_numbers_are_drawn_about_their_mean(mean):
    """False alarms: 1e-9 each, by six standard errors of 200,000 draws, whose spread is at most that of even ones."""
    random = np.random.default_rng(9)
    even = 6 * np.sqrt(1 / 3 / 200_000)
    numbers = exponential_positions(np.full(200_000, mean), random)
    assert ((numbers >= 0) & (numbers <= 1)).all()
    assert abs((2 * numbers - 1).mean() - mean) < even
    reals = sample_within_cells(PAY, np.full(200_000, 2), CellPosition((0.5, 0.5, mean)), random)
    assert abs((reals.mean() - 6) / 4 - mean) < even
    integers = sample_within_cells(INCOME, np.full(200_000, 2), CellPosition((0.5, 0.5, mean, 0.5, 0.5, 0.5)), random)
    assert ((integers >= 1000) & (integers <= 9999) & (integers == np.floor(integers))).all()
    assert abs((integers.mean() - 5499.5) / 4499.5 - mean) < even + 1e-3


def test_one_position_of_all_cells_of_an_older_model_is_left_within_its_noise():
    assert CellPosition.of_all(0.1, 0.2, 3).cells == (0, 0, 0)
    assert CellPosition.of_all(0.0, 1.0, 1).cells == (0,)
    assert CellPosition.of_all(-0.4, 0.2, 2).cells == pytest.approx((-0.3, -0.3))
    assert CellPosition.of_all(3.0, 0.001, 1).cells == (0.9,)


def test_an_older_model_is_read_with_its_one_position_and_a_new_one_with_many():
    release = mst(SimulatedVault(people(3000), seed=1), loss=LOSS, total=PublicTotal(3000))
    payload = release.model.payload()
    assert Graphical.restore(DOMAIN, payload).positions == release.model.positions
    held = {key: value for key, value in payload.items() if key not in (POSITIONS, "round numbers")}
    older = held | {"positions": {"pay": [-0.4, 0.2]}}
    assert Graphical.restore(DOMAIN, older).positions["pay"].cells == pytest.approx((-0.3,) * 3)


def test_what_is_measured_of_few_people_hardly_moves_them():
    """Two people in the widest cell: the noise on their position is far beyond one, so little of it is kept."""
    counts = np.array([50.0, 4000.0, 4000.0, 4000.0, 4000.0, 2.0])
    asked = position_query(INCOME, counts)
    noise = DiscreteGaussian.for_loss(Rho("0.001"), squared_sensitivity=asked.sensitivity(DOMAIN)[1])
    suggested = mean_positions(INCOME, counts, 1.0)
    one = round(np.sqrt(noise.variance))
    moved = position(DOMAIN, INCOME, Measurement(asked, np.array([0, one]), noise), counts, 1.0)
    assert abs(moved.cells[5] - suggested[5]) < 0.05
    everybody = position(DOMAIN, INCOME, Measurement(asked, np.array([10**8, 0]), noise), counts, 1.0)
    assert everybody.cells[2] > suggested[2] + 0.5


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
    assert position_query(income, np.array([500.0, 500, 1000])).weights[2] == 0
    lone = Integer(name="x", minimum=0, maximum=99, edges=(0, 1, 2), unknown=Unknown.CLAMP, typical=5)
    assert share(Domain((lone,))) == 0


@pytest.mark.parametrize("loss", [EpsilonDelta(50, "1e-6"), Epsilon(10**3), Epsilon(10**6), Rho(10**5)], ids=str)
def test_a_table_in_which_nobody_seems_to_be_is_released(loss):
    """At a huge loss the noise is a float zero, and a failure after the charge would tell which cells are empty."""
    empty = ArrayTable(DOMAIN, np.zeros((0, 3), dtype=np.int64), values={"income": np.zeros(0), "pay": np.zeros(0)})
    for seed in range(4):
        release = mst(SimulatedVault(empty, seed=seed), loss=loss, total=PublicTotal(7))
        assert len(release.rows) == 7


BOUNDS = np.array([[0, 0], [1, 999], [1000, 9999], [10_000, 109_999]])


def test_steps_fit_twice_into_the_widest_cell():
    assert candidate_steps(9) == ()
    assert candidate_steps(1000) == (5, 10, 50, 100, 500)
    assert [each.steps[-1] for each in round_number_queries(DOMAIN)] == [10_000]  # pay is no integer


def test_cells_too_wide_to_list_have_no_round_numbers():
    def queries(widest: int) -> int:
        column = Integer(name="a", minimum=0, maximum=2 * widest - 1, edges=(0, widest), unknown=Unknown.CLAMP)
        return len(round_number_queries(Domain((column,))))

    assert (queries(10**9), queries(10**9 + 1)) == (1, 0)


def test_a_gap_between_listed_numbers_is_short_however_many_cells_hold_rows():
    """Two hundred cells of a billion numbers leave room for few multiples of each."""
    bounds = np.arange(200)[:, None] * 10**9 + [0, 10**9 - 1]
    codes = np.arange(200)
    tracemalloc.start()
    drawn = draw_rounded(bounds, codes, np.zeros(200), Rounding((5, 10), (2.0, 4.0, 1.0)), generator(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ((drawn >= bounds[:, 0]) & (drawn <= bounds[:, 1])).all()
    assert peak < 50_000_000


def test_the_weights_of_round_numbers_explain_exact_counts():
    random, steps = np.random.default_rng(1), candidate_steps(100_000)
    numbers = np.where(random.random(50_000) < 0.6, random.integers(1, 110, 50_000) * 1000, random.integers(1, 110_000))
    numbers = np.where(random.random(50_000) < 0.2, random.integers(1, 110_000, 50_000), numbers)
    last = (numbers[:, None] % np.array(steps) == 0).sum(axis=1)  # steps are a chain
    counts = np.bincount((last - 1) % (len(steps) + 1), minlength=len(steps) + 1).astype(float)
    codes = np.searchsorted(BOUNDS[:, 0], numbers, side="right") - 1
    rows = np.bincount(codes, minlength=4).astype(float)
    rounding = fit_rounding(BOUNDS, rows, steps, counts, 1.0)
    means = np.array(
        [0.0, *(2 * (numbers[codes == c].mean() - a) / (b - a) - 1 for c, (a, b) in enumerate(BOUNDS) if c)]
    )
    drawn = draw_rounded(BOUNDS, codes, means, rounding, random)
    assert (drawn >= BOUNDS[codes, 0]).all()
    assert (drawn <= BOUNDS[codes, 1]).all()
    for step in (1000, 100, 10):
        assert abs((drawn % step == 0).mean() - (numbers % step == 0).mean()) < 0.02
    assert abs(drawn.mean() / numbers.mean() - 1) < 0.02


def test_counts_that_noise_explains_give_no_rounding():
    steps = candidate_steps(100_000)
    even = np.array([4.0, 2, 1, 1, 0, 0, 0, 0, 0, 10])
    assert fit_rounding(BOUNDS, np.array([5.0, 5, 5, 5]), steps, even, 20.0) is None


@pytest.mark.parametrize("bounds", [(-17, 23), (7, 1_000_003), (-123_456, 654_321)], ids=str)
def test_every_drawn_number_is_in_its_cell_at_the_given_mean(bounds):
    rounding = Rounding((5, 10, 50), (0.2, 0.5, 1.0, 0.1))
    codes, random = np.zeros(20_000, dtype=np.int64), np.random.default_rng(0)
    drawn = draw_rounded(np.array([bounds]), codes, np.array([-0.4]), rounding, random)
    assert bounds[0] <= drawn.min()
    assert drawn.max() <= bounds[1]
    assert abs(2 * (drawn.mean() - bounds[0]) / (bounds[1] - bounds[0]) - 1 + 0.4) < 0.02


def test_round_incomes_are_drawn_from_a_release_and_from_its_file():
    table = people(20_000)  # every income is a multiple of 1000
    release = batched(SimulatedVault(table, seed=1), loss=LOSS, total=PublicTotal(20_000), workload=all_marginals(2))
    incomes = release.rows.table["income"].to_numpy()
    assert (incomes % 1000 == 0).mean() > 0.95
    restored = Graphical.restore(DOMAIN, release.model.payload())
    assert restored.positions == release.model.positions


def test_round_numbers_are_drawn_next_to_an_open_cell_too_wide_to_list():
    income = Integer(
        name="income",
        minimum=0,
        maximum=10**12,
        edges=(0, 1, 1000, 10_000, 50_000),
        unknown=Unknown.CLAMP,
        typical=60_000,
    )
    random = np.random.default_rng(0)
    incomes = random.choice([0, 1000, 5000, 12_000, 20_000, 70_000], 20_000)
    codes = np.stack([np.searchsorted(income.edges, incomes, side="right") - 1, random.integers(0, 2, 20_000)], axis=1)
    table = ArrayTable(Domain((income, SEX)), codes, values={"income": incomes.astype(float)})
    release = mst(SimulatedVault(table, seed=1), loss=LOSS, total=PublicTotal(20_000))
    drawn = release.rows.table["income"].to_numpy()[release.codes()[:, 0] < 4]
    assert (drawn % 1000 == 0).mean() > 0.9


WEIGHTS = [1.0] * 9  # of the eight steps of incomes, and of other numbers
STEPS = [5, 10, 50, 100, 500, 1000, 5000, 10_000]
FORGED = {
    "negative weights": {"income": [STEPS, [-1.0, *WEIGHTS[1:]]]},
    "weights of zero": {"income": [STEPS, [0.0] * 9]},
    "weights that overflow": {"income": [STEPS, [1e308] * 9]},
    "weights that are texts": {"income": [STEPS, ["1"] * 9]},
    "weights of two axes": {"income": [STEPS, [[1.0, 1.0]] * 9]},
    "weights of other steps": {"income": [STEPS, WEIGHTS[1:]]},
    "steps of zero": {"income": [[0, *STEPS[1:]], WEIGHTS]},
    "steps beyond 64 bits": {"income": [[*STEPS[:-1], 10**30], WEIGHTS]},
    "steps that are no multiples": {"income": [[3, 7], WEIGHTS[:3]]},
    "falling steps": {"income": [STEPS[::-1], WEIGHTS]},
    "no steps": {"income": [[], [1.0]]},
    "a third part": {"income": [STEPS, WEIGHTS, WEIGHTS]},
    "real numbers": {"pay": [STEPS, WEIGHTS]},
    "words": {"sex": [STEPS, WEIGHTS]},
    "an unknown column": {"nobody": [STEPS, WEIGHTS]},
    "no columns": [1],
}
FORGED_POSITIONS = {
    "too few": {"income": [0.1]},
    "too many": {"income": [0.1] * 7},
    "none": {"income": []},
    "beyond the cell": {"pay": [0.0, 0.0, -1e9]},
    "texts": {"income": ["a"] * 6},
    "of two axes": {"income": [[0.1]] * 6},
    "words": {"sex": [0.1, 0.1]},
    "an unknown column": {"nobody": [0.1]},
    "no columns": None,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    save(mst(SimulatedVault(people(3000), seed=1), loss=LOSS, total=PublicTotal(3000)), path)
    return decode(path.read_bytes()[32:])


@pytest.mark.parametrize(
    "part",
    [
        *({"round numbers": forged} for forged in FORGED.values()),
        *({POSITIONS: forged} for forged in FORGED_POSITIONS.values()),
    ],
    ids=[*FORGED, *(f"positions: {name}" for name in FORGED_POSITIONS)],
)
def test_forged_positions_and_round_numbers_of_a_file_are_refused_when_it_is_read(part, saved, tmp_path):
    def write(payload):
        stored = encode(payload)
        (tmp_path / "forged").write_bytes(hashlib.sha256(stored).digest() + stored)
        return tmp_path / "forged"

    assert len(load(write(saved)).rows) == 3000
    with pytest.raises(InputError, match=r"^cannot read a saved release from .*: it is damaged, or is no saved model$"):
        load(write(saved | part))
