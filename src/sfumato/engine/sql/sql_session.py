"""A connection to PostgreSQL, MariaDB or MySQL, read-only except for temporary tables: its errors and its SQL."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from sfumato.engine.port import Column, ColumnKind
from sfumato.engine.profile import DeclaredKeys
from sfumato.engine.sql.addresses import database_engine
from sfumato.engine.sql.sql_dialects import MariaDialect, PostgresDialect
from sfumato.engine.table_files import redacted_source
from sfumato.errors import EngineError, InputError, TableError

BATCH_ROWS = 1 << 16
_Result = TypeVar("_Result")
# SQLSTATE of PostgreSQL and error numbers of MariaDB, with their meaning for the owner of the table
_MEANINGS: tuple[tuple[frozenset[object], str], ...] = (
    (
        frozenset({"42501", 1044, 1142, 1143, 1227}),
        "no permission on {}; it takes SELECT and the right to make temporary tables",
    ),
    (frozenset({"42P01", "42703", 1054, 1146}), "{} is gone, or has other columns than when it was opened"),
    (frozenset({"57014", 1317, 1969, 3024}), "the database stopped a statement over {}: cancelled, or out of time"),
    (frozenset({"53100", "53200", 1021, 1041, 1114}), "the database ran out of disk or of memory over {}"),
)
_KILLED = 1927  # MariaDB's error for a killed connection, which SQLAlchemy does not recognize
# Refused connections have no code in PostgreSQL's driver, so parts of messages are listed next to the numbers.
_REFUSALS: tuple[tuple[tuple[object, ...], str], ...] = (
    ((1045, 1698, "password", "authentication"), "user or password is wrong"),
    ((1044, "permission denied"), "the user has no permission on that database"),
    ((1049, "does not exist"), "there is no database of that name"),
    ((1040, "too many"), "the server has too many connections already"),
    ((2003, "refused", "resolve", "timeout", "invalid port"), "no database server answers at that host and port"),
)


class DatabaseSession:
    """A connection for one thread at a time, whose errors belong to this package and have no data values."""

    def __init__(self, engine: Any, title: str) -> None:  # noqa: ANN401 - a SQLAlchemy engine, imported lazily
        self._title = title
        self._lock = threading.Lock()
        self._lost = False
        self._in_transaction = False  # a transaction of several statements is under way
        self._connection = _connected(engine, title)
        self.dialect = _dialect(self._connection)
        with self._translating():
            self.run(*self.dialect.session, *self.dialect.read_only)

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Return all rows of a result."""
        return self.named_rows(statement)[1]

    def named_rows(self, statement: str) -> tuple[list[str], Sequence[Sequence[Any]]]:
        """Return column names and all rows of a result."""
        with self._lock, self._translating():
            result = self._connection.exec_driver_sql(statement)
            names = list(result.keys())
            rows = result.cursor.fetchall()  # the driver's own tuples: wide covers have millions of cells
            self._commit()
            return names, rows

    @contextmanager
    def one_state(self) -> Iterator[bool]:
        """Run a block whose statements all read one state of the tables; yield false if the database cannot do so."""
        if not self.dialect.lasting_snapshots:
            yield False
            return
        with self._lock, self._translating():
            self.run(*self.dialect.read_write)  # before the transaction, whose first statement takes the snapshot
        self._in_transaction = True
        try:
            yield True
        except BaseException:
            self._in_transaction = False
            if not self._lost:
                self._connection.rollback()
            raise
        self._in_transaction = False
        with self._lock, self._translating():
            self.run(*self.dialect.read_only)

    def chunks(self, statement: str) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield a result in chunks of ``BATCH_ROWS``, streamed by the server."""
        with self._lock, self._translating():
            streaming = self._connection.execution_options(stream_results=True, max_row_buffer=BATCH_ROWS)
            result = streaming.exec_driver_sql(statement)
            while chunk := result.fetchmany(BATCH_ROWS):
                yield chunk
            self._connection.commit()
            self._connection.execution_options(stream_results=False)

    def make(self, name: str, select: str, definition: str = "", keys: Sequence[str] = ()) -> None:
        """Make a temporary table of encoded rows, with look-ups by some columns of text.

        Args:
            name: the name of the table.
            select: its rows.
            definition: the columns whose types the query cannot give.
            keys: the columns for look-ups.
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
        """Drop temporary tables that exist; a lost session has none."""
        if not self._lost:
            with self._lock, self._translating():
                self.run(*self.dialect.read_write)
                self.run(*(f"{self.dialect.drop} {name}" for name in names), *self.dialect.read_only)

    def load(self, name: str, small: pa.Table, key: Sequence[str]) -> None:
        """Make a temporary table of a few codes and labels, with look-ups by some columns."""
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
        """Return the columns of a table or view."""
        import sqlalchemy as sa

        with self._lock, self._translating(), warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)  # a type that SQLAlchemy does not know is Kind.OTHER
            try:
                types = [column["type"] for column in sa.inspect(self._connection).get_columns(table, schema)]
            except sa.exc.NoSuchTableError:
                raise TableError(f"there is no {self._title}", culprit=table) from None
            # SQLAlchemy reads names from MariaDB's definition, which doubles backticks; results have the correct names.
            relation = ".".join(self.dialect.name(part) for part in (schema, table) if part)
            names = list(self._connection.exec_driver_sql(f"SELECT * FROM {relation} LIMIT 0").keys())
            self._connection.commit()
        return tuple(
            Column(name, _kind(kind), _named(kind), moments=_of_moments(kind, self.dialect))
            for name, kind in zip(names, types, strict=True)
        )

    def inspected(self, look: Callable[[Any], _Result]) -> _Result:
        """Return a result of SQLAlchemy's inspector of the catalog."""
        import sqlalchemy as sa

        with self._lock, self._translating():
            result = look(sa.inspect(self._connection))
            self._connection.commit()
        return result

    def ready(self) -> None:
        """Refuse if the connection is lost.

        Raises:
            EngineError: the connection is lost.
        """
        self.rows("SELECT 1")

    def close(self) -> None:
        """End the session, so that the server drops its temporary tables; a lost session is closed silently."""
        if not self._connection.closed:
            self._connection.invalidate()
            self._connection.close()

    def run(self, *statements: str) -> None:
        """Run statements that return no rows, each in a transaction of its own."""
        for statement in statements:
            self._connection.exec_driver_sql(statement)
            self._commit()

    def _commit(self) -> None:
        if not self._in_transaction:
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
    """Return the SQLSTATE of PostgreSQL's driver, or the number of MariaDB's."""
    return frozenset({getattr(error.orig, "sqlstate", None), *error.orig.args[:1]})


def _connected(engine: Any, title: str) -> Any:  # noqa: ANN401 - SQLAlchemy, imported lazily
    import sqlalchemy as sa

    try:
        return engine.connect().execution_options(no_parameters=True)
    except sa.exc.DBAPIError as error:
        message, codes = str(error.orig), _codes(error)
        known = (
            text
            for marks, text in _REFUSALS
            if any(mark in message if isinstance(mark, str) else mark in codes for mark in marks)
        )
        reason = _unknown_option(engine, message) or next(known, "the server refused the connection")
    except Exception as error:  # noqa: BLE001 - a driver that meets an option or a server that it does not know raises anything
        reason = _unknown_option(engine, str(error)) or (
            "an option of the address is unknown to the driver, or what answers there is another kind of server"
        )
    raise EngineError(f"cannot open {title}: {reason}", culprit=title) from None


def _unknown_option(engine: Any, message: str) -> str | None:  # noqa: ANN401 - a SQLAlchemy engine, imported lazily
    """Return the name of the address's option that a driver rejects as unknown; None if it names none."""
    unknown = ("invalid connection option", "unexpected keyword argument")  # PostgreSQL's and MariaDB's words
    if not any(words in message for words in unknown):
        return None
    named = (name for name in engine.url.query if f'"{name}"' in message or f"'{name}'" in message)
    return next((f"the driver knows no option {name!r}, which the address has" for name in named), None)


def _dialect(connection: Any) -> PostgresDialect | MariaDialect:  # noqa: ANN401
    if connection.dialect.name == "postgresql":
        return PostgresDialect()
    if connection.dialect.is_mariadb:
        return MariaDialect(collation="utf8mb4_nopad_bin", digest="MD5({})")
    # MySQL 9.6 and later have no MD5 unless a component is installed.
    return MariaDialect(collation="utf8mb4_0900_bin", digest="SHA2({}, 256)")


def _named(kind: Any) -> str:  # noqa: ANN401 - a type of SQLAlchemy, imported lazily
    """Return the name of a type, with MariaDB's UNSIGNED, which SQLAlchemy omits."""
    return f"{kind} UNSIGNED" if getattr(kind, "unsigned", False) else str(kind)


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
    """Return whether time stamps are points in time: types ``with time zone``, and the TIMESTAMP of MariaDB."""
    import sqlalchemy as sa

    mariadb = isinstance(dialect, MariaDialect) and isinstance(kind, sa.TIMESTAMP)
    return mariadb or (isinstance(kind, sa.DateTime) and bool(kind.timezone))


def declared_keys(url: str) -> dict[str, DeclaredKeys]:
    """Return the tables of a database by name, with keys and references of one column each; read no row.

    Raises:
        InputError: the address is no database.
        EngineError: it does not answer, or gives no permission.
        TableError: it has no tables.
    """
    import sqlalchemy as sa

    scheme, _, rest = url.partition("://")
    try:
        place = sa.make_url(f"{'postgresql' if scheme == 'postgres' else scheme}://{rest}")
    except (sa.exc.ArgumentError, ValueError):
        raise InputError(
            "a database URL looks like postgresql://user@host/database", culprit=redacted_source(url)
        ) from None
    title = f"the tables of {redacted_source(url).partition('?')[0]}"
    session = DatabaseSession(database_engine(place), title)
    try:
        keys = session.inspected(_declared)
    finally:
        session.close()
    if not keys:
        raise TableError(f"{title}: there are none", culprit=redacted_source(url))
    return keys


def _declared(inspector: Any) -> dict[str, DeclaredKeys]:  # noqa: ANN401 - of SQLAlchemy, imported lazily
    keys = {}
    for table in sorted(inspector.get_table_names()):
        key = inspector.get_pk_constraint(table).get("constrained_columns") or []
        links = [
            (each["constrained_columns"][0], each["referred_table"])
            for each in inspector.get_foreign_keys(table)
            if len(each["constrained_columns"]) == 1
        ]
        keys[table] = DeclaredKeys(key[0] if len(key) == 1 else None, tuple(links))
    return keys
