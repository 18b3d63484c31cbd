"""The client that does else meanwhile has every method of the other one, with the same terms."""

from __future__ import annotations

import asyncio
import inspect
import io
import zipfile

import pytest
from pyarrow import parquet
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, Server, write_people

from sfumato.app.cli.options import database
from sfumato.app.http_client import AsyncHttpClient, HttpClient, ServerError
from sfumato_server.registry import Scope

METHODS = [name for name, _ in inspect.getmembers(HttpClient, inspect.isfunction) if not name.startswith("_")]


def test_both_clients_have_the_same_methods_with_the_same_terms():
    assert [name for name, _ in inspect.getmembers(AsyncHttpClient, inspect.isfunction) if name[0] != "_"] == METHODS
    for name in METHODS:
        waits, meanwhile = getattr(HttpClient, name), getattr(AsyncHttpClient, name)
        assert inspect.signature(waits) == inspect.signature(meanwhile), name
        assert inspect.iscoroutinefunction(meanwhile), name


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("async")
    started = Server(database(str(folder / "s.ledger")), workers=1).start()
    yield started, folder
    started.stop()


def test_all_methods_reach_the_server(served):  # noqa: PLR0915  (there are as many methods)
    """Whatever a method does there, the server answers or refuses it in its own words: none is left out below."""
    started, folder = served
    used = set()

    class Recorded(AsyncHttpClient):
        def __getattribute__(self, name):
            used.add(name)
            return super().__getattribute__(name)

    async def finished(client, job):
        for _ in range(600):
            state = await client.progress(job)
            if state["state"] in ("done", "failed"):
                return state["state"]
            await asyncio.sleep(0.1)
        return "late"

    async def all_of_it():
        people = str(write_people(folder / "people.parquet"))
        async with Recorded(started.address, started.key("stew", Scope.STEWARD)) as steward:
            drafted = (await steward.draft(people))["domain"]
            assert (await steward.accept(drafted, confirm=["bounds", "bins"]))["domain"]["accepted"]["by"] == "stew"
            await steward.register("people", source=people, domain=DOMAIN, limit="100")
            await steward.register("wards", source=str(write_hospital(folder / "w")), domain=SCHEMA, limit="1e6")
            key = await steward.issue("ana", scope="analyst", days=3)
            fresh = await steward.rotate(key["id"], overlap_hours=1)
            await steward.revoke(key["id"])
            assert {each["id"]: each["valid"] for each in await steward.keys()}[fresh["id"]] is True
            assert (await steward.set_terms("people", approval_above="5"))["approval_above"] == "5"
            assert (await steward.terms("people"))["approval_above"] == "5"
            await steward.let_in("people", "ana")
            await steward.cap("people", "ana", epsilon="50")
            sql = "SELECT sex, COUNT(*) FROM people GROUP BY sex"
            async with Recorded(started.address, fresh["secret"]) as ana:
                assert len(await ana.datasets()) == 2
                assert (await ana.dataset("people"))["name"] == "people"
                assert float((await ana.cost("people", sql, error=10)).epsilon) > 0
                assert (await ana.accuracy("people", sql, epsilon=1))[0]["half_width"] > 0
                with pytest.raises(ServerError) as refused:
                    await ana.ask("people", sql, epsilon=6)
                assert refused.value.kind == "approval-needed"
                (waiting,) = await ana.approvals()
                await steward.approve(waiting["id"])
                answer = await ana.ask("people", sql, epsilon=6)
                fields = {"aggregates": [{"aggregate": "count"}], "by": ["sex"]}
                assert (await ana.query("people", fields, epsilon=6)).rows == answer.rows
                file = io.BytesIO(await ana.ask_parquet("people", sql, epsilon=6))
                assert parquet.read_table(file).to_pylist() == answer.records
                assert "44" in str(await ana.budget("people"))
                job = await ana.release("people", method="histogram", attributes=["age"], epsilon=1)
                assert await finished(ana, job) == "done"
                assert (await ana.rows(job)).startswith('"age"')
                assert parquet.read_table(io.BytesIO(await ana.parquet(job))).column_names == ["age"]
                job = await ana.release("wards", method="related", children=[{"table": "visits"}], epsilon=10)
                assert await finished(ana, job) == "done"
                names = zipfile.ZipFile(io.BytesIO(await ana.tables(job))).namelist()
                assert {"patients.csv", "visits.csv"} <= set(names)
            job = await steward.anonymize("people", method="mondrian", quasi=["sex"], k=5)
            assert await finished(steward, job) == "failed"
            assert "needs an approval" in (await steward.progress(job))["note"]
            (waiting,) = await steward.approvals()
            await steward.refuse_approval(waiting["id"])
            assert len(await steward.verify("people")) == len((await steward.journal("people"))[-1]["hash"])
            assert (await steward.read_again("people"))["changed"] is False
            assert (await steward.reading("people"))["version"] == 2
            await steward.shut_out("people", "ana")
            assert (await steward.rename("people", "folk"))["name"] == "folk"
            assert (await steward.retire("folk"))["retired"] is True

    asyncio.run(all_of_it())
    assert used >= set(METHODS) - {"close"}
