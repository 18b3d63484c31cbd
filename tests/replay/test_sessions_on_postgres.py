"""Sessions of a program on tables of PostgreSQL: what holds for files holds for them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.engine.test_views_on_databases import url_of
from tests.replay.replay import differences
from tests.replay.running import WAYS, PythonWay
from tests.replay.sessions import drawn_session

SEEDS = range(200)
SHORT = 2  # sessions of each kind: each takes as long as eight on files
_TYPES: dict[pa.DataType, Any] = {
    pa.int64(): sa.BigInteger,
    pa.string(): sa.String(20),
    pa.float64(): sa.Double,
    pa.date32(): sa.Date,
}


class PostgresWay(PythonWay):
    """A program that opens tables of a database, whose owner rewrites them for each version."""

    address: sa.URL
    written: int | None = None

    def tables(self) -> Any:
        """Write the tables of the version unless they exist, and return their address."""
        if self.written != self.version:
            self.written = self.version
            self._write()
        plain = self.address.set(drivername="postgresql").render_as_string(hide_password=False)
        return plain if self.linked else {"people": f"{plain}?table=people"}

    def _write(self) -> None:
        engine = sa.create_engine(self.address, poolclass=sa.NullPool)
        described = sa.MetaData()
        with engine.begin() as connection:
            for name, frame in self.session.history.frames(self.side, self.version).items():
                kinds = self.session.history.types[name].items()
                columns = [sa.Column(column, _TYPES[kind]) for column, kind in kinds]
                table = sa.Table(name, described, *columns)
                table.drop(connection, checkfirst=True)
                table.create(connection)
                if len(frame):
                    connection.execute(table.insert(), frame.to_pylist())


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the way, to a database of its own."""
    server = url_of("SFUMATO_TEST_POSTGRES")
    name = f"replay_{secrets.token_hex(6)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    monkeypatch.setattr(PostgresWay, "address", server.set(database=name), raising=False)
    monkeypatch.setitem(WAYS, "postgres", PostgresWay)
    try:
        yield "postgres"
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("linked", [False, True], ids=["one table", "linked tables"])
def test_a_neighbor_shows_nothing_else(way: str, *, linked: bool) -> None:
    drawn = (drawn_session(seed, linked=linked) for seed in SEEDS)
    for session in [each for each in drawn if each.way == "python"][:SHORT]:
        found = differences(replace(session, way=way))
        assert not found, f"{session}\n" + "\n".join(found)
