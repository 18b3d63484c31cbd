"""Local reports on Spark compared with one server: executors make states and ``mapInArrow`` merges them.

eval "$(scripts/services java)"
python benchmarks/reports.py [--reports 10000000]

Both read the same Parquet files. CPU seconds are of every process that works: this one, the Java machine and its Python
workers. The two states must be equal byte by byte.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scale import cpu

from sfumato.engine.spark import fold
from sfumato.local import Frequency
from sfumato.local.protocol.device import simulate
from sfumato.local.protocol.reports import Folding, to_arrow
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.spec import dumps

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks" / "reports.md"
PARTS = 8
SPECS = {"PGR, 1024 values": (1024, Method.PGR), "OUE, 128 values": (128, Method.OUE)}
OPTIONS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
HEAD = """# Local reports on Spark

Spark's executors on two cores make states of local reports and merge them in `mapInArrow`. One server reads the
same Parquet files for comparison. CPU seconds cover all processes. The states are equal byte by byte. The
driver sees about the square root of the number of partitions. Made by `python benchmarks/reports.py`.

A server on one core is cheaper at this size, because Spark moves every report into a Python worker. Use Spark
for reports that are already in a cluster, or that are too many for one reader.

| spec | reports | bytes of a state | one server, CPU s (wall) | Spark, CPU s (wall) |
|---|---|---|---|---|
"""


def timed(call: Callable[[], bytes]) -> tuple[bytes, float, float]:
    start, wall = cpu([os.getpid()]), time.perf_counter()
    found = call()
    return found, cpu([os.getpid()]) - start, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reports", type=int, default=10_000_000)
    size = parser.parse_args().reports
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config(map=OPTIONS).getOrCreate()
    lines, results = [], []
    for name, (values, method) in SPECS.items():
        folding = Folding(dumps(spec := Frequency.design(values, epsilon=1, method=method)))
        with tempfile.TemporaryDirectory() as folder:
            for part in range(PARTS):
                true = np.random.default_rng(part).integers(0, values, size // PARTS)
                pq.write_table(to_arrow(simulate(spec, true, seed=part)), f"{folder}/{part}.parquet")
            files = sorted(Path(folder).glob("*.parquet"))
            frame = spark.read.parquet(folder).select("simulated_report")
            fold(frame.limit(1000), folding.absorb, folding.merge)  # workers are started once
            spread = timed(partial(fold, frame, folding.absorb, folding.merge))
            batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches())
            alone = timed(partial(folding.absorb, batches))
        assert spread[0] == alone[0]
        lines.append(
            f"| {name} | {size // PARTS * PARTS:,} | {len(alone[0]):,} | {alone[1]:.1f} ({alone[2]:.0f}) "
            f"| {spread[1]:.1f} ({spread[2]:.0f}) |"
        )
        results.append(
            {
                "spec": name,
                "reports": size // PARTS * PARTS,
                "state_bytes": len(alone[0]),
                "alone_cpu_s": alone[1],
                "alone_wall_s": alone[2],
                "spark_cpu_s": spread[1],
                "spark_wall_s": spread[2],
            }
        )
        print(lines[-1])
    spark.stop()
    REPORT.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    REPORT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
