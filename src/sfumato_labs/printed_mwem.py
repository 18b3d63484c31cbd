"""MWEM as in the lab report's programs, many runs at once.  It is not private: see ``FLAWS``.

The programs follow the print step by step, down to the order of the replay, because their errors are to be reproduced.
Only the arithmetic is rearranged, so that all runs advance together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InputError
from sfumato.workload import rectangles
from sfumato.workload.counting_queries import Workload

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SCORE_DIVISOR = 100_000

Figures = tuple[tuple[float, float, float, float], ...]
"""Largest, smallest, mean squared and mean absolute error at epsilon 0.1, 1, 5 and 10, averages of 100 runs."""

PUBLISHED: Mapping[str, Mapping[str, Figures]] = {
    "mwem-1d": {
        "published reference": (
            (2494.3113, 14.068997, 969083.6, 630.21904),
            (1354.0743, 3.5238035, 381857.33, 255.53912),
            (1155.4641, 2.7891511, 302017.54, 201.72231),
            (1309.2771, 3.342993, 336618.68, 243.96386),
        ),
        "published own": (
            (2237.1368, 13.523222, 936175.80, 610.33599),
            (1513.5305, 3.5540374, 532219.24, 280.70974),
            (1372.4820, 4.5837424, 426403.06, 241.98228),
            (1382.0264, 3.4192436, 435086.98, 238.98075),
        ),
    },
    "mwem-2d": {
        "published reference": (
            (5600.7839, 4.9640059, 2618337.2, 1262.0663),
            (649.92947, 0.48814, 30597.631, 130.09223),
            (212.8943, 0.1111338, 2370.1008, 30.115819),
            (192.9385, 0.0632723, 1736.8685, 19.309699),
        ),
        "published own": (
            (5554.9081, 2.9313236, 2422004.5, 1289.5673),
            (2137.0341, 1.4946100, 276803.87, 383.77293),
            (2256.3236, 0.8938529, 289094.29, 385.30391),
            (1997.1238, 0.6940801, 224310.34, 335.93557),
        ),
    },
}

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


_HARDLY = 1e-9  # the probability that a draw is a new query


@dataclass(frozen=True, eq=False)
class AnswersSoFar:
    """The measurements of each run: queries of shape ``(runs, measured, cells)`` and their noisy answers."""

    queries: Floats
    answers: Floats


Replay = Callable[[Floats, AnswersSoFar, float, int, np.random.Generator], None]
"""Moves weights of shape ``(runs, cells)`` in place toward the measurements, for a number of repetitions."""


def in_order(
    weights: Floats, measured: AnswersSoFar, total: float, repetitions: int, random: np.random.Generator
) -> None:
    """Make all repetitions in the order of insertion, and normalize after every update."""
    del random
    for _ in range(repetitions):
        for place in range(measured.answers.shape[1]):
            _update(weights, measured.queries[:, place], measured.answers[:, place], total)
            weights *= (total / weights.sum(axis=1))[:, None]


def cut_short(
    weights: Floats, measured: AnswersSoFar, total: float, repetitions: int, random: np.random.Generator
) -> None:
    """Make one repetition in shuffled order and one normalization, for any ``repetitions``."""
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
    """The constants of a printed program.  If ``halved``, its Laplace scale is T/epsilon."""

    rounds: int
    repetitions: int
    halved: bool
    replay: Replay

    def scale(self, epsilon: float | Floats) -> float | Floats:
        """Return the scale of the Laplace noise on a measured answer."""
        return (1 if self.halved else 2) * self.rounds / epsilon

    def selection_loss(self, epsilon: float) -> float:
        """Return the actual loss of selection: T times epsilon/2T, divided by the divisor of the scores."""
        return epsilon / 2 / SCORE_DIVISOR

    def measurement_loss(self, epsilon: float) -> float:
        """Return the actual loss of measurement: T answers of sensitivity 1 at the program's scale."""
        return float(self.rounds / self.scale(epsilon))


@dataclass(frozen=True, eq=False)
class Ended:
    """Final tables of all runs, shape ``(runs, cells)``, and repeated draws of measured queries, shape ``(runs,)``."""

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

    Raises:
        InputError: at an epsilon the program would not end, or its numbers overflow.
    """
    runs = np.arange(len(epsilons))
    total = float(counts.sum())
    truth = queries @ counts  # (runs, queries)
    # derived from the data: from the first to the last nonempty cell
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
        if not fresh.min() > _HARDLY:
            raise InputError(
                f"at epsilon {epsilons[fresh.argmin()]:g} the printed program draws queries that it measured before, "
                "and hardly ever another: name a smaller --epsilon, or fewer --rounds",
                culprit=float(epsilons[fresh.argmin()]),
            )
        again += random.geometric(fresh) - 1  # draws of a measured query
        # the exponential mechanism over the other queries, by its equivalent with Gumbel noise
        chosen = np.where(used, -np.inf, exponents + random.gumbel(size=truth.shape)).argmax(axis=1)
        used[runs, chosen] = True
        taken[:, step] = queries[runs, chosen]
        answers[:, step] = truth[runs, chosen] + random.laplace(size=len(runs)) * printed.scale(epsilons)
        measured = AnswersSoFar(taken[:, : step + 1], answers[:, : step + 1])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            printed.replay(weights, measured, total, printed.repetitions, random)
        if not (finite := np.isfinite(weights).all(axis=1)).all():
            raise InputError(
                f"at epsilon {epsilons[finite.argmin()]:g} noise on {total:.0f} people is so large that the printed "
                "program's numbers overflow: name a larger --epsilon",
                culprit=float(epsilons[finite.argmin()]),
            )
    return Ended(weights, again)


def _update(weights: Floats, query: Floats, answer: Floats, total: float) -> None:
    """Make one multiplicative update of every run in place."""
    inside = query * weights
    inside *= np.expm1((answer - inside.sum(axis=1)) / (2 * total))[:, None]
    weights += inside


def boxes(shape: tuple[int, ...], queries: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return distinct boxes as printed, shape ``(queries, attributes, 2)``.

    The low end of each side is uniform, and the high end is uniform from there.
    """
    boxes: dict[tuple[int, ...], None] = {}
    while len(boxes) < queries:
        box: list[int] = []
        for size in shape:
            low = int(random.integers(size))
            box += [low, int(random.integers(low, size))]
        boxes[tuple(box)] = None
    return np.array(list(boxes)).reshape(queries, len(shape), 2)


def rectangles_of(domain: Domain, queries: int, random: np.random.Generator) -> Workload:
    """Return distinct rectangles, drawn as printed."""
    drawn = boxes(domain.shape, queries, random)
    return rectangles(domain.names, drawn[:, :, 0], drawn[:, :, 1])
