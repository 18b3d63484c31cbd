"""MWEM as the lab report's program does it, many runs at once.  Not private: see ``FLAWS``.

It is kept step by step as printed, down to the order of the replay, because its errors are what is to be
reproduced; the arithmetic is only arranged so that all runs advance together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCORE_DIVISOR = 100_000

FLAWS = (
    "scores are divided by 100 000 inside the exponential mechanism, which makes the choice of queries almost uniform",
    "the domain is read from the data's minimum and maximum, which no epsilon pays for",
    "the noise is floating-point Laplace, whose low bits tell answers apart",
    "the true number of rows is used and not paid for",
    "a shuffled order of the replay is drawn, and then the order of insertion is used",
    "the last iterate is returned, where the paper returns the average (the last is the better one)",
)
HALVED = "the Laplace scale is T/epsilon in place of 2T/epsilon, so that measuring alone costs the whole epsilon"


@dataclass(frozen=True)
class Printed:
    """The constants of a printed program: ``halved`` tells that its Laplace scale is T/epsilon."""

    rounds: int
    repetitions: int
    halved: bool

    def scale(self, epsilon: float | Floats) -> float | Floats:
        """Scale of the Laplace noise on a measured answer."""
        return (1 if self.halved else 2) * self.rounds / epsilon

    def selection_loss(self, epsilon: float) -> float:
        """What selecting really spends: T times epsilon/2T, divided by the divisor of the scores."""
        return epsilon / 2 / SCORE_DIVISOR

    def measurement_loss(self, epsilon: float) -> float:
        """What measuring really spends: T answers of sensitivity 1 at the program's scale."""
        return float(self.rounds / self.scale(epsilon))


def run(printed: Printed, counts: Floats, queries: Floats, epsilons: Floats, random: np.random.Generator) -> Floats:
    """Final tables of all runs.

    Args:
        printed: the constants.
        counts: true counts, shape ``(cells,)``.
        queries: 0/1 queries of each run, shape ``(runs, queries, cells)``.
        epsilons: nominal epsilon of each run, shape ``(runs,)``.
        random: of the simulation.

    Returns:
        Weights, shape ``(runs, cells)``.
    """
    runs = np.arange(len(epsilons))
    total = counts.sum()
    truth = queries @ counts  # (runs, queries)
    # as read from the data: from the first to the last cell that anybody is in
    occupied = np.flatnonzero(counts)
    weights = np.zeros((len(runs), counts.size))
    weights[:, occupied[0] : occupied[-1] + 1] = total / (occupied[-1] - occupied[0] + 1)
    unused = np.ones(truth.shape, dtype=bool)
    measured: list[tuple[Floats, Floats]] = []
    for _ in range(printed.rounds):
        scores = np.abs(np.einsum("rqc,rc->rq", queries, weights) - truth) / SCORE_DIVISOR
        exponents = scores * (epsilons / (2 * printed.rounds) / 2)[:, None]
        # the exponential mechanism, by its equivalent with Gumbel noise
        noisy = np.where(unused, exponents + random.gumbel(size=truth.shape), -np.inf)
        chosen = noisy.argmax(axis=1)
        unused[runs, chosen] = False
        answers = truth[runs, chosen] + random.laplace(size=len(runs)) * printed.scale(epsilons)
        measured.append((queries[runs, chosen], answers))
        for _ in range(printed.repetitions):
            for query, answer in measured:
                _update(weights, query, answer, total)
    return weights


def _update(weights: Floats, query: Floats, answer: Floats, total: float) -> None:
    """One multiplicative update of every run in place, with its normalisation."""
    inside = query * weights
    sums = inside.sum(axis=1)
    growth = np.expm1((answer - sums) / (2 * total))
    inside *= growth[:, None]
    weights += inside
    weights *= (total / (total + sums * growth))[:, None]
