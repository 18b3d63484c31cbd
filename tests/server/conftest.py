from __future__ import annotations

import pytest
from tests.ledger.conftest import postgres, url
from tests.server.serving import serving, write_people

from sfumato_server.registry import Scope

__all__ = ["postgres", "url"]


@pytest.fixture(scope="session")
def people(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("data") / "people.parquet")


@pytest.fixture(scope="module")
def server(tmp_path_factory, people):
    """Two workers over SQLite with one dataset of ten epsilon, shared by a module."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('server')}/s.ledger", people) as started:
        yield started


@pytest.fixture
def steward(server):
    with server.client("stew", Scope.STEWARD) as client:
        yield client


@pytest.fixture
def analyst(server):
    with server.client("ana") as client:
        yield client
