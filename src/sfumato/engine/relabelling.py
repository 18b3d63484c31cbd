"""Rewriting rows by a ``Recode`` in this process: batches of codes in, labelled rows in random order out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.dealing import Dealing
from sfumato.engine.mixing import Mixer
from sfumato.engine.port import Recode


def relabelled(
    rows: pa.RecordBatchReader, recode: Recode, raw: Sequence[str], *, about: int, folder: Path
) -> pa.RecordBatchReader:
    """Rewritten rows in random order, their labels dictionary-encoded.  All of ``rows`` is read before this returns.

    Only the number of a row's class and its raw columns are shuffled; labels are looked up afterwards.

    Args:
        rows: one column of codes for each quasi-identifier, in their order, then the raw columns.
        recode: what to write.
        raw: names of the raw columns.
        about: how many rows there will be.
        folder: where rows are kept meanwhile if they are many; for this user only.
    """
    dealing, quasi = Dealing(recode), len(recode.attributes)
    carried = [rows.schema.field(place).with_name(f"r{place}") for place in range(quasi, len(rows.schema))]
    schema = pa.schema([pa.field("class", pa.uint32()), *carried])
    mixer = Mixer(schema, about, folder)
    try:
        for batch in rows:
            numbers = dealing.classes([column.to_numpy() for column in batch.columns[:quasi]])
            kept = pa.record_batch([pa.array(numbers.astype(np.uint32)), *batch.columns[quasi:]], schema=schema)
            mixer.add(kept if numbers.min(initial=0) >= 0 else kept.filter(pa.array(numbers >= 0)))
    except BaseException:
        mixer.close()
        raise
    labels = [_Label(column, recode.suppressed) for column in recode.labels.columns]
    written = [pa.field(name, label.type) for name, label in zip(recode.labels.column_names, labels, strict=True)]
    written += [field.with_name(name) for field, name in zip(carried, raw, strict=True)]
    return pa.RecordBatchReader.from_batches(pa.schema(written), _labelled(mixer, labels, pa.schema(written)))


def _labelled(mixer: Mixer, labels: Sequence[_Label], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for bucket in mixer.tables():
            classes = bucket["class"].to_numpy().astype(np.intp)  # once, not in every look-up
            columns = [*(label.of(classes) for label in labels), *bucket.columns[1:]]
            yield from pa.table(columns, schema=schema).to_batches()
    finally:
        mixer.close()


class _Label:
    """One column of labels: the code of its text for each class, in as few bytes as codes need."""

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
