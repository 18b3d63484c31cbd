"""DuckDB: the database in memory that tables of one process share, its errors without data values, and its SQL."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.engine.dialect import smallest_bits
from sfumato.engine.port import Column, ColumnKind
from sfumato.engine.table_files import quoted
from sfumato.errors import EngineError, TableError

SPILL = "50GB"  # limit of a private temporary directory; DuckDB's default is 90 % of the disk


class DuckSession:
    """A DuckDB database in memory.

    Tables of a process share a database, because each database has threads, buffers and catalogs of its own, which take
    more memory than a small table.  Tables do not see one another: a table knows only its own names.
    """

    def __init__(self, *, threads: int | None = None, memory: str | None = None) -> None:
        """Create an unshared session; see :func:`shared_session`.

        Args:
            threads: threads of DuckDB.  Default: all of the machine's.
            memory: limit of DuckDB's memory, such as ``"8GB"``.  Default: four fifths of the machine's.
        """
        import duckdb

        # Readable by this user only, removed with the session.  Not encrypted: DuckDB's own build can only read
        # encrypted files, and would fail on the first one that it spills.
        self.scratch = Path(tempfile.mkdtemp(prefix="sfumato-"))
        options: dict[str, Any] = {
            "temp_directory": str(self.scratch),
            "max_temp_directory_size": SPILL,
            "autoinstall_known_extensions": False,  # nothing is ever fetched from the network
            "python_enable_replacements": False,  # a table name never means a Python variable
            "preserve_insertion_order": True,  # columns are read one by one: a row has the same index in each
        }
        options |= {"threads": threads} if threads else {}
        options |= {"memory_limit": memory} if memory else {}
        self._connection = duckdb.connect(":memory:", config=options)
        self._numbers = itertools.count()
        self._lost = ""
        self._removal = weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)
        _sessions.alive.add(self)

    @property
    def lost(self) -> str:
        """The reason why the session no longer answers; empty while it does."""
        return self._lost

    def fresh_name(self) -> str:
        """Return a name for a table that no other table of the session has."""
        return f"encoded_{next(self._numbers)}"

    def refuse_lost(self, title: str) -> None:
        """Refuse if the session no longer answers.

        Raises:
            EngineError: the session is lost; the table ``title`` has to be opened again.
        """
        if self._lost:
            raise EngineError(f"{title} is no longer open, as {self._lost}; open it again", culprit=title)

    def lose(self, reason: str) -> None:
        """Mark the session as lost, so that the next table gets another session."""
        self._lost = reason

    def abandon(self, reason: str) -> None:
        """Mark the session of another process as lost; never close it or remove its folder."""
        self.lose(reason)
        self._removal.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def drop(self, name: str) -> None:
        """Drop a table, if it exists and the session still answers."""
        if not self._lost:
            with self.cursor("a table") as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")

    @contextmanager
    def cursor(self, title: str) -> Iterator[Any]:
        """Provide a connection for one piece of work; DuckDB's errors are raised again without their data values.

        Args:
            title: the name in messages of the table that is read.

        Raises:
            EngineError: the session is lost, or DuckDB fails.
            TableError: the table cannot be read.
        """
        import duckdb

        self.refuse_lost(title)
        cursor = self._connection.cursor()
        try:
            yield cursor
        except (duckdb.FatalException, duckdb.InternalException):
            # DuckDB answers nothing after such an error, not even of other tables.
            self.lose("DuckDB failed on a table of this process")
            raise EngineError(f"DuckDB failed over {title}: open it again", culprit=title) from None
        except duckdb.Error as error:
            raise _translated(error, title) from None
        finally:
            cursor.close()


class _Sessions:
    """The shared session while a table of it is open, and all sessions, for a forked child."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[DuckSession] = weakref.WeakSet()
        self._shared: weakref.ref[DuckSession] | None = None
        self._lock = threading.Lock()

    def shared(self) -> DuckSession:
        with self._lock:
            session = None if self._shared is None else self._shared()
            if session is None or session.lost:
                session = DuckSession()
                self._shared = weakref.ref(session)
            return session

    def bytes(self) -> int:
        """Return the bytes of all tables of the shared session."""
        session = None if self._shared is None else self._shared()
        if not (session and not session.lost):
            return 0
        with session.cursor("a table") as cursor:
            query = "SELECT COALESCE(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
            return int(cursor.execute(query).fetchone()[0])

    def forked(self) -> None:
        """Abandon the parent's sessions in a forked child, which has no threads and would hang or crash on them."""
        for session in tuple(self.alive):
            session.abandon("this process was forked from the one that opened it")
        self.alive, self._shared, self._lock = weakref.WeakSet(), None, threading.Lock()


_sessions = _Sessions()
os.register_at_fork(after_in_child=_sessions.forked)


def shared_session() -> DuckSession:
    """Return the session of this process: the same for all tables that are open at a time."""
    return _sessions.shared()


def _translated(error: Exception, title: str) -> TableError | EngineError:
    """Return an error of this package: DuckDB's messages quote data, so only the line number is copied from them."""
    import duckdb

    text = str(error)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line is not None:
        reason = "is not a CSV record of the header's columns"
        if "unicode" in text:
            reason = "is not UTF-8; a domain says another encoding as csv: {encoding: cp1252}"
        return TableError(f"{title}: line {line[1]} {reason}", culprit=title)
    if isinstance(error, duckdb.NotImplementedException):
        reason = "has a column of a type that DuckDB does not read; make it float64, a decimal of 38 digits, or text"
        return TableError(f"{title} {reason}", culprit=title)
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineError(f"DuckDB ran out of memory or of {SPILL} of temporary space over {title}", culprit=title)
    if isinstance(error, duckdb.IOException | duckdb.InvalidInputException | duckdb.HTTPException):
        return TableError(f"{title} cannot be read, or is not what its name says", culprit=title)
    return EngineError(f"DuckDB failed over {title}: {type(error).__name__}", culprit=title)


_MOMENTS = {"TIMESTAMP WITH TIME ZONE": "EPOCH_US", "TIMESTAMPTZ_NS": "EPOCH_NS"}
"""The types of points in time, and the functions that return all their digits as an integer."""

_KINDS = {
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID", '"NULL"'), ColumnKind.TEXT),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", *_MOMENTS), ColumnKind.TIMESTAMP),
    "DATE": ColumnKind.DATE,
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ColumnKind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), ColumnKind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), ColumnKind.REAL),
    "BOOLEAN": ColumnKind.BOOLEAN,
}
_CODE_TYPES = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "BIGINT"}


class DuckDialect:
    """DuckDB's SQL."""

    whole_ids = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})

    def name(self, identifier: str) -> str:
        """Return a quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def day(self, column: Column) -> str | None:
        """Return the difference to a day; its calendar is always the Gregorian one, as in Python."""
        if column.type != "DATE":
            return None
        name = self.name(column.name)
        return (
            f"CASE WHEN {name} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {name} - DATE '0001-01-01' + 1 END"
        )

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Return SQL with one bit for each possible number."""
        return f"BIT_COUNT(BITSTRING_AGG({key}, {low}, {high}))"

    def string(self, value: str) -> str:
        """Return a text literal."""
        return quoted(value)

    def text(self, expression: str) -> str:
        """Return text, whose comparison is bytewise already."""
        return f"CAST({expression} AS VARCHAR)"

    def telling(self, column: Column) -> str:
        """Return the text of a value; numbers have all their digits."""
        return self.text(self.name(column.name))

    def exact(self, column: Column) -> str:
        """Return the bits of doubles, moments as numbers, which no session's clock affects, and others as text."""
        name = self.name(column.name)
        if column.type in ("DOUBLE", "FLOAT"):  # the same for both zeros; bits take a third of the time of digits
            return self.text(f"CAST(CAST({self.double(name)} + 0.0 AS BIT) AS UBIGINT)")
        return self.text(f"{_MOMENTS[column.type]}({name})" if column.moments else name)

    def timestamp(self, column: Column) -> str:
        """Return the text of a value, which for moments has the UTC offset of the session's clock."""
        return self.text(self.name(column.name))

    def computed_once(self, select: str) -> str:
        """Return true: the engine computes each column once."""
        return select

    def double(self, expression: str) -> str:
        """Return a double."""
        return f"CAST({expression} AS DOUBLE)"

    def decimal(self, name: str) -> str:
        """Return a double, by way of text: no decimal has more than 38 digits."""
        return self.double(self.text(name))

    def integer(self, expression: str) -> str:
        """Return a signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """Return the smallest unsigned integer, or a signed one of 64 bits."""
        return f"CAST({expression} AS {_CODE_TYPES[smallest_bits(cells)]})"

    def matches(self, expression: str, pattern: str) -> str:
        """Return an RE2 match of the whole text."""
        return f"regexp_full_match({expression}, {quoted(pattern)})"

    def is_nan(self, expression: str) -> str:
        """Return the NaN test."""
        return f"isnan({expression})"

    def digest(self, expression: str) -> str:
        """Return the MD5."""
        return f"md5({expression})"

    def sha256(self, expression: str) -> str:
        """Return the SHA-256."""
        return f"sha256({expression})"

    def filtered(self, relation: str, condition: str) -> str:
        """Return a condition with a part that differs for each row.

        Otherwise DuckDB moves the condition below the columns, and computes the columns in it twice.
        """
        return f"(SELECT *, {condition} AND RANDOM() >= 0 AS kept FROM {relation}) AS all_rows WHERE kept"  # noqa: S608

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Return the engine's own randomness."""
        del columns, salt
        return "RANDOM()"

    def words(self, digest: str) -> tuple[str, str]:
        """Return two integers of 60 bits from an MD5."""
        first, second = (f"CAST('0x' || substr({digest}, {start}, 15) AS BIGINT)" for start in (1, 17))
        return first, second

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """Return a cast to an ENUM, which is a hash look-up; booleans have several spellings and take CASE."""
        if list(codes.values()) == list(range(len(codes))):
            return f"enum_code(TRY_CAST({expression} AS ENUM({', '.join(map(quoted, codes))})))"
        cases = " ".join(f"WHEN {quoted(text)} THEN {code}" for text, code in codes.items())
        return f"CASE {expression} {cases} END"


DIALECT = DuckDialect()


def column(name: str, kind: str) -> Column:
    """Return a column from its type in DESCRIBE."""
    return Column(
        name,
        _KINDS.get(kind.partition("(")[0], ColumnKind.OTHER) if not kind.endswith("[]") else ColumnKind.OTHER,
        kind,
        moments=kind in _MOMENTS,
    )


def session_bytes() -> int:
    """Return the bytes that the tables of this process hold in DuckDB."""
    return _sessions.bytes()
