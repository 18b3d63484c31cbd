"""Children of children: keys, order and bounds hold in every row, and rows belong together across three tables."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from tests.nested_families import UNIT_ROWS, NestedFamilies, Row, kept_rows, nested, some_houses

from sfumato.domain.linked_domain import LinkedTables
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_synthesis import part_shares, release_units
from sfumato.vault.simulated import SimulatedVault

SMALL = ModelSizes(head_cells=20_000, tail_cells=20_000, calibration=3)


def simulated(houses: list[Row], tables: LinkedTables, *, loss=None, seed: int = 0, settings=SMALL):
    vault = SimulatedVault(NestedFamilies(houses, tables), seed=seed)
    return release_units(vault, tables, loss=loss or Rho(10), total=NoisyTotal(), settings=settings), vault


LEVELS = (("persons", "houses", "house"), ("jobs", "persons", "holder"), ("tasks", "jobs", "job"))
KEYS = {"houses": "house", "persons": "person", "jobs": "job"}


def broken(release, tables: LinkedTables) -> list[str]:
    """Return the violations in the rows: keys, owners, bounds per parent row and per unit, and the order."""
    found = []
    rows = {name: table.to_pylist() for name, table in release.tables.items()}
    unit_of = {("houses", row["house"]): row["house"] for row in rows["houses"]}
    for name, above, column in LEVELS[: len(rows) - 1]:
        child = next(each for each in tables.children if each.table.name == name)
        families, units = defaultdict(list), Counter()
        for row in rows[name]:
            owner = unit_of[above, row[column]]  # a KeyError where a row is of nobody
            families[row[column]].append(row)
            units[owner] += 1
            if name in KEYS:
                unit_of[name, row[KEYS[name]]] = owner
        if name in KEYS and sum(table == name for table, _ in unit_of) != len(rows[name]):
            found.append(f"a key of {name} is there twice")
        if max(map(len, families.values()), default=0) > child.most:
            found.append(f"a row of {above} has more {name} than are kept")
        if max(units.values(), default=0) > UNIT_ROWS[name]:
            found.append(f"a unit has more {name} than the schema bounds")
        values = [[row[child.order] for row in family] if child.order else [] for family in families.values()]
        found += [f"{name} are not in order" for each in values if each != sorted(each, reverse=child.falling)]
    return found


@pytest.mark.parametrize(
    "tables",
    [nested(4, 4, memory=2), nested(3, 1), nested(4, 5, 5)],
    ids=["two before", "one job", "many tasks"],
)
def test_keys_order_and_bounds_hold_in_every_row(tables) -> None:
    release, _ = simulated(some_houses(600, 1), tables, loss=Rho("0.5"))
    assert broken(release, tables) == []
    assert all(table.num_rows > 100 for table in release.tables.values())
    assert {part.name for part in release.codebook.parts} == {"head", *(table.name for table in tables.derived)}


def chained(units: int, seed: int) -> list[Row]:
    """Houses in which pay follows work, and who works has more jobs."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(units):
        large, persons = int(random.integers(2)), []
        for place in range(random.binomial(3, 0.4 + 0.4 * large)):
            work = int(random.random() < 0.2 + 0.6 * large)
            pay = 2 * work if random.random() < 0.9 else 1
            jobs = tuple(Row((pay,)) for _ in range(random.binomial(2, 0.2 + 0.6 * work)))
            persons.append(Row((3 - place, work), jobs))
        found.append(Row((large,), tuple(persons)))
    return found


def tied(house: Row, tables: LinkedTables) -> list[tuple[int, ...]]:
    """Return, per counted person, the house, work, number of jobs and their pay."""
    kept = kept_rows("h", house, tables)
    jobs = defaultdict(list)
    for job in kept["jobs"]:
        jobs[job.key.rpartition(".")[0]].append(job.codes[0])
    return [
        (house.codes[0], person.codes[1], len(jobs[person.key]), *sorted(jobs[person.key]))
        for person in kept["persons"]
    ]


def test_jobs_go_with_persons_and_with_one_another() -> None:
    houses, tables = chained(6_000, 3), nested(3, 2)
    release, _ = simulated(houses, tables, loss=Rho(20))
    real = Counter(each for house in houses for each in tied(house, tables))
    jobs = defaultdict(list)
    for job in release.tables["jobs"].to_pylist():
        jobs[job["holder"]].append(job["pay"])
    large = {row["house"]: int(row["large"] == "yes") for row in release.tables["houses"].to_pylist()}
    made = Counter(
        (large[row["house"]], int(row["work"] == "yes"), len(jobs[row["person"]]), *sorted(jobs[row["person"]]))
        for row in release.tables["persons"].to_pylist()
    )
    shares = [{key: count / found.total() for key, count in found.items()} for found in (real, made)]
    off = sum(abs(shares[0].get(key, 0) - shares[1].get(key, 0)) for key in {*real, *made}) / 2
    assert off < 0.04  # dealt at random, the jobs alone would be off by a third


def test_the_job_before_a_third_one_is_like_later_jobs() -> None:
    """Of the four jobs of a person the first has another pay.  Noise hides triples with the place."""
    person = Row((1, 1), tuple(Row((pay,)) for pay in (0, 2, 2, 2)))
    release, _ = simulated([Row((0,), (person,))] * 3000, nested(2, 4), loss=Rho("0.02"))
    tail = release.child_models["jobs.tail"]
    assert max(len(each.attributes) for each in tail.measured) == 2
    pays = tail.cells(("jobs.place", "jobs.previous.pay")).reshape(3, -1)
    shares = pays[:, 2] / pays.sum(axis=1)
    assert shares[0] < 0.1
    assert shares[1:].min() > 0.9


@pytest.mark.parametrize("loss", [Rho("0.5"), Epsilon(20), EpsilonDelta("10", "1e-9")], ids=str)
def test_all_that_is_measured_adds_up_to_the_loss_and_no_more(loss) -> None:
    _, vault = simulated(some_houses(800, 6), nested(3, 2), loss=loss)
    name = "epsilon" if isinstance(loss, Epsilon) else "rho"
    spent, whole = getattr(vault.spent, name), loss.divisible.value
    assert whole * 98 / 100 < spent <= whole


def test_shares_of_tables_are_equal_and_half_together() -> None:
    assert part_shares(nested(1, 1)) == {"jobs.head": 1 / 2}
    assert part_shares(nested(3, 2)) == {"persons.tail": 1 / 4, "jobs.head": 1 / 8, "jobs.tail": 1 / 8}
    assert sum(part_shares(nested(3, 2, 2)).values()) == 1 / 2


def test_what_noise_outweighs_is_said_and_fails_in_no_way() -> None:
    for houses in ([], [Row((0,))] * 50, some_houses(20, 1)):
        release, _ = simulated(houses, nested(3, 2, 2), loss=Rho("0.0001"))
        assert broken(release, nested(3, 2, 2)) == []
        assert any("no row of persons has any" in note for note in release.notes)
