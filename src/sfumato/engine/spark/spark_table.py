"""A table of Apache Spark: executors encode and tally, the driver sees tallies only.

Everything on an executor is a function of its rows alone, including the choice of bounded rows (see ``encoding``).  So
a repeated task gives the same tallies, for example after an executor was lost with its cache.  No noise is ever drawn
there.  Executors need this package installed.

CSV follows the rules of :mod:`sfumato.engine.csv_file`, so a file means the same to both engines.  One task reads one
file, because quotes may contain line ends.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import codecs
import csv
import itertools
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sfumato.domain import CsvFormat, Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.bounding import bounded_keys, dropped, kept_rows, unit_sizes
from sfumato.engine.contingency import COVER_CELLS, CoverCounts, CoverPlan, condition
from sfumato.engine.csv_file import BLANKS, delimiter, refuse_header, whole_header
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import Encoding, Fingerprint, RowEncoding, content_name, content_statement
from sfumato.engine.port import ROWS, Column, Counts, Profile, Recodable, Recode
from sfumato.engine.profile import Profiler, distinct_statement
from sfumato.engine.spark.spark_rewriting import SparkRewriting
from sfumato.engine.spark.spark_session import DIALECT, column, session, stopped, translating
from sfumato.engine.table_files import (
    CSV_SUFFIXES,
    PARQUET_SUFFIXES,
    Content,
    complete,
    name_columns,
    read_labels,
    redacted_source,
    write_batches,
)
from sfumato.errors import EngineError, InputError, TableError

BATCH_ROWS = 1 << 16


_views = itertools.count()


class SparkTable:
    """A :class:`sfumato.engine.port.ProtectedTable` over a Spark DataFrame."""

    def __init__(
        self,
        frame: Any,  # noqa: ANN401 - a pyspark DataFrame
        title: str,
        csv: CsvFormat | None = None,
        *,
        headers: Sequence[str] | None = None,
        empty: bool = False,
    ) -> None:
        """Take a DataFrame, which every encoding reads again.

        Args:
            frame: the DataFrame.
            title: the name of the table in messages.
            csv: the format of a CSV file.
            headers: the headers of the columns if they are not the names of the DataFrame.
            empty: true if there may be no rows.

        Raises:
            TableError: no rows.
        """
        self.title = title
        self.spark = frame.sparkSession
        self._frame = frame
        self.relation = f"sfumato_raw_{next(_views)}"
        with translating(self.spark, self.title):
            named = name_columns(headers or frame.columns)
            frame = frame if list(named) == frame.columns else frame.toDF(*named)
            self._columns = tuple(
                replace(column(field.name, field.dataType.simpleString()), header=named[field.name])
                for field in frame.schema.fields
            )
            if csv is not None:
                self._columns = tuple(
                    replace(each, decimal=csv.decimal, thousands=csv.thousands) for each in self._columns
                )
            frame.createOrReplaceTempView(self.relation)
            weakref.finalize(self, drop_view, self.spark, self.relation)
            if not empty and not frame.limit(1).count():
                raise TableError(f"{title} has no rows", culprit=title)

    def schema(self) -> tuple[Column, ...]:
        """The columns in order; read no row."""
        return self._columns

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Return facts for a draft domain.  Not private: for the owner of the table only."""
        with translating(self.spark, self.title):
            profiler = Profiler(lambda text: self.spark.sql(text).collect(), DIALECT, self.relation)
            return tuple(profiler.profile(column, distinct_limit) for column in self._columns)

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column unchanged.  It is not private: it is for the owner of the table only."""
        with translating(self.spark, self.title):
            return self.spark.sql(f"SELECT {self.raw(name)} FROM {self.relation}").toArrow().column(0)

    def distinct_texts(self, name: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Return some distinct values of a column as text.  Not private: for the owner of the table only."""
        statement = distinct_statement(self.raw(name), self.relation, DIALECT, among)
        with translating(self.spark, self.title):
            return tuple(text for (text,) in self.spark.sql(statement).collect())

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Write columns unchanged to a directory of Parquet files, which the executors write.

        It is not private: it is for a copy that is protected like the table.
        """
        listed = ", ".join(self.raw(name) for name in dict.fromkeys((*attributes, *ids)))
        with translating(self.spark, self.title), complete(out) as part:
            self.spark.sql(f"SELECT {listed} FROM {self.relation}").write.parquet(part.absolute().as_uri())

    def encode(self, domain: Domain) -> Recodable:
        """Encode on the executors, which cache the codes; codes lost with an executor are encoded again."""
        encoding = Encoding(domain, {column.name: column for column in self._columns}, DIALECT)
        with translating(self.spark, self.title):
            stamps = self.stamps()
            # Spark would reuse the cache of an older encoding of the same files, so each plan is unique.
            frame = self.spark.sql(self.selected(encoding, ())).where(f"{next(_views)} >= 0").persist()
            frame.count()
        return EncodedRows(SparkStore(self, encoding, frame, stamps), self)

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Read the table twice, from files that did not change in the meantime."""
        encoded = self.encode(domain)
        content = self.content()
        encoded.ready()
        return encoded, Content(lambda: content)

    def content(self) -> str:
        """Name all current rows and columns."""
        statement = content_statement(self.relation, self._columns, DIALECT)
        with translating(self.spark, self.title):
            (row,) = self.spark.sql(statement).collect()
        return content_name(self._columns, row)

    def stamps(self) -> list[tuple[str, int, int]]:
        """Return name, length and time of every file under the table; empty if it is not made of files."""
        jvm, context = self.spark._jvm, self.spark.sparkContext  # noqa: SLF001 - the only way to Hadoop's file systems
        stamps_of_files = []
        for name in self._frame.inputFiles():
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
            status = path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path)  # noqa: SLF001
            stamps_of_files.append((name, status.getLen(), status.getModificationTime()))
        return sorted(stamps_of_files)

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """Return encoded, bounded rows that carry ``raw`` columns along."""
        return kept_rows(encoding, self.relation, raw)

    def raw(self, name: str) -> str:
        """Return a quoted raw column."""
        if name not in {column.name for column in self._columns}:
            raise TableError(f"the table has no column {name!r}", culprit=name)
        return DIALECT.name(name)


class SparkSource(Protocol):
    """The source of encoded rows."""

    spark: Any
    title: str
    relation: str

    def stamps(self) -> list[tuple[str, int, int]]:
        """See :meth:`SparkTable.stamps`."""
        ...

    def raw(self, name: str) -> str:
        """See :meth:`SparkTable.raw`."""
        ...

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """See :func:`kept_rows`."""
        ...


class SparkStore:
    """A :class:`sfumato.engine.encoded.EncodedStore`: a cached DataFrame of codes."""

    cover_cells = COVER_CELLS
    dialect = DIALECT

    def __init__(
        self,
        table: SparkSource,
        encoding: RowEncoding,
        frame: Any,  # noqa: ANN401 - of Spark
        stamps: list[tuple[str, int, int]],
    ) -> None:
        self._table = table
        self._encoding = encoding
        self._frame = frame
        self._stamps = stamps
        self.domain = encoding.domain
        self.relation = f"sfumato_encoded_{next(_views)}"
        frame.createOrReplaceTempView(self.relation)
        weakref.finalize(self, drop_view, table.spark, self.relation, frame)

    def ready(self) -> None:
        """Refuse if files were written since the encoding: codes lost with an executor would be read from them."""
        with translating(self._table.spark, self._table.title):
            changed = self._table.stamps() != self._stamps
        if changed:
            raise EngineError(f"{self._table.title} was written since it was encoded; open it again")

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Guard a query to the cluster: its answer is from one state of the files."""
        with translating(self._table.spark, self._table.title):
            yield
        self.ready()

    def query(self, statement: str) -> pa.Table:
        """Return the result of a grouping query."""
        with self._counting():
            return self._table.spark.sql(statement).toArrow()

    def tally(self, plan: CoverPlan, where: Predicate | None) -> Sequence[Counts]:
        """Tally each partition, then add up the tables of each cover, both on the executors."""
        used = sorted({axis for cover in plan.covers for axis in cover}) or [0]
        with self._counting():
            rows = self._frame.where(condition(where, self.domain)).select(*(f"c{axis}" for axis in used))
            # One task per core, because each sends tables of its own, even for few rows.
            rows = rows.coalesce(self._table.spark.sparkContext.defaultParallelism)
            schema = "cover int, counts binary"
            parts = rows.mapInArrow(partial(_tally, plan, used), schema)
            merged = parts.repartition("cover").mapInArrow(_merge, schema).toArrow()
        tables = [np.zeros(plan.cells(cover), dtype=np.int64) for cover in range(len(plan.covers))]
        for cover, counts in zip(merged["cover"].to_pylist(), merged["counts"], strict=True):
            tables[cover] = np.frombuffer(counts.as_buffer(), dtype=np.int64)
        return tables

    def scan(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield codes, brought to the driver at once."""
        types = [np.min_scalar_type(self.domain.attributes[place].size - 1) for place in columns]
        schema = pa.schema(
            [(f"c{place}", pa.from_numpy_dtype(kind)) for place, kind in zip(columns, types, strict=True)]
        )
        with self._counting():
            table = self._frame.select(*schema.names).toArrow()
        yield from table.cast(schema).to_batches(max_chunksize=BATCH_ROWS)

    def fingerprint(self) -> str:
        """Return the sum of row hashes, a few words per partition."""
        encoding = self._encoding
        unit = [DIALECT.words(DIALECT.digest("u"))[0]] if self.domain.unit.column is not None else []
        values = [DIALECT.double(f"v{place}") for place in encoding.values]
        codes = [f"c{place}" for place in range(len(self.domain))]
        with self._counting():
            rows = self._frame.selectExpr(*codes, *values, *unit)
            states = rows.mapInArrow(partial(_fingerprint, self.domain.shape), "state binary").toArrow()
        total = Fingerprint(self.domain.shape)
        for state in states["state"].to_pylist():
            total.merge(state)
        return total.digest(encoding.named)

    def dropped(self, most: int, where: Predicate | None) -> int:
        """Read the table again."""
        every = f"({self._encoding.select(self._table.relation)}) AS encoded_rows"
        statement = dropped(every, self._encoding, condition(where, self.domain), most)
        return int(self.query(statement).column(0)[0].as_py())

    def unit_sizes(self, starts: Sequence[int], of: SizeOf) -> Sequence[Sequence[int]]:
        """Read the table again."""
        every = f"({self._encoding.select(self._table.relation)}) AS encoded_rows"
        sizes = self.query(unit_sizes(every, self._encoding, starts, of))
        return list(zip(*(column.to_pylist() for column in sizes.columns), strict=True))

    def keys(self, columns: tuple[str, ...]) -> pa.Table:
        """Read the table again for raw keys."""
        raw = [DIALECT.text(self._table.raw(name)) for name in columns]
        names = [f"r{place}" for place in range(len(columns))]
        select = self._encoding.select(self._table.relation, raw)
        present = " AND ".join(f"{name} IS NOT NULL" for name in names)
        held = f"(SELECT * FROM ({select}) AS carried WHERE {present}) AS held"
        return self.query(bounded_keys(held, names, self._encoding)).rename_columns([*columns, "units"])

    def recode(self, recode: Recode, raw: tuple[str, ...], out: Path | None) -> pa.Table | None:
        """Rewrite codes, next to raw columns that are read again, and shuffle.

        A .parquet is a directory that the executors write; a .csv is one file, written by the driver.
        """
        carried = [self._table.raw(name) for name in raw]
        rows = f"({self._table.selected(self._encoding, carried)}) AS encoded_rows" if raw else self.relation
        with translating(self._table.spark, self._table.title):
            frame = SparkRewriting(self._encoding, recode, raw).rewritten(rows, self._table.spark)
            if out is None:
                return frame.toArrow()
            if out.suffix == ".csv":
                table = frame.toArrow()
                write_batches(iter(table.to_batches()), table.schema, out)
                return None
            with complete(out) as part:
                frame.write.parquet(part.absolute().as_uri())
        return None

    def written(self, out: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches: the executors read and count a directory, this process reads a file."""
        if not out.is_dir():
            yield from read_labels(out, names)
            return
        from pyspark.sql.functions import count

        with translating(self._table.spark, self._table.title):
            rows = self._table.spark.read.parquet(out.absolute().as_uri())
            quoted = [DIALECT.name(name) for name in names]
            table = rows.groupBy(*quoted).agg(count("*").alias(ROWS)).toArrow()
        yield from table.to_batches()


def _tally(plan: CoverPlan, used: Sequence[int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the tables of one partition, on an executor."""
    tally = CoverCounts(plan)
    for batch in batches:
        tally.add_batch(batch, used)
    yield _sent(list(enumerate(tally.tables)))


def _merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the sum of the tables of each cover, on an executor."""
    merged: dict[int, Counts] = {}
    for batch in batches:
        for cover, counts in zip(batch["cover"].to_pylist(), batch["counts"], strict=True):
            table = np.frombuffer(counts.as_buffer(), dtype=np.int64)
            merged[cover] = merged[cover] + table if cover in merged else table
    yield _sent(list(merged.items()))


def _sent(tables: Sequence[tuple[int, Counts]]) -> pa.RecordBatch:
    covers = pa.array([cover for cover, _ in tables], pa.int32())
    return pa.record_batch({"cover": covers, "counts": pa.array([table.tobytes() for _, table in tables], pa.binary())})


def _fingerprint(shape: Sequence[int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the fingerprint of one partition, on an executor."""
    fingerprint = Fingerprint(shape)
    for batch in batches:
        fingerprint.add_batch(batch)
    yield pa.record_batch({"state": pa.array([fingerprint.state()], pa.binary())})


def drop_view(spark: Any, view: str, frame: Any = None) -> None:  # noqa: ANN401
    """Drop a view and its cache, unless the session is gone."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    if stopped(spark):
        return
    with suppress(Py4JError, ConnectionError):  # a lost session was reported before
        spark.catalog.dropTempView(view)
        if frame is not None:
            frame.unpersist()


_CSV = {
    "header": True,
    "quote": '"',
    "escape": '"',
    "multiLine": True,
    "encoding": "UTF-8",
    "mode": "FAILFAST",  # a record with more or fewer fields than the header is refused, not mended
    "columnPruning": False,  # otherwise an extra field would be ignored
    "enforceSchema": False,  # every file of a pattern has the same header
    "unescapedQuoteHandling": "RAISE_ERROR",
    "nullValue": "\0missing\0",  # an empty field at first; "" would also match a quoted empty text
}


_ENCODINGS = {"utf-8": "UTF-8", "iso8859-1": "ISO-8859-1", "utf-16": "UTF-16"}


def spark_table(url: str, form: CsvFormat | None = None, *, empty: bool = False) -> SparkTable:
    """Return the table of ``spark:PATH`` (Parquet, .csv, .tsv, also .gz) or ``spark:NAME`` (of the session's catalog).

    The active session is used, or one made with Spark's own configuration.

    Args:
        url: the address of the table.
        form: the format of CSV, as in its domain.  Default: the usual format for its name.
        empty: true if it may have no rows.

    Raises:
        TableError: there is no such table, or its content does not match its name.
        EngineError: Spark does not start.
    """
    place = url.partition(":")[2]
    title = f"the Spark table {redacted_source(place)}"
    if not place:
        raise InputError("name what Spark is to read: spark:PATH of Parquet or CSV, or spark:TABLE", culprit=url)
    form = form or CsvFormat()
    if Path(place).is_file() and not place.lower().endswith((*PARQUET_SUFFIXES, *CSV_SUFFIXES)):
        raise _no_table(place)  # without starting Spark for it
    spark = session()
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, IllegalArgumentException

    with translating(spark, title):
        try:
            frame, headers = _frame(spark, place, title, form)
        except (AnalysisException, IllegalArgumentException, Py4JJavaError):
            raise _no_table(place) from None
    csv_form = form if place.lower().endswith(CSV_SUFFIXES) else None
    return SparkTable(frame, title, csv=csv_form, headers=headers, empty=empty)


def _no_table(place: str) -> TableError:
    return TableError(
        f"Spark finds no table {redacted_source(place)}, or it is not what its name says; a path has a '/', or ends in "
        f"one of {', '.join((*PARQUET_SUFFIXES, *CSV_SUFFIXES))}",
        culprit=redacted_source(place),
    )


def _frame(spark: Any, place: str, title: str, form: CsvFormat) -> tuple[Any, list[str] | None]:  # noqa: ANN401
    """Return a DataFrame, and the headers of its columns if they are not their names."""
    name = place.lower()
    if name.endswith(CSV_SUFFIXES):
        return _csv(spark, place, title, form)
    is_path = "/" in place or name.endswith(PARQUET_SUFFIXES)
    return spark.read.parquet(place) if is_path else spark.table(place), None


def _csv(spark: Any, place: str, title: str, form: CsvFormat) -> tuple[Any, list[str]]:  # noqa: ANN401
    """Read every column as text, and return the headers."""
    from pyspark.sql.types import StringType, StructField, StructType

    encoding = _ENCODINGS.get(codecs.lookup(form.encoding).name)
    if encoding is None:
        raise InputError(f"Spark reads CSV in {', '.join(_ENCODINGS)}, not in {form.encoding}", culprit=form.encoding)
    separator = delimiter(place, form)
    if encoding == "UTF-8":
        lines = [row.value.removeprefix("\ufeff") for row in spark.read.text(place).head(2)]
    else:
        first = spark.read.options(sep="\0", quote="", encoding=encoding).csv(place).head(2)
        lines = [row[0] or "" for row in first]
    records = csv.reader(lines, delimiter=separator, strict=True)
    try:
        written = next(records, [])
    except csv.Error:
        raise TableError(f"{title} has no header of one line", culprit=title) from None
    record: list[str] = []
    with suppress(csv.Error):  # a record of several lines has as many fields as the header
        record = next(records, [])
    written = list(whole_header(written, record))
    headers = [name.strip(BLANKS) if form.trim else name for name in written]
    refuse_header(headers, title)
    unique = list(name_columns(written)) == written
    names = written if unique else list(name_columns(headers))
    schema = StructType([StructField(name, StringType()) for name in names])
    options = _CSV | {"encoding": encoding, "enforceSchema": not unique}  # the header cannot be the schema's
    frame = spark.read.options(sep=separator, **options).schema(schema).csv(place)
    if not form.trim:
        return frame, headers
    quoted = [DIALECT.name(name) for name in name_columns(headers)]
    return frame.toDF(*name_columns(headers)).selectExpr(
        *(f"NULLIF(TRIM(BOTH {DIALECT.string(BLANKS)} FROM {name}), '') AS {name}" for name in quoted)
    ), headers
