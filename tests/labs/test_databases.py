"""Every lab reads its table from real database servers as from a file, and never shows a password."""

from __future__ import annotations

import secrets
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from tests.services import require

from sfumato import data
from sfumato.errors import SfumatoError
from sfumato_labs import filtering_study, mondrian, run

DRIVERS = {"SFUMATO_TEST_POSTGRES": "postgresql+psycopg", "SFUMATO_TEST_MARIADB": "mysql+pymysql"}
PEOPLE = 1300  # the minimum for one step of gradient descent
# of each lab, the least that reads the table
SMALL = {
    "samarati": {"k": 3, "max_suppression": 100},
    "mondrian": {"k": 20},
    "mwem-1d": {"runs": 1, "epsilon": 1, "rounds": 3, "queries": 20, "columns": "age=17:90"},
    "mwem-2d": {
        "runs": 1,
        "epsilon": 1,
        "rounds": 3,
        "queries": 20,
        "columns": "education_num=1:16,hours_per_week=30:50",
    },
    "hiera-mu": {"runs": 1, "epsilon": 1, "people": 100},
    "hiera-methods": {"runs": 1, "epsilon": 1, "people": 100},
    "ldp-sgd": {"runs": 1, "epsilon": 4, "target": "hours_per_week", "inputs": "age=17:90,education_num"},
    "synthetic-data": {"runs": 1},
    "interactive": {"runs": 1, "epsilon": 10, "queries": 20, "columns": "age=17:90", "threshold": 60},
}


@pytest.fixture(scope="module")
def census():
    table = data.census()
    kept = np.random.default_rng(1).permutation(table.num_rows)[:PEOPLE]
    return table.take(kept)


@pytest.fixture(scope="module")
def file(census, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("census") / "census.parquet"
    pq.write_table(census, path)
    return str(path)


@pytest.fixture(scope="module")
def expected(file):
    """Return a lab's result from the file; requested after `quick`."""
    return cache(lambda name: compared(run(name, seed=1, data=file, **SMALL[name])))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(mondrian, "EFFORT", 0)
    monkeypatch.setattr(filtering_study, "MOST_RECORDS", 100)


def compared(result):
    """Return all tables except run times."""
    return {name: table for name, table in result.to_json()["tables"].items() if name != "run_times"}


@pytest.fixture(scope="module", params=DRIVERS)
def url(request, census):
    place = sa.make_url(require(request.param))
    engine = sa.create_engine(place.set(drivername=DRIVERS[request.param]), poolclass=sa.NullPool)
    rows = census.to_pylist()
    columns = [
        sa.Column(name, sa.BigInteger if isinstance(rows[0][name], int) else sa.String(60))
        for name in census.column_names
    ]
    table = sa.Table(f"census_{secrets.token_hex(6)}", sa.MetaData(), *columns)
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), rows)
    yield place.update_query_dict({"table": table.name}).render_as_string(hide_password=False)
    with engine.begin() as connection:
        table.drop(connection)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.usefixtures("quick")
def test_a_database_gives_what_the_file_gives(name, url, expected):
    found = run(name, seed=1, data=url, **SMALL[name])
    assert compared(found) == expected(name)
    password = sa.make_url(url).password
    assert password
    assert password not in repr(found)
    assert sa.make_url(url).database in found.notes[0]
    if name == "interactive":
        assert f"age of 100 drawn at random from {PEOPLE}" in found.notes[0]


@pytest.mark.parametrize("name", SMALL)
def test_a_refusal_shows_no_password(name, url):
    password = str(sa.make_url(url).password)
    wrong = url.replace("table=", "table=absent_")
    for source in (wrong, url.replace(password, f"{password}x")):
        with pytest.raises(SfumatoError) as refused:
            run(name, data=source, **SMALL[name])
        assert password not in str(refused.value)
        assert password not in repr(refused.value)
