"""Noisy tables: the whole domain at once, one table for each of several sets of attributes, or optimised sums of cells.

Discrete noise on every cell (Dwork, McSherry, Nissim, Smith 2006, Section 3.2, with integer noise),
projected on the non-negative tables of the right sum, and rows drawn from the result.  Where a workload says which sums
matter, weighted sums of cells are measured instead that suit it, decided from the workload alone (Li, Miklau, Hay,
McGregor and Rastogi 2015; McKenna, Miklau, Hay and Machanavajjhala 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError
from sfumato.model.factor import Factor, FloatArray, project_to_total
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.loss import Loss
from sfumato.synthesize import row_count
from sfumato.synthesize.product import Product
from sfumato.synthesize.row_count import NoisyTotal, RowTotal, after_count
from sfumato.synthesize.synthetic import Synthetic, rows_for, settle, tables
from sfumato.vault.interface import Mechanisms, Request, VaultInterface, refuse_no_vault
from sfumato.vault.mechanisms import noises
from sfumato.vault.questions import Marginal
from sfumato.workload.counting_queries import Workload, as_clique, as_cliques
from sfumato.workload.matrix_mechanism import StrategyOption, jointly, plan

MOST_CELLS = 1 << 26  # 512 MiB of counts
MOST_OPTIMISED = 256
"""Cells over which a strategy is optimised in seconds; each search step takes their cube."""


def histogram(
    vault: VaultInterface, *, loss: Loss, total: RowTotal, attributes: Sequence[str] | None = None
) -> Synthetic:
    """Release one noisy contingency table over ``attributes`` (the whole domain without them), and rows.

    Add/remove of one unit moves the cells by its number of rows in L1: discrete Laplace noise under pure
    epsilon, discrete Gaussian under rho or (epsilon, delta).  Costs ``loss``, the number of rows included.

    Raises:
        SizeError: the table has too many cells to be dense.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    names = vault.domain.names if attributes is None else as_clique(attributes)
    return _release(vault, loss, total, (names,), "histogram")


def marginals(vault: VaultInterface, *, loss: Loss, total: RowTotal, cliques: Sequence[Sequence[str]]) -> Synthetic:
    """Release one noisy table for each set of attributes, the loss divided equally, and rows.

    The sets are disjoint and their tables joined as if independent: what is correlated belongs in one set.

    Raises:
        QueryError: an attribute in two sets.
        SizeError: a table has too many cells to be dense.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    return _release(vault, loss, total, as_cliques(cliques), "marginals")


def tabulate(mechanisms: Mechanisms, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]) -> Product:
    """Measure every table through ``mechanisms``, together with the row count at ``loss``, and make them consistent."""
    separate = None if isinstance(total, NoisyTotal) else row_count.measure_total(mechanisms, loss, total)
    questions = [Marginal(clique) for clique in cliques]
    measured = mechanisms.measure(questions, after_count(loss, total))
    count = _summed([measurement.values for measurement in measured]) if separate is None else separate
    parts = tuple(
        Factor(clique, project_to_total(measurement.values, count).reshape(mechanisms.domain.project(clique).shape))
        for clique, measurement in zip(cliques, measured, strict=True)
    )
    kept = tuple(
        NoisyTable.over(asked, found.values.reshape(part.values.shape), found.noise, fresh=True)
        for asked, found, part in zip(questions, measured, parts, strict=True)
    )
    return Product.over(mechanisms.domain, parts, count, tables=kept)


def expected_errors(
    domain: Domain, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]
) -> dict[str, float]:
    """Standard deviation of the noise on one cell of each table, before the projection: needs no data."""
    variance = cell_variance(domain, loss, total, cliques)
    return {f"standard deviation of a cell of {', '.join(clique)}": math.sqrt(variance) for clique in cliques}


def cell_variance(domain: Domain, loss: Loss, total: RowTotal, cliques: Sequence[tuple[str, ...]]) -> float:
    """Variance of the noise on one cell of any of the tables."""
    return noises(domain, [Marginal(clique) for clique in cliques], after_count(loss, total), None)[0].variance


def _release(
    vault: VaultInterface, loss: Loss, total: RowTotal, cliques: tuple[tuple[str, ...], ...], method: str
) -> Synthetic:
    row_count.refuse_wrong(vault.domain, loss, total)
    _check(vault.domain, cliques)
    expected = expected_errors(vault.domain, loss, total, cliques)
    parameters = {"cliques": [list(clique) for clique in cliques], "total": row_count.describe(total)}
    request = Request("synthesize", method, parameters, f"synthetic rows of {tables(cliques)}")
    settled = vault.release(request, loss, lambda mechanisms: tabulate(mechanisms, loss, total, cliques).payload())
    return settle(settled, Product.restore(vault.domain, settled.payload), expected)


def _check(domain: Domain, cliques: Sequence[tuple[str, ...]]) -> None:
    named = [name for clique in cliques for name in clique]
    if not cliques or not all(cliques):
        raise QueryError("name at least one attribute for every marginal", culprit=cliques)
    if repeated := sorted({name for name in named if named.count(name) > 1}):
        raise QueryError(
            f"{', '.join(repeated)} stands in two marginals, which cannot be joined as independent; use mst or aim",
            culprit=repeated,
        )
    for clique in cliques:
        if (size := domain.project(clique).size) > MOST_CELLS:
            raise SizeError(
                f"the table of {', '.join(clique)} has {size} cells, more than {MOST_CELLS}; "
                "name smaller marginals, group values into bins, or use mst or aim",
                culprit=clique,
            )


def _summed(tables: Sequence[NDArray[np.int64]]) -> int:
    """Number of rows by the tables' own sums, each weighted by the inverse variance of its noise."""
    weights = [Fraction(1, table.size) for table in tables]
    sums = [int(table.sum()) for table in tables]
    return max(0, round(sum(weight * count for weight, count in zip(weights, sums, strict=True)) / sum(weights)))


def matrix(vault: VaultInterface, *, loss: Loss, total: RowTotal, workload: Workload) -> Synthetic:
    """Release the cells of a workload's attributes from optimised measurements, and rows.

    Raises:
        SizeError: the workload's attributes have too many cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    row_count.refuse_wrong(vault.domain, loss, total)
    chosen = optimised(vault.domain, loss, total, workload)
    parameters = {
        "measured": chosen.weighted.canonical(),
        "strategy": chosen.strategy.name,
        "total": row_count.describe(total),
    }
    settled = vault.release(
        Request("synthesize", "matrix", parameters, rows_for(vault.domain, workload)),
        loss,
        lambda mechanisms: estimate(mechanisms, loss, total, chosen).payload(),
    )
    expected = {f"root mean squared error of a query, by the {chosen.strategy.name} strategy": chosen.error}
    return settle(settled, Product.restore(vault.domain, settled.payload), expected)


def optimised(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> StrategyOption:
    """The best of identity, hierarchical (for one attribute) and p-identity strategies; reads no data.

    Raises:
        SizeError: the workload's attributes have too many cells.
    """
    return plan(domain, after_count(loss, total), workload, jointly(domain, workload, MOST_OPTIMISED))[0]


def estimate(mechanisms: Mechanisms, loss: Loss, total: RowTotal, chosen: StrategyOption) -> Product:
    """Measure a strategy, together with the row count at ``loss``, and make the cells consistent."""
    separate = None if isinstance(total, NoisyTotal) else row_count.measure_total(mechanisms, loss, total)
    weighted = chosen.weighted
    (measured,) = mechanisms.measure([weighted], after_count(loss, total))
    answers = measured.values.astype(np.float64)
    count = max(0, round(float(chosen.strategy.estimate(answers).sum()))) if separate is None else separate
    table = _nearest(weighted.weights.astype(np.float64), answers, count)
    table = table.reshape(mechanisms.domain.project(chosen.attributes).shape)
    return Product.over(mechanisms.domain, (Factor(chosen.attributes, table),), count)


def _nearest(rows: FloatArray, answers: FloatArray, count: int) -> FloatArray:
    """The non-negative cells of sum ``count`` whose weighted sums are nearest to the answers, in least squares.

    Nearest in the answers, not in the cells: sums that were measured well stay so, whatever single cells do.
    """
    from scipy.optimize import nnls

    heavy = 100 * float(np.abs(rows).max())  # holds the total, to what rescaling can mend
    cells, _ = nnls(np.vstack([rows, np.full((1, rows.shape[1]), heavy)]), np.append(answers, heavy * count))
    return project_to_total(cells, count)
