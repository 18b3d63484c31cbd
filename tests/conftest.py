"""Fixtures that the tests of every package share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

LONGEST = {
    group: place
    for place, group in enumerate(
        (
            "spark",
            "tests/server/ui/test_page.py",
            "tests/engine/test_conformance.py",
            "tests/engine/test_sql.py",
            "tests/test_docs.py",
            "tests/app/test_anonymizing.py",
            "tests/server/test_safety.py",
            "tests/app/test_engines.py",
            "tests/server/test_service.py",
            "tests/server/test_interrupted.py",
            "tests/labs/test_databases.py",
            "tests/labs/test_anonymize_labs.py",
            "tests/synthesize/test_graphical_methods.py",
            "tests/evaluate/test_frontier.py",
            "tests/app/test_cli.py",
            "tests/engine/test_duck_session.py",
            "tests/app/test_without_pandas.py",
        )
    )
}

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing about the code
settings.load_profile("untimed")


class ByFile(LoadScopeScheduling):
    """Deals whole files to processes, so that each makes once what its tests share.

    Tests on Spark, of whichever file, go to one process: starting it takes longer than what is done with it.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _group(nodeid: str) -> str:
    return "spark" if "spark" in nodeid else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Our own scheduler, as that of xdist 3.8 cannot set the groups of pytest 9.2, and deals each test alone."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that no process begins one when the others are through."""
    items.sort(key=lambda item: LONGEST.get(_group(item.nodeid), len(LONGEST)))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which ``SFUMATO_DATA`` names."""
    named = os.environ.get("SFUMATO_DATA")
    if not named or not (Path(named) / "MANIFEST.csv").is_file():
        pytest.skip("no real data; SFUMATO_DATA names their folder")
    return Path(named)
