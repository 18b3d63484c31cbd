"""Optimised measurements for a workload over a small domain: the matrix mechanism, then rows.

Instead of every cell, weighted sums of cells are measured that suit the workload (Li, Miklau, Hay, McGregor
and Rastogi 2015; McKenna, Miklau, Hay and Machanavajjhala 2018); least squares gives back the cells, which
are made non-negative and sampled.  Which sums is decided from the workload alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import SizeError
from sfumato.model.factor import Factor
from sfumato.model.strategy import Strategy, hierarchical, identity, p_identity
from sfumato.privacy.loss import Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.histogram import project_to_total
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthetic import Synthetic, settle
from sfumato.synthesize.total import Summed, Total, after_count
from sfumato.synthesize.words import rows_for
from sfumato.synthesize.workload import Workload, refuse_no_workload
from sfumato.vault import canonical
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import Keeper, refuse_no_vault
from sfumato.vault.noise import noises
from sfumato.vault.questions import Weighted
from sfumato.vault.vault import Request

MOST_CELLS = 256
"""Cells over which a strategy is optimised in seconds; each search step takes their cube."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The strategy of least expected error for a workload, the question that measures it, and that error.

    ``error`` is the root mean squared error of a query, in rows, before cells are made non-negative.
    """

    strategy: Strategy
    question: Weighted
    error: float


def matrix(vault: Keeper, *, loss: Loss, total: Total, workload: Workload) -> Synthetic:
    """Release the cells of a workload's attributes from optimised measurements, and rows.

    Raises:
        SizeError: the workload's attributes have too many cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    totals.refuse_wrong(vault.domain, loss, total)
    chosen = plan(vault.domain, loss, total, workload)
    parameters = {
        "measured": canonical.question(chosen.question),
        "strategy": chosen.strategy.name,
        "total": totals.describe(total),
    }
    settled = vault.release(
        Request("synthesize", "matrix", parameters, rows_for(vault.domain, workload)),
        loss,
        lambda doors: estimate(doors, loss, total, chosen).payload(),
    )
    expected = {f"root mean squared error of a query, by the {chosen.strategy.name} strategy": chosen.error}
    return settle(settled, Product.restore(vault.domain, settled.payload), expected)


def plan(domain: Domain, loss: Loss, total: Total, workload: Workload) -> Plan:
    """The best of identity, hierarchical (for one attribute) and p-identity strategies; reads no data.

    Raises:
        SizeError: the workload's attributes have too many cells.
    """
    refuse_no_workload(workload)
    names = workload.attributes(domain)
    if (size := domain.project(names).size) > MOST_CELLS:
        raise SizeError(
            f"optimising measurements over {size} cells takes too long; name fewer attributes, or use mst or aim",
            culprit=size,
        )
    gram = _gram(workload.matrix(domain))
    strategies = [identity((size,)), p_identity(gram)] + ([hierarchical(gram)] if len(names) == 1 else [])
    plans = [
        Plan(strategy, question, math.sqrt(_variance(domain, loss, total, question) * mean))
        for strategy in strategies
        for question in [Weighted(names, strategy.matrix())]
        for mean in [strategy.error_of(gram) / workload.length(domain)]
    ]
    return min(plans, key=lambda option: option.error)


def estimate(doors: Doors, loss: Loss, total: Total, chosen: Plan) -> Product:
    """Measure a plan through ``doors``, together with the row count at ``loss``, and make the cells consistent."""
    bought = None if isinstance(total, Summed) else totals.buy(doors, loss, total)
    (measured,) = doors.measure([chosen.question], after_count(loss, total))
    answers = measured.values.astype(np.float64)
    count = max(0, round(float(chosen.strategy.estimate(answers).sum()))) if bought is None else bought
    names = chosen.question.attributes
    table = _nearest(chosen.question.weights.astype(np.float64), answers, count)
    table = table.reshape(doors.domain.project(names).shape)
    return Product.over(doors.domain, (Factor(names, table),), count)


def _nearest(rows: NDArray[np.float64], answers: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The non-negative cells of sum ``count`` whose weighted sums are nearest to the answers, in least squares.

    Nearest in the answers, not in the cells: sums that were measured well stay so, whatever single cells do.
    """
    from scipy.optimize import nnls

    heavy = 100 * float(np.abs(rows).max())  # holds the total, to what rescaling can mend
    cells, _ = nnls(np.vstack([rows, np.full((1, rows.shape[1]), heavy)]), np.append(answers, heavy * count))
    return project_to_total(cells, count)


def _gram(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
    numbers = rows.astype(np.float64)
    gram: NDArray[np.float64] = numbers.T @ numbers
    return gram


def _variance(domain: Domain, loss: Loss, total: Total, question: Weighted) -> float:
    return noises(domain, [question], after_count(loss, total), None)[0].variance
