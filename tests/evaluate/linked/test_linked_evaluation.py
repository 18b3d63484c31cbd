"""A copy of the families is found out by attacks and by the share of copies, other families are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.evaluate.linked_tables import schema, write_hospital

from sfumato.errors import TableError
from sfumato.evaluate.linked.linked_evaluation import (
    DEALT,
    RELEASE,
    RESAMPLED,
    LinkedResult,
    copied,
    judge_linked_tables,
    lay_out,
)
from sfumato.evaluate.linked.table_tree import TableTree, orders, read_table_tree
from sfumato.evaluate.released import parse_claim


def families(folder: Path, seed: int, patients: int = 300) -> TableTree:
    return read_table_tree(write_hospital(folder, patients=patients, seed=seed), schema(), orders=orders(schema()))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableTree]:
    place = tmp_path_factory.mktemp("hospitals")
    names = ("members", "controls", "others")
    return {name: families(place / name, seed) for seed, name in enumerate(names)}


@pytest.fixture(scope="module")
def judged(people: dict[str, TableTree]) -> dict[str, LinkedResult]:
    claim = parse_claim("epsilon=0.1")
    controls = people["controls"]
    return {
        name: judge_linked_tables(people["members"], people[of], claim=claim, controls=controls, seed=0)
        for name, of in (("copy", "members"), ("others", "others"))
    }


def test_other_families_score_like_the_same_drawn_again(judged: dict[str, LinkedResult]) -> None:
    visits = judged["others"].edges[0]
    own, again, dealt = (visits.compared[name].scores for name in (RELEASE, RESAMPLED, DEALT))
    for measure in ("child2", "cross2", "sibling", "transition", "trigram"):
        assert getattr(own, measure) < 2.5 * getattr(again, measure), measure
    assert own.sibling_same is not None
    assert dealt.sibling_same is not None
    assert own.sibling_same < 0.5 * dealt.sibling_same


def test_a_copy_is_detected_and_other_releases_are_not(judged: dict[str, LinkedResult]) -> None:
    copy = {each.attack: each for each in judged["copy"].attacks}
    others = {each.attack: each for each in judged["others"].attacks}
    assert copy["membership of a family (visits)"].interval.low > 0.3
    assert copy["inference of a sibling's ward (visits)"].interval.low > 0.05
    # 99.99 % intervals of these fixed seeds: nothing depends on luck
    assert all(each.interval.low <= 0.05 for each in others.values())
    assert all(each.bound == pytest.approx(np.tanh(0.05)) for each in copy.values())


def test_copies_are_counted_beside_those_of_chance(judged: dict[str, LinkedResult]) -> None:
    copy, others = (judged[name].edges[0].copies for name in ("copy", "others"))
    assert copy is not None
    assert others is not None
    assert copy[0] > 0.4  # half of the families are looked for in the other half
    assert others[0] < copy[0] / 2
    assert others[1] == copy[1] < 0.2


def test_equal_families_are_equal_rows_whatever_their_order(people: dict[str, TableTree], tmp_path: Path) -> None:
    falling = orders(schema(), {"visits": "cost:falling"})
    again = read_table_tree(write_hospital(tmp_path, patients=300, seed=0), schema(), orders=falling)
    patients, visits, _ = people["members"].levels
    undated = orders(schema(), {"visits": ""})
    plain = read_table_tree(tmp_path, schema(), orders=undated)
    one, two = lay_out(*next(plain.edges())), lay_out(*next(again.edges()))
    small = np.bincount(visits.owner, minlength=patients.length) < 4  # of larger ones different visits are kept
    assert np.array_equal(one.rows[small], two.rows[small])
    assert copied(one, two, fewest=1) is not None


def test_the_result_is_json_and_keeps_exact_numbers_for_its_owner(judged: dict[str, LinkedResult]) -> None:
    public, internal = (judged["others"].to_json(internal=each) for each in (False, True))
    json.dumps(internal, allow_nan=False)
    assert "real" not in public
    assert "real" not in public["units"]
    assert "real_sizes" not in public["edges"][0]
    assert internal["units"] == {"release": 300, "real": 300}
    assert internal["edges"][0]["scores"][RELEASE]["size"] == pytest.approx(
        0.5 * np.abs(np.subtract(internal["edges"][0]["sizes"], internal["edges"][0]["real_sizes"])).sum()
    )


def test_tables_that_cannot_be_judged_are_refused(people: dict[str, TableTree]) -> None:
    members = people["members"]
    alone = TableTree(members.levels[:1])
    nobody = members.taken(np.zeros(0, dtype=np.int64))
    with pytest.raises(TableError, match="other tables"):
        judge_linked_tables(members, alone)
    with pytest.raises(TableError, match="no table of children"):
        judge_linked_tables(alone, alone)
    with pytest.raises(TableError, match="the release has no units"):
        judge_linked_tables(members, nobody)
    with pytest.raises(TableError, match="at least 40 families"):
        judge_linked_tables(members, members, controls=members.taken(np.arange(30)))
