"""Tables of one process share a database in memory: what that costs, and that no table feels another."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.engine.duckdb.duck_adapter import Frame
from sfumato.engine.duckdb.duck_session import shared_session
from sfumato.engine.duckdb.duck_table import DuckTable
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import Encoded

NUMBERS = Domain((Integer(name="number", unknown=Unknown.CLAMP, minimum=0, maximum=9),), unit=Unit.row())
OF_PEOPLE = Domain(NUMBERS.attributes, unit=Unit("person", rows=2))


def _counts(encoded: Encoded) -> list[int]:
    return list(reveal(encoded.marginals([("number",)])[0]))


def _rows(number: int, rows: int) -> pa.Table:
    return pa.table({"number": [number] * rows, "person": [f"p{row // 3}" for row in range(rows)]})


def _run(program: str, *arguments: str) -> str:
    """Return the output of a program in its own process, which must end on its own and without errors."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


MEMORY = """
    import gc, sys
    from pathlib import Path
    from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
    from sfumato.engine.duckdb.duck_adapter import file_source
    from sfumato.engine.duckdb.duck_table import DuckTable

    folder, shared, tables = sys.argv[1], sys.argv[2] == "shared", int(sys.argv[3])
    domain = Domain((
        Categorical(name="sex", unknown=Unknown.DROP, values=("f", "m")),
        Integer(name="age", unknown=Unknown.CLAMP, minimum=0, maximum=99),
        Real(name="income", unknown=Unknown.CLAMP, edges=(0.0, 250.0, 500.0, 1000.0)),
    ))

    def resident():
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def registered():
        table = DuckTable.open(file_source(f"{folder}/people.parquet"), threads=None if shared else 2)
        encoded = table.encode(domain)
        encoded.version
        encoded.marginals([("sex", "age")])
        return encoded

    kept = [registered() for _ in range(5)]
    before = resident()
    kept += [registered() for _ in range(tables)]
    print((resident() - before) / tables)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read off /proc")
def test_a_small_table_costs_below_3_megabytes_and_a_fifth_of_one_alone(tmp_path):
    # Measured: 0.2 and 4.6 MB a table, so both bounds hold by a wide margin on a busy machine as well.
    numbers = np.random.default_rng(1)
    people = {
        "sex": numbers.choice(["f", "m"], 1000),
        "age": numbers.integers(0, 100, 1000),
        "income": numbers.random(1000) * 1000,
    }
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    shared = float(_run(MEMORY, str(tmp_path), "shared", "100"))
    alone = float(_run(MEMORY, str(tmp_path), "alone", "20"))
    assert shared < 3
    assert shared < alone / 5


def test_paths_of_one_name_a_path_twice_and_frames_are_kept_apart(tmp_path):
    opened = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        pq.write_table(_rows(number, 30), tmp_path / str(number) / "people.parquet")
        opened.append(open_table(tmp_path / str(number) / "people.parquet"))
    opened += [open_table(_rows(3, 30)), open_table(_rows(4, 30))]
    encoded = [table.encode(domain) for table in opened for domain in (NUMBERS, OF_PEOPLE)]
    for place, each in enumerate(encoded):
        counts = [0] * 10
        counts[1 + place // 2] = 20 if place % 2 else 30
        assert _counts(each) == counts
        assert reveal(each.dropped(9))[0] == (10 if place % 2 else 0)
        assert len(reveal(each.keys(("person",)))) == 10
    assert len({each.version for each in encoded}) == 8
    assert [table.profile(5)[0].values for table in opened] == [(1,), (2,), (3,), (4,)]


def test_files_that_cannot_be_written_are_read_with_nothing_beside_them(tmp_path):
    place = tmp_path / "people.parquet"
    pq.write_table(_rows(5, 30), place)
    place.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        encoded = open_table(place).encode(OF_PEOPLE)
        assert _counts(encoded)[5] == 20
        assert reveal(encoded.keys(("person",))).num_rows == 10
        assert [each.name for each in tmp_path.iterdir()] == ["people.parquet"]
    finally:
        tmp_path.chmod(0o700)


def test_threads_open_count_and_close_tables_at_the_same_time():
    def several(number: int) -> set[tuple[int, ...]]:
        found = set()
        for _ in range(3):
            table = open_table(_rows(number, 3000))
            for domain, rows in ((NUMBERS, 3000), (OF_PEOPLE, 2000)):
                encoded = table.encode(domain)
                assert _counts(encoded)[number] == rows
                found.add(tuple(_counts(encoded)))
                assert len(reveal(encoded.groups(("number",))).counts) == 1
            assert table.profile(3)[0].values == (number,)
        return found

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(several, range(8)))
    assert all(len(each) == 2 for each in found)
    assert len(set.union(*found)) == 16


def test_what_is_closed_is_forgotten_and_the_folder_goes_last():
    kept = open_table(_rows(1, 30)).encode(NUMBERS)
    session = shared_session()

    def encoded_tables() -> int:
        gc.collect()
        with session.cursor("the test") as cursor:
            return len(cursor.sql("SHOW TABLES").fetchall())

    before = encoded_tables()
    others = [open_table(_rows(2, 30)).encode(domain) for domain in (NUMBERS, OF_PEOPLE)]
    assert encoded_tables() == before + 2
    del others
    assert encoded_tables() == before
    assert _counts(kept)[1] == 30

    alone = DuckTable.open(Frame(_rows(3, 30), "the frame"), threads=1)
    folder = alone.session.scratch
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o077 == 0
    del alone
    gc.collect()
    assert not folder.exists()


ENDED = """
    import duckdb
    import pyarrow as pa
    from sfumato.domain import Domain, Integer, Unknown
    from sfumato.engine.exact import reveal
    from sfumato.engine.open import open_table
    from sfumato.errors import EngineError

    domain = Domain((Integer(name="number", unknown=Unknown.CLAMP, minimum=0, maximum=9),))

    def rows(number):
        return pa.table({"number": [number] * 30})

    def refused(ask):
        try:
            ask()
        except EngineError as error:
            assert "open it again" in str(error)
            assert "values" not in str(error)
        else:
            raise AssertionError("not refused")

    def fail():
        with tables[1].reading():
            raise duckdb.InternalException("of values that nobody should see")

    tables = [open_table(rows(number)) for number in (1, 2)]
    encoded = [table.encode(domain) for table in tables]
    assert encoded[0].version
    refused(fail)
    for each in encoded:
        refused(lambda: each.version)
    refused(lambda: tables[0].encode(domain))
    assert reveal(open_table(rows(1)).encode(domain).marginals([("number",)])[0]).tolist()[1] == 30
    print("well")
"""


def test_after_duckdb_has_ended_every_table_says_so_and_opens_again():
    assert _run(ENDED) == "well\n"


FORK = """
    import gc, os, sys
    import pyarrow as pa
    from sfumato.domain import Domain, Integer, Unknown
    from sfumato.engine.exact import reveal
    from sfumato.engine.open import open_table
    from sfumato.errors import EngineError

    domain = Domain((Integer(name="number", unknown=Unknown.CLAMP, minimum=0, maximum=9),))

    def rows(number):
        return open_table(pa.table({"number": [number] * 100_000}))

    def counts(encoded):
        return reveal(encoded.marginals([("number",)])[0]).tolist()

    table = rows(1)
    encoded = table.encode(domain)
    child = os.fork()
    if child == 0:
        for ask in (lambda: encoded.version, lambda: table.encode(domain), lambda: table.values("number")):
            try:
                ask()
            except EngineError as error:
                assert "forked" in str(error)
            else:
                os._exit(1)
        assert counts(rows(2).encode(domain))[2] == 100_000
        del table, encoded
        gc.collect()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert table.session.scratch.is_dir()
    assert counts(table.encode(domain)) == counts(encoded) == [0, 100_000] + [0] * 8
    print("well")
"""


def test_a_forked_child_opens_its_own_and_leaves_the_parents_alone():
    assert _run(FORK) == "well\n"
