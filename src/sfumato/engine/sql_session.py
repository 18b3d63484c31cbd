"""One connection to a database: read-only but for temporary tables, errors translated."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sfumato.engine.encoding import Encoding
from sfumato.engine.port import Column, Kind
from sfumato.engine.sql_dialect import MariaDialect, PostgresDialect
from sfumato.errors import EngineError, TableError

BATCH_ROWS = 1 << 16
_DENIED = {"42501", "28000", "28P01", 1044, 1045, 1142, 1143, 1227}  # SQLSTATE of PostgreSQL, errors of MariaDB


class Session:
    """One connection, used by one thread at a time; errors come out as ours, without data values."""

    def __init__(self, engine: Any, title: str) -> None:  # noqa: ANN401 - a SQLAlchemy engine, imported lazily
        self._title = title
        self._lock = threading.Lock()
        with self._translating():
            self._connection = engine.connect().execution_options(no_parameters=True)
        self.dialect = _dialect(self._connection)
        with self._translating():
            self._run(*self.dialect.session, *self.dialect.read_only)

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

    def make(self, name: str, encoding: Encoding, select: str) -> None:
        """Make a temporary table of encoded rows."""
        with self._lock, self._translating():
            self._run(
                *self.dialect.read_write,
                f"CREATE TEMPORARY TABLE {name} {self.dialect.definition(encoding.domain)} AS {select}",
                *self.dialect.analyzed(name),
                *self.dialect.read_only,
            )

    def load(self, name: str, small: pa.Table) -> None:
        """Make a temporary table of a few codes and labels."""
        types = [self.dialect.text_type if pa.types.is_string(kind) else "BIGINT" for kind in small.schema.types]
        columns = ", ".join(f"{column} {kind}" for column, kind in zip(small.column_names, types, strict=True))
        with self._lock, self._translating():
            self._run(*self.dialect.read_write, f"CREATE TEMPORARY TABLE {name} ({columns})")
            for batch in small.to_batches(max_chunksize=1000):
                values = ", ".join(
                    "("
                    + ", ".join(self.dialect.string(v) if isinstance(v, str) else str(v) for v in row.values())
                    + ")"
                    for row in batch.to_pylist()
                )
                self._run(f"INSERT INTO {name} VALUES {values}")
            self._run(*self.dialect.analyzed(name), *self.dialect.read_only)

    def columns(self, table: str, schema: str | None) -> tuple[Column, ...]:
        """Columns of a table or view."""
        import sqlalchemy as sa

        with self._lock, self._translating(), warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)  # a type that SQLAlchemy does not know is Kind.OTHER
            try:
                found = sa.inspect(self._connection).get_columns(table, schema)
            except sa.exc.NoSuchTableError:
                raise TableError(f"there is no {self._title}", culprit=table) from None
            self._connection.commit()
        return tuple(Column(column["name"], _kind(column["type"]), str(column["type"])) for column in found)

    def close(self) -> None:
        """End the session and drop its temporary tables."""
        self._connection.close()

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.exec_driver_sql(statement)
            self._connection.commit()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        import sqlalchemy as sa

        try:
            yield
        except sa.exc.DBAPIError as error:
            original = error.orig
            codes = {getattr(original, "sqlstate", None), *(original.args[:1] if original is not None else ())}
            if _DENIED & codes:
                raise EngineError(
                    f"no permission on {self._title}; it takes SELECT and the right to make temporary tables",
                    culprit=self._title,
                ) from None
            if error.connection_invalidated or isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
                raise EngineError(f"no connection to {self._title}, or it was lost", culprit=self._title) from None
            raise EngineError(
                f"the database failed over {self._title}: {type(original).__name__}", culprit=self._title
            ) from None


def _dialect(connection: Any) -> PostgresDialect | MariaDialect:  # noqa: ANN401
    if connection.dialect.name == "postgresql":
        return PostgresDialect()
    return MariaDialect("utf8mb4_nopad_bin" if connection.dialect.is_mariadb else "utf8mb4_0900_bin")


def _kind(kind: Any) -> Kind:  # noqa: ANN401 - a type of SQLAlchemy, imported lazily
    import sqlalchemy as sa

    known = (
        (sa.Boolean, Kind.BOOLEAN),
        (sa.Integer, Kind.INTEGER),
        (sa.Numeric | sa.Float, Kind.REAL),
        (sa.String | sa.Uuid | sa.Date, Kind.TEXT),
    )
    return next((ours for theirs, ours in known if isinstance(kind, theirs)), Kind.OTHER)
