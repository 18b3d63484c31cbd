"""A question of many groups, as users ask it: ``sfumato query --out`` and ``--json`` beside plain group-bys.

    python benchmarks/groups.py [--rows 1000000]

Two integer columns of a Parquet file, counts of every pair of their cells.  DuckDB and polars count the same pairs and
write them, exactly and without noise, cells that nobody is in left out: the floor, not a peer.  Each contestant is a
process of its own, charged its CPU seconds and peak memory, start included; one run, one after the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from start import as_installed

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "groups.md"
SIDES = (100, 316, 1000)  # cells of each column: 1e4, 1e5 and 1e6 groups
STATEMENT = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"
DUCKDB = """
import duckdb, sys
duckdb.sql(f"COPY (SELECT a, b, COUNT(*) AS n FROM '{sys.argv[1]}' GROUP BY a, b) TO '{sys.argv[2]}'")
"""
POLARS = """
import polars, sys
polars.read_parquet(sys.argv[1]).group_by("a", "b").len().write_parquet(sys.argv[2])
"""


def charged(command: list[str], compiled: Path) -> tuple[float, float]:
    """CPU seconds and peak MB of a process, with modules that an earlier one compiled."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=as_installed(compiled))
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def judge(side: int, rows: int) -> list[tuple[str, float, float]]:
    """Every contestant on one file."""
    with tempfile.TemporaryDirectory() as folder:
        table, domain, out = (str(Path(folder) / name) for name in ("table.parquet", "domain.yaml", "out.parquet"))
        random = np.random.default_rng(side)
        pq.write_table(pa.table({name: random.integers(0, side, rows) for name in "ab"}), table)
        column = f"{{type: integer, minimum: 0, maximum: {side - 1}, unknown: clamp}}"
        text = f"sfumato: 1\nunit: row\nattributes:\n  a: {column}\n  b: {column}\n"
        Path(domain).write_text(text, encoding="utf-8")
        ask = [sys.executable, "-m", "sfumato", "query", table, STATEMENT, "--domain", domain, "--epsilon", "1"]
        contestants = {
            "`sfumato query --out x.parquet`": [*ask, "--create", "--ledger", f"{folder}/one.db", "--out", out],
            "`sfumato query --json`": [*ask, "--create", "--ledger", f"{folder}/two.db", "--json"],
            "the same again, from the ledger": [*ask, "--ledger", f"{folder}/one.db", "--out", out, "--overwrite"],
            "DuckDB, no privacy": [sys.executable, "-c", DUCKDB, table, f"{folder}/duck.parquet"],
            "polars, no privacy": [sys.executable, "-c", POLARS, table, f"{folder}/polars.parquet"],
        }
        for command in contestants.values():
            charged(command, Path(folder))
        for ledger in Path(folder).glob("*.db*"):
            ledger.unlink()
        Path(out).unlink()
        found = [(name, *charged(command, Path(folder))) for name, command in contestants.items()]
        assert pq.read_metadata(out).num_rows == side**2
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    lines = [
        f"Counts of every pair of cells of two columns of a Parquet file of {rows:,} rows, at epsilon 1: whole",
        "processes, start included, CPU seconds and peak memory, one after the other in one run. DuckDB and polars",
        "count without noise and leave out pairs that nobody has: the floor, not a peer. Made by",
        "`python benchmarks/groups.py`.",
        "",
        "| groups | contestant | CPU s | peak, MB |",
        "|---|---|---|---|",
    ]
    for side in SIDES:
        for name, cpu, memory in judge(side, rows):
            lines.append(f"| {side**2:,} | {name} | {cpu:.2f} | {memory:.0f} |")
            print(lines[-1], flush=True)
    load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    PAGE.write_text("\n".join([*lines, "", f"Load of the machine during the run: {load}."]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
