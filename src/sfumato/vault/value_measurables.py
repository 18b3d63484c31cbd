"""Measurable questions about values: sums, moments, positions, round numbers and bins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.engine.contingency import FIXED_POINT_LIMIT, check_condition, fixed_bounds
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError, SizeError
from sfumato.privacy.loss import plain
from sfumato.vault.contribution import Groups, coarse_cells, coarsen, contribution
from sfumato.vault.measurables import (
    WRITTEN,
    ExactTable,
    Measurable,
    digest,
    groups_json,
    named_once,
    shape_of,
    where_json,
)

_BEYOND_DOUBLES = 1 << 53  # from here on, a double does not tell neighboring integers apart


@dataclass(frozen=True)
class Sum(ExactTable):
    """The sum of round(clamped value / unit) over each cell of ``by``, flat in C order.

    One row adds at most the larger absolute bound to its cell: round(max(|minimum|, |maximum|) / unit).
    """

    value: str
    by: tuple[str, ...]
    unit: Fraction
    where: Predicate | None = None
    groups: Groups | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        fixed_bounds(domain, self.value, self.unit)
        _check_cells(domain, self.by, self.where, self.groups)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        one = max(1, *map(abs, fixed_bounds(domain, self.value, self.unit)))
        return contribution(domain, self.by, self.groups, self.where).counts(one)

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"value": self.value, "by": list(self.by), "unit": plain(self.unit), "where": where_json(self.where)}
        return {"kind": "sum", **own, **_grouped(self.groups)}

    def table(self) -> Sum:
        """See :class:`sfumato.vault.measurables.Measurable`: without groups, because coarsenings share it."""
        return self if self.groups is None else replace(self, groups=None)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return _coarse(self, domain, table)

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return self.by

    def moved_to(self, attributes: tuple[str, ...]) -> Sum:
        """See :class:`ExactTable`."""
        return replace(self, by=attributes, where=None, groups=None)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.sums(self.value, self.by, self.unit, self.where)

    @property
    def decided_by(self) -> str:
        """See :class:`ExactTable`."""
        return self.value

    def terms(self, domain: Domain) -> Counts:
        """See :class:`ExactTable`."""
        attribute, numbers = _integers(domain, self.value)
        low, high = fixed_bounds(domain, self.value, self.unit)
        terms = np.zeros((attribute.size, 1), dtype=np.int64)
        terms[: attribute.declared, 0] = _rounded(numbers, self.unit).clip(low, high)
        return terms


@dataclass(frozen=True)
class Moments(ExactTable):
    """The sums in each cell of ``by`` for a mean (``degree`` 1) or a variance (2) of a value.

    With k = round(clamped value / unit) counted from the minimum and K its largest, each row with a value adds the
    terms of (k + (K - k))^degree: (K - k, k), or ((K - k)^2, 2 k (K - k), k^2).  They are never negative and sum to
    K^degree.  So a row adds K^degree in L1 to all of a cell's sums together, and no more in L2.  There are ``degree +
    1`` integers per cell, flat in C order.
    """

    value: str
    by: tuple[str, ...]
    unit: Fraction
    degree: int
    where: Predicate | None = None
    groups: Groups | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        low, high = fixed_bounds(domain, self.value, self.unit)
        if self.degree not in (1, 2):
            raise QueryError("moments are of degree 1 or 2", culprit=self)
        if (high - low) ** self.degree > FIXED_POINT_LIMIT:
            raise SizeError(f"powers of {self.value!r} in units of {self.unit} could overflow; take a coarser unit")
        _check_cells(domain, self.by, self.where, self.groups)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        one = steps(domain, self.value, self.unit) ** self.degree
        return contribution(domain, self.by, self.groups, self.where).counts(one)

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"value": self.value, "by": list(self.by), "unit": plain(self.unit), "where": where_json(self.where)}
        return {"kind": "moments", **own, "degree": self.degree, **_grouped(self.groups)}

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`.

        Sums of the terms of (k + (K - k))^degree from sums of powers of k.
        """
        most = steps(domain, self.value, self.unit)
        powers = _coarse(self, domain, table).reshape(-1, self.width).T
        if self.degree == 1:
            rows, first = powers
            return np.stack([most * rows - first, first], axis=-1).reshape(-1)
        rows, first, second = powers
        terms = [most**2 * rows - 2 * most * first + second, 2 * (most * first - second), second]
        return np.stack(terms, axis=-1).reshape(-1)

    def table(self) -> Moments:
        """See :class:`sfumato.vault.measurables.Measurable`: without groups, because coarsenings share it."""
        return self if self.groups is None else replace(self, groups=None)

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return self.by

    @property
    def width(self) -> int:
        """See :class:`ExactTable`."""
        return self.degree + 1

    def moved_to(self, attributes: tuple[str, ...]) -> Moments:
        """See :class:`ExactTable`."""
        return replace(self, by=attributes, where=None, groups=None)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.moments(self.value, self.by, unit=self.unit, degree=self.degree, where=self.where)

    @property
    def decided_by(self) -> str:
        """See :class:`ExactTable`."""
        return self.value

    def terms(self, domain: Domain) -> Counts:
        """See :class:`ExactTable`."""
        attribute, numbers = _integers(domain, self.value)
        low, high = fixed_bounds(domain, self.value, self.unit)
        terms = np.zeros((attribute.size, self.width), dtype=np.int64)
        units_above = _rounded(numbers, self.unit).clip(low, high) - low
        terms[: attribute.declared] = units_above[:, None] ** np.arange(self.width)
        return terms


@dataclass(frozen=True)
class Positions(Measurable):
    """Sums of the distances of values from the middles of their cells, weighted by cell, over the rows of each part.

    With v = round(clamped value / unit), a row in cell c adds ``weights[c] * (2 v - low_c - high_c)`` to the sum of the
    part that contains c.  Here low_c and high_c are the rounded bounds of the cell; a row without a number adds
    nothing.

    Neighbors: one unit of the domain more or less.  Sensitivity: v lies between low_c and high_c, so that one row adds
    between minus and plus s, the largest of ``weights[c] * (high_c - low_c)``.  A rounded float v may lie one step
    outside: the width counts two steps more.  A row is in one cell and so in one part, for any number of parts.  A unit
    of m rows in all moves the sums by at most m s together, squared m^2 s^2.  The loss is the loss of the noise scaled
    to this sensitivity, as for every measurable question.

    Args:
        value: an attribute of numbers.
        unit: the unit of the fixed point, positive, in the attribute's own unit.
        weights: one whole number from 0 for each declared cell; public.
        parts: the part of each declared cell, consecutive numbers from 0; None for one part.
    """

    value: str
    unit: Fraction
    weights: tuple[int, ...]
    parts: tuple[int, ...] | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        attribute = numeric(domain, self.value)
        self.table().check(domain)
        if len(self.weights) != attribute.declared or not all(type(w) is int and w >= 0 for w in self.weights):
            raise QueryError(f"positions in {self.value!r} need a whole weight from 0 a declared cell", culprit=self)
        if self.parts is not None and (
            len(self.parts) != attribute.declared
            or not all(type(part) is int for part in self.parts)
            or set(self.parts) != set(range(len(set(self.parts))))
        ):
            raise QueryError(
                f"positions in {self.value!r} need a part a declared cell, numbered from 0 without a gap", culprit=self
            )
        if self._sensitivity(domain)[0] > FIXED_POINT_LIMIT:
            raise SizeError(f"weights of positions in {self.value!r} are too large; divide them", culprit=self)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        attribute = numeric(domain, self.value)
        rounding = 0 if self.unit == 1 and isinstance(attribute, Integer) else 2
        widths = (high - low + rounding for low, high in self.steps(domain))
        one = max(1, *(weight * width for weight, width in zip(self.weights, widths, strict=True)))
        return contribution(domain).queries(one, one**2)

    def steps(self, domain: Domain) -> list[tuple[int, int]]:
        """Return the rounded bounds of each declared cell, in units."""
        attribute = numeric(domain, self.value)
        cells = (attribute.bounds(code) for code in range(attribute.declared))
        return [(round(Fraction(low) / self.unit), round(Fraction(high) / self.unit)) for low, high in cells]

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"value": self.value, "unit": plain(self.unit), "weights": digest(np.array(self.weights, dtype=np.int64))}
        return {"kind": "positions", **own, **({} if self.parts is None else {"parts": list(self.parts)})}

    def table(self) -> Moments:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return Moments(self.value, (self.value,), self.unit, 1)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`.

        It uses the number of rows of each cell, and their total distance from the declared minimum, in units.
        """
        rows, above = table.reshape(-1, 2)[: len(self.weights)].T
        low, high = np.array(self.steps(domain), dtype=np.int64).T
        inside = above - (low - fixed_bounds(domain, self.value, self.unit)[0]) * rows
        moved = np.array(self.weights, dtype=np.int64) * (2 * inside - (high - low) * rows)
        parts = np.zeros(len(moved), dtype=np.int64) if self.parts is None else np.array(self.parts)
        sums: Counts = np.zeros(int(parts.max()) + 1, dtype=np.int64)
        np.add.at(sums, parts, moved)
        return sums


@dataclass(frozen=True)
class RoundNumbers(ExactTable):
    """Rows by the last of ``steps`` that divides their clamped integer, over the wide cells of the attribute together.

    Cells of one number, and missing values, do not count.  Rows that no step divides are counted last.  One row adds 1
    to one count.

    Args:
        value: an attribute of integers.
        steps: positive integers below 2^53, each a multiple of the one before; public.
    """

    value: str
    steps: tuple[int, ...]
    where: ClassVar[None] = None  # type: ignore[misc]  # all rows
    adds_up: ClassVar[bool] = False

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        integers = all(type(step) is int and 0 < step < _BEYOND_DOUBLES for step in self.steps) and bool(self.steps)
        chain = integers and all(not after % before and after > before for before, after in pairwise(self.steps))
        if not isinstance(numeric(domain, self.value), Integer) or not chain:
            raise QueryError(
                f"round numbers of {self.value!r} need integers, and steps below 2^53, each a multiple of the last",
                culprit=self,
            )

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        return contribution(domain).counts()

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return {"kind": "round-numbers", "value": self.value, "steps": list(self.steps)}

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return (self.value,)

    @property
    def width(self) -> int:
        """See :class:`ExactTable`."""
        return len(self.steps) + 1

    def moved_to(self, attributes: tuple[str, ...]) -> RoundNumbers:
        """See :class:`ExactTable`: no other table has it."""
        del attributes
        return self

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.round_numbers(self.value, self.steps)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`: the sum over the wide cells."""
        wide = self.wide_cells(domain)
        sums: Counts = table.reshape(-1, self.width)[: len(wide)][wide].sum(axis=0)
        return sums

    def wide_cells(self, domain: Domain) -> NDArray[np.bool_]:
        """Return True for each declared cell of several numbers, unless it is open and its value is declared."""
        attribute = numeric(domain, self.value)
        wide = [len(set(attribute.bounds(code))) > 1 for code in range(attribute.declared)]
        wide[-1] &= attribute.typical is None
        return np.array(wide)


@dataclass(frozen=True)
class Bins(ExactTable):
    """Counts of a clamped value between neighboring ``edges`` for each cell of ``by``, flat in C order.

    One row is in one bin of one cell, and adds 1 to it.
    """

    value: str
    edges: tuple[float, ...]
    by: tuple[str, ...]
    where: Predicate | None = None
    groups: Groups | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        numeric(domain, self.value)
        edges = self.edges
        if len(edges) < 2 or not all(map(math.isfinite, edges)) or (np.diff(edges) <= 0).any():  # noqa: PLR2004
            raise QueryError("bins need at least two finite, increasing edges", culprit=edges)
        _check_cells(domain, self.by, self.where, self.groups)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        return contribution(domain, self.by, self.groups, self.where).counts()

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"value": self.value, "by": list(self.by), "edges": edges_json(self.edges)}
        return {"kind": "bins", **own, "where": where_json(self.where), **_grouped(self.groups)}

    def table(self) -> Bins:
        """See :class:`sfumato.vault.measurables.Measurable`: without groups, because coarsenings share it."""
        return self if self.groups is None else replace(self, groups=None)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return _coarse(self, domain, table)

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return self.by

    @property
    def width(self) -> int:
        """See :class:`ExactTable`."""
        return len(self.edges) - 1

    def moved_to(self, attributes: tuple[str, ...]) -> Bins:
        """See :class:`ExactTable`."""
        return replace(self, by=attributes, where=None, groups=None)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.bins(self.value, self.edges, self.by, self.where)

    @property
    def decided_by(self) -> str:
        """See :class:`ExactTable`."""
        return self.value

    def terms(self, domain: Domain) -> Counts:
        """See :class:`ExactTable`."""
        attribute, numbers = _integers(domain, self.value)
        edges = np.array(self.edges)
        terms = np.zeros((attribute.size, self.width), dtype=np.int64)
        inside = np.flatnonzero((numbers >= edges[0]) & (numbers <= edges[-1]))
        bins = np.searchsorted(edges, numbers[inside], side="right") - 1
        terms[inside, np.minimum(bins, self.width - 1)] = 1
        return terms

    def refines(self, coarse: Bins) -> bool:
        """Return whether the other bins are sums of these."""
        if (self.value, self.by, self.where) != (coarse.value, coarse.by, coarse.where):
            return False
        step, rest = divmod(self.width, coarse.width)
        if not rest and self.edges[::step] == coarse.edges:  # the levels of a ladder
            return True
        ends = (self.edges[0], self.edges[-1]) == (coarse.edges[0], coarse.edges[-1])
        return ends and {*coarse.edges} <= {*self.edges}

    def coarser(self, counts: Counts, coarse: Bins) -> Counts:
        """Return counts of the other bins, for each cell of ``by``, from counts of these."""
        starts = np.searchsorted(self.edges, coarse.edges[:-1])
        return np.add.reduceat(counts.reshape(-1, self.width), starts, axis=1).reshape(-1)


def steps(domain: Domain, value: str, unit: Fraction) -> int:
    """Return the number of units between the rounded minimum and maximum of an attribute, at least one.

    Raises:
        QueryError: the attribute is categorical, or the unit not positive.
        SizeError: a sum could overflow.
    """
    low, high = fixed_bounds(domain, value, unit)
    return max(1, high - low)


def edges_json(edges: tuple[float, ...]) -> Any:  # noqa: ANN401  (JSON)
    """Return edges as JSON values: one by one, or their digest."""
    return list(edges) if len(edges) <= WRITTEN else digest(np.array(edges))


def _check_cells(domain: Domain, by: tuple[str, ...], where: Predicate | None, groups: Groups | None) -> None:
    named_once(by)
    coarse_cells(domain, by, groups)
    check_condition(where, domain)


def _grouped(groups: Groups | None) -> dict[str, Any]:
    """Return the entry of a coarsening in the canonical form, if there is one."""
    return {} if groups is None else {"groups": groups_json(groups)}


def _coarse(question: Sum | Moments | Bins, domain: Domain, table: Counts) -> Counts:
    """Sum the numbers of each cell over the groups: a row is in one cell, and so in one group."""
    shape = (*shape_of(domain, question.by), question.width)
    return table if question.groups is None else coarsen(table, shape, question.groups)


def _integers(domain: Domain, value: str) -> tuple[Integer, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return an attribute of integers that are their own codes, and these integers."""
    attribute = domain[value]
    assert isinstance(attribute, Integer)
    return attribute, np.arange(attribute.declared, dtype=np.float64) + attribute.minimum


def _rounded(numbers: np.ndarray[Any, np.dtype[np.float64]], unit: Fraction) -> Counts:
    rounded: Counts = np.rint(numbers * float(unit.denominator) / float(unit.numerator)).astype(np.int64)
    return rounded
