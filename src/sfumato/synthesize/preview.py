"""The expected errors of a release, by column and pair, before anything is charged.

All figures depend on the domain, the workload and the loss.  No row is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.errors import pluralize
from sfumato.model.coarsening import MOST_CUTS
from sfumato.synthesize import cell_positions
from sfumato.synthesize.auto import AUTO, method_named
from sfumato.synthesize.binning import WIDE
from sfumato.synthesize.budget_allocation import (
    BudgetSplit,
    NoisyTotal,
    PublicTotal,
    RowTotal,
    assumed_rows,
    refuse_wrong_total,
    rows_for_pairs,
)
from sfumato.synthesize.initial_marginals import OneWayMarginals, count_share, one_way_share
from sfumato.synthesize.methods.batched import SCORES, least_pairs
from sfumato.synthesize.synthesis_method import SynthesisMethod, Task
from sfumato.vault.contribution import contribution
from sfumato.vault.interface import StatedLoss, stated_loss, states_loss
from sfumato.workload.counting_queries import Marginals, Workload, all_marginals
from sfumato.workload.named_marginals import MOST_NAMED, TargetMarginals, most_cuts, named_marginals

_PAIRS = "pairs of columns"
_LISTED = 8  # columns in a sentence
_OUTWEIGHED = 0.5  # noise of all cells relative to the rows, above which most deciles of a column are wrong
_DEVIATIONS = 1.96  # for Gaussian noise, with 95 % confidence


@dataclass(frozen=True)
class Preview:
    """The expected errors of a release.

    Attributes:
        method: the method of the release.
        expected_error: for a method that measures whole tables: its own figures, in rows.
        columns: for a method that measures columns and pairs: the error of one cell of each column, in rows, with 95 %
            confidence.
        pair: the error of one cell of a measured pair, in rows, with 95 % confidence; None if no pair is measured.
        rows_for_pairs: rows of a table below which noise hides the pairs, so that only columns are measured.
        rows: the public number of rows; None if it is not public.
        noise_of: the method whose noise is stated if the method has no figure; empty if the figures are its own.
        of: what ``pair`` and ``rows_for_pairs`` are about: pairs of columns, or the named marginals.
        notes: what a reader of the rows may not expect, in sentences.
    """

    method: str
    expected_error: dict[str, float]
    columns: dict[str, int]
    pair: int | None = None
    rows_for_pairs: int = 0
    rows: int | None = None
    noise_of: str = ""
    of: str = _PAIRS
    notes: tuple[str, ...] = ()

    @property
    def hides_pairs(self) -> bool:
        """Return True if noise hides the pairs of a table of the public number of rows."""
        return self.rows is not None and self.rows < self.rows_for_pairs

    @property
    def needed(self) -> str:
        """A clause about the rows that a table needs."""
        return f"{self.of} need about {pluralize(self.rows_for_pairs, 'row')} at this loss"

    @property
    def in_smaller_tables(self) -> str:
        """A clause about the pairs in tables of fewer than ``rows_for_pairs`` rows."""
        hidden = "noise hides them"
        return f"{hidden}, and batched then measures single columns alone" if self.method == "batched" else hidden

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**asdict(self), "hides_pairs": self.hides_pairs}

    def __str__(self) -> str:
        noise = f", judged by the noise of {self.noise_of}" if self.noise_of else ""
        lines = [
            f"Method: {self.method}{noise}",
            *(f"{name}: {error:.4g}" for name, error in self.expected_error.items()),
        ]
        if self.columns:
            assumed = f", in a table of {pluralize(assumed_rows(NoisyTotal()), 'row')}" if self.rows is None else ""
            lines.append(f"A count of one value is off by at most so many rows, with 95 %{assumed}:")
            width = max(map(len, self.columns))
            lines += [f"  {name:<{width}}  {error:>9,}" for name, error in self.columns.items()]
        if self.pair is not None:
            table = "a measured pair of values" if self.of == _PAIRS else "a named combination of values"
            lines.append(f"A count of {table} is off by about {pluralize(self.pair, 'row')}.")
            lines.append(f"{self.needed.capitalize()}. In a smaller table {self.in_smaller_tables}.")
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join(lines)


@states_loss
def preview(
    domain: Domain,
    *,
    total: RowTotal | None = None,
    workload: Workload | None = None,
    method: str = "auto",
    **stated: Unpack[StatedLoss],
) -> Preview:
    """Return the expected errors of a release; read no data and charge nothing.

    Args:
        domain: the domain of the table.
        total: where the number of rows comes from.  Default: a noisy count.
        workload: the queries that the rows should answer well.  Default: all pairs of columns.
        method: the name of a method.
        **stated: the loss of the release: ``loss``, or ``epsilon`` with or without ``delta``.

    Raises:
        InputError, LossError, QueryError, SizeError: the method refuses such a release.
    """
    expect(domain, Domain, "errors are expected for a Domain, such as sfumato.load_domain returns")
    task = Task(
        loss=stated_loss(stated),
        total=total or NoisyTotal(),
        workload=workload or all_marginals(min(2, len(domain))),
    )
    return preview_task(domain, task, method_named(method))


def preview_task(domain: Domain, task: Task, method: SynthesisMethod) -> Preview:
    """Return the expected errors of a task.

    Raises:
        InputError, LossError, QueryError, SizeError: the method refuses the task.
    """
    refuse_wrong_total(domain, task.loss, task.total)
    chosen = method.estimate(domain, task) if method is AUTO else None
    taken = method if chosen is None else chosen.synthesizer
    planned = taken.checked_plan(domain, task if chosen is None else chosen.task)
    rows = task.total.count if isinstance(task.total, PublicTotal) else None
    if planned.expected_error is not None:
        notes = () if taken.name == "independent" else _on_other_columns(domain, task.workload)
        return Preview(taken.name, dict(planned.expected_error), {}, rows=rows, notes=notes)
    figures, widths = _of_columns_and_pairs(domain, task, taken.name, rows)
    notes = (*_on_large_marginals(task.marginals(), taken), *_on_wide_columns(domain, task, widths, figures.columns))
    if taken.name == "independent":
        return replace(figures, notes=notes)
    large = () if taken.name == "batched" else _on_large_pairs(domain, task)
    return replace(figures, noise_of=taken.noise_of, notes=(*notes, *large))


def _on_other_columns(domain: Domain, workload: Workload) -> tuple[str, ...]:
    """Say which columns are released if the workload has not all of them."""
    names = workload.attributes(domain)
    if len(names) == len(domain):
        return ()
    columns = ", ".join(names) if len(names) <= _LISTED else f"{len(names)}"
    return (f"only {columns} of {len(domain)} columns are released; --way 2 or --method batched keeps all",)


def _on_large_marginals(workload: Marginals, method: SynthesisMethod) -> tuple[str, ...]:
    """Say that a method measures no marginals of so many columns."""
    if not method.most_columns or (workload.ways or 0) <= method.most_columns:
        return ()
    named = f"; --marginals names larger ones, of up to {MOST_NAMED}" if method.most_columns < MOST_NAMED else ""
    return (
        f"{method.name} measures marginals of at most {method.most_columns} columns, and its model joins them{named}",
    )


def _on_large_pairs(domain: Domain, task: Task) -> tuple[str, ...]:
    """Say which pairs of columns a published method never measures, because it counts their cells one by one."""
    sizes, most = dict(zip(domain.names, domain.shape, strict=True)), task.limits.marginal
    every = TargetMarginals.of_workload(task.marginals(), domain).pairs
    pairs = [f"{one} x {other}" for one, other in every if sizes[one] * sizes[other] > most]
    if not pairs:
        return ()
    more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    lost = f"pairs of more than {most:,} cells are not measured, so the rows may show no relation of their columns"
    return (f"{lost}: {', '.join(pairs[:_LISTED])}{more}; declare edges, or use batched",)


def _on_wide_columns(
    domain: Domain, task: Task, widths: Mapping[str, tuple[int, ...]], columns: Mapping[str, int]
) -> tuple[str, ...]:
    """Say which columns have so many cells that noise outweighs the table, and which are measured in groups too.

    The noise of all cells of a table adds up to the error of one cell times the root of their number.
    """
    rows = assumed_rows(task.total)
    visible = BudgetSplit(task.loss.divisible, contribution(domain).rows).column_sizes(domain.shape, rows)
    notes = []
    for attribute, groups in zip(domain, visible, strict=True):
        cells, table = f"{attribute.size:,} cells of {attribute.name}", f"a table of {pluralize(rows, 'row')}"
        edges = f"declare edges in the domain for about {pluralize(round(groups), 'cell')}"
        counts = [-(-attribute.declared // width) for width in widths[attribute.name]]  # of the groups of each table
        noise = columns[attribute.name] / _DEVIATIONS * math.sqrt(counts[0])
        if attribute.size > WIDE and noise > _OUTWEIGHED * rows:
            notes.append(
                f"the noise of all {cells} outweighs {table}, so the released values may lie anywhere; {edges}"
                if len(counts) == 1
                else f"the noise of {counts[0]:,} groups of the {cells} outweighs {table}; {edges}"
            )
        elif len(counts) > 1:
            notes.append(
                f"in {table}, the {cells} are also measured in {len(counts) - 1} tables of {counts[0]:,} to "
                f"{counts[-2]:,} groups of neighbors, because the noise of single cells adds up"
            )
        elif attribute.size > MOST_CUTS:
            notes.append(f"the {cells} are joined to at most about {round(groups):,} groups in {table}")
    return tuple(notes)


def _others(domain: Domain, workload: Marginals) -> int:
    """Return the number of pairs that a release measures at least next to named marginals: a tree, or none."""
    targets = TargetMarginals.of_workload(workload, domain)
    return min(len(targets.pairs.keys() - targets.named.keys()), len(domain) - 1)


def _first_widths(domain: Domain, task: Task, method: str, deviations: Sequence[float]) -> dict[str, tuple[int, ...]]:
    """Return the codes in a group of each first table of each column; ``deviations`` are of the noise on a code."""
    named = named_marginals(task.marginals(), domain) if method == "batched" else {}
    options = OneWayMarginals(
        cuts=most_cuts(domain, named, cells=task.limits.cells, marginal=task.limits.marginal),
        as_published=method == "aim",
    )
    widths = options.widths(domain, task.zeros, deviations, assumed_rows(task.total))
    return dict(zip(domain.names, widths, strict=True))


def _of_columns_and_pairs(
    domain: Domain, task: Task, method: str, rows: int | None
) -> tuple[Preview, dict[str, tuple[int, ...]]]:
    """Return the errors of a method that measures all columns first, then at least a tree of pairs.

    The widths of the groups of its first tables are the second value.  The shares of the loss are those of
    ``batched``.  Similar methods divide it nearly alike.
    """
    split = BudgetSplit(task.loss.divisible, contribution(domain).rows)
    most = float(1 - count_share(task.total))
    columns = most * one_way_share(split, domain, assumed_rows(task.total))
    pairs = 0 if method == "independent" else least_pairs(domain, task.marginals())
    rest = most - columns - float(cell_positions.share(domain))
    needed = math.ceil(rows_for_pairs(split, rest, pairs)) if pairs else 0
    if not pairs or (rows is not None and rows < needed):
        columns = most - float(cell_positions.share(domain))
    largest = math.inf if rows is None else rows

    def error(share: float) -> int:
        return math.ceil(min(_DEVIATIONS * split.deviation(share), largest))

    parts = split.shares(split.column_sizes(domain.shape, assumed_rows(task.total)))
    widths = _first_widths(domain, task, method, [split.deviation(columns * float(part)) for part in parts])
    tables = {name: columns * float(part) / len(widths[name]) for name, part in zip(domain.names, parts, strict=True)}
    figures = Preview(
        method,
        {},
        {name: error(share) for name, share in tables.items()},
        pair=error(rest * float(1 - SCORES) / max(pairs, _others(domain, task.marginals()))) if pairs else None,
        rows_for_pairs=needed,
        rows=rows,
        of="named marginals" if named_marginals(task.marginals(), domain) else _PAIRS,
    )
    return figures, widths
