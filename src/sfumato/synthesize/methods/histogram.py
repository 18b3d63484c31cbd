"""Noisy tables: the whole domain at once, one table for each of several sets of attributes, or optimized sums of cells.

Discrete noise is added to every cell (Dwork, McSherry, Nissim, Smith 2006, Section 3.2, with integer noise).  The
result is projected onto the non-negative tables with the right sum, and rows are drawn from it.  If a workload gives
the sums that matter, weighted sums of cells are measured instead.  They are optimized for the workload alone (Li,
Miklau, Hay, McGregor and Rastogi 2015; McKenna, Miklau, Hay and Machanavajjhala 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError
from sfumato.model.factor import Factor, FloatArray, project_to_total
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.loss import Loss
from sfumato.synthesize.budget_allocation import (
    NoisyTotal,
    PublicTotal,
    RowTotal,
    after_count,
    describe_total,
    measure_total,
)
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthesis_method import (
    Option,
    PlannedRelease,
    RankedMethod,
    SynthesisMethod,
    Task,
    release_planned,
)
from sfumato.synthesize.synthetic import Synthetic, rows_for, tables
from sfumato.vault.interface import Mechanisms, ReleaseRequest, StatedLoss, VaultInterface, stated_loss, states_loss
from sfumato.vault.measurables import Marginal
from sfumato.vault.mechanisms import noises
from sfumato.workload.counting_queries import MOST_MATRIX_CELLS, Marginals, Workload, as_clique, as_cliques
from sfumato.workload.matrix_mechanism import StrategyOption, jointly, plan

MOST_CELLS = 1 << 26  # counts, 512 MiB
MOST_OPTIMISED = 256
"""Largest number of cells for which a strategy is optimized in seconds; a search step takes time in their cube."""


@states_loss
def histogram(
    vault: VaultInterface, *, total: RowTotal, attributes: Sequence[str] | None = None, **stated: Unpack[StatedLoss]
) -> Synthetic:
    """Release one noisy contingency table over ``attributes``, and rows.  Default: the whole domain.

    Adding or removing one unit changes the cells by its number of rows in L1.  The noise is discrete Laplace under pure
    epsilon, and discrete Gaussian under rho or (epsilon, delta).  The release costs ``loss``, including the number of
    rows.

    Raises:
        SizeError: the table has too many cells to be dense.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    names = None if attributes is None else as_clique(attributes)

    def plan(domain: Domain) -> PlannedRelease:
        return _planned(domain, loss, total, (domain.names if names is None else names,), "histogram")

    return release_planned(vault, loss, total, plan)


@states_loss
def marginals(
    vault: VaultInterface, *, total: RowTotal, cliques: Sequence[Sequence[str]], **stated: Unpack[StatedLoss]
) -> Synthetic:
    """Release one noisy table for each set of attributes, with the loss divided equally, and rows.

    The sets are disjoint, and their tables are joined as if independent.  Put correlated attributes into one set.

    Raises:
        QueryError: an attribute is in two sets.
        SizeError: a table has too many cells to be dense.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    named = as_cliques(cliques)
    return release_planned(vault, loss, total, lambda domain: _planned(domain, loss, total, named, "marginals"))


def tabulate(mechanisms: Mechanisms, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]) -> Product:
    """Measure every table through ``mechanisms``, together with the row count at ``loss``, and make them consistent."""
    separate = None if isinstance(total, NoisyTotal) else measure_total(mechanisms, loss, total)
    questions = [Marginal(clique) for clique in cliques]
    measured = mechanisms.measure(questions, after_count(loss, total))
    count = _summed([measurement.values for measurement in measured]) if separate is None else separate
    parts = tuple(
        Factor(clique, project_to_total(measurement.values, count).reshape(mechanisms.domain.project(clique).shape))
        for clique, measurement in zip(cliques, measured, strict=True)
    )
    noisy_tables = tuple(
        NoisyTable.from_cells(marginal, measurement.values.reshape(part.values.shape), measurement.noise, fresh=True)
        for marginal, measurement, part in zip(questions, measured, parts, strict=True)
    )
    return Product.from_parts(mechanisms.domain, parts, count, tables=noisy_tables)


def expected_errors(
    domain: Domain, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]
) -> dict[str, float]:
    """Return the standard deviation of the noise on one cell of each table, before the projection; read no data."""
    variance = cell_variance(domain, loss, total, cliques)
    return {f"standard deviation of a cell of {', '.join(clique)}": math.sqrt(variance) for clique in cliques}


def cell_variance(domain: Domain, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]) -> float:
    """Return the variance of the noise on one cell of any of the tables."""
    return noises(domain, [Marginal(clique) for clique in cliques], after_count(loss, total), None)[0].variance


def _planned(
    domain: Domain, loss: Loss, total: RowTotal, cliques: tuple[tuple[str, ...], ...], method: str
) -> PlannedRelease:
    _check(domain, cliques)
    parameters = {"cliques": [list(clique) for clique in cliques], "total": describe_total(total)}
    return PlannedRelease(
        request=ReleaseRequest("synthesize", method, parameters, f"synthetic rows of {tables(cliques)}"),
        run=lambda mechanisms: tabulate(mechanisms, loss, total, cliques),
        model=Product,
        expected_error=expected_errors(domain, loss, total, cliques),
    )


def _check(domain: Domain, cliques: Sequence[tuple[str, ...]]) -> None:
    named = [name for clique in cliques for name in clique]
    if not cliques or not all(cliques):
        raise QueryError("name at least one attribute for every marginal", culprit=cliques)
    if repeated := sorted({name for name in named if named.count(name) > 1}):
        raise QueryError(
            f"{', '.join(repeated)} stands in two marginals, which cannot be joined as independent; use mst or batched",
            culprit=repeated,
        )
    for clique in cliques:
        if (size := domain.project(clique).size) > MOST_CELLS:
            raise SizeError(
                f"the table of {', '.join(clique)} has {size:,} cells, more than {MOST_CELLS:,}; "
                "name smaller marginals, group values into bins, or use mst or batched",
                culprit=clique,
            )


def _summed(tables: Sequence[NDArray[np.int64]]) -> int:
    """Return the number of rows by the sums of the tables, weighted by the inverse variance of their noise."""
    weights = [Fraction(1, table.size) for table in tables]
    sums = [int(table.sum()) for table in tables]
    return max(0, round(sum(weight * count for weight, count in zip(weights, sums, strict=True)) / sum(weights)))


@states_loss
def matrix(vault: VaultInterface, *, total: RowTotal, workload: Workload, **stated: Unpack[StatedLoss]) -> Synthetic:
    """Release the cells of a workload's attributes from optimized measurements, and rows.

    Raises:
        SizeError: the workload's attributes have too many cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    return MATRIX.release(vault, Task(loss=loss, total=total, workload=workload))


def optimised(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> StrategyOption:
    """Return the best of identity, hierarchical (for one attribute) and p-identity strategies; read no data.

    Raises:
        SizeError: the workload's attributes have too many cells.
    """
    return plan(domain, after_count(loss, total), workload, jointly(domain, workload, MOST_OPTIMISED))[0]


def estimate(mechanisms: Mechanisms, loss: Loss, total: RowTotal, chosen: StrategyOption) -> Product:
    """Measure a strategy, together with the row count at ``loss``, and make the cells consistent."""
    separate = None if isinstance(total, NoisyTotal) else measure_total(mechanisms, loss, total)
    weighted = chosen.weighted
    (measured,) = mechanisms.measure([weighted], after_count(loss, total))
    answers = measured.values.astype(np.float64)
    count = max(0, round(float(chosen.strategy.estimate(answers).sum()))) if separate is None else separate
    table = _nearest(weighted.weights.astype(np.float64), answers, count)
    table = table.reshape(mechanisms.domain.project(chosen.attributes).shape)
    return Product.from_parts(mechanisms.domain, (Factor(chosen.attributes, table),), count)


def _nearest(rows: FloatArray, answers: FloatArray, count: int) -> FloatArray:
    """Return the non-negative cells of sum ``count`` whose weighted sums fit the answers best in least squares.

    The fit is to the answers instead of the cells, so that precise sums stay precise.
    """
    from scipy.optimize import nnls

    heavy = 100 * float(np.abs(rows).max())  # pins the total, up to a rescaling
    cells, _ = nnls(np.vstack([rows, np.full((1, rows.shape[1]), heavy)]), np.append(answers, heavy * count))
    return project_to_total(cells, count)


def _plan_histogram(domain: Domain, task: Task) -> PlannedRelease:
    """Plan one table of the attributes of the workload, in its order, which the journal records."""
    workload = task.workload
    cliques = (
        workload.marginal_attributes(domain) if isinstance(workload, Marginals) else (workload.attributes(domain),)
    )
    names = tuple(dict.fromkeys(name for clique in cliques for name in clique))
    return _planned(domain, task.loss, task.total, (names,), "histogram")


def _plan_marginals(domain: Domain, task: Task) -> PlannedRelease:
    return _planned(domain, task.loss, task.total, task.marginals().marginal_attributes(domain), "marginals")


def _plan_matrix(domain: Domain, task: Task) -> PlannedRelease:
    loss, total = task.loss, task.total
    chosen = optimised(domain, loss, total, task.workload)
    parameters = {
        "measured": chosen.weighted.canonical(),
        "strategy": chosen.strategy.name,
        "total": describe_total(total),
    }
    return PlannedRelease(
        request=ReleaseRequest("synthesize", "matrix", parameters, rows_for(domain, task.workload)),
        run=lambda mechanisms: estimate(mechanisms, loss, total, chosen),
        model=Product,
        expected_error={f"root mean squared error of a query, by the {chosen.strategy.name} strategy": chosen.error},
    )


def _estimate_histogram(domain: Domain, task: Task) -> RankedMethod | None:
    names = task.workload.attributes(domain)
    size = domain.project(names).size
    if task.zeros or size > MOST_CELLS:
        return None
    variance = cell_variance(domain, task.loss, task.total, [names])
    return RankedMethod(
        synthesizer=HISTOGRAM,
        task=replace(task, workload=Marginals(cliques=(names,))),
        error=_summed_error(task.workload.widths(domain), size, variance, task.total),
        rows_needed=_made_up(size, variance),
        reason=f"noise on each of {size:,} cells, summed over the cells of a query",
    )


def _estimate_marginals(domain: Domain, task: Task) -> RankedMethod | None:
    if task.zeros or not isinstance(task.workload, Marginals):
        return None
    cliques = task.workload.marginal_attributes(domain)
    names = [name for clique in cliques for name in clique]
    sizes = [domain.project(clique).size for clique in cliques]
    if len(cliques) == 1 or len(set(names)) < len(names) or max(sizes) > MOST_CELLS:
        return None  # one marginal is a histogram; overlapping ones cannot be joined as independent
    variance = cell_variance(domain, task.loss, task.total, cliques)
    squares = [size * _summed_error(np.ones(size), size, variance, task.total) ** 2 for size in sizes]
    return RankedMethod(
        synthesizer=MARGINALS,
        task=task,
        error=math.sqrt(sum(squares) / sum(sizes)),
        rows_needed=_made_up(max(sizes), variance),
        reason=f"the loss divided over {len(cliques)} tables, noise on each of their cells",
    )


def _estimate_matrix(domain: Domain, task: Task) -> RankedMethod | None:
    names = task.workload.attributes(domain)
    size = domain.project(names).size
    if task.zeros or size > MOST_OPTIMISED or size * task.workload.length(domain) > MOST_MATRIX_CELLS:
        return None
    chosen = optimised(domain, task.loss, task.total, task.workload)
    if chosen.strategy.name == "identity":
        return None  # a histogram is the simpler equivalent
    # no strategy is more precise for single cells than noise on each cell
    variance = cell_variance(domain, task.loss, task.total, [names])
    return RankedMethod(
        synthesizer=MATRIX,
        task=task,
        error=chosen.error,
        rows_needed=_made_up(size, variance),
        reason=f"noise on {len(chosen.weighted.weights)} sums optimized for the workload ({chosen.strategy.name})",
    )


def _summed_error(widths: NDArray[np.int64] | FloatArray, size: int, variance: float, total: RowTotal) -> float:
    """Return the root mean squared error of sums over ``widths`` cells of ``size``.

    A known total removes the common part of the error.
    """
    known = widths / size if isinstance(total, PublicTotal) else 0.0
    return math.sqrt(float(np.mean(widths * (1.0 - known))) * variance)


def _made_up(cells: int, variance: float) -> float:
    """Return the rows that noise alone adds to a table: half a deviation per cell, because only the positive half
    counts.
    """
    return cells * math.sqrt(variance) / 2


HISTOGRAM = SynthesisMethod(
    name="histogram",
    summary="one noisy count for every cell of the attributes named",
    options=frozenset({Option.MARGINALS}),
    plan=_plan_histogram,
    estimate=_estimate_histogram,
)
MARGINALS = SynthesisMethod(
    name="marginals",
    summary="one noisy table for each set of attributes, joined as if independent",
    options=frozenset({Option.MARGINALS}),
    needs={Option.MARGINALS: "say which attributes belong together: --marginals age,occupation"},
    plan=_plan_marginals,
    estimate=_estimate_marginals,
)
MATRIX = SynthesisMethod(
    name="matrix",
    summary="sums of cells optimized for a workload of counting queries",
    options=frozenset({Option.MARGINALS, Option.WAY}),
    plan=_plan_matrix,
    estimate=_estimate_matrix,
)
