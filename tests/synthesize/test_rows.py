"""Cells become rows in the table's own types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.synthesize import product
from sfumato.synthesize.product import OTHER, DrawnRows, round_to_total, to_arrow
from sfumato.vault.release import ReleasedRows


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(0, 10_000), st.integers(0, 1 << 32))
def test_rounding_keeps_the_total_and_moves_no_run_of_cells_by_one(weights, total, seed):
    weights = np.array(weights)
    counts = round_to_total(weights, total, np.random.default_rng(seed))
    assert counts.sum() == total
    assert counts.min() >= 0
    if weights.sum() > 1e-3:
        scaled = weights * (total / weights.sum())
        assert np.abs(np.cumsum(counts - scaled)).max() < 1 + 1e-5
        assert (np.abs(counts - scaled) < 1 + 1e-5).all()


def test_whole_weights_stay_as_they_are():
    weights = np.array([3.0, 0.0, 2.0, 7.0])
    for seed in range(50):
        assert round_to_total(weights, 12, np.random.default_rng(seed)).tolist() == [3, 0, 2, 7]


def test_rounding_is_unbiased():
    weights = np.array([0.1, 0.7, 0.25, 1.95])
    random = np.random.default_rng(3)
    mean = np.mean([round_to_total(weights, 3, random) for _ in range(20_000)], axis=0)
    # a count has variance at most 1/4: six standard deviations are 0.0212
    assert np.abs(mean - weights).max() < 0.0212


def test_no_weight_at_all_is_spread_evenly():
    assert round_to_total(np.zeros(4), 8, np.random.default_rng(0)).tolist() == [2, 2, 2, 2]


def test_every_kind_of_attribute_gets_its_own_type():
    domain = Domain(
        (
            Categorical(name="text", values=("a", "b"), unknown=Unknown.CATEGORY, nullable=True),
            Categorical(name="flag", values=(False, True), unknown=Unknown.CATEGORY),
            Categorical(name="grade", values=(3, 1), unknown=Unknown.DROP),
            Integer(name="age", minimum=10, maximum=39, edges=(10, 20, 30), unknown=Unknown.CATEGORY, nullable=True),
            Real(name="score", edges=(0.0, 0.5, 2.0), unknown=Unknown.DROP, nullable=True),
        )
    )
    codes = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 2, 1], [2, 2, 0, 3, 2], [3, 0, 1, 4, 0]])
    table = to_arrow(domain, codes, np.random.default_rng(1))
    assert table["text"].to_pylist() == ["a", "b", None, OTHER]
    assert table["flag"].to_pylist() == [False, True, None, False]
    assert table["grade"].to_pylist() == [3, 1, 3, 1]
    low, high, missing, unknown = table["age"].to_pylist()
    assert 10 <= low < 20
    assert 30 <= high < 40
    assert missing is None
    assert unknown is None
    first, second, null, again = table["score"].to_pylist()
    assert 0 <= first < 0.5 <= second < 2.0
    assert null is None
    assert 0 <= again < 0.5
    assert table.schema.types == [pa.string(), pa.bool_(), pa.int64(), pa.int64(), pa.float64()]


def test_a_bin_of_integers_is_filled_uniformly_up_to_both_ends():
    domain = Domain((Integer(name="age", minimum=0, maximum=9, edges=(0, 5), unknown=Unknown.DROP),))
    values = to_arrow(domain, np.ones((5000, 1), dtype=int), np.random.default_rng(1))["age"].to_numpy()
    counts = np.bincount(values, minlength=10)
    assert counts[:5].sum() == 0
    # each of five values is binomial with standard deviation 28.3: six of them
    assert np.abs(counts[5:] - 1000).max() < 170


def test_no_rows_are_a_table_all_the_same():
    domain = Domain((Categorical(name="text", values=("a",), unknown=Unknown.DROP),))
    assert to_arrow(domain, np.zeros((0, 1), dtype=int), np.random.default_rng(1)).num_rows == 0


@pytest.mark.parametrize(
    ("name", "read"),
    [("a.parquet", parquet.read_table), ("a.csv", csv.read_csv), ("a.arrow", feather.read_table)],
)
def test_a_file_is_written_in_blocks_that_are_never_held_together(name, read, tmp_path, monkeypatch):
    """The rows of the file equal the returned rows, and no value within a cell repeats from block to block."""
    monkeypatch.setattr(product, "BLOCK", 40)
    domain = Domain(
        (
            Integer(name="age", minimum=0, maximum=10**9 - 1, edges=(0, 10**8), unknown=Unknown.CLAMP),
            Categorical(name="kind", values=tuple(f"k{number}" for number in range(256)), unknown=Unknown.DROP),
        )
    )
    codes = np.stack([np.ones(100), np.arange(100) + 156], axis=1).astype(np.uint8)
    rows = ReleasedRows(DrawnRows(domain, codes, np.random.default_rng(5), {b"said": b"synthetic"}))
    assert (len(rows), rows.columns) == (100, ("age", "kind"))
    rows.write(tmp_path / name)
    assert "table" not in vars(rows)
    made = read(tmp_path / name)
    assert made.equals(rows.table)
    assert rows.table.schema.metadata == {b"said": b"synthetic"}
    assert name.endswith(".csv") or made.schema.metadata == rows.table.schema.metadata
    assert made["kind"].to_pylist() == [f"k{number}" for number in range(156, 256)]
    assert len(set(made["age"].to_pylist())) > 95


def test_a_file_without_rows_has_its_columns(tmp_path):
    domain = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
    rows = ReleasedRows(DrawnRows(domain, np.zeros((0, 1), dtype=np.uint8), np.random.default_rng(1), {}))
    rows.write(tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").equals(rows.table)
    assert (len(rows), rows.table.column_names) == (0, ["age"])
