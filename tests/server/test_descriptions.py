"""Descriptions over HTTP: drafted from a stored table, accepted in the name of the requester, registered."""

from __future__ import annotations

import json
import os

import httpx
import pytest
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, Server, with_source_passwords, write_people
from tests.services import require

from sfumato.app.cli.options import database
from sfumato.app.http_client import ServerError
from sfumato.description.schema_fit import draft_source
from sfumato.errors import TableError
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Scope
from sfumato_server.sources import TablePlaces
from sfumato_server.stewards import read_description, steward_findings


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("descriptions")
    (folder / "tables").mkdir()
    write_people(folder / "elsewhere.parquet")
    named = "127.0.0.1:" + os.environ.get("SFUMATO_TEST_POSTGRES", ":0/").rpartition(":")[2].partition("/")[0]
    (folder / "source-passwords").touch(mode=0o600)
    more = ("--tables", str(folder / "tables"), "--tables", named)
    more += ("--source-passwords", str(folder / "source-passwords"))
    started = Server(database(str(folder / "s.ledger")), workers=1, more=more).start()
    yield started, folder
    started.stop()


@pytest.fixture
def steward(served):
    with served[0].client("stew", Scope.STEWARD) as client:
        yield client


def test_a_table_is_drafted_with_how_it_is_written_accepted_and_registered(served, steward):
    table = served[1] / "tables" / "visits.csv"
    rows = [f"{n % 40};{n % 90};{'ABC'[n % 3]};{n},5" for n in range(400)]
    table.write_text("\n".join(["person;age;ward;cost", *rows]) + "\n")
    found = steward.draft(str(table))
    assert found["notice"].endswith("they are for its owner alone.")
    assert found["domain"]["draft"] is True
    assert found["domain"]["csv"] == {"delimiter": ";", "decimal": ","}
    assert any(each.startswith("Left out person: its values seem to be people") for each in found["remarks"])
    with pytest.raises(ServerError, match="draft"):
        steward.register("visits", source=str(table), domain=found["domain"], limit="1")
    with pytest.raises(ServerError, match="--confirm unit,bounds,bins"):
        steward.accept(found["domain"], source=str(table))
    accepted = steward.accept(found["domain"], source=str(table), confirm=["unit", "bounds", "bins"])
    assert accepted["domain"]["accepted"]["by"] == "stew"
    assert accepted["domain"]["accepted"]["confirmed"] == ["unit", "bounds", "bins"]
    assert any("bounds taken from the table: age (maximum)" in each for each in found["remarks"])
    steward.register("visits", source=str(table), domain=accepted["domain"], limit="1e6")
    (row,) = steward.ask("visits", "SELECT COUNT(*) FROM visits WHERE ward = 'A'", epsilon="1e5").rows
    assert row["values"][0]["estimate"] == 134
    assert steward.journal("visits")[0]["kind"]


def test_several_tables_are_drafted_and_what_a_draft_leaves_open_is_asked_for(served, steward):
    source = str(write_hospital(served[1] / "tables" / "hospital"))
    found = steward.draft(source, name="clinic")
    schema = found["domain"]
    assert (schema["schema"], schema["unit"]) == ("clinic", {"id": "patient_id", "table": "patients"})
    assert schema["tables"]["diagnoses"]["through"] == {"visit_id": "visits"}
    with pytest.raises(ServerError, match=r"tables.icd still needs an owner of its rows"):
        steward.accept(schema)
    schema["tables"]["icd"]["public"] = True
    with pytest.raises(ServerError, match="still needs rows"):
        steward.accept(schema)
    for table, rows in (("visits", 3), ("diagnoses", 6)):
        schema["tables"][table]["rows"] = rows
    steward.register(
        "clinic",
        source=source,
        domain=steward.accept(schema, source=source, confirm=["values", "bounds", "bins"])["domain"],
        limit="1e6",
    )
    joined = "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex"
    assert [row["values"][0]["estimate"] for row in steward.ask("clinic", joined, epsilon="1e5").rows] == [400, 400, 0]
    with pytest.raises(ServerError, match="no table has a column 'nobody'"):
        steward.draft(source, unit="nobody")


def test_tables_of_a_database_are_drafted_by_its_catalogue(served, steward):
    import sqlalchemy as sa

    url = require("SFUMATO_TEST_POSTGRES")
    plain, _ = with_source_passwords(sa.engine.make_url(url), served[1])  # into the file that the server reads
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    name = "drafts_of_a_server"
    try:
        with engine.begin() as connection:
            for statement in (
                "DROP SCHEMA IF EXISTS {} CASCADE",
                "CREATE SCHEMA {}",
                "CREATE TABLE {}.people (person_id int PRIMARY KEY, sex text)",
                "CREATE TABLE {0}.stays (id int PRIMARY KEY, person_id int REFERENCES {0}.people, cost int)",
                "INSERT INTO {}.people SELECT n, 'FM' FROM generate_series(1, 20) n",
                "INSERT INTO {}.stays SELECT n, 1 + n % 20, n % 7 FROM generate_series(1, 60) n",
            ):
                connection.execute(sa.text(statement.format(name)))
        found = steward.draft(f"{plain}?options=-csearch_path%3D{name}")
        assert found["domain"]["unit"] == {"id": "person_id", "table": "people"}
        assert found["domain"]["tables"]["stays"]["unit"] == "person_id"
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
        engine.dispose()


def test_a_source_that_cannot_be_described_is_refused_with_a_message(served, steward):
    folder = served[1]
    for source, kind in (
        (str(folder / "elsewhere.parquet"), "place-refused"),
        (str(folder / "tables" / "nothing.csv"), "table-unusable"),
        (str(folder / "tables" / ("x" * 400 + ".csv")), "place-refused"),
        (str(folder / "tables" / "x\0.csv"), "place-refused"),
        ("spark:/etc/passwd", "place-refused"),
    ):
        with pytest.raises(ServerError) as refused:
            steward.draft(source)
        assert (refused.value.kind, refused.value.problem["charged"]) == (kind, False)
        if kind == "place-refused":
            with pytest.raises(ServerError, match="Tables of that place are not served"):
                steward.accept(DOMAIN, source=source)
    (folder / "tables" / "one").mkdir()
    write_people(folder / "tables" / "one" / "people.parquet")
    with pytest.raises(ServerError, match="has 1 table"):
        steward.draft(str(folder / "tables" / "one"))
    with pytest.raises(ServerError, match="a unit and a name are of several tables"):
        steward.draft(str(folder / "tables" / "one" / "people.parquet"), name="x")
    wrong = {**DOMAIN, "attributes": {"nobody": DOMAIN["attributes"]["age"]}}
    with pytest.raises(ServerError, match="nobody"):
        steward.accept(wrong, source=str(folder / "tables" / "one" / "people.parquet"))
    long = "x" * 400
    for asked in (
        lambda: draft_source([long]),
        lambda: steward_findings(read_description(SCHEMA), long, TablePlaces()),
    ):
        with pytest.raises((TableError, RefusalError), match="cannot read 'xxx"):
            asked()
    odd = [{"per": {"sex": 1.5}}, {"rows": 1e308}, {"per": {"sex": {"rows": 1, "groups": 0}}}]
    for part in odd:
        with pytest.raises(ServerError) as refused:
            steward.accept({**DOMAIN, "unit": {"id": "person", "rows": 3, **part}})
        assert refused.value.problem["status"] == 422
    header = {"Authorization": f"Bearer {served[0].key('raw', Scope.STEWARD)}", "Content-Type": "application/json"}
    half = json.dumps({"domain": {**DOMAIN, "unit": {"id": "\ud800", "rows": 3}}})
    address = f"{served[0].address}/v1/acceptances"
    reply = httpx.post(address, content=half, headers=header, timeout=60, trust_env=False)
    assert (reply.status_code, "half a letter" in reply.text) == (422, True)
    with served[0].client("ana") as analyst:
        for asked in (lambda: analyst.draft("x.csv"), lambda: analyst.accept(DOMAIN)):
            with pytest.raises(ServerError) as refused:
                asked()
            assert refused.value.kind == "wrong-scope"
