"""Independent columns: one noisy table for each column, and rows drawn column by column.

It is the baseline of every other method.  Each column follows its own noisy table, and no two columns depend on each
other.  Neighboring tables differ by one unit.  The table of a column has the L1 sensitivity, or squared L2 sensitivity,
of the rows of a unit.  All tables are measured together at the whole loss (Dwork, McSherry, Nissim and Smith 2006,
Section 3.2).
"""

from __future__ import annotations

from typing import Unpack

from sfumato.domain import Domain
from sfumato.privacy.loss import Loss
from sfumato.synthesize import cell_positions
from sfumato.synthesize.budget_allocation import BudgetSplit, RowTotal, describe_total
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import (
    OneWayMarginals,
    count_share,
    measure_one_way,
    refuse_fine,
    refuse_undividable,
)
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.synthesis_method import PlannedRelease, SynthesisMethod, Task
from sfumato.synthesize.synthetic import Synthetic, rows_of
from sfumato.vault.contribution import contribution
from sfumato.vault.interface import Mechanisms, ReleaseRequest, StatedLoss, VaultInterface, stated_loss, states_loss
from sfumato.workload.counting_queries import all_marginals


@states_loss
def independent(vault: VaultInterface, *, total: RowTotal, **stated: Unpack[StatedLoss]) -> Synthetic:
    """Release the distribution of each column, and rows whose columns are independent.

    Use it as a baseline, or for a table whose columns are read one at a time.  ``batched`` and ``mst`` measure the same
    tables first and add pairs of columns.

    Args:
        vault: the protected table.
        total: where the number of rows comes from.  ``NoisyTotal`` adds a rough count at half a percent of the loss.
        **stated: the whole loss: ``loss``, or ``epsilon`` with or without ``delta``.

    Raises:
        LossError, InputError: the loss or the source of a row count is invalid.
        SizeError: a column has too many cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    return INDEPENDENT.release(vault, Task(loss=loss, total=total, workload=all_marginals(1)))


def measure_columns(mechanisms: Mechanisms, loss: Loss, total: RowTotal) -> Graphical:
    """Measure the row count, the positions in wide cells and all columns, at exactly ``loss`` together."""
    domain = mechanisms.domain
    split = BudgetSplit(loss.divisible, contribution(domain).rows)
    share = 1 - count_share(total) - cell_positions.share(domain)
    return measure_one_way(mechanisms, split, total, OneWayMarginals(share), zeros=()).released(domain)


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    refuse_undividable(domain, task.loss)
    refuse_fine(domain, SizeLimits().marginal)
    parameters = {"total": describe_total(task.total)}
    return PlannedRelease(
        request=ReleaseRequest("synthesize", "independent", parameters, rows_of(domain, domain.names)),
        run=lambda mechanisms: measure_columns(mechanisms, task.loss, task.total),
        model=Graphical,
    )


INDEPENDENT = SynthesisMethod(
    name="independent",
    summary="every column alone, as a baseline: its rows have no dependence between columns",
    options=frozenset(),
    plan=_plan,
    estimate=lambda _domain, _task: (
        None
    ),  # batched and mst measure the same tables, and stop there if noise hides pairs
    noise_of="batched",
)
