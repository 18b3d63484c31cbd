"""Sessions on one table are replayed on a neighbor: nothing but noise may depend on a unit's rows."""

from __future__ import annotations

import pytest
from tests.replay.databases import whole_unit
from tests.replay.replay import differences, replayed
from tests.replay.sessions import LOSSES, Session, Step

SHORT, LONG = range(60), range(1000)


@pytest.mark.parametrize("seed", SHORT)
def test_a_neighbor_shows_nothing_else(seed: int) -> None:
    replayed(seed, linked=False)


@pytest.mark.parametrize("measure", LOSSES)
def test_a_unit_that_moves_as_much_as_is_declared_loses_no_more_than_is_charged(measure: str) -> None:
    statements = ["SELECT COUNT(*) FROM people", "SELECT SUM(age) FROM people", "SELECT AVG(income) FROM people"]
    loss = LOSSES[measure][0]
    asked = tuple(Step("ask", "ana", {"sql": sql, "loss": loss}) for sql in statements)
    assert differences(Session(0, "python", measure, whole_unit(), asked)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(len(LONG) // 100))
def test_neighbors_show_nothing_else_in_long_runs(hundred: int) -> None:
    for seed in LONG[100 * hundred : 100 * hundred + 100]:
        replayed(1000 + seed, linked=False)
