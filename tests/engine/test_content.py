"""The content of a table is named by all its rows and columns, and by nothing else."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.conftest import ADAPTERS, SPARK, Adapter, odd_rows

from sfumato.domain import Categorical, CsvFormat, Domain, Unknown
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.duckdb.duck_table import DuckTable
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.views.joined import open_tables_with_content
from sfumato.errors import EngineError

DOMAIN = Domain((Categorical(name="word", values=("a", "b"), unknown=Unknown.CATEGORY, nullable=True),))
SLOW = pytest.param(SPARK, marks=pytest.mark.slow)
NAMES = {  # they stay: ledgers hold digests of them
    "duckdb-csv": "ea73fb75b85bd43aa914ba7eeb709b203fdc64085abb2d575780d5d024bfc2a2",
    "duckdb": "25ffc1d5f3d55105525c1480077e229d1a7d7479aa86012207d013feb262e75f",
    "postgres": "83cd25d3cf20c788df74d86028c56dcf35e8e8a31532f476c13ef01846fa6650",
    "mariadb": "7f3121d94420de503284372daa1f55ac595a8d4e857752bb4f56b3cb49291f5d",
    "spark": "dd635728d21c98cf01b0230604ca1ebab4377d8e92853ac02c9efcbc3e89c1f1",
}


def named(adapter: Adapter, rows: list[dict[str, Any]], folder: Path) -> str:
    folder.mkdir()
    return adapter.open(rows, folder).encode_with_content(DOMAIN)[1].name


def of_table(table: object, domain: Domain = DOMAIN) -> str:
    return open_table(table).encode_with_content(domain)[1].name


@pytest.mark.parametrize("adapter", [*ADAPTERS, SLOW], ids=repr)
def test_tables_keep_the_names_that_ledgers_know_them_by(adapter: Adapter, tmp_path: Path) -> None:
    name = adapter.name if adapter.text_only else adapter.name.partition("-")[0]
    assert named(adapter, odd_rows(), tmp_path / "odd") == NAMES[name]


@pytest.mark.parametrize("adapter", [*ADAPTERS, SLOW], ids=repr)
def test_any_value_that_changes_changes_the_name_and_the_order_of_rows_does_not(
    adapter: Adapter, tmp_path: Path
) -> None:
    rows = odd_rows()
    first = named(adapter, rows, tmp_path / "first")
    assert named(adapter, rows[::-1], tmp_path / "reversed") == first
    found = {
        first,
        named(adapter, rows[1:], tmp_path / "shorter"),
        named(adapter, [*rows, rows[0]], tmp_path / "longer"),
    }
    seen = adapter.seen(rows)
    for column in rows[0]:
        other = next(place for place, row in enumerate(seen) if row[column] != seen[5][column])
        changed = [*rows]
        changed[5] = {**rows[5], column: rows[other][column]}
        found.add(named(adapter, changed, tmp_path / column))
    assert len(found) == 3 + len(rows[0])


def test_the_layout_of_files_does_not_change_the_name(tmp_path: Path) -> None:
    table = pa.table({"word": ["a", "b", None, "a"] * 50, "n": list(range(200))})
    parts = tmp_path / "parts"
    parts.mkdir()
    pq.write_table(table.slice(0, 30), parts / "0.parquet", compression="zstd")
    pq.write_table(table.slice(30), parts / "1.parquet", row_group_size=7, use_dictionary=False)
    narrow = table.cast(pa.schema([("word", pa.dictionary(pa.int8(), pa.string())), ("n", pa.int16())]))
    assert len({of_table(each) for each in (table, str(parts), narrow, table.select(["n", "word"]))}) == 1
    (tmp_path / "comma.csv").write_text("word,n\na,1\nb,2\n")
    (tmp_path / "quoted.csv").write_text('"n","word"\n"2","b"\n"1","a"\n')
    assert of_table(tmp_path / "comma.csv") == of_table(tmp_path / "quoted.csv")


ODD = st.lists(st.tuples(*[st.text(" 0a", max_size=4) | st.none()] * 2), min_size=1, max_size=4)


@given(ODD, ODD)
def test_no_two_tables_of_odd_texts_have_one_name(one: list[Any], other: list[Any]) -> None:
    tables = [
        pa.table(
            {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(("word", "b"))}
        )
        for rows in (one, other)
    ]
    same = Counter(one) == Counter(other)
    assert (of_table(tables[0]) == of_table(tables[1])) == same


def test_names_of_columns_and_types_that_no_domain_takes_are_in_the_name() -> None:
    nested = [pa.array([[1], [2]]), pa.array([[1], [3]]), pa.array([b"a", b"b"]), pa.array([{"x": 1}, {"x": 2}])]
    tables = [pa.table({"word": ["a", "b"], "more": each}) for each in nested]
    tables.append(tables[0].rename_columns(["word", "others"]))
    assert len({of_table(each) for each in tables}) == len(tables)


def test_moments_are_named_by_the_time_and_not_by_the_clock_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    moments = pa.array([noon, noon + timedelta(microseconds=1)], pa.timestamp("us", tz="UTC"))
    table = pa.table({"word": ["a", "b"], "at": moments})
    same = table.set_column(1, "at", moments.cast(pa.timestamp("us", tz="Asia/Tokyo")))
    assert of_table(table) == of_table(same)
    assert of_table(table) != of_table(table.set_column(1, "at", moments.take([0, 0])))
    fine = pa.array([1, 2], pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    assert of_table(table.set_column(1, "at", fine)) != of_table(table.set_column(1, "at", fine.take([0, 0])))


def test_files_that_are_written_while_they_are_read_have_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("word,n\na,1\n")
    content = DuckTable.content

    def write_first(self: DuckTable) -> str:
        file.write_text("word,n\na,1\nb,2\n")
        return content(self)

    monkeypatch.setattr(DuckTable, "content", write_first)
    _, read = open_table(file).encode_with_content(DOMAIN)
    with pytest.raises(EngineError, match="was written since"):
        _ = read.name


WORD = {"type": "categorical", "values": ["a"], "unknown": "drop"}
SCHEMA = parse_schema(
    {
        "sfumato": 2,
        "schema": "shop",
        "unit": {"id": "id", "table": "people"},
        "tables": {
            "people": {
                "key": "id",
                "attributes": {"word": {"type": "categorical", "values": ["a"], "unknown": "drop"}},
            },
            "buys": {"unit": "id", "rows": 2, "references": {"kind": "kinds"}, "attributes": {}},
            "kinds": {"public": True, "key": "kind", "attributes": {}},
        },
    }
)
SHOP = {
    "people": pa.table({"id": [1, 2], "word": ["a", "b"], "unused": [1, 2]}),
    "buys": pa.table({"id": [1, 2, 2], "kind": ["x", "y", "y"]}),
    "kinds": pa.table({"kind": ["x", "y"]}),
}


def test_all_tables_of_a_schema_are_in_the_name_the_public_ones_too() -> None:
    changes = {
        "people": ({"id": [1, 2], "word": ["a", "b"], "unused": [1, 3]}, {"id": [1], "word": ["a"], "unused": [1]}),
        "buys": ({"id": [1, 2, 2], "kind": ["x", "y", "x"]}, {"id": [1, 2], "kind": ["x", "y"]}),
        "kinds": ({"kind": ["x", "z"]}, {"kind": ["x", "y", "z"]}),
    }
    found = {open_tables_with_content(SCHEMA, SHOP)[1].name}
    assert found == {open_tables_with_content(SCHEMA, dict(reversed(SHOP.items())))[1].name}
    for name, tables in changes.items():
        found |= {open_tables_with_content(SCHEMA, {**SHOP, name: pa.table(each)})[1].name for each in tables}
    assert len(found) == 7


def test_the_encoded_rows_are_those_that_are_named() -> None:
    encoded, _ = open_table(pa.table({"word": ["a", "a", "b"]})).encode_with_content(DOMAIN)
    assert reveal(encoded.marginals([("word",)])[0]).tolist() == [2, 1, 0, 0]


def test_the_bytes_of_files_are_named_whatever_the_files_are_called(tmp_path: Path) -> None:
    def files(place: Path | pa.Table, csv: CsvFormat | None = None) -> str:
        return open_table(place, csv=csv).encode_with_content(DOMAIN)[1].files

    for name in ("one.csv", "other.csv", "tabs.tsv"):
        (tmp_path / name).write_text("word\na\nb\n")
    assert files(tmp_path / "one.csv") == files(tmp_path / "other.csv") != ""
    found = {files(tmp_path / "one.csv"), files(tmp_path / "tabs.tsv")}
    found.add(files(tmp_path / "one.csv", CsvFormat(trim=True)))
    (tmp_path / "one.csv").write_text("word\na\na\n")
    found.add(files(tmp_path / "one.csv"))
    assert len(found) == 4
    assert files(pa.table({"word": ["a"]})) == ""


def test_the_files_of_a_schema_have_a_name_if_all_tables_are_files(tmp_path: Path) -> None:
    for name, table in SHOP.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    first = open_tables_with_content(SCHEMA, tmp_path)[1]
    assert first.files == open_tables_with_content(SCHEMA, str(tmp_path))[1].files != ""
    assert first.name == open_tables_with_content(SCHEMA, SHOP)[1].name
    mixed = {**SHOP, "kinds": str(tmp_path / "kinds.parquet")}
    assert open_tables_with_content(SCHEMA, mixed)[1].files == ""
    pq.write_table(pa.table({"kind": ["x", "z"]}), tmp_path / "kinds.parquet")
    assert open_tables_with_content(SCHEMA, tmp_path)[1].files != first.files


def test_a_file_that_is_written_before_its_content_is_asked_for_has_none(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("word\na\n")
    _, content = open_table(file).encode_with_content(DOMAIN)
    file.write_text("word\nb\n")
    with pytest.raises(EngineError, match="was written since"):
        _ = content.name
