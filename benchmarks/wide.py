"""AIM on long and wide tables: what the rows cost (tallies) and what the columns cost (inference).

    python benchmarks/wide.py

Columns of 2 to 12 cells in a chain, each copying the one before in seven rows of ten.  The time of counting
is taken behind the mechanisms; everything else must not grow with the rows.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TABLE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "wide.md"
CASES = ((100_000, 15), (1_000_000, 15), (10_000_000, 15), (1_000_000, 30), (10_000_000, 30), (100_000, 100))


def chain(rows: int, columns: int) -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(columns)
    sizes = [2 + 5 * index % 11 for index in range(columns)]
    codes = np.empty((rows, columns), dtype=np.uint8)
    codes[:, 0] = random.integers(0, sizes[0], rows)
    for index in range(1, columns):
        copied = codes[:, index - 1] % sizes[index]
        codes[:, index] = np.where(random.random(rows) < 0.7, copied, random.integers(0, sizes[index], rows))
    return codes, sizes


def run(rows: int, columns: int) -> dict[str, float]:
    from sfumato.domain import Categorical, Domain, Unknown
    from sfumato.engine.arrays import ArrayTable
    from sfumato.privacy.loss import EpsilonDelta
    from sfumato.synthesize import NoisyTotal, aim, all_marginals
    from sfumato.vault.simulated import SimulatedVault

    class Timed(ArrayTable):
        """Rows that note how long they were counted."""

        seconds = 0.0

        def marginals(self, cliques, where=None):
            start = time.process_time()
            try:
                return super().marginals(cliques, where)
            finally:
                Timed.seconds += time.process_time() - start

    codes, sizes = chain(rows, columns)
    domain = Domain(
        tuple(
            Categorical(name=f"c{index}", values=tuple(range(size)), unknown=Unknown.DROP)
            for index, size in enumerate(sizes)
        )
    )
    table = Timed(domain, codes)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    release = aim(
        SimulatedVault(table, seed=1), loss=EpsilonDelta(1, "1e-9"), total=NoisyTotal(), workload=all_marginals(3)
    )
    spent = time.process_time() - start
    graph = release.model.model
    return {
        "rows": rows,
        "columns": columns,
        "counting_s": Timed.seconds,
        "rest_s": spent - Timed.seconds,
        "tree_cells": graph.tree.cells(graph.sizes),
        "table_mb": held,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(run(*map(int, sys.argv[1:]))))
        return
    lines = [
        "AIM with the settings of the census benchmark at epsilon 1, delta 1e-9, all 3-way marginals, rows as codes in",
        "memory; cap of 400 000 cells. Made by `python benchmarks/wide.py`.",
        "",
        "| rows | columns | counting, CPU s | the rest, CPU s | cells of the tree | table, MB | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    rest: dict[tuple[int, int], float] = {}
    for case in CASES:
        command = [sys.executable, __file__, *map(str, case)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(found, flush=True)
        rest[case] = found["rest_s"]
        seconds, memory = (f"{found['counting_s']:.1f} | {found['rest_s']:.1f}", f"{found['table_mb']:.0f}")
        tree, peak = f"{found['tree_cells']:,}", f"{found['peak_mb']:.0f}"
        lines.append(f"| {found['rows']:,} | {found['columns']} | {seconds} | {tree} | {memory} | {peak} |")
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    growth = [f"{rest[10_000_000, columns] / rest[1_000_000, columns]:.2f} ({columns} columns)" for columns in (15, 30)]
    lines += ["", f"The rest for 10 000 000 rows, relative to 1 000 000: {', '.join(growth)}."]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
