"""CPU time and memory of a draft and a check of large tables, through the installed command.

python benchmarks/describe.py [--long 10000000] [--wide 100000]

A long table has 50 columns, a wide one 500: counts, measurements, texts, amounts and codes in turn, as Parquet.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PART = 500_000  # rows generated at once


def make(path: Path, rows: int, columns: int) -> None:
    random = np.random.default_rng(1)
    kinds = (
        lambda n: random.integers(0, 100, n),
        lambda n: np.round(random.normal(50, 20, n), 3),
        lambda n: random.choice([f"v{place}" for place in range(12)], n),
        lambda n: random.lognormal(8, 1, n).astype(int),
        lambda n: pa.array(random.integers(0, 3, n), mask=random.random(n) < 0.05),
    )
    writer = None
    for first in range(0, rows, PART):
        size = min(PART, rows - first)
        data = {"id": np.arange(size) + first + 10_000_000}
        part = pa.table(data | {f"c{place}": kinds[place % 5](size) for place in range(columns - 1)})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def measure(*command: str) -> tuple[float, float]:
    """Return CPU seconds and gigabytes of a command, in a separate process for the accounting of its children."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    ended = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, ended.stdout.split())
    return seconds, kilobytes / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=int, default=10_000_000)
    parser.add_argument("--wide", type=int, default=100_000)
    options = parser.parse_args()
    command = [sys.executable, "-m", "sfumato", "domain"]
    with tempfile.TemporaryDirectory() as folder:
        for rows, columns in ((options.long, 50), (options.wide, 500)):
            table, domain = Path(folder) / "table.parquet", Path(folder) / "table.yaml"
            make(table, rows, columns)
            draft = measure(*command, "draft", str(table), "--out", str(domain), "--overwrite")
            check = measure(*command, "check", str(domain), "--table", str(table))
            for what, (seconds, memory) in (("draft", draft), ("check", check)):
                print(f"{rows:>12,} rows x {columns} columns  {what}  {seconds:6.1f} CPU s  {memory:.2f} GB")


if __name__ == "__main__":
    main()
