"""CPU time and error of single questions over a million rows, compared with plain engines and other private ones.

python benchmarks/query.py [--seconds 20]

The questions are a count with a filter, the counts of 8 groups, of the 576 groups of three columns, and the mean and
the median of a number. All are at epsilon 1 with bounds 0 and 100. Sfumato asks a vault on a loaded table with a ledger
on disk. Each time is a new release, so no answer comes from the journal. "First" is the first question on a table that
was just encoded. "Later" is a question about attributes of an earlier, different question. The plain engines answer the
same bounded question: they clip the number and skip missing values. diffprivlib and OpenDP run in their own
environments (``.bench``, created on first use). diffprivlib uses arrays in memory, and OpenDP a Parquet file, which is
its faster way. Times are medians; errors are means over as many runs as fit the time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from fractions import Fraction
from pathlib import Path

from _installed import keep_compiled

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "query.md"
BENCH = ROOT / ".bench"
ROWS = 1_000_000
GROUPS = (8, 6, 12)
COLUMNS = ("g", "h", "k")
QUESTIONS = ("count", "group count", "3-column group count", "mean", "median")
MOST_RUNS = 400
LEAST_RUNS = 5


def data():
    """Return the same numbers for every contestant: a value in 0..100 and three columns of groups."""
    import numpy as np

    random = np.random.default_rng(0)
    values = np.clip(random.normal(45, 15, ROWS), 0, 100)
    return values, [random.integers(0, size, ROWS) for size in GROUPS]


def truths() -> dict:
    import numpy as np

    values, groups = data()
    cells = np.ravel_multi_index(groups, GROUPS)
    exact = (
        (values >= 50).sum(),
        np.bincount(groups[0], minlength=GROUPS[0]),
        np.bincount(cells, minlength=math.prod(GROUPS)),
        values.mean(),
        np.median(values),
    )
    return dict(zip(QUESTIONS, exact, strict=True))


def measured(calls, seconds: float, prepare=None) -> dict:
    """Return, by question: CPU milliseconds (median), mean absolute error, its standard error, and runs.

    The result of ``prepare`` is passed to the call and not timed.
    """
    import numpy as np

    exact, found = truths(), {}
    for question, call in zip(QUESTIONS, calls, strict=True):
        if call is None:
            continue
        spent, errors, end = [], [], time.monotonic() + seconds
        while len(spent) < LEAST_RUNS or (len(spent) < MOST_RUNS and time.monotonic() < end):
            ready = () if prepare is None else (prepare(),)
            start = time.process_time()
            answer = call(*ready)
            spent.append(1000 * (time.process_time() - start))
            errors.append(float(np.mean(np.abs(np.asarray(answer, dtype=float) - exact[question]))))
        found[question] = {
            "ms": statistics.median(spent),
            "error": statistics.mean(errors),
            "spread": statistics.stdev(errors) / math.sqrt(len(errors)),
            "runs": len(spent),
        }
    return found


ASKED = (
    "SELECT COUNT(*) FROM t WHERE x >= 50",
    "SELECT g, COUNT(*) FROM t GROUP BY g",
    "SELECT g, h, k, COUNT(*) FROM t GROUP BY g, h, k",
    "SELECT AVG(x) FROM t",
    "SELECT MEDIAN(x) FROM t",
)
BEFORE = (
    "SELECT COUNT(*) FROM t WHERE x < 50",
    "SELECT COUNT(*) FROM t WHERE g IN (1, 2)",
    "SELECT g, COUNT(*) FROM t WHERE h = 1 AND k <> 2 GROUP BY g",
    "SELECT g, AVG(x) FROM t WHERE g <> 3 GROUP BY g",
    "SELECT QUANTILE(x, 0.9) FROM t",
)


def sfumato(seconds: float) -> dict:
    """Measure a vault with a ledger on disk, each time in the journal of a new dataset without earlier questions."""
    with tempfile.TemporaryDirectory() as scratch:
        return _sfumato(seconds, f"sqlite:///{scratch}/asked.ledger")


def _sfumato(seconds: float, url: str) -> dict:
    from dataclasses import replace
    from itertools import count

    import pyarrow as pa

    from sfumato.domain import Categorical, Domain, Real, Unknown
    from sfumato.engine.open import open_table
    from sfumato.ledger import open_ledger
    from sfumato.ledger.dataset_terms import UNDECLARED
    from sfumato.privacy.loss import Epsilon
    from sfumato.query import ask, choose_quantile
    from sfumato.query.aggregates import Quantile
    from sfumato.query.statements.select_statement import parse
    from sfumato.vault.simulated import SimulatedVault
    from sfumato.vault.vault import Vault

    values, groups = data()
    attributes = [Real(name="x", edges=(0.0, 50.0, 100.0), unknown=Unknown.CLAMP)]
    for name, size in zip(COLUMNS, GROUPS, strict=True):
        attributes.append(Categorical(name=name, values=tuple(range(size)), unknown=Unknown.DROP))
    domain = Domain(tuple(attributes))
    table = open_table(pa.table({"x": values, **dict(zip(COLUMNS, groups, strict=True))}))
    queries = {text: parse(text, domain) for text in (*ASKED, *BEFORE)}

    numbers, opened = count(), []

    def journal():
        opened.append(open_ledger(url, dataset=f"d{next(numbers)}", limit=Epsilon(100), create=True))
        if len(opened) > 1:
            opened.pop(0).close()
        return opened[-1]

    def fresh():
        encoded = table.encode(domain)
        _ = encoded.version  # as when a table is opened
        return Vault(encoded, journal(), UNDECLARED)

    def again(vault):
        """Return the vault with its counts, and an empty journal."""
        return replace(vault, ledger=journal())

    def unwritten(vault):
        """Return the vault without a ledger, to measure the cost of journal and budget."""
        other = SimulatedVault(vault.encoded, seed=time.time_ns() % 10**9)
        other._exactly = vault._exactly  # noqa: SLF001
        return other

    def asking(text):
        return lambda vault: [row[0].estimate for row in ask(vault, queries[text], loss=Epsilon(1)).values]

    for text in ASKED:
        asking(text)(fresh())  # imports and tables of noise
    first = measured([asking(text) for text in ASKED], seconds, fresh)
    known = fresh()
    for text in BEFORE:
        asking(text)(known)
    half = Quantile("x", Fraction(1, 2))
    return {
        "first": first,
        "later": measured([asking(text) for text in ASKED], seconds, lambda: again(known)),
        "unwritten": measured([asking(text) for text in ASKED], seconds, lambda: unwritten(known)),
        "chosen": measured(
            [None] * 4 + [lambda vault: choose_quantile(vault, half, loss=Epsilon(1)).value],
            seconds,
            lambda: again(known),
        ),
    }


def polars(seconds: float) -> dict:
    import polars as pl

    values, groups = data()
    frame = pl.DataFrame({"x": values, **dict(zip(COLUMNS, groups, strict=True))})
    bounded = pl.col("x").fill_nan(None).clip(0, 100)
    calls = (
        lambda: frame.filter(pl.col("x") >= 50).height,
        lambda: frame.group_by("g").len().sort("g")["len"].to_numpy(),  # noqa: PLW0108  (all of it is timed)
        lambda: frame.group_by(COLUMNS).len().sort(COLUMNS)["len"].to_numpy(),  # noqa: PLW0108
        lambda: frame.select(bounded.mean()).item(),
        lambda: frame.select(bounded.median()).item(),
    )
    return measured(calls, seconds)


def duckdb(seconds: float) -> dict:
    import duckdb
    import pyarrow as pa

    values, groups = data()
    connection = duckdb.connect()
    connection.register("given", pa.table({"x": values, **dict(zip(COLUMNS, groups, strict=True))}))
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    bounded = "LEAST(GREATEST(x, 0), 100)"
    statements = (
        "SELECT COUNT(*) FROM t WHERE x >= 50",
        "SELECT COUNT(*) FROM t GROUP BY g ORDER BY g",
        "SELECT COUNT(*) FROM t GROUP BY g, h, k ORDER BY g, h, k",
        f"SELECT AVG({bounded}) FROM t",  # noqa: S608  (no outside text)
        f"SELECT MEDIAN({bounded}) FROM t",  # noqa: S608
    )
    return measured([lambda text=text: connection.sql(text).fetchnumpy().popitem()[1] for text in statements], seconds)


DIFFPRIVLIB = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from benchmarks.query import GROUPS, data, measured
import numpy as np
import diffprivlib.tools as tools
values, groups = data()
ranges = [(-0.5, size - 0.5) for size in GROUPS]
calls = (
    lambda: tools.count_nonzero(values >= 50, epsilon=1.0),
    lambda: tools.histogram(groups[0], bins=GROUPS[0], range=ranges[0], epsilon=1.0)[0],
    lambda: tools.histogramdd(np.stack(groups, 1), bins=GROUPS, range=ranges, epsilon=1.0)[0].ravel(),
    lambda: tools.mean(values, epsilon=1.0, bounds=(0, 100)),
    lambda: tools.median(values, epsilon=1.0, bounds=(0, 100)),
)
print(json.dumps(measured(calls, float(sys.argv[2]))))
"""

OPENDP = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from benchmarks.query import COLUMNS, GROUPS, ROWS, data, measured
import numpy as np, polars as pl
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
values, groups = data()
pl.DataFrame({"x": values, **dict(zip(COLUMNS, groups))}).write_parquet(sys.argv[3])
table = pl.scan_parquet(sys.argv[3])
def asked(**more):
    return dp.Context.compositor(data=table, privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=1, **more).query()
def whole():
    return asked(margins=[dp.polars.Margin(by=[], max_length=2 * ROWS)])
def grouped(by):
    cells = np.indices([GROUPS[COLUMNS.index(name)] for name in by]).reshape(len(by), -1)
    keys = pl.LazyFrame(dict(zip(by, cells)))
    found = asked().group_by(list(by)).agg(dp.len()).with_keys(keys).release().collect()
    return found.sort(by)["len"].to_numpy()
x = pl.col("x").fill_null(0.0).fill_nan(0.0)
candidates = np.linspace(0, 100, 10_001).tolist()
calls = (
    lambda: whole().filter(pl.col("x") >= 50).select(dp.len()).release().collect().item(),
    lambda: grouped(COLUMNS[:1]),
    lambda: grouped(COLUMNS),
    lambda: whole().select(x.dp.mean((0.0, 100.0))).release().collect().item(),
    lambda: whole().select(x.dp.median(candidates)).release().collect().item(),
)
print(json.dumps(measured(calls, float(sys.argv[2]))))
"""
UNWRITTEN = "Sfumato, later questions without a ledger"
PEERS = {
    "diffprivlib": (DIFFPRIVLIB, ["diffprivlib==0.6.6"]),
    "opendp": (OPENDP, ["opendp[polars]==0.16.0"]),
}


def peer(name: str, seconds: float) -> dict:
    """Measure a contestant in its own environment."""
    program, packages = PEERS[name]
    home = BENCH / name
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *packages], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [home / "bin" / "python", "-c", program, str(ROOT), str(seconds), f"{scratch}/table.parquet"],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout)


def row(name: str, cells) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def written(found: dict) -> str:
    """Return two tables: time and error."""

    def times(contestant: str):
        results = found[contestant]
        return [f"{results[question]['ms']:.3g}" if question in results else "" for question in QUESTIONS]

    def ratio(ours: str, plain: str):
        return [f"{found[ours][q]['ms'] / found[plain][q]['ms']:.2g}" for q in QUESTIONS]

    def errors(contestant: str):
        results = found[contestant]
        return [
            f"{results[q]['error']:.2g} ± {results[q]['spread']:.1g} ({results[q]['runs']})" if q in results else ""
            for q in QUESTIONS
        ]

    exact = ("polars", "DuckDB", "Sfumato, first question", "Sfumato, later questions", UNWRITTEN)
    head = [row("contestant", QUESTIONS), "|---|" + "---:|" * len(QUESTIONS)]
    first, later = "Sfumato, first question", "Sfumato, later questions"
    lines = [
        f"CPU milliseconds of a question over {ROWS:,} rows at epsilon 1, bounds 0 and 100; medians, one program,",
        "every question a new release. Made by `python benchmarks/query.py`, which states what each contestant holds.",
        "",
        *head,
        *(row(name, times(name)) for name in found),
        *(
            row(f"{ours}, times {plain}", ratio(ours, plain))
            for ours in (first, later)
            for plain in ("polars", "DuckDB")
        ),
        "",
        "Mean absolute error, its standard error, and the number of runs.",
        "",
        *head,
        row("Sfumato", errors(later)),
        *(row(name, errors(name)) for name in found if name not in exact),
    ]
    return "\n".join(lines) + "\n"


NOTES = """
- *First* is the first question on a table that was just opened. DuckDB reads the column, its numbers are
  rounded or put into bins, and counted. *Later* is a different question about the same columns. Its exact table
  is in the vault, so it costs planning, noise, intervals and the ledger.
- The ledger costs a constant, the difference from *without a ledger*. Charge and answer are hash-chained in a
  file on disk, in one transaction, or in two if rows are read. No answer comes from the journal: a repeated
  question would cost no count at all.
- Neighbors: Sfumato and OpenDP add or remove a row, and do not assume a known number of rows. diffprivlib's
  mean and median assume it, and replace a row. A replacement is a removal and an addition, so in that sense
  Sfumato's epsilon counts twice. At equal loss, its mean would err 1.5 times as much as diffprivlib's, and its
  chosen median about as much.
- Count: no private integer has a smaller expected error than discrete Laplace noise (Ghosh, Roughgarden,
  Sundararajan 2009). It is 2 exp(-1) / (1 - exp(-2)) = 0.851 at epsilon 1 and sensitivity 1.
- Mean: both terms use all of epsilon, because one row moves their sum by the width. Near the middle of the
  bounds, the expected error is 0.75 width / (epsilon rows), 7.5e-05 here. diffprivlib has 1e-04, for a known
  number of rows.
- `MEDIAN` comes from a noisy tree of counts, which also gives all quantiles, minimum and maximum for free, each
  with its interval. It misses by some ten rows of rank. Other shapes of the tree are no better.
- `query.choose_quantile` spends everything on one number by the exponential mechanism, as diffprivlib and
  OpenDP do, exactly on a grid of 2^24 cells. An added row moves the rank of the median by a half, and a
  replaced row by one. So its error is half of diffprivlib's. OpenDP chooses among 10,001 candidates here, 0.01
  apart.
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20, help="for each question of each contestant, at most")
    keep_compiled()
    seconds = parser.parse_args().seconds
    ours = sfumato(seconds)
    found = {"Sfumato, first question": ours["first"], "Sfumato, later questions": ours["later"]}
    found |= {UNWRITTEN: ours["unwritten"]}
    found |= {"Sfumato, one chosen quantile": ours["chosen"], "polars": polars(seconds), "DuckDB": duckdb(seconds)}
    for name, title in (("diffprivlib", "diffprivlib"), ("opendp", "OpenDP")):
        try:
            found[title] = peer(name, seconds)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{title} did not run: {error} {getattr(error, 'stderr', '')}", file=sys.stderr)
    text = written(found)
    TABLE.write_text(text + NOTES, encoding="utf-8")
    TABLE.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
