"""The adapter of Apache Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.domain import CsvFormat
from sfumato.domain.table_schema import SchemaTable
from sfumato.engine.adapter import EngineAdapter, ServedPlaces
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import CSV_SUFFIXES, table_files
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.engine.adapter import JoinEngine

_CATALOGUE = "spark"
_PATTERN_SIGNS = frozenset(":*?[]{}\\")  # signs that make Spark find further files


class SparkAdapter(EngineAdapter):
    """Spark: ``spark:PATH`` of Parquet or CSV, ``spark:NAME`` of its catalog, and its frames."""

    schemes = ("spark",)
    libraries = ("pyspark",)
    extras = {"spark": ("pyspark",)}  # noqa: RUF012 - declared as a ClassVar by the contract
    folder = "spark:FOLDER"
    joinable_sources = "on Spark"

    def open(self, source: object, csv: CsvFormat | None, *, empty: bool) -> ProtectedTable:
        """See :class:`EngineAdapter`."""
        from sfumato.engine.spark.spark_table import SparkTable, spark_table

        if isinstance(source, str):
            return spark_table(source, csv, empty=empty)
        if type(source).__name__ != "DataFrame":
            raise InputError(f"cannot read a table from a {type(source).__name__} of Spark; give a DataFrame")
        if type(source).__module__.startswith("pyspark.sql.connect"):
            raise InputError("a Spark Connect frame has no executors to tally on; give one of a classic session")
        return SparkTable(source, "the Spark frame", empty=empty)

    def place(self, table: SchemaTable, source: str) -> str:
        """Return a CSV file if this machine has one for the table, else a Parquet file."""
        folder = self.path(source)
        files = table_files(Path(folder), table.name) if Path(folder).is_dir() else []
        texts = [file for file in files if file.name.lower().endswith(CSV_SUFFIXES)]
        return f"spark:{texts[0]}" if texts else f"spark:{folder.rstrip('/')}/{table.name}.parquet"

    def join(self, tables: Mapping[str, ProtectedTable]) -> JoinEngine | None:
        """See :class:`EngineAdapter`."""
        from sfumato.engine.spark.spark_join import SparkJoin
        from sfumato.engine.spark.spark_table import SparkTable

        own = {name: table for name, table in tables.items() if isinstance(table, SparkTable)}
        return SparkJoin(own) if len(own) == len(tables) else None

    def path(self, source: str) -> str:
        """Return the path that Spark reads."""
        return source.partition(":")[2]

    def allowed(self, source: str, places: ServedPlaces) -> bool:
        """Return whether Spark may read a path in named folders, or a table of its catalog.

        The operator names the catalog by the word ``spark``.
        """
        path = self.path(source)
        if _PATTERN_SIGNS & set(path):
            return False
        return places.hold(path) if "/" in path or "." in path else places.names(_CATALOGUE)

    def open_copy(self, place: Path, title: str, csv: CsvFormat, *, empty: bool) -> ProtectedTable | None:
        """Open a directory of Parquet files, which only Spark writes."""
        if not place.is_dir():
            return None
        from sfumato.engine.spark.spark_session import session
        from sfumato.engine.spark.spark_table import SparkTable

        return SparkTable(session().read.parquet(place.absolute().as_uri()), title, csv=csv, empty=empty)
