"""Pages of other sites: named origins send requests with a key to ``/v1``, and nobody else does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sfumato.app.cli.options import database
from sfumato.errors import InputError
from sfumato_server.application import Settings, create, refuse_origin
from sfumato_server.service import Service

OURS = "https://app.example"
ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,idempotency-key"}


@pytest.fixture(scope="module")
def send(tmp_path_factory):
    """Sends one request to an application that lets one origin in."""
    service = Service(database(str(tmp_path_factory.mktemp("origins") / "s.ledger")), create=True)
    app = create(service, Settings(origins=(OURS,)))

    async def sent(method, path, headers):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://release.example") as browser:
            return await browser.request(method, path, headers=headers)

    yield lambda method, path, **headers: asyncio.run(sent(method, path, headers))
    service.close()


def test_a_named_origin_may_send_a_key_and_read_the_reply(send):
    reply = send("OPTIONS", "/v1/datasets/people/query", **{"Origin": OURS, **ASKED})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == OURS
    assert "access-control-allow-credentials" not in reply.headers
    read = send("GET", "/v1/datasets", Origin=OURS)
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (401, OURS)


@pytest.mark.parametrize("origin", ["https://app.example.evil.example", "http://app.example", "null", f"{OURS}:444"])
def test_no_other_origin_may(send, origin):
    assert send("OPTIONS", "/v1/datasets", **{"Origin": origin, **ASKED}).status_code == 400
    assert "access-control-allow-origin" not in send("GET", "/v1/datasets", Origin=origin).headers


def test_the_page_is_open_to_no_origin(send):
    assert "access-control-allow-origin" not in send("GET", "/", Origin=OURS).headers
    assert "access-control-allow-origin" not in send("OPTIONS", "/enter", **{"Origin": OURS, **ASKED}).headers


@pytest.mark.parametrize(
    "wrong",
    [
        *("https://app.example:", "https://app.example/", "https://App.example", "app.example", "*", "null", ""),
        *("https://app.example:443", "http://app.example:80", "https://me@app.example", "https://app.example:99999"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_at_the_start(wrong):
    with pytest.raises(InputError, match="an origin is"):
        refuse_origin(wrong)
    assert refuse_origin("http://app.example:8080") == "http://app.example:8080"
