"""MWEM: multiplicative weights with the exponential mechanism (Hardt, Ligett, McSherry 2012, Figure 1).

Rounds of: find a query that the synthetic table answers badly (exponential mechanism), measure it
(discrete noise), move the table towards all measurements taken so far (multiplicative weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InputError, SizeError
from sfumato.model.factor import Factor
from sfumato.privacy.loss import Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthetic import Keeper, Synthetic, settle
from sfumato.synthesize.total import Bought, after_count
from sfumato.synthesize.workload import Workload, counting
from sfumato.vault import canonical
from sfumato.vault.doors import Doors
from sfumato.vault.noise import noises
from sfumato.vault.questions import AbsoluteErrors, Counting
from sfumato.vault.vault import Request

Weights = NDArray[np.float64]

MOST_CELLS = 1 << 24
MOST_HISTORY_CELLS = 1 << 27  # 1 GiB of measured queries

_SMALLEST = 1e-300
_FLAT = 1e-12


class Output(StrEnum):
    """Which of the iterates is released."""

    LAST = "last"
    AVERAGE = "average"  # of the iterates before the last, as Figure 1 of the paper prints it


@dataclass(frozen=True)
class Schedule:
    """How long MWEM runs: ``rounds`` queries are measured, and after each, all of them are replayed
    ``repetitions`` times.
    """

    rounds: int
    repetitions: int
    output: Output = Output.LAST

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.repetitions < 1:
            raise InputError("MWEM needs at least one round and one repetition", culprit=self)


def mwem(vault: Keeper, *, loss: Loss, total: Bought, workload: Workload, schedule: Schedule) -> Synthetic:
    """Release a table that answers ``workload`` well, and rows.

    Each of T rounds spends 1/2T of the loss on selecting (score |q(A) - q(B)|, of sensitivity 1 under
    add/remove of one row) and 1/2T on measuring the selected query: together ``loss``, the row count
    included.  The table covers the attributes that the workload mentions.

    Raises:
        InputError: more rounds than queries (none is measured twice).
        SizeError: the dense table would not fit in memory.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    queries = _checked(vault.domain, workload, schedule)
    expected = expected_errors(vault.domain, loss, total, schedule)
    request = Request("synthesize", "mwem", _describe(queries, total, schedule))

    def run(doors: Doors) -> dict[str, Any]:
        return iterate(doors, loss, total, queries, schedule).payload()

    settled = vault.release(request, loss, run)
    return settle(settled, Product.restore(vault.domain, settled.payload), expected)


def iterate(doors: Doors, loss: Loss, total: Bought, queries: Counting, schedule: Schedule) -> Product:
    """Run MWEM through ``doors`` at ``loss``."""
    count = max(1, totals.buy(doors, loss, total))  # weights are shares of the count
    part = after_count(loss, total) / (2 * schedule.rounds)
    matrix = queries.matrix
    products = matrix.astype(np.float64)
    remaining = np.arange(len(matrix))
    size = matrix.shape[1]
    weights = np.full(size, count / size)
    past = np.zeros(size)
    measured = History(size, schedule.rounds)
    for step in range(schedule.rounds):
        candidates = Counting(queries.attributes, matrix[remaining])
        answers = np.rint(products @ weights).astype(np.int64)[remaining]
        chosen = doors.select(AbsoluteErrors(candidates, answers), part)
        query = candidates.matrix[chosen]
        (measurement,) = doors.measure([Counting(queries.attributes, query[None])], part)
        measured.add(query, int(measurement.values[0]))
        remaining = np.delete(remaining, chosen)
        weights = replay(weights, measured, schedule.repetitions)
        if step < schedule.rounds - 1:
            past += weights
    if schedule.output is Output.AVERAGE and schedule.rounds > 1:
        weights = past / (schedule.rounds - 1)
    table = weights.reshape(doors.domain.project(queries.attributes).shape)
    return Product.over(doors.domain, (Factor(queries.attributes, table),), count)


class History:
    """The queries measured so far with their noisy answers, arranged for the replay.

    The replay needs ``sum of q (m - q . weights)`` over all measured (q, m).  With fewer cells than queries
    it is cheapest from the cells-by-cells matrix ``sum of q q'``; otherwise from the queries themselves.
    """

    def __init__(self, size: int, most: int) -> None:
        self.target = np.zeros(size)  # sum of q m
        self.direction = np.linspace(-1.0, 1.0, size)  # of largest curvature, refined from round to round
        self._rows = np.zeros((0, size)) if size <= 2 * most else np.zeros((most, size))
        self._gram = np.zeros((size, size)) if size <= 2 * most else None
        self._count = 0

    def add(self, query: NDArray[np.bool_], answer: int) -> None:
        """Take in one measured query."""
        row = query.astype(np.float64)
        self.target += answer * row
        if self._gram is not None:
            self._gram += np.outer(row, row)
        else:
            self._rows[self._count] = row
        self._count += 1

    def pull(self) -> Callable[[Weights], Weights]:
        """The map from weights to ``sum of q (q . weights)``, shape ``(cells,)``."""
        if self._gram is not None:
            return self._gram.dot
        rows = self._rows[: self._count]
        return lambda weights: rows.dot(weights).dot(rows)


def replay(weights: Weights, measured: History, repetitions: int) -> Weights:
    """Multiplicative weights over the whole history, ``repetitions`` times.

    The paper multiplies cell x by exp(q(x) (m - q(A)) / 2n) for one measurement (q, m).  Here one pass moves
    along all measurements at once: their exponents are summed, and instead of 1/2 the step is 1/L where
    that is smaller.  L, the largest eigenvalue of the queries' covariance under the current table, is the
    curvature of the dual objective, beyond which simultaneous moves would overshoot.  With one measurement
    (L at most 1/4) a pass is the paper's update.
    """
    total = float(weights.sum())
    pull = measured.pull()
    share = weights / total
    step = min(0.5, 1 / _curvature(share, measured))
    target = measured.target / total
    logits = np.log(np.maximum(share, _SMALLEST))
    for _ in range(repetitions):
        logits += step * (target - pull(share))
        logits -= logits.max()  # cancels in the sum below, and keeps exp from overflowing
        share = np.exp(logits)
        share /= share.sum()
    return share * total


def _curvature(probabilities: Weights, measured: History) -> float:
    """Largest eigenvalue of the covariance of the measured queries, by power iteration from where the last ended."""
    pull = measured.pull()
    direction = measured.direction
    largest = _FLAT
    for _ in range(2):
        moved = pull(probabilities * (direction - probabilities.dot(direction)))
        largest = math.sqrt(moved.dot(moved))
        if largest < _FLAT:  # no query distinguishes cells yet
            return _FLAT
        direction = moved / largest
    measured.direction = direction
    return largest


def expected_errors(domain: Domain, loss: Loss, total: Bought, schedule: Schedule) -> dict[str, float]:
    """Standard deviation of the noise on one measured query; what was never measured can be further off."""
    return {"standard deviation of a measured query": math.sqrt(query_variance(domain, loss, total, schedule))}


def query_variance(domain: Domain, loss: Loss, total: Bought, schedule: Schedule) -> float:
    """Variance of the noise on one measured query."""
    asked = Counting((), np.ones((1, 1), dtype=bool))
    (noise,) = noises(domain, [asked], after_count(loss, total) / (2 * schedule.rounds), None)
    return noise.variance


def _checked(domain: Domain, workload: Workload, schedule: Schedule) -> Counting:
    size = domain.project(workload.attributes(domain)).size
    if size > MOST_CELLS or size * schedule.rounds > MOST_HISTORY_CELLS:
        raise SizeError(
            f"MWEM keeps a dense table, and {size} cells over {schedule.rounds} rounds do not fit in memory; "
            "name fewer attributes, group values into bins, or use a graphical model (mst, aim)",
            culprit=size,
        )
    if schedule.rounds > workload.length(domain):
        raise InputError(
            f"MWEM measures no query twice: {schedule.rounds} rounds need as many queries, "
            f"the workload has {workload.length(domain)}",
            culprit=schedule,
        )
    return counting(workload, domain)


def _describe(queries: Counting, total: Bought, schedule: Schedule) -> dict[str, Any]:
    return {
        "queries": canonical.question(queries),
        "total": totals.describe(total),
        "rounds": schedule.rounds,
        "repetitions": schedule.repetitions,
        "output": schedule.output.value,
    }
