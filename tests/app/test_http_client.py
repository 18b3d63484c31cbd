"""The client's own refusals, and its display of the server's refusals."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import closing

import httpx
import pytest
from tests.server.serving import free_port

from sfumato.app.api import questions as queries
from sfumato.app.client_protocol import answered, csv_text, document, parquet_bytes, zip_bytes
from sfumato.app.http_client import AsyncHttpClient, HttpClient, ServerError
from sfumato.errors import InputError
from sfumato.query.statements import sql_condition

# what a client has: HTTP and the models of requests, nothing that reads or protects tables
ALONE = """
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
needed = [Requirement(text) for text in requires("sfumato")]
absent = {each.name.replace("-", "_") for each in needed if each.marker is None} - {"pydantic"}

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in absent | {"yaml"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from sfumato.app.http_client import HttpClient
assert len(absent) > 8, absent
HttpClient("http://127.0.0.1:9", "key").close()
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("sfumato.")}
assert loaded == {"app", "bounded_cache", "errors", "privacy"}, loaded
"""


def test_the_client_loads_no_engine_and_needs_nothing_of_the_base_but_its_models():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_statements_have_one_longest_length():
    assert queries.LONGEST == sql_condition.LONGEST


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"epsilon": "1" * 61}, "epsilon"),
        ({"epsilon": "1", "confidence": "2"}, "confidence"),
        ({"epsilon": "1", "truncation": 0}, "truncation"),
        ({"epsilon": "1", "gamma": 1}, "gamma"),
    ],
)
def test_what_has_not_the_right_form_is_refused_before_it_is_sent(wrong, place):
    with (
        HttpClient(f"http://127.0.0.1:{free_port()}", "key") as client,
        pytest.raises(InputError, match=f"^{place}: "),
    ):
        client.ask("people", "SELECT COUNT(*) FROM t", **wrong)


@pytest.mark.parametrize("key", ["", "sfumato_analyst_x\n", "two words", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_at_once(key):
    with pytest.raises(InputError, match="one word of printable ASCII"):
        HttpClient("http://127.0.0.1:8000", key)


def test_an_address_needs_its_scheme():
    with pytest.raises(InputError, match="begins with http"):
        HttpClient("127.0.0.1:8000", "key")


def test_a_refused_request_shows_the_places_and_reasons():
    errors = [{"place": "body.loss.epsilon", "reason": "Input should be a valid string"}]
    error = ServerError({"title": "The request has not the right form", "detail": "see errors", "errors": errors})
    assert str(error) == "The request has not the right form: body.loss.epsilon: Input should be a valid string"


def test_where_no_server_answers_the_address_is_named_and_what_to_check():
    address = f"http://127.0.0.1:{free_port()}"
    with HttpClient(address, "key") as client, pytest.raises(ServerError) as refused:
        client.datasets()
    assert str(refused.value).startswith(f"no reply from {address}: ConnectError: Connection refused; check")
    with HttpClient(address.replace("//", "//me:secret@"), "key") as client, pytest.raises(ServerError) as refused:
        client.datasets()
    assert str(refused.value).startswith(f"no reply from {address}: ")


def test_a_server_that_is_silent_is_said_to_be():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            HttpClient(address, "key", timeout=0.1) as client,
            pytest.raises(ServerError, match=r"ReadTimeout; .* longer"),
        ):
            client.datasets()


HTML = httpx.Response(200, html="<p>Welcome to another program</p>")
ANSWER = {
    "groups": ["sex"],
    "columns": ["count(*)"],
    "rows": [{"key": ["F"], "values": [{"estimate": 3.0, "standard_error": 1.0, "low": 1.0, "high": 5.0}]}],
    "guarantee": "some",
    "cost": "epsilon 1",
    "confidence": 0.9,
}


@pytest.mark.parametrize(
    ("read", "reply"),
    [
        (csv_text, HTML),
        (parquet_bytes, HTML),
        (zip_bytes, HTML),
        (parquet_bytes, httpx.Response(200, content=b"PK", headers={"Content-Type": "application/vnd.apache.parquet"})),
        (document, HTML),
        (document, httpx.Response(200)),
        (document, httpx.Response(200, json=[1])),
        (answered, httpx.Response(200, json={"columns": []})),
        (answered, httpx.Response(200, content=b"{", headers={"Content-Type": "application/json"})),
    ],
)
def test_what_another_program_answers_is_no_reply(read, reply):
    with pytest.raises(ServerError, match="no reply of a Sfumato server: another program"):
        read(reply)


def test_a_reply_has_its_confidence_and_becomes_a_data_frame():
    reply = answered(httpx.Response(200, json=ANSWER))
    assert reply.confidence == 0.9
    frame = reply.to_pandas()
    assert list(frame.columns) == ["sex", "count(*)", "count(*)_error", "count(*)_low", "count(*)_high"]
    assert frame.to_dict("records") == reply.records == [dict(zip(frame.columns, ["F", 3, 1, 1, 5], strict=True))]


def test_programs_that_do_else_meanwhile_are_told_the_same():
    address = f"http://127.0.0.1:{free_port()}"

    async def ask() -> None:
        async with AsyncHttpClient(address, "key") as client:
            await client.ask("people", "SELECT COUNT(*) FROM t", epsilon=1)

    with pytest.raises(ServerError, match=f"no reply from {address}: ConnectError: Connection refused; check"):
        asyncio.run(ask())
