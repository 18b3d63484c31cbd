"""CPU time of several tables about the same people, compared with plain joins of the same files by DuckDB.

python benchmarks/tables.py [--patients 1000000]
python benchmarks/tables.py --patients 100000 --on postgresql://user@host/database
python benchmarks/tables.py --patients 100000 --on spark

The tables are generated Parquet files. Patients have 2.9 visits on average; 1 % have more than 19, and the most is 253.
Each number is the CPU time of one process with one thread:

* the plain join of visits and patients by month and region, with its GROUP BY
* registering the two tables through a schema, a ledger on disk and files
* eleven statements over one view, each a new release, bounded to 40 rows per patient, 12 months and 8 rows per month

The first statement encodes and bounds the view. Databases and Spark work in other processes. There, numbers are elapsed
seconds, and the plain join is their own.
"""

# ruff: noqa: S608 - the statements are written here

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks" / "tables.md"
FIGURES = PAGE.with_suffix(".json")
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
    """Write the tables, and return the number of visits."""
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


def spent(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of a piece of work, by a clock."""
    before = clock()
    work()
    return clock() - before


PLAIN = (
    "SELECT {month} AS m, region, COUNT(*) AS n FROM {visits} JOIN {patients} USING (patient_id) "
    "GROUP BY {month}, region"
)


def plain(folder: Path) -> float:
    """Return the median of five plain joins by DuckDB."""
    import duckdb

    tables = {name: f"'{folder}/{name}.parquet'" for name in ("visits", "patients")}
    text = PLAIN.format(month="date_trunc('month', admitted)", **tables)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        return statistics.median(spent(lambda: connection.sql(text).fetchall(), time.process_time) for _ in range(5))


@contextmanager
def database(url: str, folder: Path) -> Iterator[tuple[str, float]]:
    """Provide the tables in a new database of a server, and the median of three plain joins there."""
    import duckdb
    import sqlalchemy as sa

    address, name = sa.make_url(url), f"tables_{secrets.token_hex(6)}"
    driver = "postgresql+psycopg" if address.get_backend_name() == "postgresql" else "mysql+pymysql"
    address = address.set(drivername=driver)
    server = sa.create_engine(address, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    postgres = address.get_backend_name() == "postgresql"
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        own = sa.create_engine(address.set(database=name), poolclass=sa.NullPool)
        with own.begin() as connection, duckdb.connect() as files:
            connection.exec_driver_sql(
                "CREATE TABLE patients (patient_id BIGINT PRIMARY KEY, sex VARCHAR(1), region INT)"
            )
            connection.exec_driver_sql(
                "CREATE TABLE visits "
                "(visit_id BIGINT PRIMARY KEY, patient_id BIGINT, admitted DATE, cost INT, kind INT)"
            )
            for table in ("patients", "visits"):
                rows = files.sql(f"FROM '{folder}/{table}.parquet'")
                marks = ", ".join(["%s"] * len(rows.columns))
                held = rows.fetchall()
                for start in range(0, len(held), 20_000):
                    connection.exec_driver_sql(f"INSERT INTO {table} VALUES ({marks})", held[start : start + 20_000])
        month = "date_trunc('month', admitted)" if postgres else "date_format(admitted, '%%Y-%%m-01')"
        text = PLAIN.format(month=month, visits="visits", patients="patients")
        with own.connect() as connection:
            connection.exec_driver_sql("ANALYZE visits" if postgres else "ANALYZE TABLE visits")
            join = statistics.median(
                spent(lambda: connection.exec_driver_sql(text).fetchall(), time.perf_counter) for _ in range(3)
            )
        shown = address.set(database=name, drivername=address.drivername.partition("+")[0])
        yield shown.render_as_string(hide_password=False), join
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{' WITH (FORCE)' if postgres else ''}")


def on_spark(folder: Path) -> float:
    """Return the median of three plain joins on the session of Spark that reads the tables."""
    from sfumato.engine.spark.spark_session import session

    spark = session()
    tables = {name: f"parquet.`{folder}/{name}.parquet`" for name in ("visits", "patients")}
    text = PLAIN.format(month="trunc(admitted, 'month')", **tables)
    spark.sql(text).collect()  # starts the session
    return statistics.median(spent(lambda: spark.sql(text).collect(), time.perf_counter) for _ in range(3))


def measured(folder: Path, tables: object, clock: Callable[[], float]) -> tuple[float, list[float]]:
    """Return the seconds of registering the tables, and of each statement."""
    import sfumato as sf
    from sfumato.engine.duckdb.duck_session import shared_session

    (folder / "hospital.yaml").write_text(SCHEMA, encoding="utf-8")
    with shared_session().cursor("the benchmark") as cursor:
        cursor.execute("SET threads = 1")
    vaults: list[Any] = []

    def register() -> None:
        vaults.append(sf.open_schema(tables, schema=folder / "hospital.yaml", limit=sf.Epsilon(1000), create=True))

    registering = spent(register, clock)
    sf.query.sql(vaults[0], "SELECT sex, COUNT(*) FROM patients GROUP BY sex", loss=sf.Epsilon(1))  # loads the parser
    asked = [
        spent(lambda text=text: sf.query.sql(vaults[0], text, loss=sf.Epsilon(1)), clock)  # type: ignore[misc]
        for text in STATEMENTS
    ]
    return registering, asked


def lines(figures: dict[str, Any]) -> list[str]:
    """Return the table of one engine."""
    join, registering, asked = figures["join"], figures["registering"], figures["asked"]
    rows = [
        ("plain join and GROUP BY", join),
        (f"registering {figures['visits']:,} visits and {figures['patients']:,} patients", registering),
        ("the first statement, which bounds the view", asked[0]),
        ("each further statement, in the median", statistics.median(asked[1:])),
        ("the dearest further statement", max(asked[1:])),
        ("registering and eleven statements", registering + sum(asked)),
    ]
    return [f"| {name} | {seconds:.3f} | {seconds / join:.2f} |" for name, seconds in rows]


def page(every: dict[str, dict[str, Any]]) -> str:
    """Return the page of the docs."""
    told = (__doc__ or "").split("\n\n", 2)[2].replace(".  ", ". ").strip()
    found = ["# Several tables", "", told, ""]
    for engine, figures in every.items():
        unit = "CPU s" if engine == "DuckDB" else "seconds"
        found += [f"## {engine}", "", f"| | {unit} | plain joins |", "| --- | --- | --- |", *lines(figures), ""]
    return "\n".join([*found, "Written by `python benchmarks/tables.py`; the machine was busy with other work.", ""])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patients", type=int, default=1_000_000)
    parser.add_argument("--on", help="URL of a database server, or spark; else DuckDB")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        visits = generate(folder, asked.patients)
        if asked.on is None:
            engine, join = "DuckDB", plain(folder)
            times = measured(folder, folder, time.process_time)
        elif asked.on == "spark":
            engine, join = "Spark", on_spark(folder)
            times = measured(folder, f"spark:{folder}", time.perf_counter)
        else:
            engine = "PostgreSQL" if asked.on.startswith("postgres") else "MariaDB"
            with database(asked.on, folder) as (url, join):
                times = measured(folder, url, time.perf_counter)
    every = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    every[engine] = {"patients": asked.patients, "visits": visits, "join": join}
    every[engine] |= {"registering": times[0], "asked": times[1]}
    print("\n".join(lines(every[engine])))
    FIGURES.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(every), encoding="utf-8")


if __name__ == "__main__":
    main()
