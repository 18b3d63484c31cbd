"""The 3-way marginals of 15 columns on DuckDB, Spark and PostgreSQL, each against plain GROUP BY in that engine.

eval "$(scripts/services postgres java)"
python benchmarks/scale.py [--rows 10000000] [--engines duckdb,spark,postgres] [--plain 20]
python benchmarks/scale.py --rows 100000000 --engines duckdb --memory 8GB

Each engine runs in its own process over the same Parquet file (PostgreSQL after an untimed COPY). It is charged the CPU
seconds of every process that works for it: this one, the Java machine, Python workers, the database's backend. Plain
GROUP BY runs a sample of the 455 over the raw columns, loaded and cached the same way, and is extrapolated. Groups of
four columns and writing all rows recoded (the engine's part of a k-anonymous release) are also timed.
"""

# ruff: noqa: S608 - the names are made up here

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import marginals
from _installed import keep_compiled

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks" / "scale.md"
NAMES = [f"a{place}" for place in range(len(marginals.SHAPE))]
TRIPLES = [tuple(NAMES[place] for place in triple) for triple in marginals.TRIPLES]
QUASI = ("a0", "a5", "a8", "a9")
TICKS = os.sysconf("SC_CLK_TCK")


def family(roots: list[int]) -> list[int]:
    """Return the descendants of ``roots``, including these."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = set(roots)
    while grown := {process for process, parent in parents.items() if parent in found} - found:
        found |= grown
    return sorted(found)


def cpu(roots: list[int]) -> float:
    """Return CPU seconds of ``roots`` and their descendants, including ended ones that were waited for."""
    total = 0
    for process in family(roots):
        try:
            total += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return total / TICKS


def memory(roots: list[int]) -> float:
    """Return the sum of the peak resident memory of ``roots`` and their living descendants, in GB."""
    peaks = 0
    for process in family(roots):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        peaks += int(status.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in status else 0
    return peaks * 1024 / 1e9


def domain():
    from sfumato.domain import Domain, Integer, Unknown

    sizes = zip(NAMES, marginals.SHAPE, strict=True)
    return Domain(tuple(Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP) for name, size in sizes))


def measure(table, plain: Callable[[tuple[str, ...]], object], roots: list[int], sample: int, folder: Path):
    """Time encoding, marginals, groups, recoding, and the plain queries."""
    import numpy as np
    import pyarrow as pa

    from sfumato.engine.exact import reveal
    from sfumato.engine.port import Recode

    found: dict[str, float] = {}

    def timed(name: str, call: Callable[[], object]) -> object:
        start, wall = cpu(roots), time.perf_counter()
        result = call()
        found[f"{name}_cpu_s"], found[f"{name}_wall_s"] = cpu(roots) - start, time.perf_counter() - wall
        return result

    encoded = timed("encode", lambda: table.encode(domain()))
    timed("marginals", lambda: encoded.marginals(TRIPLES))
    groups = reveal(timed("groups", lambda: encoded.groups(QUASI)))
    levels = tuple((np.arange(encoded.domain[name].size) // 5).astype(np.uint16) for name in QUASI)
    coarse = np.column_stack([level[groups.codes[:, place]] for place, level in enumerate(levels)])
    classes, inverse = np.unique(coarse, axis=0, return_inverse=True)
    kept = np.bincount(inverse.ravel(), groups.counts) >= 10
    labels = pa.table(
        {name: pa.array([f"from {5 * code}" for code in classes[kept][:, place]]) for place, name in enumerate(QUASI)}
    )
    recode = Recode(QUASI, levels, classes[kept], labels)
    timed("recode", lambda: encoded.write_recoded(recode, ("a6",), folder / "recoded.parquet"))
    step = len(TRIPLES) // sample
    chosen = TRIPLES[::step][:sample]
    timed("plain", lambda: [plain(triple) for triple in chosen])
    found["plain_cpu_s"] *= len(TRIPLES) / len(chosen)
    found["plain_wall_s"] *= len(TRIPLES) / len(chosen)
    found["plain_ran"] = len(chosen)
    found["peak_gb"] = memory(roots)
    return found


def duckdb(path: Path, arguments: argparse.Namespace, folder: Path):
    import duckdb

    from sfumato.engine.duckdb.duck_adapter import file_source
    from sfumato.engine.duckdb.duck_table import DuckTable

    table = DuckTable.open(file_source(path), memory=arguments.memory)
    connection = duckdb.connect()
    connection.read_parquet(str(path)).to_table("t")

    def plain(triple: tuple[str, ...]):
        names = ", ".join(triple)
        return connection.sql(f"SELECT {names}, COUNT(*) AS n FROM t GROUP BY {names}").to_arrow_table()

    return measure(table, plain, [os.getpid()], arguments.plain, folder)


def spark_session():
    """Return a session of Spark on two cores of this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {"spark.driver.memory": "6g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4",
               "spark.log.level": "ERROR", "spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for option, value in options.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def spark(path: Path, arguments: argparse.Namespace, folder: Path):
    from pyspark import StorageLevel

    from sfumato.engine.spark.spark_table import SparkTable

    session = spark_session()
    cached = session.read.parquet(str(path)).persist(StorageLevel.MEMORY_AND_DISK)
    cached.count()

    def plain(triple: tuple[str, ...]):
        return cached.groupBy(*triple).count().collect()

    table = SparkTable(session.read.parquet(str(path)), "the table")
    found = measure(table, plain, [os.getpid()], arguments.plain, folder)
    session.stop()
    return found


def postgres(path: Path, arguments: argparse.Namespace, folder: Path):
    import pyarrow.parquet as pq
    import sqlalchemy as sa

    from sfumato.engine.open import open_table

    url = sa.make_url(os.environ["SFUMATO_TEST_POSTGRES"])
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS scale")
        connection.exec_driver_sql(f"CREATE UNLOGGED TABLE scale ({', '.join(f'{name} SMALLINT' for name in NAMES)})")
        with connection.connection.cursor().copy("COPY scale FROM STDIN") as copy:
            for batch in pq.ParquetFile(path).iter_batches(100_000):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                copy.write("".join("\t".join(map(str, row)) + "\n" for row in rows))
        connection.exec_driver_sql("SET work_mem = '256MB'")
        connection.exec_driver_sql("SET max_parallel_workers_per_gather = 0")
        connection.exec_driver_sql("ANALYZE scale")
        connection.commit()
        server = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        postmaster = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])

        def plain(triple: tuple[str, ...]):
            names = ", ".join(triple)
            return connection.exec_driver_sql(f"SELECT {names}, COUNT(*) FROM scale GROUP BY {names}").fetchall()

        table = open_table(url.update_query_dict({"table": "scale"}).render_as_string(hide_password=False))
        found = measure(table, plain, [os.getpid(), postmaster], arguments.plain, folder)
        connection.exec_driver_sql("DROP TABLE scale")
        connection.commit()
    return found


ENGINES = {"duckdb": duckdb, "spark": spark, "postgres": postgres}


HEAD = ("engine", "encode, CPU s", "455 marginals, CPU s (wall)", "plain GROUP BY each, CPU s, extrapolated", "ratio",
        "groups of 4, CPU s", "recode and write, CPU s", "peak, GB")  # fmt: skip


def line(engine: str, r: dict[str, float]) -> str:
    """Return one engine's results in Markdown."""
    return (
        f"| {engine} | {r['encode_cpu_s']:.1f} | {r['marginals_cpu_s']:.1f} ({r['marginals_wall_s']:.0f}) "
        f"| {r['plain_cpu_s']:.0f} (from {r['plain_ran']}) | {r['plain_cpu_s'] / r['marginals_cpu_s']:.1f} "
        f"| {r['groups_cpu_s']:.1f} | {r['recode_cpu_s']:.1f} | {r['peak_gb']:.1f} |"
    )


def write(rows: int, engine: str, result: dict[str, float]) -> None:
    """Add a result to the report, and replace an older one of the same engine and number of rows."""
    header = (
        "All 455 three-way marginals of 15 columns. CPU seconds of all processes of the engine. The\n"
        "ratio is plain `COUNT(*) … GROUP BY` over the same columns in the same engine, one query each, to ours\n"
        "(encoding not counted on either side). **The plain figure is extrapolated**: the number in brackets of the\n"
        "455 queries ran, evenly spread, and their time was multiplied. Made by\n"
        "`python benchmarks/scale.py`.\n\n"
        "The lines are for commit `1fa94f1d` and its successors. At commit `d18a36f0`, DuckDB takes .14 CPU seconds\n"
        "to encode 1,000,000 rows, .68 for the marginals, and .17 to recode and write. At `1fa94f1d` it takes .14,\n"
        ".68 and .35 (medians of three runs, in turn). At `d18a36f0`, PostgreSQL takes 1.2, 21.4 and 6.7 (one run).\n"
    )
    old = REPORT.read_text(encoding="utf-8").split("## ")[1:] if REPORT.exists() else []
    sections = {part.splitlines()[0]: part.strip().splitlines()[4:] for part in old}
    kept = [row for row in sections.get(f"{rows:,} rows", []) if not row.startswith(f"| {engine} |")]
    sections[f"{rows:,} rows"] = [*kept, line(engine, result)]
    top = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    parts = ["\n".join([f"## {title}", "", *top, *lines, ""]) for title, lines in sections.items()]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text("\n".join([header, *parts]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--engines", default="duckdb,spark,postgres")
    parser.add_argument("--plain", type=int, default=10, help="plain GROUP BY queries to run in each engine")
    parser.add_argument("--memory", help="limit of DuckDB's memory, such as 8GB")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    keep_compiled()
    arguments = parser.parse_args()
    if arguments.engine:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(ENGINES[arguments.engine](arguments.path, arguments, Path(folder))))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        marginals.make(path, arguments.rows)
        for engine in arguments.engines.split(","):
            command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine, "--path", str(path)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[engine] = json.loads(done.stdout.splitlines()[-1])
            write(arguments.rows, engine, results[engine])
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
