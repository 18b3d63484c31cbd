"""The verification of a release: a recount of the published classes by code that is independent of the search.

The recount runs twice.  Before the engine rewrites the rows, it uses the engine's counts with the level maps and
classes.  Afterward it uses the labels of the written rows.  A difference or an unsafe class is refused.  The recount
shares nothing with the search: it groups tuples, merges classes and computes criteria by other code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.criteria.tally import ClassTally, ValueTally
from sfumato.anonymize.microdata import CountedTable
from sfumato.domain.hierarchy.levels import Integers
from sfumato.engine.port import ROWS, Recode, SparseTable
from sfumato.errors import InfeasibleError

DIFFERENT = "the rows written are not those that were verified; nothing was released"
KEY_BITS = 62


@dataclass(frozen=True, eq=False)
class Recount:
    """The classes to publish, by their labels.

    ``table`` has the labels and rows of each class, in order.  ``people`` and ``values`` have the people and the
    sensitive values of each class.  If rows of a tuple are split over several classes, only their number is known, so
    ``values`` is empty.  ``unpublished`` has the people of each class with people and no row.  ``everyone`` has the
    values of all rows.  ``units`` has the different units of each class; None if criteria count rows.
    """

    table: pa.Table
    people: Integers | None
    values: Mapping[str, Sequence[ValueTally]]
    everyone: Mapping[str, ValueTally]
    unpublished: Integers
    units: Integers | None = None

    @property
    def counts(self) -> Integers:
        """The rows of each class."""
        counts: Integers = self.table[ROWS].to_numpy()
        return counts

    @property
    def sizes(self) -> Integers:
        """The number of units of each class, or of rows if criteria count rows."""
        return self.counts if self.units is None else self.units

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def tallies(self, declared: Mapping[str, int]) -> Iterator[ClassTally]:
        """Yield the classes one by one, and classes without a row last."""
        everyone = self.everyone
        most = {name: declared.get(name, len(held.cells)) for name, held in everyone.items()}
        people = [None] * len(self.table) if self.people is None else self.people.tolist()
        numbers = zip(self.counts.tolist(), self.sizes.tolist(), people, strict=True)
        for number, (rows, size, around) in enumerate(numbers):
            held = {name: classes[number] for name, classes in self.values.items()}
            yield ClassTally(rows, size, around, held, everyone, most)
        nothing = {name: ValueTally([0] * len(held.cells)) for name, held in everyone.items()}
        for around in self.unpublished.tolist():
            yield ClassTally(0, 0, around, nothing, everyone, most)


def count(source: CountedTable, recode: Recode) -> Recount:
    """Recount the result of a rewrite.  Classes with the same labels are merged.

    Raises:
        InfeasibleError: more rows of a tuple are assigned than exist, or an unsplit tuple is listed twice.  If units
            are counted: part of the rows of a tuple are assigned, and one of its units has several rows.
    """
    table, population = source.table, source.population
    if population is not None:
        population = _part(population, ~_any_of(population, source.left_out))
    tuples, people = _coarse(table, recode), None if population is None else _coarse(population, recode)
    sensitive = [name for name in table.attributes if name not in recode.attributes]
    listed = recode.classes.astype(np.int64)
    every, _ = _numbered(np.concatenate([tuples, listed] + ([] if people is None else [people])))
    here, there, around = np.split(every, [len(tuples), len(tuples) + len(listed)])
    keys = int(every.max(initial=-1)) + 1
    label, first = _numbered(_dictionary_codes(recode.labels))
    names = recode.labels.take(pa.array(first))
    if np.any(np.isin(here[_any_of(table, source.left_out)], there)):
        raise InfeasibleError("the rewriting publishes rows that are to be left out; nothing was released")
    if recode.rows is not None:
        dealt = np.bincount(there, weights=recode.rows, minlength=keys)
        there_are = np.bincount(here, weights=table.counts, minlength=keys)
        if np.any(dealt > there_are) or np.any(recode.rows <= 0):
            raise InfeasibleError("the rewriting deals rows that are not there; nothing was released", culprit=recode)
        counts = _sums(label, recode.rows, len(names))
        class_table, order = _sorted(names, counts)
        units = None if table.units is None else _dealt_units(table, recode, here, there, label)[order]
        return Recount(class_table, None, {}, {}, np.zeros(0, dtype=np.int64), units)
    if len(np.unique(there)) != len(there):
        raise InfeasibleError("the rewriting lists a class twice; nothing was released", culprit=recode)
    place = np.full(keys, -1)
    place[there] = label
    published = place[here] >= 0
    counts = _sums(place[here][published], table.counts[published], len(names))
    class_table, order = _sorted(names, counts)
    units = None if table.units is None else _different(place[here], table.units, len(names))[order]
    tallied = {name: _tallied(table, name, place[here], len(names)) for name in sensitive}
    values = {name: [classes[number] for number in order.tolist()] for name, classes in tallied.items()}
    everyone = {name: _tallied(table, name, np.zeros(len(here), dtype=np.int64), 1)[0] for name in sensitive}
    if population is None:
        return Recount(class_table, None, values, everyone, np.zeros(0, dtype=np.int64), units)
    joined = _people(population, place[around], len(names))[order]
    nobody = np.bincount(here, weights=table.counts, minlength=keys) == 0
    alone = _people(population, around, keys)[nobody]
    return Recount(class_table, joined, values, everyone, alone[alone > 0], units)


def refuse_unsafe(recount: Recount, criteria: Sequence[Criterion], declared: Mapping[str, int]) -> None:
    """Refuse a rewrite unless all of its classes satisfy the criteria.

    Args:
        recount: the classes to publish.
        criteria: conditions on every class.
        declared: number of cells of each sensitive attribute that are values.  Default: all.

    Raises:
        InfeasibleError: a class fails, or its sensitive values are unknown.
    """
    known = {*recount.values, None}
    looked_at = all(criterion.sensitive in known for criterion in criteria)
    unsafe = sum(
        not (looked_at and all(criterion.is_safe(tally) for criterion in criteria))
        for tally in recount.tallies(declared)
    )
    if unsafe:
        raise InfeasibleError(
            f"counted again, {unsafe} classes do not satisfy {' and '.join(map(str, criteria))}; nothing was released",
            culprit=criteria,
        )


def homogeneous(table: SparseTable, recode: Recode, declared: int) -> int:
    """Count the rows to publish in classes with at most one declared value of the table's last attribute.

    If units are counted, a class counts if one declared value is common to all of its units that have any.  If rows of
    a tuple are split over several classes, the count is a lower bound.
    """
    listed = recode.classes.astype(np.int64)
    every, _ = _numbered(np.concatenate([_coarse(table, recode), listed]))
    here, there = every[: len(table.codes)], every[len(table.codes) :]
    label, first = _numbered(_dictionary_codes(recode.labels))
    keys = int(every.max(initial=-1)) + 1
    rows = _sums(here, table.counts, keys)[there] if recode.rows is None else recode.rows
    counts = _sums(label, rows, len(first))
    codes = table.codes[:, -1].astype(np.int64)
    which = codes < declared
    if table.units is not None:
        classes, entries = _pairs(label, there, here[which])
        units, held = table.units[which][entries], codes[which][entries]
        _, values = _numbered(np.stack([classes, units, held], axis=1))
        having = np.zeros((len(first), max(declared, 1)), dtype=np.int64)
        np.add.at(having, (classes[values], held[values]), 1)
        return int(counts[having.max(axis=1) >= _different(classes, units, len(first))].sum())
    least, most = np.full(keys, declared), np.full(keys, -1)
    np.minimum.at(least, here[which], codes[which])
    np.maximum.at(most, here[which], codes[which])
    low, high = np.full(len(first), declared), np.full(len(first), -1)
    np.minimum.at(low, label, least[there])
    np.maximum.at(high, label, most[there])
    return int(counts[low >= high].sum())


def refuse_different(written: Iterable[pa.RecordBatch], recount: Recount) -> None:
    """Refuse rows whose classes differ from the recounted ones.

    Args:
        written: the rows in batches, with or without further columns.  A column ``ROWS`` has the number of rows that
            each represents.  Default: one.
        recount: the expected classes.

    Raises:
        InfeasibleError: the classes differ.
    """
    expected = _Expected(recount.table)
    counts = np.zeros(len(recount.table), dtype=np.int64)
    for batch in written:
        expected.add(batch, counts)
    if not np.array_equal(counts, recount.table[ROWS].to_numpy()):
        raise InfeasibleError(DIFFERENT)


class _Expected:
    """An index of classes by their labels, packed into one key.

    If a key would get too wide, its packed part is replaced by its position among ``prefixes``, the prefixes that occur
    in the classes.
    """

    def __init__(self, table: pa.Table) -> None:
        self.codes: dict[str, dict[str, int]] = {}
        self.prefixes: dict[str, Integers] = {}
        keys, bound = np.zeros(len(table), dtype=np.int64), 1
        for name in (name for name in table.column_names if name != ROWS):
            labels = table[name].to_pylist()
            codes = self.codes[name] = {label: code for code, label in enumerate(dict.fromkeys(labels))}
            size = len(codes) + 1  # the last code represents labels that no class has
            if (bound * size).bit_length() > KEY_BITS:
                self.prefixes[name], keys = np.unique(keys, return_inverse=True)
                bound = len(self.prefixes[name])
            keys = keys * size + np.array([codes[label] for label in labels], dtype=np.int64)
            bound *= size
        self.rows = np.argsort(keys)
        self.keys = keys[self.rows]

    def add(self, batch: pa.RecordBatch, counts: Integers) -> None:
        """Add the rows of a batch to ``counts``, in the order of the table.

        Raises:
            InfeasibleError: a row belongs to no class.
        """
        if not batch.num_rows:
            return
        keys = np.zeros(batch.num_rows, dtype=np.int64)
        for name, codes in self.codes.items():
            column = batch.column(name)
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            place = np.array([codes.get(label, len(codes)) for label in encoded.dictionary.to_pylist()], dtype=np.int64)
            if encoded.null_count:
                raise InfeasibleError(DIFFERENT)
            if name in self.prefixes:
                keys = _places(self.prefixes[name], keys)
            keys *= len(codes) + 1
            keys += place[encoded.indices.to_numpy()]
        if ROWS in batch.schema.names:
            np.add.at(counts, self.rows[_places(self.keys, keys)], batch.column(ROWS).to_numpy())
            return
        # few classes and many rows: each class is looked up once
        distinct = pa.array(keys).value_counts()
        places = _places(self.keys, distinct.field("values").to_numpy())
        counts[self.rows[places]] += distinct.field("counts").to_numpy()


def _places(known: Integers, keys: Integers) -> Integers:
    """Return the position of each key among the known, ascending keys.

    Raises:
        InfeasibleError: a key is unknown.
    """
    places = np.searchsorted(known, keys)
    if not len(known) or not np.array_equal(known[np.minimum(places, len(known) - 1)], keys):
        raise InfeasibleError(DIFFERENT)
    return places


def _any_of(groups: SparseTable, codes: Mapping[str, Collection[int]]) -> NDArray[np.bool_]:
    """Return which tuples have one of the given codes."""
    matches = np.zeros(len(groups.codes), dtype=bool)
    for name, cells in codes.items():
        matches |= np.isin(groups.codes[:, groups.attributes.index(name)], list(cells))
    return matches


def _part(groups: SparseTable, which: NDArray[np.bool_]) -> SparseTable:
    units = None if groups.units is None else groups.units[which]
    return SparseTable(groups.attributes, groups.codes[which], groups.counts[which], units)


def _coarse(groups: SparseTable, recode: Recode) -> Integers:
    """Return the coarser codes of the quasi-identifiers of each tuple, shape ``(tuples, quasi)``."""
    columns = [groups.codes[:, groups.attributes.index(name)] for name in recode.attributes]
    return np.stack([level[column] for level, column in zip(recode.levels, columns, strict=True)], axis=1).astype(
        np.int64
    )


def _numbered(rows: Integers) -> tuple[Integers, Integers]:
    """Assign numbers to the rows, the same one to equal rows, and return one row per number."""
    # short integers use radix sort, which is several times faster
    order = np.lexsort([column.astype(np.min_scalar_type(int(column.max(initial=0)))) for column in rows.T[::-1]])
    sorted_rows = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(axis=1)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]


def _dictionary_codes(table: pa.Table) -> Integers:
    """Return each text column as codes of its distinct values, shape ``(rows, columns)``."""
    encoded = [column.combine_chunks().dictionary_encode() for column in table.columns]
    return np.stack([column.indices.to_numpy(zero_copy_only=False) for column in encoded], axis=1).astype(np.int64)


def _tallied(table: SparseTable, name: str, place: Integers, classes: int) -> list[ValueTally]:
    """Count the values of an attribute in each class; position -1 is in no class."""
    codes = table.codes[:, table.attributes.index(name)].astype(np.int64)
    result = np.zeros((classes, int(codes.max(initial=-1)) + 1), dtype=np.int64)
    inside = place >= 0
    if table.units is None:
        np.add.at(result, (place[inside], codes[inside]), table.counts[inside])
        return [ValueTally(cells) for cells in result.tolist()]
    listed = np.stack([place, table.units, codes], axis=1)[inside]
    held = listed[np.sort(_numbered(listed)[1])] if len(listed) else listed
    unit, _ = _numbered(held[:, :2])
    single = np.bincount(unit)[unit] == 1 if len(unit) else np.zeros(0, dtype=bool)
    np.add.at(result, (held[single, 0], held[single, 2]), 1)
    sets: dict[int, tuple[int, set[int]]] = {}
    for number, (here, _, code) in zip(unit[~single].tolist(), held[~single].tolist(), strict=True):
        sets.setdefault(number, (here, set()))[1].add(code)
    several: list[Counter[frozenset[int]]] = [Counter() for _ in range(classes)]
    for here, codes_held in sets.values():
        several[here][frozenset(codes_held)] += 1
    return [ValueTally(cells, more) for cells, more in zip(result.tolist(), several, strict=True)]


def _different(place: Integers, units: Integers, classes: int) -> Integers:
    """Count the different units of each class; position -1 is in no class."""
    pairs = np.stack([place, units], axis=1)[place >= 0]
    if not len(pairs):
        return np.zeros(classes, dtype=np.int64)
    _, first = _numbered(pairs)
    return np.bincount(pairs[first, 0], minlength=classes)


def _people(population: SparseTable, place: Integers, classes: int) -> Integers:
    """Count the people of each class: units, or rows if the population names no units; position -1 is in no class."""
    if population.units is not None:
        return _different(place, population.units, classes)
    return _sums(place[place >= 0], population.counts[place >= 0], classes)


def _dealt_units(table: SparseTable, recode: Recode, here: Integers, there: Integers, label: Integers) -> Integers:
    """Count the units of each class if rows of a tuple are split at random.  Each split tuple needs one row per unit.

    ``here`` are the tuples of the groups of ``table``, ``there`` the tuples of the listed classes, ``label`` their
    classes.

    Raises:
        InfeasibleError: part of a tuple is assigned, and one of its units has several rows.
    """
    assert table.units is not None
    assert recode.rows is not None
    rows = np.bincount(here, weights=table.counts, minlength=int(there.max(initial=-1)) + 1)
    published = np.isin(here, there)
    of_unit = np.bincount(table.units[published], weights=table.counts[published], minlength=int(table.units.max()) + 1)
    part = recode.rows < rows[there]
    if np.any(of_unit[table.units[published & np.isin(here, there[part])]] > 1):
        raise InfeasibleError(
            "the rewriting deals rows of units that have several; nothing was released", culprit=recode
        )
    classes, entries = _pairs(label[~part], there[~part], here)
    size = int(label.max(initial=-1)) + 1
    return _different(classes, table.units[entries], size) + _sums(label[part], recode.rows[part], size)


def _pairs(label: Integers, there: Integers, here: Integers) -> tuple[Integers, Integers]:
    """Return pairs of a class and an entry: class ``label[i]`` has the entries with ``here`` equal to ``there[i]``."""
    order = np.argsort(here, kind="stable")
    start = np.searchsorted(here[order], there)
    many = np.searchsorted(here[order], there, side="right") - start
    listed = np.repeat(np.arange(len(there)), many)
    return label[listed], order[np.arange(len(listed)) - np.repeat(np.cumsum(many) - many - start, many)]


def _sums(place: Integers, rows: Integers, classes: int) -> Integers:
    result = np.zeros(classes, dtype=np.int64)
    np.add.at(result, place, rows)
    return result


def _sorted(names: pa.Table, counts: Integers) -> tuple[pa.Table, Integers]:
    """Sort the nonempty classes by label.  Return their labels and rows, and the previous position of each."""
    numbered = names.append_column(ROWS, pa.array(counts)).append_column("", pa.array(np.arange(len(counts))))
    keys = [(name, "ascending") for name in names.column_names]
    sorted_table = numbered.filter(pa.array(counts > 0)).sort_by(keys).combine_chunks()
    return sorted_table.drop_columns([""]), sorted_table[""].to_numpy()
