"""A table of PostgreSQL or MariaDB (or MySQL), its encoded rows in a temporary table, and their rewriting.

Encoding makes a temporary table in a session of its own, in one statement and so from one snapshot.  The tallies of one
encoding agree with each other, whatever happens to the table in the meantime.  The session is read-only except for its
temporary tables.  ``keys`` and ``recoded`` read the current table again, even if its content differs from the declared
version.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import hashlib
import itertools
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.adapter import FromTables
from sfumato.engine.bounding import bounded_keys, dropped, kept_rows, kept_rows_at_once, unit_sizes
from sfumato.engine.contingency import CellStatements, CoverPlan, condition
from sfumato.engine.dialect import Dialect, as_double, number
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import Encoding, RowEncoding, content_name, content_statement
from sfumato.engine.port import Column, ColumnKind, Counts, Profile, Recodable, Recode
from sfumato.engine.profile import Profiler, distinct_statement
from sfumato.engine.sql.addresses import database_engine
from sfumato.engine.sql.sql_dialects import MariaDialect
from sfumato.engine.sql.sql_session import DatabaseSession
from sfumato.engine.table_files import Content, read_labels, redacted_source, write_batches
from sfumato.errors import EngineError, InputError, TableError


@dataclass(frozen=True)
class Rewriting:
    """The join of encoded rows, which carry raw columns as ``r0, r1, …``, with levels and classes.

    Tables ``sfumato_level0, …`` have columns ``code, level``; table ``sfumato_classes`` has ``k0, k1, …`` (coarser
    codes), ``l0, l1, …`` (labels), and ``first, last``: the shuffled rows of the tuple that it takes.
    """

    encoding: RowEncoding
    recode: Recode
    raw: tuple[str, ...]

    def tables(self) -> dict[str, pa.Table]:
        """Return the small tables, by name."""
        recode = self.recode
        levels = {
            f"sfumato_level{place}": pa.table(
                {"code": np.arange(len(level), dtype=np.int64), "level": level.astype(np.int64)}
            )
            for place, level in enumerate(recode.levels)
        }
        columns = {f"k{place}": pa.array(recode.classes[:, place].astype(np.int64)) for place in range(len(levels))}
        columns |= {f"l{place}": column for place, column in enumerate(recode.labels.columns)}
        first, last = recode.turns()
        return levels | {"sfumato_classes": pa.table(columns | {"first": first, "last": last})}

    def key(self, name: str) -> tuple[str, ...]:
        """Return the look-up columns of a small table."""
        if name != "sfumato_classes":
            return ("code",)
        return tuple(f"k{place}" for place in range(len(self.recode.attributes)))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns of the result."""
        return (*self.recode.labels.column_names, *self.raw)

    def select(self, rows: str) -> str:
        """Return the rewritten rows in random order.

        Args:
            rows: the FROM clause of the encoded rows.
        """
        dialect, recode = self.encoding.dialect, self.recode
        keys = range(len(recode.attributes))
        carried = [f"r{place}" for place in range(len(self.raw))]
        coarse = ", ".join([*(f"sfumato_level{key}.level AS k{key}" for key in keys), *carried])
        joins = " ".join(
            f"JOIN sfumato_level{key} ON sfumato_level{key}.code = c{self.encoding.domain.index(name)}"
            for key, name in enumerate(recode.attributes)
        )
        listed = ", ".join([*(f"k{key}" for key in keys), *carried])
        assignment, order = (secrets.token_hex(16) for _ in range(2))
        codes = [f"c{self.encoding.domain.index(name)}" for name in recode.attributes]
        drawn = f"SELECT {coarse}, {dialect.draw([*codes, *carried], assignment)} AS draw FROM {rows} {joins}"
        turn = "1"
        if recode.rows is not None:
            turn = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(f'k{key}' for key in keys)} ORDER BY draw)"
        dealt = f"SELECT {listed}, draw, {turn} AS turn FROM ({drawn}) AS drawn_rows"
        same = " AND ".join(
            [*(f"dealt.k{key} = sfumato_classes.k{key}" for key in keys), "turn >= first", "turn <= last"]
        )
        join = "JOIN" if recode.suppressed is None else "LEFT JOIN"
        written = [*(self._label(f"l{place}") for place in range(recode.labels.num_columns)), *carried]
        names = [dialect.name(name) for name in self.names]
        final = ", ".join(f"{column} AS {name}" for column, name in zip(written, names, strict=True))
        # A second draw: ordering by the first one would reveal the turn of each row.
        rewritten = f"{final}, {dialect.draw(written, order)} AS position"
        joined = f"SELECT {rewritten} FROM ({dealt}) AS dealt {join} sfumato_classes ON {same}"
        return f"SELECT {', '.join(names)} FROM ({joined}) AS rewritten ORDER BY position"

    def _label(self, column: str) -> str:
        if self.recode.suppressed is None:
            return column
        return f"COALESCE({column}, {self.encoding.dialect.string(self.recode.suppressed)})"


"""Options of addresses that lead to another server than the address shows."""
_ARROW = {
    ColumnKind.TEXT: pa.string(),
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.REAL: pa.float64(),
}


class SqlTable:
    """A :class:`sfumato.engine.port.ProtectedTable` over one table or view of a database."""

    def __init__(self, url: str, *, empty: bool = False) -> None:
        """Connect.

        Args:
            url: ``postgresql://user:password@host/database?table=schema.name``, or mysql, or mariadb.
            empty: true if it may have no rows.

        Raises:
            InputError: not such a URL, or the driver is not installed.
            EngineError: no connection, or no permission.
            TableError: no such table, or no rows.
        """
        import sqlalchemy as sa

        try:
            parsed = sa.make_url(url)
            name = parsed.query.get("table")
        except (sa.exc.ArgumentError, ValueError):  # ValueError for a port that is no number
            name = None
        if not isinstance(name, str) or not name:
            raise InputError(
                "a database URL looks like postgresql://user@host/database?table=name, odd characters of a password "
                "written as %40 and the like",
                culprit=redacted_source(url),
            )
        place = parsed.difference_update_query(["table"])
        self.title = f"table {name} of {redacted_source(url).partition('?')[0]}"
        schema, _, table = name.rpartition(".")
        self._engine = database_engine(place)
        with self.session() as session:
            self.dialect = session.dialect
            self._columns = session.columns(table, schema or None)
            self.relation = ".".join(self.dialect.name(part) for part in (schema, table) if part)
            if not empty and not session.rows(f"SELECT 1 FROM {self.relation} LIMIT 1"):
                raise TableError(f"{self.title} has no rows", culprit=name)

    def schema(self) -> tuple[Column, ...]:
        """The columns in order; read no row."""
        return self._columns

    @property
    def address(self) -> str:
        """The address of the database, without the password."""
        return str(self._engine.url)

    def own_session(self, title: str) -> DatabaseSession:
        """Open a session of the database, which the caller closes; ``title`` is its name in messages."""
        return DatabaseSession(self._engine, title)

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Return facts for a draft domain.  Not private: for the owner of the table only."""
        with self.session() as session:
            profiler = Profiler(session.rows, self.dialect, self.relation)
            return tuple(profiler.profile(column, distinct_limit) for column in self._columns)

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column unchanged.  It is not private: it is for the owner of the table only."""
        column = self.raw(name)
        schema = pa.schema([(name, arrow_type(column))])
        with self.session() as session:
            chunks = session.chunks(f"SELECT {as_arrow(column, self.dialect)} FROM {self.relation}")
            return pa.Table.from_batches((_batch(chunk, schema) for chunk in chunks), schema).column(0)

    def distinct_texts(self, name: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Return some distinct values of a column as text.  Not private: for the owner of the table only."""
        column = self.dialect.name(self.raw(name).name)
        with self.session() as session:
            rows = session.rows(distinct_statement(column, self.relation, self.dialect, among))
            return tuple(str(text) for (text,) in rows)

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Write columns to a Parquet file, dates and ids that are decimals as their text; rows pass in batches."""
        columns = [self.raw(name) for name in dict.fromkeys((*attributes, *ids))]
        _refuse_bytes(columns, self.dialect)
        copied = [_copied(column, self.dialect, exactly=column.name in ids) for column in columns]
        schema = pa.schema([(column.name, kind) for column, (_, kind) in zip(columns, copied, strict=True)])
        with self.session() as session:
            chunks = session.chunks(f"SELECT {', '.join(written for written, _ in copied)} FROM {self.relation}")
            write_batches((_batch(chunk, schema) for chunk in chunks), schema, out)

    def encode(self, domain: Domain) -> Recodable:
        """Encode into a temporary table of a session that the result holds."""
        with self._kept_session() as session:
            return self._encoded(domain, session)

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Read the table twice in one transaction, or three times if the database has no snapshot for a transaction."""
        with self._kept_session() as session:
            return in_one_state(session, lambda: self._encoded(domain, session), lambda: self.content_in(session))

    def content(self) -> str:
        """Name all current rows and columns."""
        with self.session() as session:
            return self.content_in(session)

    def content_in(self, session: DatabaseSession) -> str:
        """Name all rows and columns in the view of a session."""
        (row,) = session.rows(content_statement(self.relation, self._columns, self.dialect))
        return content_name(self._columns, row)

    @contextmanager
    def _kept_session(self) -> Iterator[DatabaseSession]:
        """Provide a session for a result; it is closed if there is no result."""
        session = DatabaseSession(self._engine, self.title)
        try:
            yield session
        except BaseException:
            session.close()
            raise

    def _encoded(self, domain: Domain, session: DatabaseSession) -> EncodedRows:
        encoding = Encoding(domain, {column.name: column for column in self._columns}, self.dialect)
        session.make(ENCODED, self.selected(encoding, ()), session.dialect.definition(domain))
        store = SqlStore(self, encoding, session)
        weakref.finalize(store, session.close)
        return EncodedRows(store, self)

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """Return encoded, bounded rows that carry ``raw`` columns along, as one statement."""
        written = kept_rows_at_once if self.dialect.common_once else kept_rows
        return written(encoding, self.relation, raw)

    def raw(self, name: str) -> Column:
        """Return a raw column."""
        match = next((column for column in self._columns if column.name == name), None)
        if match is None:
            raise TableError(f"the table has no column {name!r}", culprit=name)
        return match

    @contextmanager
    def session(self) -> Iterator[DatabaseSession]:
        """Provide a session for one piece of work."""
        session = DatabaseSession(self._engine, self.title)
        try:
            yield session
        finally:
            session.close()


ENCODED = "sfumato_encoded"


def in_one_state(
    session: DatabaseSession, make: Callable[[], FromTables], content: Callable[[], str]
) -> tuple[FromTables, Content]:
    """Make something of tables, and name their content, both of one state of the tables.

    MariaDB has no such snapshot.  There the content is named before and after: tables that were changed and changed
    back in between are not noticed.

    Raises:
        EngineError: the tables were written in the meantime.
    """
    with session.one_state() as held:
        before = content()
        made = make()
        if not held and content() != before:
            raise EngineError("the table was written while it was read; read it again later")
    return made, Content(lambda: before)


class SqlSource(Protocol):
    """The source of encoded rows: one table, or several."""

    @property
    def relation(self) -> str:
        """The FROM clause of the raw rows."""
        ...

    def raw(self, name: str) -> Column:
        """Return a raw column."""
        ...

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """See :meth:`SqlTable.selected`."""
        ...

    def session(self) -> AbstractContextManager[DatabaseSession]:
        """Return a session for one piece of work."""
        ...


class SqlStore:
    """A :class:`sfumato.engine.encoded.EncodedStore`: a temporary table, gone with its session."""

    cover_cells = 1 << 16  # measured on PostgreSQL: up to here, a GROUP BY takes longer than its cells

    def __init__(
        self, table: SqlSource, encoding: RowEncoding, session: DatabaseSession, relation: str = ENCODED
    ) -> None:
        self._table = table
        self._encoding = encoding
        self.session = session
        self.relation = relation
        self.domain = encoding.domain
        self.dialect = encoding.dialect

    def ready(self) -> None:
        """Refuse if the connection is lost."""
        self.session.ready()

    def query(self, statement: str) -> pa.Table:
        """Return the result of a grouping query."""
        names, rows = self.session.named_rows(statement)
        return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})

    def tally(self, plan: CoverPlan, where: Predicate | None) -> Sequence[Counts]:
        """Run one GROUP BY over the mixed-radix key of each cover."""
        return [self._tallied(plan, cover, where) for cover in range(len(plan.covers))]

    def scan(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield codes, read at once into arrays, because the session cannot stop in the middle of a result."""
        types = [np.min_scalar_type(self.domain.attributes[place].size - 1) for place in columns]
        listed = ", ".join(f"c{place}" for place in columns)
        chunks = [
            [np.fromiter((row[place] for row in rows), kind, len(rows)) for place, kind in enumerate(types)]
            for rows in self.session.chunks(f"SELECT {listed} FROM {self.relation}")
        ]
        names = [f"c{place}" for place in columns]
        return (pa.record_batch([pa.array(array) for array in chunk], names=names) for chunk in chunks)

    def fingerprint(self) -> str:
        """Return the sum of row hashes."""
        stored = (f"COALESCE({self.dialect.text(name)}, '')" for name in self._encoding.stored)
        row = self.dialect.digest("CONCAT(" + ", ' ', ".join(stored) + ")")
        first, second = self.dialect.words("digest")
        inner = f"SELECT {row} AS digest FROM {self.relation}"
        (sums,) = self.session.rows(f"SELECT COUNT(*), SUM({first}), SUM({second}) FROM ({inner}) AS hashed")
        text = " ".join([self._encoding.named, *(str(int(number or 0)) for number in sums)])
        return hashlib.sha256(text.encode()).hexdigest()

    def dropped(self, most: int, where: Predicate | None) -> int:
        """Read the table again."""
        every = f"({self._encoding.select(self._table.relation)}) AS encoded_rows"
        ((rows,),) = self.session.rows(dropped(every, self._encoding, condition(where, self.domain), most))
        return int(rows)

    def unit_sizes(self, starts: Sequence[int], of: SizeOf) -> Sequence[Sequence[int]]:
        """Read the table again."""
        every = f"({self._encoding.select(self._table.relation)}) AS encoded_rows"
        return [
            (int(place), int(units))
            for place, units in self.session.rows(unit_sizes(every, self._encoding, starts, of))
        ]

    def keys(self, columns: tuple[str, ...]) -> pa.Table:
        """Read the table again for raw keys."""
        raw = [self.dialect.telling(self._table.raw(name)) for name in columns]
        names = [f"r{place}" for place in range(len(columns))]
        select = self._encoding.select(self._table.relation, raw)
        present = " AND ".join(f"{name} IS NOT NULL" for name in names)
        held = f"(SELECT * FROM ({select}) AS carried WHERE {present}) AS held"
        rows = self.session.rows(bounded_keys(held, names, self._encoding))
        arrays = {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(columns)}
        return pa.table(arrays | {"units": pa.array([int(row[-1]) for row in rows], pa.int64())})

    def recode(self, recode: Recode, raw: tuple[str, ...], out: Path | None) -> pa.Table | None:
        """Read the table again, rewrite, shuffle; rows pass through this process in batches."""
        rewriting = Rewriting(self._encoding, recode, raw)
        columns = [self._table.raw(name) for name in raw]
        _refuse_bytes(columns, self.dialect)
        types = [pa.string()] * recode.labels.num_columns + [arrow_type(column) for column in columns]
        schema = pa.schema(list(zip(rewriting.names, types, strict=True)))
        with self._table.session() as session:
            for name, small in rewriting.tables().items():
                session.load(name, small, rewriting.key(name))
            carried = [as_arrow(column, self.dialect) for column in columns]
            rows = f"({self._table.selected(self._encoding, carried)}) AS encoded_rows"
            batches = (_batch(chunk, schema) for chunk in session.chunks(rewriting.select(rows)))
            try:
                if out is None:
                    return pa.Table.from_batches(batches, schema)
                write_batches(batches, schema, out)
            finally:
                batches.close()
                session.drop(rewriting.tables())
        return None

    def written(self, out: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the file in this process."""
        return read_labels(out, names)

    def _tallied(self, plan: CoverPlan, cover: int, where: Predicate | None) -> Counts:
        names = tuple(self.domain.names[axis] for axis in plan.covers[cover])
        counts = np.zeros(plan.cells(cover), dtype=np.int64)
        rows = self.session.rows(CellStatements(self.relation, self.domain, self.dialect, names, where).counts())
        pairs = np.fromiter(itertools.chain.from_iterable(rows), np.int64, 2 * len(rows)).reshape(-1, 2)
        counts[pairs[:, 0]] = pairs[:, 1]
        return counts


def arrow_type(column: Column) -> pa.DataType:
    """Return Arrow's type of the values of a raw column."""
    if column.kind is ColumnKind.INTEGER and "UNSIGNED" in column.type.upper():
        return pa.uint64()
    return _ARROW.get(column.kind, pa.string())


def as_arrow(column: Column, dialect: Dialect) -> str:
    """Return a raw column as an expression of its Arrow type."""
    name = dialect.name(column.name)
    match column.kind:
        case ColumnKind.REAL:
            return as_double(dialect, column)
        case ColumnKind.TEXT | ColumnKind.DATE | ColumnKind.TIMESTAMP | ColumnKind.OTHER:
            return dialect.text(name)  # the server writes text, because drivers have no value for some dates
        case _:
            return name


def _copied(column: Column, dialect: Dialect, *, exactly: bool) -> tuple[str, pa.DataType]:
    """Return a raw column as an expression that encodes alike, and its Arrow type; ``exactly`` keeps all digits."""
    if column.kind is ColumnKind.REAL:
        return (dialect.telling(column), pa.string()) if exactly else (number(dialect, column), pa.float64())
    if column.kind is ColumnKind.TIMESTAMP:
        return dialect.timestamp(column), pa.string()
    return as_arrow(column, dialect), arrow_type(column)


def _refuse_bytes(columns: Sequence[Column], dialect: Dialect) -> None:
    """Refuse columns of bytes: MariaDB writes question marks for invalid text, PostgreSQL hexadecimal digits."""
    for column in columns:
        # SQLAlchemy writes NULL for a type that it does not know, such as a geometry
        odd = column.type == "NULL" or any(mark in column.type.upper() for mark in ("BLOB", "BINARY", "BIT"))
        if isinstance(dialect, MariaDialect) and column.kind is ColumnKind.OTHER and odd:
            raise TableError(
                f"{column.name!r} is of a binary type, which cannot be kept as it is; store it as text",
                culprit=column.name,
            )


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)
