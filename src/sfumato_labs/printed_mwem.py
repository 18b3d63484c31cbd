"""MWEM as the lab report's programs do it, many runs at once.  Not private: see ``FLAWS``.

They are kept step by step as printed, down to the order of the replay, because their errors are what is to be
reproduced; the arithmetic is only arranged so that all runs advance together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SCORE_DIVISOR = 100_000

FLAWS = (
    "scores are divided by 100 000 inside the exponential mechanism, which makes the choice of queries almost uniform",
    "a query that was measured before is drawn again until a new one comes, and the draws are not charged",
    "the domain is read from the data's minimum and maximum, which is charged to no epsilon",
    "the noise is floating-point Laplace, whose low bits tell answers apart",
    "the true number of rows is used and not charged",
    "the last iterate is returned, where the paper returns the average (the last is the better one)",
)
INSERTION = "a shuffled order of the replay is drawn, and then the order of insertion is used"
HALVED = "the Laplace scale is T/epsilon in place of 2T/epsilon, so that measuring alone costs the whole epsilon"
CUT_SHORT = (
    "the return and the normalisation stand inside the loop over repetitions, so that one repetition is made in place "
    "of twenty"
)


@dataclass(frozen=True, eq=False)
class AnswersSoFar:
    """What was measured so far, of each run: queries of shape ``(runs, measured, cells)`` and their noisy answers."""

    queries: Floats
    answers: Floats


Replay = Callable[[Floats, AnswersSoFar, float, int, np.random.Generator], None]
"""Moves weights of shape ``(runs, cells)`` in place towards the measurements, so many repetitions of them."""


def in_order(
    weights: Floats, measured: AnswersSoFar, total: float, repetitions: int, random: np.random.Generator
) -> None:
    """All repetitions in the order of insertion, normalised after every update."""
    del random
    for _ in range(repetitions):
        for place in range(measured.answers.shape[1]):
            _update(weights, measured.queries[:, place], measured.answers[:, place], total)
            weights *= (total / weights.sum(axis=1))[:, None]


def cut_short(
    weights: Floats, measured: AnswersSoFar, total: float, repetitions: int, random: np.random.Generator
) -> None:
    """One repetition in shuffled order and one normalisation, whatever ``repetitions`` says."""
    del repetitions
    runs, count = measured.answers.shape
    order = np.argsort(random.random((runs, count)), axis=1)
    each = np.arange(runs)
    for place in range(count):
        chosen = order[:, place]
        _update(weights, measured.queries[each, chosen], measured.answers[each, chosen], total)
    weights *= (total / weights.sum(axis=1))[:, None]


@dataclass(frozen=True)
class Printed:
    """The constants of a printed program: ``halved`` tells that its Laplace scale is T/epsilon."""

    rounds: int
    repetitions: int
    halved: bool
    replay: Replay

    def scale(self, epsilon: float | Floats) -> float | Floats:
        """Scale of the Laplace noise on a measured answer."""
        return (1 if self.halved else 2) * self.rounds / epsilon

    def selection_loss(self, epsilon: float) -> float:
        """What selecting really spends: T times epsilon/2T, divided by the divisor of the scores."""
        return epsilon / 2 / SCORE_DIVISOR

    def measurement_loss(self, epsilon: float) -> float:
        """What measuring really spends: T answers of sensitivity 1 at the program's scale."""
        return float(self.rounds / self.scale(epsilon))


@dataclass(frozen=True, eq=False)
class Ended:
    """Final tables of all runs, shape ``(runs, cells)``, and how often each drew a query again, shape ``(runs,)``."""

    weights: Floats
    again: Integers


def run(printed: Printed, counts: Floats, queries: Floats, epsilons: Floats, random: np.random.Generator) -> Ended:
    """Run the program.

    Args:
        printed: the constants.
        counts: true counts, shape ``(cells,)``.
        queries: 0/1 queries of each run, shape ``(runs, queries, cells)``.
        epsilons: nominal epsilon of each run, shape ``(runs,)``.
        random: of the simulation.
    """
    runs = np.arange(len(epsilons))
    total = float(counts.sum())
    truth = queries @ counts  # (runs, queries)
    # as read from the data: from the first to the last cell that anybody is in
    occupied = np.flatnonzero(counts)
    weights = np.zeros((len(runs), counts.size))
    weights[:, occupied[0] : occupied[-1] + 1] = total / (occupied[-1] - occupied[0] + 1)
    used = np.zeros(truth.shape, dtype=bool)
    again = np.zeros(len(runs), dtype=np.int64)
    taken, answers = np.zeros((len(runs), printed.rounds, counts.size)), np.zeros((len(runs), printed.rounds))
    for step in range(printed.rounds):
        scores = np.abs(np.einsum("rqc,rc->rq", queries, weights) - truth) / SCORE_DIVISOR
        exponents = scores * (epsilons / (2 * printed.rounds) / 2)[:, None]
        likely = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        fresh = np.where(used, 0, likely).sum(axis=1) / likely.sum(axis=1)
        again += random.geometric(fresh) - 1  # draws that fall on a measured query
        # the exponential mechanism over the others, by its equivalent with Gumbel noise
        chosen = np.where(used, -np.inf, exponents + random.gumbel(size=truth.shape)).argmax(axis=1)
        used[runs, chosen] = True
        taken[:, step] = queries[runs, chosen]
        answers[:, step] = truth[runs, chosen] + random.laplace(size=len(runs)) * printed.scale(epsilons)
        measured = AnswersSoFar(taken[:, : step + 1], answers[:, : step + 1])
        printed.replay(weights, measured, total, printed.repetitions, random)
    return Ended(weights, again)


def _update(weights: Floats, query: Floats, answer: Floats, total: float) -> None:
    """One multiplicative update of every run in place."""
    inside = query * weights
    inside *= np.expm1((answer - inside.sum(axis=1)) / (2 * total))[:, None]
    weights += inside
