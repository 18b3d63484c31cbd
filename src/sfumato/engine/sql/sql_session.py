"""A connection to PostgreSQL, MariaDB or MySQL, read-only but for temporary tables: its errors and its SQL."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from sfumato.domain import Domain
from sfumato.engine.dialect import LONGEST_ID, smallest_bits
from sfumato.engine.port import Column, ColumnKind
from sfumato.errors import EngineError, TableError

BATCH_ROWS = 1 << 16
_Found = TypeVar("_Found")
# SQLSTATE of PostgreSQL and error numbers of MariaDB, with what they mean to the owner of the table
_MEANINGS: tuple[tuple[frozenset[object], str], ...] = (
    (
        frozenset({"42501", 1044, 1142, 1143, 1227}),
        "no permission on {}; it takes SELECT and the right to make temporary tables",
    ),
    (frozenset({"42P01", "42703", 1054, 1146}), "{} is gone, or has other columns than when it was opened"),
    (frozenset({"57014", 1317, 1969, 3024}), "the database stopped a statement over {}: cancelled, or out of time"),
    (frozenset({"53100", "53200", 1021, 1041, 1114}), "the database ran out of disk or of memory over {}"),
)
_KILLED = 1927  # MariaDB's last word on a connection, which SQLAlchemy does not take for the end
# Refused connections carry no code in PostgreSQL's driver, so parts of messages stand beside the numbers.
_REFUSALS: tuple[tuple[tuple[object, ...], str], ...] = (
    ((1045, 1698, "password", "authentication"), "user or password is wrong"),
    ((1044, "permission denied"), "the user has no permission on that database"),
    ((1049, "does not exist"), "there is no database of that name"),
    ((1040, "too many"), "the server has too many connections already"),
    ((2003, "refused", "resolve", "timeout", "invalid port"), "no database server answers at that host and port"),
)


class DatabaseSession:
    """One connection, used by one thread at a time; errors come out as ours, without data values."""

    def __init__(self, engine: Any, title: str) -> None:  # noqa: ANN401 - a SQLAlchemy engine, imported lazily
        self._title = title
        self._lock = threading.Lock()
        self._lost = False
        self._connection = _connected(engine, title)
        self.dialect = _dialect(self._connection)
        with self._translating():
            self.run(*self.dialect.session, *self.dialect.read_only)

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """All rows of a result."""
        return self.named_rows(statement)[1]

    def named_rows(self, statement: str) -> tuple[list[str], Sequence[Sequence[Any]]]:
        """Column names and all rows of a result."""
        with self._lock, self._translating():
            result = self._connection.exec_driver_sql(statement)
            names = list(result.keys())
            rows = result.cursor.fetchall()  # the driver's own tuples: wide covers have millions of cells
            self._connection.commit()
            return names, rows

    def chunks(self, statement: str) -> Iterator[Sequence[Sequence[Any]]]:
        """A result in chunks of ``BATCH_ROWS``, streamed by the server."""
        with self._lock, self._translating():
            streaming = self._connection.execution_options(stream_results=True, max_row_buffer=BATCH_ROWS)
            result = streaming.exec_driver_sql(statement)
            while chunk := result.fetchmany(BATCH_ROWS):
                yield chunk
            self._connection.commit()
            self._connection.execution_options(stream_results=False)

    def make(self, name: str, select: str, definition: str = "", keys: Sequence[str] = ()) -> None:
        """Make a temporary table of encoded rows, which is looked up by some columns of text.

        Args:
            name: of the table.
            select: its rows.
            definition: of columns whose types the query cannot give.
            keys: the columns.
        """
        with self._lock, self._translating():
            self.run(
                *self.dialect.read_write,
                f"CREATE TEMPORARY TABLE {name} {definition} AS {select}",
                *self.dialect.indexed(name, keys),
                *self.dialect.analyzed(name),
                *self.dialect.read_only,
            )

    def drop(self, names: Iterable[str]) -> None:
        """Drop temporary tables, as far as they are there; of a lost session nothing is left."""
        if not self._lost:
            with self._lock, self._translating():
                self.run(*self.dialect.read_write)
                self.run(*(f"{self.dialect.drop} {name}" for name in names), *self.dialect.read_only)

    def load(self, name: str, small: pa.Table, key: Sequence[str]) -> None:
        """Make a temporary table of a few codes and labels, which is looked up by some columns."""
        types = [self.dialect.text_type if pa.types.is_string(kind) else "BIGINT" for kind in small.schema.types]
        columns = ", ".join(f"{column} {kind}" for column, kind in zip(small.column_names, types, strict=True))
        with self._lock, self._translating():
            self.run(*self.dialect.read_write, f"CREATE TEMPORARY TABLE {name} ({columns}{self.dialect.key(key)})")
            for batch in small.to_batches(max_chunksize=1000):
                values = ", ".join(
                    "("
                    + ", ".join(self.dialect.string(v) if isinstance(v, str) else str(v) for v in row.values())
                    + ")"
                    for row in batch.to_pylist()
                )
                self.run(f"INSERT INTO {name} VALUES {values}")
            self.run(*self.dialect.analyzed(name), *self.dialect.read_only)

    def columns(self, table: str, schema: str | None) -> tuple[Column, ...]:
        """Columns of a table or view."""
        import sqlalchemy as sa

        with self._lock, self._translating(), warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)  # a type that SQLAlchemy does not know is Kind.OTHER
            try:
                types = [column["type"] for column in sa.inspect(self._connection).get_columns(table, schema)]
            except sa.exc.NoSuchTableError:
                raise TableError(f"there is no {self._title}", culprit=table) from None
            # SQLAlchemy takes names from MariaDB's definition, where backticks are doubled: results have them right.
            relation = ".".join(self.dialect.name(part) for part in (schema, table) if part)
            names = list(self._connection.exec_driver_sql(f"SELECT * FROM {relation} LIMIT 0").keys())
            self._connection.commit()
        return tuple(
            Column(name, _kind(kind), str(kind), moments=_of_moments(kind, self.dialect))
            for name, kind in zip(names, types, strict=True)
        )

    def inspected(self, look: Callable[[Any], _Found]) -> _Found:
        """What somebody reads off the catalogue, by SQLAlchemy's inspector."""
        import sqlalchemy as sa

        with self._lock, self._translating():
            found = look(sa.inspect(self._connection))
            self._connection.commit()
        return found

    def ready(self) -> None:
        """Refuse where the connection is lost.

        Raises:
            EngineError: it is.
        """
        self.rows("SELECT 1")

    def close(self) -> None:
        """End the session, at which the server drops its temporary tables; a lost one as well, without a word."""
        self._connection.invalidate()
        self._connection.close()

    def run(self, *statements: str) -> None:
        """Run statements that return no rows, each in a transaction of its own."""
        for statement in statements:
            self._connection.exec_driver_sql(statement)
            self._connection.commit()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        import sqlalchemy as sa

        if self._lost:  # SQLAlchemy would connect again, to a session without the temporary table
            raise EngineError(f"the connection to {self._title} was lost; open it again", culprit=self._title)
        try:
            yield
        except sa.exc.DBAPIError as error:
            self._lost = error.connection_invalidated or _KILLED in _codes(error)
            if not self._lost:
                self._connection.rollback()
            raise EngineError(self._meaning(error), culprit=self._title) from None

    def _meaning(self, error: Any) -> str:  # noqa: ANN401 - an error of SQLAlchemy, imported lazily
        if self._lost:
            return f"the connection to {self._title} was lost; open it again"
        meant = (text.format(self._title) for known, text in _MEANINGS if known & _codes(error))
        return next(meant, f"the database failed over {self._title}: {type(error.orig).__name__}")


def _codes(error: Any) -> frozenset[object]:  # noqa: ANN401 - an error of SQLAlchemy, imported lazily
    """SQLSTATE of PostgreSQL's driver, number of MariaDB's."""
    return frozenset({getattr(error.orig, "sqlstate", None), *error.orig.args[:1]})


def _connected(engine: Any, title: str) -> Any:  # noqa: ANN401 - SQLAlchemy, imported lazily
    import sqlalchemy as sa

    try:
        return engine.connect().execution_options(no_parameters=True)
    except sa.exc.DBAPIError as error:
        said, codes = str(error.orig), _codes(error)
        known = (
            text
            for marks, text in _REFUSALS
            if any(mark in said if isinstance(mark, str) else mark in codes for mark in marks)
        )
        reason = _unknown_option(engine, said) or next(known, "the server refused the connection")
    except Exception as error:  # noqa: BLE001 - a driver that meets an option or a server that it does not know raises anything
        reason = _unknown_option(engine, str(error)) or (
            "an option of the address is unknown to the driver, or what answers there is another kind of server"
        )
    raise EngineError(f"cannot open {title}: {reason}", culprit=title) from None


def _unknown_option(engine: Any, said: str) -> str | None:  # noqa: ANN401 - a SQLAlchemy engine, imported lazily
    """The option of the address that a driver says it does not know, without its value; None if it says nothing."""
    unknown = ("invalid connection option", "unexpected keyword argument")  # of PostgreSQL's driver, of MariaDB's
    if not any(words in said for words in unknown):
        return None
    named = (name for name in engine.url.query if f'"{name}"' in said or f"'{name}'" in said)
    return next((f"the driver knows no option {name!r}, which the address has" for name in named), None)


def _dialect(connection: Any) -> PostgresDialect | MariaDialect:  # noqa: ANN401
    if connection.dialect.name == "postgresql":
        return PostgresDialect()
    if connection.dialect.is_mariadb:
        return MariaDialect(collation="utf8mb4_nopad_bin", digest="MD5({})")
    # MySQL 9.6 and later have no MD5 unless a component is installed.
    return MariaDialect(collation="utf8mb4_0900_bin", digest="SHA2({}, 256)")


def _kind(kind: Any) -> ColumnKind:  # noqa: ANN401 - a type of SQLAlchemy, imported lazily
    import sqlalchemy as sa

    known = (
        (sa.Boolean, ColumnKind.BOOLEAN),
        (sa.Integer, ColumnKind.INTEGER),
        (sa.Numeric | sa.Float, ColumnKind.REAL),
        (sa.String | sa.Uuid, ColumnKind.TEXT),
        (sa.Date, ColumnKind.DATE),
        (sa.DateTime, ColumnKind.TIMESTAMP),
    )
    return next((ours for theirs, ours in known if isinstance(kind, theirs)), ColumnKind.OTHER)


def _of_moments(kind: Any, dialect: PostgresDialect | MariaDialect) -> bool:  # noqa: ANN401 - a type of SQLAlchemy
    """Whether time stamps are points in time: those ``with time zone``, and the TIMESTAMP of MariaDB."""
    import sqlalchemy as sa

    mariadb = isinstance(dialect, MariaDialect) and isinstance(kind, sa.TIMESTAMP)
    return mariadb or (isinstance(kind, sa.DateTime) and bool(kind.timezone))


def cases(expression: str, codes: Mapping[str, int], dialect: PostgresDialect | MariaDialect) -> str:
    """A look-up as CASE, which every engine has."""
    branches = " ".join(f"WHEN {dialect.string(text)} THEN {code}" for text, code in codes.items())
    return f"CASE {expression} {branches} END"


class PostgresDialect:
    """PostgreSQL with ``standard_conforming_strings``, which the session sets."""

    whole_ids: frozenset[str] = frozenset()

    def day(self, column: Column) -> str | None:
        """Read as text."""

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Counted as any."""

    session = (
        "SET standard_conforming_strings = on",
        "SET DateStyle = 'ISO, YMD'",
        "SET extra_float_digits = 1",
        "SET work_mem = '256MB'",  # hash tables of large marginals stay in memory
    )
    read_only = ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",)
    read_write = ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",)
    text_type = "TEXT"
    drop = "DROP TABLE IF EXISTS"

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def string(self, value: str) -> str:
        """A text literal; PostgreSQL holds no NUL, so text with one equals nothing."""
        return "NULL" if "\0" in value else "'" + value.replace("'", "''") + "'"

    def text(self, expression: str) -> str:
        """Text, compared byte by byte."""
        return f'CAST({expression} AS TEXT) COLLATE "C"'

    def timestamp(self, column: Column) -> str:
        """Its text; of moments in UTC."""
        name = self.name(column.name)
        moment = self.text(f"({name} AT TIME ZONE 'UTC')")
        return f"({moment} || 'Z')" if column.moments else self.text(name)

    def telling(self, column: Column) -> str:
        """Its text: numbers are spelled with all digits that they have."""
        return self.text(self.name(column.name))

    def computed_once(self, select: str) -> str:
        """A subquery with OFFSET is planned by itself."""
        return f"{select} OFFSET 0"

    def double(self, expression: str) -> str:
        """A double."""
        return f"CAST({expression} AS DOUBLE PRECISION)"

    def integer(self, expression: str) -> str:
        """A signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """SMALLINT where it fits: there are no unsigned types."""
        return f"CAST({expression} AS {'SMALLINT' if cells <= 1 << 15 else 'INTEGER'})"

    def definition(self, domain: Domain) -> str:
        """Columns of the encoded table: their types follow from the query."""
        del domain
        return ""

    def key(self, columns: Sequence[str]) -> str:
        """Nothing: joins are by hash."""
        del columns
        return ""

    def indexed(self, table: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Nothing: joins are by hash."""
        del table, columns
        return ()

    def analyzed(self, table: str) -> tuple[str, ...]:
        """Statistics on a temporary table, which nothing else gathers."""
        return (f"ANALYZE {table}",)

    def matches(self, expression: str, pattern: str) -> str:
        """Whole text; ``$`` does not match before a last line end here."""
        return f"({expression} ~ {self.string(f'^({pattern})$')})"

    def is_nan(self, expression: str) -> str:
        """NaN equals itself here."""
        return f"({expression} = CAST('NaN' AS DOUBLE PRECISION))"

    def digest(self, expression: str) -> str:
        """MD5."""
        return f"MD5({expression})"

    def sha256(self, expression: str) -> str:
        """SHA-256."""
        return f"ENCODE(SHA256(CONVERT_TO({expression}, 'UTF8')), 'hex')"

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """A CASE."""
        return cases(expression, codes, self)

    def kept(self, relation: str, condition: str) -> str:
        """As it stands."""
        return f"{relation} WHERE {condition}"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """The engine's own randomness."""
        del columns, salt
        return "RANDOM()"

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from an MD5."""
        halves = (f"SUBSTR({digest}, {start}, 15)" for start in (1, 17))
        first, second = (f"CAST(CAST(('x' || LPAD({half}, 16, '0')) AS BIT(64)) AS BIGINT)" for half in halves)
        return first, second


_KEY_COLUMNS = 16  # the most that an index of MariaDB has


class MariaDialect:
    """MariaDB or MySQL, under the SQL mode that the session sets."""

    whole_ids: frozenset[str] = frozenset()

    def day(self, column: Column) -> str | None:
        """Read as text."""

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Counted as any."""

    session = (
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'",
        "SET NAMES utf8mb4",
        f"SET SESSION max_sort_length = {4 * LONGEST_ID}",  # bytes beyond are not compared by GROUP BY and windows
    )
    # Under READ COMMITTED a statement still reads one snapshot, and CREATE … SELECT takes no locks.
    read_only = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",)
    read_write = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",)
    text_type = "LONGTEXT CHARACTER SET utf8mb4"
    drop = "DROP TEMPORARY TABLE IF EXISTS"

    def __init__(self, *, collation: str, digest: str) -> None:
        """Take what MariaDB and MySQL spell differently.

        Args:
            collation: the bytewise one that does not pad.
            digest: SQL of a hash in lower-case hexadecimal digits, with ``{}`` for the text.
        """
        self._collation = collation
        self._digest = digest

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return "`" + identifier.replace("`", "``") + "`"

    def string(self, value: str) -> str:
        """A text literal."""
        return "'" + value.replace("'", "''") + "'"

    def text(self, expression: str) -> str:
        """Text in UTF-8, compared byte by byte and without padding."""
        return f"CONVERT({expression} USING utf8mb4) COLLATE {self._collation}"

    def timestamp(self, column: Column) -> str:
        """Its text; of moments in UTC, by their number, as the session's clock shows some of them twice."""
        name = self.name(column.name)
        if not column.moments:
            return self.text(name)
        seconds = f"FLOOR(NULLIF(UNIX_TIMESTAMP({name}), 0))"  # the zero of a database without strict mode is no moment
        moment = f"TIMESTAMPADD(SECOND, {seconds}, '1970-01-01 00:00:00')"
        return self.text(f"CASE WHEN {name} IS NOT NULL THEN CONCAT(COALESCE({moment}, ''), 'Z') END")

    def telling(self, column: Column) -> str:
        """Its text, of a FLOAT as a double: as it is, a FLOAT is spelled with six digits."""
        name = self.name(column.name)
        return self.text(self.double(name) if column.type.upper().startswith("FLOAT") else name)

    def computed_once(self, select: str) -> str:
        """A subquery with LIMIT is not merged."""
        return f"{select} LIMIT {(1 << 64) - 1}"

    def double(self, expression: str) -> str:
        """A double."""
        return f"CAST({expression} AS DOUBLE)"

    def integer(self, expression: str) -> str:
        """A signed 64-bit integer."""
        return f"CAST({expression} AS SIGNED)"

    def code(self, expression: str, cells: int) -> str:
        """The type is given where the table is made: CAST knows one unsigned type only."""
        del cells
        return f"CAST({expression} AS UNSIGNED)"

    def definition(self, domain: Domain) -> str:
        """Columns of the encoded table whose types the query cannot give."""
        types = {8: "TINYINT UNSIGNED", 16: "SMALLINT UNSIGNED", 32: "INT UNSIGNED"}
        sizes = enumerate(domain.shape)
        return "(" + ", ".join(f"c{place} {types[smallest_bits(size)]} NOT NULL" for place, size in sizes) + ")"

    def key(self, columns: Sequence[str]) -> str:
        """An index in the definition of a small table: MariaDB would join by the product of all such tables."""
        return f", KEY ({', '.join(columns[:_KEY_COLUMNS])})" if columns else ""

    def indexed(self, table: str, columns: Sequence[str]) -> tuple[str, ...]:
        """An index for each, as MariaDB would compare all pairs of rows; most keys differ in their first letters."""
        return tuple(f"ALTER TABLE {table} ADD INDEX ({column}(64))" for column in columns)

    def analyzed(self, table: str) -> tuple[str, ...]:
        """Nothing: tallies read the whole table anyway."""
        del table
        return ()

    def matches(self, expression: str, pattern: str) -> str:
        r"""Whole text, with ``\z``: ``$`` also matches before a last line end."""
        anchored = self.string("^(" + pattern + r")\z")
        return f"({expression} REGEXP {anchored})"

    def is_nan(self, expression: str) -> str:
        """There is no NaN in these databases."""
        del expression
        return "(1 = 0)"

    def digest(self, expression: str) -> str:
        """MD5, or what the server has in its place."""
        return self._digest.format(expression)

    def sha256(self, expression: str) -> str:
        """SHA-256."""
        return f"SHA2({expression}, 256)"

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """A CASE."""
        return cases(expression, codes, self)

    def kept(self, relation: str, condition: str) -> str:
        """As it stands."""
        return f"{relation} WHERE {condition}"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """The engine's own randomness."""
        del columns, salt
        return "RAND()"

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from a digest."""
        first, second = (f"CAST(CONV(SUBSTR({digest}, {start}, 15), 16, 10) AS SIGNED)" for start in (1, 17))
        return first, second
