"""A question of many groups, as users ask it: ``sfumato query --out`` and ``--json`` compared with plain group-bys.

python benchmarks/groups.py [--rows 1000000]

The table has two integer columns of a Parquet file; the question counts every pair of their cells.  DuckDB and polars
count the same pairs exactly, without noise and without empty cells, and write them: a floor, not a peer.  Each
contestant is a separate process, charged its CPU seconds and peak memory, including its start.  They run in turns, and
the minimum of a few times counts.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import fill

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _installed import keep_compiled

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "groups.md"
TURNS = 4
NEW = ("--create", "--limit", "1")  # a ledger with its budget
RUNS = 3
WIDTH = 120
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


def charged(command: list[str], **more: str) -> tuple[float, float]:
    """Return CPU seconds and peak MB of a process; ``more`` is added to its environment."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=os.environ | more)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def question(folder: str, side: int, rows: int) -> list[str]:
    """Write a table with its domain, and return the command that asks for its groups."""
    table, domain = (str(Path(folder) / name) for name in ("table.parquet", "domain.yaml"))
    random = np.random.default_rng(side)
    pq.write_table(pa.table({name: random.integers(0, side, rows) for name in "ab"}), table)
    column = f"{{type: integer, minimum: 0, maximum: {side - 1}, unknown: clamp}}"
    text = f"sfumato: 1\nunit: row\nattributes:\n  a: {column}\n  b: {column}\n"
    Path(domain).write_text(text, encoding="utf-8")
    return [sys.executable, "-m", "sfumato", "query", table, STATEMENT, "--domain", domain, "--epsilon", "1"]


def judge(side: int, rows: int) -> list[tuple[str, float, float]]:
    """Run every contestant on one file."""
    with tempfile.TemporaryDirectory() as folder:
        ask, out = question(folder, side, rows), str(Path(folder) / "out.parquet")
        table = ask[4]
        contestants = {
            "`sfumato query --out x.parquet`": [*ask, *NEW, "--ledger", f"{folder}/one.db", "--out", out],
            "`sfumato query --json`": [*ask, *NEW, "--ledger", f"{folder}/two.db", "--json"],
            "the same again, from the ledger": [*ask, "--ledger", f"{folder}/one.db", "--out", out, "--overwrite"],
            "DuckDB, no privacy": [sys.executable, "-c", DUCKDB, table, f"{folder}/duck.parquet"],
            "polars, no privacy": [sys.executable, "-c", POLARS, table, f"{folder}/polars.parquet"],
        }
        for command in contestants.values():
            charged(command)  # compiles the imports
        found = dict.fromkeys(contestants, (math.inf, math.inf))
        for _ in range(RUNS):
            for path in [*Path(folder).glob("*.db*"), Path(out)]:
                path.unlink(missing_ok=True)
            for name, command in contestants.items():
                found[name] = min(found[name], charged(command))
        assert pq.read_metadata(out).num_rows == side**2
        return [(name, *spent) for name, spent in found.items()]


def in_turns(before: Path, rows: int) -> str:
    """Return the same question by another version of the library and by this one, alternating four times."""
    found: dict[str, list[tuple[float, float]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as folder:
        ask = question(folder, SIDES[-1], rows)
        sources = {"before": before, "now": Path(__file__).resolve().parent.parent}
        for turn in range(TURNS + 1):
            for name, root in sources.items():
                end = [*NEW, "--ledger", f"{folder}/{name}{turn}.db", "--out", f"{folder}/{name}{turn}.parquet"]
                found[name].append(charged([*ask, *end], PYTHONPATH=str(root / "src")))
        sizes = {name: Path(folder, f"{name}0.db").stat().st_size / 1e6 for name in sources}
    said = []
    for name, each in found.items():
        times, peaks = zip(*each[1:], strict=True)  # the first run compiles the imports
        words = f"{min(times):.2f} to {max(times):.2f} CPU s, {min(peaks):.0f} to {max(peaks):.0f} MB"
        said.append(f"{words} and a ledger of {sizes[name]:.2f} MB {name}")
    turns = f"{SIDES[-1] ** 2:,} groups by `--out`, two versions in turns, {TURNS} times each"
    return fill(f"{turns}: {'; '.join(said)}.", width=WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--before", type=Path, help="checkout of an earlier version, timed in turns with this")
    keep_compiled()
    asked = parser.parse_args()
    rows = asked.rows
    lines = [
        f"Counts of every pair of cells of two columns of a Parquet file of {rows:,} rows, at epsilon 1. CPU",
        f"seconds and peak memory are of whole processes with compiled modules, in turns, the least of {RUNS}",
        "runs. DuckDB and polars count without noise and leave out empty pairs. They are a floor, and no peers.",
        "Made by `python benchmarks/groups.py`.",
        "",
        "| groups | contestant | CPU s | peak, MB |",
        "|---|---|---|---|",
    ]
    asks: list[tuple[float, float]] = []
    for side in SIDES:
        found = judge(side, rows)
        asks.append(found[0][1:])
        for name, cpu, memory in found:
            lines.append(f"| {side**2:,} | {name} | {cpu:.2f} | {memory:.0f} |")
            print(lines[-1], flush=True)
    few, many = asks[0], asks[-1]
    cost = f"{many[0] - few[0]:.2f} CPU s and {many[1] - few[1]:.0f} MB"
    beyond = f"By `--out`, {SIDES[-1] ** 2:,} groups cost {cost} beyond {SIDES[0] ** 2:,}."
    wanted = "The goals for the whole command are 0.5 s and 150 MB; start, table and ledger alone take more."
    lines += [
        "",
        f"Load of the machine during the run: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        "",
        fill(f"{beyond} {wanted}", width=WIDTH),
    ]
    if asked.before:
        lines += ["", in_turns(asked.before, rows)]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
