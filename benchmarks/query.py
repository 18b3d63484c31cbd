"""CPU time and error of count, group count, mean and median over a million rows, beside polars and diffprivlib.

    python benchmarks/query.py [--runs 7]

Sfumato asks through the doors of a vault on a loaded table, with nothing kept from an earlier question.  diffprivlib
runs in an environment of its own (``.bench/diffprivlib``, made on first use), on arrays that it holds already.
Epsilon is 1, bounds are 0 and 100 for all; medians of the runs, mean absolute errors over them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "query.md"
PEER = ROOT / ".bench" / "diffprivlib"
ROWS = 1_000_000
GROUPS = 8
QUESTIONS = ("count", "group count", "mean", "median")


def data():
    """The same numbers for everybody: a value in 0..100 and a group."""
    import numpy as np

    random = np.random.default_rng(0)
    return np.clip(random.normal(45, 15, ROWS), 0, 100), random.integers(0, GROUPS, ROWS)


def timed(call, truth, runs: int) -> tuple[float, float]:
    """Median CPU milliseconds and mean absolute error."""
    import numpy as np

    spent, errors = [], []
    for _ in range(runs):
        start = time.process_time()
        found = call()
        spent.append(1000 * (time.process_time() - start))
        errors.append(float(np.mean(np.abs(np.asarray(found) - truth))))
    return statistics.median(spent), statistics.mean(errors)


def truths(values, groups) -> dict:
    import numpy as np

    exact = (values >= 50).sum(), np.bincount(groups, minlength=GROUPS), values.mean(), np.median(values)
    return dict(zip(QUESTIONS, exact, strict=True))


def sfumato(runs: int) -> dict:
    import pyarrow as pa

    from sfumato.domain import Categorical, Domain, Real, Unknown
    from sfumato.engine.open import open_table
    from sfumato.privacy.loss import Epsilon
    from sfumato.query import ask
    from sfumato.query.sql import parse
    from sfumato.vault.fake import FakeVault

    values, groups = data()
    domain = Domain(
        (
            Real(name="x", edges=(0.0, 50.0, 100.0), unknown=Unknown.CLAMP),
            Categorical(name="g", values=tuple(range(GROUPS)), unknown=Unknown.DROP),
        )
    )
    encoded = open_table(pa.table({"x": values, "g": groups})).encode(domain)
    statements = (
        "SELECT COUNT(*) FROM t WHERE x >= 50",
        "SELECT g, COUNT(*) FROM t GROUP BY g",
        "SELECT AVG(x) FROM t",
        "SELECT MEDIAN(x) FROM t",
    )

    def answer(statement):
        vault = FakeVault(encoded, seed=time.time_ns() % 10**9)
        return [row[0].estimate for row in ask(vault, parse(statement, domain), loss=Epsilon(1)).values]

    exact = truths(values, groups)
    return {
        question: timed(lambda: answer(statement), exact[question], runs)  # noqa: B023
        for question, statement in zip(QUESTIONS, statements, strict=True)
    }


def polars(runs: int) -> dict:
    import polars as pl

    values, groups = data()
    frame, exact = pl.DataFrame({"x": values, "g": groups}), truths(values, groups)
    calls = (
        lambda: frame.filter(pl.col("x") >= 50).height,
        frame.group_by("g").len().sort("g")["len"].to_numpy,
        frame["x"].mean,
        frame["x"].median,
    )
    return {question: timed(call, exact[question], runs) for question, call in zip(QUESTIONS, calls, strict=True)}


PEER_PROGRAM = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from benchmarks.query import QUESTIONS, GROUPS, data, timed, truths
import diffprivlib.tools as tools
values, groups = data()
exact = truths(values, groups)
calls = (
    lambda: tools.count_nonzero(values >= 50, epsilon=1.0),
    lambda: tools.histogram(groups, bins=GROUPS, range=(-0.5, GROUPS - 0.5), epsilon=1.0)[0],
    lambda: tools.mean(values, epsilon=1.0, bounds=(0, 100)),
    lambda: tools.median(values, epsilon=1.0, bounds=(0, 100)),
)
print(json.dumps({q: timed(c, exact[q], int(sys.argv[2])) for q, c in zip(QUESTIONS, calls)}))
"""


def diffprivlib(runs: int) -> dict:
    if not (PEER / "bin" / "python").exists():
        venv.create(PEER, with_pip=True)
        subprocess.run([PEER / "bin" / "pip", "install", "--quiet", "diffprivlib==0.6.6"], check=True)
    done = subprocess.run(
        [PEER / "bin" / "python", "-c", PEER_PROGRAM, str(ROOT), str(runs)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    found = {"Sfumato": sfumato(runs), "polars, exact": polars(runs)}
    try:
        found["diffprivlib"] = diffprivlib(runs)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"diffprivlib did not run: {error}", file=sys.stderr)
    lines = [
        f"CPU milliseconds (and mean absolute error) of a question over {ROWS:,} rows at epsilon 1, bounds 0 and 100;",
        "medians over the runs of one program, nothing kept between questions. Made by `python benchmarks/query.py`.",
        "",
        "| contestant | " + " | ".join(QUESTIONS) + " |",
        "|---|" + "---:|" * len(QUESTIONS),
    ]
    for name, results in found.items():
        cells = [f"{results[question][0]:.1f} ({results[question][1]:.2g})" for question in QUESTIONS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ratios = [f"{found['Sfumato'][question][0] / found['polars, exact'][question][0]:.1f}" for question in QUESTIONS]
    lines.append("| times polars | " + " | ".join(ratios) + " |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    TABLE.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
