"""A copy of a table encodes to what the table does, on every engine, and a file of it that was changed is noticed."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.conftest import SCHEMA, SPARK
from tests.engine.test_conformance import ATTRIBUTES

from sfumato.domain import CsvFormat, Domain, Integer, Real, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import TableCopy, copy_table, open_table
from sfumato.errors import TableError

UNITS = {"person": 3, "number": 3, "precise": 40, "amount": 40, "whole": 40}


@pytest.fixture(scope="module")
def copied(table, tmp_path_factory):
    """The odd table's copy, all of whose columns are values, and the document of it."""
    folder = tmp_path_factory.mktemp("copy")
    found = copy_table(table, "odd", folder, attributes=SCHEMA.names, ids=["person", "number"])
    return TableCopy.read(json.loads(json.dumps(found.describe()))).open(folder)


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: f"{attribute.name}-{attribute.unknown}")
def test_each_odd_value_falls_into_the_cell_that_its_table_gives_it(copied, adapter, oracle, rows, attribute):
    domain = Domain((attribute,))
    (counts,) = copied.encode(domain).marginals([(attribute.name,)])
    np.testing.assert_array_equal(reveal(counts), oracle(domain, adapter.seen(rows)).marginal([attribute.name]))


@pytest.mark.parametrize("unknown", list(Unknown))
def test_nan_and_infinity_fall_where_their_table_has_them(copied, adapter, oracle, rows, unknown):
    domain = Domain((Real(name="wild", edges=(0.0, 0.25, 1.0), unknown=unknown, nullable=True),))
    (counts,) = copied.encode(domain).marginals([("wild",)])
    np.testing.assert_array_equal(reveal(counts), oracle(domain, adapter.seen(rows)).marginal(["wild"]))


@pytest.mark.parametrize("name", UNITS)
def test_ids_stay_apart_with_all_their_digits(table, tmp_path, name):
    domain = Domain((Integer(name="unsigned", minimum=0, maximum=99, unknown=Unknown.CLAMP),), unit=Unit(name, 1))
    found = copy_table(table, "odd", tmp_path, attributes=["unsigned"], ids=[name]).open(tmp_path)
    own, copy = (reveal(each.encode(domain).units(())) for each in (table, found))
    np.testing.assert_array_equal(copy, own)


def test_values_that_are_discovered_are_spelled_alike(table, tmp_path):
    names = ("word", "precise", "real", "flag", "whole")
    found = copy_table(table, "odd", tmp_path, attributes=["whole"], ids=names).open(tmp_path)
    domain = Domain((Integer(name="whole", minimum=0, maximum=99, unknown=Unknown.CLAMP, nullable=True),))
    for name in names:
        own, copy = (reveal(each.encode(domain).keys((name,))).to_pylist() for each in (table, found))
        assert sorted(map(str, copy)) == sorted(map(str, own))


def test_text_with_decimal_commas_stays_numbers(tmp_path):
    (tmp_path / "sums.csv").write_text("income;when\n1.234,5;2020-03-29T03:30:00+02:00\nnone;x\n7;\n")
    form = CsvFormat(delimiter=";", decimal=",", thousands=".")
    found = copy_table(
        open_table(tmp_path / "sums.csv", csv=form), "t", tmp_path, attributes=["income", "when"], ids=[]
    ).open(tmp_path)
    domain = Domain((Real(name="income", edges=(0.0, 1000.0, 2000.0), unknown=Unknown.CATEGORY),))
    (counts,) = found.encode(domain).marginals([("income",)])
    assert reveal(counts).tolist() == [1, 1, 1]


def test_moments_of_files_stay_moments(tmp_path):
    moments = pa.array([1_585_443_600_000_000_000, None], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"when": moments}), tmp_path / "when.parquet")
    source = open_table(tmp_path / "when.parquet")
    found = copy_table(source, "t", tmp_path, attributes=["when"], ids=[]).open(tmp_path)
    assert found.schema() == source.schema()


def test_a_copy_on_spark_is_read_by_spark(oracle, rows, tmp_path):
    for name in ("source", "copy"):
        (tmp_path / name).mkdir()
    table = SPARK.open(rows, tmp_path / "source")
    made = copy_table(table, "odd", tmp_path / "copy", attributes=["word", "precise", "day"], ids=["person"])
    assert len(made.files) > 1
    found = made.open(tmp_path / "copy")
    assert [column for column in found.schema() if column.name == "precise"] == [
        column for column in table.schema() if column.name == "precise"
    ]
    domain = Domain((ATTRIBUTES[0],), unit=Unit("person", 3))
    own, copy = (reveal(each.encode(domain).marginals([("word",)])[0]) for each in (table, found))
    np.testing.assert_array_equal(copy, own)


def test_a_changed_added_or_missing_file_is_noticed(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "source.parquet")
    found = copy_table(open_table(tmp_path / "source.parquet"), "t", tmp_path, attributes=["a"], ids=[])
    copy = tmp_path / "t.parquet"
    whole = copy.read_bytes()
    assert found.is_whole(tmp_path)
    copy.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    assert not found.is_whole(tmp_path)
    copy.unlink()
    assert not found.is_whole(tmp_path)
    copy.mkdir()
    assert not found.is_whole(tmp_path)
    (copy / "part.parquet").write_bytes(whole)
    assert not found.is_whole(tmp_path)


def test_nothing_is_left_of_a_copy_that_fails(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "source.parquet")
    (tmp_path / "into").mkdir()
    with pytest.raises(TableError, match="no column 'b'"):
        copy_table(open_table(tmp_path / "source.parquet"), "t", tmp_path / "into", attributes=["a"], ids=["b"])
    assert list((tmp_path / "into").iterdir()) == []
