"""Views of tables on Spark keep the rows that views of files keep, and a statement over them is answered."""

# ruff: noqa: S608 - statements are put together here

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.engine.test_views import HOSPITAL, LOOSE, ROW_NUMBERS, VIEWS, bounds, by_unit
from tests.hospital import database, frames
from tests.query.test_table_statements import STATEMENTS, exact, read

import sfumato as sf
from sfumato.engine.views.joined import JoinedTables, open_tables
from sfumato.errors import EngineError, TableError
from sfumato.privacy.loss import Epsilon
from sfumato.vault.schema_vault import open_schema

SEED = 7
ALWAYS = {"two private, by a key", "outer, three", "beside facts"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hospital")
    for name, table in frames(database(SEED)).items():
        pq.write_table(table, place / f"{name}.parquet")
    return place


@pytest.fixture(scope="module")
def tables(folder: Path) -> JoinedTables:
    cluster.session()
    return open_tables(HOSPITAL, f"spark:{folder}")


@pytest.fixture(scope="module")
def files(folder: Path) -> JoinedTables:
    return open_tables(HOSPITAL, folder)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.slow]) for name in VIEWS]
)
def test_the_same_rows_are_kept_as_of_files(name: str, tables: JoinedTables, files: JoinedTables) -> None:
    for unit in [bounds(name)] if name in ALWAYS else [LOOSE, bounds(name)]:
        assert by_unit(tables, VIEWS[name], unit) == by_unit(files, VIEWS[name], unit)


def test_functions_of_a_row_have_the_same_values_as_of_files(tables: JoinedTables, files: JoinedTables) -> None:
    asked = read(f"SELECT SUM({' + '.join(f'COALESCE({value}, 0)' for value in ROW_NUMBERS)}) FROM visits", None)
    np.testing.assert_array_equal(*(exact(each, asked) for each in (tables, files)))


@pytest.mark.slow
def test_the_statements_of_the_design_are_counted_as_of_files(tables: JoinedTables, files: JoinedTables) -> None:
    for number, text, unit, *_ in STATEMENTS:
        found, expected = (exact(each, read(text, unit)) for each in (tables, files))
        np.testing.assert_array_equal(found, expected, err_msg=f"{number}: {text}")


@pytest.mark.slow
def test_a_statement_is_answered_alike(folder: Path, tmp_path: Path) -> None:
    cluster.session()
    text = "SELECT region, SUM(cost * 2) AS spent FROM visits JOIN patients USING (patient_id) GROUP BY region"
    answers = []
    for number, place in enumerate((f"spark:{folder}", str(folder))):
        ledger = f"sqlite:///{tmp_path / f'{number}.ledger'}"
        vault = open_schema(place, schema=HOSPITAL, ledger=ledger, limit=Epsilon(10**6), create=True)
        answers.append(sf.query.sql(vault, text, loss=Epsilon(10**5)))
    sums = [np.array([row[0].estimate for row in answer.values]) for answer in answers]
    assert answers[0].keys == answers[1].keys
    assert np.abs(sums[0] - sums[1]).max() < 5  # noise of scale 12000 / 100000: beyond it with chance below 1e-17


@pytest.mark.slow
def test_files_that_were_written_since_are_refused(folder: Path, tmp_path: Path) -> None:
    cluster.session()
    for name, table in frames(database(SEED)).items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    opened = open_tables(HOSPITAL, f"spark:{tmp_path}")
    pq.write_table(frames(database(SEED + 1))["visits"], tmp_path / "visits.parquet")
    with pytest.raises(EngineError, match="open them again"):
        by_unit(opened, VIEWS["one table"], LOOSE)
    with pytest.raises(TableError):
        open_tables(HOSPITAL, f"spark:{folder}/nowhere")
