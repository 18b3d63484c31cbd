"""Noisy contingency tables: the whole domain at once, or one table for each of several sets of attributes.

Discrete noise on every cell (Dwork, McSherry, Nissim, Smith 2006, Section 3.2, with integer noise),
projected on the non-negative tables of the right sum, and rows drawn from the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError
from sfumato.model.factor import Factor
from sfumato.privacy.loss import Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthetic import Synthetic, settle
from sfumato.synthesize.total import Summed, Total, after_count
from sfumato.synthesize.words import tables
from sfumato.synthesize.workload import as_clique, as_cliques
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import Keeper, refuse_no_vault
from sfumato.vault.noise import noises
from sfumato.vault.questions import Marginal
from sfumato.vault.vault import Request

MOST_CELLS = 1 << 26  # 512 MiB of counts


def histogram(vault: Keeper, *, loss: Loss, total: Total, attributes: Sequence[str] | None = None) -> Synthetic:
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


def marginals(vault: Keeper, *, loss: Loss, total: Total, cliques: Sequence[Sequence[str]]) -> Synthetic:
    """Release one noisy table for each set of attributes, the loss divided equally, and rows.

    The sets are disjoint and their tables joined as if independent: what is correlated belongs in one set.

    Raises:
        QueryError: an attribute in two sets.
        SizeError: a table has too many cells to be dense.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    return _release(vault, loss, total, as_cliques(cliques), "marginals")


def tabulate(doors: Doors, loss: Loss, total: Total, cliques: Sequence[tuple[str, ...]]) -> Product:
    """Measure every table through ``doors``, together with the row count at ``loss``, and make them consistent."""
    bought = None if isinstance(total, Summed) else totals.buy(doors, loss, total)
    measured = doors.measure([Marginal(clique) for clique in cliques], after_count(loss, total))
    count = _summed([measurement.values for measurement in measured]) if bought is None else bought
    parts = tuple(
        Factor(clique, project_to_total(measurement.values, count).reshape(doors.domain.project(clique).shape))
        for clique, measurement in zip(cliques, measured, strict=True)
    )
    return Product.over(doors.domain, parts, count)


def project_to_total(values: NDArray[np.int64] | NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest non-negative table that sums to ``total``, in least squares (Held, Wolfe, Crowder 1974).

    Everything is shifted by one number and what falls below zero is clipped.

    >>> project_to_total(np.array([5, -3, 1]), 4).tolist()
    [4.0, 0.0, 0.0]
    >>> project_to_total(np.array([5, -3, 1]), 5).tolist()
    [4.5, 0.0, 0.5]
    """
    ordered = np.sort(values)[::-1].astype(np.float64)
    shifts = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    last = int(np.flatnonzero(ordered > shifts)[-1]) if total > 0 else 0
    return np.maximum(values - shifts[last], 0.0) if total > 0 else np.zeros(ordered.size)


def expected_errors(domain: Domain, loss: Loss, total: Total, cliques: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Standard deviation of the noise on one cell of each table, before the projection: needs no data."""
    variance = cell_variance(domain, loss, total, cliques)
    return {f"standard deviation of a cell of {', '.join(clique)}": math.sqrt(variance) for clique in cliques}


def cell_variance(domain: Domain, loss: Loss, total: Total, cliques: Sequence[tuple[str, ...]]) -> float:
    """Variance of the noise on one cell of any of the tables."""
    return noises(domain, [Marginal(clique) for clique in cliques], after_count(loss, total), None)[0].variance


def _release(vault: Keeper, loss: Loss, total: Total, cliques: tuple[tuple[str, ...], ...], method: str) -> Synthetic:
    totals.refuse_wrong(vault.domain, loss, total)
    _check(vault.domain, cliques)
    expected = expected_errors(vault.domain, loss, total, cliques)
    parameters = {"cliques": [list(clique) for clique in cliques], "total": totals.describe(total)}
    request = Request("synthesize", method, parameters, f"synthetic rows of {tables(cliques)}")
    settled = vault.release(request, loss, lambda doors: tabulate(doors, loss, total, cliques).payload())
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
