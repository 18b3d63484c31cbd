"""Synthetic families: keys, order and bounds hold in every row, rows belong together, and nothing is asked twice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.families import DOCUMENT, PERSONS, VILLAGE, WORKS, Families, Family, frames, related, some_families

from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.domain.table_schema import parse_schema
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import BudgetError, DomainError, InputError, QueryError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import synthesize_linked as synthesize
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.simulated import SimulatedVault

RHO = Rho(10)
SMALL = ModelSizes(head_cells=20_000, tail_cells=20_000, calibration=3)


def chained(units: int, seed: int) -> list[Family]:
    """Families in which work runs on from child to child, ages fall, and large houses have many children."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(units):
        parent = int(random.integers(2))
        children, work = [], parent
        for place in range(random.binomial(4, 0.3 + 0.4 * parent)):
            work = work if random.random() < 0.85 else 1 - work
            children.append((3 - place, work))
        found.append(Family(parent, tuple(children)))
    return found


def simulated(families: list[Family], tables: LinkedTables, *, loss=RHO, seed: int = 0, settings=SMALL):
    vault = SimulatedVault(Families(families, tables), seed=seed)
    return release_units(vault, tables, loss=loss, total=NoisyTotal(), settings=settings), vault


def children_of(release) -> dict[int, list[tuple]]:
    """Return the persons of each house, in the order of the table."""
    found: dict[int, list[tuple]] = {house: [] for house in release.tables["houses"]["house"].to_pylist()}
    for row in release.tables["persons"].to_pylist():
        found[row["house"]].append((row["age"], row["work"]))
    return found


@pytest.mark.parametrize(
    "tables",
    [related(4), related(4, falling=False), related(5, memory=2), related(3, order=None, falling=False)],
    ids=["falling", "rising", "two before", "no order"],
)
def test_keys_order_and_bounds_hold_in_every_row(tables) -> None:
    release, _ = simulated(some_families(3000, 1), tables, loss=Rho("0.5"))
    families = children_of(release)  # every person's house is there, else a KeyError
    assert list(families) == list(range(1, len(families) + 1))
    assert max(map(len, families.values())) <= tables.children[0].most
    assert release.tables["persons"]["house"].to_pylist() == sorted(release.tables["persons"]["house"].to_pylist())
    if tables.children[0].order is not None:
        sign = -1 if tables.children[0].falling else 1
        for persons in families.values():
            keys = [(age is None, sign * (age or 0)) for age, _ in persons]
            assert keys == sorted(keys)


def test_numbers_of_children_are_those_of_the_table() -> None:
    families = chained(20_000, 2)
    release, _ = simulated(families, related(4), loss=Rho(10))
    true = np.bincount([min(len(family.children), 4) for family in families], minlength=5)
    drawn = np.bincount([len(persons) for persons in children_of(release).values()], minlength=5)
    # the noise of a one-way table at a few percent of the loss is below 5; rounding and fit add less than 20
    assert np.abs(true - drawn).max() < 40


def test_the_number_of_children_has_less_noise_than_another_column() -> None:
    """All children are counted by it, so the loss is divided as if it had four times its five cells."""
    release, _ = simulated(some_families(2000, 6), related(4))
    first = {
        table.attributes: table.deviation for table in release.unit_model.measured[: len(release.unit_model.domain)]
    }
    of_number, of_age = first["persons.number",], first["persons.first.age",]
    assert of_number / of_age == pytest.approx((4 * 5 / 6) ** (-1 / 3), rel=0.01)


def test_columns_of_few_children_take_a_larger_share_of_the_loss() -> None:
    """Noise on single columns of a tail is smaller in a small table, because they take more of the same loss."""

    def noise_on_ages(units: int) -> float:
        release, _ = simulated(some_families(units, 6), related(4), loss=Rho("0.1"))
        return next(each.deviation for each in release.measured if each.attributes == ("persons.this.age",))

    few, many = noise_on_ages(1_000), noise_on_ages(16_000)
    # errors are 16 times as large, so the share is 4 times as large, and the deviation half as large
    assert few / many == pytest.approx(0.5, rel=0.05)


def test_a_tail_scores_triples_if_noise_leaves_them_visible() -> None:
    """Measured pairs are modeled with triples at a large loss, and alone at a small one."""
    tables = related(4)

    def widest(loss: Rho) -> int:
        release, _ = simulated(chained(3000, seed=2), tables, loss=loss)
        return max(len(each.attributes) for each in release.measured if each.part == "persons.tail")

    assert (widest(Rho(10)), widest(Rho("0.05"))) == (3, 2)


def test_the_previous_child_of_a_third_one_is_like_later_children() -> None:
    """Of the four children of a house only the first does not work.  Noise hides triples with the place."""
    families = [Family(0, ((3, 0), (1, 1), (1, 1), (1, 1)))] * 1500
    release, _ = simulated(families, related(4), loss=Rho("0.02"))
    tail = release.child_models["persons.tail"]
    assert max(len(each.attributes) for each in tail.measured) == 2
    works = tail.cells(("persons.place", "persons.previous.work")).reshape(-1, WORKS)
    shares = works[:, 1] / works.sum(axis=1)
    assert shares[0] < 0.1
    assert shares[1:].min() > 0.9


def test_siblings_belong_together() -> None:
    families = chained(30_000, 3)
    release, _ = simulated(families, related(4), loss=Rho(100), settings=replace(SMALL, calibration=9))

    def pairs(kept) -> np.ndarray:
        table = np.zeros((2, 2, 2))  # work of the parent, of a child and of one after it
        for parent, works in kept:
            for one in range(len(works)):
                for other in range(one + 1, len(works)):
                    table[parent, works[one], works[other]] += 1
        return table / table.sum()

    sizes = release.tables["houses"]["size"].to_pylist()
    made = [
        ("SL".index(size), [int(work == "yes") for _, work in persons])
        for size, persons in zip(sizes, children_of(release).values(), strict=True)
    ]
    real = [(family.parent, [work for _, work in family.children[:5]]) for family in families]
    apart = np.random.default_rng(0).permutation([work for _, works in real for work in works]).tolist()
    dealt = [(parent, [apart.pop() for _ in works]) for parent, works in real]
    error, floor = (np.abs(pairs(each) - pairs(real)).sum() / 2 for each in (made, dealt))
    assert error < 0.02
    assert floor > 0.1


def test_without_noise_siblings_are_as_near_as_other_units_drawn() -> None:
    """A first-order chain is all that the model of a tail can say, so at a boundless loss only chance is left."""
    families = chained(20_000, 5)
    wide = ModelSizes(head_cells=200_000, tail_cells=400_000)
    release, _ = simulated(families, related(4), loss=Rho(1_000_000), settings=wide)
    sizes = release.tables["houses"]["size"].to_pylist()
    made = [
        ("SL".index(size), [(age, int(work == "yes")) for age, work in persons])
        for size, persons in zip(sizes, children_of(release).values(), strict=True)
    ]
    real = [(family.parent, list(family.children[:4])) for family in families]

    def cross(kept) -> dict:
        """Return, per child, its parent, the number of siblings, and the child."""
        found: dict = {}
        for parent, children in kept:
            for child in children:
                key = (parent, len(children), child)
                found[key] = found.get(key, 0) + 1
        return found

    def siblings(kept) -> dict:
        found: dict = {}
        for _, children in kept:
            for one, other in itertools.combinations(children, 2):
                key = tuple(sorted((one, other)))
                found[key] = found.get(key, 0) + 1
        return found

    def apart(one: dict, other: dict) -> float:
        all_of_one, all_of_other = sum(one.values()), sum(other.values())
        keys = set(one) | set(other)
        return sum(abs(one.get(key, 0) / all_of_one - other.get(key, 0) / all_of_other) for key in keys) / 2

    random = np.random.default_rng(6)
    for scores in (cross, siblings):
        again = [
            apart(scores([real[place] for place in random.integers(len(real), size=len(real))]), scores(real))
            for _ in range(5)
        ]
        assert apart(scores(made), scores(real)) < 1.5 * np.mean(again), scores.__name__


def test_the_same_request_is_the_same_rows_and_costs_nothing(tmp_path: Path) -> None:
    vault = open_schema(
        frames(some_families(200, 4)),
        schema=VILLAGE,
        ledger=f"sqlite:///{tmp_path / 'village.ledger'}",
        limit=EpsilonDelta("1", "1e-6"),
        create=True,
    )
    child = ChildTable(table=PERSONS, order="age", most=3)
    first = synthesize(vault, loss=EpsilonDelta("1", "1e-6"), children=[child], settings=SMALL)
    spent = vault.remaining.spent
    again = synthesize(vault, loss=EpsilonDelta("1", "1e-6"), children=[child], settings=SMALL)
    assert vault.remaining.spent == spent
    assert again.tables == first.tables
    assert "nothing" in again.cost
    with pytest.raises(BudgetError):
        synthesize(vault, loss=EpsilonDelta("1", "1e-6"), children=[replace(child, most=2)], settings=SMALL)
    assert vault.remaining.spent == spent
    said = first.provenance["parameters"]["related"]
    assert said["children"] == [{"table": "persons", "order": {"by": "age", "falling": False}, "most": 3, "memory": 1}]
    assert (said["tau"], said["whole"]) == (2, 720720)
    assert "all rows of one house of village" in first.guarantee


@pytest.mark.parametrize("other", [related(3, falling=False), related(3, memory=2)], ids=["order", "memory"])
def test_units_that_were_derived_otherwise_are_refused_and_cost_nothing(tmp_path, other) -> None:
    ledger = f"sqlite:///{tmp_path / 'village.ledger'}"
    vault = open_schema(frames(some_families(50, 4)), schema=VILLAGE, ledger=ledger, limit=Epsilon(1), create=True)
    with pytest.raises(QueryError, match="not of the units of these related tables"):
        release_units(vault.of_units(related(3)), other, loss=Epsilon(1), total=NoisyTotal(), settings=SMALL)
    assert vault.remaining.spent.epsilon == 0


def test_rows_are_made_without_the_vault(monkeypatch) -> None:
    release, vault = simulated(some_families(300, 5), related(4))
    spent = vault.spent

    def closed(*_: object) -> None:
        raise AssertionError("the protected tables are not read again")

    for name in ("marginals", "derived", "batches"):
        monkeypatch.setattr(ArrayTable, name, closed)
    monkeypatch.setattr(Families, "derived", closed)
    assert release.tables["persons"].num_rows > 0
    assert vault.spent == spent


@pytest.mark.parametrize("loss", [Rho("0.5"), Epsilon(1), EpsilonDelta("1", "1e-9")], ids=str)
@pytest.mark.parametrize("most", [1, 4])
def test_all_that_is_measured_adds_up_to_the_loss_and_no_more(loss, most) -> None:
    _, vault = simulated(some_families(2000, 6), related(most), loss=loss)
    name = "epsilon" if isinstance(loss, Epsilon) else "rho"
    spent, whole = getattr(vault.spent, name), loss.divisible.value
    assert whole * 98 / 100 < spent <= whole


def test_a_tail_that_noise_outweighs_is_drawn_as_the_first_children_and_said_so() -> None:
    release, _ = simulated([Family(1, ((3, 1), (2, 1)))] * 40, related(4), loss=Rho("0.0001"))
    assert any("beyond the first" in note for note in release.notes)
    assert set(release.tables) == {"houses", "persons"}


@pytest.mark.parametrize("families", [[], [Family(0, ())] * 50], ids=["nobody", "no children"])
def test_tables_without_rows_fail_in_no_way(families) -> None:
    release, _ = simulated(families, related(3), loss=Rho("0.1"))
    assert {table.schema.names[0] for table in release.tables.values()} == {"house"}


def test_units_without_a_table_of_their_own_are_those_with_a_child(tmp_path: Path) -> None:
    document = {**DOCUMENT, "unit": {"id": "house"}, "tables": {"persons": DOCUMENT["tables"]["persons"]}}
    schema = parse_schema(document)
    child = ChildTable(table=schema["persons"], order="age", most=4)
    families = [family for family in some_families(500, 7) if family.children]
    vault = open_schema(
        {"persons": frames(families)["persons"]},
        schema=schema,
        ledger=f"sqlite:///{tmp_path / 'x.ledger'}",
        limit=Rho(5),
        create=True,
    )
    release = synthesize(vault, loss=Rho(5), children=[child], settings=SMALL)
    assert list(release.tables) == ["persons"]
    houses = release.tables["persons"]["house"].to_pylist()
    assert abs(len(set(houses)) - len(families)) < 60
    assert max(houses.count(house) for house in houses[:50]) <= 4


def test_sequences_of_one_attribute_and_of_nobody_else_are_made(tmp_path: Path) -> None:
    persons = {
        **DOCUMENT["tables"]["persons"],
        "attributes": {"work": DOCUMENT["tables"]["persons"]["attributes"]["work"]},
    }
    houses = {**DOCUMENT["tables"]["houses"], "attributes": {}}
    given = frames(some_families(300, 9))
    for place, tables in enumerate(({"persons": persons}, {"houses": houses, "persons": persons})):
        unit = {"id": "house"} | ({"table": "houses"} if "houses" in tables else {})
        schema = parse_schema({**DOCUMENT, "unit": unit, "tables": tables})
        ledger = f"sqlite:///{tmp_path / f'{place}.ledger'}"
        vault = open_schema(
            {name: given[name] for name in tables}, schema=schema, ledger=ledger, limit=Rho(1), create=True
        )
        release = synthesize(vault, loss=Rho(1), settings=SMALL)
        assert set(release.tables) == set(tables)
        assert release.tables["persons"].column_names == ["house", "work"]


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    release, _ = simulated(some_families(100, 8), related(3))
    full = tmp_path / "full"
    full.mkdir()
    (full / "other.txt").write_text("kept")
    for folder, words in ((full, "not empty"), (tmp_path / "no" / "folder", "cannot be written")):
        with pytest.raises(InputError, match=words):
            release.write(folder)
    with pytest.raises(InputError, match="parquet or csv"):
        release.write(tmp_path / "new", file_format="xlsx")
    written = release.write(tmp_path / "new", file_format="csv")
    assert [path.name for path in written] == ["houses.csv", "persons.csv"]
    release.write(tmp_path / "more")
    assert pa.parquet.read_table(tmp_path / "more" / "persons.parquet").equals(release.tables["persons"])

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr("sfumato.vault.release.ReleasedRows.write", broken)
    with pytest.raises(Exception, match="cannot write"):
        release.write(tmp_path / "broken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "more", "new"]


def test_wrong_settings_and_vaults_are_refused() -> None:
    with pytest.raises(InputError, match="whole numbers"):
        ModelSizes(head_cells=0)
    with pytest.raises(InputError, match="open_schema"):
        synthesize(SimulatedVault(Families([], related(2)), seed=0), loss=Rho(1))
    with pytest.raises(DomainError, match="described otherwise"):
        LinkedTables(schema=VILLAGE, children=(ChildTable(table=replace(PERSONS, rows=9), most=2),))
