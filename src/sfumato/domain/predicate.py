"""Conditions on a row, in terms of declared cells, for the filters of counting queries.

A condition names cells, never expressions, so the domain alone decides whether it can be evaluated.  Ranges of codes
name the cells, so that a comparison takes as much memory for a million cells as for ten.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, groupby, islice
from operator import index, itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar
from typing import Any as Anything

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real, null_code
from sfumato.errors import QueryError

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

T = TypeVar("T")

_FEW = 4  # ranges to compare one by one; for more, a search or a look-up is faster
_LISTED = 12  # cells, or runs of cells, that a condition names in words
_TABLE = 1 << 16  # cells of a look-up table: larger ones do not fit the caches


@dataclass(frozen=True, slots=True, repr=False)
class CodeRanges:
    """A set of codes, as ranges in order: disjoint, none touching the next.

    Attributes:
        bounds: the first code of each range and the code after its last, in increasing order.

    >>> CodeRanges.of([7, 2, 4, 3])
    CodeRanges(2..4, 7)
    >>> CodeRanges.between(0, 9) - CodeRanges.of([7, 2, 4, 3])
    CodeRanges(0..1, 5..6, 8..9)
    """

    bounds: tuple[int, ...] = ()

    @staticmethod
    def of(codes: Iterable[int]) -> CodeRanges:
        """Return the set of some codes.

        Raises:
            QueryError: a code is no integer.
        """
        if isinstance(codes, range) and codes.step == 1:
            return CodeRanges.between(codes.start, codes.stop - 1)
        try:
            ordered_codes = sorted({index(code) for code in codes})
        except TypeError:
            raise QueryError("a condition names the codes of an attribute, as integers", culprit=codes) from None
        bounds: list[int] = []
        for code in ordered_codes:
            if bounds[-1:] == [code]:
                bounds[-1] += 1
            else:
                bounds += (code, code + 1)
        return CodeRanges(tuple(bounds))

    @staticmethod
    def between(first: int, last: int) -> CodeRanges:
        """Return the codes from the first to the last; no codes if the first is greater."""
        return CodeRanges((first, last + 1) if first <= last else ())

    @staticmethod
    def where(mask: NDArray[np.bool_]) -> CodeRanges:
        """Return the indices at which an array is true.

        >>> CodeRanges.where(np.array([True, False, True, True]))
        CodeRanges(0, 2..3)
        """
        edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
        return CodeRanges(tuple(edges.tolist()))

    @staticmethod
    def union(sets: Sequence[CodeRanges]) -> CodeRanges:
        """Return the codes in at least one of the sets."""
        return sets[0] if len(sets) == 1 else _swept([(each, 1) for each in sets], least=1)

    @staticmethod
    def intersection(sets: Sequence[CodeRanges]) -> CodeRanges:
        """Return the codes that are in all of the sets; there is at least one set."""
        return sets[0] if len(sets) == 1 else _swept([(each, 1) for each in sets], least=len(sets))

    def __repr__(self) -> str:
        texts = (str(first) if first == last else f"{first}..{last}" for first, last in self.ranges)
        return f"CodeRanges({', '.join(texts)})"

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def __len__(self) -> int:
        return sum(self.bounds[1::2]) - sum(self.bounds[::2])

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.ranges)

    def __contains__(self, code: int) -> bool:
        return bisect_right(self.bounds, code) % 2 == 1

    def __or__(self, other: CodeRanges) -> CodeRanges:
        return CodeRanges.union((self, other))

    def __and__(self, other: CodeRanges) -> CodeRanges:
        return CodeRanges.intersection((self, other))

    def __sub__(self, other: CodeRanges) -> CodeRanges:
        return _swept([(self, 1), (other, -1)], least=1)

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last code of each range, in order."""
        ends = iter(self.bounds)
        return ((first, after - 1) for first, after in zip(ends, ends, strict=True))

    @property
    def first(self) -> int:
        """The smallest code of a non-empty set."""
        return self.bounds[0]

    @property
    def last(self) -> int:
        """The greatest code of a non-empty set."""
        return self.bounds[-1] - 1

    def to_json(self) -> list[list[int]]:
        """Return the first and the last code of each range; three or more equally spaced ranges add step and number.

        >>> CodeRanges.of([0, 1, 2, 7, 14, 21, 30]).to_json()
        [[0, 2], [7, 7, 7, 3], [30, 30]]
        """
        runs: list[list[int]] = []  # first, last, step to the next, number
        for first, last in self.ranges:
            if runs:
                latest, step = runs[-1], first - runs[-1][0]
                if last - first == latest[1] - latest[0] and (latest[3] == 1 or step == latest[2] * latest[3]):
                    runs[-1] = [*latest[:2], latest[2] or step, latest[3] + 1]
                    continue
            runs.append([first, last, 0, 1])
        return [each for run in runs for each in _run_json(*run)]

    def within(self, size: int) -> bool:
        """Return whether all codes are from 0 to below ``size``."""
        return not self.bounds or (self.bounds[0] >= 0 and self.bounds[-1] <= size)

    def mask(self, size: int) -> NDArray[np.bool_]:
        """Return an array, shape ``(size,)``, that is true at the codes; all codes are below ``size``."""
        mask = np.zeros(size, dtype=np.bool_)
        for first, last in self.ranges:
            mask[first : last + 1] = True
        return mask

    def contains(self, codes: NDArray[np.integer[Anything]], size: int) -> NDArray[np.bool_]:
        """Return a mask of the codes in the set, in the shape of ``codes``.

        Args:
            codes: each from 0 to below ``size``.
            size: the number of possible codes.
        """
        if len(self.bounds) <= 2 * _FEW:
            mask = np.zeros(codes.shape, dtype=np.bool_)
            for first, last in self.ranges:
                mask |= codes == first if first == last else (codes >= first) & (codes <= last)
            return mask
        if size <= _TABLE:
            return self.mask(size).take(codes)
        inside: NDArray[np.bool_] = np.searchsorted(np.array(self.bounds), codes, side="right") % 2 == 1
        return inside


def _run_json(first: int, last: int, step: int, number: int) -> list[list[int]]:
    if number > 2:  # noqa: PLR2004  (two are spelled one by one)
        return [[first, last, step, number]]
    return [[first + place * step, last + place * step] for place in range(number)]


def _swept(sets: Sequence[tuple[CodeRanges, int]], *, least: int) -> CodeRanges:
    """Return the codes whose sets have weights of at least ``least`` in sum."""
    starts = ((bound, weight) for each, weight in sets for bound in each.bounds[::2])
    ends = ((bound, -weight) for each, weight in sets for bound in each.bounds[1::2])
    bounds: list[int] = []
    depth = 0
    for place, steps in groupby(sorted(chain(starts, ends)), key=itemgetter(0)):
        depth += sum(step for _, step in steps)
        if (depth >= least) != len(bounds) % 2:  # a range begins here, or ends
            bounds.append(place)
    return CodeRanges(tuple(bounds))


@dataclass(frozen=True)
class Fold(Generic[T]):
    """The result of each kind of condition, given the results of its parts:  SQL, an array, JSON, or words."""

    among: Callable[[Among], T]
    every: Callable[[Iterator[T]], T]
    some: Callable[[Iterator[T]], T]
    negated: Callable[[T], T]


class Predicate(ABC):
    """A condition on a row."""

    @property
    @abstractmethod
    def inner(self) -> tuple[Predicate, ...]:
        """The conditions that it is composed of."""

    @abstractmethod
    def fold(self, how: Fold[T]) -> T:
        """Return the result for the condition, computed from its parts, innermost first; each is computed on demand."""

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes in the condition.

        >>> sorted(All((Among("age", [1]), Not(Among("sex", [])))).attributes)
        ['age', 'sex']
        """
        return self.fold(_ATTRIBUTES)

    @property
    def held_bytes(self) -> int:
        """The approximate size in bytes, with its form in the journal."""
        return self.fold(_BYTES)

    @property
    def to_json(self) -> dict[str, Anything]:
        """The JSON values for the journal: equal conditions in normal form have equal JSON."""
        return self.fold(_JSON)

    @property
    def digest(self) -> str:
        """The SHA-256 of :attr:`to_json`, hexadecimal."""
        return hashlib.sha256(json.dumps(self.to_json, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, init=False)
class Among(Predicate):
    """A condition that the attribute's code is one of ``codes``.

    >>> Among("age", range(18, 66)) == Among("age", frozenset(range(18, 66)))
    True
    """

    attribute: str
    codes: CodeRanges

    def __init__(self, attribute: str, codes: CodeRanges | Iterable[int]) -> None:
        """Take codes as ranges or as integers in any order.

        Raises:
            QueryError: a code is no integer.
        """
        object.__setattr__(self, "attribute", attribute)
        object.__setattr__(self, "codes", codes if isinstance(codes, CodeRanges) else CodeRanges.of(codes))

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """No conditions."""
        return ()

    def fold(self, how: Fold[T]) -> T:
        """Fold the comparison."""
        return how.among(self)


@dataclass(frozen=True)
class All(Predicate):
    """A condition that holds if every part holds; without parts it holds for every row."""

    parts: tuple[Predicate, ...]

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The parts."""
        return self.parts

    def fold(self, how: Fold[T]) -> T:
        """Fold the conjunction."""
        return how.every(part.fold(how) for part in self.parts)


@dataclass(frozen=True)
class Any(Predicate):
    """A condition that holds if at least one part holds; without parts it holds for no row."""

    parts: tuple[Predicate, ...]

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The parts."""
        return self.parts

    def fold(self, how: Fold[T]) -> T:
        """Fold the disjunction."""
        return how.some(part.fold(how) for part in self.parts)


@dataclass(frozen=True)
class Not(Predicate):
    """A condition that holds if its part does not hold."""

    part: Predicate

    @property
    def inner(self) -> tuple[Predicate, ...]:
        """The only part."""
        return (self.part,)

    def fold(self, how: Fold[T]) -> T:
        """Fold the negation."""
        return how.negated(self.part.fold(how))


def _union(parts: Iterator[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*parts)


_ATTRIBUTES = Fold(
    among=lambda part: frozenset((part.attribute,)), every=_union, some=_union, negated=lambda part: part
)


_BYTES = Fold[int](
    among=lambda part: 800 + 160 * len(part.codes.bounds),
    every=lambda parts: 200 + sum(parts),
    some=lambda parts: 200 + sum(parts),
    negated=lambda part: 100 + part,
)


_JSON = Fold[dict[str, Anything]](
    among=lambda part: {"among": [part.attribute, part.codes.to_json()]},
    every=lambda parts: {"all": sorted(parts, key=repr)},
    some=lambda parts: {"any": sorted(parts, key=repr)},
    negated=lambda part: {"not": part},
)


def named(predicate: Predicate | None) -> frozenset[str]:
    """Return the attributes in a condition; none if there is no condition."""
    return frozenset() if predicate is None else predicate.attributes


def condition_mask(
    predicate: Predicate, domain: Domain, codes: Callable[[str], NDArray[np.integer[Anything]]]
) -> NDArray[np.bool_]:
    """Return a mask of the codes that meet a condition.

    Args:
        predicate: the condition.
        domain: the domain of the codes.
        codes: the codes of an attribute; arrays of different attributes are broadcast against each other.

    Returns:
        A mask with the broadcast shape of the arrays that the condition reads; without axes if it reads none.
    """

    def true(part: Among) -> NDArray[np.bool_]:
        return part.codes.contains(codes(part.attribute), domain[part.attribute].size)

    return predicate.fold(
        Fold(
            among=true,
            every=lambda parts: reduce(np.logical_and, parts, np.array(True)),
            some=lambda parts: reduce(np.logical_or, parts, np.array(False)),
            negated=np.logical_not,
        )
    )


def holds_at_cells(predicate: Predicate, names: Sequence[str], domain: Domain) -> NDArray[np.bool_]:
    """Return a mask of the cells of a marginal over ``names`` at which a condition on them is true.

    Returns:
        One axis per attribute, of length 1 if the condition does not depend on it.
    """

    def codes(name: str) -> NDArray[np.intp]:
        return np.arange(domain[name].size).reshape([-1 if each == name else 1 for each in names])

    mask: NDArray[np.bool_] = np.ones((1,) * len(names), dtype=np.bool_) & condition_mask(predicate, domain, codes)
    return mask


def describe_condition(where: Predicate, domain: Domain) -> str:
    """Return a condition in words for readers of the journal: public names and declared values only."""
    words: Fold[Callable[[], str]] = Fold(  # the text of a condition with thousands of parts needs only a few of them
        among=lambda part: lambda: _among(domain[part.attribute], part.codes),
        every=lambda parts: partial(_worded, " and ", list(parts), "()"),
        some=lambda parts: partial(_worded, " or ", list(parts), "nothing holds"),
        negated=lambda part: lambda: f"not {part()}",
    )
    return where.fold(words)()


def _worded(word: str, parts: Sequence[Callable[[], str]], none: str) -> str:
    more = f"{word}{len(parts) - _LISTED} more conditions" if parts[_LISTED:] else ""
    return f"({word.join(part() for part in parts[:_LISTED])}{more})" if parts else none


def _among(attribute: Attribute, codes: CodeRanges) -> str:
    """Return the cells in words, or the excluded cells if they are fewer."""
    others = CodeRanges.between(0, attribute.size - 1) - codes
    inside, outside = (_phrases(attribute, each) for each in (codes, others))
    word, codes_listed = ("in", codes) if inside <= outside else ("not in", others)
    listed = islice(_stretches(attribute, codes_listed), _LISTED)
    more = min(inside, outside) - _LISTED
    return f"{attribute.name} {word} {', '.join(listed)}{f' and {more} more' if more > 0 else ''}"


def _phrases(attribute: Attribute, codes: CodeRanges) -> int:
    """Return the number of runs that name some cells."""
    declared = codes & CodeRanges.between(0, attribute.declared - 1)
    stretches = len(declared) if isinstance(attribute, Categorical) else len(declared.bounds) // 2
    return stretches + len(codes) - len(declared)


def _stretches(attribute: Attribute, codes: CodeRanges) -> Iterator[str]:
    """Yield each run of consecutive declared cells of numbers as one interval, and every other cell alone."""
    declared = codes & CodeRanges.between(0, attribute.declared - 1)
    if isinstance(attribute, Categorical):
        yield from (str(attribute.values[code]) for code in declared)
    else:
        between = "to" if isinstance(attribute, Integer | Date) else "to below"
        for start, end in declared.ranges:
            if isinstance(attribute, Real) and attribute.points:
                yield attribute.joined_label(start, end)
                continue
            low, high = attribute.bounds(start)[0], attribute.bounds(end)[1]
            yield str(low) if low == high else f"{low} {between} {high}"
    missing = null_code(attribute)
    yield from ("missing" if code == missing else "other" for code in codes - declared)
