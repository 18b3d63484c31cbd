"""The model of the own head of a child table: how many children a row has, and the first, given what is known of it.

It begins with what the model of the rows above says of them, and with what everybody knows.  Then the number and the
attributes of the first child are measured, and in rounds marginals with at least one of them, in weights of which a
unit has at most ``whole``, as :mod:`sfumato.synthesize.linked.next_child` does for further children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.linked_domain import PLACES, ChildTable, DerivedTable, LinkedTables
from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, Coarsening, identity
from sfumato.model.factor import Factor
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.budget_allocation import BudgetSplit
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import Fit, coarsen
from sfumato.synthesize.linked.child_measures import DerivedMeasures
from sfumato.synthesize.linked.next_child import (
    ALONE,
    SEEN,
    Drawn,
    from_head,
    in_rounds,
    logarithm,
    observed,
    one_group,
    regrouped,
    renumbered,
    started,
    with_rows,
    without_last,
)
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal, Measurement


@dataclass(frozen=True)
class FirstChildModel:
    """The own head of a child table, and the model that the first of the rows above is an attribute of.

    Attributes:
        related: the tables.
        child: whose rows belong to those of another child table.
        source: the head of the units, or the own head of the table above.
    """

    related: LinkedTables
    child: ChildTable
    source: Graphical

    @property
    def above(self) -> ChildTable:
        """The table of the rows that have the children."""
        above = self.related.above(self.child)
        assert above is not None
        return above

    @property
    def table(self) -> DerivedTable:
        """What is counted."""
        table = self.related.opening(self.child)
        assert table is not None
        return table

    @property
    def drawn(self) -> tuple[str, ...]:
        """How many children, and the attributes of the first."""
        return first_names(self.child)

    def in_source(self) -> dict[str, str]:
        """The source's attribute of each attribute that is known of a row."""
        above = self.above
        attributes = {each.name: each.name for each in self.related.evidence(above)}
        attributes |= {above.named("this", each.name): above.named("first", each.name) for each in above.plain}
        return attributes | ({above.number: above.number} if self.table.number == above.number else {})

    def impossible(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Cells of the number and an attribute of the first child that no row is in: see :func:`barred_firsts`."""
        return barred_firsts(self.related, self.child)


def first_names(child: ChildTable) -> tuple[str, ...]:
    """The attributes of a head that say how many children there are, and what the first is."""
    return child.number, *(child.named("first", each.name) for each in child.table.attributes)


def barred_firsts(related: LinkedTables, child: ChildTable) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Cells of the number of children and an attribute of the first that nobody is in: a first child where there is
    none, none where there is one, or further ones after what is final.
    """
    barred, least = {}, related.least(child)
    for each in child.table.attributes:
        dated = child.dated and each.name == child.order
        size = (sum(related.first_cells(child)) if dated else each.size) + (least == 0)
        cells = np.zeros((child.most + 1 - least, size), dtype=np.bool_)
        if least == 0:
            cells[0, :-1] = cells[1:, -1] = True
        if child.final is not None and child.final[0] == each.name:
            cells[2 - least :, child.final_code] = True
        if cells.any():
            barred[child.number, child.named("first", each.name)] = cells
    return barred


def fit_first_child(
    mechanisms: Mechanisms, loss: Epsilon | Rho, opening: FirstChildModel, *, limits: SizeLimits
) -> tuple[Graphical, bool]:
    """The model of the own head of a child table, at ``loss``, and whether anything could be told of it.

    Neighbours, sensitivity and noise are those of :mod:`sfumato.vault.unit_measurables`.
    """
    derived = DerivedMeasures(mechanisms, opening.table)
    split = BudgetSplit(loss, opening.table.whole)
    state, seen = _begin(derived, split, opening)
    if not seen:
        return state.released(opening.table.domain), False
    drawn = Drawn(frozenset(opening.drawn), frozenset(), opening.drawn)
    return in_rounds(derived, split, state, drawn=drawn, limits=limits), True


def _begin(derived: DerivedMeasures, split: BudgetSplit, opening: FirstChildModel) -> tuple[Fit, bool]:
    """What is known before anything of a child is measured with others, and its single attributes."""
    parts = split.shares([derived.domain[name].size for name in opening.drawn])
    asked = [Marginal((name,)) for name in opening.drawn]
    answers = derived.measure(asked, split.take(ALONE), shares=parts)
    measured = dict(zip(opening.drawn, answers, strict=True))
    total = float(measured[opening.child.number].values.sum())
    seen = total > SEEN * max(each.standard_error for each in answers)
    coarsenings = _coarsenings(derived, opening, measured)
    above, source = opening.above, opening.source
    given = with_rows(opening.related, above, source, 1)
    factors = [
        *_places(opening, coarsenings),
        *from_head(given, opening.in_source(), partial(regrouped, source, coarsenings)),
        *_barred(opening, coarsenings),
    ]
    if not seen:  # nobody has any
        none = np.arange(coarsenings[opening.child.number].size) != coarsenings[opening.child.number].groups[0]
        factors.append(Factor((opening.child.number,), np.where(none, -np.inf, 0.0)))
    observations = tuple(observed(name, coarsenings[name], answer) for name, answer in measured.items())
    return started(coarsenings, factors, measured, observations if seen else (), total), seen


def _coarsenings(
    derived: DerivedMeasures, opening: FirstChildModel, measured: Mapping[str, Measurement]
) -> dict[str, Coarsening]:
    above, source = opening.above, opening.source
    apart: dict[str, NDArray[np.int64]] = {}
    for names, cells in opening.impossible().items():
        for axis, name in enumerate(names):
            rows = np.unique(np.moveaxis(cells, axis, 0), axis=0, return_inverse=True)[1].reshape(-1)
            apart[name] = apart.get(name, 0) * (int(rows.max()) + 1) + rows
    coarsenings: dict[str, Coarsening] = {}
    for name, of in opening.in_source().items():
        groups = source.coarsenings[of]
        if name == above.number:
            counts = source.cells((name,))[1 - opening.related.least(above) :]
            coarsenings[name] = renumbered(groups.groups[-len(counts) :], counts)
        else:
            coarsenings[name] = groups if name == of else without_last(groups, derived.domain[name].size)
    for name in derived.domain.names:
        if name in measured:
            attribute = derived.domain[name]
            coarsenings[name] = coarsen(
                derived.domain, attribute, measured[name], apart.get(name), max_deviations=MAX_GROUP_DEVIATIONS
            )
        elif name not in coarsenings:
            size = derived.domain[name].size
            coarsenings[name] = one_group(size) if name == above.rows else identity(size)
    return {name: coarsenings[name] for name in derived.domain.names}


def _places(opening: FirstChildModel, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """What everybody knows: which places there are among so many rows, and what these weigh."""
    above, table = opening.above, opening.table
    last = min(above.most, PLACES + 1)
    if table.number != above.number:
        numbers = opening.source.cells((above.number,))[1 - opening.related.least(above) :]
        reached = np.cumsum(numbers[::-1])[::-1]  # rows that have so many siblings at least
        counts = np.zeros(last)
        np.add.at(counts, np.minimum(np.arange(len(reached)), last - 1), reached)
        return [Factor((above.place,), logarithm(counts))]
    groups, shares = coarsenings[above.number].groups, coarsenings[above.number].shares()
    weights = np.zeros((coarsenings[above.number].size, last))
    for code, (rows, weight) in enumerate(zip(table.rows, table.weights, strict=True)):
        for at in range(rows):
            weights[groups[code], min(at, last - 1)] += shares[code] * weight / table.whole
    return [Factor((above.number, above.place), logarithm(weights, none=True))]


def _barred(opening: FirstChildModel, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    factors = []
    for (number, name), cells in opening.impossible().items():
        out = np.zeros((coarsenings[number].size, coarsenings[name].size), dtype=np.bool_)
        rows, columns = np.nonzero(cells)
        out[coarsenings[number].groups[rows], coarsenings[name].groups[columns]] = True
        factors.append(Factor((number, name), np.where(out, -np.inf, 0.0)))
    return factors
