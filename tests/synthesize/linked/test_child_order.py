"""Children stay in order, group by group and code by code."""

from __future__ import annotations

import numpy as np
import pytest
from tests.families import Family, related, sorted_children

from sfumato.model.coarsening import Coarsening
from sfumato.synthesize.linked.child_dates import ordered_codes, out_of_order_groups, ranks, weights_in_order


@pytest.mark.parametrize("falling", [True, False])
def test_ranks_follow_the_order_in_which_children_are_kept(falling) -> None:
    tables = related(5, falling=falling)
    rank = ranks(tables.children[0])
    kept = sorted_children("h0", Family(0, tuple((age, 0) for age in range(5))), tables)
    assert [int(rank[age]) for age, _ in kept] == [0, 1, 2, 3, 4]


def test_children_in_no_order_have_no_ranks() -> None:
    assert ranks(related(5, order=None, falling=False).children[0]) is None


def test_pairs_of_groups_are_barred_where_no_codes_are_in_order() -> None:
    rank = np.array([3, 2, 1, 0, 4])
    groups = Coarsening(np.array([0, 0, 1, 2, 3]), np.ones(5))
    found = out_of_order_groups(rank, groups)
    for one in range(4):
        for other in range(4):
            pairs = [
                (a, b) for a in range(5) for b in range(5) if groups.groups[a] == one and groups.groups[b] == other
            ]
            assert found[one, other] == all(rank[b] < rank[a] for a, b in pairs)


def test_codes_within_a_group_are_in_order_and_shared_out_as_the_group_is() -> None:
    random = np.random.default_rng(0)
    rank = np.array([4, 3, 2, 1, 0, 5])
    groups = Coarsening(np.array([0, 0, 0, 1, 1, 2]), np.array([1.0, 2.0, 1.0, 1.0, 0.0, 1.0]))
    before = random.integers(6, size=30_000)
    barred = out_of_order_groups(rank, groups)
    wanted = np.array([random.choice(np.flatnonzero(~barred[groups.groups[code]])) for code in before])
    codes = ordered_codes(rank, groups, wanted, before, random)
    assert (rank[codes] >= rank[before]).all()
    free = (wanted == 0) & (before == 3)
    shares = np.bincount(codes[free], minlength=6) / free.sum()
    assert np.abs(shares[:3] - [0.25, 0.5, 0.25]).max() < 0.05
    assert (groups.groups[codes] == wanted).mean() > 0.99


def test_weights_in_order_give_a_group_its_shares_over_all_children() -> None:
    random = np.random.default_rng(1)
    rank, groups = np.arange(6), Coarsening(np.array([0, 0, 0, 1, 1, 1]), np.ones(6))
    units = np.arange(20_000)
    slots = [(units, (random.random(len(units)) < slot / 4).astype(np.int64), np.ones(len(units))) for slot in (1, 2)]
    slots[1] = (units, np.maximum(slots[0][1], slots[1][1]), slots[1][2])  # groups rise
    first = np.zeros(len(units), dtype=np.int64)

    def shares(held: Coarsening) -> np.ndarray:
        previous, counts = first, np.zeros(6)
        for _, child_groups, _ in slots:
            previous = ordered_codes(rank, held, child_groups, previous, random)
            counts += np.bincount(previous, minlength=6)
        return (counts / groups.merge(counts)[groups.groups]).round(2)

    assert np.abs(shares(groups) - 1 / 3).max() > 0.08
    assert np.abs(shares(weights_in_order(rank, groups, slots, first, random)) - 1 / 3).max() < 0.03
