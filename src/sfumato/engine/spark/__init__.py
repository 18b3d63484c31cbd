"""Apache Spark: executors encode and tally, the driver sees tallies only."""

from sfumato.engine.spark.spark_session import fold

__all__ = ["fold"]
