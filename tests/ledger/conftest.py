from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from tests.services import require

from sfumato.ledger import Ledger, open_ledger, reservation
from sfumato.privacy.loss import Epsilon

SAVED = Path(__file__).parent / "saved"


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
    for place in [place for place in reservation._LOCKS if name in repr(place)]:  # noqa: SLF001
        reservation._LOCKS.pop(place).close()  # noqa: SLF001  (its session, which else lasts as long as the process)
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


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that copies a saved ledger and returns its address."""

    def make(name: str) -> str:
        file = tmp_path / f"{name}.ledger"
        with closing(sqlite3.connect(file)) as made:
            made.executescript((SAVED / f"{name}.sql").read_text(encoding="utf-8"))
            made.execute("PRAGMA journal_mode = WAL")
        return f"sqlite:///{file}"

    return make


@pytest.fixture
def saved_in_postgres(postgres: str) -> Callable[[str], str]:
    """Makes a saved ledger in an empty schema of PostgreSQL, and returns its address."""

    def make(name: str) -> str:
        address = make_url(postgres)
        schema = address.query["options"].rpartition("=")[2]
        dump = (SAVED / f"{name}.postgres.sql").read_text(encoding="utf-8")
        engine = create_engine(address.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"DROP SCHEMA {schema}"))
            connection.exec_driver_sql(
                dump.replace("CREATE SCHEMA saved", f"CREATE SCHEMA {schema}").replace("saved.", f"{schema}.")
            )
        engine.dispose()
        return postgres

    return make
