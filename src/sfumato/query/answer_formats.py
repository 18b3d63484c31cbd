"""An answer as JSON, Arrow and Parquet, written some groups at a time: of a million groups nothing else is held.

Text is put together by Arrow, which lets other threads run meanwhile.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from textwrap import indent as indented
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.model.factor import FloatArray
from sfumato.query.answer import NUMBERS, Answer

if TYPE_CHECKING:
    import pyarrow as pa

JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
STATEMENT: Final = b"answer"
"""The metadata of an Arrow stream and of a Parquet file that holds all but the rows, as JSON."""
_PIECE = 1 << 12  # estimates written at a time as JSON
_BLOCK = 1 << 16  # groups in a batch of Arrow, and in a row group of Parquet
_FEW = 1 << 10  # estimates that are written faster by Python


def json_pieces(answer: Answer, *, indent: int | None = None) -> Iterator[bytes]:
    """Write the JSON of :meth:`Answer.to_json` in pieces.

    Args:
        answer: what is written.
        indent: blanks a level; None: everything in one line.

    Raises:
        ValueError: a number that JSON does not have.
    """
    separators = (",", ":") if indent is None else None
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str, indent=indent, separators=separators)
    if len(answer) * len(answer.columns) <= _FEW:
        yield encoder.encode(answer.to_json()).encode()
        return
    mark = f'"rows"{encoder.key_separator}[]'
    before, rows, after = encoder.encode(answer.around([])).partition(mark)  # quotes within texts are escaped
    end = "" if indent is None else "\n" + " " * indent
    yield (before + rows[:-1]).encode()
    constants = _row_parts(encoder, len(answer.labels), len(answer.estimates))
    labels = [_coded(each) for each in answer.labels]
    texts = [_label_texts(each.dictionary) for each in labels]
    first = True
    for start in range(0, len(answer), step := max(1, _PIECE // len(answer.columns))):
        groups = slice(start, start + step)
        columns = [
            *(text.take(each.indices[groups]) for text, each in zip(texts, labels, strict=True)),
            *(_number_texts(each) for one in answer.estimates for each in one.slice_groups(groups).arrays),
        ]
        piece = _joined(constants, columns)
        yield piece[1:] if first else piece  # every row begins with a comma
        first = False
    yield (end + "]" + after).encode()


def arrow_pieces(answer: Answer) -> Iterator[bytes]:
    """Write the rows of :meth:`Answer.to_arrow` as an Arrow stream, whose schema holds the rest of the answer."""
    import pyarrow as pa

    schema, sink = _schema(answer), _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for block in _blocks(answer):
            writer.write_table(block.cast(schema))
            yield sink.taken()
    yield sink.taken()


def parquet_pieces(answer: Answer) -> Iterator[bytes]:
    """Write the rows of :meth:`Answer.to_arrow` as a Parquet file, whose schema holds the rest of the answer."""
    from pyarrow import parquet

    schema, sink = _schema(answer), _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for block in _blocks(answer):
            writer.write_table(block.cast(schema))
            yield sink.taken()
    yield sink.taken()


FORMATS: Final = {JSON: json_pieces, ARROW: arrow_pieces, PARQUET: parquet_pieces}


class _Sink(io.RawIOBase):
    """A file that hands over the bytes that were written to it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:  # noqa: ANN401  (any buffer)
        self._parts.append(bytes(part))
        self._written += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._written

    def taken(self) -> bytes:
        """Return the bytes that were written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _schema(answer: Answer) -> pa.Schema:
    said = json.dumps(answer.around([]), ensure_ascii=False, allow_nan=False, default=str)
    return answer.slice_groups(slice(0)).to_arrow().schema.with_metadata({STATEMENT: said.encode()})


def _blocks(answer: Answer) -> Iterator[pa.Table]:
    return (answer.slice_groups(slice(start, start + _BLOCK)).to_arrow() for start in range(0, len(answer), _BLOCK))


def _row_parts(encoder: json.JSONEncoder, labels: int, aggregates: int) -> list[str]:
    """Return the constants of a row: its text before, between and after its labels and numbers, comma first."""
    row = encoder.encode({"key": ["%s"] * labels, "values": [dict.fromkeys(NUMBERS, "%s")] * aggregates})
    text = row if encoder.indent is None else "\n" + indented(row, " " * 2 * int(encoder.indent))
    return f",{text}".split('"%s"')


def _joined(constants: list[str], columns: list[pa.Array]) -> bytes:
    """Return the bytes of all rows: the text of each column after its constant, and the last constant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [each for pair in zip(map(pa.scalar, constants), columns, strict=False) for each in pair]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(constants[-1]), pa.scalar(""))
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[[rows.offset, rows.offset + len(rows)]]
    return bytes(memoryview(data)[ends[0] : ends[1]])


def _coded(labels: pa.Array) -> pa.DictionaryArray:
    import pyarrow as pa

    return labels if isinstance(labels, pa.DictionaryArray) else labels.dictionary_encode()


def _label_texts(labels: pa.Array) -> pa.Array:
    """Return labels as JSON writes them."""
    import pyarrow as pa

    return pa.array([json.dumps(each, ensure_ascii=False) for each in labels.to_pylist()], pa.string())


def _number_texts(numbers: FloatArray) -> pa.Array:
    """Return numbers as JSON writes them: each is read back as the same double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not np.isfinite(numbers).all():
        raise ValueError("a number that JSON does not have")
    bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)  # -0.0 is not 0.0
    coded = pa.array(bits).dictionary_encode()  # few numbers differ among counts
    texts = coded.dictionary.view(pa.float64()).cast(pa.string())
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts).take(coded.indices)
