"""``batched`` on long and wide tables, by the installed command: the cost of rows and the cost of columns.

python benchmarks/wide.py [--cases 1000000x15x3,100000x100x2]

A case is a Parquet file, its domain, a new ledger, ``sfumato synthesize --way`` and a Parquet file of rows with its
codebook.  Columns have 2 to 12 cells and form a chain; each copies the previous one in seven rows of ten.  The second
line of a case repeats the same release.  It comes from the ledger, so it measures reading, drawing and writing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _installed import keep_compiled

TABLE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "wide.md"
CASES = (
    (100_000, 15, 3),
    (1_000_000, 15, 3),
    (10_000_000, 15, 3),
    (1_000_000, 30, 3),
    (100_000, 100, 3),
    (30_000, 200, 3),
    (30_000, 200, 2),
)
_BLOCK = 1 << 20


def chain(folder: Path, rows: int, columns: int) -> tuple[Path, Path]:
    """Write a table and its domain, and return both paths."""
    random = np.random.default_rng(columns)
    sizes = [2 + 5 * index % 11 for index in range(columns)]
    schema = pa.schema([(f"c{index}", pa.int64()) for index in range(columns)])
    table, domain = folder / "table.parquet", folder / "domain.yaml"
    with pq.ParquetWriter(table, schema, compression="zstd") as file:
        for start in range(0, rows, _BLOCK):
            held = min(_BLOCK, rows - start)
            codes = [random.integers(0, sizes[0], held)]
            for size in sizes[1:]:
                copied = random.random(held) < 0.7
                codes.append(np.where(copied, codes[-1] % size, random.integers(0, size, held)))
            file.write_table(pa.table(codes, schema=schema))
    cells = [f"{{type: categorical, values: {[*range(size)]}, unknown: drop}}" for size in sizes]
    lines = [f"  c{index}: {cell}" for index, cell in enumerate(cells)]
    domain.write_text("sfumato: 1\nunit: row\nattributes:\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return table, domain


def run(rows: int, columns: int, way: int) -> list[dict[str, float]]:
    """Return CPU seconds and memory of the release, and of the repeated release."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        table, domain = chain(Path(folder), rows, columns)
        out = Path(folder) / "rows.parquet"
        command = ["synthesize", str(table), "--domain", str(domain), "--out", str(out), "--method", "batched"]
        command += ["--way", str(way), "--epsilon", "1", "--delta", "1e-9", "--overwrite"]
        command += ["--ledger", str(Path(folder) / "ledger.db")]
        for more in (["--create", "--limit", "1,1e-9"], []):
            start = perf_counter()
            process = subprocess.Popen([sys.executable, "-m", "sfumato", *command, *more], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            assert status == 0
            assert abs(pq.read_metadata(out).num_rows / rows - 1) < 0.05
            cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
            found.append({"rows": rows, "columns": columns, "cpu": cpu, "wall": perf_counter() - start, "mb": memory})
    return found


INTRODUCTION = """\
`sfumato synthesize --method batched --epsilon 1 --delta 1e-9` from a Parquet file to a Parquet file of rows with its
codebook: CPU seconds of the whole command. The last line has `--way 2`, the default, which keeps all pairs of columns;
the others have `--way 3`. *Again* repeats the release with the model from the ledger: it reads the table, draws the
rows, states their errors and writes them. Figures of k-member are in [anonymize](anonymize.md#k-member) and
[wide lattices](wide_lattice.md). Made by `python benchmarks/wide.py`, one thread of linear algebra.

| rows | columns | `--way` | release, CPU s | MB | again: read, draw, write, CPU s | MB |
|---|---|---|---|---|---|---|
"""
BESIDE = """
All cases ran one after the other, on {cores} cores with a load of {low:.0f} to {high:.0f} by other work, which makes
CPU seconds up to twice as many as on a quiet machine.

*Again* is longer if rows are tuned, because tuning is part of drawing them. That depends on the release: rows are tuned
if it measured at least a pair outside its junction tree for every four columns. For releases with such pairs, tuning
1,000,000 rows took 1.2 CPU seconds with 15 columns and 2.4 with 30.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", help="ROWSxCOLUMNSxWAY, comma-separated; without, all of them, and the page is written"
    )
    keep_compiled()
    asked = parser.parse_args().cases
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    cases = CASES if asked is None else [tuple(map(int, case.split("x"))) for case in asked.split(",")]
    text, loads = INTRODUCTION, []
    for case in cases:
        first, again = run(*case)
        text += f"| {case[0]:,} | {case[1]} | {case[2]} | {first['cpu']:.1f} | {first['mb']:.0f} "
        text += f"| {again['cpu']:.1f} | {again['mb']:.0f} |\n"
        loads.append(os.getloadavg()[0])
        print(first, again, loads[-1], flush=True)
    text += BESIDE.format(low=min(loads), high=max(loads), cores=os.cpu_count())
    print(text)
    if asked is None:
        TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
