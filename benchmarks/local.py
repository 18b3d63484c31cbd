"""Local randomizers: people per second on one core, compared with a copy of the reports' bytes and with two peers.

The benchmark writes the table in the documentation.  Peers run in their own environments under ``.bench``, created on
first use; a peer that cannot be installed is listed as missing.  Run it with ``python benchmarks/local.py``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.local import Frequency, Hiera, Mean, Range
from sfumato.local.protocol.device import randomize
from sfumato.local.protocol.server import summary
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.hiera import DIVISIONS, aggregate
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks" / "local.md"
PEERS = {  # with undeclared requirements
    "pure-ldp": ("pure-ldp", "scikit-learn", "statsmodels"),
    "multi-freq-ldpy": ("multi-freq-ldpy", "xxhash<4"),
}
PEOPLE = 4_000_000
ROUNDS = 3
LINES = (
    (Method.GRR, 16),
    (Method.SS, 16),
    (Method.OUE, 16),
    (Method.SS, 64),
    (Method.PGR, 64),
    (Method.GRR, 1024),
    (Method.PGR, 1024),
    (Method.HR, 1024),
    (Method.OLH, 1024),
    (Method.OUE, 1024),
)


def seconds(run: Callable[[], object]) -> float:
    """Return CPU seconds, the minimum of three calls after one that fills caches."""
    run()
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return max(min(times), 1e-9)


def ours() -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    lines = []
    for method, size in LINES:
        people = PEOPLE if size < 1024 or method is not Method.OUE else PEOPLE // 40
        spec = Frequency.design(size, epsilon=1, method=method)
        values = random.integers(0, size, people).astype(np.min_scalar_type(size - 1))
        lines.append(measured(f"{method.value.upper()}", size, spec, values))
    values = random.integers(0, 1024, PEOPLE).astype(np.uint16)
    lines.append(measured("ranges", 1024, Range.design(1024, epsilon=1), values))
    unit = random.uniform(-1, 1, PEOPLE)
    lines.append(measured("mean, optimal table", None, Mean.design(-1, 1, epsilon=1), unit))
    return lines


def measured(name: str, size: int | None, spec: Any, values: np.ndarray) -> dict[str, Any]:
    reports = randomize(spec, values, OsEntropy())
    copy = seconds(reports.data.copy)
    people = len(values)
    column = pa.array(values)
    return {
        "method": name,
        "size": size,
        "bytes": reports.data.nbytes / people,
        "encode": people / seconds(lambda: randomize(spec, values, OsEntropy())),
        "simulate": people / seconds(lambda: randomize(spec, values, SimulatedEntropy(1))),
        "arrow": people / seconds(lambda: randomize(spec, column, OsEntropy())),
        "aggregate": people / seconds(lambda: summary(spec, reports)),
        "copy": people / copy,
    }


def hiera() -> dict[str, float]:
    """Measure the printed style, one person at a time in Python, and Sfumato, end to end."""
    spec = Hiera.design(-1, 1, divisions=DIVISIONS, budgets=[Fraction(level) for level in (5, 4, 3, 2, 1)])
    values = np.random.default_rng(1).uniform(-1, 1, 1_000_000)
    generator = np.random.default_rng(2)

    def vectorised() -> float:
        tally = summary(spec, randomize(spec, values, OsEntropy())).tally
        return aggregate(tally, spec.budgets, mu=2, clamp=False, generator=generator)

    few = values[:20_000].tolist()
    printed = seconds(lambda: one_by_one(few, generator)) / len(few)
    return {"ours": 1 / (seconds(vectorised) / len(values)), "printed": 1 / printed}


def one_by_one(values: list[float], generator: np.random.Generator) -> float:
    """Run LHP and pooling as printed: a loop over people."""
    budgets = (5.0, 4.0, 3.0, 2.0, 1.0)
    sums, counts = [0.0] * 5, [0] * 5
    for value in values:
        level = next(i for i in range(5) if value <= DIVISIONS[i + 1])
        keep = math.exp(budgets[level]) / (math.exp(budgets[level]) + 4)
        if generator.random() >= keep:
            level = generator.choice([other for other in range(5) if other != level])
        rate = math.tanh(budgets[level] / 2)
        sums[level] += 1 / rate if generator.random() < (1 + value * rate) / 2 else -1 / rate
        counts[level] += 1
    return sum(sums) / sum(counts)


def peers() -> dict[str, list[dict[str, Any]] | str]:
    found: dict[str, list[dict[str, Any]] | str] = {}
    for name, packages in PEERS.items():
        folder = ROOT / ".bench" / name
        python = folder / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        installed = subprocess.run([python, "-m", "pip", "install", "-q", *packages], capture_output=True, check=False)
        if installed.returncode:
            found[name] = "could not be installed here"
            continue
        script = Path(__file__).with_name("_local_peers.py")
        done = subprocess.run([python, script, name], capture_output=True, text=True, check=False)
        found[name] = json.loads(done.stdout) if done.returncode == 0 else "failed to run here"
    return found


def table(lines: list[dict[str, Any]], graded: dict[str, float], others: dict[str, Any]) -> str:
    text = [
        "# Local randomizers: people per second",
        "",
        "Millions of people per second on one core: CPU time, best of three, all in one run (`make bench`), at",
        "epsilon 1. *simulated* uses seeded words instead of the system's. *from Arrow* starts from an Arrow",
        "array. *copies* is the time of one encoding, or of one aggregation with all checks, in memory copies of",
        "the same reports.",
        "",
        "| method | values | bytes | encode | simulated | Arrow | aggregate | encode, copies | aggregate, copies |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in lines:
        speeds = " | ".join(f"{each[name] / 1e6:.1f}" for name in ("encode", "simulate", "arrow", "aggregate"))
        copies = " | ".join(f"{each['copy'] / each[name]:,.0f}" for name in ("encode", "aggregate"))
        text.append(f"| {each['method']} | {each['size'] or '-'} | {each['bytes']:.0f} | {speeds} | {copies} |")
    text += [
        "",
        f"HierA end to end (mu = 2): {graded['ours'] / 1e6:.1f} million people a second.",
        f"One person at a time in Python, as printed: {graded['printed'] / 1e6:.3f} million.",
        f"That is {graded['ours'] / graded['printed']:,.0f} times faster.",
        "",
        "## Peers, in the same run, in environments of their own",
        "",
        "| package | method | values | encode | aggregate | encode, times faster here | aggregate, times faster here |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    own = {(each["method"], each["size"]): each for each in lines}
    for name, result in others.items():
        if isinstance(result, str):
            text.append(f"| {name} | {result} | | | | | |")
            continue
        for each in result:
            mine = own[each["method"], each["size"]]
            speeds = " | ".join(f"{each[part] / 1e6:.4f}" for part in ("encode", "aggregate"))
            ratios = " | ".join(f"{mine[part] / each[part]:,.0f}" for part in ("encode", "aggregate"))
            text.append(f"| {name} | {each['method']} | {each['size']} | {speeds} | {ratios} |")
    return "\n".join(text) + "\n"


def main() -> None:
    text = table(ours(), hiera(), peers())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
