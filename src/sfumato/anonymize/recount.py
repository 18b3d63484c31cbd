"""Never a k that was not verified: what would be published is counted again, by other code than the search's.

Twice: from the level maps and classes that the engine is about to apply, before it does; and from the labels
of the rows that it wrote.  What differs, or is not safe, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymize.classes import Classes, finest
from sfumato.anonymize.criteria import Criterion, safe
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.packing import KEY_BITS, Keys, group, pack
from sfumato.engine.port import ROWS, Recode
from sfumato.errors import InfeasibleError

Integers = NDArray[np.int64]

DIFFERENT = "the rows written are not those that were verified; nothing was released"


@dataclass(frozen=True, eq=False)
class Count:
    """Classes that would be published, by their labels.

    ``numbers`` is the class of each listed class of the rewriting (-1 where it has no row), ``published`` whether
    each tuple of the table is in one, ``table`` the labels and rows, in order.
    """

    classes: Classes
    numbers: Integers
    published: NDArray[np.bool_]
    table: pa.Table

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.classes.counts.sum())


def count(data: Microdata, recode: Recode) -> Count:
    """Count what a rewriting would publish.

    Classes with the same labels are one.  Where rows of a tuple are dealt to several classes, only their
    number is known, so the classes carry no sensitive values.

    Raises:
        InfeasibleError: more rows of a tuple are dealt than there are, or a tuple is listed twice undealt.
    """
    coarse = [level[column] for level, column in zip(recode.levels, data.codes.T, strict=True)]
    wanted = list(recode.classes.T)
    both = [np.concatenate([here, there]).astype(np.int64) for here, there in zip(coarse, wanted, strict=True)]
    keys = group(pack(both, [int(column.max(initial=0)) + 1 for column in both])).classes
    here, there = keys[: len(data.counts)], keys[len(data.counts) :]
    label, names = _labels(recode.labels)
    if recode.rows is None:
        if len(np.unique(there)) != len(there):
            raise InfeasibleError("the rewriting lists a class twice; nothing was released", culprit=recode)
        place = np.full(int(keys.max(initial=0)) + 1, -1)
        place[there] = label
        kept = np.flatnonzero(place[here] >= 0)
        whole = finest(data)
        part = Classes(
            members=kept,
            counts=data.counts[kept],
            population=None if data.population is None else data.population[kept],
            sensitive={name: histogram[kept] for name, histogram in data.sensitive.items()},
            overall=whole.overall,
        )
        grouping = group(Keys(place[here][kept], max(len(names), 1)))
        classes = part.merge(grouping)
        labelled = place[here][kept][grouping.members]
        number = np.full(len(names), -1)
        number[labelled] = np.arange(len(labelled))
        occurring = names.take(pa.array(labelled)).append_column(ROWS, pa.array(classes.counts))
        return Count(classes, number[label], place[here] >= 0, _sorted(occurring.filter(pa.array(classes.counts > 0))))
    dealt = np.bincount(there, weights=recode.rows, minlength=int(keys.max(initial=0)) + 1)
    there_are = np.bincount(here, weights=data.counts, minlength=len(dealt))
    if np.any(dealt > there_are) or np.any(recode.rows <= 0):
        raise InfeasibleError("the rewriting deals rows that are not there; nothing was released", culprit=recode)
    counts = np.bincount(label, weights=recode.rows, minlength=len(names)).astype(np.int64)
    classes = Classes(np.arange(len(names)), counts, None, {}, {})
    return Count(classes, label, dealt[here] > 0, _sorted(names.append_column(ROWS, pa.array(counts))))


def refuse_unsafe(counted: Count, criteria: Sequence[Criterion]) -> None:
    """Refuse a rewriting whose classes do not all satisfy the criteria.

    Raises:
        InfeasibleError: a class does not.
    """
    unsafe = np.flatnonzero(~safe(criteria, counted.classes))
    if len(unsafe):
        raise InfeasibleError(
            f"counted again, {len(unsafe)} classes do not satisfy {' and '.join(map(str, criteria))}; nothing was"
            " released",
            culprit=criteria,
        )


def refuse_different(written: Iterable[pa.RecordBatch], counted: Count) -> None:
    """Refuse rows whose classes are not those that were counted.

    Args:
        written: the rows in batches; other columns than labels may be there.  A column ``ROWS`` says how many rows
            each stands for, else one.
        counted: what they should be.

    Raises:
        InfeasibleError: they are not.
    """
    expected = _Expected(counted.table)
    found = np.zeros(len(counted.table), dtype=np.int64)
    for batch in written:
        expected.add(batch, found)
    if not np.array_equal(found, counted.table[ROWS].to_numpy()):
        raise InfeasibleError(DIFFERENT)


class _Expected:
    """Finds classes by their labels, packed into one key.

    Where a key would get too wide, what is packed so far is replaced by its place among ``prefixes``, those that the
    classes have.
    """

    def __init__(self, table: pa.Table) -> None:
        self.codes: dict[str, dict[str, int]] = {}
        self.prefixes: dict[str, Integers] = {}
        keys, bound = np.zeros(len(table), dtype=np.int64), 1
        for name in (name for name in table.column_names if name != ROWS):
            labels = table[name].to_pylist()
            codes = self.codes[name] = {label: code for code, label in enumerate(dict.fromkeys(labels))}
            size = len(codes) + 1  # the last code stands for labels that no class has
            if (bound * size).bit_length() > KEY_BITS:
                self.prefixes[name], keys = np.unique(keys, return_inverse=True)
                bound = len(self.prefixes[name])
            keys = keys * size + np.array([codes[label] for label in labels], dtype=np.int64)
            bound *= size
        self.rows = np.argsort(keys)
        self.keys = keys[self.rows]

    def add(self, batch: pa.RecordBatch, counts: Integers) -> None:
        """Count rows into ``counts``, in the order of the table.

        Raises:
            InfeasibleError: a row that belongs to no class.
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
        # few classes, many rows: each class is looked up once
        distinct = pa.array(keys).value_counts()
        found = _places(self.keys, distinct.field("values").to_numpy())
        counts[self.rows[found]] += distinct.field("counts").to_numpy()


def _places(known: Integers, keys: Integers) -> Integers:
    """Place of each key among the known, ascending ones.

    Raises:
        InfeasibleError: a key that is not known.
    """
    found = np.searchsorted(known, keys)
    if not len(known) or not np.array_equal(known[np.minimum(found, len(known) - 1)], keys):
        raise InfeasibleError(DIFFERENT)
    return found


def _labels(table: pa.Table) -> tuple[Integers, pa.Table]:
    """Number of each row's labels among the distinct ones, and these."""
    encoded = [column.combine_chunks().dictionary_encode() for column in table.columns]
    codes = [column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in encoded]
    grouping = group(pack(codes, [max(len(column.dictionary), 1) for column in encoded]))
    return grouping.classes, table.take(pa.array(grouping.members))


def _sorted(table: pa.Table) -> pa.Table:
    names = [name for name in table.column_names if name != ROWS]
    return table.select([*names, ROWS]).sort_by([(name, "ascending") for name in names]).combine_chunks()
