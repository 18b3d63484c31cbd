"""The answer of a query: a release with a table of estimates, as JSON, Arrow and Parquet.

Answers are written in blocks of groups, so that a million groups take no memory besides the answer.  Arrow builds the
text, while other threads can run.  Counts become non-negative integers on request only: raw counts are unbiased, and
counts forced above zero are too large in empty groups.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from textwrap import indent as indented
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.domain.attribute import EXTRA
from sfumato.errors import QueryError
from sfumato.model.factor import FloatArray, to_counts
from sfumato.notebook_html import html_note, html_table
from sfumato.query.aggregates import Estimates
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.query.question import BOUNDED, Query
from sfumato.vault.release import Release, ReleasedRows, Reported, Tabular

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ("estimate", "standard_error", "low", "high")
"""The fields of an estimate in JSON."""
_BLOCK = 1 << 18  # groups in an Arrow table
_ALMOST_ONE = 1 - 1e-9  # the ends of an interval are rounded
_HEADLINE_VALUES = 3  # values in the text form of an answer
_MOST_GROUPS = 200  # in a notebook
JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
STATEMENT: Final = b"answer"
"""The metadata of an Arrow stream and of a Parquet file that holds all but the rows, as JSON."""
_PIECE = 1 << 12  # estimates written at a time as JSON
_BATCH = 1 << 16  # groups in a batch of Arrow, and in a row group of Parquet
_FEW = 1 << 10  # up to here Python writes estimates faster
POSTPROCESSED = (
    "counts were made non-negative integers that sum to their rounded noisy total; intervals are of the noisy counts"
)


@dataclass(frozen=True)
class CountedTruncation:
    """The rows that meet the condition and were dropped by the bound on rows per unit.

    Attributes:
        rows: the noisy number of dropped rows, at most ``most`` of each unit; more may be dropped.
        units: the noisy number of units with a dropped row.
        most: the cap per unit.
    """

    rows: NoisyValue
    units: NoisyValue
    most: int

    def __str__(self) -> str:
        most = f"counting at most {self.most:,} of one unit"
        return f"the bound leaves out {self.rows} rows, {most}, of {self.units} units"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Answer(Release, Tabular, Reported, report="bar_pages.answer"):
    """Estimates by group, stored in columns: a million groups are a few arrays, and objects are made on request.

    Attributes:
        query: the query.
        labels: labels of the groups, one text array per grouping attribute: the declared cells, in order, that can hold
            a row that meets the condition.
        integers: the grouping attributes whose cells are integers, apart from missing values.
        estimates: arrays of shape ``(groups,)``, one set per column.
        confidence: the probability that each interval, alone, contains the exact answer.
        notes: the table to which the intervals refer, and any change of the released estimates.
        truncation: the rows dropped by the bound on rows per unit, if the query requests them.
        called: names of the grouping attributes, if a statement renames them.
        aggregates: estimates of the aggregates behind the columns; empty if they are the columns.
        widest: for each column, the width of an interval that excludes no value of the domain; empty if unknown.
    """

    query: Query
    labels: tuple[pa.Array, ...]
    estimates: tuple[Estimates, ...]
    confidence: Fraction
    notes: tuple[str, ...] = ()
    truncation: CountedTruncation | None = None
    integers: frozenset[str] = frozenset()
    called: tuple[str, ...] = ()
    aggregates: tuple[Estimates, ...] = ()
    widest: tuple[float, ...] = ()

    @property
    def measured(self) -> tuple[Estimates, ...]:
        """The estimates of the aggregates."""
        return self.aggregates or self.estimates

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the grouping attributes; a statement may rename them."""
        return self.called or self.query.by or self.query.data_dependent_groups

    @cached_property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The labels of the cells, one tuple per group."""
        return (
            tuple(zip(*(each.to_pylist() for each in self.labels), strict=True)) if self.labels else ((),) * len(self)
        )

    @cached_property
    def values(self) -> tuple[tuple[NoisyValue, ...], ...]:
        """The estimates, one tuple per group with a value per column."""
        columns = ([NoisyValue(*parts) for parts in _parts(each)] for each in self.estimates)
        return tuple(zip(*columns, strict=True))

    @cached_property
    def informative(self) -> tuple[tuple[bool, ...], ...]:
        """Whether each interval excludes a value of the domain, one tuple per group with a flag per column."""
        widest = self.widest or (math.inf,) * len(self.columns)
        return tuple(
            tuple(value.high - value.low < most * _ALMOST_ONE for value, most in zip(row, widest, strict=True))
            for row in self.values
        )

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The estimates with their intervals as text, one tuple per group; too few rows give no estimate."""
        return tuple(
            tuple(each.text(informative=tells) for each, tells in zip(values, informative, strict=True))
            for values, informative in zip(self.values, self.informative, strict=True)
        )

    @property
    def table_phrase(self) -> str:
        """The name of the table behind the exact answer, unless it is the table itself."""
        return " of the bounded table" if any(each.startswith(BOUNDED) for each in self.notes) else ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.query.column_names

    @property
    def headline(self) -> str:
        """The first values."""
        first = self.slice_groups(slice(_HEADLINE_VALUES))
        texts = [
            f"{' '.join(key)}{' ' if key else ''}{name} {text}"
            for key, row in zip(first.keys, first.texts, strict=True)
            for name, text in zip(self.columns, row, strict=True)
        ]
        more = len(self) * len(self.columns) - _HEADLINE_VALUES
        return ", ".join(texts[:_HEADLINE_VALUES]) + (f" and {more:,} more" if more > 0 else "")

    @property
    def value(self) -> NoisyValue:
        """The only value of a query with one column and no groups.

        Raises:
            QueryError: the answer has several values.
        """
        if len(self) != 1 or len(self.columns) != 1:
            raise QueryError("this answer has several values; read .rows", culprit=self.columns)
        return self.values[0][0]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The groups, each as a flat mapping of labels, then estimate, standard error and interval of each column."""
        rows = []
        for key, values in zip(self.keys, self.values, strict=True):
            row: dict[str, Any] = dict(zip(self.groups, key, strict=True))
            for name, value in zip(self.columns, values, strict=True):
                row |= {
                    name: value.estimate,
                    f"{name}_error": value.standard_error,
                    f"{name}_low": value.low,
                    f"{name}_high": value.high,
                }
            rows.append(row)
        return rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table: labels as text, or as integers with nulls; numbers as doubles."""
        import pyarrow as pa

        labels = {
            name: _whole_numbers(each) if name in self.integers else each.cast(pa.string())
            for name, each in zip(self.groups, self.labels, strict=True)
        }
        numbers = {
            f"{name}{part}": pa.array(column)
            for name, each in zip(self.columns, self.estimates, strict=True)
            for part, column in zip(("", "_error", "_low", "_high"), each.arrays, strict=True)
        }
        return pa.table(labels | numbers)

    def released_rows(self) -> ReleasedRows:
        """Return the rows of :meth:`to_arrow` in blocks, to be written to a file."""
        return ReleasedRows(AnswerBlocks(self))

    def slice_groups(self, groups: slice) -> Answer:
        """Return the answer for consecutive groups."""
        return replace(
            self,
            labels=tuple(each[groups] for each in self.labels),
            estimates=tuple(each.slice_groups(groups) for each in self.estimates),
            aggregates=tuple(each.slice_groups(groups) for each in self.aggregates),
        )

    def take(self, places: NDArray[np.intp]) -> Answer:
        """Return the answer for some groups, in the order given."""
        return replace(
            self,
            labels=tuple(each.take(places) for each in self.labels),
            estimates=tuple(each.take(places) for each in self.estimates),
            aggregates=tuple(each.take(places) for each in self.aggregates),
        )

    def apply_clauses(self) -> Answer:
        """Return the groups of the statement's HAVING and LIMIT, in its order and under its names."""
        ordering, answer = self.query.ordering, self
        if ordering.called:
            named = zip(self.groups, ordering.called, strict=True)
            integers = frozenset(name for before, name in named if before in self.integers)
            answer = replace(self, called=ordering.called, integers=integers)
        if not ordering.clauses:
            return answer
        return replace(answer.take(ordering.places(self)), notes=(*self.notes, ordering.note))

    def __len__(self) -> int:
        return len(self.estimates[0].value)

    def to_json(self) -> dict[str, Any]:
        """Return the answer and its statement as plain JSON values."""
        columns = ([dict(zip(NUMBERS, parts, strict=True)) for parts in _parts(each)] for each in self.estimates)
        return self.around(
            [{"key": list(key), "values": list(values)} for key, *values in zip(self.keys, *columns, strict=True)]
        )

    def around(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer as plain JSON values with ``rows`` as its rows."""
        return {
            "groups": list(self.groups),
            "columns": list(self.columns),
            "confidence": float(self.confidence),
            "rows": rows,
            **self.statement_json(),
        }

    def statement_json(self) -> dict[str, Any]:
        """Return everything but the numbers as plain JSON values: notes, dropped rows, and the statement."""
        return {
            "remarks": list(self.notes),
            **({} if self.truncation is None else {"truncation": asdict(self.truncation)}),
            **self.statement(),
        }

    def to_html(self) -> str:
        """Return a table of the estimates, and the statement."""
        first = self.slice_groups(slice(_MOST_GROUPS))
        rows = [(*key, *row) for key, row in zip(first.keys, first.texts, strict=True)]
        table = html_table((*self.groups, *self.columns), rows, labels=len(self.groups))
        more = [f"{_MOST_GROUPS} of {len(self):,} groups"] if len(self) > _MOST_GROUPS else []
        notes = [*self.notes, *([] if self.truncation is None else [str(self.truncation)])]
        noted = [*more, *(f"Note: {each}." for each in notes)]
        return table + "".join(map(html_note, noted)) + super().to_html()


@dataclass(frozen=True)
class AnswerBlocks:
    """The rows of an answer as Arrow tables of a block of groups each, for large files."""

    answer: Answer

    @property
    def num_rows(self) -> int:
        """The number of rows of all blocks."""
        return len(self.answer)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns of each block."""
        return list(self.answer.slice_groups(slice(0)).to_arrow().column_names)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield at least one table."""
        for start in range(0, max(1, len(self.answer)), _BLOCK):
            yield self.answer.slice_groups(slice(start, start + _BLOCK)).to_arrow()


def _parts(estimates: Estimates) -> Iterator[tuple[float, float, float, float]]:
    """Yield estimate, standard error and both ends of the interval, by group."""
    return zip(*(each.tolist() for each in estimates.arrays), strict=True)


def _whole_numbers(labels: pa.Array) -> pa.Array:
    """Return the integers written in labels; the label for missing values becomes null."""
    import pyarrow as pa

    coded = labels if isinstance(labels, pa.DictionaryArray) else labels.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    missing = np.array([text == EXTRA[0] for text in texts], dtype=np.bool_)
    integers = np.array([0 if text == EXTRA[0] else int(text) for text in texts], dtype=np.int64)
    places = coded.indices.to_numpy()  # NumPy, because loading Arrow's functions takes longer
    return pa.array(integers[places], mask=missing[places] if missing.any() else None)


def non_negative_integers(answer: Answer) -> Answer:
    """Return the answer with its counts turned into non-negative integers that keep their sum.

    They are the nearest non-negative counts of that sum in Euclidean distance; then the largest remainders are rounded
    up.

    Raises:
        QueryError: a column is not a count.
    """
    expect(answer, Answer, "counts of an Answer are post-processed")
    for name, aggregate in zip(answer.query.labels, answer.query.aggregates, strict=True):
        if not aggregate.is_count:
            raise QueryError(f"{name!r} is no count, and cannot be made a whole number", culprit=aggregate)
    if answer.query.columns:
        raise QueryError("numbers that are computed from counts cannot be made whole; ask for the counts themselves")
    estimates = tuple(replace(each, value=to_counts(each.value).astype(np.float64)) for each in answer.estimates)
    return replace(answer, estimates=estimates, notes=(*answer.notes, POSTPROCESSED))


def json_pieces(answer: Answer, *, indent: int | None = None) -> Iterator[bytes]:
    """Write the JSON of :meth:`Answer.to_json` in pieces.

    Args:
        answer: the answer to write.
        indent: blanks per level; None: everything on one line.

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
    """A file that collects written bytes for its owner."""

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
    statement = json.dumps(answer.around([]), ensure_ascii=False, allow_nan=False, default=str)
    return answer.slice_groups(slice(0)).to_arrow().schema.with_metadata({STATEMENT: statement.encode()})


def _blocks(answer: Answer) -> Iterator[pa.Table]:
    return (answer.slice_groups(slice(start, start + _BATCH)).to_arrow() for start in range(0, len(answer), _BATCH))


def _row_parts(encoder: json.JSONEncoder, labels: int, aggregates: int) -> list[str]:
    """Return the constant texts of a row: before, between and after its labels and numbers, starting with a comma."""
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
    """Return numbers as JSON texts; each is read back as the same double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not np.isfinite(numbers).all():
        raise ValueError("a number that JSON does not have")
    bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)  # -0.0 is not 0.0
    coded = pa.array(bits).dictionary_encode()  # counts have few distinct values
    texts = coded.dictionary.view(pa.float64()).cast(pa.string())
    integral = pc.match_substring_regex(texts, "^-?[0-9]+$")
    return pc.if_else(integral, pc.binary_join_element_wise(texts, ".0", ""), texts).take(coded.indices)
