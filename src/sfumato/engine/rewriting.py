"""The rewriting of rows by a ``Recode``: codes in, labeled rows in random order out.

Only the class of a row and its raw columns are shuffled; labels are looked up afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.port import Recode
from sfumato.privacy.entropy import OsEntropy

_Integers = NDArray[np.int64]
_Codes = NDArray[np.unsignedinteger]

_KEY_BITS = 62
_DENSE = 1 << 22  # largest table of all keys; beyond, a hash uses the caches better


class Tuples:
    """A list of distinct code tuples, with a search for the index of a tuple.

    Attributes are packed into one 64-bit key.  If that is too narrow, the packed part is replaced by its index among
    the prefixes of the list.
    """

    def __init__(self, listed: _Codes, levels: Sequence[_Codes]) -> None:
        """List tuples.

        Args:
            listed: the tuples, shape ``(tuples, attributes)``.
            levels: for each attribute the coarser code of each of its codes; ``listed`` is in coarser codes.
        """
        self._steps: list[tuple[list[_Integers], _Places]] = []
        keys, weighted, bound = np.zeros(len(listed), dtype=np.int64), [np.zeros(1, dtype=np.int64)], 1
        for level, column in zip(levels, listed.T, strict=True):
            size = max(int(level.max(initial=0)), int(column.max(initial=0))) + 1
            if (bound * size).bit_length() > _KEY_BITS:
                known, keys = np.unique(keys, return_inverse=True)
                self._steps.append((weighted, _Places(known, bound)))
                bound = max(len(known), 1)  # an empty list has one prefix, which matches nothing
                weighted = [np.arange(bound, dtype=np.int64)]
            keys = keys * size + column
            weighted = [*(table * size for table in weighted), level.astype(np.int64)]
            bound *= size
        self._steps.append((weighted, _Places(keys, bound)))

    def places(self, columns: Sequence[NDArray[np.integer]]) -> _Integers:
        """Return the index of each tuple of codes in the list, -1 for none; one array of codes per attribute."""
        rest = iter(columns)
        places_so_far = np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
        missing = np.zeros(len(places_so_far), dtype=np.bool_)
        for (first, *weighted), places in self._steps:
            keys = first[places_so_far]
            for table in weighted:
                keys += table[next(rest)]
            places_so_far = places.of(keys)
            missing |= places_so_far < 0
        places_so_far[missing] = -1
        return places_so_far


class _Places:
    """The index of each of some distinct keys."""

    def __init__(self, keys: _Integers, bound: int) -> None:
        self._table: _Integers | None = None
        if bound <= max(_DENSE, 4 * len(keys)):
            self._table = np.full(bound, -1, dtype=np.int64)
            self._table[keys] = np.arange(len(keys))
        self._keys = pa.array(keys)

    def of(self, keys: _Integers) -> _Integers:
        if self._table is not None:
            return self._table[keys]
        import pyarrow.compute as pc  # imported here: the import is slow, and few tables need it

        places: _Integers = pc.fill_null(pc.index_in(pa.array(keys), self._keys), -1).to_numpy().astype(np.int64)
        return places


class ClassAssignment:
    """An assignment of rows to the classes of a ``Recode``.

    If rows of one tuple go to several classes, their turns are drawn once at random.  So the order of the rows does not
    matter, if the order of the output is drawn again.
    """

    def __init__(self, recode: Recode) -> None:
        self._suppressed = -1 if recode.suppressed is None else len(recode.classes)
        self._decks: _Decks | None = None
        listed = recode.classes
        if recode.rows is not None:
            listed, tuples = np.unique(recode.classes, axis=0, return_inverse=True)
            self._decks = _Decks(tuples.reshape(-1), recode.rows)
        self._tuples = Tuples(listed, recode.levels)

    def classes(self, columns: Sequence[NDArray[Any]]) -> _Integers:
        """Return the number of the class of each row, shape ``(rows,)``.

        A row in no class has number -1, or one more than the last class if such rows are published.  Each call
        continues after the last one.
        """
        classes = self._tuples.places(columns)
        if self._decks is not None:
            classes = self._decks.next(classes)
        classes[classes < 0] = self._suppressed
        return classes


class _Decks:
    """The classes that rows of each tuple take in turn, shuffled."""

    def __init__(self, tuples: _Integers, rows: _Integers) -> None:
        cards = np.repeat(np.arange(len(rows)), rows)
        owners = tuples[cards]
        order = np.lexsort((OsEntropy().words(len(cards)), owners))
        self._cards = cards[order]
        self._sizes = np.bincount(owners, minlength=int(tuples.max(initial=-1)) + 1)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._taken = np.zeros(len(self._sizes), dtype=np.int64)

    def next(self, tuples: _Integers) -> _Integers:
        """Return the next class of each row's tuple, -1 for no tuple (-1) or if its classes are full."""
        order = np.argsort(tuples, kind="stable")
        order = order[np.searchsorted(tuples[order], 0) :]
        owners = tuples[order]
        seen = np.bincount(owners, minlength=len(self._taken))
        turns = self._taken[owners] + np.arange(len(owners)) - (np.cumsum(seen) - seen)[owners]
        self._taken += seen
        classes = np.full(len(tuples), -1, dtype=np.int64)
        full = turns >= self._sizes[owners]
        classes[order[~full]] = self._cards[self._starts[owners[~full]] + turns[~full]]
        return classes


BUCKET_ROWS = 1 << 20
_BUCKETS = 256  # largest number of buckets, because each has an open file


class Shuffle:
    """A shuffle that takes rows in batches and returns them in random order.  It is used once, and closed at the end.

    Rows are dealt to buckets at random, and each bucket is shuffled.  Independent uniform buckets and a uniform order
    within each make a uniform order of all rows (Rao 1961; Sandelius 1962), and only one bucket has to fit in memory.
    The draws come from the operating system.  So the order reveals nothing about the order of the input, even to an
    attacker who knows most of it.
    """

    def __init__(self, schema: pa.Schema, rows: int, folder: Path) -> None:
        """Make buckets.

        Args:
            schema: the schema of the batches.
            rows: the approximate number of rows.
            folder: a folder for rows that do not fit into one bucket; for this user only.
        """
        self._schema = schema
        self._entropy = OsEntropy()
        self._held: list[pa.RecordBatch] = []
        count = min(-(-rows // BUCKET_ROWS), _BUCKETS)
        name = secrets.token_hex(8)
        self._files = [folder / f"{name}-{bucket}" for bucket in range(count if count > 1 else 0)]
        self._writers = [pa.ipc.new_stream(str(file), schema) for file in self._files]

    def add(self, batch: pa.RecordBatch) -> None:
        """Deal the rows of a batch to buckets."""
        if not self._files:
            self._held.append(batch)
            return
        # A multiple of a word modulo a few buckets is off by less than 2^-56.
        drawn = (self._entropy.words(batch.num_rows) % np.uint64(len(self._files))).astype(np.uint8)
        dealt = batch.take(pa.array(np.argsort(drawn, kind="stable")))
        ends = np.cumsum(np.bincount(drawn, minlength=len(self._files)))
        for writer, start, end in zip(self._writers, [0, *ends[:-1]], ends, strict=True):
            writer.write_batch(dealt.slice(start, end - start))

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in random order, one bucket at a time."""
        for writer in self._writers:
            writer.close()
        if not self._files:
            yield self._shuffled(pa.Table.from_batches(self._held, self._schema))
        for file in self._files:
            with pa.ipc.open_stream(str(file)) as reader:
                bucket = reader.read_all()
            file.unlink()
            yield self._shuffled(bucket)

    def close(self) -> None:
        """Delete all rows."""
        for writer in self._writers:
            writer.close()
        for file in self._files:
            file.unlink(missing_ok=True)

    def _shuffled(self, rows: pa.Table) -> pa.Table:
        return rows.combine_chunks().take(pa.array(np.argsort(self._entropy.words(len(rows)))))


def relabelled(
    rows: pa.RecordBatchReader, recode: Recode, raw: Sequence[str], *, about: int, folder: Path
) -> pa.RecordBatchReader:
    """Return rewritten rows in random order, their labels dictionary-encoded.  All ``rows`` are read before this
    returns.

    Only the number of a row's class and its raw columns are shuffled; labels are looked up afterwards.

    Args:
        rows: one column of codes for each quasi-identifier, in order, then the raw columns.
        recode: the rewriting.
        raw: names of the raw columns.
        about: the approximate number of rows.
        folder: a folder for many rows; for this user only.
    """
    assignment, quasi = ClassAssignment(recode), len(recode.attributes)
    carried = [rows.schema.field(place).with_name(f"r{place}") for place in range(quasi, len(rows.schema))]
    schema = pa.schema([pa.field("class", pa.uint32()), *carried])
    mixer = Shuffle(schema, about, folder)
    try:
        for batch in rows:
            numbers = assignment.classes([column.to_numpy() for column in batch.columns[:quasi]])
            numbered = pa.record_batch([pa.array(numbers.astype(np.uint32)), *batch.columns[quasi:]], schema=schema)
            mixer.add(numbered if numbers.min(initial=0) >= 0 else numbered.filter(pa.array(numbers >= 0)))
    except BaseException:
        mixer.close()
        raise
    labels = [_Label(column, recode.suppressed) for column in recode.labels.columns]
    written = [pa.field(name, label.type) for name, label in zip(recode.labels.column_names, labels, strict=True)]
    written += [field.with_name(name) for field, name in zip(carried, raw, strict=True)]
    return pa.RecordBatchReader.from_batches(pa.schema(written), _labelled(mixer, labels, pa.schema(written)))


def _labelled(mixer: Shuffle, labels: Sequence[_Label], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for bucket in mixer.tables():
            classes = bucket["class"].to_numpy().astype(np.intp)  # once, not in every look-up
            columns = [*(label.of(classes) for label in labels), *bucket.columns[1:]]
            yield from pa.table(columns, schema=schema).to_batches()
    finally:
        mixer.close()


class _Label:
    """A column of labels: the code of its text for each class, in the fewest bytes for the codes."""

    def __init__(self, column: pa.ChunkedArray, suppressed: str | None) -> None:
        encoded = column.combine_chunks().dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if suppressed is not None:
            texts = texts if suppressed in texts else [*texts, suppressed]
            codes = np.append(codes, texts.index(suppressed))
        width = next(kind for kind in (np.int8, np.int16, np.int32) if len(texts) <= np.iinfo(kind).max)
        self._codes: NDArray[np.signedinteger] = codes.astype(width)
        self._texts = pa.array(texts, pa.string())
        self.type = pa.dictionary(pa.from_numpy_dtype(width), pa.string())

    def of(self, classes: NDArray[np.intp]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(self._codes[classes]), self._texts)
