"""The model of a nested child table's head: the number of children of a parent row, and the first child.

It starts from the model of the parent rows and from public rules.  Then the number of children and the attributes of
the first child are measured.  Rounds of marginals with at least one of them follow.  Measurements are weighted, as in
:mod:`sfumato.synthesize.linked.next_child`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.linked_domain import PLACES, ChildTable, DerivedTable, LinkedTables
from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, Coarsening, identity
from sfumato.model.factor import Factor, FloatArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.binning import coarsen, merged_column
from sfumato.synthesize.budget_allocation import BudgetSplit
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import Fit
from sfumato.synthesize.linked.child_measures import DerivedMeasures
from sfumato.synthesize.linked.next_child import (
    SEEN,
    Drawn,
    expected_weight,
    factors_from_source,
    given_children,
    in_rounds,
    logarithm,
    measure_columns,
    one_group,
    regrouped,
    renumbered,
    started,
    without_last,
)
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Measurement


@dataclass(frozen=True)
class FirstChildModel:
    """The head of a nested child table, and the model that the parent rows come from.

    Attributes:
        linked: the tables.
        child: the nested child table.
        source: the model of the units, or of the head of the parent table.
    """

    linked: LinkedTables
    child: ChildTable
    source: Graphical

    @property
    def parent(self) -> ChildTable:
        """Return the table of the parent rows."""
        parent = self.linked.parent_of(self.child)
        assert parent is not None
        return parent

    @property
    def table(self) -> DerivedTable:
        """Return the derived table that is counted."""
        table = self.linked.first_child(self.child)
        assert table is not None
        return table

    @property
    def drawn(self) -> tuple[str, ...]:
        """Return the attributes that are drawn: the number of children, and the first child."""
        return first_names(self.child)

    def in_source(self) -> dict[str, str]:
        """Return the source's attribute of each known attribute of a row."""
        parent = self.parent
        attributes = {each.name: each.name for each in self.linked.known_attributes(parent)}
        attributes |= {parent.named("this", each.name): parent.named("first", each.name) for each in parent.plain}
        return attributes | ({parent.number: parent.number} if self.table.number == parent.number else {})

    def numbers(self) -> FloatArray:
        """Return the source's counts of parent rows by the number of their siblings, from 1 on."""
        counts: FloatArray = self.source.cells((self.parent.number,))[1 - self.linked.least_children(self.parent) :]
        return counts

    def impossible(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Return the structural zeros of the number and an attribute of the first child."""
        return impossible_firsts(self.linked, self.child)


def first_names(child: ChildTable) -> tuple[str, ...]:
    """Return the attributes of a head for the number of children and the first child."""
    return child.number, *(child.named("first", each.name) for each in child.table.attributes)


def impossible_firsts(linked: LinkedTables, child: ChildTable) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Return the structural zeros of the number of children and each attribute of the first child.

    There is a first child if and only if the number is positive, and no further child after a final value.
    """
    impossible, least = {}, linked.least_children(child)
    for each in child.table.attributes:
        dated = child.dated and each.name == child.order
        size = (sum(linked.first_cells(child)) if dated else each.size) + (least == 0)
        cells = np.zeros((child.most + 1 - least, size), dtype=np.bool_)
        if least == 0:
            cells[0, :-1] = cells[1:, -1] = True
        if child.final is not None and child.final[0] == each.name:
            cells[2 - least :, child.final_code] = True
        if cells.any():
            impossible[child.number, child.named("first", each.name)] = cells
    return impossible


def fit_first_child(
    mechanisms: Mechanisms, loss: Epsilon | Rho, first: FirstChildModel, *, limits: SizeLimits
) -> tuple[Graphical, bool]:
    """Fit the model of a nested child table's head at ``loss``.  The flag is False if noise hides all rows.

    :mod:`sfumato.vault.unit_measurables` defines neighbors, sensitivity and noise.
    """
    derived = DerivedMeasures(mechanisms, first.table)
    split = BudgetSplit(loss, first.table.unit_weight)
    fit, seen = _measure_alone(derived, split, first)
    if not seen:
        return fit.released(first.table.domain), False
    drawn = Drawn(frozenset(first.drawn), frozenset(), first.drawn)
    return in_rounds(derived, split, fit, drawn=drawn, limits=limits), True


def _measure_alone(derived: DerivedMeasures, split: BudgetSplit, first: FirstChildModel) -> tuple[Fit, bool]:
    """Measure the drawn attributes one by one, and return the first fit, and False if noise hides all rows."""
    rows = expected_weight(first.table, first.source, first.parent.number, first.numbers())
    answers = measure_columns(derived, split, first.drawn, rows)
    measured = dict(zip(first.drawn, answers, strict=True))
    total = float(measured[first.child.number].values.sum())
    seen = total > SEEN * max(each.standard_error for each in answers)
    coarsenings = _coarsenings(derived, first, measured)
    parent, source = first.parent, first.source
    given = given_children(first.linked, parent, source, 1)
    factors = [
        *_place_factors(first, coarsenings),
        *factors_from_source(given, first.in_source(), partial(regrouped, source, coarsenings)),
        *_structural_zeros(first, coarsenings),
    ]
    if not seen:  # the model has no child
        none = np.arange(coarsenings[first.child.number].size) != coarsenings[first.child.number].groups[0]
        factors.append(Factor((first.child.number,), np.where(none, -np.inf, 0.0)))
    observations = tuple(
        merged_column(coarsenings[name], answer, derived.domain[name], shrinks=True)
        for name, answer in measured.items()
    )
    return started(coarsenings, factors, measured, observations if seen else (), total), seen


def _coarsenings(
    derived: DerivedMeasures, first: FirstChildModel, measured: Mapping[str, Measurement]
) -> dict[str, Coarsening]:
    parent, source = first.parent, first.source
    strata: dict[str, NDArray[np.int64]] = {}
    for names, cells in first.impossible().items():
        for axis, name in enumerate(names):
            rows = np.unique(np.moveaxis(cells, axis, 0), axis=0, return_inverse=True)[1].reshape(-1)
            strata[name] = strata.get(name, 0) * (int(rows.max()) + 1) + rows
    coarsenings: dict[str, Coarsening] = {}
    for name, of in first.in_source().items():
        groups = source.coarsenings[of]
        if name == parent.number:
            counts = first.numbers()
            coarsenings[name] = renumbered(groups.groups[-len(counts) :], counts)
        else:
            coarsenings[name] = groups if name == of else without_last(groups, derived.domain[name].size)
    for name in derived.domain.names:
        if name in measured:
            attribute = derived.domain[name]
            coarsenings[name] = coarsen(
                derived.domain, attribute, measured[name], strata.get(name), max_deviations=MAX_GROUP_DEVIATIONS
            )
        elif name not in coarsenings:
            size = derived.domain[name].size
            coarsenings[name] = one_group(size) if name == parent.rows else identity(size)
    return {name: coarsenings[name] for name in derived.domain.names}


def _place_factors(first: FirstChildModel, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Return public factors: the places of a row among the rows of its unit, and their weights."""
    parent, table = first.parent, first.table
    last = min(parent.most, PLACES + 1)
    if table.number != parent.number:
        numbers = first.numbers()
        reached = np.cumsum(numbers[::-1])[::-1]  # rows with at least this many siblings
        counts = np.zeros(last)
        np.add.at(counts, np.minimum(np.arange(len(reached)), last - 1), reached)
        return [Factor((parent.place,), logarithm(counts))]
    groups, shares = coarsenings[parent.number].groups, coarsenings[parent.number].shares()
    weights = np.zeros((coarsenings[parent.number].size, last))
    for code, (rows, weight) in enumerate(zip(table.rows, table.weights, strict=True)):
        for at in range(rows):
            weights[groups[code], min(at, last - 1)] += shares[code] * weight / table.unit_weight
    return [Factor((parent.number, parent.place), logarithm(weights, none=True))]


def _structural_zeros(first: FirstChildModel, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    factors = []
    for (number, name), cells in first.impossible().items():
        out = np.zeros((coarsenings[number].size, coarsenings[name].size), dtype=np.bool_)
        rows, columns = np.nonzero(cells)
        out[coarsenings[number].groups[rows], coarsenings[name].groups[columns]] = True
        factors.append(Factor((number, name), np.where(out, -np.inf, 0.0)))
    return factors
