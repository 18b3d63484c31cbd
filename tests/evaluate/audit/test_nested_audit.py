"""Audits of units with children of children: what the vault counts passes, and each planted fault is found.

The draws are the same at each run.  With fresh ones an honest mechanism would be rejected with probability 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.nested_families import UNIT_ROWS, NestedFamilies, Row, nested, some_houses

from sfumato.domain.linked_domain import WHOLE
from sfumato.engine.exact import reveal
from sfumato.evaluate.audit.audit import Finding, audit
from sfumato.evaluate.audit.unit_audit import gaussian_unit_subject
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import Rho
from sfumato.vault.unit_measurables import DerivedMarginal

PERSONS, JOBS = 3, 2
TABLES = nested(PERSONS, JOBS)
HEAD, TAIL = (table for table in TABLES.derived if table.name.startswith("jobs"))
OTHERS = some_houses(3, 2)
CLAIM = Rho("0.5")
DRAWS = 25_600
UNITS = {
    "persons without jobs": Row((0,), (Row((2, 1)),) * PERSONS),
    "most persons, most jobs": Row((0,), (Row((2, 1), (Row((1,)),) * JOBS),) * PERSONS),
    "one person, two jobs": Row((1,), (Row((0, 0), (Row((1,)), Row((1,)))),)),
    "more than are kept": Row((0,), (Row((2, 1), (Row((1,)),) * 9),) * 9),
}

Count = Callable[[Sequence[Row]], np.ndarray]


def counted(table, name: str) -> Count:
    """Return the vault's count."""

    def count(houses: Sequence[Row]) -> np.ndarray:
        return reveal(DerivedMarginal(table, (name,)).count(NestedFamilies(houses, TABLES)))

    return count


def heads(weight: Callable[[int], int], *, cut: bool = True) -> Count:
    """Count the jobs of each person by hand, with other weights, or with all persons of a house."""

    def count(houses: Sequence[Row]) -> np.ndarray:
        cells = np.zeros(JOBS + 1, dtype=np.int64)
        for house in houses:
            persons = sorted(house.below, key=lambda person: -person.codes[0])[: PERSONS if cut else None]
            for person in persons:
                cells[min(len(person.below), JOBS)] += weight(min(len(persons), PERSONS))
        return cells

    return count


def tails(weight: Callable[[int, int], int], *, most: int = UNIT_ROWS["jobs"]) -> Count:
    """Count further jobs by pay, by hand, each weighted by the jobs of its person and of the house."""

    def count(houses: Sequence[Row]) -> np.ndarray:
        cells = np.zeros(3, dtype=np.int64)
        for house in houses:
            left, further = most, []
            for person in sorted(house.below, key=lambda each: -each.codes[0])[:PERSONS]:
                jobs = sorted(person.below, key=lambda job: job.codes[0])[: min(JOBS, left)]
                left -= len(jobs)
                further += [(job.codes[0], len(jobs) - 1) for job in jobs[1:]]
            for pay, own in further:
                cells[pay] += weight(own, len(further))
        return cells

    return count


def audited(count: Count, unit: Row) -> Finding:
    counts = count(OTHERS), count([*OTHERS, unit])
    entropy = SimulatedEntropy(5)
    return audit(
        gaussian_unit_subject("nested", counts, squared_sensitivity=WHOLE**2, claim=CLAIM, entropy=entropy), draws=DRAWS
    )


HONEST = {"head": counted(HEAD, "jobs.number"), "tail": counted(TAIL, "jobs.this.pay")}


@pytest.mark.parametrize(
    ("part", "name"),
    [(part, name) for part in HONEST for name in UNITS if (part, name) != ("tail", "persons without jobs")],
)
def test_what_the_vault_counts_passes(part: str, name: str) -> None:
    count = HONEST[part]
    finding = audited(count, UNITS[name])
    assert finding.passed, finding


def test_the_worst_unit_comes_near_its_claim() -> None:
    finding = audited(counted(HEAD, "jobs.number"), UNITS["persons without jobs"])
    assert 0.9 < finding.proven <= finding.claimed


@pytest.mark.parametrize(
    ("fault", "unit"),
    [
        (heads(lambda _: WHOLE), "persons without jobs"),
        (heads(lambda _: WHOLE // 2), "persons without jobs"),
        (heads(lambda number: WHOLE // max(2, number), cut=False), "more than are kept"),
        (tails(lambda own, _: WHOLE // max(1, own)), "more than are kept"),
        (tails(lambda _own, _all: WHOLE), "most persons, most jobs"),
    ],
    ids=[
        "every person weighs all",
        "every person weighs half",
        "persons are cut after they are numbered",
        "jobs weigh by those of their person",
        "every job weighs all",
    ],
)
def test_planted_faults_are_found(fault: Count, unit: str) -> None:
    finding = audited(fault, UNITS[unit])
    assert not finding.passed, finding
    assert finding.proven > 1.1


def test_counting_by_hand_gives_what_the_vault_counts() -> None:
    head, tail = heads(lambda number: WHOLE // max(2, number)), tails(lambda _, every: WHOLE // max(2, every))
    for name in ("persons without jobs", "one person, two jobs"):
        assert np.array_equal(head([UNITS[name]]), HONEST["head"]([UNITS[name]]))
    for name in ("most persons, most jobs", "one person, two jobs"):
        assert np.array_equal(tail([UNITS[name]]), HONEST["tail"]([UNITS[name]]))
