"""Sessions on linked tables are replayed on a neighbor: nothing but noise may depend on a unit's rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.replay.databases import many_doctors
from tests.replay.replay import differences, replayed
from tests.replay.running import WAYS
from tests.replay.sessions import LINKED, LOSSES, Session, Step

SHORT, LONG = range(40), range(1000)


@pytest.mark.parametrize("seed", SHORT)
def test_a_neighbor_shows_nothing_else(seed: int) -> None:
    replayed(seed, linked=True)


def test_whose_the_rows_of_a_table_are_is_fixed_with_the_tables_above_it() -> None:
    """A drug is of the person of its visit; asked by a schema in which it is of the doctor, one person moves twelve."""
    asked = Step("ask with other owners", "ana", {"loss": LOSSES["pure"][0]}, bound=3)
    assert differences(Session(0, "python", "pure", many_doctors(), (asked,))) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_question_is_charged_again_in_the_next_version_whatever_changed(way: str) -> None:
    """One history is unchanged; in the other, a person arrives with the second version."""
    history = many_doctors()
    history = replace(history, right=[history.left[0], history.right[1]])
    loss = LOSSES["pure"][0]
    asked = [Step("ask", "ana", {"sql": sql, "loss": loss}, bound) for sql, bound in (LINKED[1], LINKED[4])]
    assert differences(Session(0, way, "pure", history, (*asked, Step("new version"), *asked))) == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(len(LONG) // 100))
def test_neighbors_show_nothing_else_in_long_runs(hundred: int) -> None:
    for seed in LONG[100 * hundred : 100 * hundred + 100]:
        replayed(1000 + seed, linked=True)
