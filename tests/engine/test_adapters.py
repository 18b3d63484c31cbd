"""A new engine is its adapter in one tuple: it is opened, joined, refused by a server, and named with its extra."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from tests.hospital import database, frames, schema

from sfumato.domain import Categorical, CsvFormat, Domain, Unknown
from sfumato.engine import open as opening
from sfumato.engine.adapter import EngineAdapter
from sfumato.engine.exact import reveal
from sfumato.engine.open import ADAPTERS, TableCopy, copy_table, file_path, open_table, same_place
from sfumato.engine.views import joined
from sfumato.engine.views.joined import open_tables
from sfumato.errors import InputError, MissingExtraError
from sfumato_server.sources import TablePlaces

DECLARED = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
DOMAIN = Domain((Categorical(name="word", values=("x", "y"), unknown=Unknown.DROP),))
HOSPITAL = schema()


class ShelfAdapter(EngineAdapter):
    """An engine of this test, whose tables stand on shelves: ``shelf:NAME``."""

    schemes = ("shelf",)
    libraries = ("shelves",)
    extras = {"shelf": ("json",)}  # noqa: RUF012 - declared as a ClassVar by the contract
    folder = "shelf:ALL"
    joinable_sources = "from one shelf"

    def __init__(self, tables):
        self.tables = tables
        self.joined = []

    def open(self, source, csv, *, empty):
        return open_table(self.tables[source.partition(":")[2]], csv=csv, empty=empty)

    def place(self, table, source):  # noqa: ARG002 - part of the contract
        return f"shelf:{table.name}"

    def join(self, tables):
        self.joined.append(set(tables))
        return ADAPTERS[-1].join(tables)

    def location(self, source):
        return source.lower()

    def allowed(self, source, places):  # noqa: ARG002 - part of the contract
        return places.names("shelf")


@pytest.fixture
def shelf(monkeypatch):
    adapter = ShelfAdapter({"people": pd.DataFrame({"word": ["x", "y", "y"]}), **frames(database(3))})
    for module in (opening, joined):
        monkeypatch.setattr(module, "ADAPTERS", (adapter, *ADAPTERS))
    return adapter


def test_a_fourth_engine_opens_what_it_claims(shelf):
    encoded = open_table("shelf:people").encode(DOMAIN)
    assert reveal(encoded.marginals([("word",)])[0]).tolist() == [1, 2]
    with pytest.raises(InputError, match="shelf, postgresql, postgres, mysql, mariadb, spark are known"):
        open_table("oracle://db.example/census")


def test_a_fourth_engine_joins_its_tables(shelf):
    assert open_tables(HOSPITAL, "shelf:ALL").schema is HOSPITAL
    assert shelf.joined == [{table.name for table in HOSPITAL}]
    with pytest.raises(InputError, match="shelf:ALL"):
        open_tables(HOSPITAL, 7)


def test_tables_that_no_engine_joins_are_refused_with_what_can_be_joined(shelf, monkeypatch):
    for adapter in (shelf, *ADAPTERS):
        monkeypatch.setattr(adapter, "join", lambda _: None)
    with pytest.raises(InputError, match="together from one shelf, from one database, on Spark, or from files"):
        open_tables(HOSPITAL, "shelf:ALL")


def test_a_server_opens_a_fourth_engine_only_as_its_adapter_allows(shelf):
    assert TablePlaces(("shelf",)).admits("shelf:people")
    assert not TablePlaces(("spark", "/")).admits("shelf:people")
    shelf.allowed = lambda source, places: EngineAdapter.allowed(shelf, source, places)  # the default of the contract
    assert not TablePlaces(("shelf", "/")).admits("shelf:people")


def test_a_fourth_engine_that_is_not_installed_is_named_with_its_extra(shelf, monkeypatch):
    monkeypatch.setattr(shelf, "extras", {"shelf": ("no_such_package",)})
    with pytest.raises(MissingExtraError) as refused:
        open_table("shelf:people")
    assert str(refused.value) == (
        "shelf:people needs no_such_package, which is not installed; pip install 'sfumato[shelf]'"
    )


def test_places_of_a_fourth_engine_are_compared_by_its_adapter(shelf):
    assert same_place("shelf:people", "shelf:PEOPLE")
    assert not same_place("shelf:people", "shelf:visits")
    assert not same_place("shelf:people", "people")
    assert file_path("shelf:people") is None


def test_a_copy_is_opened_by_the_engine_that_wrote_it(shelf, tmp_path, monkeypatch):
    found = copy_table(open_table("shelf:people"), "people", tmp_path, attributes=["word"], ids=[])
    opened = []
    monkeypatch.setattr(shelf, "open_copy", lambda *source, **_: opened.append(source))
    assert found.open(tmp_path).encode(DOMAIN).domain == DOMAIN
    assert opened == [(tmp_path / "people.parquet", "the copy of people", CsvFormat())]
    assert isinstance(found, TableCopy)


def test_every_extra_of_an_engine_can_be_installed_and_brings_its_packages():
    for adapter in ADAPTERS:
        for extra, packages in adapter.extras.items():
            listed = " ".join(DECLARED["optional-dependencies"][extra]).lower()
            assert all(package in listed for package in packages)


def test_a_csv_file_loads_no_other_engine(tmp_path):
    (tmp_path / "people.csv").write_text("word\nx\n")
    script = (
        "import sys; from sfumato.engine.open import open_table; open_table('people.csv')\n"
        "assert not {'pyspark', 'sqlalchemy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
