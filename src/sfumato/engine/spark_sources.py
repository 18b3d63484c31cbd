"""What Spark reads from, and the session that reads: Parquet, CSV, tables of its catalogue.

CSV follows the rules of :mod:`sfumato.engine.sources`, so one file means the same to both engines; it is read
by one task a file, as a line end may stand within quotes.
"""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from sfumato.engine.address import shown
from sfumato.engine.sources import CSV_SUFFIXES, PARQUET_SUFFIXES, delimiter, refuse_header
from sfumato.engine.spark import SparkTable
from sfumato.engine.spark_failures import quiet, translating
from sfumato.errors import EngineError, InputError, TableError

_CSV = {
    "header": True,
    "quote": '"',
    "escape": '"',
    "multiLine": True,
    "encoding": "UTF-8",
    "mode": "FAILFAST",  # a record with more or fewer fields than the header is refused, not mended
    "columnPruning": False,  # or a field too many would go unseen
    "enforceSchema": False,  # every file of a pattern has the same header
    "unescapedQuoteHandling": "RAISE_ERROR",
    "nullValue": "\0missing\0",  # what an empty field becomes at first: were it "", so would a quoted empty text
}


def spark_table(url: str) -> SparkTable:
    """The table of ``spark:PATH`` (Parquet, .csv, .tsv, also .gz) or ``spark:NAME`` (of the session's catalogue).

    The active session is used, or one made with Spark's own configuration.

    Raises:
        InputError: Spark is not installed.
        TableError: there is no such table, or it is not what its name says.
        EngineError: Spark does not start.
    """
    place = url.partition(":")[2]
    title = f"the Spark table {shown(place)}"
    if not place:
        raise InputError("name what Spark is to read: spark:PATH of Parquet or CSV, or spark:TABLE", culprit=url)
    spark = _session()
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, IllegalArgumentException

    with translating(spark, title):
        try:
            frame = _frame(spark, place, title)
        except (AnalysisException, IllegalArgumentException, Py4JJavaError):
            raise TableError(
                f"Spark finds no table {shown(place)}, or it is not what its name says; a path has a '/', or ends in "
                f"one of {', '.join((*PARQUET_SUFFIXES, *CSV_SUFFIXES))}",
                culprit=shown(place),
            ) from None
    return SparkTable(frame, title)


def _session() -> Any:  # noqa: ANN401 - a SparkSession, imported lazily
    try:
        with quiet():
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise InputError("pyspark is not installed; pip install 'sfumato[spark]'", culprit="pyspark") from None
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
        options["spark.log.level"] = "OFF"  # failures are raised here; Spark's own words quote the protected rows
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


def _frame(spark: Any, place: str, title: str) -> Any:  # noqa: ANN401
    name = place.lower()
    if name.endswith(CSV_SUFFIXES):
        return _csv(spark, place, title)
    is_path = "/" in place or name.endswith(PARQUET_SUFFIXES)
    return spark.read.parquet(place) if is_path else spark.table(place)


def _csv(spark: Any, place: str, title: str) -> Any:  # noqa: ANN401
    """Every column as text, by the names of the header."""
    from pyspark.sql.types import StringType, StructField, StructType

    separator = delimiter(place)
    first = spark.read.text(place).head(1)
    try:
        names = next(
            csv.reader([row.value.removeprefix("\ufeff") for row in first], delimiter=separator, strict=True), []
        )
    except csv.Error:
        raise TableError(f"{title} has no header of one line", culprit=title) from None
    refuse_header(names, title)
    schema = StructType([StructField(name, StringType()) for name in names])
    return spark.read.options(sep=separator, **_CSV).schema(schema).csv(place)
