"""Select the marginals to measure next: those with the largest expected gain for which inference stays exact.

All candidates of a round are scored together by their noisy L1 distance from the model.  Then marginals are added
greedily while a marginal removes more expected error than its noise adds, and the junction tree stays under its cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, combinations, compress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.domain.attribute import Attribute
from sfumato.errors import InputError
from sfumato.model.coarsening import Runs, join_levels, runs_of_at_most, with_least_runs
from sfumato.model.factor import FloatArray
from sfumato.model.fitting import Patience
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import CellBudget, Clique, spanning
from sfumato.model.noisy_table import NoisyTable
from sfumato.model.row_sampling import CodeArray, expected_counts, sample_model
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.budget_allocation import BudgetSplit, proportions
from sfumato.synthesize.graphical import EstimatedTable
from sfumato.synthesize.initial_marginals import Fit
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.contribution import DENSE_CELLS
from sfumato.vault.interface import Measures
from sfumato.vault.measurables import Distance, Marginal, Measurement

_CHUNK_CELLS = 1 << 22  # exact counts at a time behind the mechanisms: 32 MiB
_MOST_MARGINAL = 1 << 27  # the vault's limit at once; more would be refused when the loss is charged
_LEAST_AGAIN = 1e-4  # minimum part of a round's share that is measured
_FAST = Patience(tolerance=1e-2)  # noise hides a closer fit
_PATIENCE = 200  # consecutive candidates that exceed the cap before the search ends
HELD = 2.0
"""Mean number of people per cell of a table after neighbors are joined, in deviations of noise."""

LEAST_OUTSIDE = 0.25
"""Least number of pairs outside the junction tree per column.  Tuning rows to fewer pairs gains nothing."""

SPARSE = 0.4
"""Largest share of filled cells at which a table is measured again group by group.  Cells with fewer people than a
deviation of noise count in part.
"""

_Query = TypeVar("_Query", Distance, Marginal)

LEADING = 4.0
"""Weight of the error of a leading attribute, relative to others."""


@dataclass(frozen=True)
class SizeLimits:
    """The size limits of a graphical method, which do not depend on the data.

    Attributes:
        cells: cells of the junction tree, all cliques together; a fit takes about 60 bytes for each.  One marginal has
            at most a quarter of them.
        candidates: marginals of each number of attributes that a round of ``batched`` scores, once it knows which of
            them are likely to matter.  Their scores share one loss.
        marginal: cells of one marginal, as the vault counts it.
        prior_marginals: True if ``batched`` may use earlier released marginals of the same data.
        distance_bounds: True if ``batched`` also measures the distance of every pair of its final model from the table.
            It takes 3 % of the loss, and bounds the error of pairs that were not measured.
        leading: attributes that many others depend on, such as the number of children.  Each gets the loss of a column
            with :data:`LEADING` times as many cells.

    Raises:
        InputError: a limit is not an integer, or marginals are larger than the vault's limit.
    """

    cells: int = 400_000
    candidates: int = 400
    marginal: int = 1 << 22
    prior_marginals: bool = True
    distance_bounds: bool = False
    leading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sound = all(type(limit) is int and limit > 0 for limit in (self.cells, self.candidates, self.marginal))
        if not sound or self.marginal > _MOST_MARGINAL:
            raise InputError(
                f"limits are whole numbers from 1, and one marginal has at most {_MOST_MARGINAL:,} cells", culprit=self
            )
        if type(self.prior_marginals) is not bool or type(self.distance_bounds) is not bool:
            raise InputError("prior_marginals and distance_bounds are True or False", culprit=self)

    def describe(self) -> dict[str, Any]:
        """Return the parameters for the journal.

        Defaults of later options are left out, so that stored keys stay equal.
        """
        parameters: dict[str, Any] = {"cells": self.cells, "candidates": self.candidates, "marginal": self.marginal}
        parameters |= {"leading": list(self.leading)} if self.leading else {}
        return (
            parameters
            | ({} if self.prior_marginals else {"earlier": False})
            | ({"bounds": True} if self.distance_bounds else {})
        )

    def importance(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return the weight of each column's error when the loss for single columns is divided."""
        return tuple(LEADING if name in self.leading else 1.0 for name in names)

    def refuse_for(self, method: str) -> None:
        """Refuse limits that only ``batched`` supports.

        Raises:
            InputError: ``distance_bounds`` is True, or ``prior_marginals`` is False.
        """
        if self.distance_bounds or not self.prior_marginals:
            raise InputError(f"{method} bounds no pairs and uses no earlier marginals: only batched does", culprit=self)


def size_limits(limits: SizeLimits | None) -> SizeLimits:
    """Return the given limits, or the default limits.

    Raises:
        InputError: the value is not of type ``SizeLimits``.
    """
    if limits is not None and not isinstance(limits, SizeLimits):
        raise InputError("limits are given as SizeLimits(cells=..., candidates=..., marginal=...)", culprit=limits)
    return limits or SizeLimits()


@dataclass(frozen=True)
class Table:
    """A marginal that may be measured over runs of neighboring groups; the noise of ``hidden`` cells does not count."""

    attributes: Clique
    runs: Runs
    hidden: int = 0

    @property
    def cells(self) -> int:
        """Return the number of measured cells."""
        return math.prod(self.runs.shape)

    @property
    def open(self) -> int:
        """Return the number of cells whose noise counts."""
        return self.cells - self.hidden


@dataclass(frozen=True, eq=False)
class Scored:
    """The candidates with their noisy L1 distances from the model, in rows."""

    tables: tuple[Table, ...]
    distances: FloatArray


UNSCORED = Scored((), np.zeros(0))


def affordable(candidates: Sequence[Clique], fit: Fit, limits: SizeLimits, *, pairs: bool = False) -> list[Clique]:
    """Return the candidates that are :func:`small_enough`; ``pairs`` is True if large pairs are counted over groups."""
    codes, groups = (
        np.array([math.prod(sizes[name] for name in clique) for clique in candidates], dtype=np.float64)
        for sizes in ({name: len(each.groups) for name, each in fit.coarsenings.items()}, fit.model.sizes)
    )
    over_groups = np.array([pairs and len(clique) == 2 for clique in candidates], dtype=np.bool_)  # noqa: PLR2004
    return [*compress(candidates, small_enough(codes, groups, limits, over_groups=over_groups))]


def small_enough(
    codes: FloatArray, groups: FloatArray, limits: SizeLimits, *, over_groups: NDArray[np.bool_] | bool
) -> NDArray[np.bool_]:
    """Return which tables are small enough to count and to model, by their cells over codes and over groups.

    If ``over_groups`` is True for a table, its cells over groups are counted if it is too large over codes.
    """
    cells = np.where((codes > DENSE_CELLS) & over_groups, groups, codes)
    return (cells <= limits.marginal) & (groups <= limits.cells // 4)


def comparable(candidates: Sequence[Clique], domain: Domain, most: int) -> list[Clique]:
    """Return the candidates with the smallest tables over the codes, in the given order.

    They have at most ``most`` cells together.  The exponential mechanism needs the tables of all candidates at once.
    """
    sizes = {clique: domain.project(clique).size for clique in candidates}
    order = sorted(candidates, key=sizes.__getitem__)
    fits = dict(zip(order, accumulate(sizes[clique] for clique in order), strict=True))
    return [clique for clique in candidates if fits[clique] <= most]


def measure_marginals(
    mechanisms: Measures,
    fit: Fit,
    marginals: Mapping[Clique, Runs | None],
    *,
    loss: Epsilon | Rho,
    shares: Sequence[Fraction],
) -> Fit:
    """Measure marginals over groups or runs at ``loss``, divided by ``shares``, and return the new fit."""
    questions = [fit.question(clique, runs) for clique, runs in marginals.items()]
    return fit.with_measurements(_measure_tables(mechanisms, questions, loss, shares), marginals)


def _measure_tables(
    mechanisms: Measures, questions: Sequence[Marginal], loss: Epsilon | Rho, shares: Sequence[Fraction]
) -> list[Measurement]:
    """Measure marginals together at ``loss``, divided by ``shares``."""
    total = sum(shares, Fraction(0))
    measurements: list[Measurement] = []
    for chunk in _chunks(questions, mechanisms.domain):
        held = shares[len(measurements) : len(measurements) + len(chunk)]
        part = sum(held, Fraction(0))
        measurements += mechanisms.measure(chunk, loss * (part / total), shares=[share / part for share in held])
    return measurements


def remeasure(mechanisms: Measures, fit: Fit, split: BudgetSplit, loss: Epsilon | Rho) -> Fit:
    """Measure the one-way marginals again, and return the new fit.

    Callers do so if noise outweighs the gain of every other marginal.
    """
    shares = split.shares([float(fit.model.sizes[name]) for name in mechanisms.domain.names])
    every = [(name,) for name in mechanisms.domain.names]
    return measure_marginals(mechanisms, fit, dict.fromkeys(every), loss=loss, shares=shares)


def score(mechanisms: Measures, fit: Fit, tables: Sequence[Table], *, loss: Epsilon | Rho) -> Scored:
    """Measure noisy L1 distances of tables from the model, together at ``loss``: each has sensitivity one row."""
    wide = any(len(table.attributes) > 2 for table in tables)  # noqa: PLR2004
    sampled = sample_model(fit.model, mechanisms.generator()) if wide else {}
    questions = [
        Distance(
            table.attributes,
            reference(fit.model, table.attributes, sampled, table.runs),
            fit.groups(table.attributes, table.runs),
        )
        for table in tables
    ]
    distances: list[float] = []
    for chunk in _chunks(questions, mechanisms.domain):
        answers = mechanisms.measure(chunk, loss * Fraction(len(chunk), len(questions)))
        distances += [float(answer.values[0]) for answer in answers]
    return Scored(tuple(tables), np.array(distances))


@dataclass(frozen=True)
class MeasuredMarginal:
    """A selected table: its runs, its weight times cells, its share of the loss, and if the junction tree has room."""

    runs: Runs
    size: float
    share: float
    in_model: bool = True

    def remeasured(self, expected: FloatArray, deviation: float) -> MeasuredMarginal:
        """Return the table for a repeated measurement, given the model's expected counts over groups.

        It has the same runs, so that both measurements are pooled.  It has single groups instead if most cells over
        runs are empty (``SPARSE``), or if the filled cells have ``HELD`` deviations of people each.
        """
        joined = np.minimum(self.runs.sum(expected) / deviation, 1.0).mean()
        filled = np.minimum(expected / deviation, 1.0).sum()
        finer = joined <= SPARSE or filled <= expected.sum() / (HELD * deviation)
        return replace(self, runs=self.runs.finest()) if finer else self

    def added_to(self, before: MeasuredMarginal | None) -> MeasuredMarginal:
        """Return the table with the shares of both measurements."""
        return self if before is None else replace(self, share=self.share + before.share)


def measure_selected(
    mechanisms: Measures, fit: Fit, tables: Mapping[Clique, MeasuredMarginal], loss: Epsilon | Rho
) -> tuple[Fit, tuple[EstimatedTable, ...]]:
    """Measure tables in proportion to their shares, and return the new fit and the tables outside its model."""
    shares = proportions([table.share for table in tables.values()])
    runs = {clique: table.runs for clique, table in tables.items()}
    questions = [fit.question(clique, joined) for clique, joined in runs.items()]
    both = list(zip(_measure_tables(mechanisms, questions, loss, shares), tables.values(), strict=True))
    fit = fit.with_measurements([each for each, table in both if table.in_model], runs, _FAST)
    return fit, tuple(_estimated(fit, each, table.runs) for each, table in both if not table.in_model)


def _estimated(fit: Fit, measurement: Measurement, runs: Runs) -> EstimatedTable:
    """Return a measured table outside the model, with its counts shrunk toward those of the model."""
    observation = fit.observe(measurement, runs)
    clique, shape = observation.attributes, observation.counts.shape
    shrunken = fit.shrunken(observation, {clique: fit.model.expected(clique)})
    values = measurement.values.reshape(shape)
    noisy = NoisyTable.from_cells(fit.question(clique, runs), values, measurement.noise, fresh=True)
    return EstimatedTable(noisy, np.maximum(shrunken.counts, 0.0))


def select_marginals(
    scored: Scored,
    weights: FloatArray,
    *,
    split: BudgetSplit,
    share: float,
    cell_budget: CellBudget,
    taken: Mapping[Clique, MeasuredMarginal],
) -> dict[Clique, MeasuredMarginal]:
    """Select the tables to measure together at ``share`` of the loss, each with its own share.

    The gain of a candidate is its weighted distance minus the error of its noise, for an optimal division of the loss
    (:meth:`BudgetSplit.allocation_weight`).  ``cell_budget`` bounds the junction tree.

    Small marginals may be selected even if the junction tree has no room for them (``CellBudget.outside``).  Tables
    ``taken`` before are measured again.  Their loss and ``share`` are divided together over them and the
    selected candidates.
    """
    cliques = [table.attributes for table in scored.tables]
    sizes = weights * np.array([table.open for table in scored.tables])
    total_share = share + sum(table.share for table in taken.values())
    before = sum(split.allocation_weight(table.size) for table in taken.values())
    parts = np.array([split.allocation_weight(size) for size in sizes])
    worth = _Worth(weights * scored.distances, parts, before, split=split, share=total_share)
    chosen = _enough_outside(cliques, worth.picked(cliques, cell_budget))
    return _divided(scored, sizes, chosen, split=split, share=share, taken=taken)


def _enough_outside(cliques: Sequence[Clique], chosen: Mapping[int, bool]) -> Mapping[int, bool]:
    """Return the selected candidates, without those outside the tree if there are too few of them to tune rows."""
    few = sum(not fits for fits in chosen.values()) < LEAST_OUTSIDE * len({name for each in cliques for name in each})
    return {index: fits for index, fits in chosen.items() if fits or not few}


def select_child_marginals(
    scored: Scored, *, split: BudgetSplit, share: float, cell_budget: CellBudget
) -> dict[Clique, MeasuredMarginal]:
    """Select the tables of a child to measure, given its known attributes: see :func:`select_marginals`.

    If the junction tree has no room for all candidates with a gain, the pairs of their spanning tree come first.
    """
    cliques = [table.attributes for table in scored.tables]
    sizes = np.array([table.cells for table in scored.tables], dtype=np.float64)
    parts = np.array([split.allocation_weight(size) for size in sizes])
    worth = _Worth(scored.distances, parts, 0.0, split=split, share=share)
    wished, chosen = worth.picked(cliques, None), worth.picked(cliques, cell_budget)
    if len(chosen) < len(wished):
        tree = set(spanning(cliques[index] for index in worth.largest(wished) if len(cliques[index]) == 2))  # noqa: PLR2004
        chosen = worth.picked(
            cliques, cell_budget, [index for index in worth.largest(wished) if cliques[index] in tree]
        )
    return _divided(scored, sizes, chosen, split=split, share=share, taken={})


def _divided(
    scored: Scored,
    sizes: FloatArray,
    chosen: Mapping[int, bool],
    *,
    split: BudgetSplit,
    share: float,
    taken: Mapping[Clique, MeasuredMarginal],
) -> dict[Clique, MeasuredMarginal]:
    """Divide ``share`` of the loss over the selected tables and the tables ``taken`` before."""
    chosen_tables = [(scored.tables[index], float(sizes[index]), fits) for index, fits in chosen.items()]
    tables = {
        table.attributes: MeasuredMarginal(table.runs, size, 0.0, fits) for table, size, fits in chosen_tables
    } | dict(taken)
    if not tables:
        return {}
    more = split.top_up([table.size for table in tables.values()], [table.share for table in tables.values()], share)
    return {
        clique: replace(table, share=float(part))
        for (clique, table), part in zip(tables.items(), more, strict=True)
        if part > _LEAST_AGAIN * share
    }


@dataclass(frozen=True, eq=False)
class _Worth:
    """The weighted distances of candidates, and their allocation weights next to those ``taken``."""

    distances: FloatArray
    parts: FloatArray
    taken: float
    split: BudgetSplit
    share: float

    def largest(self, indexes: Iterable[int]) -> list[int]:
        """Sort candidates by distance, the largest first."""
        return sorted(indexes, key=lambda index: -self.distances[index])

    def picked(
        self, cliques: Sequence[Clique], cell_budget: CellBudget | None, first: Sequence[int] = ()
    ) -> dict[int, bool]:
        """Select candidates with a gain greedily, ``first`` before others; the values are True if they fit the budget.

        Without a budget, all of them fit.
        """
        waiting, total, ahead = self.distances.copy(), self.taken, list(reversed(first))
        picked: dict[int, bool] = {}
        refused = 0
        while refused < _PATIENCE and len(waiting):
            gains = waiting - self.split.error(total + self.parts, self.share)
            gains += self.split.error(np.array(total), self.share)
            given = bool(ahead)
            best = ahead.pop() if given else int(gains.argmax())
            if not gains[best] > 0:
                if given:
                    continue
                break
            waiting[best] = -np.inf
            fits = cell_budget is None or cell_budget.fits(cliques[best])
            if fits or (cell_budget and len(cliques[best]) <= cell_budget.outside):
                refused, picked[best] = 0, fits
                cell_budget = cell_budget.adding(cliques[best]) if cell_budget and fits else cell_budget
                total += float(self.parts[best])
            else:
                refused += 1
        return picked


def reference(
    model: GraphicalModel, clique: Clique, sampled: dict[str, CodeArray], runs: Runs | None = None
) -> NDArray[np.int64]:
    """Return the model's counts (:func:`expected_counts`) of a marginal over groups or runs, as integers."""
    counts = expected_counts(model, clique, sampled)
    rounded: NDArray[np.int64] = np.rint(counts if runs is None else runs.sum(counts)).astype(np.int64).reshape(-1)
    return rounded


def coarsened_marginals(fit: Fit, domain: Domain, cliques: Iterable[Clique], deviation: float) -> list[Table]:
    """Return each marginal over the finest runs whose cells have ``HELD`` times ``deviation`` people on average.

    Only neighbors of ordered attributes are joined, but not to a few runs in a pair with one that is not ordered
    (:func:`with_least_runs`).  Only the model's counts are read.
    """
    levels = {attribute.name: _levels(fit, attribute) for attribute in domain}
    split = {name: with_least_runs(levels_of) for name, levels_of in levels.items()}
    joinable = {attribute.name: not isinstance(attribute, Categorical) for attribute in domain}
    most = fit.model.total / (HELD * deviation)
    tables = []
    for clique in cliques:
        mixed = sorted(joinable[name] for name in clique) == [False, True]
        tables.append(Table(clique, runs_of_at_most(most, [(split if mixed else levels)[name] for name in clique])))
    return tables


def with_structural_zeros(fit: Fit, zeros: Sequence[Zeros], tables: Iterable[Table]) -> list[Table]:
    """Return the tables with the number of cells that are structural zeros of two attributes.

    The model has no people in these cells, so their noise does not count against a table.
    """
    names = {name for zero in zeros for name in zero.attributes}
    empty: dict[Clique, NDArray[np.bool_]] = {}
    tables_with_zeros = []
    for table in tables:
        taken = np.zeros(table.runs.shape, dtype=np.bool_)
        ruled = [name for name in table.attributes if name in names]
        for pair in combinations(ruled, 2):
            if pair not in empty:
                empty[pair] = fit.model.expected(pair) == 0
            sides = [table.attributes.index(name) for name in pair]
            starts = tuple(table.runs.starts[side] for side in sides)
            runs = Runs(starts, tuple(table.runs.sizes[side] for side in sides))
            held = runs.sum((~empty[pair]).astype(np.int64)) == 0
            taken |= held.reshape([size if side in sides else 1 for side, size in enumerate(taken.shape)])
        tables_with_zeros.append(replace(table, hidden=int(taken.sum())))
    return tables_with_zeros


def with_visible_cells(fit: Fit, deviation: float, tables: Iterable[Table]) -> list[Table]:
    """Return the tables, with hidden cells in pairs if the model has few people in them.

    A cell with fewer people than ``deviation``, the noise on a cell, counts in part.  Only the model is read.
    """
    return [
        replace(table, hidden=table.cells - table.runs.visible(fit.model.expected(table.attributes), deviation))
        if len(table.attributes) == 2  # noqa: PLR2004
        else table
        for table in tables
    ]


def _levels(fit: Fit, attribute: Attribute) -> FloatArray:
    counts: FloatArray = fit.model.expected((attribute.name,))
    if isinstance(attribute, Categorical):
        return np.full(len(counts), np.inf)
    return join_levels(counts, int(fit.coarsenings[attribute.name].groups[attribute.declared - 1]) + 1)


def _chunks(questions: Sequence[_Query], domain: Domain) -> Iterator[list[_Query]]:
    chunk: list[_Query] = []
    held = 0
    for question in questions:
        size = domain.project(question.attributes).size
        if chunk and held + size > _CHUNK_CELLS:
            yield chunk
            chunk, held = [], 0
        chunk.append(question)
        held += size
    if chunk:
        yield chunk
