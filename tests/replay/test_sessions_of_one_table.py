"""Sessions on one table are replayed on a neighbor: nothing but noise may depend on a unit's rows."""

from __future__ import annotations

import pytest
from tests.replay.replay import replayed

SHORT, LONG = range(60), range(1000)


@pytest.mark.parametrize("seed", SHORT)
def test_a_neighbor_shows_nothing_else(seed: int) -> None:
    replayed(seed, linked=False)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(len(LONG) // 100))
def test_neighbors_show_nothing_else_in_long_runs(hundred: int) -> None:
    for seed in LONG[100 * hundred : 100 * hundred + 100]:
        replayed(1000 + seed, linked=False)
