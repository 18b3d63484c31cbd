"""Start-up cost of a command: complete processes, as users run them, and the first question.

python benchmarks/start.py [--runs 5] [--rows 1000000]

The benchmark needs UCI Adult with the hierarchies of ARX's example under ``$SFUMATO_DATA``. CPU seconds are the
operating system's accounting for a finished process and its threads, the minimum of some runs after a warm-up, because
a busy machine only adds to them. polars is compared with the first question if it is installed.
"""

# ruff: noqa: S608 - statements stand in programs of their own

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from _installed import keep_compiled
from _real_data import folder as real_data

ROOT = Path(__file__).resolve().parent.parent
DATA = real_data("adult")
PAGE = ROOT / "docs" / "benchmarks" / "start.md"
FIVE = "age,gender,race,marital_status,education"
NINE = f"{FIVE},work_class,occupation,native_country,class"
STATEMENT = "SELECT gender, COUNT(*) FROM t GROUP BY gender"
GOALS = {"--version": None, "query preview": 0.5, "query": 0.9, "anonymize, five": 1.0, "anonymize, nine": None}

FIRST = """
import sys, time
import numpy as np, pyarrow as pa
import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unknown

rows, folder = int(sys.argv[1]), sys.argv[2]
random = np.random.default_rng(1)
cities = [f"c{place}" for place in range(20)]
table = pa.table({"age": random.integers(0, 100, rows), "city": random.choice(cities, rows)})
domain = Domain((
    Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
    Categorical(name="city", values=tuple(cities), unknown=Unknown.DROP),
))
"""
OURS = (
    FIRST
    + """
for turn in range(2):  # the first of a process loads what it needs
    start = time.process_time()
    vault = sf.open(table, domain=domain, ledger=f"sqlite:///{folder}/{turn}.ledger", limit=sf.Epsilon(3), create=True)
    opened = time.process_time()
    sf.query.sql(vault, "SELECT city, COUNT(*) FROM t GROUP BY city", loss=sf.Epsilon(1))
    first = time.process_time()
    sf.query.sql(vault, "SELECT age, COUNT(*) FROM t GROUP BY age", loss=sf.Epsilon(1))
    second = time.process_time()
    print(opened - start, first - opened, second - first)
"""
)
LOADED = OURS.replace("rows, folder", "import sfumato.query, sqlglot.dialects.duckdb\nrows, folder", 1)
PEER = (
    FIRST
    + """
import polars
for turn in range(2):
    start = time.process_time()
    frame = polars.from_arrow(table)
    opened = time.process_time()
    frame.group_by("city").len()
    first = time.process_time()
    frame.group_by("age").len()
    print(opened - start, first - opened, time.process_time() - first)
"""
)


def clean(folder: Path) -> Path:
    lines = (DATA / "adult.csv").read_text(encoding="utf-8").splitlines()
    table = folder / "adult.csv"
    table.write_text("\n".join(line for line in lines if "?" not in line) + "\n", encoding="utf-8")
    return table


def sfumato(*words: object) -> list[str]:
    return [sys.executable, "-m", "sfumato", *map(str, words)]


def seconds(command: list[str], folder: Path) -> float:
    """Return CPU seconds of one finished process; ledgers and outputs of an earlier run are removed first."""
    for path in {*folder.glob("run.*"), *folder.glob("*.ledger*")}:
        path.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(folder: Path) -> dict[str, list[str]]:
    table = clean(folder)
    subprocess.run(sfumato("domain", "draft", table, "--out", folder / "adult.yaml"), check=True, capture_output=True)
    accepted = sfumato(
        "domain", "accept", folder / "adult.yaml", "--by", "the benchmark", "--confirm", "values,bounds,points,bins"
    )
    subprocess.run(accepted, check=True, capture_output=True)
    described = (table, "--domain", folder / "adult.yaml")
    asked = (table, STATEMENT, "--domain", folder / "adult.yaml", "--epsilon", "0.1")
    begun = ("--ledger", folder / "run.ledger", "--create", "--limit", "1")
    recoding = ("--k", "5", "--hierarchies", DATA / "hierarchies", "--suppression", "0.02", "--out", folder / "run.csv")
    return {
        "--version": sfumato("--version"),
        "query preview": sfumato("query", "preview", *asked),
        "query": sfumato("query", *asked, *begun),
        "anonymize, five": sfumato("anonymize", *described, *recoding, *begun, "--quasi", FIVE),
        "anonymize, nine": sfumato("anonymize", *described, *recoding, *begun, "--quasi", NINE),
    }


def least(command: list[str], folder: Path, runs: int) -> float:
    return min([seconds(command, folder) for _ in range(runs + 1)][1:])


def first_question(program: str, rows: int, folder: Path, runs: int) -> list[list[float]]:
    """Time opening, first and second question in fresh processes, twice in each; return the smallest times."""
    found = []
    for _ in range(runs):
        for path in folder.glob("*.ledger*"):
            path.unlink(missing_ok=True)
        told = subprocess.run(
            [sys.executable, "-c", program, str(rows), str(folder)], check=True, capture_output=True, text=True
        )
        found.append([[float(word) for word in line.split()] for line in told.stdout.splitlines()])
    return [[min(run[turn][part] for run in found) for part in range(3)] for turn in range(2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    keep_compiled()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        whole = {name: least(command, folder, arguments.runs) for name, command in commands(folder).items()}
        questions = {
            "sfumato": first_question(OURS, arguments.rows, folder, arguments.runs),
            "sfumato with questions and parser loaded": first_question(LOADED, arguments.rows, folder, arguments.runs),
        }
        if importlib.util.find_spec("polars"):
            questions["polars, without privacy"] = first_question(PEER, arguments.rows, folder, arguments.runs)
    print(json.dumps({"whole": whole, "questions": questions}, indent=1))
    lines = [
        "# Starting",
        "",
        f"Made by `python benchmarks/start.py --runs {arguments.runs}`: CPU seconds, the least of as many runs.",
        "",
        "## A whole command",
        "",
        "UCI Adult as CSV, 30 162 rows: from the shell to the end of the process, with imports, reading, ledger and",
        "release. `query preview` reads no table; `anonymize` is optimal over five and nine quasi-identifiers, k = 5.",
        "",
        "| command | seconds | wanted |",
        "| --- | --- | --- |",
        *(f"| `{name}` | {found:.2f} | {GOALS[name] or '-'} |" for name, found in whole.items()),
        "",
        "## The first question",
        "",
        f"{arguments.rows:,} rows in memory, two columns, a count by group in SQL, in milliseconds. Opening encodes",
        "the table and names its content; the first question of a process also loads the family and the parser of SQL,",
        "unless the program did so before, as a server does.",
        "",
        "| | opening | first question | second |",
        "| --- | --- | --- | --- |",
    ]
    for name, rounds in questions.items():
        for which, parts in zip(("first table of the process", "next table"), rounds, strict=True):
            lines.append(f"| {name}, {which} | " + " | ".join(f"{1000 * part:.1f}" for part in parts) + " |")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
