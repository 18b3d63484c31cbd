"""CPU time of several tables about the same people, beside plain joins of the same files by DuckDB.

    python benchmarks/tables.py [--patients 1000000]

Generated: patients with 2.9 visits each in the mean (1 % of them have more than 19, the most 253), in Parquet files.
Each number is the CPU time of one process that is held to one thread: the plain join of visits and patients by month
and region with its GROUP BY; registering the two tables through a schema, a ledger on disk and files; eleven statements
over one view of them, bounded to 40 rows of a patient, 12 months and 8 rows in a month, each a new release.
The first statement encodes and bounds the view.
"""

# ruff: noqa: S608 - the statements are written here

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks" / "tables.md"
JOINED = "FROM visits JOIN patients USING (patient_id)"
STATEMENTS = (
    f"SELECT month(admitted), region, COUNT(*) {JOINED} GROUP BY month(admitted), region",
    f"SELECT region, COUNT(*) {JOINED} GROUP BY region",
    f"SELECT sex, kind, COUNT(*) {JOINED} GROUP BY sex, kind",
    f"SELECT month(admitted), COUNT(*) {JOINED} GROUP BY month(admitted)",
    f"SELECT COUNT(*) {JOINED} WHERE sex = 'F'",
    f"SELECT kind, region, COUNT(*) {JOINED} GROUP BY kind, region",
    f"SELECT kind, SUM(cost) {JOINED} GROUP BY kind",
    f"SELECT region, AVG(cost) {JOINED} GROUP BY region",
    f"SELECT sex, COUNT(*) {JOINED} WHERE kind = 1 GROUP BY sex",
    f"SELECT quarter(admitted), sex, COUNT(*) {JOINED} GROUP BY quarter(admitted), sex",
    f"SELECT region, sex, COUNT(*) {JOINED} WHERE cost >= 500 GROUP BY region, sex",
)
SCHEMA = """
sfumato: 2
schema: hospital
unit: {id: patient_id, table: patients}
tables:
  patients:
    key: patient_id
    attributes:
      sex: {type: categorical, values: [F, M], unknown: drop}
      region: {type: integer, minimum: 0, maximum: 19, unknown: drop}
  visits:
    key: visit_id
    unit: patient_id
    rows: 40
    per: {month(admitted): {rows: 8, groups: 12}}
    attributes:
      admitted: {type: date, first: 2023-01-01, last: 2024-12-31, by: day, unknown: drop}
      kind: {type: integer, minimum: 0, maximum: 4, unknown: drop}
      cost: {type: integer, minimum: 0, maximum: 1000, edges: [0, 100, 500], unknown: clamp}
"""


def generate(folder: Path, patients: int) -> int:
    """Write the tables; returns the number of visits."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SELECT setseed(0.17)").fetchall()
        connection.execute(
            "CREATE TABLE patients AS SELECT i AS patient_id, CASE WHEN random() < 0.5 THEN 'F' ELSE 'M' END AS sex, "
            f"floor(random() * 20)::INT AS region FROM range({patients}) AS t(i)"
        )
        connection.execute(
            "CREATE TABLE numbers AS SELECT i AS patient_id, least(253, floor(exp(-ln(1 - random()) * 0.62 "
            f"+ ln(1.0 + random())) * 0.75 + random()))::INT AS n FROM range({patients}) AS t(i)"
        )
        connection.execute(
            "CREATE TABLE visits AS SELECT row_number() OVER () AS visit_id, patient_id, DATE '2023-01-01' "
            "+ floor(random() * 731)::INT AS admitted, floor(random() * 1001)::INT AS cost, "
            "floor(random() * 5)::INT AS kind FROM numbers, range(numbers.n)"
        )
        for name in ("patients", "visits"):
            connection.execute(f"COPY {name} TO '{folder / f'{name}.parquet'}' (FORMAT parquet)")
        ((visits,),) = connection.sql("SELECT COUNT(*) FROM visits").fetchall()
    return int(visits)


def spent(work) -> float:
    """CPU seconds of a piece of work."""
    before = time.process_time()
    work()
    return time.process_time() - before


def plain(folder: Path) -> float:
    """The median of five plain joins."""
    import duckdb

    text = (
        f"SELECT date_trunc('month', admitted) AS month, region, COUNT(*) FROM '{folder}/visits.parquet' "
        f"JOIN '{folder}/patients.parquet' USING (patient_id) GROUP BY ALL"
    )
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        return statistics.median(spent(lambda: connection.sql(text).fetchall()) for _ in range(5))


def measured(folder: Path) -> tuple[float, list[float]]:
    """Seconds of registering the tables, and of each statement."""
    import sfumato as sf
    from sfumato.engine.duckdb.duck_session import shared_session

    (folder / "hospital.yaml").write_text(SCHEMA, encoding="utf-8")
    with shared_session().cursor("the benchmark") as cursor:
        cursor.execute("SET threads = 1")
    vaults = []

    def register() -> None:
        vaults.append(sf.open_schema(folder, schema=folder / "hospital.yaml", limit=sf.Epsilon(1000), create=True))

    registering = spent(register)
    sf.query.sql(vaults[0], "SELECT sex, COUNT(*) FROM patients GROUP BY sex", loss=sf.Epsilon(1))  # loads the parser
    asked = [spent(lambda text=text: sf.query.sql(vaults[0], text, loss=sf.Epsilon(1))) for text in STATEMENTS]
    return registering, asked


def page(patients: int, visits: int, join: float, registering: float, asked: list[float]) -> str:
    """The page of the docs."""
    total = registering + sum(asked)
    later = statistics.median(asked[1:])
    rows = [
        ("plain join and GROUP BY", join),
        (f"registering {visits:,} visits and {patients:,} patients", registering),
        ("the first statement, which bounds the view", asked[0]),
        ("each further statement, in the median", later),
        ("the dearest further statement", max(asked[1:])),
        ("registering and eleven statements", total),
    ]
    lines = [f"| {name} | {seconds:.3f} | {seconds / join:.2f} |" for name, seconds in rows]
    return "\n".join(
        [
            "# Several tables",
            "",
            (__doc__ or "").split("\n\n", 2)[2].replace(".  ", ". ").strip(),
            "",
            "| | CPU s | plain joins |",
            "| --- | --- | --- |",
            *lines,
            "",
            "Written by `python benchmarks/tables.py`; the machine was busy with other work.",
            "",
        ]
    )


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patients", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        visits = generate(folder, asked.patients)
        join = plain(folder)
        text = page(asked.patients, visits, join, *measured(folder))
    print(text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
