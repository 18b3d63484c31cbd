"""Heads and tails on Spark equal those from files, for any order and number of partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.engine.test_related import FAMILIES, SHAPES, same_rows
from tests.families import VILLAGE, frames, some_families

from sfumato.engine.views.joined import open_tables


@pytest.mark.slow
def test_spark_makes_the_same_rows(tmp_path: Path) -> None:
    cluster.session()
    for name, rows in frames(FAMILIES).items():
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    opened = open_tables(VILLAGE, f"spark:{tmp_path}")
    for tables in (SHAPES["falling"], SHAPES["two before"]):
        same_rows(opened, tables, FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_rows_in_many_files_and_in_another_order_are_the_same(tmp_path: Path, seed: int) -> None:
    cluster.session()
    families = some_families(200, seed)
    for name, rows in frames(families, np.random.default_rng(seed)).items():
        folder = tmp_path / f"{name}.parquet"
        folder.mkdir()
        for part in range(4):
            pq.write_table(rows.take(np.arange(part, rows.num_rows, 4)), folder / f"part-{part}.parquet")
    opened = open_tables(VILLAGE, f"spark:{tmp_path}")
    for tables in SHAPES.values():
        same_rows(opened, tables, families)
