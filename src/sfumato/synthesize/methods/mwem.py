"""MWEM: multiplicative weights with the exponential mechanism (Hardt, Ligett, McSherry 2012, Figure 1).

Each round selects a query that the synthetic table answers badly (exponential mechanism) and measures it (discrete
noise).  Then it moves the table toward all measurements (multiplicative weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InputError, SizeError
from sfumato.model.factor import Factor, FloatArray
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.privacy.selection import Exponential
from sfumato.synthesize.budget_allocation import (
    BudgetShare,
    NoisyTotal,
    RowTotal,
    SeparateTotal,
    after_count,
    describe_total,
    dividing,
    measure_total,
)
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthesis_method import (
    Option,
    PlannedRelease,
    RankedMethod,
    SynthesisMethod,
    Task,
    refuse_weights,
    release_planned,
)
from sfumato.synthesize.synthetic import Synthetic, rows_for
from sfumato.vault.interface import Mechanisms, ReleaseRequest, StatedLoss, VaultInterface, stated_loss, states_loss
from sfumato.vault.measurables import Counting
from sfumato.vault.mechanisms import noises
from sfumato.workload.counting_queries import MOST_MATRIX_CELLS, Workload, counting, refuse_no_workload

MOST_CELLS = 1 << 24
MOST_HISTORY_CELLS = 1 << 27  # measured queries, 1 GiB

ROUNDS = 30
REPETITIONS = 20
COUNT_SHARE = BudgetShare(Fraction(1, 20))  # default share of the loss for the row count


class Output(StrEnum):
    """The table that is released."""

    LAST = "last"
    AVERAGE = "average"  # mean of the iterates before the last, as printed in Figure 1 of the paper


@dataclass(frozen=True)
class Schedule:
    """The length of a run: ``rounds`` queries are measured.  After each, all are replayed ``repetitions`` times."""

    rounds: int
    repetitions: int
    output: Output = Output.LAST

    def __post_init__(self) -> None:
        if not all(isinstance(number, int) and number >= 1 for number in (self.rounds, self.repetitions)):
            raise InputError("MWEM needs at least one round and one repetition, in whole numbers", culprit=self)
        if not isinstance(self.output, Output):
            raise InputError("the output of MWEM is Output.LAST or Output.AVERAGE", culprit=self)


@states_loss
def mwem(
    vault: VaultInterface, *, total: SeparateTotal, workload: Workload, schedule: Schedule, **stated: Unpack[StatedLoss]
) -> Synthetic:
    """Release a table that answers ``workload`` well, and rows.

    Each of T rounds spends 1/2T of the loss on selection and 1/2T on measuring the selected query.  Selection uses the
    score |q(A) - q(B)|, of sensitivity 1 when one row is added or removed.  All rounds and the row count together cost
    ``loss``.  The table covers the attributes of the workload.

    Raises:
        InputError: there are more rounds than queries (none is measured twice), or no initial number of rows.
        SizeError: the dense table would not fit in memory.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    if isinstance(total, NoisyTotal):
        raise InputError("MWEM needs its number of rows first: declare it public, or charge a share of the loss for it")
    return release_planned(
        vault,
        loss,
        total,
        lambda domain: _planned(domain, loss, total=total, workload=workload, schedule=schedule),
    )


def _planned(
    domain: Domain, loss: Loss, *, total: SeparateTotal, workload: Workload, schedule: Schedule
) -> PlannedRelease:
    queries = _checked(domain, workload, schedule)

    def run(mechanisms: Mechanisms) -> Product:
        iterates = iterate(mechanisms, loss, total=total, queries=queries, schedule=schedule)
        weights = iterates.last if schedule.output is Output.LAST else iterates.average
        table = Factor(queries.attributes, weights.reshape(mechanisms.domain.project(queries.attributes).shape))
        return Product.from_parts(mechanisms.domain, (table,), iterates.count)

    return PlannedRelease(
        request=ReleaseRequest("synthesize", "mwem", _describe(queries, total, schedule), rows_for(domain, workload)),
        run=run,
        model=Product,
        expected_error=expected_errors(domain, loss, total, schedule),
    )


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    queries = task.workload.length(domain)
    if task.rounds is not None and task.rounds > queries:
        raise InputError(f"MWEM measures no query twice and there are {queries}; take --rounds {queries}")
    rounds = min(ROUNDS, queries) if task.rounds is None else task.rounds
    schedule = Schedule(rounds=rounds, repetitions=REPETITIONS)
    return _planned(domain, task.loss, total=_separate(task.total), workload=task.workload, schedule=schedule)


def _separate(total: RowTotal) -> SeparateTotal:
    return COUNT_SHARE if isinstance(total, NoisyTotal) else total


def _estimate(domain: Domain, task: Task) -> RankedMethod | None:
    if task.zeros:
        return None
    size = domain.project(task.workload.attributes(domain)).size
    length = task.workload.length(domain)
    if size > MOST_CELLS or size * max(ROUNDS, length) > MOST_MATRIX_CELLS:
        return None
    schedule = Schedule(rounds=min(ROUNDS, length), repetitions=REPETITIONS)
    variance = query_variance(domain, task.loss, _separate(task.total), schedule)
    # a least-squares fit retains the part of the noise of T measurements in the space that they span
    retained = min(1.0, max(size - 1, 1) / schedule.rounds)
    noise = math.sqrt(variance * retained)
    measures_all = schedule.rounds == length
    left_out = f"noise of about {noise:.4g} rows on {schedule.rounds} of {length} queries; its table answers the others"
    return RankedMethod(
        synthesizer=MWEM,
        task=task,
        error=noise if measures_all else math.inf,
        rows_needed=math.sqrt(variance),
        reason=f"noise on {schedule.rounds} measured queries of {length}",
        left_out="" if measures_all else left_out,
    )


@dataclass(frozen=True, eq=False)
class Iterates:
    """The result of a run of MWEM: flat tables of ``count`` rows, shape ``(cells,)``.

    ``average`` is the mean of the iterates before the last, or the only iterate of a single round.
    """

    last: FloatArray
    average: FloatArray
    count: int


def iterate(
    mechanisms: Mechanisms, loss: Loss, *, total: SeparateTotal, queries: Counting, schedule: Schedule
) -> Iterates:
    """Run MWEM through ``mechanisms`` at ``loss``."""
    count = max(1, measure_total(mechanisms, loss, total))  # weights are shares of the count
    part = _part(loss, total, schedule)
    matrix = queries.matrix
    products = matrix.astype(np.float64)
    remaining = np.arange(len(matrix))
    size = matrix.shape[1]
    weights = np.full(size, count / size)
    past = np.zeros(size)
    measured = History(size, schedule.rounds)
    prepared = mechanisms.prepare(queries)
    for step in range(schedule.rounds):
        answers = np.rint(products @ weights).astype(np.int64)
        chosen = prepared.select(answers, part, among=remaining)
        measurement = prepared.measure(chosen, part)
        # noise beyond the possible answers by more than one table would only overflow the replay
        measured.add(matrix[chosen], float(min(max(int(measurement.values[0]), -count), 2 * count)))
        remaining = remaining[remaining != chosen]
        weights = replay(weights, measured, schedule.repetitions)
        if step < max(1, schedule.rounds - 1):
            past += weights
    return Iterates(weights, past / max(1, schedule.rounds - 1), count)


def expected_errors(domain: Domain, loss: Loss, total: SeparateTotal, schedule: Schedule) -> dict[str, float]:
    """Return the standard deviation of the noise on one measured query.  Other answers can have larger errors."""
    return {"standard deviation of a measured query": math.sqrt(query_variance(domain, loss, total, schedule))}


def query_variance(domain: Domain, loss: Loss, total: SeparateTotal, schedule: Schedule) -> float:
    """Return the variance of the noise on one measured query."""
    query = Counting((), np.ones((1, 1), dtype=bool))
    (noise,) = noises(domain, [query], _part(loss, total, schedule), None)
    return noise.variance


def _part(loss: Loss, total: SeparateTotal, schedule: Schedule) -> Epsilon | Rho:
    """Return the loss of one selection, and of one measurement.

    Raises:
        LossError: the loss is too small or too large for a selection.
    """
    with dividing(loss, f"the {schedule.rounds} rounds of MWEM"):
        part = after_count(loss, total) / (2 * schedule.rounds)
        _ = Exponential.for_loss(part, sensitivity=1, monotone=False)
    return part


def _checked(domain: Domain, workload: Workload, schedule: Schedule) -> Counting:
    refuse_no_workload(workload)
    refuse_weights("mwem", workload)
    if not isinstance(schedule, Schedule):
        raise InputError("a schedule is a Schedule(rounds=..., repetitions=...)", culprit=schedule)
    size = domain.project(workload.attributes(domain)).size
    if size > MOST_CELLS or size * schedule.rounds > MOST_HISTORY_CELLS:
        raise SizeError(
            f"MWEM keeps a dense table, and {size} cells over {schedule.rounds} rounds do not fit in memory; "
            "name fewer attributes, group values into bins, or use a graphical model (mst, batched)",
            culprit=size,
        )
    if schedule.rounds > workload.length(domain):
        raise InputError(
            f"MWEM measures no query twice: {schedule.rounds} rounds need as many queries, "
            f"the workload has {workload.length(domain)}",
            culprit=schedule,
        )
    return counting(workload, domain)


def _describe(queries: Counting, total: SeparateTotal, schedule: Schedule) -> dict[str, Any]:
    return {
        "queries": queries.canonical(),
        "total": describe_total(total),
        "rounds": schedule.rounds,
        "repetitions": schedule.repetitions,
        "output": schedule.output.value,
    }


_SMALLEST = 1e-300
_FLAT = 1e-12
_LARGEST_EXPONENT = 150.0  # for one pass in which each query is wrong by the whole table


class History:
    """The measured queries with their noisy answers, arranged for the replay.

    The replay needs ``sum of q (m - q . weights)`` over all measured (q, m).  With fewer cells than queries, the
    cells-by-cells matrix ``sum of q q'`` is cheapest; otherwise the queries.
    """

    def __init__(self, size: int, most: int) -> None:
        self.count = 0
        self.direction = np.sin(np.arange(1.0, size + 1.0))  # direction of largest curvature, refined in each round
        self._gram = np.zeros((size, size)) if size <= 2 * most else None
        self._target = np.zeros(size)  # sum of q m
        self._rows = np.zeros((0 if self._gram is not None else most, size))
        self._answers = np.zeros(most)

    def add(self, query: NDArray[np.bool_], answer: float) -> None:
        """Add one measured query."""
        row = query.astype(np.float64)
        if self._gram is not None:
            self._gram += row[:, None] * row
            self._target += answer * row
        else:
            self._rows[self.count] = row
            self._answers[self.count] = answer
        self.count += 1

    def gradient(self, step: float, total: float) -> Callable[[FloatArray, FloatArray], object]:
        """Return a function that writes ``step * sum of q (m / total - q . share)`` into its second argument."""
        if self._gram is not None:
            # shares sum to one, so the matrix can include the target
            return (self._target[:, None] * (step / total) - step * self._gram).dot
        rows = self._rows[: self.count]
        answers, scaled = self._answers[: self.count] / total, step * rows
        return lambda share, out: (answers - rows.dot(share)).dot(scaled, out)

    def pull(self, share: FloatArray) -> FloatArray:
        """Return ``sum of q (q . share)``: shape ``(cells,)``."""
        rows = self._rows[: self.count]
        pulled: FloatArray = self._gram.dot(share) if self._gram is not None else rows.dot(share).dot(rows)
        return pulled


def replay(weights: FloatArray, measured: History, repetitions: int) -> FloatArray:
    """Apply multiplicative weights over the whole history, ``repetitions`` times.

    For one measurement (q, m), the paper multiplies cell x by exp(q(x) (m - q(A)) / 2n).  Here one pass uses all
    measurements at once: their exponents are summed, and the step is the smaller of 1/2 and 1/L. L is the largest
    eigenvalue of the queries' covariance under the current table.  It is the curvature of the dual objective, and
    larger simultaneous steps would overshoot.  With one measurement (L at most 1/4), a pass is the paper's update.
    """
    ones = np.ones(weights.size)
    total = float(ones.dot(weights))
    share = np.maximum(weights / total, _SMALLEST)
    step = min(0.5, 1 / _curvature(share, measured), _LARGEST_EXPONENT / measured.count)
    gradient = measured.gradient(step, total)
    exponents = np.empty(share.size)
    for _ in range(repetitions):
        gradient(share, exponents)
        np.exp(exponents, exponents)
        share *= exponents
        share /= ones.dot(share)
    return share * total


def _curvature(share: FloatArray, measured: History) -> float:
    """Return the largest eigenvalue of the covariance of the measured queries, by one more power iteration."""
    moved = measured.pull(share * (measured.direction - share.dot(measured.direction)))
    largest = math.sqrt(moved.dot(moved))
    if largest < _FLAT:  # no query distinguishes cells yet
        return _FLAT
    measured.direction = moved / largest
    return largest


MWEM = SynthesisMethod(
    name="mwem",
    summary="the queries of a workload that the synthetic table answers worst, one by one",
    options=frozenset({Option.MARGINALS, Option.WAY, Option.ROUNDS}),
    plan=_plan,
    estimate=_estimate,
)
