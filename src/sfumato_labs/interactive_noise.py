"""The size of noise, and how fast an average of fresh answers reveals the count: exact, simulated, published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato_labs import charts, printed_interactive
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Plot, Row, Table
from sfumato_labs.printed_interactive import SEEDS, SPLIT, starts

BUDGET = Epsilon("0.1")
_DRAWS = 5000  # simulated averages per run
_POINTS = 1 << 16
_NOISE_EPSILONS = ("1", "0.1", "0.01")
_PERCENTS = ("90", "95", "99", "99.9")
_ANSWERS = (100, 1000, 10_000, 100_000)
_OFTEN = 70  # percent

PUBLISHED_QUANTILES: Mapping[str, tuple[float, ...]] = {
    "1": (2.29, 2.98, 4.50, 6.43),
    "0.1": (23.24, 29.99, 45.51, 66.56),
    "0.01": (227.97, 296.22, 463.48, 677.26),
}
PUBLISHED_DANGER: Mapping[tuple[str, int], float] = {
    ("1", 100): 100.0,
    ("1", 1000): 100.0,
    ("1", 10_000): 100.0,
    ("1", 100_000): 100.0,
    ("0.1", 100): 25.59,
    ("0.1", 1000): 73.75,
    ("0.1", 10_000): 99.99,
    ("0.1", 100_000): 100.0,
    ("0.01", 100): 2.72,
    ("0.01", 1000): 9.12,
    ("0.01", 10_000): 27.85,
    ("0.01", 100_000): 73.70,
}
DANGER = (
    "danger_interval: each answer has noise of scale 1/epsilon and epsilon is not split. "
    "Once the average of the answers lies within one half of the count, rounding gives the count away. "
    "Exact figures come from the distribution."
)
SIMULATED = " The published ones are averages of a simulation, of answers whose epsilon is not split either."


def noise_quantiles(random: np.random.Generator, runs: int, *, published: bool) -> Table:
    """Return bounds on the size of one noise: Laplace, discrete Laplace as released, and simulated Laplace."""
    rows: list[Row] = []
    for text in _NOISE_EPSILONS:
        epsilon = float(text)
        sizes = np.sort(random.exponential(1 / epsilon, runs * _DRAWS))
        noise = DiscreteLaplace.for_loss(Epsilon(text), 1)
        for percent, figure in zip(_PERCENTS, PUBLISHED_QUANTILES[text], strict=True):
            share = float(percent) / 100
            rows.append(
                {
                    "epsilon": epsilon,
                    "percent": float(percent),
                    "laplace": -math.log1p(-share) / epsilon,
                    "discrete_laplace": noise.quantile(f"{percent}e-2"),
                    "monte_carlo": float(np.quantile(sizes, share)),
                    "published": figure if published else None,
                }
            )
    return tuple(rows)


def danger_interval(random: np.random.Generator, runs: int, *, published: bool) -> Table:
    """Return P(average within one half of the count) by number of answers, each with noise of scale 1/epsilon."""
    rows: list[Row] = []
    for text in _NOISE_EPSILONS:
        scale = 1 / float(text)
        for queries in _ANSWERS:
            # a Laplace variable is the difference of two exponential ones, so a sum of them is the difference of two
            # gammas
            sums = random.gamma(queries, size=(2, runs * _DRAWS))
            means = scale * (sums[0] - sums[1]) / queries
            rows.append(
                {
                    "epsilon": float(text),
                    "queries": queries,
                    "exact_percent": 100 * within(0.5, queries, scale),
                    "monte_carlo_percent": 100 * float(np.mean(np.abs(means) < 0.5)),  # noqa: PLR2004
                    "published_percent": PUBLISHED_DANGER.get((text, queries)) if published else None,
                }
            )
    return tuple(rows)


def within(distance: float, queries: int, scale: float) -> float:
    """Return P(|mean of ``queries`` Laplace variables| < ``distance``), by inversion of the characteristic function.

    The sum has the characteristic function (1 + scale^2 t^2)^-queries. So the probability is (2 / pi) times the
    integral over t > 0 of sin(c t) / t times this function, with c = distance * queries.

    >>> round(within(0.5, 100, 10.0), 4)
    0.2773
    """
    if queries == 1:
        return -math.expm1(-distance / scale)
    limit = distance * queries
    end = math.sqrt(math.expm1(45 / queries)) / scale  # beyond it the function is below exp(-45)
    points = max(_POINTS, int(8 * limit * end))  # several points per wave of the sine
    t = (np.arange(points) + 0.5) * (end / points)
    values = np.sin(limit * t) / t * np.exp(-queries * np.log1p((scale * t) ** 2))
    return min(1.0, float(values.sum()) * (end / points) * 2 / math.pi)


def danger_plot(rows: Table) -> Plot:
    """Plot how fast an average of fresh answers reveals the count."""
    chart = charts.lines(
        [{**row, "line": f"epsilon {row['epsilon']:g}"} for row in rows],
        ChartAxis(column="queries", title="answers averaged", log=True),
        ChartAxis(column="exact_percent", title="averages within one half of the count, %"),
        series="line",
        panel=Panel(),
    )
    sure: dict[float, int] = {}
    for row in rows:
        if float(row["exact_percent"] or 0) > _OFTEN:
            sure.setdefault(float(row["epsilon"] or 0), int(row["queries"] or 0))
    text = ", ".join(f"{queries} at epsilon {epsilon:g}" for epsilon, queries in sure.items())
    return Plot("danger", f"Answers without a budget that give the count away in {_OFTEN} % of cases: {text}.", chart)


def averaging(truth: int, query_counts: Sequence[int], random: np.random.Generator, runs: int, seed: int) -> Table:
    """Return means of many answers to one query, by the charge per answer."""
    entropy = SimulatedEntropy(seed)
    rows: list[Row] = []
    for number in query_counts:
        fixed = DiscreteLaplace.for_loss(BUDGET / SPLIT, 1)
        divided = DiscreteLaplace.for_loss(BUDGET / number, 1)
        every = printed_interactive.noise(starts(np.arange(SEEDS)), 1, number / float(BUDGET.value))[:, 0]
        every = every[np.isfinite(every)]
        errors_of_regimes = {
            "fixed noise, never refused": [fixed.draw(number, entropy).mean() for _ in range(runs)],
            "budget divided by the number asked": [divided.draw(number, entropy).mean() for _ in range(runs)],
            "stored answers": [fixed.draw(1, entropy).mean() for _ in range(runs)],
            "printed sampler, budget divided": [
                every[random.integers(every.size, size=number)].mean() for _ in range(runs)
            ],
        }
        rows += [
            {
                "queries": number,
                "regime": regime,
                "mean_answer": truth + float(np.mean(errors)),
                "mean_distance": float(np.mean(np.abs(errors))),
                "true_count": truth,
            }
            for regime, errors in errors_of_regimes.items()
        ]
    return tuple(rows)


def bias(averages: Table) -> str:
    """Return sentences on each regime at the largest number of answers, from the table of averages."""
    most = max(int(row["queries"] or 0) for row in averages)
    far = {row["regime"]: float(row["mean_distance"] or 0) for row in averages if row["queries"] == most}
    return (
        f"averaging: after {most} answers the mean is off by {far['fixed noise, never refused']:.3g} with the same "
        f"noise for every answer, and falls into the true count; with the budget divided by their number n (epsilon "
        f"{float(BUDGET.value):g} in all) it is off by {far['budget divided by the number asked']:.3g}, as its "
        "standard deviation is sqrt(2 n)/epsilon, which grows with n. Stored answers repeat one number. The printed "
        f"sampler's mean is off by {far['printed sampler, budget divided']:.3g}: that is bias and no protection: "
        "anyone can subtract scale/4 + 1/4."
    )


def averages_plot(rows: Table) -> Plot:
    """Plot the distance of the average from the truth by number of answers."""
    chart = charts.lines(
        rows,
        ChartAxis(column="queries", title="answers averaged", log=True),
        ChartAxis(column="mean_distance", title="distance of the average from the count, rows", log=True),
        series="regime",
        panel=Panel(size=(480, 300)),
    )
    return Plot("averages", f"Distance of the average of answers from the count. {bias(rows)}", chart)
