"""The microdata of all methods: distinct tuples of quasi-identifiers with their counts.

Code tuples are packed into single 64-bit keys, and equal keys are grouped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.hierarchy.levels import Integers
from sfumato.engine.port import SparseTable
from sfumato.errors import InputError

KEY_BITS = 62
SHORT_BITS = 31
LARGE = 1 << 12  # with at least this many keys, few distinct ones are grouped without a full sort
FEW = 4  # minimum tuples per distinct key for that
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the high bits of a product depend on all bits of a key
DENSE = 4  # a table of all possible keys is used up to this many entries per tuple


@dataclass(frozen=True)
class Keys:
    """One key per tuple.  Equal tuples have equal keys; keys are below ``bound`` and sort like tuples."""

    values: Integers  # (tuples,)
    bound: int


@dataclass(frozen=True, eq=False)
class KeyClasses:
    """Groups of equal keys, sorted by key: ``classes[tuple]`` is the class, ``members[class]`` is one of its tuples."""

    classes: Integers  # (tuples,)
    members: Integers  # (classes,)

    def sums(self, values: Integers) -> Integers:
        """Sum of ``values`` (tuples first) over each class, as integers."""
        if values.ndim == 1:
            # float64 sums of counts are exact below 2^53
            return np.bincount(self.classes, weights=values, minlength=len(self.members)).astype(np.int64)
        result = np.zeros((len(self.members), *values.shape[1:]), dtype=np.int64)
        np.add.at(result, self.classes, values)
        return result


def pack(columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> Keys:
    """Pack code columns into mixed-radix keys, the first column most significant.

    If a key would exceed 62 bits, the packed columns are replaced by their rank.

    >>> pack([np.array([1, 0]), np.array([2, 2])], [2, 3]).values.tolist()
    [5, 2]
    """
    keys = np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
    bound = 1
    for column, size in _short_keys(columns, sizes):
        if (bound * max(size, 1)).bit_length() > KEY_BITS:
            distinct, keys = np.unique(keys, return_inverse=True)
            bound = len(distinct)
        if size > 1:
            keys *= size
            keys += column
            bound *= size
    return Keys(keys, bound)


def _short_keys(
    columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]
) -> Iterator[tuple[NDArray[np.integer], int]]:
    """Yield the columns, with adjacent ones packed into 31 bits: short integers take a sixth of the time."""
    place = 0
    while place < len(columns):
        keys, bound = columns[place], sizes[place]
        place += 1
        while place < len(columns) and 0 < bound * sizes[place] < 1 << SHORT_BITS:
            keys = keys.astype(np.int32, copy=False) * np.int32(sizes[place])
            np.add(keys, columns[place], out=keys, casting="unsafe")
            bound *= sizes[place]
            place += 1
        yield keys, bound


def group(keys: Keys) -> KeyClasses:
    """Assign numbers to the distinct keys in ascending order."""
    tuples = len(keys.values)
    if keys.bound <= DENSE * tuples:
        member = np.full(keys.bound, -1, dtype=np.int64)
        member[keys.values] = np.arange(tuples)
        used = np.flatnonzero(member >= 0)
        number = np.empty(keys.bound, dtype=np.int64)
        number[used] = np.arange(len(used))
        return KeyClasses(number[keys.values], member[used])
    if tuples >= LARGE and (grouping := _in_buckets(keys.values)) is not None:
        return grouping
    # Engines often return sorted groups.
    sorted_already = bool(np.all(keys.values[1:] >= keys.values[:-1]))
    order = np.arange(tuples) if sorted_already else np.argsort(keys.values)
    sorted_keys = keys.values[order]
    first = np.ones(tuples, dtype=bool)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=first[1:])
    classes = np.empty(tuples, dtype=np.int64)
    classes[order] = np.cumsum(first) - 1
    return KeyClasses(classes, order[first])


def _in_buckets(keys: Integers) -> KeyClasses | None:
    """Group few distinct keys without a full sort.  Return None if many are distinct.

    Each bucket of a hash represents one of its keys.  Only tuples with other keys are sorted.
    """
    tuples = len(keys)
    bits = tuples.bit_length() - 1
    buckets = ((keys.view(np.uint64) * MULTIPLIER) >> np.uint64(64 - bits)).view(np.int64)
    member = np.full(1 << bits, -1, dtype=np.int64)
    member[buckets] = np.arange(tuples)
    used = np.flatnonzero(member >= 0)
    if len(used) * FEW > tuples:
        return None
    others = np.flatnonzero(keys[member].take(buckets) != keys)
    if len(others) * FEW > tuples:
        return None
    sorted_ = np.concatenate([member[used], others])
    _, chosen, numbers = np.unique(keys[sorted_], return_index=True, return_inverse=True)
    number = np.zeros(1 << bits, dtype=np.int64)
    number[used] = numbers[: len(used)]
    classes = number.take(buckets)
    classes[others] = numbers[len(used) :]
    return KeyClasses(classes, sorted_[chosen])


@dataclass(frozen=True, eq=False)
class CountedTable:
    """The engine's counts behind microdata: the table, and the population if there is one.

    ``left_out`` has the codes of each quasi-identifier whose rows are suppressed.  If criteria count units, the groups
    of both tables are counted per unit.
    """

    table: SparseTable
    population: SparseTable | None = None
    left_out: Mapping[str, Collection[int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TupleUnits:
    """The units with rows of each tuple, for criteria that count units.

    The unit ``units[i]`` has ``rows[i]`` rows of ``tuples[i]`` with the code ``cells[name][i]`` of each sensitive
    attribute.  A unit may have several entries for a tuple.  ``every`` has the units and codes of all rows that count,
    including rows suppressed from the start.  ``people`` has the tuples and units of the population; None if each of
    its rows is a unit.
    """

    tuples: Integers
    units: Integers
    rows: Integers
    cells: Mapping[str, Integers]
    every: tuple[Integers, Mapping[str, Integers]]
    people: tuple[Integers, Integers] | None = None


@dataclass(frozen=True, eq=False)
class Microdata:
    """The distinct tuples of quasi-identifiers with their counts and the further data of criteria.

    ``codes`` has shape ``(tuples, quasi)``, ``counts`` ``(tuples,)``.  ``sensitive`` has the histograms of each
    sensitive attribute, shape ``(tuples, cells)``.  ``declared`` has the number of cells that are values; further cells
    are missing and unknown values.  Default: all.  ``overall`` has the histogram of all rows that count, including rows
    suppressed from the start.  ``population`` counts the people of a larger table per tuple, including tuples with
    count 0 in the table.

    ``excluded`` rows count as suppressed from the start.  They have a missing quasi-identifier under the policy that
    suppresses them.  Or they are ``left_out`` by the domain, which drops one of their values.  Or they are
    ``over_bound``: beyond the bound of their unit, or without an id.  ``source`` has the engine's counts, for the
    recount.
    """

    quasi: tuple[str, ...]
    codes: Integers
    counts: Integers
    sensitive: Mapping[str, Integers] = field(default_factory=dict)
    population: Integers | None = None
    excluded: int = 0
    left_out: int = 0  # part of ``excluded``
    over_bound: int = 0  # part of ``excluded``
    declared: Mapping[str, int] = field(default_factory=dict)
    overall: Mapping[str, Integers] = field(default_factory=dict)
    source: CountedTable | None = None
    units: TupleUnits | None = None  # None if criteria count rows

    def __post_init__(self) -> None:
        if set(self.overall) != set(self.sensitive):
            sums = {name: histogram.sum(axis=0) for name, histogram in self.sensitive.items()}
            object.__setattr__(self, "overall", sums | dict(self.overall))

    @property
    def rows(self) -> int:
        """The number of rows of the table, including excluded ones."""
        return int(self.counts.sum()) + self.excluded

    @property
    def holders(self) -> int:
        """The number of different units, or of rows if criteria count rows, over all tuples."""
        return int(self.counts.sum()) if self.units is None else len(np.unique(self.units.units))

    @property
    def why_excluded(self) -> str:
        """The reasons for rows suppressed from the start, as the end of a sentence; empty if there are none."""
        parts = [
            (self.over_bound, "over the rows that one unit may have"),
            (self.left_out, "left out by the domain"),
            (self.excluded - self.over_bound - self.left_out, "without a quasi-identifier"),
        ]
        reasons = ", ".join(f"{rows} {why}" for rows, why in parts if rows)
        return f"; {self.excluded} count as suppressed from the start ({reasons})" if reasons else ""

    def with_population(self, population: SparseTable) -> Microdata:
        """Return the microdata with a population counted over the same quasi-identifiers.

        Raises:
            InputError: the attributes differ, or a tuple has fewer people in the population than rows in the table.
        """
        if population.attributes != self.quasi:
            raise InputError(
                f"the population is counted over {', '.join(population.attributes)}, not over {', '.join(self.quasi)}",
                culprit=population.attributes,
            )
        everyone = np.concatenate([self.codes, population.codes.astype(np.int64)])
        sizes = [int(column.max(initial=0)) + 1 for column in everyone.T]
        grouping = group(pack(list(everyone.T), sizes))
        table = len(self.codes)
        people = grouping.sums(np.concatenate([np.zeros(table, dtype=np.int64), population.counts]))
        counts = grouping.sums(np.concatenate([self.counts, np.zeros(len(population.counts), dtype=np.int64)]))
        units = None if self.units is None else _among_people(self.units, population, grouping)
        here = counts if units is None else _held(units.tuples, units.units, len(people))
        around = people if units is None or units.people is None else _held(*units.people, len(people))
        if np.any(around < here):
            raise InputError("the population must contain the table, and some tuples have fewer people than rows")
        padding = len(everyone) - table
        return replace(
            self,
            units=units,
            codes=everyone[grouping.members],
            counts=counts,
            population=people,
            source=None if self.source is None else replace(self.source, population=population),
            sensitive={
                name: grouping.sums(np.pad(histogram, ((0, padding), (0, 0))))
                for name, histogram in self.sensitive.items()
            },
        )

    def without(self, cells: Sequence[Collection[int]]) -> Microdata:
        """Exclude the rows with one of ``cells[attribute]``; they count as suppressed."""
        out = np.zeros(len(self.codes), dtype=bool)
        left_out = dict(zip(self.quasi, cells, strict=True))
        for column, codes in zip(self.codes.T, cells, strict=True):
            out |= np.isin(column, list(codes))
        return replace(
            self,
            units=None if self.units is None else _units_of_tuples(self.units, ~out),
            codes=self.codes[~out],
            counts=self.counts[~out],
            population=None if self.population is None else self.population[~out],
            sensitive={name: histogram[~out] for name, histogram in self.sensitive.items()},
            excluded=self.excluded + int(self.counts[out].sum()),
            source=None if self.source is None else replace(self.source, left_out=left_out),
        )


def from_groups(
    groups: SparseTable, quasi: tuple[str, ...], *, sizes: Mapping[str, int], declared: Mapping[str, int] | None = None
) -> Microdata:
    """Return microdata from one contingency table over the quasi-identifiers and the sensitive attributes.

    Args:
        groups: counts over ``quasi`` and any sensitive attributes.
        quasi: the quasi-identifiers, in the order of the result.
        sizes: number of cells of each attribute of ``groups``.
        declared: number of cells of each attribute that are values.  Default: all of them.

    Raises:
        InputError: the table lacks a quasi-identifier.
    """
    absent = [name for name in quasi if name not in groups.attributes]
    if absent:
        raise InputError(f"the table is not counted over {absent[0]!r}", culprit=absent)
    columns = {name: groups.codes[:, place].astype(np.int64) for place, name in enumerate(groups.attributes)}
    grouping = group(pack([columns[name] for name in quasi], [sizes[name] for name in quasi]))
    tuples = len(grouping.members)
    sensitive = {}
    for name in groups.attributes:
        if name not in quasi:
            flat = grouping.classes * sizes[name] + columns[name]
            histogram = np.bincount(flat, weights=groups.counts, minlength=tuples * sizes[name])
            sensitive[name] = histogram.astype(np.int64).reshape(tuples, sizes[name])
    units = None
    if groups.units is not None:
        cells = {name: columns[name] for name in sensitive}
        units = TupleUnits(grouping.classes, groups.units, groups.counts, cells, (groups.units, cells))
    return Microdata(
        quasi=quasi,
        units=units,
        codes=np.array([columns[name][grouping.members] for name in quasi]).T,  # contiguous columns
        counts=grouping.sums(groups.counts),
        sensitive=sensitive,
        declared={name: size for name, size in (declared or {}).items() if name in sensitive},
        source=CountedTable(groups),
    )


def _among_people(units: TupleUnits, population: SparseTable, grouping: KeyClasses) -> TupleUnits:
    """Renumber the units' tuples as classes of ``grouping``, which groups the table's tuples before the
    population's.
    """
    table = len(grouping.classes) - len(population.counts)
    people = None if population.units is None else (grouping.classes[table:], population.units)
    return replace(units, tuples=grouping.classes[:table][units.tuples], people=people)


def _units_of_tuples(units: TupleUnits, selected: NDArray[np.bool_]) -> TupleUnits:
    """Return the entries of the units for some of the tuples."""
    number, here = np.cumsum(selected) - 1, selected[units.tuples]
    people = units.people
    if people is not None:
        inside = selected[people[0]]
        people = number[people[0][inside]], people[1][inside]
    cells = {name: codes[here] for name, codes in units.cells.items()}
    return TupleUnits(number[units.tuples[here]], units.units[here], units.rows[here], cells, units.every, people)


def _held(tuples: Integers, units: Integers, size: int) -> Integers:
    """Count the different units of each tuple."""
    pairs = np.unique(np.stack([tuples, units], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=size)
