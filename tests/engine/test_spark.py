"""Spark on a cluster of two executors: the gist of the conformance suite, and an executor killed in the middle.

Copies of the odd columns stand side by side, so that one encoding asks what the suite asks one by one.
"""

from __future__ import annotations

import gzip
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.engine.conftest import SPARK, Oracle, arrow, odd_rows
from tests.engine.test_bounding import BOUNDS, checked, people
from tests.services import require

from sfumato.domain import Categorical, Domain, Integer, Real, Role, Unit, Unknown
from sfumato.domain.predicate import All, Among, Not
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import ROWS, Recode
from sfumato.engine.spark.spark_session import fold
from sfumato.errors import EngineError, InputError, TableError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.synthesize import NoisyTotal, all_marginals, batched, read_zeros
from sfumato.vault.measurables import Marginal
from sfumato.vault.vault import Vault
from sfumato.vault.vault_opening import open_vault

C, D, K = Unknown.CATEGORY, Unknown.DROP, Unknown.CLAMP
KINDS = [
    Categorical(name="word", values=("a", "\u00e9", "01", "", "a\nb", 'a"b', "SS", "1"), unknown=C, nullable=True),
    Categorical(name="word", values=("a ", " a", "A", "e\u0301", "it's \\ \\'"), unknown=C),
    Categorical(name="word", values=(1, 2), unknown=C),
    Categorical(name="flag", values=(True, False), unknown=C, nullable=True),
    Categorical(name="whole", values=(5, -3, (1 << 63) - 1, (1 << 53) + 1), unknown=C),
    Categorical(name="whole", values=("5", "05", "-3", "9223372036854775806"), unknown=C),
    Categorical(name="amount", values=(7, -1), unknown=C, nullable=True),
    Categorical(name="day", values=("2024-02-29", "0001-01-01"), unknown=C, nullable=True),
    Integer(name="whole", minimum=0, maximum=99, edges=(0, 5, 50), unknown=K, nullable=True),
    Integer(name="whole", minimum=-5, maximum=7, unknown=C, nullable=True),
    Integer(name="digits", minimum=0, maximum=99, unknown=C),
    Integer(name="digits", minimum=-5, maximum=50, edges=(-5, 0, 39, 40), unknown=C, nullable=True),
    Integer(name="real", minimum=-1, maximum=3, unknown=C),
    Real(name="real", edges=(-2.5, 0.0, 0.3, 0.5, 2.5, 100.0), unknown=C, nullable=True),
    Real(name="digits", edges=(-5.0, 0.0, 0.5, 39.0, 39.5), unknown=C),
    Real(name="amount", edges=(-1.0, 0.1, 2.5, 1234567890123456.78), unknown=C, nullable=True),
    Real(name="wild", edges=(0.0, 0.25, 1.0), unknown=K, nullable=True),
    Real(name="wild", edges=(0.0, 0.25, 1.0), unknown=C, nullable=False),
]
WIDE = Domain(tuple(replace(kind, name=f"{kind.name}_{place}") for place, kind in enumerate(KINDS)))


def wide(rows):
    copies = {f"{kind.name}_{place}": kind.name for place, kind in enumerate(KINDS)}
    return [row | {copy: row[name] for copy, name in copies.items()} for row in rows]


def wide_arrow(rows):
    odd = arrow(rows)
    for place, kind in enumerate(KINDS):
        odd = odd.append_column(f"{kind.name}_{place}", odd[kind.name])
    return odd


@pytest.fixture(scope="module")
def spark():
    return cluster.session()


@pytest.fixture(scope="module")
def rows():
    return wide(odd_rows())


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    odd = wide_arrow(odd_rows())
    pq.write_table(odd.slice(0, 40), folder / "part-0.parquet")
    pq.write_table(odd.slice(40), folder / "part-1.parquet")
    return open_table(f"spark:{folder}")


@pytest.fixture(scope="module")
def encoded(table):
    return table.encode(WIDE)


@pytest.fixture(scope="module")
def expected(rows):
    return Oracle(WIDE, rows)


def test_each_odd_value_falls_into_its_cell(encoded, expected):
    cliques = [(name,) for name in WIDE.names] + [(), ("word_0", "flag_3", "whole_8")]
    for clique, exact in zip(cliques, encoded.marginals(cliques), strict=True):
        np.testing.assert_array_equal(reveal(exact), expected.marginal(clique), err_msg=str(clique))


def test_conditions_sums_bins_groups_and_units(encoded, expected):
    where = All((Not(Among("word_0", frozenset({0, 8}))), Among("flag_3", frozenset({0, 2}))))
    by = ("flag_3",)
    np.testing.assert_array_equal(reveal(encoded.marginals([by], where)[0]), expected.marginal(by, where))
    for value, unit in (("real_13", Fraction(1, 3)), ("whole_8", Fraction(7, 2)), ("whole_9", Fraction(2))):
        np.testing.assert_array_equal(
            reveal(encoded.sums(value, by, unit, where)), expected.sums(value, by, unit, where), err_msg=value
        )
    edges = [-2.5, 0.3, 7, 100]
    np.testing.assert_array_equal(reveal(encoded.bins("real_13", edges, by)), expected.bins("real_13", edges, by))
    groups = reveal(encoded.groups(("whole_8", "flag_3"), where))
    listed = list(zip(map(tuple, groups.codes.tolist()), groups.counts.tolist(), strict=True))
    assert listed == expected.groups(("whole_8", "flag_3"), where)
    np.testing.assert_array_equal(reveal(encoded.units(by)), expected.marginal(by))
    batches = [row for batch in reveal(encoded.batches(by)) for row in batch["flag_3"].to_pylist()]
    assert Counter(batches) == Counter(code for (code,), _ in expected.at(by))


def test_bounded_rows_are_the_same_on_duckdb_and_so_is_the_version(table, rows):
    domain = Domain(WIDE.attributes[:1] + WIDE.attributes[8:14], unit=Unit("person", rows=3))
    here, there = table.encode(domain), open_table(wide_arrow(odd_rows())).encode(domain)
    assert here.version == there.version
    cliques = [("word_0", "whole_8"), ()]
    for mine, theirs in zip(here.marginals(cliques), there.marginals(cliques), strict=True):
        np.testing.assert_array_equal(reveal(mine), reveal(theirs))
    np.testing.assert_array_equal(reveal(here.units(("word_0",))), reveal(there.units(("word_0",))))
    mine, theirs = (reveal(some.keys(("word",))) for some in (here, there))
    assert mine.to_pydict() == theirs.to_pydict()


def test_recoded_rows_are_shuffled_and_written_by_executors(encoded, table, expected, rows, tmp_path):
    levels = (np.array([0, 0, 1, 1], np.uint8),)
    recode = Recode(("flag_3",), levels, np.array([[0], [1]], np.uint8), pa.table({"flag": ["it's", "\\ none"]}))
    found = reveal(encoded.recoded(recode, ("digits", "whole")))
    wanted = Counter(
        ("it's" if code < 2 else "\\ none", row["digits"], row["whole"])
        for row, ((code,), _) in zip(rows, expected.at(("flag_3",)), strict=True)
    )
    assert Counter(zip(*found.to_pydict().values(), strict=True)) == wanted
    encoded.write_recoded(recode, ("digits", "whole"), tmp_path / "out.parquet")
    back = pq.read_table(tmp_path / "out.parquet")
    assert Counter(zip(*back.to_pydict().values(), strict=True)) == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_rules_and_weights_hold_in_rows_made_of_a_table_on_spark(spark, tmp_path):
    """Counts, scores and totals of the weight come from executors; no impossible row is drawn, though all is noisy."""
    random = np.random.default_rng(5)
    age, town = random.integers(0, 60, 3000), random.integers(0, 4, 3000)
    married, weight = (age >= 20) & (random.random(3000) < 0.6), random.integers(0, 5, 3000) + 10 * town
    columns = {"age": age, "married": np.where(married, "yes", "no"), "town": town, "weight": weight}
    (tmp_path / "rows").mkdir()
    for part in range(2):
        pq.write_table(pa.table(columns).slice(1500 * part, 1500), tmp_path / "rows" / f"part-{part}.parquet")
    domain = Domain((
        Integer(name="age", minimum=0, maximum=59, unknown=D),
        Categorical(name="married", values=("no", "yes"), unknown=D),
        Categorical(name="town", values=(0, 1, 2, 3), unknown=D),
        Integer(name="weight", minimum=0, maximum=39, unknown=K, role=Role.WEIGHT),
    ))  # fmt: skip
    loss = EpsilonDelta(2, "1e-6")
    ledger = f"sqlite:///{tmp_path / 'ledger'}"
    vault = open_vault(f"spark:{tmp_path / 'rows'}", domain=domain, ledger=ledger, limit=loss, create=True)
    zeros = read_zeros([{"if": {"age": "..19"}, "then": {"married": "no"}}], domain)
    release = batched(vault, loss=loss, total=NoisyTotal(), workload=all_marginals(2), zeros=zeros)
    found = release.rows.to_arrow().to_pydict()
    assert len(found["age"]) > 2000
    assert not any(each < 20 and wed == "yes" for each, wed in zip(found["age"], found["married"], strict=True))
    assert {total.attribute for total in release.model.totals} == {"age", "married", "town"}
    means = [np.mean(np.array(found["weight"])[np.array(found["town"]) == place]) for place in range(4)]
    assert np.diff(means).min() > 4  # of 10


def test_recoded_rows_keep_no_trace_of_the_order_they_came_in(spark, tmp_path):
    size = 4000
    pq.write_table(pa.table({"word": ["a", "b"] * (size // 2), "number": np.arange(size)}), tmp_path / "in.parquet")
    encoded = open_table(f"spark:{tmp_path}/in.parquet").encode(
        Domain((Categorical(name="word", values=("a", "b"), unknown=D),))
    )
    recode = Recode(
        ("word",), (np.arange(2, dtype=np.uint8),), np.array([[0], [1]], np.uint8), pa.table({"word": ["x", "y"]})
    )
    encoded.write_recoded(recode, ("number",), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["number"].to_numpy()
    assert np.array_equal(np.sort(found), np.arange(size))
    # Half of the neighbors ascend in a random order; nearly all would if Spark had dropped it. 10 standard deviations.
    assert abs(int((np.diff(found) > 0).sum()) - size / 2) < 10 * (size / 12) ** 0.5
    counted = pa.Table.from_batches(reveal(encoded.written(tmp_path / "out.parquet", ("word",)))).to_pylist()
    assert sorted(row["word"] for row in counted) == ["x", "y"]
    assert {row[ROWS] for row in counted} == {size // 2}


def test_dealt_rows_and_wide_keys_are_found_on_executors(spark):
    frame = spark.createDataFrame(pa.table({f"n{place}": [0, 0, 0, 99_999, 5] for place in range(5)}))
    domain = Domain(tuple(Integer(name=f"n{place}", minimum=0, maximum=99_999, unknown=D) for place in range(5)))
    levels = tuple(np.arange(100_000, dtype=np.uint32) for _ in range(5))  # 83 bits together
    classes = np.array([[0] * 5, [0] * 5, [99_999] * 5], np.uint32)
    labels = pa.table({f"n{place}": ["one", "two", "last"] for place in range(5)})
    recode = Recode(domain.names, levels, classes, labels, np.array([2, 1, 1]), "*")
    found = reveal(open_table(frame).encode(domain).recoded(recode, ()))
    assert Counter(found["n4"].to_pylist()) == {"one": 2, "two": 1, "last": 1, "*": 1}
    assert all(len(set(row.values())) == 1 for row in found.to_pylist())


def test_tables_and_frames_and_what_is_refused(spark, tmp_path):
    spark.sql("SELECT 'a' AS word UNION ALL SELECT NULL").createOrReplaceTempView("people_of_a_test")
    domain = Domain((Categorical(name="word", values=("a",), unknown=D),))
    for source in ("spark:people_of_a_test", spark.table("people_of_a_test")):
        assert reveal(open_table(source).encode(domain).marginals([()])[0]).tolist() == [1]
    for source in ("spark:nowhere_at_all", f"spark:{tmp_path}/absent", spark.sql("SELECT 1 AS x WHERE 1 = 0")):
        with pytest.raises(TableError) as refusal:
            open_table(source)
        assert "\n" not in str(refusal.value)
    first, second = open_table(spark.sql("SELECT 1 AS x, 2 AS X")).schema()
    assert first.name == "x"
    assert second.name.casefold() != "x"
    moment = open_table(spark.sql("SELECT TIMESTAMP '2024-03-31 01:30:00' AS word, 'a' COLLATE UTF8_LCASE AS folded"))
    for name in ("word", "folded"):
        with pytest.raises(TableError, match="no mapping"):
            moment.encode(Domain((Categorical(name=name, values=("a",), unknown=D),)))


NAMES = tuple(f"a{place}" for place in range(8))
LARGE = Domain(tuple(Integer(name=name, minimum=0, maximum=11, unknown=D) for name in NAMES), unit=Unit("id", rows=2))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A table large enough that counting it takes a while, in twelve files and in memory."""
    folder, generator, size = tmp_path_factory.mktemp("large"), np.random.default_rng(3), 120_000
    table = pa.table({name: generator.integers(0, 12, size) for name in NAMES} | {"id": np.arange(size) // 3})
    for part in range(12):
        pq.write_table(table.slice(part * size // 12, size // 12), folder / f"part-{part}.parquet")
    return folder, table


def stamp_later(path):
    """Give a file a time of writing that differs however fast this test is."""
    os.utime(path, (time.time() + 60, time.time() + 60))


CSV = {
    "plain.csv": b'word,n\na,1\n"a",\n"",2\n,3\n',
    "quoted.csv": b'word,n\n"a\nb",1\n"a""b",2\n" a",3\n',
    "mark.csv": b"\xef\xbb\xbfword,n\r\na,1\r\n01,2\r\n",
    "tabs.tsv": b"word\tn\na,b\t1\n",
    "packed.csv.gz": gzip.compress(b"word,n\na,1\n"),
    "index.csv": b'"","word","n","N",""\n"1","a",1,2,3\n"2","",2,3,4\n',
}
NO_CSV = {
    "short.csv": b"word,n\na,1\ns3cr3t\n",
    "long.csv": b"word,n\na,1\na,1,s3cr3t\n",
    "unnamed.csv": b",,\na,b,c\n",
    "empty.csv": b"",
    "header.csv": b"word,n\n",
}


def test_csv_means_on_spark_what_it_means_on_duckdb(spark, tmp_path):
    word = Categorical(name="word", values=("a", "", "01", "a\nb", 'a"b', "a,b"), unknown=C, nullable=True)
    domain = Domain((word, Integer(name="n", minimum=1, maximum=3, unknown=C, nullable=True)))
    for name, content in CSV.items():
        (tmp_path / name).write_bytes(content)
        here, there = (open_table(place).encode(domain) for place in (f"spark:{tmp_path / name}", tmp_path / name))
        assert here.version == there.version, name
    for name, content in NO_CSV.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError) as refusal:
            open_table(f"spark:{tmp_path / name}").encode(Domain((word,)))
        assert "s3cr3t" not in str(refusal.value)


def test_files_that_change_are_noticed_before_a_charge_and_a_new_opening_reads_them(spark, tmp_path):
    domain = Domain((Categorical(name="word", values=("a", "b"), unknown=C),))
    place = tmp_path / "t.parquet"
    pq.write_table(pa.table({"word": ["a", "b"]}), place)
    table = open_table(f"spark:{place}")
    with open_ledger(f"sqlite:///{tmp_path / 't.ledger'}", dataset="t", limit=Epsilon(1), create=True) as ledger:
        vault = Vault(table.encode(domain), ledger, UNDECLARED)
        pq.write_table(pa.table({"word": ["a", "a", "b"]}), place)
        stamp_later(place)
        with pytest.raises(EngineError, match="was written"):
            vault.measure([Marginal(("word",))], Epsilon("0.5"))
        assert not list(ledger.journal())
    with pytest.raises(EngineError, match="was written"):
        vault.encoded.marginals([("word",)])
    again = open_table(f"spark:{place}").encode(domain)
    assert reveal(again.marginals([("word",)])[0]).tolist() == [2, 1, 0]
    assert table.values("word").to_pylist() == ["a", "a", "b"]
    place.unlink()
    with pytest.raises(EngineError, match="lost a file"):
        again.groups(("word",))


def killed_in_the_middle(spark, call):
    """Return the result of a call during which an executor was killed.

    Both executors are halted at a moment when tasks run, so that the call cannot end before one of them is killed.
    """
    deadline = time.monotonic() + 120
    while len(executors(spark)) < 2 and time.monotonic() < deadline:  # another test may have killed one just now
        time.sleep(0.05)
    first, second = executors(spark)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        while not halted_at_work(spark, (first, second)):
            assert not result.done(), "the call ended before its tasks were seen"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(first, signal.SIGKILL)
        os.kill(second, signal.SIGCONT)
        return result.result()


def halted_at_work(spark, processes):
    """Halt the executors, of one core each; unless both have a task, let them go on and return False."""
    if active_tasks(spark) < len(processes):
        return False
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(0.2)  # the driver hears of tasks that ended just before
    if active_tasks(spark) >= len(processes):
        return True
    for process in processes:
        os.kill(process, signal.SIGCONT)
    return False


def active_tasks(spark):
    """Return how many tasks run now; a stage that has just ended may have no entry any more."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


@pytest.mark.slow
def test_an_executor_killed_in_the_middle_changes_nothing(spark, large):
    folder, table = large
    cliques = list(itertools.combinations(NAMES, 3))
    calm = open_table(table).encode(LARGE)
    encoded = open_table(f"spark:{folder}").encode(LARGE)
    tallies = killed_in_the_middle(spark, lambda: [reveal(exact) for exact in encoded.marginals(cliques)])
    for mine, exact in zip(tallies, calm.marginals(cliques), strict=True):
        np.testing.assert_array_equal(mine, reveal(exact))
    assert encoded.version == calm.version


def test_an_executor_killed_in_the_middle_of_a_release_is_charged_once(spark, large, tmp_path):
    folder, table = large
    cliques = [Marginal(clique) for clique in itertools.combinations(NAMES, 3)]
    loss, limit = Epsilon("100000"), Epsilon("300000")  # noise that is not zero has probability below 1e-600
    with open_ledger(f"sqlite:///{tmp_path / 'large.ledger'}", dataset="large", limit=limit, create=True) as ledger:
        vault = Vault(open_table(f"spark:{folder}").encode(LARGE), ledger, UNDECLARED)
        before = vault.encoded.version  # counted before the job that is hit
        released = killed_in_the_middle(spark, lambda: vault.measure(cliques, loss))
        (entry,) = ledger.journal()
        assert (entry.family, entry.method) == ("vault", "measure")
        assert ledger.remaining().spent == loss.charge
        again = vault.measure(cliques, loss)
        assert len(list(ledger.journal())) == 1, "asked again it is the stored answer"
        assert ledger.remaining().spent == loss.charge
        assert vault.encoded.version == before
    calm = open_table(table).encode(LARGE).marginals([clique.attributes for clique in cliques])
    for first, second, exact in zip(released, again, calm, strict=True):
        np.testing.assert_array_equal(first.values, reveal(exact))
        np.testing.assert_array_equal(second.values, first.values)


def executors(spark):
    """Process ids of the executors that this session's own machine has started."""
    driver = os.getpid()  # it started the virtual machine
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command:
            found.append(int(folder.name))

    def descends(process):
        while process in parents:
            process = parents[process]
            if process == driver:
                return True
        return False

    return [process for process in found if descends(process)]


def absorb(batches):
    return sum(sum(batch.column(0).to_pylist()) for batch in batches).to_bytes(8, "little")


def merge(states):
    return sum(int.from_bytes(state, "little") for state in states).to_bytes(8, "little")


def fail(batches):
    raise KeyError("s3cr3t")


def die(batches):
    os._exit(1)


@pytest.fixture
def carried():
    """Executors cannot import this module, so its functions travel by value."""
    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.usefixtures("carried")
def test_states_of_reports_are_merged_on_the_executors(spark):
    frame = spark.range(0, 1000, 1, 7)
    assert int.from_bytes(fold(frame, absorb, merge), "little") == sum(range(1000))


@pytest.mark.usefixtures("carried")
@pytest.mark.parametrize(("function", "told"), [(fail, "frame of reports: KeyError"), (die, "Python worker")])
def test_a_fold_that_fails_on_an_executor_is_one_sentence_without_values(spark, function, told):
    with pytest.raises(EngineError, match=told) as failure:
        fold(spark.range(0, 10, 1, 2), function, merge)
    assert failure.value.exit_code == 1
    assert "s3cr3t" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_fold_over_a_lost_file_and_over_what_cannot_be_folded_is_refused(spark, tmp_path):
    pq.write_table(pa.table({"report": [1, 2]}), tmp_path / "reports.parquet")
    frame = spark.read.parquet(str(tmp_path))
    held = threading.Lock()

    def unpicklable(_):
        return str(held).encode()

    for refused, function, told in (
        (arrow(odd_rows()), absorb, "not on pyarrow"),
        (frame.select(), absorb, "without columns"),
        (frame, unpicklable, "picklable"),
    ):
        with pytest.raises(InputError, match=told):
            fold(refused, function, merge)
    (tmp_path / "reports.parquet").unlink()
    with pytest.raises(EngineError, match="lost a file"):
        fold(frame, absorb, merge)


GONE = """
import os, signal, sys
import pyarrow as pa, pyarrow.parquet as pq
from pyspark.sql import SparkSession
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.engine.open import open_table
from sfumato.engine.spark.spark_session import fold
from sfumato.errors import EngineError

options = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
domain = Domain((Categorical(name="word", values=("a",), unknown=Unknown.DROP),))
pq.write_table(pa.table({"word": ["a"]}), "t.parquet")
for gone in ("stopped", "killed"):
    spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
    frame = spark.read.parquet("t.parquet")
    table = open_table(frame)
    encoded = table.encode(domain)
    if gone == "stopped":
        spark.stop()
    else:
        spark.sparkContext._gateway.proc.send_signal(signal.SIGKILL)
        spark.sparkContext._gateway.proc.wait()
    for call in (
        lambda: fold(frame, len, len),
        lambda: table.encode(domain),
        lambda: table.values("word"),
        lambda: encoded.marginals([("word",)]),
        lambda: encoded.version,
    ):
        try:
            call()
        except EngineError as error:
            print(gone, error)
try:
    open_table("spark:./t.parquet")
except EngineError as error:
    print("end", error)
"""


@pytest.mark.slow
def test_an_ended_spark_process_is_reported_in_a_message(tmp_path):
    require("JAVA_HOME")
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", GONE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("end the Spark of this process is gone")
    assert all(line.split(" ", 1)[1].startswith("the connection to Spark was lost") for line in lines[:-1])
    assert "Traceback" not in done.stderr


def test_a_unit_keeps_under_bounds_by_groups_the_rows_that_every_engine_keeps(tmp_path):
    checked(SPARK, people(odd_rows()), tmp_path, BOUNDS["several"])
