"""Fixtures that the tests of every package share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing about the code
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests are dealt to several processes, those of a file go to one, which makes what they share once.

    Those on Spark go to one as well, as starting it takes longer than what is done with it.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            file = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group("spark" if "spark" in item.nodeid else file))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which ``SFUMATO_DATA`` names."""
    named = os.environ.get("SFUMATO_DATA")
    if not named or not (Path(named) / "MANIFEST.csv").is_file():
        pytest.skip("no real data; SFUMATO_DATA names their folder")
    return Path(named)
