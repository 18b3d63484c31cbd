"""Large answers over HTTP: in pieces, in the kind that is asked for, and with the numbers of the journal."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import closing
from datetime import timedelta

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sfumato.privacy.loss import Epsilon
from sfumato.query import sql
from sfumato.query.answer import ARROW, JSON, PARQUET, STATEMENT
from sfumato_server.application import create
from sfumato_server.datasets import LARGE
from sfumato_server.registry import Scope
from sfumato_server.service import Service

SIDE = 120
DOMAIN = {
    "sfumato": 1,
    "unit": "row",
    "attributes": {
        name: {"type": "integer", "minimum": 0, "maximum": SIDE - 1, "unknown": "clamp"} for name in ("a", "b")
    },
}
SMALL = "SELECT a, AVG(b) FROM grid GROUP BY a"
WIDE = "SELECT a, b, COUNT(*) FROM grid GROUP BY a, b"
PATH = "/v1/datasets/grid/query"


def write_grid(path):
    random = np.random.default_rng(3)
    parquet.write_table(pa.table({name: random.integers(0, SIDE, 500) for name in ("a", "b")}), path)
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    with closing(Service(f"sqlite:///{folder}/s.ledger", create=True)) as made:
        made.register("grid", source=str(write_grid(folder / "grid.parquet")), domain=DOMAIN, limit="10", more={})
        yield made


@pytest.fixture(scope="module")
def ask(service):
    key = service.registry.issue("ana", Scope.ANALYST, timedelta(hours=1))[1]
    app = create(service)

    def asked(statement, **headers):
        async def sent():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                body = {"sql": statement, "loss": {"epsilon": "0.5"}}
                return await client.post(PATH, json=body, headers={"Authorization": f"Bearer {key}", **headers})

        return asyncio.run(sent())

    return asked


@pytest.mark.parametrize("statement", [SMALL, WIDE])
def test_every_kind_of_reply_holds_the_same_answer(ask, service, statement):
    answer = sql(service.vault("grid", "ana"), statement, loss=Epsilon("0.5"))
    plain = ask(statement)
    assert plain.headers["content-type"] == JSON
    told = plain.json()
    assert told["rows"] == json.loads(json.dumps(answer.to_json()))["rows"]
    large = len(answer) >= LARGE
    assert ("content-length" in plain.headers) is not large
    for kind in (ARROW, PARQUET):
        reply = ask(statement, Accept=f"text/html;q=0.9, {kind}")
        assert reply.headers["content-type"] == kind
        assert ("content-length" in reply.headers) is not large
        body = io.BytesIO(reply.content)
        table = pa.ipc.open_stream(body).read_all() if kind == ARROW else parquet.read_table(body)
        assert table.replace_schema_metadata().equals(answer.to_arrow())
        said = json.loads(table.schema.metadata[STATEMENT])
        assert said["guarantee"] == told["guarantee"]
        assert said["rows"] == []
        assert len(body.getvalue()) < len(plain.content)


def test_a_question_that_does_not_pass_the_quick_way_is_answered_in_the_same_kinds(ask):
    """Its content type has a parameter, so the framework reads it."""
    reply = ask(WIDE, Accept=ARROW, **{"Content-Type": "application/json; charset=utf-8"})
    assert reply.headers["content-type"] == ARROW
    assert pa.ipc.open_stream(reply.content).read_all().num_rows == SIDE**2


@pytest.mark.parametrize("accept", ["*/*", "text/html", "", "application/json, application/vnd.apache.parquet"])
def test_json_is_returned_unless_another_type_is_preferred(ask, accept):
    assert ask(SMALL, Accept=accept).json()["columns"] == ["mean(b)"]
