"""Draw children slot by slot (all second children, all third ones, ...), given the parent and the previous child.

Marginals of the drawn children differ from the fitted marginals, because the previous child is drawn as well.  So the
potentials are calibrated first.  Children are drawn several times, and the potential of each measured marginal is
corrected by the log ratio of model and draw.  This reads only the public model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique
from sfumato.model.row_sampling import generator
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.child_dates import (
    DAY,
    STEADY,
    Codes,
    Dates,
    dates_after,
    first_dates,
    ordered_codes,
    ranks,
    weights_in_order,
)
from sfumato.synthesize.linked.conditional_sampling import ConditionalSampler

_MOST_MOVED = 1.0
_FALL = 0.25
_EARLY = 4  # the first rounds draw only this fraction of the units, because corrections are large

Slot = tuple[Codes, dict[str, Codes]]
"""The first rows that have a child in the slot, and the codes of these children by attribute."""


@dataclass(frozen=True)
class ChildSlots:
    """The children of units or parent rows, to be drawn from the model of next children.

    Attributes:
        linked: the tables.
        child: the table whose rows are drawn.
        fitted: the model of next children.
        first_rows: codes by attribute, one row for each unit or parent row: the known attributes, the number of
            children, the first child, and for nested tables the class of weights.
    """

    linked: LinkedTables
    child: ChildTable
    fitted: Graphical
    first_rows: Mapping[str, Codes]

    @staticmethod
    def alone(
        linked: LinkedTables, child: ChildTable, first_rows: Mapping[str, Codes], random: np.random.Generator
    ) -> list[Slot]:
        """Return the first children as the only slot, if there are no next children."""
        rows = np.flatnonzero(first_rows[child.number] + linked.least_children(child) >= 1)
        first_codes = {each.name: first_rows[child.named("first", each.name)][rows] for each in child.table.attributes}
        if child.dated and child.order is not None:
            days = first_rows[DAY][rows] if DAY in first_rows else None
            first_codes[child.order] = _dated(linked, child, first_codes[child.order], days, random)
        return [(rows, first_codes)]

    @property
    def numbers(self) -> Codes:
        """Return the number of children of each first row."""
        return self.first_rows[self.child.number] + self.linked.least_children(self.child)

    @property
    def drawn(self) -> frozenset[str]:
        """Return the attributes of a child."""
        return frozenset(self.child.named("this", each.name) for each in self.child.table.attributes)

    @property
    def weights(self) -> FloatArray:
        """Return the weight of a next child of each first row, in units."""
        table = self.linked.next_child(self.child)
        assert table is not None
        codes = self.first_rows[table.number] if table.number == self.child.rows else np.maximum(self.numbers - 2, 0)
        return np.array(table.weights)[codes] / table.unit_weight

    def first_units(self, many: int) -> ChildSlots:
        """Return the same slots with only the first ``many`` rows."""
        return replace(self, first_rows={name: codes[:many] for name, codes in self.first_rows.items()})

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Yield slots from the second on: the first rows with a child in the slot, and groups of all attributes."""
        child, numbers = self.child, self.numbers
        names = [each.name for each in child.plain]
        this = [child.named("this", name) for name in names]
        dates = Dates(child, self._first_dates(random)) if child.dated else None
        free = [*this, *([] if dates is None else [dates.this])]
        sizes = {**model.sizes, **({} if dates is None else dates.sizes)}
        sampler = ConditionalSampler([*model.factors, *([] if dates is None else dates.factors)], sizes, free)
        parents = self._parents()
        number = self.fitted.coarsenings[child.number].groups
        before: dict[str, Codes] = {}
        previous = {
            name: self.fitted.coarsenings[child.named("this", name)].groups[self._first(name)] for name in names
        }
        if child.memory > 1:
            none = {name: self.fitted.coarsenings[child.named("before", name)].size - 1 for name in names}
            before = {name: np.full(len(numbers), none[name]) for name in names}
        last = min(child.most, PLACES + 1)
        for slot in range(2, int(numbers.max(initial=1)) + 1):
            rows = np.flatnonzero(numbers >= slot)
            known = {name: codes[rows] for name, codes in parents.items()}
            known[child.number] = number[numbers[rows] - 2]
            known[f"{child.table.name}.place"] = np.full(len(rows), min(slot, last) - 2)
            known[f"{child.table.name}.last"] = (numbers[rows] == slot).astype(np.int64)
            known |= {child.named("previous", name): previous[name][rows] for name in names}
            known |= {child.named("before", name): before[name][rows] for name in before}
            if dates is not None:
                known |= dates.known(rows)
            drawn = sampler.draw(known, len(rows), random)
            if dates is not None:
                dates.move_on(rows, drawn[dates.this], random)
                known[DAY] = dates.days[rows]
            yield rows, {**known, **drawn}
            for name, of in zip(names, this, strict=True):
                if before:
                    before[name][rows] = previous[name][rows]
                previous[name][rows] = drawn[of]

    def codes(self, model: GraphicalModel, random: np.random.Generator, *, units: int) -> Iterator[Slot]:
        """Yield slots from the first on: the first rows with a child in the slot, and codes of the child.

        The weights of codes in order are calibrated on at most ``units`` first rows.
        """
        child = self.child
        rows = np.flatnonzero(self.numbers >= 1)
        names = [each.name for each in child.table.attributes]
        previous = {name: self._first(name) for name in names}
        seed = int(random.integers(1 << 62))
        if child.dated and child.order is not None:
            previous[child.order] = self._first_dates(generator(seed))
        yield rows, {name: previous[name][rows] for name in names}
        rank = ranks(child)
        in_order = self.first_units(units).weighted_in_order(model, random)
        for slot, groups in self.groups(model, generator(seed)):  # equal seeds give equal first dates
            codes_of = {}
            for name in names:
                if child.dated and name == child.order:
                    codes_of[name] = groups[DAY]
                    continue
                of = child.named("this", name)
                held = self.fitted.coarsenings[of]
                if name == child.order and rank is not None:
                    codes_of[name] = ordered_codes(rank, in_order or held, groups[of], previous[name][slot], random)
                else:
                    codes_of[name] = np.asarray(held.expand(groups[of], random), dtype=np.int64)
            yield slot, codes_of
            for name in names:
                previous[name][slot] = codes_of[name]

    def weighted_in_order(self, model: GraphicalModel, random: np.random.Generator) -> Coarsening | None:
        """Return the groups of the attribute that orders children, with weights for codes in order.

        The result is None if nothing orders the codes within a group.
        """
        rank = ranks(self.child)
        if rank is None or self.child.order is None:
            return None
        of = self.child.named("this", self.child.order)
        held, weights = self.fitted.coarsenings[of], self.weights
        if held.size == len(held.groups):
            return None
        slots = [(rows, groups[of], weights[rows]) for rows, groups in self.groups(model, random)]
        return weights_in_order(rank, held, slots, self._first(self.child.order), random)

    def _first(self, name: str) -> Codes:
        """Return codes of the first child; rows without a child have an arbitrary code."""
        codes = self.first_rows[self.child.named("first", name)].copy()
        codes[self.numbers < 1] = 0
        return codes

    def _first_dates(self, random: np.random.Generator) -> Codes:
        """Draw codes of the date of the first child within its cell; rows without a child have an arbitrary code."""
        return _dated(self.linked, self.child, self._first(self.child.order or ""), self.first_rows.get(DAY), random)

    def _parents(self) -> dict[str, Codes]:
        named = [each.name for each in self.linked.known_attributes(self.child)]
        return {name: self.fitted.coarsenings[name].groups[self.first_rows[name]] for name in named}


def _dated(
    linked: LinkedTables, child: ChildTable, cells: Codes, days: Codes | None, random: np.random.Generator
) -> Codes:
    """Draw codes of first dates within their cells, or within cells of the distance from the parent's date."""
    if days is None or linked.periods_between(child) is None:
        return first_dates(child, cells, random)
    return dates_after(linked, child, cells, days, random)


class Drawable(Protocol):
    """A model from which rows are drawn given other rows, in groups of codes."""

    @property
    def fitted(self) -> Graphical:
        """Return the fitted model."""
        ...

    @property
    def drawn(self) -> frozenset[str]:
        """Return the attributes that are drawn."""
        ...

    @property
    def weights(self) -> FloatArray:
        """Return the weight of the rows that are drawn for each given row, in units."""
        ...

    def first_units(self, many: int) -> Drawable:
        """Return the same with only the first ``many`` given rows."""
        ...

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Yield given rows with the groups of all attributes, drawn and given."""
        ...


def calibrated(slots: Drawable, random: np.random.Generator, *, times: int, units: int) -> GraphicalModel:
    """Return the model with potentials under which drawn children reproduce the fitted marginals.

    Each measured marginal of the drawn children is compared with the fitted one, which is rescaled within each cell of
    the given attributes.  The potential is corrected by the logarithm of the ratio.  Corrections fall with every round,
    and with the number of marginals that share an attribute.  The first half of the rounds draws fewer units.

    Noisy marginals contradict each other if the given attributes are not as the model expects.  A last round corrects
    single attributes only, because the error of a column is in every pair with it.  It corrects at most what noise
    explains: the rest is an error of the model, which other marginals describe better.
    """
    model, this = slots.fitted.model, slots.drawn
    if not times:
        return model
    cliques = list(dict.fromkeys(each.attributes for each in slots.fitted.measured))
    cliques = [clique for clique in cliques if this & set(clique)]
    shared = {clique: max(sum(name in other for other in cliques) for name in this & set(clique)) for clique in cliques}
    fitted = {clique: model.probabilities(clique).values for clique in cliques}
    for time in range(times):
        some = slots.first_units(units if 2 * time + 1 >= times else -(-units // _EARLY))
        step = 1 / (1 + _FALL * time)
        moved = _corrections(some, model, fitted, random)
        model = _corrected(model, {clique: table * (step / shared[clique]) for clique, table in moved.items()})
    alone: dict[Clique, FloatArray] = {clique: table for clique, table in fitted.items() if len(clique) == 1}
    moved = _corrections(slots.first_units(units), model, alone, random)
    most = {clique: _relative_noise(slots.fitted, clique) for clique in moved}
    return _corrected(model, {clique: np.clip(table, -most[clique], most[clique]) for clique, table in moved.items()})


def _corrections(
    slots: Drawable, model: GraphicalModel, fitted: Mapping[Clique, FloatArray], random: np.random.Generator
) -> dict[Clique, FloatArray]:
    """Return the corrections of the potentials of fitted marginals, from children drawn once."""
    weights = slots.weights
    drawn = [(weights[rows], groups) for rows, groups in slots.groups(model, random)]
    if not drawn:
        return {}
    weight = np.concatenate([each for each, _ in drawn])
    columns = {name: np.concatenate([groups[name] for _, groups in drawn]) for name in drawn[0][1]}
    return {
        clique: _correction(clique, table, _weighted_counts(clique, columns, weight, model.sizes), slots.drawn)
        for clique, table in fitted.items()
    }


def _relative_noise(fitted: Graphical, clique: Clique) -> FloatArray:
    """Return the standard deviation of the noise on each group of a measured column, relative to the fitted count."""
    deviation = min(each.deviation for each in fitted.measured if each.attributes == clique)
    groups = fitted.coarsenings[clique[0]]
    codes = groups.merge(np.ones(len(groups.groups)))
    relative: FloatArray = deviation * np.sqrt(codes) / np.maximum(fitted.model.expected(clique), deviation)
    return relative


def _weighted_counts(
    clique: Clique, columns: Mapping[str, Codes], weight: FloatArray, sizes: Mapping[str, int]
) -> FloatArray:
    shape = [sizes[name] for name in clique]
    cells = np.zeros(len(weight), dtype=np.int64)
    for name, size in zip(clique, shape, strict=True):
        cells *= size
        cells += columns[name]
    counts: FloatArray = np.bincount(cells, weights=weight, minlength=int(np.prod(shape))).astype(np.float64)
    return counts.reshape(shape)


def _correction(clique: Clique, fitted: FloatArray, counts: FloatArray, this: frozenset[str]) -> FloatArray:
    axes = tuple(axis for axis, name in enumerate(clique) if name in this)
    expected = fitted.sum(axis=axes, keepdims=True)
    target = fitted * np.divide(
        counts.sum(axis=axes, keepdims=True), expected, out=np.zeros_like(expected), where=expected > 0
    )
    moved: FloatArray = np.clip(np.log((target + STEADY) / (counts + STEADY)), -_MOST_MOVED, _MOST_MOVED)
    return moved


def _corrected(model: GraphicalModel, corrections: Mapping[Clique, FloatArray]) -> GraphicalModel:
    places = {factor.attributes: place for place, factor in enumerate(model.factors)}
    factors: list[Factor] = list(model.factors)
    for clique, correction in corrections.items():
        if clique in places:
            factors[places[clique]] = Factor(clique, factors[places[clique]].values + correction)
        else:
            factors.append(Factor(clique, correction))
    return replace(model, factors=tuple(factors))


def stacked(slots: Sequence[Slot], names: Sequence[str]) -> tuple[Codes, dict[str, Codes]]:
    """Stack slots as rows of one table, unit by unit and in order: numbers of first rows, and codes by attribute."""
    units = np.concatenate([rows for rows, _ in slots])
    order = np.argsort(units, kind="stable")
    return units[order], {name: np.concatenate([codes[name] for _, codes in slots])[order] for name in names}
