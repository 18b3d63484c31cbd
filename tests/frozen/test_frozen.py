"""The journal, its stored answers, and what identifies a question keep the bytes that ``saved`` holds.

If a test fails here, a question that was charged would be charged twice, or an old ledger would be unreadable.  See
:mod:`tests.frozen.releases`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.frozen.releases import LEDGERS, SAVED, journal, release_all, write_tables


def restore(ledger: str, folder: Path) -> Path:
    file = folder / ledger
    with closing(sqlite3.connect(file)) as database:
        database.executescript((SAVED / f"{ledger}.sql").read_text(encoding="utf-8"))
        database.execute("PRAGMA journal_mode = WAL")
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    return tmp_path


NEW_NAMES = {"aim": "batched", "annealed": "aim-2022"}


def renamed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a saved entry as a new ledger has it: under the new name of its method, and so with another key."""
    if entry["method"] not in NEW_NAMES:
        return entry
    method = NEW_NAMES[entry["method"]]
    question = entry["question"].replace(f'"method":"{entry["method"]}"', f'"method":"{method}"')
    charge = [entry["epsilon"], entry["rho"], entry["delta"]]
    name = json.dumps([hashlib.sha256(question.encode()).hexdigest(), charge], separators=(",", ":"))
    return entry | {"method": method, "question": question, "key": hashlib.sha256(name.encode()).hexdigest()}


def test_every_stored_answer_is_returned_for_nothing(folder: Path) -> None:
    before = [journal(restore(ledger, folder)) for ledger in LEDGERS]
    assert release_all(folder, create=False) == json.loads((SAVED / "printed.json").read_text(encoding="utf-8"))
    assert [journal(folder / ledger) for ledger in LEDGERS] == before


def test_a_new_ledger_gets_the_same_entries(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    release_all(folder, create=True)
    old = tmp_path_factory.mktemp("saved")
    for ledger in LEDGERS:
        assert journal(folder / ledger) == [renamed(each) for each in journal(restore(ledger, old))]
