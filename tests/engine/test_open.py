"""Unreadable inputs are refused in one sentence that quotes no data."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, time
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import Recode
from sfumato.errors import EngineError, InputError, SfumatoError, TableError

WORD = Categorical(name="word", values=("a",), unknown=Unknown.CATEGORY)
SECRET = "s3cr3t"  # noqa: S105 - a value of a table, not a password


def refused(source, error=TableError):
    with pytest.raises(error) as refusal:
        open_table(source)
    message = str(refusal.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


def test_missing_files(tmp_path):
    assert "no file" in refused(tmp_path / "absent.csv")
    assert "no file" in refused(str(tmp_path / "absent.parquet"))
    assert "matches" in refused(str(tmp_path / "*.parquet"))
    assert "directory without" in refused(tmp_path)


def test_names_that_do_not_say_what_they_are(tmp_path):
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    assert ".csv" in refused(tmp_path / "table.xlsx", InputError)
    refused("x\0y.csv")
    refused("ftp://host/table", InputError)


def test_an_address_of_another_kind_is_refused_without_its_password():
    with pytest.raises(InputError, match="scheme 'oracle'") as refusal:
        open_table(f"oracle://ann:{SECRET}@db.example/census?table=people")
    assert "postgresql, postgres, mysql, mariadb, spark are known" in str(refusal.value)
    assert refusal.value.culprit == "oracle://db.example/census?table=people"


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "postgresql", "postgres"])
@pytest.mark.parametrize("slashes", ["", "/"])
def test_a_database_address_without_its_slashes_is_no_path(scheme, slashes):
    with pytest.raises(InputError, match=f"begins with {scheme}://") as refusal:
        open_table(f"{scheme}:{slashes}ann:{SECRET}@db.example/census?table=people")
    assert SECRET not in str(refusal.value) + repr(refusal.value)


@pytest.mark.parametrize(
    "source", [7, {"a": [1]}, [1, 2], None, object()], ids=["int", "dict", "list", "None", "object"]
)
def test_things_that_are_no_table(source):
    assert "frame" in refused(source, InputError)


FILES = {
    "empty.csv": b"",
    "blank.csv": b"\n",
    "header.csv": b"word,other\n",
    "garbage.csv": bytes(range(128, 256)) * 10,
    "mac.csv": b"word,other\ra,b\rc,d\r",
    "spreadsheet.csv": b"sep=;\nword;other\na;b\n",
    "null.csv": b"\0\0\0\0,\0\n\0,\0\n",
    "unnamed.csv": b",,\na,b,c\n",
    "plain.csv.gz": b"word\na\n",
    "cut.csv.gz": gzip.compress(b"word\n" + b"a\n" * 100_000)[:50],
    "garbage.parquet": b"PAR1 but not really PAR1",
    "empty.parquet": b"",
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_not_what_they_say(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    refused(tmp_path / name)


def test_tables_without_rows(tmp_path):
    """A draft needs rows.  A described table may have none, because one person may own them all."""
    empty = pa.table({"word": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "empty.parquet")
    (tmp_path / "empty.csv").write_text("word\n")
    domain = Domain((Categorical(name="word", values=("a", "b"), unknown=Unknown.DROP),))
    files = (tmp_path / "empty.parquet", tmp_path / "empty.csv")
    for source in (*files, empty, empty.to_pandas(), pl.from_arrow(empty), pl.DataFrame(schema=["word"])):
        assert "no rows" in refused(source)
        encoded = open_table(source, empty=True).encode(domain)
        assert reveal(encoded.marginals([("word",)])[0]).tolist() == [0, 0]


def test_frames_that_arrow_cannot_hold():
    mixed = refused(pd.DataFrame({"age": [1, 2, 3], "word": [SECRET, 1, 2.5]}, dtype=object))
    assert "mixes types: 'word'; make it text or numbers, such as frame['word'].astype('string')" in mixed
    assert "no columns" in refused(pd.DataFrame())
    assert "of a type" in refused(pa.table({"half": pa.array(np.array([1.5], np.float16))}))
    assert "of a type" in refused(pa.table({"wide": pa.array([Decimal("1.5")], pa.decimal256(50, 2))}))


def test_periods_and_intervals_of_pandas_are_texts():
    ages, months = pd.Series([3, 30, 50, None]), pd.Series(pd.to_datetime(["2023-01-05", "2023-02-05", None, None]))
    cut = pd.cut(ages, [0, 20, 40], right=False)
    frame = pd.DataFrame({"cut": cut, "span": pd.arrays.IntervalArray(cut), "month": months.dt.to_period("M")})
    types = [
        Categorical(name=name, values=values, unknown=Unknown.CATEGORY, nullable=True)
        for name, values in {
            "cut": ("[0.0, 20.0)", "[20.0, 40.0)"),
            "span": ("[0.0, 20.0)", "[20.0, 40.0)"),
            "month": ("2023-01", "2023-02"),
        }.items()
    ]
    for attribute in types:
        (counts,) = open_table(frame).encode(Domain((attribute,))).marginals([(attribute.name,)])
        assert reveal(counts).tolist() == [1, 1, 2, 0]


ROWS = {
    "ragged.csv": (b"word,other\na,1\ns3cr3t\n", "line 3"),
    "wide.csv": (b"word,other\na,1\na,1,s3cr3t\n", "line 3"),
    "open.csv": (b'word,other\na,1\na,"s3cr3t\n', "line 3"),
    "latin.csv": (b"word,other\ns3cr3t\xff,1\n", "line 2 is not UTF-8"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_cannot_be_read_are_told_by_line_not_by_value(tmp_path, name):
    content, place = ROWS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=place) as refusal:
        open_table(tmp_path / name).encode(Domain((WORD,)))
    assert SECRET not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("column", "attribute"),
    [
        (pa.array([datetime(2024, 3, 31, 1, 30, tzinfo=UTC)]), WORD),
        (pa.array([datetime(2024, 3, 31, 1, 30)]), WORD),  # noqa: DTZ001 - a time without a zone is the case
        (pa.array([time(1, 2)]), WORD),
        (pa.array([b"a"]), WORD),
        (pa.array([["a"]]), WORD),
        (pa.array([{"x": "a"}]), WORD),
        (pa.array([1.5]), WORD),
        (pa.array([True]), Categorical(name="word", values=(1, 0), unknown=Unknown.DROP)),
        (pa.array([True]), Integer(name="word", minimum=0, maximum=1, unknown=Unknown.DROP)),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_columns_without_a_mapping_are_refused_not_guessed(column, attribute):
    table = open_table(pa.table({"word": column}))
    with pytest.raises(TableError, match="no mapping"):
        table.encode(Domain((attribute,)))


def test_an_id_that_is_not_there_or_no_id():
    table = open_table(pa.table({"word": ["a"], "when": [datetime(2024, 1, 1, tzinfo=UTC)]}))
    for column in ("absent", "when"):
        with pytest.raises(TableError):
            table.encode(Domain((WORD,), unit=Unit(column, rows=1)))


def test_a_file_that_vanishes_after_opening(tmp_path):
    (tmp_path / "t.csv").write_text("word\na\n")
    table = open_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").unlink()
    with pytest.raises(SfumatoError) as refusal:
        table.encode(Domain((WORD,)))
    assert "\n" not in str(refusal.value)


def rewrite(file):
    new = file.with_suffix(".new")
    new.write_text("word,note\nb,y\n")
    new.replace(file)


@pytest.mark.parametrize("change", [lambda file: file.unlink(), rewrite], ids=["deleted", "replaced"])
def test_a_file_that_changes_after_its_encoding_has_no_version_to_charge_for(tmp_path, change):
    file = tmp_path / "t.csv"
    file.write_text("word,note\na,x\n")
    encoded = open_table(file).encode(Domain((WORD,)))
    assert encoded.version == encoded.version
    change(file)
    with pytest.raises(EngineError, match="was written since it was encoded; open it again"):
        _ = encoded.version


READ_AGAIN = {
    "keys": lambda encoded: encoded.keys(("word",)),
    "rows": lambda encoded: encoded.rows_before_drop(),
    "all rows": lambda encoded: encoded.unbounded(),
    "values held": lambda encoded: encoded.held("word"),
    "raw columns": lambda encoded: encoded.recoded(
        Recode(("word",), (np.zeros(2, np.uint8),), np.zeros((1, 1), np.uint8), pa.table({"word": ["all"]})), ("note",)
    ),
}


@pytest.mark.parametrize("read", READ_AGAIN.values(), ids=READ_AGAIN)
def test_what_reads_a_file_again_never_returns_another_ones_content(tmp_path, read):
    file = tmp_path / "t.csv"
    file.write_text("word,note\na,x\n")
    encoded = open_table(file).encode(Domain((WORD,)))
    read(encoded)
    rewrite(file)
    with pytest.raises(EngineError, match="open it again"):
        read(encoded)


def test_a_column_of_another_length_is_refused(tmp_path):
    store = open_table(pa.table({"word": ["a", "a"]})).encode(Domain((WORD,))).store
    store.column("c0", np.empty(2, dtype=np.uint8))
    for rows in (1, 3):
        with pytest.raises(EngineError, match=f"has 2 encoded rows of the pyarrow frame, not {rows}"):
            store.column("c0", np.empty(rows, dtype=np.uint8))


def test_names_with_odd_characters(tmp_path):
    folder = tmp_path / "it's [a] \u00e9*"
    folder.mkdir()
    (folder / "x'y[1].csv").write_text('"wo""rd; DROP",it\'s\n" a",2\n')
    domain = Domain((Categorical(name='wo"rd; DROP', values=(" a",), unknown=Unknown.DROP),))
    encoded = open_table(folder / "x'y[1].csv").encode(domain)
    assert reveal(encoded.marginals([()])[0]).tolist() == [1]
    odd = pa.table({"c0": ["c0"], "u": ["u"], "m0": ["m0"], 'it\'s "x"': ["\0"]})
    attributes = [
        Categorical(name=name, values=(value,), unknown=Unknown.DROP) for name, (value,) in odd.to_pydict().items()
    ]
    encoded = open_table(odd).encode(Domain(tuple(attributes), unit=Unit("u", rows=1)))
    assert reveal(encoded.marginals([odd.column_names[::-1]])[0]).tolist() == [1]
    assert reveal(encoded.keys(("u", "c0"))).to_pylist() == [{"u": "u", "c0": "c0", "units": 1}]


PACKAGES = [
    ("psycopg", "postgresql://ann:hidden@127.0.0.1:1/x?table=t", "postgres"),
    ("pymysql", "mysql://ann:hidden@127.0.0.1:1/x?table=t", "mysql"),
    ("pyspark", "spark:people.parquet", "spark"),
]


@pytest.mark.parametrize(("package", "address", "extra"), PACKAGES, ids=lambda word: word.partition(":")[0])
def test_a_package_that_is_not_installed_is_named_with_its_extra(package, address, extra):
    """The test runs in its own process, because a loaded driver stays loaded."""
    script = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['sfumato', 'domain', 'draft', {address!r}]\n"
        "from sfumato.app.cli.main import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{package}, which is not installed. Run: pip install 'sfumato[{extra}]'" in done.stderr
    assert "hidden" not in done.stderr


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_a_missing_java_is_said_with_what_to_install(home, tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "JAVA_HOME": home}  # no Java on the path, none at home
    script = (
        "import sys; sys.argv = ['', 'domain', 'draft', 'spark:x.parquet']; import sfumato.app.cli.main as m; m.run()"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "Java 17" in done.stderr
    assert "default-jre-headless" in done.stderr
    assert "Traceback" not in done.stderr


ODD = pa.table(
    {
        "age": [1] * 4,
        "moment": pa.array([1577840523456789, None] * 2, pa.timestamp("us")),
        "bytes": [b"\x00\xff", b"a", b"", None],
        "list": [[1, 2], [], None, [3]],
        "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 3, "b": ","}],
    }
)


@pytest.mark.parametrize("name", ODD.column_names[1:])
def test_odd_columns_that_are_kept_come_out_equal_or_are_refused(name, tmp_path):
    encoded = open_table(ODD).encode(Domain((Integer(name="age", minimum=0, maximum=1, unknown=Unknown.DROP),)))
    recode = Recode(("age",), (np.zeros(2, np.uint8),), np.array([[0]], np.uint8), pa.table({"age": ["any"]}))
    encoded.write_recoded(recode, (name,), tmp_path / "out.parquet")
    wanted = Counter(map(repr, ODD[name].to_pylist()))
    assert Counter(map(repr, pq.read_table(tmp_path / "out.parquet")[name].to_pylist())) == wanted
    if name == "moment":
        encoded.write_recoded(recode, (name,), tmp_path / "out.csv")
        assert Counter((tmp_path / "out.csv").read_text().splitlines()[1:]) == {
            "any,2020-01-01 01:02:03.456789": 2,
            "any,": 2,
        }
        return
    with pytest.raises(TableError, match=f"{name!r} is of type .* which CSV cannot hold"):
        encoded.write_recoded(recode, (name,), tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
