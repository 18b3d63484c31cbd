"""The MWEM labs: the printed programs step by step and against their print, the tables, the figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato import data
from sfumato.errors import InputError
from sfumato_labs import mwem_labs, printed_mwem, run
from sfumato_labs.printed_mwem import Printed, cut_short, in_order

COLUMNS = ["method", "epsilon", "max_error", "min_error", "mean_squared_error", "mean_error", "mean_error_sd", "runs"]
EPSILONS = (0.1, 1.0, 5.0, 10.0)

# mean errors by epsilon 0.1, 1, 5 (10), averages of 100 runs; of noise on every cell see noise_of_cells
FIGURES = {
    "mwem-1d": {
        "mwem": [442, 45, 9.2, 4.5],
        "mwem_average": [1234, 1082, 1082, 1084],
        "auto": [16.6, 1.55, 0.065],
    },
    "mwem-2d": {
        "mwem": [2344, 233, 46.7, 22.8],
        "auto": [26.0, 2.5, 0.134],
    },
}


class Remembered:
    """A generator that keeps what it drew."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self.gumbels, self.laplaces, self.orders = [], [], []

    def gumbel(self, size):
        self.gumbels.append(self._random.gumbel(size=size))
        return self.gumbels[-1]

    def laplace(self, size):
        self.laplaces.append(self._random.laplace(size=size))
        return self.laplaces[-1]

    def random(self, size):
        self.orders.append(self._random.random(size))
        return self.orders[-1]

    def geometric(self, chance):
        return self._random.geometric(chance)


def printed_slowly(printed, counts, queries, epsilon, gumbels, laplaces, orders):
    """The printed program for one run, as it reads, on the draws of that run."""
    total = sum(counts)
    occupied = [cell for cell, count in enumerate(counts) if count]
    first, last = occupied[0], occupied[-1]
    weights = [total / (last - first + 1) if first <= cell <= last else 0.0 for cell in range(len(counts))]

    def answer(query, table):
        return sum(value for inside, value in zip(query, table, strict=True) if inside)

    def moved(table, query, noisy_answer):
        error = noisy_answer - answer(query, table)
        factor = math.exp(error / (2 * total))
        return [weight * factor if inside else weight for inside, weight in zip(query, table, strict=True)]

    def normalised(table):
        return [weight * total / sum(table) for weight in table]

    measured = {}
    for gumbel, laplace, order in zip(gumbels, laplaces, orders, strict=True):
        noisy = []
        for index, query in enumerate(queries):
            score = abs(answer(query, weights) - answer(query, counts)) / 100_000
            noisy.append(-math.inf if index in measured else score * epsilon / (4 * printed.rounds) + gumbel[index])
        chosen = max(range(len(queries)), key=noisy.__getitem__)
        scale = (1 if printed.halved else 2) * printed.rounds / epsilon
        measured[chosen] = answer(queries[chosen], counts) + laplace * scale
        if order is None:
            for _ in range(printed.repetitions):
                for index, noisy_answer in measured.items():
                    weights = normalised(moved(weights, queries[index], noisy_answer))
        else:  # the return stands inside the loop over repetitions
            items = list(measured.items())
            for place in sorted(range(len(items)), key=order.__getitem__):
                weights = moved(weights, queries[items[place][0]], items[place][1])
            weights = normalised(weights)
    return weights


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("replay", [in_order, cut_short])
def test_all_printed_runs_at_once_are_each_as_printed(replay, halved):
    random = np.random.default_rng(1)
    counts = np.array([0.0, 300, 900, 100, 500, 0])
    queries = random.random((3, 5, 6)) < 0.5
    epsilons = np.array([0.5, 1.0, 10.0])
    printed = Printed(rounds=4, repetitions=3, halved=halved, replay=replay)
    draws = Remembered(2)
    ended = printed_mwem.run(printed, counts, queries.astype(float), epsilons, draws)
    for place in range(3):
        gumbels = [drawn[place] for drawn in draws.gumbels]
        laplaces = [drawn[place] for drawn in draws.laplaces]
        orders = [drawn[place] for drawn in draws.orders] or [None] * 4
        slow = printed_slowly(printed, counts, queries[place], epsilons[place], gumbels, laplaces, orders)
        np.testing.assert_allclose(ended.weights[place], slow, rtol=1e-9)


def errors_of(name, runs, seed, program=None):
    """Maximal and mean error of a printed program in each run: shape (epsilons, runs, 2)."""
    random = np.random.default_rng(seed)
    counts, two = data.child_mental_health_counts(), name == "mwem-2d"
    domain = data.domain("child_mental_health").project(["age", "satisfaction"] if two else ["age"])
    counts = counts.ravel() if two else counts.sum(axis=1)
    if two:
        draw = lambda: mwem_labs.rectangles_of(domain, 400, random)  # noqa: E731
        program = program or Printed(rounds=200, repetitions=20, halved=True, replay=cut_short)
    else:
        draw = lambda: mwem_labs.ranges("age", data.child_mental_health_queries())  # noqa: E731
        program = program or Printed(rounds=30, repetitions=20, halved=False, replay=in_order)
    queries = np.array([draw().matrix(domain) for _ in range(runs)], dtype=float)
    ended = printed_mwem.run(
        program, counts.astype(float), np.tile(queries, (4, 1, 1)), np.repeat(EPSILONS, runs), random
    )
    wrong = np.abs(np.einsum("rqc,rc->rq", np.tile(queries, (4, 1, 1)), ended.weights - counts))
    figures = np.stack([wrong.max(axis=1), wrong.mean(axis=1)], axis=1)
    return figures.reshape(4, runs, 2), ended.again.reshape(4, runs)


@pytest.mark.parametrize("name", FIGURES)
def test_the_printed_programs_err_as_printed(name):
    """30 runs are compared with the print, which averages 100 over one set of queries. Each of 16 figures (largest and
    mean error) is beyond 4.5 of its standard deviations once in 100 000. The standard deviation is measured between
    runs with new queries, and counts twice: for the print's one set, and for our 30.
    """
    found, again = errors_of(name, 30, seed=5)
    own = np.array(printed_mwem.PUBLISHED[name]["published own"])[:, [0, 3]]
    spread = found.std(axis=1, ddof=1)
    of_print = spread if name == "mwem-2d" else spread / 10
    assert (np.abs(found.mean(axis=1) - own) < 4.5 * np.hypot(of_print, spread / np.sqrt(30))).all()
    expected = 77 if name == "mwem-2d" else 11
    assert again.mean() == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
def test_twenty_repetitions_are_the_reference_in_two_dimensions():
    """20 runs; the reference averages 100.  Beyond 4.5 deviations once in 100 000 for each of 4 mean errors."""
    program = Printed(rounds=200, repetitions=20, halved=True, replay=in_order)
    found, _ = errors_of("mwem-2d", 20, seed=5, program=program)
    reference = np.array(printed_mwem.PUBLISHED["mwem-2d"]["published reference"])[:, 3]
    spread = found[:, :, 1].std(axis=1, ddof=1)
    tolerance = 4.5 * np.hypot(spread, spread / np.sqrt(20)) + 0.25 * reference
    assert (np.abs(found[:, :, 1].mean(axis=1) - reference) < tolerance).all()


def test_what_the_printed_programs_really_spend():
    one = Printed(rounds=30, repetitions=20, halved=False, replay=in_order)
    two = Printed(rounds=200, repetitions=20, halved=True, replay=cut_short)
    assert one.selection_loss(1.0) + one.measurement_loss(1.0) == pytest.approx(0.5, rel=1e-4)
    assert two.selection_loss(1.0) + two.measurement_loss(1.0) == pytest.approx(1.0, rel=1e-4)


def test_rectangles_are_drawn_as_printed():
    """The low end is uniform and the high end uniform from there: a side of one cell is more likely than uniformly."""
    random = np.random.default_rng(3)
    domain = data.domain("child_mental_health")
    boxes = np.concatenate([mwem_labs.boxes(domain.shape, 50, random) for _ in range(200)])
    assert ((boxes[:, :, 0] <= boxes[:, :, 1]).all(), len(boxes)) == (True, 10_000)
    low = boxes[:, 0, 0]
    # distinct boxes are a little more even than the drawing: 4.5 deviations and 10 % for that
    assert np.bincount(low, minlength=14) / 10_000 == pytest.approx([1 / 14] * 14, rel=0.3)
    ends = boxes[low == 0, 0, 1]
    assert ends.mean() == pytest.approx(6.5, abs=1)
    drawn = mwem_labs.boxes(domain.shape, 400, random)
    assert len({tuple(map(tuple, box)) for box in drawn}) == 400


def test_the_1d_lab_has_the_promised_tables_and_figures():
    result = run("mwem-1d", runs=3, seed=1)
    errors = result.tables["errors"]
    assert all(list(row) == COLUMNS for row in errors)
    methods = ["published reference", "published own", "printed", "mwem", "mwem_average", "histogram", "auto"]
    assert [(row["method"], row["epsilon"]) for row in errors] == [(name, e) for name in methods for e in EPSILONS]
    for row in errors:
        assert 0 <= row["min_error"] <= row["mean_error"] <= row["max_error"]
        assert row["runs"] == (100 if row["method"].startswith("published") else 3)
        if not row["method"].startswith("published"):
            assert row["mean_error"] <= math.sqrt(row["mean_squared_error"]) * (1 + 1e-9)
    real = [row["real"] for row in result.tables["counts"]]
    assert real == data.child_mental_health_counts().sum(axis=1).tolist() * 4
    losses = {(row["procedure"], row["stated_epsilon"]): row for row in result.tables["losses"]}
    assert losses["printed", 1.0]["real_epsilon"] == pytest.approx(0.5, rel=1e-4)
    assert not losses["printed", 1.0]["private"]
    assert losses["mwem", 5.0]["real_epsilon"] == 5.0
    assert "not differentially private" in " ".join(result.notes)
    assert "stops at T - 1" in " ".join(result.notes)
    assert [plot.name for plot in result.plots] == ["bars", "lines", "differences", "errors"]
    # one run of MWEM has a standard deviation of about a third of its mean
    mean = {(row["method"], row["epsilon"]): row["mean_error"] for row in errors}
    assert mean["mwem", 1.0] == pytest.approx(45, rel=1)
    assert mean["auto", 1.0] < mean["mwem", 1.0] < mean["printed", 1.0]


def test_a_seed_repeats_a_lab_with_other_options():
    first, second = (
        run("mwem-2d", runs=1, seed=7, epsilon="2", queries=60, rounds=10, repetitions=3).to_json() for _ in range(2)
    )
    assert first == second
    tables = first["tables"]
    assert {row["epsilon"] for row in tables["errors"]} == {2.0}
    assert {row["rounds"] for row in tables["drawn_again"]} == {10}
    assert len(tables["counts"]) == 56


def test_more_queries_than_there_are_are_refused():
    for wrong in (5, 106):
        with pytest.raises(InputError, match="--queries must be between"):
            run("mwem-1d", runs=1, rounds=10, queries=wrong)


def noise_of_cells(name, epsilon):
    """Exact mean size of the sum of discrete Laplace noises over the cells of a query, over the queries of a run."""
    if name == "mwem-1d":
        ends = np.array(data.child_mental_health_queries())
        sizes = ends[:, 1] - ends[:, 0] + 1
    else:
        drawn = np.concatenate([mwem_labs.boxes((14, 4), 400, np.random.default_rng(run)) for run in range(100)])
        sizes = (drawn[:, :, 1] - drawn[:, :, 0] + 1).prod(axis=1)
    points = 1 << 17  # of the circle on which the distribution is folded: its tails beyond weigh nothing
    place = np.minimum(np.arange(points), points - np.arange(points))
    ratio = math.exp(-epsilon)
    transform = np.fft.rfft((1 - ratio) / (1 + ratio) * ratio**place)
    found = {size: np.fft.irfft(transform**size, points) @ place for size in set(sizes.tolist())}
    return float(np.mean([found[size] for size in sizes.tolist()]))


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_hundred_runs_meet_the_figures(name):
    errors = run(name, runs=100, seed=1).tables["errors"]
    found = {(row["method"], row["epsilon"]): row["mean_error"] for row in errors}
    for method, figures in FIGURES[name].items():
        for epsilon, figure in zip(EPSILONS, figures, strict=False):
            assert found[method, epsilon] == pytest.approx(figure, rel=0.15), (method, epsilon)
    # 2000 tables at epsilon 5 leave 3 % of noise in the mean; at 10 hardly any cell has noise
    for epsilon in EPSILONS[:3]:
        assert found["histogram", epsilon] == pytest.approx(noise_of_cells(name, epsilon), rel=0.15), epsilon
