"""Exact tables that are kept: one without a filter, over a few attributes, answers every question about them.

Which table a question is read off follows from the declared domain and the question alone, and which tables are
there from earlier questions alone, so that keeping them tells nothing about the rows.  They belong to one encoded
table, which never changes: rows that changed are encoded again, under a new version, and counted anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NoReturn, TypeAlias, assert_never

import numpy as np

from sfumato.domain import Domain, Integer
from sfumato.domain.predicate import Predicate, named
from sfumato.engine.cell_statements import fixed_bounds, holds
from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.ledger.waiting import WAITING
from sfumato.vault.questions import Bins, Marginal, Moments, Sum, Units, cells

Table: TypeAlias = Marginal | Sum | Moments | Units | Bins
"""A question whose exact answer is a table of its own: marginals without groups, moments as sums of powers."""

CUBE_CELLS = 1 << 18  # counters of one table: more cost longer to sum than a pass over the rows is worth
_KEPT_CELLS = 1 << 24  # 128 MiB of counters in all: an adaptive method asks about the same marginals again and again


class Cubes:
    """Exact tables of one encoded table.  Only the vault's tallies hold them."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self._domain = encoded.domain
        self._kept: dict[Table, Counts] = {}  # the oldest first
        self._size = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "<exact tables, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact tables cannot be pickled or copied out of the vault")

    def tables(self, questions: Iterable[Table]) -> dict[Table, Counts]:
        """Exact tables, flat in C order; all marginals that are missing are counted in one pass a filter."""
        found: dict[Table, Counts] = {}
        missing: dict[Table, list[Table]] = {}
        for question in questions:
            source = cube(self._domain, question)
            table = self._held(source)
            if table is None:
                missing.setdefault(source, []).append(question)
            else:
                found[question] = read(self._domain, question, source, table)
        for source, table in self._counted(list(missing)) if missing else ():
            self._keep(source, table)
            found |= {question: read(self._domain, question, source, table) for question in missing[source]}
        return found

    def _counted(self, sources: list[Table]) -> list[tuple[Table, Counts]]:
        return WAITING.get().aside(lambda: list(self._count(sources)))

    def _count(self, sources: list[Table]) -> Iterator[tuple[Table, Counts]]:
        marginals = [source for source in sources if isinstance(source, Marginal)]
        for where in {source.where for source in marginals}:
            asked = [source for source in marginals if source.where == where]
            sealed = self._encoded.marginals([source.attributes for source in asked], where)
            yield from ((source, reveal(exact)) for source, exact in zip(asked, sealed, strict=True))
        for source in sources:
            match source:
                case Marginal():
                    continue
                case Sum(value=value, by=by, unit=unit, where=where):
                    exact = self._encoded.sums(value, by, unit, where)
                case Moments(value=value, by=by, unit=unit, degree=degree, where=where):
                    exact = self._encoded.moments(value, by, unit, degree, where)
                case Units(by=by, where=where):
                    exact = self._encoded.units(by, where)
                case Bins(value=value, edges=edges, by=by, where=where):
                    exact = self._encoded.bins(value, edges, by, where)
                case _:
                    assert_never(source)
            yield source, reveal(exact)

    def _held(self, source: Table) -> Counts | None:
        """What is kept of a table, or what can be summed from a kept one over more attributes."""
        kept = self._kept.get(source)
        if kept is not None or source.where is not None or isinstance(source, Units):
            return kept
        wanted, family = set(_by(source)), _over(source, ())
        for other, table in list(self._kept.items()):
            if other.where is None and wanted <= set(_by(other)) and _over(other, ()) == family:
                cube = table.reshape(*_shape(self._domain, _by(other)), -1)
                summed = _sliced(cube, _by(other), source, self._domain)
                self._keep(source, summed)
                return summed
        return None

    def _keep(self, source: Table, table: Counts) -> None:
        """Keep a table in the place of the oldest."""
        with self._lock:
            if source in self._kept or table.size > _KEPT_CELLS:
                return
            self._kept[source] = table
            self._size += table.size
            while self._size > _KEPT_CELLS:
                self._size -= self._kept.pop(next(iter(self._kept))).size


def cube(domain: Domain, question: Table) -> Table:
    """The table without a filter that holds the answer; the question itself where that would be too large.

    It is over the attributes of the groups and of the filter.  Whole numbers that are their own codes are counted,
    so that counts, sums and quantiles of them share one table.
    """
    if isinstance(question, Units):  # a unit in two cells is one unit: its counts do not add up
        return question
    axes = _ordered(domain, {*_by(question), *named(question.where)})
    width = _width(question)
    if not isinstance(question, Marginal):
        attribute = domain[question.value]
        finest = _ordered(domain, {*axes, question.value})
        if isinstance(attribute, Integer) and attribute.edges is None and cells(domain, finest) * width <= CUBE_CELLS:
            return Marginal(finest)
    return _over(question, axes) if cells(domain, axes) * width <= CUBE_CELLS else _plain(question)


def read(domain: Domain, question: Table, source: Table, table: Counts) -> Counts:
    """The table of a question from that of :func:`cube`, flat in C order."""
    if source == _plain(question):
        return table
    axes = _by(source)
    cube = table.reshape(*_shape(domain, axes), -1)
    if isinstance(source, Marginal) and not isinstance(question, Marginal | Units):
        terms = _terms(domain, question).reshape(
            *(-1 if name == question.value else 1 for name in axes), _width(question)
        )
        cube = cube * terms
    return _sliced(cube, axes, question, domain)


def _sliced(cube: Counts, axes: tuple[str, ...], question: Table, domain: Domain) -> Counts:
    """Sums over the cells that meet the filter, by the groups of the question; ``cube`` is (axes ..., numbers)."""
    if question.where is not None:
        cube = cube * _mask(question.where, axes, domain)[..., None]
    by = _by(question)
    kept = [name for name in axes if name in by]
    summed = cube.sum(axis=tuple(place for place, name in enumerate(axes) if name not in by))
    counts: Counts = summed.transpose(*(kept.index(name) for name in by), len(kept)).reshape(-1)
    return counts


def _mask(where: Predicate, axes: tuple[str, ...], domain: Domain) -> Counts:
    return holds(
        where,
        domain,
        lambda name: np.arange(domain[name].size).reshape([-1 if axis == name else 1 for axis in axes]),
    ).astype(np.int64)


def _terms(domain: Domain, question: Sum | Moments | Bins) -> Counts:
    """What a row adds to the numbers of a question by its code of the value: shape ``(codes, numbers)``."""
    attribute = domain[question.value]
    assert isinstance(attribute, Integer)
    numbers = np.arange(attribute.declared, dtype=np.float64) + attribute.minimum
    terms = np.zeros((attribute.size, _width(question)), dtype=np.int64)
    if isinstance(question, Bins):
        edges, last = np.array(question.edges), len(question.edges) - 2
        inside = np.flatnonzero((numbers >= edges[0]) & (numbers <= edges[-1]))
        terms[inside, np.minimum(np.searchsorted(edges, numbers[inside], side="right") - 1, last)] = 1
        return terms
    low, high = fixed_bounds(domain, question.value, question.unit)
    steps = np.rint(numbers * float(question.unit.denominator) / float(question.unit.numerator)).clip(low, high)
    if isinstance(question, Sum):
        terms[: attribute.declared, 0] = steps.astype(np.int64)
    else:
        terms[: attribute.declared] = (steps.astype(np.int64) - low)[:, None] ** np.arange(question.degree + 1)
    return terms


def _by(question: Table) -> tuple[str, ...]:
    return question.attributes if isinstance(question, Marginal) else question.by


def _over(question: Table, axes: tuple[str, ...]) -> Table:
    """The same question of all rows, over other groups."""
    return Marginal(axes) if isinstance(question, Marginal) else replace(question, by=axes, where=None)


def _plain(question: Table) -> Table:
    return Marginal(question.attributes, question.where) if isinstance(question, Marginal) else question


def _width(question: Table) -> int:
    """Numbers a cell."""
    match question:
        case Moments(degree=degree):
            return degree + 1
        case Bins(edges=edges):
            return len(edges) - 1
        case _:
            return 1


def _ordered(domain: Domain, names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=domain.index))


def _shape(domain: Domain, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(domain[name].size for name in names)
