"""Exact answers inside the vault: one pass over the rows answers many questions, and its tables are cached.

A table without a filter, over a few attributes, answers every question about them.  The table of a question follows
from the declared domain and the question alone.  The cached tables follow from earlier questions alone.  So the cache
tells nothing about the rows.  The tables belong to one encoded table, which never changes: changed rows are encoded
again under a new version.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from sfumato.domain import Domain, Integer
from sfumato.domain.predicate import All, Among, Predicate, holds_at_cells, named
from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.vault.measurables import ExactTable, Marginal, Measurable, cells, shape_of
from sfumato.vault.value_measurables import Bins

CUBE_CELLS = 1 << 18  # counters of one table: a pass over the rows is faster than the sum of more
_CACHE_BYTES = 1 << 27  # per encoded table: adaptive methods ask about the same marginals often
_ENTRY_BYTES = 1_000  # without the counters and the condition


def _source(question: Measurable, finest: Mapping[Bins, Bins]) -> ExactTable:
    return finest[question.table()] if finest and isinstance(question, Bins) else question.table()


def _finest(questions: Sequence[Measurable]) -> dict[Bins, Bins]:
    """Map each question about bins to the one with the most edges that refines it."""
    distinct = sorted(
        {question.table() for question in questions if isinstance(question, Bins)}, key=lambda bins: -len(bins.edges)
    )
    return {bins: next(other for other in distinct if other.refines(bins)) for bins in distinct}


class ExactTables:
    """The exact tables and answers of one encoded table.  Only the mechanisms of the vault hold one."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._domain = encoded.domain
        self._cache: dict[ExactTable, Counts] = {}  # the oldest first
        self._bytes = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "<exact tables, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact tables cannot be pickled or copied out of the vault")

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Return exact answers, in order."""
        finest = _finest(questions)
        tables = self.tables({_source(question, finest) for question in questions})
        return [self._answer(question, finest, tables) for question in questions]

    def uncached_bins(self, question: Bins) -> Counts:
        """Return exact bins without caching them, because their edges follow from exact answers."""
        return reveal(question.count(self.encoded))

    def _answer(self, question: Measurable, finest: Mapping[Bins, Bins], tables: Mapping[ExactTable, Counts]) -> Counts:
        source = _source(question, finest)
        if finest and isinstance(question, Bins) and isinstance(source, Bins):
            return question.finish(self._domain, source.coarser(tables[source], question))
        return question.finish(self._domain, tables[source])

    @property
    def held_bytes(self) -> int:
        """Bytes of the cached tables and of their questions."""
        return self._bytes

    def contains(self, question: ExactTable) -> bool:
        """Return whether the table of a question is cached."""
        return question in self._cache

    def tables(self, questions: Iterable[ExactTable]) -> dict[ExactTable, Counts]:
        """Return exact tables, flat in C order; count the missing marginals of each filter in one pass."""
        results: dict[ExactTable, Counts] = {}
        missing: dict[ExactTable, list[ExactTable]] = {}
        for question in questions:
            source = cube(self._domain, question)
            table = self._held(source)
            if table is None:
                missing.setdefault(source, []).append(question)
            else:
                results[question] = table_from_cube(self._domain, question, source, table)
        for source, table in self._count(list(missing)):
            self._store(source, table)
            results |= {
                question: table_from_cube(self._domain, question, source, table) for question in missing[source]
            }
        return results

    def _count(self, sources: list[ExactTable]) -> Iterator[tuple[ExactTable, Counts]]:
        marginals = [source for source in sources if isinstance(source, Marginal)]
        for where in {source.where for source in marginals}:
            same_condition = [source for source in marginals if source.where == where]
            sealed = self.encoded.marginals([source.attributes for source in same_condition], where)
            yield from ((source, reveal(exact)) for source, exact in zip(same_condition, sealed, strict=True))
        for source in sources:
            if not isinstance(source, Marginal):
                yield source, reveal(source.count(self.encoded))

    def _held(self, source: ExactTable) -> Counts | None:
        """Return the cached table of a question, or its sum from a cached table over more attributes."""
        cached = self._cache.get(source)
        if cached is not None or source.where is not None or not source.adds_up:
            return cached
        axes, family = set(source.axes), source.moved_to(())
        for other, table in list(self._cache.items()):
            if other.where is None and other.adds_up and axes <= set(other.axes) and other.moved_to(()) == family:
                cube = table.reshape(*shape_of(self._domain, other.axes), -1)
                summed = _sliced(cube, other.axes, source, self._domain)
                self._store(source, summed)
                return summed
        return None

    def _store(self, source: ExactTable, table: Counts) -> None:
        """Cache a table instead of the oldest, unless it depends on more than the encoded rows."""
        with self._lock:
            size = _weight(source, table)
            if source in self._cache or size > _CACHE_BYTES or not source.encoded_rows:
                return
            self._cache[source] = table
            self._bytes += size
            while self._bytes > _CACHE_BYTES:
                oldest = next(iter(self._cache))
                self._bytes -= _weight(oldest, self._cache.pop(oldest))


def _weight(source: ExactTable, table: Counts) -> int:
    return table.nbytes + _ENTRY_BYTES + (0 if source.where is None else source.where.held_bytes)


def cube(domain: Domain, question: ExactTable) -> ExactTable:
    """Return the table without a filter that holds the answer, or the question's own if that is too large.

    The table is over the attributes of the groups and of the filter.  Integers that are their own codes are counted,
    so that their counts, sums and quantiles share one table.
    """
    if not question.adds_up:
        return question
    axes = _in_domain_order(domain, {*question.axes, *named(question.where)})
    if question.decided_by is not None:
        attribute = domain[question.decided_by]
        finest = _in_domain_order(domain, {*axes, question.decided_by})
        codes = isinstance(attribute, Integer) and attribute.edges is None
        if codes and cells(domain, finest) * question.width <= CUBE_CELLS:
            return Marginal(finest)
    return question.moved_to(axes) if cells(domain, axes) * question.width <= CUBE_CELLS else question.table()


def table_from_cube(domain: Domain, question: ExactTable, source: ExactTable, table: Counts) -> Counts:
    """Return the table of a question from the table of :func:`cube`, flat in C order."""
    if source == question.table():
        return table
    axes = source.axes
    cube = table.reshape(*shape_of(domain, axes), -1)
    if isinstance(source, Marginal) and question.decided_by is not None:
        sizes = (-1 if name == question.decided_by else 1 for name in axes)
        cube = cube * question.terms(domain).reshape(*sizes, question.width)
    return _sliced(cube, axes, question, domain)


def _sliced(cube: Counts, axes: tuple[str, ...], question: ExactTable, domain: Domain) -> Counts:
    """Sum the cells that meet the filter by the groups of the question; ``cube`` is (axes ..., numbers)."""
    by = question.axes
    if question.where is not None:
        box = _box(question.where, axes, by)
        cube = cube * holds_at_cells(question.where, axes, domain)[..., None] if box is None else cube[box]
    remaining = [name for name in axes if name in by]
    summed = cube.sum(axis=tuple(place for place, name in enumerate(axes) if name not in by))
    counts: Counts = summed.transpose(*(remaining.index(name) for name in by), len(remaining)).reshape(-1)
    return counts


def _box(where: Predicate, axes: tuple[str, ...], by: Sequence[str]) -> tuple[slice, ...] | None:
    """Return the cells of a condition with one range per summed attribute; None for other conditions."""
    ranges = {}
    for part in where.parts if isinstance(where, All) else (where,):
        if not isinstance(part, Among) or not part.codes or part.attribute in by or part.attribute in ranges:
            return None
        if len(part.codes.bounds) > 2:  # noqa: PLR2004  (the ends of one range)
            return None
        ranges[part.attribute] = slice(part.codes.first, part.codes.last + 1)
    return tuple(ranges.get(name, slice(None)) for name in axes)


def _in_domain_order(domain: Domain, names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=domain.index))
