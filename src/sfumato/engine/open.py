"""One way in: a path, a URL or a frame becomes a table."""

from __future__ import annotations

from pathlib import Path

from sfumato.domain import CsvFormat
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import shown
from sfumato.errors import InputError

_DATABASES = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mariadb"}


def open_table(source: object, *, csv: CsvFormat | None = None) -> ProtectedTable:
    """Open a protected table where it lies; for its owner, as messages tell whether it has rows.

    Args:
        source: the path of a CSV (.csv, .tsv, also .gz) or Parquet file, a directory of Parquet files, a
            pattern of them; a pandas, polars or Arrow frame, which is never changed; a URL such as
            ``postgresql://user:password@host/database?table=people`` (also postgres, mysql, mariadb); ``spark:PATH`` of
            Parquet or CSV, ``spark:NAME`` of a table in Spark's catalogue, a Spark DataFrame; or a table that is open.
        csv: how a CSV file is written, as its domain says; without, as usual for its name.

    Raises:
        InputError: the source is none of these.
        EngineError: the database does not answer, or gives no permission.
        TableError: it cannot be read, has no rows, or has two columns of one name.
    """
    from sfumato.engine.duckdb.duck_sources import file_source, frame_source
    from sfumato.engine.duckdb.duck_table import DuckTable

    if isinstance(source, ProtectedTable):
        return source
    if type(source).__module__.startswith("pyspark.") and type(source).__name__ == "DataFrame":
        from sfumato.engine.spark.spark_table import SparkTable

        if type(source).__module__.startswith("pyspark.sql.connect"):
            raise InputError("a Spark Connect frame has no executors to tally on; give one of a classic session")
        return SparkTable(source, "the Spark frame")
    if isinstance(source, str) and not source.strip():
        raise InputError("name a table: a file, a URL or a frame", culprit=source)
    if not isinstance(source, str | Path):
        return DuckTable(frame_source(source))
    if str(source).startswith("spark:"):
        from sfumato.engine.spark.spark_table import spark_table

        return spark_table(str(source), csv)
    scheme, separator, place = str(source).partition("://")
    if scheme in _DATABASES and separator:
        from sfumato.engine.sql.sql_table import SqlTable

        return SqlTable(f"{_DATABASES[scheme]}://{place}")
    if separator:
        raise InputError(
            f"cannot open a table by a URL of scheme {scheme!r}; {', '.join(_DATABASES)} are known, and spark:PATH",
            culprit=shown(source),
        )
    return DuckTable(file_source(source, csv))
