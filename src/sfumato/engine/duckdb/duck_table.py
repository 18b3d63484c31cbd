"""A table of DuckDB, and its encoded rows: one more table of a database in memory."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import CsvFormat, Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.arrays import KeptColumns
from sfumato.engine.bounding import beyond_bounds, bounded_keys, dropped, unit_sizes
from sfumato.engine.contingency import COVER_CELLS, CoverCounts, CoverPlan, condition
from sfumato.engine.csv_file import CsvFile
from sfumato.engine.duckdb.duck_bounding import drop_beyond
from sfumato.engine.duckdb.duck_session import DIALECT, DuckSession, column, shared_session
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import Encoding, Fingerprint, RowEncoding, content_name, content_statement
from sfumato.engine.port import Column, Counts, Profile, Recodable, Recode
from sfumato.engine.profile import Profiler, distinct_statement
from sfumato.engine.rewriting import relabelled
from sfumato.engine.table_files import Content, Stamps, bytes_name, complete, quoted, read_labels, write_batches
from sfumato.engine.views.view_sql import ViewEncoding
from sfumato.errors import EngineError, TableError

BATCH_ROWS = 1 << 16
_HALF = "CAST(digest {} AS UBIGINT)"
_HASHED = ("MD5_NUMBER({})", _HALF.format(f"& {(1 << 64) - 1}"), _HALF.format(">> 64"))


class DuckSource(Protocol):
    """A source that a DuckDB connection can read."""

    @property
    def title(self) -> str:
        """The name of the table in messages."""
        ...

    @property
    def format(self) -> CsvFormat | None:
        """The format of the CSV file that the table is, or was copied from; it sets the notation of numbers in text."""
        ...

    @property
    def form(self) -> str:
        """The format of the bytes of its files; empty if there are no files."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of columns by their names; a column without an entry has its name as header."""
        ...

    def relation(self, connection: Any) -> str:  # noqa: ANN401 - a duckdb connection, imported lazily
        """Return the FROM clause of the table on this connection."""
        ...

    def stamps(self) -> Stamps:
        """See :func:`stamps`."""
        ...


# From this number of columns, one optimizer of DuckDB is off.  Its time grows with their square: planning for 200
# columns takes 2.5 CPU s with it and 0.5 without.  500 columns of 3,000 rows are then encoded and counted in 4.7 CPU s.
_WIDE = 100
_COPIED, _COPIED_CELLS = 50, 20_000_000  # columns that are profiled together, and most of their values


class DuckTable:
    """A :class:`sfumato.engine.port.ProtectedTable` over tables of a DuckDB database in memory."""

    def __init__(self, source: DuckSource, session: DuckSession, columns: tuple[Column, ...] = ()) -> None:
        """Take a source with known columns; a view has none of its own."""
        self.source = source
        self.session = session
        self._columns = columns

    @classmethod
    def open(
        cls, source: DuckSource, *, threads: int | None = None, memory: str | None = None, empty: bool = False
    ) -> DuckTable:
        """Open a source in the database that all tables of the process share, or in its own database if limits are set.

        Args:
            source: the source to read.
            threads: threads of DuckDB.  Default: all of the machine's.
            memory: limit of DuckDB's memory, such as ``"8GB"``.  Default: four fifths of the machine's.
            empty: true if it may have no rows.

        Raises:
            TableError: the source cannot be read, has no rows, or two columns of one name.
        """
        own = threads is not None or memory is not None
        session = DuckSession(threads=threads, memory=memory) if own else shared_session()
        return cls(source, session, cls(source, session).read_columns(empty=empty))

    def schema(self) -> tuple[Column, ...]:
        """The columns in order; read no row."""
        return self._columns

    def raw(self, name: str) -> str:
        """Return a quoted raw column, for an encoding to carry along."""
        match = next((column for column in self._columns if column.name == name), None)
        if match is None:
            raise TableError(f"the table has no column {name!r}", culprit=name)
        return DIALECT.name(name)

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Return facts for a draft domain.  Not private: for the owner of the table only."""
        with self.reading() as cursor:
            relation = self.source.relation(cursor)
            parts = self._copied_parts(cursor, relation)
            try:
                profiler = Profiler(
                    lambda text: cursor.sql(text).fetchall(), DIALECT, "profiled" if parts else relation
                )
                profiles: list[Profile] = []
                for columns in parts or [self._columns]:
                    if parts:
                        names = ", ".join(DIALECT.name(column.name) for column in columns)
                        cursor.execute(f"CREATE OR REPLACE TEMP TABLE profiled AS SELECT {names} FROM {relation}")
                    profiles += [profiler.profile(column, distinct_limit) for column in columns]
                return tuple(profiles)
            finally:
                cursor.execute("DROP TABLE IF EXISTS profiled")

    def _copied_parts(self, cursor: Any, relation: str) -> list[tuple[Column, ...]]:  # noqa: ANN401
        """Return the columns that are copied together before they are profiled; none if the source is read each time.

        A CSV file is parsed once, not for every fact of every column.  The header of a wide Parquet file is long.
        """
        if isinstance(self.source, CsvFile):
            return [self._columns]
        if len(self._columns) <= _WIDE:
            return []
        ((rows,),) = cursor.sql(f"SELECT COUNT(*) FROM {relation}").fetchall()
        if rows * _COPIED > _COPIED_CELLS:
            return []
        return [self._columns[first : first + _COPIED] for first in range(0, len(self._columns), _COPIED)]

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column unchanged.  Not private: for the owner of the table only."""
        column = self.raw(name)
        with self.reading() as cursor:
            return cursor.sql(f"SELECT {column} FROM {self.source.relation(cursor)}").to_arrow_table().column(0)

    def distinct_texts(self, name: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Return some distinct values of a column as text.  Not private: for the owner of the table only."""
        column = self.raw(name)
        with self.reading() as cursor:
            statement = distinct_statement(column, self.source.relation(cursor), DIALECT, among)
            return tuple(text for (text,) in cursor.sql(statement).fetchall())

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Write columns unchanged to a Parquet file.  Not private: for a copy that is protected like the table."""
        listed = ", ".join(self.raw(name) for name in dict.fromkeys((*attributes, *ids)))
        with self.reading() as cursor:
            rows = cursor.sql(f"SELECT {listed} FROM {self.source.relation(cursor)}").to_arrow_reader(BATCH_ROWS)
            write_batches(self._readable(rows), rows.schema, out)

    def _readable(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches; an error while reading one is raised again, because its text may quote a row."""
        try:
            yield from rows
        except (pa.ArrowException, OSError):
            raise TableError(f"{self.source.title} cannot be read, or is not what its name says") from None

    def encode(self, domain: Domain) -> Recodable:
        """Read the table once into codes, bounded per unit."""
        encoding = Encoding(domain, {column.name: column for column in self._columns}, DIALECT)
        name, stamps = self.session.fresh_name(), self.source.stamps()
        with self.reading() as cursor:
            self.store(cursor, encoding, name, ())
            ((rows,),) = cursor.sql(f"SELECT COUNT(*) FROM {name}").fetchall()
        store = DuckStore(self, encoding, name, stamps)
        return EncodedRows(store, self, KeptColumns(domain, rows, store.column))

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Read the table, and the bytes of its files, which did not change in the meantime."""
        encoded = self.encode(domain)
        content = self.content_while(encoded.ready)
        encoded.ready()
        return encoded, content

    def content_while(self, ready: Callable[[], None]) -> Content:
        """Name the bytes of the files; name rows and columns on demand, unless ``ready`` refuses by then."""

        def name() -> str:
            content = self.content()
            ready()
            return content

        try:
            files = bytes_name((stamp[0] for stamp in self.source.stamps()), self.source.form)
        except OSError as error:
            raise EngineError(f"{self.source.title} was moved or removed while it was read; open it again") from error
        return Content(name, files=files)

    def content(self) -> str:
        """Name all current rows and columns."""
        with self.reading() as cursor:
            statement = content_statement(self.source.relation(cursor), self._columns, DIALECT, hashed=_HASHED)
            (row,) = cursor.sql(statement).fetchall()
        return content_name(self._columns, row)

    def store(self, cursor: Any, encoding: RowEncoding, name: str, raw: Sequence[str]) -> None:  # noqa: ANN401
        """Make table ``name`` of encoded, bounded rows with the ``raw`` columns."""
        select = encoding.select(self.source.relation(cursor), raw)
        wide = len(encoding.domain) > _WIDE
        if wide:
            cursor.execute("SET disabled_optimizers = 'statistics_propagation'")
        try:
            if encoding.domain.unit.column is None:
                cursor.execute(f"CREATE TABLE {name} AS {select}")
                return
            listed = ", ".join([*encoding.stored, *(f"r{place}" for place in range(len(raw)))])
            cursor.execute(f"CREATE TABLE {name} AS SELECT {listed} FROM ({select}) AS every_row")
        finally:
            if wide:
                cursor.execute("RESET disabled_optimizers")
        drop_beyond(cursor, name, encoding)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Provide a connection for one piece of work; DuckDB's errors are raised again without their data values."""
        try:
            with self.session.cursor(self.source.title) as cursor:
                yield cursor
        except TableError as error:
            line = self.source.odd_line_end() if isinstance(self.source, CsvFile) else None
            if line is None or "line" in str(error).removeprefix(self.source.title):
                raise
            raise TableError(
                f"{self.source.title}: line {line} ends in another way than the lines before; write all line ends "
                "alike, as line feeds or as carriage returns with line feeds",
                culprit=self.source.title,
            ) from None

    def read_columns(self, *, empty: bool) -> tuple[Column, ...]:
        """Return the columns of the source.

        Raises:
            TableError: the source cannot be read, has no rows, or two columns of one name.
        """
        with self.reading() as cursor:
            relation = self.source.relation(cursor)
            described = cursor.sql(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            some = cursor.sql(f"SELECT 1 FROM {relation} LIMIT 1").fetchall()
        if not some and not empty:
            raise TableError(f"{self.source.title} has no rows", culprit=self.source.title)
        headers = self.source.headers
        columns = (replace(column(name, kind), header=headers.get(name)) for name, kind, *_ in described)
        form = self.source.format
        if form is None:
            return tuple(columns)
        return tuple(replace(each, decimal=form.decimal, thousands=form.thousands) for each in columns)


class DuckStore:
    """A :class:`sfumato.engine.encoded.EncodedStore`: one table of the database, dropped with the store."""

    cover_cells = COVER_CELLS

    def __init__(self, table: DuckTable, encoding: RowEncoding, relation: str, stamps: Stamps) -> None:
        self._table = table
        self._encoding = encoding
        self._stamps = stamps
        self.relation = relation
        self.domain = encoding.domain
        self.dialect = encoding.dialect
        weakref.finalize(self, table.session.drop, relation)

    def ready(self) -> None:
        """Refuse if files were written since the encoding, or if DuckDB has lost the encoded rows.

        Keys and raw columns would be read from the changed files.
        """
        self._table.session.refuse_lost(self._table.source.title)
        if self._table.source.stamps() != self._stamps:
            raise EngineError(f"{self._table.source.title} was written since it was encoded; open it again")

    def query(self, statement: str) -> pa.Table:
        """Return the result of a grouping query."""
        with self._table.reading() as cursor:
            return cursor.sql(statement).to_arrow_table()

    def tally(self, plan: CoverPlan, where: Predicate | None) -> Sequence[Counts]:
        """Stream batches of codes into the tables of the plan."""
        tally = CoverCounts(plan)
        used = sorted({axis for cover in plan.covers for axis in cover}) or [0]
        for batch in self._stream([f"c{axis}" for axis in used], condition(where, self.domain)):
            tally.add_batch(batch, used)
        return tally.tables

    def column(self, name: str, into: NDArray[Any]) -> None:
        """Fill an array with a column of codes, or of numbers as doubles with NaN for none."""
        expression = name if name.startswith("c") else f"COALESCE(CAST({name} AS DOUBLE), CAST('nan' AS DOUBLE))"
        filled = 0
        for batch in self._stream([expression], "1 = 1"):
            part = into[filled : filled + batch.num_rows]
            part[:] = batch.column(0).to_numpy()[: len(part)]
            filled += batch.num_rows
        if filled != len(into):
            raise EngineError(f"DuckDB has {filled} encoded rows of {self._table.source.title}, not {len(into)}")

    def scan(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield codes in batches."""
        return self._stream([f"c{place}" for place in columns], "1 = 1")

    def fingerprint(self) -> str:
        """Return the sum of row hashes."""
        encoding = self._encoding
        whole_units = isinstance(encoding, ViewEncoding) and encoding.whole_units
        named = "CAST(u AS BIGINT)" if whole_units else DIALECT.words(DIALECT.digest(DIALECT.text("u")))[0]
        unit = [named] if self.domain.unit.column is not None else []
        values = [f"CAST(v{place} AS DOUBLE)" for place in encoding.values]
        names = [f"c{place}" for place in range(len(self.domain))]
        fingerprint = Fingerprint(self.domain.shape)
        for batch in self._stream([*names, *values, *unit], "1 = 1"):
            fingerprint.add_batch(batch)
        return fingerprint.digest(encoding.named)

    def dropped(self, most: int, where: Predicate | None) -> int:
        """Read the source again; only units above their bound are sorted."""
        with self._table.reading() as cursor:
            select = self._encoding.select(self._table.source.relation(cursor))
            units_over = beyond_bounds(f"({select}) AS all_rows", self._encoding)
            part = f"(FROM ({select}) AS encoded_rows SEMI JOIN ({units_over}) AS over_bound USING (u)) AS bucket"
            statement = dropped(part, self._encoding, condition(where, self.domain), most)
            ((rows,),) = cursor.sql(statement).fetchall()
        self.ready()
        return int(rows)

    def unit_sizes(self, starts: Sequence[int], of: SizeOf) -> Sequence[Sequence[int]]:
        """Read the source again."""
        with self._table.reading() as cursor:
            every = f"({self._encoding.select(self._table.source.relation(cursor))}) AS encoded_rows"
            rows = cursor.sql(unit_sizes(every, self._encoding, starts, of)).fetchall()
        self.ready()
        return cast("Sequence[Sequence[int]]", rows)

    def keys(self, columns: tuple[str, ...]) -> pa.Table:
        """Read the source again for raw keys."""
        raw = [self._table.raw(column) for column in columns]
        names = [f"r{place}" for place in range(len(columns))]
        with self._table.reading() as cursor:
            select = self._encoding.select(self._table.source.relation(cursor), [DIALECT.text(name) for name in raw])
            present = " AND ".join(f"{name} IS NOT NULL" for name in names)
            held = f"(FROM ({select}) AS carried WHERE {present}) AS held"
            keys = cursor.sql(bounded_keys(held, names, self._encoding)).to_arrow_table()
        self.ready()
        return keys.rename_columns([*columns, "units"])

    def recode(self, recode: Recode, raw: tuple[str, ...], out: Path | None) -> pa.Table | None:
        """Rewrite codes, next to raw columns that are read again, and shuffle."""
        carried = [self._table.raw(name) for name in raw]
        with self._table.reading() as cursor, self._carrying(cursor, carried) as relation:
            names = [f"c{self.domain.index(name)}" for name in recode.attributes]
            listed = ", ".join([*names, *(f"r{place}" for place in range(len(raw)))])
            ((rows,),) = cursor.sql(f"SELECT COUNT(*) FROM {self.relation}").fetchall()
            stream = cursor.sql(f"SELECT {listed} FROM {relation}").to_arrow_reader(4 * BATCH_ROWS)
            reader = pa.RecordBatchReader.from_batches(stream.schema, self._of_one_state(stream))
            return _delivered(
                cursor, relabelled(reader, recode, raw, about=rows, folder=self._table.session.scratch), out
            )

    def written(self, out: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the file in this process."""
        return read_labels(out, names)

    @contextmanager
    def _carrying(self, cursor: Any, carried: Sequence[str]) -> Iterator[str]:  # noqa: ANN401
        """Provide the FROM clause of encoded, bounded rows next to raw columns."""
        if not carried:
            yield self.relation
        elif self.domain.unit.column is None:
            yield f"({self._encoding.select(self._table.source.relation(cursor), carried)}) AS encoded_rows"
        else:
            name = self._table.session.fresh_name()
            try:
                self._table.store(cursor, self._encoding, name, carried)
                yield name
            finally:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")

    def _of_one_state(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches; refuse at the end if their files changed in the meantime."""
        yield from batches
        self.ready()

    def _stream(self, columns: list[str], where: str) -> Iterator[pa.RecordBatch]:
        with self._table.reading() as cursor:
            statement = f"SELECT {', '.join(columns)} FROM {self.relation} WHERE {where}"
            yield from cursor.sql(statement).to_arrow_reader(BATCH_ROWS)


def _delivered(cursor: Any, rows: pa.RecordBatchReader, out: Path | None) -> pa.Table | None:  # noqa: ANN401
    """Return the rows themselves, or write a file that is complete or absent."""
    if out is None:
        texts = [pa.field(each.name, getattr(each.type, "value_type", each.type)) for each in rows.schema]
        return rows.read_all().cast(pa.schema(texts))
    if out.suffix == ".parquet":
        write_batches(rows, rows.schema, out)
        return None
    import duckdb

    with complete(out) as part:
        cursor.register("sfumato_rewritten", rows)
        try:
            cursor.execute(f"COPY sfumato_rewritten TO {quoted(str(part))} (FORMAT csv, HEADER)")
        except duckdb.IOException:  # an error of the written file, because the table is read already
            raise OSError(f"cannot write {out.name}") from None
    return None
