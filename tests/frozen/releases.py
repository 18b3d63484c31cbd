"""A release of every kind by the command line, on two small tables, and the ledger's record of them.

``python -m tests.frozen.releases`` rewrites ``saved``.  Do this only for an intended change of the format.
"""

from __future__ import annotations

import io
import json
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from sfumato.app.cli.main import run as run_command

SAVED = Path(__file__).parent / "saved"
TABLE = ("people.csv", "--domain", "people.yaml", "--ledger", "people.ledger")
TABLES = ("clinic", "--schema", "clinic.yaml", "--ledger", "clinic.ledger")
LEDGERS = ("people.ledger", "clinic.ledger")
LOSS = ("--epsilon", "0.5", "--delta", "1e-7")

QUESTIONS = {
    "count": "SELECT COUNT(*) FROM people",
    "condition": "SELECT COUNT(*) FROM people WHERE age >= 40 AND (sex = 'F' OR sex IS NULL) AND NOT town = 'Ulm'",
    "groups": "SELECT sex, town, COUNT(*), SUM(income) FROM people GROUP BY sex, town",
    "means": "SELECT AVG(income), VAR_POP(age), STDDEV_POP(income) FROM people WHERE born >= '1970-01-01'",
    "quantiles": "SELECT MEDIAN(income), QUANTILE(age, 0.1), MIN(age), MAX(income) FROM people",
    "ids": "SELECT town, COUNT(DISTINCT person) FROM people GROUP BY town",
    "months": "SELECT year(born), COUNT(*) FROM people GROUP BY year(born)",
}
LINKED = {
    "joined": "SELECT p.sex, COUNT(*), SUM(v.cost) FROM visits v JOIN people p USING (person) GROUP BY p.sex",
    "people with": "SELECT COUNT(*) FROM people WHERE person IN (SELECT person FROM visits WHERE kind = 1)",
    "rows of each": "SELECT n, COUNT(*) FROM (SELECT person, LEAST(COUNT(*), 3) AS n FROM visits GROUP BY person) AS t "
    "GROUP BY n",
}
SYNTHESES = {
    "histogram": ("--method", "histogram"),
    "marginals": ("--method", "marginals", "--marginals", "sex,town", "--marginals", "age"),
    "matrix": ("--method", "matrix", "--marginals", "sex,town"),
    "mwem": ("--method", "mwem", "--rounds", "3"),
    "mst": ("--method", "mst"),
    "aim": ("--method", "batched", "--no-reuse"),
    "annealed": ("--method", "aim"),
    "reusing": ("--method", "batched"),
}


def commands(*, create: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name every release, and return the arguments of its command."""
    begin = ("--limit", "60,1e-5", "--create") if create else ()
    for name, statement in QUESTIONS.items():
        yield name, ("query", *TABLE, *LOSS, "--json", *(begin if name == "count" else ()), statement)
    yield "integers", ("query", *TABLE, *LOSS, "--json", "--whole", QUESTIONS["ids"])
    yield (
        "discovered",
        (
            "query",
            *TABLE,
            *LOSS,
            "--json",
            "--discover",
            "job",
            "SELECT job, COUNT(DISTINCT person) FROM t GROUP BY job",
        ),
    )
    yield "truncation", ("query", *TABLE, *LOSS, "--json", "--truncation", "9", QUESTIONS["count"])
    yield "analyst", ("query", *TABLE, *LOSS, "--json", "--analyst", "ana", QUESTIONS["ids"])
    yield "regression", ("regress", *TABLE, "income", *LOSS, "--json", "--by", "age", "--by", "sex = 'F'")
    yield "bound", ("bound", *TABLE, *LOSS, "--json", "--cells", "6")
    for name, options in SYNTHESES.items():
        yield (
            f"synthesize {name}",
            ("synthesize", *TABLE, *LOSS, "--json", *options, "--overwrite", "--out", f"{name}.csv"),
        )
    yield (
        "anonymize",
        (
            "anonymize",
            *TABLE,
            "--json",
            "--quasi",
            "age,sex",
            "--k",
            "3",
            "--suppression",
            "0.2",
            "--overwrite",
            "--out",
            "k.csv",
        ),
    )
    for name, statement in LINKED.items():
        yield name, ("query", *TABLES, *LOSS, "--json", *(begin if name == "joined" else ()), statement)
    yield "synthesize linked", ("synthesize", *TABLES, *LOSS, "--json", "--out", "new" if create else "again")


DOMAIN = """sfumato: 1
unit: {id: person, rows: 3}
attributes:
  age: {type: integer, minimum: 0, maximum: 99, edges: [0, 18, 40, 65], unknown: clamp}
  sex: {type: categorical, values: [F, M], unknown: category, nullable: true}
  town: {type: categorical, values: [Essen, Trier, Ulm], unknown: drop}
  income: {type: real, edges: [0, 100, 1000, 5000], unknown: clamp}
  born: {type: date, first: 1930-01-01, last: 2009-12-31, by: year, unknown: drop}
"""
SCHEMA = """sfumato: 2
schema: clinic
draft: false
unit: {id: person, table: people}
tables:
  people:
    key: person
    attributes:
      sex: {type: categorical, values: [F, M], unknown: drop}
      region: {type: integer, minimum: 0, maximum: 2, unknown: drop}
  visits:
    key: visit
    unit: person
    rows: 3
    attributes:
      kind: {type: integer, minimum: 0, maximum: 2, unknown: drop}
      cost: {type: integer, minimum: 0, maximum: 20, unknown: clamp}
"""


def write_tables(folder: Path) -> None:
    """Write the tables and their descriptions, the same every time."""
    chance = random.Random(4)  # noqa: S311 - of test data
    people = ["person,age,sex,town,income,born,job"]
    for row in range(300):
        age, sex, town = chance.randint(0, 99), chance.choice(["F", "M", ""]), chance.choice(["Essen", "Trier", "Ulm"])
        born = f"{2009 - age * 79 // 99}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        job = chance.choice(["cook", "nurse", "smith"])
        people.append(f"{row * 2 // 3},{age},{sex},{town},{chance.randint(0, 4000)},{born},{job}")
    clinic = ["person,sex,region", *(f"{row},{chance.choice('FM')},{chance.randint(0, 2)}" for row in range(120))]
    visits = [f"{row},{chance.randint(0, 119)},{chance.randint(0, 2)},{chance.randint(0, 20)}" for row in range(200)]
    (folder / "clinic").mkdir()
    for name, lines in (
        ("people.csv", people),
        ("clinic/people.csv", clinic),
        ("clinic/visits.csv", ["visit,person,kind,cost", *visits]),
        ("people.yaml", [DOMAIN]),
        ("clinic.yaml", [SCHEMA]),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def release_all(folder: Path, *, create: bool) -> dict[str, Any]:
    """Run every command in a folder that has the tables, and return what each prints."""
    return {name: run(arguments, folder) for name, arguments in commands(create=create)}


def run(arguments: tuple[str, ...], folder: Path) -> Any:
    """Run a command in this process, and return the JSON document that it prints."""
    output, errors = io.StringIO(), io.StringIO()
    argv = patch.object(sys, "argv", ["sfumato", *arguments])
    with chdir(folder), redirect_stdout(output), redirect_stderr(errors), argv:
        try:
            run_command()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    if code:
        raise AssertionError(f"{' '.join(arguments)} ended with {code}: {errors.getvalue()}")
    return json.loads(output.getvalue())


def journal(ledger: Path) -> list[dict[str, Any]]:
    """Return the journal's text of every entry, without times, hashes and digests under the ledger's secret."""
    with closing(sqlite3.connect(ledger)) as database:
        database.row_factory = sqlite3.Row
        entries = [dict(row) for row in database.execute("SELECT * FROM ledger_entry ORDER BY number")]
    for entry in entries:
        for hidden in ("time", "previous", "hash"):
            del entry[hidden]
        if entry["kind"] == "version":
            del entry["question"], entry["key"]
    return entries


def write_saved() -> None:
    """Write the ledgers, and the output of the commands when all requests are repeated."""
    for old in SAVED.glob("*"):
        old.unlink()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        release_all(folder, create=True)
        printed = release_all(folder, create=False)
        (SAVED / "printed.json").write_text(json.dumps(printed, indent=1) + "\n", encoding="utf-8")
        for ledger in LEDGERS:
            with closing(sqlite3.connect(folder / ledger)) as database:
                dump = "\n".join(database.iterdump())
            (SAVED / f"{ledger}.sql").write_text(dump + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_saved()
