"""Children slot by slot: all second children, all third ones, .., each given the parent and the child before it.

What the children of the rows drawn say of a marginal differs from what the fitted model says, as the child before is
one that was drawn.  So the potentials are corrected before the rows are made: the tails of the rows are drawn several
times, and each potential of a measured marginal is moved by what it lacks.  This reads nothing but the public model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique
from sfumato.model.row_sampling import generator
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.child_dates import DAY, Codes, Dates, dates_after, first_dates, ordered_codes, ranks
from sfumato.synthesize.linked.conditional_sampling import ConditionalSampler

_STEADY = 2.0  # rows that stand beside both counts when they are compared
_MOST_MOVED = 1.0
_FALL = 0.25
_EARLY = 4  # of the units a part is drawn as long as the moves are large

Slot = tuple[Codes, dict[str, Codes]]
"""Rows of the head that have a child there, and codes of these children by attribute."""


@dataclass(frozen=True)
class ChildSlots:
    """The children of rows of a head, to be drawn from the model of their tail.

    Attributes:
        related: the tables.
        child: whose rows are drawn.
        tail: the model.
        head: codes of the rows of the head, by attribute: of that of the units, or of the own head of the child table,
            and then of the attribute that says what further children weigh.
    """

    related: LinkedTables
    child: ChildTable
    tail: Graphical
    head: Mapping[str, Codes]

    @staticmethod
    def alone(
        related: LinkedTables, child: ChildTable, head: Mapping[str, Codes], random: np.random.Generator
    ) -> list[Slot]:
        """The first children, where a unit has no others."""
        rows = np.flatnonzero(head[child.number] + related.least(child) >= 1)
        first_codes = {each.name: head[child.named("first", each.name)][rows] for each in child.table.attributes}
        if child.dated and child.order is not None:
            days = head[DAY][rows] if DAY in head else None
            first_codes[child.order] = _dated(related, child, first_codes[child.order], days, random)
        return [(rows, first_codes)]

    @property
    def numbers(self) -> Codes:
        """Children of each row of the head."""
        return self.head[self.child.number] + self.related.least(self.child)

    @property
    def drawn(self) -> frozenset[str]:
        """The attributes of a child."""
        return frozenset(self.child.named("this", each.name) for each in self.child.table.attributes)

    @property
    def weights(self) -> FloatArray:
        """What a further child of each row of the head weighs, in units."""
        table = self.related.tail(self.child)
        assert table is not None
        codes = self.head[table.number] if table.number == self.child.rows else np.maximum(self.numbers - 2, 0)
        return np.array(table.weights)[codes] / table.whole

    def first_units(self, many: int) -> ChildSlots:
        """The same of the first rows of the head alone."""
        return replace(self, head={name: codes[:many] for name, codes in self.head.items()})

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Slot by slot from the second: the rows of the head that have a child there, and groups of its tail."""
        child, numbers = self.child, self.numbers
        names = [each.name for each in child.plain]
        this = [child.named("this", name) for name in names]
        dates = Dates(child, self._first_dates(random)) if child.dated else None
        free = [*this, *([] if dates is None else [dates.this])]
        sizes = {**model.sizes, **({} if dates is None else dates.sizes)}
        sampler = ConditionalSampler([*model.factors, *([] if dates is None else dates.factors)], sizes, free)
        parents = self._parents()
        number = self.tail.coarsenings[child.number].groups
        before: dict[str, Codes] = {}
        previous = {name: self.tail.coarsenings[child.named("this", name)].groups[self._first(name)] for name in names}
        if child.memory > 1:
            none = {name: self.tail.coarsenings[child.named("before", name)].size - 1 for name in names}
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
                known |= dates.evidence(rows)
            drawn = sampler.draw(known, len(rows), random)
            if dates is not None:
                dates.go_on(rows, drawn[dates.this], random)
                known[DAY] = dates.days[rows]
            yield rows, {**known, **drawn}
            for name, of in zip(names, this, strict=True):
                if before:
                    before[name][rows] = previous[name][rows]
                previous[name][rows] = drawn[of]

    def codes(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Slot by slot from the first: the rows of the head that have a child there, and codes of the child."""
        child = self.child
        rows = np.flatnonzero(self.numbers >= 1)
        names = [each.name for each in child.table.attributes]
        previous = {name: self._first(name) for name in names}
        seed = int(random.integers(1 << 62))
        if child.dated and child.order is not None:
            previous[child.order] = self._first_dates(generator(seed))
        yield rows, {name: previous[name][rows] for name in names}
        rank = ranks(child)
        for slot, groups in self.groups(model, generator(seed)):  # which draws the same first dates
            codes_of = {}
            for name in names:
                if child.dated and name == child.order:
                    codes_of[name] = groups[DAY]
                    continue
                of = child.named("this", name)
                held = self.tail.coarsenings[of]
                if name == child.order and rank is not None:
                    codes_of[name] = ordered_codes(rank, held, groups[of], previous[name][slot], random)
                else:
                    codes_of[name] = np.asarray(held.expand(groups[of], random), dtype=np.int64)
            yield slot, codes_of
            for name in names:
                previous[name][slot] = codes_of[name]

    def _first(self, name: str) -> Codes:
        """Codes of the first child; of rows without any, any code."""
        codes = self.head[self.child.named("first", name)].copy()
        codes[self.numbers < 1] = 0
        return codes

    def _first_dates(self, random: np.random.Generator) -> Codes:
        """Codes of the date of the first child, drawn within its cell; of rows without any child, any."""
        return _dated(self.related, self.child, self._first(self.child.order or ""), self.head.get(DAY), random)

    def _parents(self) -> dict[str, Codes]:
        named = [each.name for each in self.related.evidence(self.child)]
        return {name: self.tail.coarsenings[name].groups[self.head[name]] for name in named}


def _dated(
    related: LinkedTables, child: ChildTable, cells: Codes, days: Codes | None, random: np.random.Generator
) -> Codes:
    """Codes of first dates, within their cells, or within those of their distance from the dates of the rows above."""
    if days is None or related.apart(child) is None:
        return first_dates(child, cells, random)
    return dates_after(related, child, cells, days, random)


class Drawable(Protocol):
    """Rows that are drawn from a model given others, in groups of their codes."""

    @property
    def tail(self) -> Graphical:
        """The model."""
        ...

    @property
    def drawn(self) -> frozenset[str]:
        """The attributes that are drawn."""
        ...

    @property
    def weights(self) -> FloatArray:
        """What is drawn for each given row weighs, in units."""
        ...

    def first_units(self, many: int) -> Drawable:
        """The same of some of the given rows alone."""
        ...

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Given rows, and groups of what is drawn for each, with those that it is drawn by."""
        ...


def calibrated(slots: Drawable, random: np.random.Generator, *, times: int, units: int) -> GraphicalModel:
    """The tail's model with potentials under which the children that are drawn hold what was measured of them.

    Each measured marginal S of the children drawn is compared with that of the fitted model, rescaled within each cell
    of its evidence to S, and its potential is moved by the logarithm of the ratio, less with every time and the more
    marginals share an attribute.  The first half of the times draws fewer units.
    """
    model, this = slots.tail.model, slots.drawn
    cliques = list(dict.fromkeys(each.attributes for each in slots.tail.measured))
    cliques = [clique for clique in cliques if this & set(clique)]
    shared = {clique: max(sum(name in other for other in cliques) for name in this & set(clique)) for clique in cliques}
    fitted = {clique: model.probabilities(clique).values for clique in cliques}
    for time in range(times):
        some = slots.first_units(units if 2 * time + 1 >= times else -(-units // _EARLY))
        weights = some.weights
        drawn = [(weights[rows], groups) for rows, groups in some.groups(model, random)]
        if not drawn:
            return model
        weight = np.concatenate([each for each, _ in drawn])
        columns = {name: np.concatenate([groups[name] for _, groups in drawn]) for name in drawn[0][1]}
        step = 1 / (1 + _FALL * time)
        moves = {
            clique: _move(clique, fitted[clique], _counted(clique, columns, weight, model.sizes), this)
            * (step / shared[clique])
            for clique in cliques
        }
        model = _moved(model, moves)
    return model


def _counted(clique: Clique, columns: Mapping[str, Codes], weight: FloatArray, sizes: Mapping[str, int]) -> FloatArray:
    shape = [sizes[name] for name in clique]
    cells = np.zeros(len(weight), dtype=np.int64)
    for name, size in zip(clique, shape, strict=True):
        cells *= size
        cells += columns[name]
    counts: FloatArray = np.bincount(cells, weights=weight, minlength=int(np.prod(shape))).astype(np.float64)
    return counts.reshape(shape)


def _move(clique: Clique, fitted: FloatArray, counts: FloatArray, this: frozenset[str]) -> FloatArray:
    axes = tuple(axis for axis, name in enumerate(clique) if name in this)
    wanted = fitted.sum(axis=axes, keepdims=True)
    target = fitted * np.divide(
        counts.sum(axis=axes, keepdims=True), wanted, out=np.zeros_like(wanted), where=wanted > 0
    )
    moved: FloatArray = np.clip(np.log((target + _STEADY) / (counts + _STEADY)), -_MOST_MOVED, _MOST_MOVED)
    return moved


def _moved(model: GraphicalModel, moves: Mapping[Clique, FloatArray]) -> GraphicalModel:
    places = {factor.attributes: place for place, factor in enumerate(model.factors)}
    factors: list[Factor] = list(model.factors)
    for clique, move in moves.items():
        if clique in places:
            factors[places[clique]] = Factor(clique, factors[places[clique]].values + move)
        else:
            factors.append(Factor(clique, move))
    return replace(model, factors=tuple(factors))


def stacked(slots: Sequence[Slot], names: Sequence[str]) -> tuple[Codes, dict[str, Codes]]:
    """Slots as rows of one table, unit by unit and in order within each: rows of the head, and codes by attribute."""
    units = np.concatenate([rows for rows, _ in slots])
    order = np.argsort(units, kind="stable")
    return units[order], {name: np.concatenate([codes[name] for _, codes in slots])[order] for name in names}
