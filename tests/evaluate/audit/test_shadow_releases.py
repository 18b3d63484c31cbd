"""Releases of linked tables with and without one unit: attacks distinguish them no better than the loss allows.

The attacker knows all other units, and reads the noisy tables that a release publishes.  Is the unit in the table, the
largest or the rarest one; and, with its first child known, of what age and work are its siblings?  Each planted fault
is found by the same attacker, so that to pass says something.

The draws are the same at each run.  With fresh ones an honest release would be rejected with probability 1e-3 a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.families import DOCUMENT, WORKS, Families, Family, derived_rows

from sfumato.domain.linked_domain import WHOLE, ChildTable, link_tables
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.evaluate.audit.unit_audit import KnownRows, log_likelihood, shadow_inference, shadow_membership
from sfumato.evaluate.intervals import Advantage
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_release import HEAD, LinkedRelease
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.synthesize.linked.saved_linked import load_linked, save_linked
from sfumato.vault.simulated import SimulatedVault

MOST = 16
SCHEMA = parse_schema(
    {**DOCUMENT, "tables": {**DOCUMENT["tables"], "persons": {**DOCUMENT["tables"]["persons"], "rows": MOST}}}
)
TABLES = link_tables(SCHEMA, [ChildTable(table=SCHEMA["persons"], order="age", falling=True, most=MOST)])
(TAIL,) = TABLES.derived
SIZES = ModelSizes(head_cells=40, tail_cells=40, calibration=1)  # a release takes a tenth of a second
NUMBER = 1  # the column of the number of children
SIBLINGS = [(age, work) for age in range(3) for work in range(WORKS)]  # younger than the one that is known
TRUE = SIBLINGS.index((2, 1))
CLAIM = Rho("0.2")

pytestmark = pytest.mark.xdist_group("shadow releases")


def drawn(count: int) -> list[Family]:
    """Houses of one to four children of two ages and two works."""
    luck = np.random.default_rng(4)
    return [
        Family(
            int(luck.integers(2)),
            tuple((int(luck.integers(2)), int(luck.integers(2))) for _ in range(luck.integers(1, 5))),
        )
        for _ in range(count)
    ]


def largest(sibling: tuple[int, int], children: int = MOST) -> Family:
    """Return a family with all but one of its children in one cell."""
    return Family(0, ((3, 1), *((sibling,) * (children - 1))))


def rarest(sibling: tuple[int, int]) -> Family:
    """Two children, of whom the first has an age and a work that nobody else has."""
    return Family(1, ((3, 2), sibling))


OTHERS = drawn(300)
UNITS: dict[str, Callable[[tuple[int, int]], Family]] = {
    "the largest": largest,
    "the rarest": rarest,
    "more than are kept": partial(largest, children=10 * MOST),
}
Count = Callable[[Family, int], int]  # times that the row of a child is in the tail, given the child: 1 and more


def once(_family: Family, _child: int) -> int:
    """Count each child once, as the product does."""
    return 1


def weighing_all(family: Family, _child: int) -> int:
    """Rows of the tail weigh the whole each: as many equal rows of the weight that they should have."""
    return max(TABLES.tau, min(len(family.children), MOST) - 1)


def cut_after_counting(family: Family, child: int) -> int:
    """Count children beyond the bound in the tail too, as its last ones."""
    return 1 + max(0, len(family.children) - MOST) * (child == MOST)


class Counted(Families):
    """Families whose children the engine may count more than once."""

    def __init__(self, families: Sequence[Family], count: Count) -> None:
        super().__init__(families, TABLES)
        codes = known(families, count)[TAIL.name].codes
        repeated = np.repeat(codes, times(families, count), axis=0)
        self._tails = {TAIL.name: ArrayTable(TAIL.counted, repeated)}


def times(families: Sequence[Family], count: Count) -> list[int]:
    """Return how often each row of the tail is counted."""
    kept = [(family, min(len(family.children), MOST)) for family in families]
    return [count(family, child) for family, number in kept for child in range(2, number + 1)]


def known(families: Sequence[Family], count: Count) -> dict[str, KnownRows]:
    """Return the counts of an attacker who knows these families and the weights of rows."""
    head, tail = (np.array(rows, dtype=np.int64) for rows in derived_rows(families, TABLES))
    weights = np.array([WHOLE // max(2, number + 1) for number in tail[:, NUMBER]]) * times(families, count)
    return {
        HEAD: KnownRows(TABLES.unit_domain.names, head, np.ones(len(head), dtype=np.int64)),
        TAIL.name: KnownRows(TAIL.domain.names, tail, weights),
    }


def published(release: LinkedRelease) -> dict[str, Sequence[NoisyTable]]:
    """The noisy tables that travel with a release."""
    return {HEAD: release.unit_model.tables, **{name: tail.tables for name, tail in release.child_models.items()}}


def released(families: Families, loss: Loss, seed: int) -> LinkedRelease:
    vault = SimulatedVault(families, seed=seed)
    return release_units(vault, TABLES, loss=loss, total=NoisyTotal(), settings=SIZES)


class Shadows(NamedTuple):
    """Log-likelihoods of each release, with and without the unit: without any candidate unit, and with each of them."""

    without: np.ndarray  # (releases, 1 + siblings)
    present: np.ndarray

    def attacked(self, attack: str, claim: Loss) -> Advantage:
        if attack == "membership":
            with_, none = (each[:, 1 + TRUE] - each[:, 0] for each in (self.present, self.without))
            return shadow_membership(with_, none, claim=claim)
        return shadow_inference(self.present[:, 1:], self.without[:, 1:], true=TRUE, claim=claim)


@cache
def shadows(unit: str, loss: Loss, number: int, count: Count = once) -> Shadows:
    possible = [OTHERS, *([*OTHERS, UNITS[unit](sibling)] for sibling in SIBLINGS)]
    assumed = [known(families, count) for families in possible]
    found = []
    for side, families in enumerate((possible[0], possible[1 + TRUE])):
        counted = Counted(families, count)
        made = [published(released(counted, loss, 2 * seed + side)) for seed in range(number)]
        found.append(np.array([[log_likelihood(tables, each) for each in assumed] for tables in made]))
    return Shadows(*found)


def lost(release: LinkedRelease, unit: Family) -> float:
    """The rho that a unit loses by the noisy tables of a release."""
    own = known([unit], once)
    return sum(
        float((own[part].count_cells(table).astype(float) ** 2).sum()) / (2 * float(table.noise.sigma_squared))
        for part, tables in published(release).items()
        for table in tables
    )


ATTACKS = ["membership", "siblings"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_rows_that_weigh_all_are_found(attack: str) -> None:
    found = shadows("the largest", CLAIM, 40, weighing_all).attacked(attack, CLAIM)
    assert found.interval.low > found.bound == CLAIM.advantage_bound(), found


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_release_as_it_is_keeps_its_word(attack: str) -> None:
    found = shadows("the largest", CLAIM, 20).attacked(attack, CLAIM)
    assert found.interval.low <= CLAIM.advantage_bound(), found


@pytest.mark.parametrize("unit", ["the largest", "the rarest"])
def test_of_the_loss_most_but_not_all_is_published_of_the_largest_unit(unit: str) -> None:
    """So that no attacker has much more to go by than this one."""
    family = UNITS[unit](SIBLINGS[TRUE])
    found = lost(released(Counted([*OTHERS, family], once), CLAIM, 5), family) / float(CLAIM.value)
    assert (0.8 if unit == "the largest" else 0.4) < found <= 1


def test_a_saved_release_tells_as_much(tmp_path: Path) -> None:
    release = released(Counted(OTHERS, once), CLAIM, 6)
    save_linked(release, tmp_path / "model")
    assumed = known(OTHERS, once)
    read = published(load_linked(tmp_path / "model"))
    assert log_likelihood(read, assumed) == log_likelihood(published(release), assumed) < 0


def test_counts_are_those_of_the_vault_where_there_is_no_noise_to_speak_of() -> None:
    family = UNITS["the largest"](SIBLINGS[TRUE])
    tables = published(released(Counted([*OTHERS, family], once), Rho(1000), 7))
    rows = known([*OTHERS, family], once)
    for part, each in tables.items():
        for table in each:
            apart = np.abs(table.values - rows[part].count_cells(table))
            assert apart.max() <= 8 * math.sqrt(table.noise.variance)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    ("unit", "loss"), [("the largest", Rho(2)), ("the rarest", Rho(2)), ("the largest", Epsilon(4))], ids=str
)
def test_nobody_gains_more_than_the_loss_allows(unit: str, loss: Loss, attack: str) -> None:
    found = shadows(unit, loss, 100).attacked(attack, loss)
    assert found.interval.low <= loss.advantage_bound(), found


@pytest.mark.slow
def test_at_a_large_loss_the_attacker_gains_what_such_noise_allows() -> None:
    loss = Rho(2)
    found = shadows("the largest", loss, 100).attacked("membership", loss)
    most = math.erf(math.sqrt(float(loss.value)) / 2)  # of two normal distributions the root of 2 rho apart
    assert 0 < found.interval.low <= most <= loss.advantage_bound()
    assert found.interval.high > 0.8 * most


BARE = Rho(8)  # noise of a fortieth of the variance that the claim needs


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    ("unit", "loss", "number", "count"),
    [("the largest", BARE, 160, once), ("more than are kept", CLAIM, 80, cut_after_counting)],
    ids=["too little noise", "cut after counting"],
)
def test_other_planted_faults_are_found(unit: str, loss: Loss, number: int, count: Count, attack: str) -> None:
    found = shadows(unit, loss, number, count).attacked(attack, CLAIM)
    assert found.interval.low > CLAIM.advantage_bound(), found


@pytest.mark.slow
def test_too_little_noise_is_found_by_the_rarest_as_well() -> None:
    found = shadows("the rarest", BARE, 80).attacked("membership", CLAIM)
    assert found.interval.low > CLAIM.advantage_bound(), found


def test_attacks_of_wrong_numbers_are_refused() -> None:
    few, many = np.zeros(3), np.zeros(8)
    for one, other in ((few, few), (few, many)):
        with pytest.raises(InputError, match="at least four"):
            shadow_membership(one, other, claim=CLAIM)
    with pytest.raises(InputError, match="same candidates"):
        shadow_inference(np.zeros((3, 2)), np.zeros((4, 2)), true=0, claim=CLAIM)
