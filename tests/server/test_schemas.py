"""Several tables of the same people over HTTP: registered once, queried in SQL, refused uncharged, reread."""

from __future__ import annotations

import asyncio
import html
import time

import httpx
import pytest
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, Server, write_people

from sfumato.app.cli.options import database
from sfumato.app.http_client import AsyncHttpClient, ServerError
from sfumato.domain.table_schema import parse_schema
from sfumato.query.statements.table_statement import parse_tables
from sfumato_server.registry import Scope
from sfumato_server.ui.question_form import JoinedQuestion, offered_tables

JOINED = "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex"


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas")
    started = Server(database(str(folder / "s.ledger")), workers=2).start()
    try:
        with started.client("stew", Scope.STEWARD) as steward:
            source = str(write_hospital(folder / "hospital"))
            steward.register("hospital", source=source, domain=SCHEMA, limit="1e6")
        yield started, folder
    finally:
        started.stop()


def test_a_schema_is_registered_described_and_asked_in_sql(hospital):
    """The loss is so large that there is no noise, but for once in e^1000."""
    started, _ = hospital
    with started.client("ana") as client:
        (listed,) = [each for each in client.datasets() if each["name"] == "hospital"]
        assert listed["tables"]["visits"] == ["cost"]
        assert "visits.cost" in listed["attributes"]
        assert "patient_id" in listed["unit"]
        assert client.dataset("hospital")["schema"]["tables"]["icd"]["public"] is True
        found = client.ask("hospital", JOINED, epsilon="1e4")
        assert {row["key"][0]: row["values"][0]["estimate"] for row in found.rows} == {"F": 400.0, "M": 400.0}
        again = client.ask("hospital", JOINED, epsilon="1e4")
        assert (again.rows, "nothing" in again.cost) == (found.rows, True)
        chapters = (
            "SELECT chapter, COUNT(*) AS n FROM diagnoses JOIN icd USING (code) GROUP BY chapter ORDER BY n LIMIT 1"
        )
        (least,) = client.ask("hospital", chapters, epsilon="1e4").rows
        assert (least["key"], least["values"][0]["estimate"]) == (["lung"], 400.0)
        assert client.accuracy("hospital", JOINED, epsilon="1")[0]["half_width"] > 0
        assert float(client.cost("hospital", JOINED, error="20").epsilon) > 0


def test_programs_ask_meanwhile_verify_and_want_whole_counts(hospital):
    started, _ = hospital
    statements = [f"SELECT sex, COUNT(*) FROM patients WHERE region <= {n} GROUP BY sex" for n in range(4)]  # noqa: S608

    async def ask_all():
        async with AsyncHttpClient(started.address, started.key("amy", Scope.ANALYST)) as client:
            return await asyncio.gather(*(client.ask("hospital", each, epsilon="1", whole=True) for each in statements))

    replies = asyncio.run(ask_all())
    assert all(value["estimate"].is_integer() for reply in replies for row in reply.rows for value in row["values"])
    assert {reply.confidence for reply in replies} == {0.95}
    assert list(replies[0].to_pandas()["sex"]) == ["F", "M"]
    with started.client("stew", Scope.STEWARD) as steward:
        assert len(steward.verify("hospital")) == len(steward.journal("hospital")[-1]["hash"])


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT COUNT(*) FROM visits JOIN patients ON visits.cost = patients.region", "key"),
        ("SELECT COUNT(*) FROM beds", "no table 'beds'"),
        ("SELECT name, COUNT(*) FROM patients GROUP BY name", "name"),
        ("SELECT chapter, COUNT(*) FROM icd GROUP BY chapter", "these tables are public"),
    ],
)
def test_what_is_outside_the_language_is_refused_uncharged(hospital, statement, says):
    started, _ = hospital
    with started.ledger("hospital") as ledger:
        before = ledger.remaining().spent
    with started.client("bea") as client, pytest.raises(ServerError) as caught:
        client.ask("hospital", statement, epsilon="1")
    assert caught.value.problem["charged"] is False
    assert says in str(caught.value)
    with started.ledger("hospital") as ledger:
        assert ledger.remaining().spent == before


def test_what_belongs_to_one_table_is_refused_uncharged(hospital):
    started, _ = hospital
    count = {"aggregates": [{"aggregate": "count"}]}
    with started.client("cleo") as client:
        for ask in (
            lambda: client.query("hospital", count, epsilon="1"),
            lambda: client.release("hospital", method="auto", epsilon="1"),
        ):
            with pytest.raises(ServerError, match="several tables") as caught:
                ask()
            assert caught.value.problem["charged"] is False


def test_a_schema_and_a_table_share_neither_name_nor_files(hospital):
    started, folder = hospital
    people, source = str(write_people(folder / "people.parquet")), str(folder / "hospital")
    with started.client("stew", Scope.STEWARD) as steward:
        with pytest.raises(ServerError, match="name is taken"):
            steward.register("hospital", source=people, domain=DOMAIN, limit="1")
        with pytest.raises(ServerError, match="registered under another name"):
            steward.register("clinic", source=source, domain=SCHEMA, limit="1")
        for wrong, says in (
            ({"source": str(folder / "nowhere")}, "no folder"),
            ({"domain": SCHEMA | {"draft": True}}, "draft"),
            ({"domain": SCHEMA | {"tables": {}}}, "private table"),
            ({"discoverable": ["name"]}, "one table"),
        ):
            asked = {"source": source, "domain": SCHEMA, "limit": "1", **wrong}
            with pytest.raises(ServerError, match=says):
                steward.register("clinic", **asked)
        steward.register("clinic", source=source, domain=SCHEMA, limit="1", second_budget=True)


def test_a_table_of_a_schema_is_not_registered_alone_without_a_word(hospital):
    """The place identifies it, because its rows differ from the rows of the schema's tables together."""
    started, folder = hospital
    visits = {
        "sfumato": 1,
        "unit": "row",
        "attributes": {"cost": {"type": "integer", "minimum": 0, "maximum": 1000, "unknown": "clamp"}},
    }
    asked = {"source": str(folder / "hospital" / "visits.csv"), "domain": visits, "limit": "1"}
    with started.client("stew", Scope.STEWARD) as steward:
        with pytest.raises(ServerError, match="registered under another name") as caught:
            steward.register("visits", **asked)
        assert caught.value.problem["charged"] is False
        (folder / "hospital" / "icd.csv").rename(folder / "icd.csv")  # what is missing of the other ends nothing here
        try:
            steward.register("people", source=str(write_people(folder / "p.parquet")), domain=DOMAIN, limit="1")
        finally:
            (folder / "icd.csv").rename(folder / "hospital" / "icd.csv")


def test_tables_that_changed_are_answered_as_they_were_until_read_again(hospital):
    started, folder = hospital
    source = write_hospital(folder / "changing", seed=2)
    with started.client("stew", Scope.STEWARD) as steward, started.client("dora") as client:
        steward.register("changing", source=str(source), domain=SCHEMA, limit="1e6", second_budget=True)
        count = "SELECT COUNT(*) FROM visits"
        assert client.ask("changing", count, epsilon="1e4").rows[0]["values"][0]["estimate"] == 800
        lines = (source / "visits.csv").read_text().splitlines()[:-1]
        (source / "visits.csv").write_text("\n".join(lines) + "\n")
        assert client.ask("changing", count, epsilon="2e4").rows[0]["values"][0]["estimate"] == 800
        with pytest.raises(ServerError, match="registered under another name"):  # by its files, not read yet
            steward.register("again", source=str(source), domain=SCHEMA, limit="1")
        assert steward.read_again("changing")["changed"] is True
        deadline = time.monotonic() + 60
        while (rows := client.ask("changing", count, epsilon="2e4").rows)[0]["values"][0]["estimate"] == 800:
            assert time.monotonic() < deadline, "a worker went on answering from the former version"
            time.sleep(0.1)
        assert rows[0]["values"][0]["estimate"] == 799


def test_columns_are_picked_and_joined_on_the_page(hospital):
    """The page writes the statement that a person would, so that it is answered already."""
    started, _ = hospital
    cookies = started.session("ana", Scope.ANALYST)
    with httpx.Client(base_url=started.address, cookies=cookies, trust_env=False, timeout=60) as browser:
        shown = browser.get("/datasets/hospital").text
        assert "<svg" in shown
        assert '<option value="diagnoses">diagnoses, with columns of visits, icd, patients</option>' in shown
        picked = {
            "how": "joined",
            "table": "diagnoses",
            "by": ["patients.sex", "icd.chapter"],
            "among": ['["icd.chapter", "heart"]'],
            "ranged": ["visits.cost", "patients.region"],
            "low": ["10", ""],
            "high": ["", "2"],
            "epsilon": "0.5",
        }
        previewed = html.unescape(browser.post("/datasets/hospital/preview", data=picked).text)
        joined = (
            "SELECT patients.sex, icd.chapter, COUNT(*) FROM diagnoses "
            "JOIN visits ON diagnoses.visit_id = visits.visit_id "
            "JOIN patients ON visits.patient_id = patients.patient_id "
            "JOIN icd ON diagnoses.code = icd.code "
            "WHERE icd.chapter IN ('heart') AND visits.cost >= 10 AND patients.region <= 2 "
            "GROUP BY patients.sex, icd.chapter"
        )
        assert joined in previewed
        asked = html.unescape(browser.post("/datasets/hospital/ask", data=picked).text)
        assert "Cost: epsilon 0.5" in asked
        assert "question=q" in asked
        wrong = {"how": "joined", "table": "patients", "by": ["visits.cost"], "epsilon": "1"}
        refused = browser.post("/datasets/hospital/ask", data=wrong)
        assert (refused.status_code, "do not lead to one row" in refused.text) == (422, True)
        assert "with their rows of visits" in browser.get("/datasets/hospital/releases").text
    with started.client("ana") as client:
        assert "nothing" in client.ask("hospital", joined, epsilon="0.5").cost


def test_every_column_that_is_offered_can_be_asked_by():
    schema = parse_schema(SCHEMA)
    for table in offered_tables(schema):
        if not table.countable:
            continue
        columns = [
            each.name
            for other in offered_tables(schema)
            if other.name in (table.name, *table.leads)
            for each in other.controls
        ]
        picked = JoinedQuestion(table.name, "count", "", columns[:3], {}, {})
        assert parse_tables(picked.sql(schema), schema).query.by
    assert {table.name: table.leads for table in offered_tables(schema)} == {
        "patients": (),
        "visits": ("patients",),
        "diagnoses": ("visits", "icd", "patients"),
        "icd": (),
    }
