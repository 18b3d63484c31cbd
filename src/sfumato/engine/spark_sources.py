"""What Spark reads from, and the session that reads: Parquet, CSV, tables of its catalogue.

CSV follows the rules of :mod:`sfumato.engine.sources`, so one file means the same to both engines; it is read
by one task a file, as a line end may stand within quotes.
"""

from __future__ import annotations

import codecs
import csv
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from sfumato.domain import CsvFormat
from sfumato.engine.address import shown
from sfumato.engine.csv_file import BLANKS, CSV_SUFFIXES, delimiter, refuse_header
from sfumato.engine.sources import PARQUET_SUFFIXES
from sfumato.engine.spark import SparkTable
from sfumato.engine.spark_dialect import DIALECT
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

_ENCODINGS = {"utf-8": "UTF-8", "iso8859-1": "ISO-8859-1", "utf-16": "UTF-16"}


def spark_table(url: str, form: CsvFormat | None = None) -> SparkTable:
    """The table of ``spark:PATH`` (Parquet, .csv, .tsv, also .gz) or ``spark:NAME`` (of the session's catalogue).

    The active session is used, or one made with Spark's own configuration.

    Args:
        url: as said.
        form: how CSV is written, as its domain says; without, as usual for its name.

    Raises:
        InputError: Spark is not installed.
        TableError: there is no such table, or it is not what its name says.
        EngineError: Spark does not start.
    """
    place = url.partition(":")[2]
    title = f"the Spark table {shown(place)}"
    if not place:
        raise InputError("name what Spark is to read: spark:PATH of Parquet or CSV, or spark:TABLE", culprit=url)
    form = form or CsvFormat()
    spark = _session()
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, IllegalArgumentException

    with translating(spark, title):
        try:
            frame = _frame(spark, place, title, form)
        except (AnalysisException, IllegalArgumentException, Py4JJavaError):
            raise TableError(
                f"Spark finds no table {shown(place)}, or it is not what its name says; a path has a '/', or ends in "
                f"one of {', '.join((*PARQUET_SUFFIXES, *CSV_SUFFIXES))}",
                culprit=shown(place),
            ) from None
    return SparkTable(frame, title, csv=form if place.lower().endswith(CSV_SUFFIXES) else None)


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


def _frame(spark: Any, place: str, title: str, form: CsvFormat) -> Any:  # noqa: ANN401
    name = place.lower()
    if name.endswith(CSV_SUFFIXES):
        return _csv(spark, place, title, form)
    is_path = "/" in place or name.endswith(PARQUET_SUFFIXES)
    return spark.read.parquet(place) if is_path else spark.table(place)


def _csv(spark: Any, place: str, title: str, form: CsvFormat) -> Any:  # noqa: ANN401
    """Every column as text, by the names of the header."""
    from pyspark.sql.types import StringType, StructField, StructType

    encoding = _ENCODINGS.get(codecs.lookup(form.encoding).name)
    if encoding is None:
        raise InputError(f"Spark reads CSV in {', '.join(_ENCODINGS)}, not in {form.encoding}", culprit=form.encoding)
    separator = delimiter(place, form)
    if encoding == "UTF-8":
        lines = [row.value.removeprefix("\ufeff") for row in spark.read.text(place).head(1)]
    else:
        first = spark.read.options(sep="\0", quote="", encoding=encoding).csv(place).head(1)
        lines = [row[0] for row in first]
    try:
        names = next(csv.reader(lines, delimiter=separator, strict=True), [])
    except csv.Error:
        raise TableError(f"{title} has no header of one line", culprit=title) from None
    schema = StructType([StructField(name, StringType()) for name in names])
    names = [name.strip(BLANKS) if form.trim else name for name in names]
    refuse_header(names, title)
    found = spark.read.options(sep=separator, **_CSV | {"encoding": encoding}).schema(schema).csv(place)
    if not form.trim:
        return found
    quoted = [DIALECT.name(name) for name in names]
    return found.toDF(*names).selectExpr(
        *(f"NULLIF(TRIM(BOTH {DIALECT.string(BLANKS)} FROM {name}), '') AS {name}" for name in quoted)
    )
