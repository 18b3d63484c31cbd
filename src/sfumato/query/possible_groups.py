"""The groups that can hold a row that meets a condition.

The statement and the declared cells decide, never rows.  A condition such as ``(a = 1 AND b = 2) OR a = 3`` allows one
group of (a, b) and excludes another, although each attribute alone would allow both.  So the search looks at whole
groups.

It tries the codes of an attribute outside GROUP BY only if several parts of the condition share that attribute.  Its
work is bounded.  Beyond that bound it looks at each part alone.  A group that can hold no row may then remain.  A group
that can hold a row is never excluded.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.domain import Attribute, Domain, Integer, Real, Unknown
from sfumato.domain.expression import Applied, Arithmetic, Clamp, Constant, Expression, Field, Labels
from sfumato.domain.predicate import All, Among, Any, CodeRanges, Fold, Not, Predicate
from sfumato.domain.unit_views import Declared, Renamed
from sfumato.domain.view import BoundedView, Computed, Filter, Join, OverSource, PerUnit, Taken, View
from sfumato.errors import QueryError
from sfumato.query.statements.three_valued_logic import normal

_MOST_WORK = 1 << 32  # cells, for parts searched together: less than a second
_LEAF = 1 << 19  # cells with the same run time as one comparison
_MANY = 1 << 10  # cells of a number, if each is compared with the cells of another number
_FEW = 1 << 8  # classes of codes, or cases of labels, that are compared pairwise

_LARGEST_DIVIDED = 1 << 50  # quotients of integers up to it round to doubles without a new tie

_Mask = NDArray[np.bool_]
_Number = int | float | Fraction


@cached()  # reading, checking and planning a statement need the same groups
def possible_groups(
    by: tuple[str, ...], where: Predicate | None, domain: Domain, view: BoundedView | None = None
) -> _Mask | None:
    """Return the groups that can hold a row under a condition, in C order of the axes; None for all groups.

    Args:
        by: groupings of the domain.
        where: the condition; None: all rows.
        domain: the public description of the rows.
        view: the view that the rows belong to, if they come from several tables; its conditions count as well.

    Raises:
        QueryError: no group remains.
    """
    met, attributes = (where, domain) if view is None else _with_view(where, domain, view.view)
    groups = None if met is None else _Search(by, domain, attributes).left(normal(met, attributes))
    if groups is not None and not groups.any():
        raise QueryError(
            "no group can hold a row that meets the condition: change the condition, or group by something else",
            culprit=where,
        )
    if groups is not None:
        groups.flags.writeable = False
    return groups


def possible_span(
    name: str, where: Predicate | None, domain: Domain, view: BoundedView | None = None
) -> tuple[int, int] | None:
    """Return the least and the greatest declared code of an attribute in rows that meet a condition; None if there is
    none.

    Codes that no comparison separates are treated as one code, so that memory does not grow with the cells.

    Args:
        name: the attribute.
        where: the condition; None: all rows.
        domain: the public description of the rows.
        view: the view that the rows belong to, if they come from several tables; its conditions count as well.
    """
    met, attributes = (where, domain) if view is None else _with_view(where, domain, view.view)
    attribute = domain[name]
    if met is None:
        return 0, attribute.declared - 1
    named = (bound for leaf in met.fold(_LEAVES) if leaf.attribute == name for bound in leaf.codes.bounds)
    edges = sorted({0, attribute.declared, attribute.size, *named})
    run = Integer(name=name, minimum=0, maximum=len(edges) - 2, unknown=Unknown.CLAMP)
    runs = Domain(tuple(run if each.name == name else each for each in attributes))

    def of_runs(leaf: Among) -> Among:
        if leaf.attribute != name:
            return leaf
        return Among(name, CodeRanges(tuple(bisect_left(edges, bound) for bound in leaf.codes.bounds)))

    left = _Search((name,), runs, runs).left(normal(_folded(met, of_runs), runs))
    declared = bisect_left(edges, attribute.declared)
    places = range(declared) if left is None else np.flatnonzero(left[:declared])
    return (edges[places[0]], edges[places[-1] + 1] - 1) if len(places) else None


def _with_view(where: Predicate | None, domain: Domain, view: View) -> tuple[Predicate | None, Domain]:
    """Return the conjunction of a condition and the conditions of a view, and the domain of all attributes in it."""
    known = _RowConditions()
    met = _met(known.of_view(view), where)
    return met, Domain((*domain, *known.hidden.values()))


class _Search:
    """A search for groups in which a condition can be true.

    An attribute is open if a group does not determine its code: it is outside GROUP BY, or grouped by coarser cells.
    """

    def __init__(self, by: tuple[str, ...], domain: Domain, attributes: Domain) -> None:
        self._domain = attributes
        self._sizes: dict[str, int] = {}  # cells of each attribute grouped by, in order
        self._cells: dict[str, NDArray[np.int32]] = {}  # the cell of each code, if codes are no cells
        self._cells_compared = 0
        if all(name in domain for name in by):  # labels of a million cells take longer than the whole search
            self._sizes = {name: domain[name].size for name in by}
            return
        for axis in domain.axes(by):
            self._sizes[axis.attribute] = axis.size
            if axis.groups is not None:
                self._cells[axis.attribute] = np.asarray(axis.groups, dtype=np.int32)

    def _open(self, part: Predicate) -> frozenset[str]:
        return part.attributes - (self._sizes.keys() - self._cells.keys())

    def left(self, where: Predicate | None) -> _Mask | None:
        """Return the groups in which a condition in normal form can be true, in C order; None for all."""
        groups = self.groups(where)
        return None if groups.all() else np.broadcast_to(groups, [*self._sizes.values()]).reshape(-1)

    def groups(self, where: Predicate | None) -> _Mask:
        """Return the groups in which a condition in normal form can be true.

        The result has one axis per attribute of GROUP BY, of length 1 if the condition does not depend on it.
        """
        match where:
            case None:
                return np.ones((1,) * len(self._sizes), dtype=np.bool_)
            case Among():
                return self._leaf(where)
            case Any():
                return reduce(np.logical_or, map(self.groups, where.parts), ~self.groups(None))
            case _:
                return reduce(np.logical_and, map(self._jointly_possible, self._apart(where.inner)))

    def _leaf(self, leaf: Among) -> _Mask:
        shape = [1] * len(self._sizes)
        if leaf.attribute not in self._sizes:
            return np.full(shape, bool(leaf.codes))
        size, cells = self._sizes[leaf.attribute], self._cells.get(leaf.attribute)
        if cells is None:
            mask = leaf.codes.mask(size)
        else:
            mask = np.zeros(size, dtype=np.bool_)
            for first, last in leaf.codes.ranges:
                mask[cells[first : last + 1]] = True
        shape[list(self._sizes).index(leaf.attribute)] = size
        return mask.reshape(shape)

    def _apart(self, parts: Sequence[Predicate]) -> list[list[Predicate]]:
        """Divide the parts of a conjunction into lists; parts that share an open attribute are in one list."""
        lists: list[tuple[frozenset[str], list[Predicate]]] = []
        for part in parts:
            names, sharing = self._open(part), [part]
            others = []
            for each in lists:
                if each[0] & names:
                    names, sharing = names | each[0], [*each[1], *sharing]
                else:
                    others.append(each)
            lists = [*others, (names, sharing)]
        return [sharing for _, sharing in lists]

    def _jointly_possible(self, parts: list[Predicate]) -> _Mask:
        """Return the groups in which one row can meet all parts, case by case."""
        if len(parts) == 1:
            return self.groups(parts[0])
        mask = ~self.groups(None)
        for case in self._cases(parts):
            if case is not None:
                sizes = (self._sizes[name] for name in case.attributes if name in self._sizes)
                self._cells_compared += _leaves(case) * (_LEAF + math.prod(sizes))
            if self._cells_compared > _MOST_WORK:
                return reduce(np.logical_and, map(self.groups, parts))
            mask = mask | self.groups(case)
            if mask.all():
                break
        return mask

    def _cases(self, parts: list[Predicate]) -> Iterator[Predicate | None]:
        """Yield conditions; one of them is true if all parts are.  The split with the fewest comparisons is chosen.

        The conditions are the alternatives of one part, or the codes of an attribute that parts share.
        """
        leaves = [_leaves(part) for part in parts]
        among = [place for place, part in enumerate(parts) if isinstance(part, Any)]
        costs = {place: leaves[place] + len(parts[place].inner) * (sum(leaves) - leaves[place]) for place in among}
        named = [name for part in parts for name in self._open(part)]
        classes = {name: self._classes(name, parts) for name in sorted(set(named)) if named.count(name) > 1}
        name = min(classes, key=lambda each: len(classes[each]))
        place = min(costs, key=costs.__getitem__, default=None)
        if place is not None and costs[place] <= len(classes[name]) * sum(leaves):
            others = (*parts[:place], *parts[place + 1 :])
            return (normal(All((each, *others)), self._domain) for each in parts[place].inner)
        return (
            normal(All((Among(name, codes), *(_fixed(part, name, codes) for part in parts))), self._domain)
            for codes in classes[name]
        )

    def _classes(self, name: str, parts: Sequence[Predicate]) -> list[CodeRanges]:
        """Return sets of codes of an attribute: the parts treat all codes of a set alike.

        Codes are omitted if other codes meet at least the same comparisons, unless they lie in other groups.
        """
        sets = {leaf.codes for part in parts for leaf in part.fold(_LEAVES) if leaf.attribute == name}
        flips: dict[int, int] = {0: 0}
        for number, codes in enumerate(sorted(sets, key=lambda each: each.bounds)):
            for bound in codes.bounds:
                flips[bound] = flips.get(bound, 0) ^ (1 << number)
        size, met = self._domain[name].size, 0
        edges = [*sorted(edge for edge in flips if edge < size), size]
        by_comparisons: dict[int, list[CodeRanges]] = {}
        for first, after in pairwise(edges):
            met ^= flips[first]
            by_comparisons.setdefault(met, []).append(CodeRanges.between(first, after - 1))
        masks = list(by_comparisons)
        if name not in self._sizes and len(masks) <= _FEW:
            masks = [each for each in masks if not any(each != other and each & other == each for other in masks)]
        return [CodeRanges.union(by_comparisons[each]) for each in masks]


_LEAVES = Fold[tuple[Among, ...]](
    among=lambda part: (part,),
    every=lambda parts: tuple(leaf for part in parts for leaf in part),
    some=lambda parts: tuple(leaf for part in parts for leaf in part),
    negated=lambda part: part,
)


def _leaves(where: Predicate) -> int:
    return len(where.fold(_LEAVES))


def _fixed(where: Predicate, name: str, codes: CodeRanges) -> Predicate:
    """Return a condition for rows whose code is one of ``codes``, which the comparisons do not distinguish."""
    outcomes = All(()), Any(())
    return _folded(where, lambda leaf: leaf if leaf.attribute != name else outcomes[codes.first not in leaf.codes])


def _folded(where: Predicate, leaf: Callable[[Among], Predicate]) -> Predicate:
    """Return the condition with ``leaf`` applied to each comparison."""
    return where.fold(
        Fold[Predicate](
            among=leaf,
            every=lambda parts: All(tuple(parts)),
            some=lambda parts: Any(tuple(parts)),
            negated=Not,
        )
    )


class _RowConditions:
    """A reader of the conditions that every row of a view meets, from its conditions and its computed attributes.

    Attributes:
        hidden: attributes of conditions that the view does not contain, such as the source of a per-unit aggregate.
    """

    def __init__(self) -> None:
        self.hidden: dict[str, Attribute] = {}

    def of_view(self, view: View) -> Predicate | None:
        """Return a condition on attributes of the view and on hidden ones; None if nothing is known."""
        match view:
            case Filter():
                return _met(self.of_view(view.source), view.where)
            case Join():
                return self._joined(view)
            case Computed(value=Labels() as labels):
                return _met(self.of_view(view.source), _labelled(view.name, labels))
            case Computed() if isinstance(view.added, Integer | Real):
                return _met(self.of_view(view.source), _numbered(view.added, view))
            case Declared(source=Computed() as made) if isinstance(view.declared, Integer | Real):
                return _met(self.of_view(made.source), _numbered(view.declared, made))
            case Declared() if isinstance(view.declared, Integer | Real) and isinstance(view.source, OverSource):
                return self.of_view(view.source.source)
            case Renamed():
                where = self.of_view(view.source)
                names = dict(zip(view.source.names, view.called, strict=True))
                return None if where is None else self._renamed(where, view.source, names)
            case OverSource():
                return self.of_view(view.source)
            case PerUnit():
                return self._per_unit(view)
        return None

    def _joined(self, view: Join) -> Predicate | None:
        left, right = self.of_view(view.left), self.of_view(view.right)
        if right is None or not view.outer:
            return _met(left, right)
        within = view.right.attributes
        if any(each.unknown is Unknown.CATEGORY and not each.nullable for each in within):
            return left  # the cell for unknown values moves behind the new one for missing values
        absent = All(tuple(Among(each.name, [each.declared]) for each in within))
        return _met(left, Any((absent, right)))

    def _per_unit(self, view: PerUnit) -> Predicate | None:
        """Return that some row of the unit has the keys, and that some row has each value taken from a row."""
        where = self.of_view(view.source)
        if where is None:
            return None
        condition = self._renamed(where, view.source, {name: name for name in view.by})
        for name, value in view.values:
            if isinstance(value, Taken):
                condition = All((condition, self._taken(name, value, where, view)))
        return condition

    def _taken(self, name: str, value: Taken, where: Predicate, view: PerUnit) -> Predicate:
        keys = {key: key for key in view.by}
        held = view.source.domain[value.of]
        present = Among(name, CodeRanges.between(0, held.declared - 1))
        absent: Predicate = Among(name, [held.declared])
        if value.by is None and value.of not in keys:
            lacking = Among(value.of, CodeRanges.between(held.declared, held.size - 1))
            absent = All((absent, self._renamed(All((where, lacking)), view.source, keys)))
        return Any((All((present, self._renamed(where, view.source, keys | {value.of: name}))), absent))

    def _renamed(self, where: Predicate, source: View, names: Mapping[str, str]) -> Predicate:
        """Return a condition with renamed attributes; attributes without a new name get hidden names."""
        names = dict(names)
        for name in sorted(where.attributes - names.keys()):
            before = self.hidden[name] if name in self.hidden else source.domain[name]
            names[name] = f"\0{len(self.hidden)}"  # no column has such a name
            self.hidden[names[name]] = replace(before, name=names[name], role=None)
        return _folded(where, lambda leaf: Among(names[leaf.attribute], leaf.codes))


def _met(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    return first if second is None else second if first is None else All((first, second))


def _labelled(name: str, labels: Labels) -> Predicate:
    """Return a condition that ties labels to their conditions: a row meets its label's condition and no earlier one.

    The second part is left out if there are many labels.
    """
    code = {label: place for place, label in enumerate(labels.values)}
    wheres = tuple(where for where, _ in labels.cases)
    parts: list[Predicate] = []
    for place, (where, label) in enumerate(labels.cases):
        before = wheres[:place] if len(wheres) <= _FEW else ()
        parts.append(All((Among(name, [code[label]]), where, Not(Any(before)))))
    rest = len(code) if labels.otherwise is None else code[labels.otherwise]
    return Any((*parts, All((Among(name, [rest]), Not(Any(wheres))))))


def _numbered(attribute: Integer | Real, made: Computed) -> Predicate | None:
    """Return a condition that ties the cells of a computed number to its operand and to other cells of the same
    number.
    """
    if attribute.declared == 1 or attribute.unknown is Unknown.CATEGORY:
        return None
    condition = _computed_of(attribute, made)
    at = made.source
    while isinstance(at, OverSource) and not isinstance(at, Renamed):
        if isinstance(at, Declared) and isinstance(at.source, Computed) and at.source.value == made.value:
            other = at.declared
            if isinstance(other, Integer | Real) and other.unknown is not Unknown.CATEGORY and other.declared <= _MANY:
                ends = [-math.inf, *(other.bounds(code)[0] for code in range(1, other.declared)), math.inf]
                condition = _met(condition, _tied(other, list(pairwise(ends)), attribute))
        at = at.source
    return condition


def _computed_of(attribute: Integer | Real, made: Computed) -> Predicate | None:
    """Return a condition that ties a computed number to its only operand, by exact arithmetic; None if that is
    unknown.
    """
    names, value = _fields(made.value), made.value
    one = made.source.domain[min(names)] if names is not None and len(names) == 1 else None
    if not isinstance(one, Integer | Real) or one.declared > _MANY:
        return None
    spans: list[tuple[_Number, _Number]] = [one.bounds(code) for code in range(one.declared)]
    if not isinstance(value, Field):
        if not isinstance(one, Integer) or not _is_exact(value, made.source.domain):
            return None  # doubles are rounded
        within = (
            Integer(name=one.name, minimum=int(low), maximum=int(high), unknown=Unknown.CLAMP) for low, high in spans
        )
        intervals = [value.interval(Domain((each,))) for each in within]
        spans = [(each.low, each.high) for each in intervals]
    return _tied(one, spans, attribute)


def _is_exact(value: Expression, domain: Domain) -> bool:
    """Return whether an engine computes with integers alone, or rounds only the quotient of two integers."""
    if not value.interval(domain).integer:
        return False
    match value:
        case Applied(value=Arithmetic(left=left) as quotient) if quotient.divisor is not None:
            divided = left.interval(domain)
            return max(abs(divided.low), abs(divided.high)) <= _LARGEST_DIVIDED and _is_exact(left, domain)
        case Applied(value=inner) | Clamp(value=inner):
            return _is_exact(inner, domain)
        case Arithmetic():
            return _is_exact(value.left, domain) and _is_exact(value.right, domain)
    return isinstance(value, Field | Constant)


def _fields(value: Expression) -> frozenset[str] | None:
    """Return the attributes whose missing values alone make a number missing; None if it is computed otherwise."""
    match value:
        case Field():
            return frozenset((value.name,))
        case Constant():
            return frozenset()
        case Clamp():
            return None if value.ignores_missing else _fields(value.value)
        case Applied():
            return _fields(value.value)
        case Arithmetic():
            left, right = _fields(value.left), _fields(value.right)
            return None if left is None or right is None else left | right
    return None


def _tied(one: Integer | Real, spans: Sequence[tuple[_Number, _Number]], other: Integer | Real) -> Predicate:
    """Return a condition for the cells of another number that are possible with each cell of ``one``, given its
    spans.
    """
    starts = [other.bounds(code)[0] for code in range(other.declared)]
    codes_by_cells: dict[CodeRanges, list[int]] = {}
    for code, (low, high) in enumerate(spans):
        first = bisect_left(starts, low)
        first -= first == len(starts) or starts[first] != low  # a point and the cell above it have the same start
        last = bisect_right(starts, high) - 1
        codes_by_cells.setdefault(CodeRanges.between(max(first, 0), max(last, 0)), []).append(code)
    missing = [Among(each.name, CodeRanges.between(each.declared, each.size - 1)) for each in (one, other)]
    return Any(
        (
            *(All((Among(one.name, codes), Among(other.name, met))) for met, codes in codes_by_cells.items()),
            All(tuple(missing)),
        )
    )
