"""A question keeps its name in the journal, so that ledgers of every version repeat their answers free.

``identities.json`` was written by the version before the first that compares with it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.query.identities import identities


def test_every_kind_of_question_has_the_name_that_it_always_had() -> None:
    assert identities() == json.loads((Path(__file__).parent / "identities.json").read_text())
