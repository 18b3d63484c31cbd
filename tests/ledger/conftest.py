from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from tests.services import require

from sfumato.ledger import Ledger, open_ledger
from sfumato.privacy.loss import Epsilon


@pytest.fixture
def postgres() -> Iterator[str]:
    """An empty schema in PostgreSQL."""
    address = make_url(require("SFUMATO_TEST_POSTGRES")).set(drivername="postgresql+psycopg")
    name = f"test_{secrets.token_hex(8)}"
    engine = create_engine(address, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    inside = address.set(drivername="postgresql").update_query_dict({"options": f"-csearch_path={name}"})
    yield inside.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a ledger, on each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.ledger'}"
    return request.getfixturevalue("postgres")


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """A ledger of one epsilon."""
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as opened:
        yield opened
