"""The interface of a synthesizer: its task, its plan before the charge, and its release.

A method is one file in :mod:`sfumato.synthesize.methods`.  The file ends with its :class:`SynthesisMethod`, whose name
is in the tuple ``SYNTHESIZERS`` of that package.  Commands, requests, refusals and ``auto`` read the tuple.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from sfumato.domain import Domain
from sfumato.errors import QueryError, pluralize
from sfumato.privacy.loss import Loss
from sfumato.synthesize.budget_allocation import RowTotal, assumed_rows, refuse_wrong_total
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.product import Product
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.synthesize.synthetic import Synthetic, finish_release
from sfumato.vault.interface import Mechanisms, ReleaseRequest, VaultInterface, refuse_no_vault
from sfumato.workload.counting_queries import Marginals, Workload

StoredModel: TypeAlias = Product | Graphical


class Option(StrEnum):
    """An option that only some methods take, by its name on the command line."""

    MARGINALS = "marginals"
    WAY = "way"
    ROUNDS = "rounds"
    ZEROS = "zeros"
    NO_REUSE = "no-reuse"
    BOUND_PAIRS = "bound-pairs"


@dataclass(frozen=True, kw_only=True)
class Task:
    """The task of a synthesizer; each method reads the parts that it uses.

    Attributes:
        loss: the whole loss of the release.
        total: where the number of rows comes from.
        workload: the queries that the rows should answer well.
        limits: limits on the size of inference.
        zeros: combinations that are impossible by their meaning.
        rounds: queries to measure, for a method that works in rounds; None leaves it to the method.
    """

    loss: Loss
    total: RowTotal
    workload: Workload
    limits: SizeLimits = field(default_factory=SizeLimits)
    zeros: Sequence[Zeros] = ()
    rounds: int | None = None

    def marginals(self) -> Marginals:
        """Return the workload, which must be a workload of marginals.

        Raises:
            QueryError: the workload has other queries.
        """
        if not isinstance(self.workload, Marginals):
            raise QueryError(
                "this method takes a workload of marginals; ranges and other queries are for auto, mwem and matrix",
                culprit=self.workload,
            )
        return self.workload


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """A release that was checked and not charged.

    Attributes:
        request: the request for the journal.
        run: the method; it measures at exact shares of the loss.
        model: the class that restores the stored model.
        expected_error: errors that are known beforehand; None takes them from the measured tables.
        provenance: how the method was chosen.
    """

    request: ReleaseRequest
    run: Callable[[Mechanisms], StoredModel]
    model: type[Product | Graphical]
    expected_error: Mapping[str, float] | None = None
    provenance: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SynthesisMethod:
    """A method of synthesis.

    Attributes:
        name: its name in commands and requests.
        summary: the measured tables, in one line.
        options: the options that it takes.
        needs: required options, each with a message if it is missing.
        plan: checks a task and plans its release; reads no data and charges nothing.
        estimate: its noise, for ``auto``; None if the method cannot do the task, or another one does it more simply.
        noise_of: the method whose noise is used when losses are compared; empty if it is its own.
        weighs: True if it uses the weights of named marginals.
        most_columns: the most columns of a marginal that it measures without its name; 0 if there is no bound.
    """

    name: str
    summary: str
    options: frozenset[Option]
    plan: Callable[[Domain, Task], PlannedRelease]
    estimate: Callable[[Domain, Task], RankedMethod | None]
    needs: Mapping[Option, str] = field(default_factory=dict)
    noise_of: str = ""
    weighs: bool = False
    most_columns: int = 0

    def listed_options(self) -> tuple[Option, ...]:
        """Return the options that it takes, in the order of :class:`Option`."""
        return tuple(option for option in Option if option in self.options)

    def checked_plan(self, domain: Domain, task: Task) -> PlannedRelease:
        """Return the plan of a task.

        Raises:
            InputError, LossError, QueryError, SizeError: the task does not fit the method.
        """
        if not self.weighs:
            refuse_weights(self.name, task.workload)
        return self.plan(domain, task)

    def release(self, vault: VaultInterface, task: Task) -> Synthetic:
        """Release with the method.

        Raises:
            InputError, LossError, QueryError, SizeError: the task does not fit the method; nothing was charged.
            BudgetError: the ledger refuses the loss; nothing was spent.
        """
        return release_planned(vault, task.loss, task.total, lambda domain: self.checked_plan(domain, task))


def refuse_weights(method: str, workload: Workload) -> None:
    """Refuse weights of named marginals for a method that ignores them.

    Raises:
        QueryError: a marginal has a weight other than 1.
    """
    if isinstance(workload, Marginals) and workload.weights:
        raise QueryError(f"{method} takes no weights of marginals: only batched does", culprit=workload)


def release_planned(
    vault: VaultInterface, loss: Loss, total: RowTotal, plan: Callable[[Domain], PlannedRelease]
) -> Synthetic:
    """Check, plan, charge and run a release, and restore the stored result.

    Raises:
        InputError: the vault or the source of a row count is invalid.
        LossError: the loss is invalid, or too small to count rows.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    refuse_wrong_total(vault.domain, loss, total)
    planned = plan(vault.domain)
    stored = vault.release(planned.request, loss, lambda mechanisms: planned.run(mechanisms).payload())
    model = planned.model.restore(vault.domain, stored.payload)
    expected = planned.expected_error
    if expected is None:
        expected = expected_errors(model.measured) if isinstance(model, Graphical) else {}
    return finish_release(stored, model, dict(expected), planned.provenance)


@dataclass(frozen=True, kw_only=True)
class RankedMethod:
    """A method that can do a task, and figures about its noise that need no data.

    Attributes:
        synthesizer: the method.
        task: the task that the method gets if it is chosen.
        error: root mean squared noise on an answer, over the whole workload, in rows; infinite if the method does not
            measure the whole workload.
        rows_needed: rows of a table below which noise hides it.
        reason: the basis of the figures.
        left_out: errors that the figure does not count; empty if it counts all.
    """

    synthesizer: SynthesisMethod
    task: Task
    error: float
    rows_needed: float
    reason: str
    left_out: str = ""

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.synthesizer.name

    @property
    def rows(self) -> int:
        """Return the public number of rows of the table, or a thousand."""
        return assumed_rows(self.task.total)

    @property
    def hidden_by_noise(self) -> bool:
        """Return True if noise hides a table of ``rows`` rows."""
        return self.rows_needed > self.rows

    def run(self, vault: VaultInterface) -> Synthetic:
        """Release with the method."""
        return self.synthesizer.release(vault, self.task)

    def __str__(self) -> str:
        if self.hidden_by_noise:
            rows = math.ceil(self.rows_needed)
            return f"{self.method}: noise hides a table of fewer than {pluralize(rows, 'row')} ({self.reason})"
        if math.isinf(self.error):
            return f"{self.method}: cannot be compared without data ({self.left_out})"
        noise = f"{self.method}: noise of about {self.error:.4g} rows in an answer ({self.reason})"
        return f"{noise}; not counted: {self.left_out}" if self.left_out else noise
