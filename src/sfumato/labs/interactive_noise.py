"""How large the noise is, and how soon an average of fresh answers gives the count away: exact and simulated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.labs.lab import Row, Table
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon

EPSILONS = ("1", "0.1", "0.01")
PERCENTS = ("90", "95", "99", "99.9")
QUERIES = (100, 1000, 10_000, 100_000)
PUBLISHED_QUANTILES = {"90": 2.30, "95": 3.00, "99": 4.61, "99.9": 6.91}  # at epsilon 1
PUBLISHED_DANGER = {
    ("1", 100): 100.0,
    ("0.1", 100): 25.59,
    ("0.1", 1000): 73.75,
    ("0.1", 10_000): 99.99,
    ("0.01", 100): 2.72,
    ("0.01", 1000): 9.12,
    ("0.01", 10_000): 27.85,
    ("0.01", 100_000): 73.70,
}
_DRAWS = 5000  # simulated averages in every run
_POINTS = 1 << 16

Floats = NDArray[np.float64]


def noise_quantiles(random: np.random.Generator, runs: int) -> Table:
    """What the size of one noise does not exceed: Laplace, discrete Laplace as released, and simulated Laplace."""
    rows: list[Row] = []
    for text in EPSILONS:
        epsilon = float(text)
        sizes = np.sort(random.exponential(1 / epsilon, runs * _DRAWS))
        noise = DiscreteLaplace.for_loss(Epsilon(text), 1)
        for percent in PERCENTS:
            share = float(percent) / 100
            rows.append(
                {
                    "epsilon": epsilon,
                    "percent": float(percent),
                    "laplace": -math.log1p(-share) / epsilon,
                    "discrete_laplace": noise.quantile(_share(percent)),
                    "monte_carlo": float(np.quantile(sizes, share)),
                    "published": PUBLISHED_QUANTILES[percent] if text == "1" else None,
                }
            )
    return tuple(rows)


def danger_interval(random: np.random.Generator, runs: int) -> Table:
    """P(average of that many answers lies within one half of the count), each answer with noise of scale 1/epsilon."""
    rows: list[Row] = []
    for text in EPSILONS:
        scale = 1 / float(text)
        for queries in QUERIES:
            # a Laplace variable is the difference of two exponential ones, so a sum of them is one of two gammas
            sums = random.gamma(queries, size=(2, runs * _DRAWS))
            means = scale * (sums[0] - sums[1]) / queries
            rows.append(
                {
                    "epsilon": float(text),
                    "queries": queries,
                    "exact_percent": 100 * within(0.5, queries, scale),
                    "monte_carlo_percent": 100 * float(np.mean(np.abs(means) < 0.5)),  # noqa: PLR2004
                    "published_percent": PUBLISHED_DANGER.get((text, queries)),
                }
            )
    return tuple(rows)


def within(distance: float, queries: int, scale: float) -> float:
    """P(|mean of ``queries`` Laplace variables| < ``distance``), by inversion of the characteristic function.

    The sum has the characteristic function (1 + scale^2 t^2)^-queries, so the probability is
    (2 / pi) times the integral of sin(c t) / t times it over t > 0, with c = distance * queries.

    >>> round(within(0.5, 100, 10.0), 4)
    0.2773
    """
    if queries == 1:
        return -math.expm1(-distance / scale)
    reach = distance * queries
    end = math.sqrt(math.expm1(45 / queries)) / scale  # the function is below exp(-45) beyond
    points = max(_POINTS, int(8 * reach * end))  # several to each wave of the sine
    t = (np.arange(points) + 0.5) * (end / points)
    values = np.sin(reach * t) / t * np.exp(-queries * np.log1p((scale * t) ** 2))
    return min(1.0, float(values.sum()) * (end / points) * 2 / math.pi)


def _share(percent: str) -> str:
    """The percentage as an exact share."""
    return f"{percent}e-2"
