"""A small Spark cluster for all tests: two executors, each in its own process."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

from tests.services import require

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def session():
    """A session on ``local-cluster[2,1,2048]``; executors keep their logs in a temporary folder."""
    require("JAVA_HOME")
    import pyspark
    from pyspark.sql import SparkSession

    home = Path(tempfile.mkdtemp(prefix="sfumato-spark-"))
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName("sfumato-tests")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.liveUpdate.period": "0",  # the status of tasks is the one of this moment, not of 100 ms ago
        "spark.executor.memory": "1g",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        # The compiled code runs for seconds only, so a better compiler would cost more than it gains.
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.shuffle.io.maxRetries": "1",  # a block of a killed executor is soon given up
        "spark.shuffle.io.retryWait": "1s",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    for option, value in options.items():
        builder = builder.config(option, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library that is about to be started, none of ours
        return builder.getOrCreate()


def stop() -> None:
    """Stop the cluster, if a test has started it."""
    if session.cache_info().currsize:
        session().stop()
