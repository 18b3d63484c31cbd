"""Contingency tables: a choice of tables that yields many marginals in one pass, and counting queries as SQL.

Adding a row to a table takes about the same time for 3 attributes as for 6.  So one table over the union of several
cliques is tallied instead of the cliques, if it fits the processor's caches.  The cliques are then sums over axes of
these covers.

Statements read encoded rows: columns ``c0, c1, …`` of codes, ``v…`` of clamped numbers, ``u``.  Codes are never NULL,
so a condition is true or false for every row; on arrays it is the same.  Every statement returns one row per non-empty
cell, with ``cell``, its mixed-radix number, and ``total``, an integer.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Among, CodeRanges, Fold, Predicate
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoding import bin_number, real, vanishing
from sfumato.engine.port import Counts
from sfumato.errors import QueryError, SizeError

if TYPE_CHECKING:
    import pyarrow as pa


_Clique = tuple[int, ...]

COVER_CELLS = 1 << 15  # measured: larger covers are fewer, but leave the caches between batches
TOTAL_CELLS = 1 << 27  # 1 GiB of counters, and as much again for the result
_WINDOW = 4096  # cliques to consider when a cover grows: planning must be faster than tallying


@dataclass(frozen=True)
class CoverPlan:
    """Covers to tally, and the cover from which each clique is computed.

    Attributes:
        shape: the number of cells of every attribute of the domain.
        cliques: requested marginals, as positions in ``shape``.
        covers: the tallied tables, as increasing positions.
        source: for each clique, the index of the cover that contains it.
    """

    shape: tuple[int, ...]
    cliques: tuple[_Clique, ...]
    covers: tuple[_Clique, ...]
    source: tuple[int, ...]

    def cells(self, cover: int) -> int:
        """Return the number of cells of a cover."""
        return math.prod(self.shape[axis] for axis in self.covers[cover])

    def project(self, tables: Sequence[Counts]) -> tuple[Counts, ...]:
        """Return the marginals, flat in C order in the order of ``cliques``, from one flat table per cover."""
        return tuple(
            marginal(tables[index], self.covers[index], clique, self.shape)
            for clique, index in zip(self.cliques, self.source, strict=True)
        )


def marginal(table: Counts, cover: _Clique, clique: _Clique, shape: Sequence[int]) -> Counts:
    """Sum a flat table over ``cover`` to the axes of ``clique``, in the clique's own order."""
    cube = table.reshape([shape[axis] for axis in cover])
    summed = cube.sum(axis=tuple(place for place, axis in enumerate(cover) if axis not in clique))
    axes = [axis for axis in cover if axis in clique]
    return np.ascontiguousarray(summed.transpose([axes.index(axis) for axis in clique])).reshape(-1)


def plan_covers(cliques: Iterable[_Clique], shape: Sequence[int], *, cover_cells: int = COVER_CELLS) -> CoverPlan:
    """Choose covers for ``cliques`` over attributes of ``shape`` cells.

    Args:
        cliques: requested marginals, as positions in ``shape``.
        shape: the number of cells of every attribute.
        cover_cells: the largest size of a cover, unless a clique alone has more.

    Raises:
        SizeError: the marginals themselves need more than ``TOTAL_CELLS`` counters.

    >>> plan_covers([(0, 1), (1, 2), (2, 0)], (2, 3, 4)).covers
    ((0, 1, 2),)
    """
    cliques_in_order = tuple(cliques)
    shape = tuple(shape)
    total = sum(math.prod(shape[axis] for axis in clique) for clique in cliques_in_order)
    if total > TOTAL_CELLS:
        raise SizeError(
            f"these marginals have {total:,} cells, more than the {TOTAL_CELLS:,} that are counted at once; "
            "ask for fewer or smaller ones",
            culprit=cliques_in_order,
        )
    limit = cover_cells
    while True:
        covers = _covers({frozenset(clique) for clique in cliques_in_order}, shape, limit)
        if limit <= 1 or sum(math.prod(shape[axis] for axis in cover) for cover in covers) <= TOTAL_CELLS:
            break
        limit //= 4
    return CoverPlan(shape, cliques_in_order, covers, _sources(cliques_in_order, covers))


def _covers(cliques: set[frozenset[int]], shape: tuple[int, ...], limit: int) -> tuple[_Clique, ...]:
    """Grow the largest uncovered clique by the attribute that covers most others, until nothing fits."""
    order = sorted(cliques, key=lambda clique: (-math.prod(shape[axis] for axis in clique), sorted(clique)))
    arity = max(map(len, order), default=0)
    filler = len(shape)  # fills short cliques, and counts as covered
    waiting = np.array([[*clique, *[filler] * (arity - len(clique))] for clique in order], dtype=np.intp)
    sizes = np.asarray(shape, dtype=np.float64)
    covers = []
    while len(waiting):
        inside = np.zeros(len(shape) + 1, dtype=bool)
        inside[waiting[0]] = inside[filler] = True
        near = waiting[:_WINDOW]
        while True:
            outside = ~inside[near]
            completed = near[outside.sum(axis=1) == 1]  # cliques that one more attribute completes
            gain = np.bincount(completed.ravel(), minlength=len(inside))
            gain[inside] = 0
            gain = gain[:filler]
            gain[sizes * sizes[inside[:filler]].prod() > limit] = 0
            if not gain.any():
                break
            inside[np.lexsort((sizes, -gain))[0]] = True
        covers.append(tuple(int(axis) for axis in np.flatnonzero(inside[:filler])))
        waiting = waiting[~inside[waiting].all(axis=1)]
    return tuple(sorted(covers))


def _sources(cliques: tuple[_Clique, ...], covers: tuple[_Clique, ...]) -> tuple[int, ...]:
    """Return the smallest cover that contains each clique; covers are few enough for a full search."""
    member = [frozenset(cover) for cover in covers]
    by_axis: dict[int, set[int]] = {}
    for index, cover in enumerate(covers):
        for axis in cover:
            by_axis.setdefault(axis, set()).add(index)
    sources = []
    for clique in cliques:
        candidates = set.intersection(*(by_axis[axis] for axis in clique)) if clique else set(range(len(covers)))
        sources.append(min(candidates, key=lambda index: len(member[index])))
    return tuple(sources)


_Codes = NDArray[np.unsignedinteger]

_UNUSED = np.empty(0, dtype=np.uint8)
_SLICE = 1 << 15  # rows at a time, so that their keys stay in the second-level cache


class CoverCounts:
    """Running counts of the covers of a plan; tallies of disjoint rows add up."""

    def __init__(self, plan: CoverPlan) -> None:
        self._plan = plan
        self._used = sorted({axis for cover in plan.covers for axis in cover})
        # Keys fit 32 bits (``plan.TOTAL_CELLS``), which multiply twice as fast; indexing wants them wide again.
        self._wide = np.empty((len(plan.shape), _SLICE), dtype=np.int32)
        self._keys = np.empty((max(map(len, plan.covers), default=0), _SLICE), dtype=np.int32)
        self._index = np.empty(_SLICE, dtype=np.intp)
        self.tables: list[Counts] = [np.zeros(plan.cells(cover), dtype=np.int64) for cover in range(len(plan.covers))]

    def add(self, columns: Sequence[_Codes], rows: int) -> None:
        """Count a batch of rows.

        Args:
            columns: one array of codes per attribute of the domain, each of shape ``(rows,)``; arrays of attributes
                that no cover uses are not read.
            rows: the number of rows.
        """
        for start in range(0, rows, _SLICE):
            self._add([column[start : start + _SLICE] for column in columns], min(_SLICE, rows - start))

    def add_batch(self, batch: pa.RecordBatch, axes: Sequence[int]) -> None:
        """Count a batch with the codes of the attributes at ``axes``, all that the covers use."""
        columns: list[_Codes] = [_UNUSED] * len(self._plan.shape)
        for place, axis in enumerate(axes):
            columns[axis] = batch.column(place).to_numpy()
        self.add(columns, batch.num_rows)

    def _add(self, columns: Sequence[_Codes], rows: int) -> None:
        for axis in self._used:
            self._wide[axis, :rows] = columns[axis]
        previous: _Clique = ()
        for table, cover in zip(self.tables, self._plan.covers, strict=True):
            if not cover:
                table[0] += rows
                continue
            # Covers are sorted, so neighbors share prefixes, whose mixed-radix keys can be reused.
            for depth in range(_shared(previous, cover), len(cover)):
                axis = cover[depth]
                key = self._keys[depth, :rows]
                if depth == 0:
                    key[:] = self._wide[axis, :rows]
                else:
                    np.multiply(self._keys[depth - 1, :rows], self._plan.shape[axis], out=key)
                    key += self._wide[axis, :rows]
            self._index[:rows] = self._keys[len(cover) - 1, :rows]
            np.add.at(table, self._index[:rows], 1)  # in place: bincount would allocate a table
            previous = cover

    def merge(self, tables: Sequence[Counts]) -> None:
        """Add the tables of another tally of the same plan."""
        for mine, other in zip(self.tables, tables, strict=True):
            np.add(mine, other, out=mine)


def _shared(left: _Clique, right: _Clique) -> int:
    """Return the length of the common prefix."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


def totals(cells: NDArray[np.integer[Any]], size: int, weights: NDArray[np.integer[Any]] | None = None) -> Counts:
    """Return the sum of integer ``weights`` (default: ones) over the rows of each cell, exactly: shape ``(size,)``.

    >>> totals(np.array([0, 2, 2]), 3, np.array([5, 1, -7])).tolist()
    [5, 0, -6]
    """
    result = np.zeros(size, dtype=np.int64)
    for start in range(0, len(cells), _SLICE):
        rows = slice(start, start + _SLICE)
        # in-place addition is fast for these two types only
        index = cells[rows].astype(np.intp, copy=False)
        np.add.at(result, index, 1 if weights is None else weights[rows].astype(np.int64, copy=False))
    return result


def check_condition(predicate: Predicate | None, domain: Domain) -> None:
    """Refuse the conditions that :func:`condition` refuses, without writing SQL.

    Raises:
        QueryError: a code outside its attribute.
        DomainError: an attribute outside the domain.
    """
    if predicate is not None:
        refused = partial(_refuse_foreign, domain)
        predicate.fold(Fold[object](among=refused, every=tuple, some=tuple, negated=lambda _: None))


def _refuse_foreign(domain: Domain, part: Among) -> int:
    """Return the index of an attribute; refuse a condition on cells that it does not have."""
    place = domain.index(part.attribute)
    if not part.codes.within(domain.attributes[place].size):
        raise QueryError(f"a condition names a cell that {part.attribute!r} does not have", culprit=part)
    return place


def condition(predicate: Predicate | None, domain: Domain) -> str:
    """Return SQL over columns ``c0, c1, …``.

    Raises:
        QueryError: a code outside its attribute.
        DomainError: an attribute outside the domain.
    """
    if predicate is None:
        return "1 = 1"

    def listed(part: Among) -> str:
        return _within(f"c{_refuse_foreign(domain, part)}", part.codes)

    return predicate.fold(
        Fold(
            among=listed,
            every=lambda parts: _joined(" AND ", parts) or "1 = 1",
            some=lambda parts: _joined(" OR ", parts) or "1 = 0",
            negated=lambda part: f"NOT ({part})",
        )
    )


def _within(column: str, codes: CodeRanges) -> str:
    """Return an SQL condition that is true at the given codes.

    >>> _within("c0", CodeRanges.of([1, 2, 3, 7]))
    '(c0 IN (7) OR c0 BETWEEN 1 AND 3)'
    """
    single = [str(first) for first, last in codes.ranges if first == last]
    wide = [(first, last) for first, last in codes.ranges if first < last]
    parts = [f"{column} IN ({', '.join(single)})"] if single else []
    if len(wide) <= _FEW_RANGES:
        parts += [f"{column} BETWEEN {first} AND {last}" for first, last in wide]
    else:  # a row takes logarithmically many comparisons
        ends = [end for first, last in wide for end in (first, last + 1)]
        sides = [place % 2 for place in range(len(ends) + 1)]
        parts.append(f"{bin_number(column, [ends[0] - 1, *ends], sides)} = 1")
    return _joined(" OR ", parts) or "1 = 0"


def _joined(word: str, parts: Iterable[str]) -> str:
    joined = word.join(parts)
    return joined and f"({joined})"


_MANY_BINS = 32
_FEW_RANGES = 4
FIXED_POINT_LIMIT = 1 << 29  # largest addend per row: 2^34 rows stay within 64 bits


@dataclass(frozen=True)
class CellStatements:
    """The cells of the marginal of ``by``, over the rows of an encoded relation that meet ``where``."""

    relation: str
    domain: Domain
    dialect: Dialect
    by: tuple[str, ...]
    where: Predicate | None = None

    def groups(self, *, by_unit: bool = False) -> str:
        """Return non-empty cells as columns of codes with their counts ``total``, in lexicographic order.

        With ``by_unit`` each cell is divided by the unit of its rows, the column ``u``.
        """
        listed = ", ".join(f"c{self.domain.index(name)}" for name in self.by)
        unit = ", u" if by_unit else ""
        return (
            f"SELECT {listed}{unit}, COUNT(*) AS total FROM {self.relation} "
            f"WHERE {condition(self.where, self.domain)} GROUP BY {listed}{unit} ORDER BY {listed}"
        )

    def counts(self) -> str:
        """Return the number of rows of each cell."""
        return _grouped("COUNT(*)", self._rows())

    def units(self) -> str:
        """Return the number of distinct units of each cell."""
        if self.domain.unit.column is None:
            return self.counts()
        return _grouped("COUNT(DISTINCT u)", self._rows("u"))

    def bins(self, value: str, edges: Sequence[float]) -> str:
        """Return the number of rows of each cell and bin of ``value``.

        Raises:
            QueryError: edges that do not increase, or an attribute without numbers.
        """
        edges = increasing(edges)
        number = f"cell * {len(edges) - 1} + {_bin('v', edges)}"
        rows = self._rows(f"{self._clamped(value)} AS v")
        inside = f"v >= {real(edges[0])} AND v <= {real(edges[-1])}"
        return _grouped("COUNT(*)", f"SELECT {number} AS cell FROM ({rows}) AS cells WHERE {inside}")

    def round_numbers(self, value: str, steps: Sequence[int]) -> str:
        """Return the number of rows of each cell and last step that divides ``value``; no step is a case of its own.

        A multiple has an exact quotient, and the product of another quotient's floor is a multiple, on every engine.
        """
        cases = " ".join(
            f"WHEN v = FLOOR(v / {real(step)}) * {real(step)} THEN {place}"
            for place, step in reversed(tuple(enumerate(steps)))
        )
        number = f"cell * {len(steps) + 1} + CASE {cases} ELSE {len(steps)} END"
        rows = self._rows(f"{self._clamped(value)} AS v")
        return _grouped("COUNT(*)", f"SELECT {number} AS cell FROM ({rows}) AS cells WHERE v IS NOT NULL")

    def sums(self, value: str, unit: Fraction) -> str:
        """Return the fixed-point sum of ``value`` over each cell, each row rounded half to even.

        The quotient is a double product and quotient, the same on every engine.  If rounding moves a number past the
        rounded bounds, it is moved back, so a row never adds more than its sensitivity.
        """
        return _grouped("SUM(fixed)", self._fixed(value, unit))

    def moments(self, value: str, unit: Fraction, degree: int) -> str:
        """Return columns ``m0`` .. with sums of powers of fixed-point ``value`` minus its minimum, over each cell."""
        low, _ = power_bounds(self.domain, value, unit, degree)
        powers = ["COUNT(*) AS m0"]
        powers += [f"SUM({' * '.join(['k'] * power)}) AS m{power}" for power in range(1, degree + 1)]
        shifted = f"SELECT cell, fixed - ({low}) AS k FROM ({self._fixed(value, unit)}) AS fixed_point"
        return f"SELECT cell, {', '.join(powers)} FROM ({shifted}) AS shifted GROUP BY cell"

    def _fixed(self, value: str, unit: Fraction) -> str:
        """Return rows with their ``cell`` and ``fixed``, the value in units."""
        low, high = fixed_bounds(self.domain, value, unit)
        quotient = f"{self._clamped(value)} * {real(unit.denominator)} / {real(unit.numerator)}"
        floored = f"SELECT cell, t, FLOOR(t) AS f FROM ({self._rows(f'{quotient} AS t')}) AS scaled WHERE t IS NOT NULL"
        up = "t - f > 0.5 OR (t - f = 0.5 AND f - 2 * FLOOR(f / 2) = 1)"
        rounded = f"LEAST(GREATEST(f + CASE WHEN {up} THEN 1 ELSE 0 END, {low}), {high})"
        return f"SELECT cell, {self.dialect.integer(rounded)} AS fixed FROM ({floored}) AS floored"

    def _rows(self, *more: str) -> str:
        """Return the number of each row's cell, mixed radix.  Codes are widened because small types would overflow."""
        number = "0"
        for name in self.by:
            code = self.dialect.integer(f"c{self.domain.index(name)}")
            number = code if number == "0" else f"({number} * {self.domain[name].size} + {code})"
        listed = ", ".join((f"{number} AS cell", *more))
        return f"SELECT {listed} FROM {self.relation} WHERE {condition(self.where, self.domain)}"

    def _clamped(self, value: str) -> str:
        """Return SQL for the clamped number as a double, NULL if it is missing or undeclared."""
        attribute, place = numeric(self.domain, value), self.domain.index(value)
        if isinstance(attribute, Integer) and attribute.edges is None:
            number = f"{self.dialect.integer(f'c{place}')} + {attribute.minimum}"
            return f"CASE WHEN c{place} < {attribute.declared} THEN {self.dialect.double(number)} END"
        return vanishing(self.dialect.double(f"v{place}"))


def fixed_bounds(domain: Domain, value: str, unit: Fraction) -> tuple[int, int]:
    """Return the least and largest integer that one row can add to a sum of ``value`` in ``unit``.

    Raises:
        QueryError: the attribute has no numbers, or the unit is not positive.
        SizeError: a row could add more than fits; use a coarser unit.

    >>> from sfumato.domain import Real, Unknown
    >>> fixed_bounds(Domain((Real(name="x", edges=(0.0, 2.5), unknown=Unknown.DROP),)), "x", Fraction(1))
    (0, 2)
    """
    attribute = numeric(domain, value)
    if unit <= 0:
        raise QueryError("the unit of a fixed-point sum is positive", culprit=unit)
    low, high = round(Fraction(attribute.minimum) / unit), round(Fraction(attribute.maximum) / unit)
    if max(abs(low), abs(high), unit.numerator, unit.denominator) > FIXED_POINT_LIMIT:
        raise SizeError(
            f"a sum of {value!r} in units of {unit} could overflow 64 bits; take a coarser unit or tighter bounds",
            culprit=unit,
        )
    return low, high


def power_bounds(domain: Domain, value: str, unit: Fraction, degree: int) -> tuple[int, int]:
    """Return the bounds of :func:`fixed_bounds`, if sums of powers of the distance from the lower bound fit.

    Raises:
        QueryError: as for :func:`fixed_bounds`.
        SizeError: a sum could overflow; use a coarser unit.
    """
    low, high = fixed_bounds(domain, value, unit)
    if (high - low) ** degree > FIXED_POINT_LIMIT:
        raise SizeError(
            f"sums of powers of {value!r} in units of {unit} could overflow 64 bits; take a coarser unit",
            culprit=unit,
        )
    return low, high


def increasing(edges: Sequence[float]) -> list[float]:
    """Return the edges of bins as numbers.

    Raises:
        QueryError: there are fewer than two edges, or they do not increase.
    """
    numbers = [float(edge) for edge in edges]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)) or any(low >= high for low, high in pairwise(numbers)):  # noqa: PLR2004
        raise QueryError("bins need at least two finite, increasing edges", culprit=edges)
    return numbers


def even_width(edges: Sequence[float]) -> float | None:
    """Return a width with all edges but the last at exact multiples from the first; None if there is none.

    It is the first bin's width or the average of all widths, if the edges were computed from a width.

    >>> even_width([0.0, 0.25, 0.5, 0.75]), even_width([0.0, 0.1, 1.0, 2.0])
    (0.25, None)
    """
    start, bins = edges[0], len(edges) - 1
    for width in (edges[1] - start, (edges[-1] - start) / bins):
        if all(edge == start + place * width for place, edge in enumerate(edges[:-1])):
            return width
    return None


def _bin(value: str, edges: list[float]) -> str:
    """Return the index of the bin of ``value``: computed for many bins of one width, looked up for others."""
    start, bins = edges[0], len(edges) - 1
    width = even_width(edges) if bins >= _MANY_BINS else None
    if width is None:
        return bin_number(value, edges[:-1])
    guess = f"LEAST(GREATEST(FLOOR(({value} - {real(start)}) / {real(width)}), 0), {bins - 1})"
    # the quotient may be rounded past an edge by one ulp: compare with the edges themselves
    below = f"{value} < {real(start)} + {guess} * {real(width)}"
    above = f"{guess} < {bins - 1} AND {value} >= {real(start)} + ({guess} + 1) * {real(width)}"
    return f"CASE WHEN {below} THEN {guess} - 1 WHEN {above} THEN {guess} + 1 ELSE {guess} END"


def _grouped(aggregate: str, rows: str) -> str:
    return f"SELECT cell, {aggregate} AS total FROM ({rows}) AS counted GROUP BY cell"
