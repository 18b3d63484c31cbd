"""A Spark session: its start, its SQL dialect, its errors, and folds of reports over it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pyarrow as pa

from sfumato.engine.port import Column, ColumnKind
from sfumato.errors import EngineError, InputError, TableError

# Only the error type of a worker's traceback is copied, because the rest may quote a row.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?:\w+\.)*(\w+)")


_MEANINGS = (
    (
        ("MALFORMED_RECORD", "MALFORMED_CSV", "TextParsingException"),
        TableError,
        "{} has a record that is no CSV record of the header's columns",
    ),
    (
        ("FileNotFoundException", "FILE_NOT_EXIST"),
        EngineError,
        "{} lost a file since it was opened; open it again",
    ),
    (
        ("No module named 'sfumato'", "PYTHON_VERSION_MISMATCH"),
        EngineError,
        "for {} Spark's executors need this version of sfumato and of Python; name that Python by PYSPARK_PYTHON",
    ),
    (("AccessControlException", "Permission denied"), EngineError, "no permission to read {}"),
    (
        ("OutOfMemoryError", "No space left on device", "Python worker exited unexpectedly"),
        EngineError,
        "Spark ran out of memory or of disk over {}, or a Python worker of its own died",
    ),
)


@contextmanager
def translating(spark: Any, title: str) -> Iterator[None]:  # noqa: ANN401 - a SparkSession, imported lazily
    """Raise Spark's errors as errors of this package, without their data values.

    Args:
        spark: the session that works.
        title: the name of its object in messages.

    Raises:
        TableError: the content of a file does not match its name.
        EngineError: Spark failed, was stopped, or is no longer there.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    lost = EngineError(f"the connection to Spark was lost; open {title} again", culprit=title)
    if stopped(spark):
        raise lost
    try:
        with quiet():
            yield
    except (Py4JNetworkError, ConnectionError):
        raise lost from None
    except (PySparkException, Py4JError) as error:
        raise _translated(error, title) from None


def stopped(spark: Any) -> bool:  # noqa: ANN401 - a SparkSession, imported lazily
    """Return whether the session has been stopped."""
    return spark.sparkContext._jsc is None  # noqa: SLF001 - there is no public question for it


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Spark 4's warning of pandas 3 while it moves Arrow data, which never becomes a pandas frame here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
        yield


def _translated(error: Exception, title: str) -> TableError | EngineError:
    """Return an error of this package: Spark's messages quote data, so only the kind of fault is copied from them."""
    text = str(error)
    for marks, kind, meaning in _MEANINGS:
        if any(mark in text for mark in marks):
            return kind(meaning.format(title), culprit=title)
    raised = _RAISED.search(text)
    what = raised[1] if raised else type(error).__name__
    return EngineError(f"Spark failed over {title}: {what}", culprit=title)


Absorb = Callable[[Iterator[pa.RecordBatch]], bytes]


Merge = Callable[[list[bytes]], bytes]


def fold(frame: Any, absorb: Absorb, merge: Merge) -> bytes:  # noqa: ANN401 - a pyspark DataFrame, imported lazily
    """Return the state of all rows, which turns reports of many devices into one estimate.

    The reports are no protected table: each was randomized on its device.  The states only have to be mergeable in any
    order, such as the sums of a frequency oracle.

    Args:
        frame: a Spark DataFrame.
        absorb: makes a state from the rows of one partition; has to be picklable and a function of the rows alone,
            because tasks are retried.
        merge: merges states in any order and grouping; has to be picklable.

    Returns:
        The merged state; the driver sees one state for each of about the square root of all partitions.

    Raises:
        InputError: no DataFrame of a classic session, or one without columns; functions that cannot be pickled.
        TableError: the content of a file of reports does not match its name.
        EngineError: Spark failed, a function raised an error on an executor, or the session is gone.
    """
    _refuse_other(frame)
    with translating(frame.sparkSession, "the frame of reports"):
        if not frame.columns:
            raise InputError("a frame without columns holds no reports; select the column of theirs")
        try:
            states = frame.mapInArrow(partial(_absorbed, absorb), "state binary")
            tasks = max(1, round(frame.rdd.getNumPartitions() ** 0.5))
            merged = states.repartition(tasks).mapInArrow(partial(_merged, merge), "state binary")
            rows = merged.collect()
        except PicklingError:
            raise InputError("functions that executors run have to be picklable, with all that they refer to") from None
    return merge([bytes(row.state) for row in rows])


def _refuse_other(frame: object) -> None:
    kind = type(frame)
    if kind.__name__ != "DataFrame" or not kind.__module__.startswith("pyspark.sql.classic."):
        raise InputError(
            f"reports are folded on a DataFrame of a classic Spark session, not on {kind.__module__}.{kind.__name__}",
            culprit=frame,
        )


def _absorbed(absorb: Absorb, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _sent(absorb(batches))


def _merged(merge: Merge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    states = [state for batch in batches for state in batch.column(0).to_pylist()]
    if states:
        yield _sent(merge(states))


def _sent(state: bytes) -> pa.RecordBatch:
    return pa.record_batch({"state": pa.array([state], pa.binary())})


def session() -> Any:  # noqa: ANN401 - a SparkSession, imported lazily
    """Return the active session of this process, or one made with Spark's own configuration.

    Raises:
        EngineError: it does not start, or there is no Java.
    """
    with quiet():
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    try:
        active = SparkSession.getActiveSession()
    except ConnectionError:
        raise EngineError("the Spark of this process is gone; start the process anew") from None
    if active is not None:
        return active
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java").is_file() if home else shutil.which("java") is not None
    if not java:
        where = "JAVA_HOME names no Java" if home else "there is none"
        raise EngineError(
            f"Spark needs Java 17 or newer and {where}; install one (on Debian: apt install default-jre-headless), "
            "or set JAVA_HOME",
            culprit=home,
        )
    options: dict[str, Any] = {"spark.ui.showConsoleProgress": "false"}
    if not os.environ.get("SFUMATO_TRACE"):
        options["spark.log.level"] = "OFF"  # failures are raised here; Spark's messages quote protected rows
    try:
        with quiet():
            spark = SparkSession.builder.appName("sfumato").config(map=options).getOrCreate()
    except (PySparkException, RuntimeError, OSError):
        raise EngineError(
            "Spark does not start; does JAVA_HOME name a Java of version 17 or newer?", culprit=home
        ) from None
    if str(spark.sparkContext.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable  # not the first python3 on the path, which lacks this package
    return spark


_KINDS = {
    **dict.fromkeys(("string", "void"), ColumnKind.TEXT),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), ColumnKind.TIMESTAMP),
    "date": ColumnKind.DATE,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), ColumnKind.INTEGER),
    **dict.fromkeys(("float", "double", "decimal"), ColumnKind.REAL),
    "boolean": ColumnKind.BOOLEAN,
}


class SparkDialect:
    """Spark SQL, with or without its ANSI mode."""

    whole_ids: frozenset[str] = frozenset()

    def day(self, column: Column) -> str | None:
        """Return None: dates are read as text."""

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Use the general count."""

    def name(self, identifier: str) -> str:
        """Return a quoted identifier."""
        return "`" + identifier.replace("`", "``") + "`"

    def string(self, value: str) -> str:
        """Return a text literal."""
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def text(self, expression: str) -> str:
        """Return text; its comparison is bytewise, because columns with a collation are refused."""
        return f"CAST({expression} AS STRING)"

    def telling(self, column: Column) -> str:
        """Return the text of a value; numbers have all their digits."""
        return self.text(self.name(column.name))

    def exact(self, column: Column) -> str:
        """Return the text of a value; moments become numbers, which do not depend on the session's clock."""
        name = self.name(column.name)
        return self.text(f"UNIX_MICROS({name})" if column.moments else name)

    def timestamp(self, column: Column) -> str:
        """Return the text of a value; for moments the time of the session's clock with its UTC offset."""
        name = self.name(column.name)
        return f"DATE_FORMAT({name}, 'yyyy-MM-dd HH:mm:ssXXXXX')" if column.moments else self.text(name)

    def computed_once(self, select: str) -> str:
        """Return true: the engine computes each expensive column once."""
        return select

    def double(self, expression: str) -> str:
        """Return a double."""
        return f"TRY_CAST({expression} AS DOUBLE)"

    def decimal(self, name: str) -> str:
        """Return a double, by way of text: no decimal has more than 38 digits."""
        return self.double(self.text(name))

    def integer(self, expression: str) -> str:
        """Return a signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """Return the smallest integer: there are no unsigned types."""
        types = {"TINYINT": 7, "SMALLINT": 15, "INT": 31}
        kind = next((name for name, bits in types.items() if cells <= 1 << bits), "BIGINT")
        return f"CAST({expression} AS {kind})"

    def matches(self, expression: str, pattern: str) -> str:
        r"""Return a match of the whole text, with ``\z``: ``$`` also matches before a last line end."""
        anchored = self.string("^(" + pattern + r")\z")
        return f"({expression} RLIKE {anchored})"

    def is_nan(self, expression: str) -> str:
        """Return the NaN test."""
        return f"ISNAN({expression})"

    def digest(self, expression: str) -> str:
        """Return the MD5."""
        return f"MD5({expression})"

    def sha256(self, expression: str) -> str:
        """Return the SHA-256."""
        return f"SHA2({expression}, 256)"

    def words(self, digest: str) -> tuple[str, str]:
        """Return two integers of 60 bits from an MD5."""
        first, second = (f"CAST(CONV(SUBSTR({digest}, {start}, 15), 16, 10) AS BIGINT)" for start in (1, 17))
        return first, second

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """Return a CASE."""
        branches = " ".join(f"WHEN {self.string(text)} THEN {code}" for text, code in codes.items())
        return f"CASE {expression} {branches} END"

    def filtered(self, relation: str, condition: str) -> str:
        """Return the FROM clause for a condition, with a part that differs for each row.

        Without it, Spark moves the condition below the columns, and writes each of them out in full.
        """
        predicate = f"{condition} AND MONOTONICALLY_INCREASING_ID() >= 0"
        return f"(SELECT *, {predicate} AS kept FROM {relation}) AS all_rows WHERE kept"  # noqa: S608

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Return a salted hash of the row, because a retried task has to repeat its draws."""
        texts = ", ".join(f"COALESCE({self.text(column)}, '')" for column in columns)
        return self.digest(f"CONCAT_WS('|', '{salt}', {texts})")


DIALECT = SparkDialect()


def column(name: str, kind: str) -> Column:
    """Return a column from Spark's type name; text with a collation counts as another type."""
    return Column(name, _KINDS.get(kind.partition("(")[0], ColumnKind.OTHER), kind, moments=kind == "timestamp")
