"""Fixtures that every room shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from alembic import command
from alembic.config import Config
from hypothesis import settings
from sqlalchemy import Connection, event, inspect

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing about the code
settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests are dealt to several processes, those of a file go to one, which makes what they share once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: ``SFUMATO_DATA``, or ``shared/data`` beside the checkout."""
    folder = Path(os.environ.get("SFUMATO_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "MANIFEST.csv").is_file():
        pytest.skip(f"real data not found in {folder}; set SFUMATO_DATA")
    return folder


@pytest.fixture(scope="session", autouse=True)
def founded_by_heart() -> Iterator[None]:
    """Ledgers are founded in half of the time: what the migrations said to the first empty database is said again.

    Only in this process, and only where there is no table yet; programs that tests start migrate as they do.
    """
    upgrade = command.upgrade
    said: dict[str, list[tuple[str, object]]] = {}

    def founded(config: Config, revision: str) -> None:
        connection: Connection = config.attributes["connection"]
        kind = connection.dialect.name
        if inspect(connection).get_table_names():
            upgrade(config, revision)
        elif kind in said:
            for statement, parameters in said[kind]:
                connection.exec_driver_sql(statement, parameters)
        else:
            heard: list[tuple[str, object]] = []

            def hear(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
                heard.append((statement, parameters or None))

            event.listen(connection, "before_cursor_execute", hear)
            try:
                upgrade(config, revision)
            finally:
                event.remove(connection, "before_cursor_execute", hear)
            said[kind] = heard

    with patch.object(command, "upgrade", founded):
        yield
