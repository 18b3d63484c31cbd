"""What the client refuses itself, and what it shows of a refusal."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from tests.app.http.serving import free_port

from sfumato.app.client import HttpClient, ServerError
from sfumato.errors import InputError


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
    assert str(refused.value).startswith(f"no reply from {address}: ConnectError; check the address")
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
