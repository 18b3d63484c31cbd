"""Contributions of one unit to an answer: its rows, its rows in one cell and its cells; and their sensitivities.

A unit is bounded by rows, and by groups (:class:`sfumato.domain.unit.GroupBound`).  A query has cells and a
condition.  Bounds, cells and condition are maps of the same public codes, so all of this is public.

The rows of a unit that meet a condition lie in disjoint cells of a query.  Adding or removing the unit changes
each cell by x >= 0, at most ``in_a_cell`` (m), and all cells together by at most ``rows`` (R).

A convex function is largest at a vertex of these bounds: in as many full cells as possible, and one cell with the
rest.  So the squared L2 norm of x is at most Q = floor(R/m) m^2 + (R mod m)^2.

The cells may be public groups of codes.  This module also sums tables over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import Among, Fold, Predicate
from sfumato.domain.unit import GroupBound
from sfumato.errors import QueryError

Groups = tuple[tuple[int, ...] | None, ...]
"""A public coarsening: for every attribute the group (0, 1, ...) of each of its codes, or None to keep all codes."""


@dataclass(frozen=True)
class CellBound:
    """A bound by groups, compared with the cells of a query under a condition.

    Attributes:
        rows: the largest number of rows of a unit in one cell of the bound.
        groups: the largest number of cells of the bound with rows of a unit; None: any number.
        allowed: cells of the bound that the condition allows.
        within: the most allowed cells of the bound within one cell of the query.
        met: the most allowed cells of the query within one cell of the bound.
    """

    rows: int
    groups: int | None
    allowed: int
    within: int
    met: int


@dataclass(frozen=True)
class Contribution:
    """The rows of a unit that meet a condition: ``rows`` in all, ``in_a_cell`` of the query, in ``cells`` cells.

    >>> Contribution(rows=6, in_a_cell=2, cells=4).counts()
    (6, 12)
    """

    rows: int
    in_a_cell: int
    cells: int

    def counts(self, one: int = 1) -> tuple[int, int]:
        """Return L1 and squared L2 sensitivity of sums by cell to which a row adds at most ``one`` in L1."""
        full, rest = divmod(self.rows, max(1, self.in_a_cell))
        return _noisy(self.rows * one, (full * self.in_a_cell**2 + rest**2) * one**2)

    def queries(self, one: int, one_squared: int) -> tuple[int, int]:
        """Return both for answers that a row moves by at most ``one`` in L1 and ``one_squared`` in squared L2."""
        return _noisy(self.rows * one, self.rows**2 * one_squared)

    def clamped(self, most: int) -> tuple[int, int]:
        """Return both for sums of one number per unit and cell, clamped to at most ``most`` in absolute value."""
        return _noisy(self.cells * most, self.cells * most**2)

    def units(self) -> tuple[int, int]:
        """Return both for distinct units by cell."""
        return self.clamped(1)


def _noisy(l1: int, l2_squared: int) -> tuple[int, int]:
    """Return at least one for both, because noise is scaled to them."""
    return max(1, l1), max(1, l2_squared)


def bounded_contribution(rows: int, bounds: Sequence[CellBound], cells: int) -> Contribution:
    """Return the contribution of a unit of at most ``rows`` rows under ``bounds`` to a query of ``cells`` cells.

    Args:
        rows: the largest number of rows of a unit.
        bounds: the bounds by groups, compared with the cells of the query.
        cells: the cells of the query that the condition allows.

    >>> month = CellBound(rows=2, groups=4, allowed=24, within=1, met=1)
    >>> bounded_contribution(6, [month], 24)
    Contribution(rows=6, in_a_cell=2, cells=4)
    """
    most, in_a_cell, met = rows, rows, cells
    for bound in bounds:
        groups = bound.allowed if bound.groups is None else min(bound.groups, bound.allowed)
        most = min(most, groups * bound.rows)
        in_a_cell = min(in_a_cell, min(groups, bound.within) * bound.rows)
        met = min(met, groups * bound.met)
    most = min(most, met * in_a_cell)
    return Contribution(most, min(in_a_cell, most), min(met, most))


def contribution(
    domain: Domain, by: tuple[str, ...] = (), groups: Groups | None = None, where: Predicate | None = None
) -> Contribution:
    """Return the contribution of a unit of the domain to the cells of a query.

    The allowed codes of a condition are computed for each attribute alone.  All their combinations count as allowed,
    which is an upper bound.  Without bounds by groups the condition does not matter.

    Args:
        domain: the domain with the unit and its bounds.
        by: attributes whose cells, or groups of them, are the cells of the query.
        groups: the groups of their codes.
        where: the condition on the counted rows; None: all rows.

    Raises:
        DomainError: no attribute has that name.
    """
    unit, groups = domain.unit, (None,) * len(by) if groups is None else groups
    if not unit.per:
        sizes = (domain[name].size if group is None else max(group) + 1 for name, group in zip(by, groups, strict=True))
        return bounded_contribution(unit.rows, (), math.prod(sizes))
    return _contribution_by_groups(domain, by, groups, where)


def _contribution_by_groups(
    domain: Domain, by: tuple[str, ...], groups: Groups, where: Predicate | None
) -> Contribution:
    """Return the contribution of a unit that is bounded by groups."""
    question_groups: dict[str, list[GroupOfCode]] = {}
    for name, group in zip(by, groups, strict=True):
        question_groups.setdefault(name, []).append(_codes(domain, name, group))
    allowed = allowed_codes(domain, where)
    if allowed is None:
        return Contribution(0, 0, 0)
    meetings = [_meeting(domain, bound, question_groups, allowed) for bound in domain.unit.per]
    return bounded_contribution(
        domain.unit.rows,
        meetings,
        math.prod(_cells(question_groups[name], allowed.get(name)) for name in question_groups),
    )


GroupOfCode = NDArray[np.intp]
Box = Mapping[str, NDArray[np.bool_]] | None
"""The allowed codes of each named attribute; None: no row is allowed."""


def _meeting(
    domain: Domain,
    bound: GroupBound,
    question_groups: Mapping[str, list[GroupOfCode]],
    allowed: Mapping[str, NDArray[np.bool_]],
) -> CellBound:
    """Return a bound compared with the cells of a query, from each attribute alone: both have all combinations."""
    own: dict[str, list[GroupOfCode]] = {}
    for name in bound.by:
        grouping = domain.grouping(name)
        own.setdefault(grouping.attribute, []).append(_codes(domain, grouping.attribute, grouping.groups))
    allowed_cells = within = met = 1
    for name in {*own, *question_groups}:
        codes = allowed.get(name)
        inner, outer = own.get(name, []), question_groups.get(name, [])
        allowed_cells *= _cells(inner, codes) if inner else 1
        within *= _most(inner, outer, codes) if inner else 1
        met *= _most(outer, inner, codes) if outer else 1
    return CellBound(bound.rows, bound.groups, allowed_cells, within, met)


def _codes(domain: Domain, name: str, group: tuple[int, ...] | None) -> GroupOfCode:
    return np.arange(domain[name].size) if group is None else np.array(group)


def _cells(maps: Sequence[GroupOfCode], allowed: NDArray[np.bool_] | None) -> int:
    """Return the number of joint cells of maps of one attribute's codes, among allowed codes."""
    return len(_joint_cells(maps, allowed)[1])


def _most(of: Sequence[GroupOfCode], inside: Sequence[GroupOfCode], allowed: NDArray[np.bool_] | None) -> int:
    """Return the most cells of some maps within one cell of others; without others, all cells."""
    if not inside:
        return _cells(of, allowed)
    cells, _ = _joint_cells(inside, allowed)
    each, _ = _joint_cells([*inside, *of], allowed)
    pairs = np.unique(np.stack([cells, each]), axis=1)
    return int(np.bincount(pairs[0]).max(initial=0))


def _joint_cells(maps: Sequence[GroupOfCode], allowed: NDArray[np.bool_] | None) -> tuple[GroupOfCode, GroupOfCode]:
    """Return the number of the joint cell of each allowed code, and the distinct numbers."""
    stacked = np.stack(maps) if allowed is None else np.stack(maps)[:, allowed]
    _, numbers = np.unique(stacked, axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    return numbers, np.unique(numbers)


def allowed_codes(domain: Domain, where: Predicate | None) -> Box:
    """Return the codes that a row may have if it meets a condition, by attribute; other attributes may have any.

    >>> from sfumato.domain import Categorical, Unknown
    >>> from sfumato.domain.predicate import Not
    >>> domain = Domain((Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),))
    >>> codes = allowed_codes(domain, Not(Among("sex", [0])))
    >>> codes["sex"].tolist()
    [False, True]
    """
    return {} if where is None else where.fold(_both(domain))[0]


def _both(domain: Domain) -> Fold[tuple[Box, Box]]:
    """Fold a condition to the boxes of rows that meet it and of rows that do not; a negation needs both."""

    def among(part: Among) -> tuple[Box, Box]:
        codes = part.codes.mask(domain[part.attribute].size)
        return _box(part.attribute, codes), _box(part.attribute, ~codes)

    def every(parts: Iterator[tuple[Box, Box]]) -> tuple[Box, Box]:
        inside, outside = _unzipped(parts)
        return _meet(inside), _join(outside)

    def some(parts: Iterator[tuple[Box, Box]]) -> tuple[Box, Box]:
        inside, outside = _unzipped(parts)
        return _join(inside), _meet(outside)

    return Fold(among=among, every=every, some=some, negated=lambda part: (part[1], part[0]))


def _unzipped(parts: Iterator[tuple[Box, Box]]) -> tuple[list[Box], list[Box]]:
    pairs = list(parts)
    return [inside for inside, _ in pairs], [outside for _, outside in pairs]


def _box(attribute: str, codes: NDArray[np.bool_]) -> Box:
    return {attribute: codes} if codes.any() else None


def _meet(boxes: Sequence[Box]) -> Box:
    """Return the intersection of boxes."""
    common: dict[str, NDArray[np.bool_]] = {}
    for box in boxes:
        if box is None:
            return None
        for name, codes in box.items():
            common[name] = codes if name not in common else common[name] & codes
            if not common[name].any():
                return None
    return common


def _join(boxes: Sequence[Box]) -> Box:
    """Return a box around the union of boxes: the codes of any box for attributes that all boxes name."""
    possible = [box for box in boxes if box is not None]
    if not possible:
        return None
    named = set.intersection(*(set(box) for box in possible))
    return {name: np.logical_or.reduce([box[name] for box in possible]) for name in sorted(named)}


DENSE_CELLS = 1 << 22
"""Largest table over single codes that is counted for a question about groups of them: 32 MiB."""


def coarse_cells(domain: Domain, attributes: tuple[str, ...], groups: Groups | None) -> int:
    """Return the number of cells of a coarsened marginal.

    Raises:
        QueryError: a code is not in exactly one group, so that the sensitivity would not be one.
    """
    if groups is None:
        return math.prod(domain[name].size for name in attributes)
    if len(groups) != len(attributes):
        raise QueryError("groups are given for each attribute of the marginal, or None", culprit=groups)
    size = 1
    for name, group in zip(attributes, groups, strict=True):
        distinct = range(domain[name].size) if group is None else set(group)
        if group is not None and (len(group) != domain[name].size or distinct != set(range(len(distinct)))):
            raise QueryError(f"the groups of {name!r} must number each of its cells 0, 1, ...", culprit=group)
        size *= len(distinct)
    return size


def groups_bytes(groups: Groups | None) -> int:
    """Return the approximate size of groups in bytes."""
    return sum(8 * len(group) for group in groups or () if group is not None)


def counted_over_groups(groups: Groups | None) -> bool:
    """Return True if the vault counts a table over its groups, because it would be too large over single codes.

    It is False if an attribute has no groups.
    """
    return groups is not None and math.prod(0 if group is None else len(group) for group in groups) > DENSE_CELLS


def group_counts(table: NDArray[np.int64], shape: tuple[int, ...], groups: Groups | None) -> NDArray[np.int64]:
    """Return the counts over groups from the table that the vault counted, over single codes or over groups."""
    return table if counted_over_groups(groups) else coarsen(table, shape, groups)


def sum_over_groups(codes: NDArray[np.unsignedinteger], counts: NDArray[np.int64], groups: Groups) -> NDArray[np.int64]:
    """Sum counts of cells over the groups of their codes, which have shape ``(cells, attributes)``: flat in C order.

    >>> sum_over_groups(np.array([[0, 2], [1, 0]], dtype=np.uint8), np.array([5, 7]), ((0, 1), (0, 1, 1))).tolist()
    [0, 5, 7, 0]
    """
    arrays = [np.array(group, dtype=np.int64) for group in groups]
    shape = [int(group.max()) + 1 for group in arrays]
    sums = np.zeros(math.prod(shape), dtype=np.int64)
    places = [group[column] for group, column in zip(arrays, codes.T, strict=True)]
    np.add.at(sums, np.ravel_multi_index(places, shape), counts)
    return sums


def coarsen(table: NDArray[np.int64], shape: tuple[int, ...], groups: Groups | None) -> NDArray[np.int64]:
    """Sum a flat contingency table of ``shape`` over its groups: flat in C order over the coarser cells.

    >>> coarsen(np.array([1, 2, 3, 4, 5, 6]), (2, 3), (None, (0, 1, 1))).tolist()
    [1, 5, 4, 11]
    """
    coarse = table.reshape(shape)
    for axis, group in enumerate(groups or ()):
        if group is not None:
            order = np.argsort(group, kind="stable")
            starts = np.flatnonzero(np.diff(np.asarray(group)[order], prepend=-1))
            coarse = np.add.reduceat(coarse.take(order, axis=axis), starts, axis=axis)
    return coarse.reshape(-1)
