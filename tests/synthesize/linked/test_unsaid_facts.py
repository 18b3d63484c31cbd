"""Facts that a release of linked tables and its errors must not reveal: outputs are bit for bit equal without them.

Noise is seeded, so that a release can be compared with that of other tables; its rows are drawn by the digest of all
that it publishes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.families import VILLAGE, Family, frames, related
from tests.synthesize.linked.test_child_dates import CLINIC, VISITS
from tests.synthesize.linked.test_child_dates import frames as clinic_frames

from sfumato.domain.linked_domain import ChildTable, LinkedTables, link_tables
from sfumato.domain.table_schema import Schema
from sfumato.engine.views.joined import open_tables
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked as synthesize
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_release import LinkedRelease
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.simulated import SimulatedVault

MOST = 3
TABLES = related(MOST)
SIZES = ModelSizes(head_cells=60, tail_cells=60, calibration=1)
Tables = dict[str, pa.Table]
SCHEMAS = {name: table.schema for name, table in frames([Family(0, ((0, 0),))]).items()}


def distinct(count: int, seed: int = 1) -> list[Family]:
    """Houses whose persons are of different ages, all above the least, so that no two tie."""
    luck = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        ages = luck.permutation([1, 2, 3])[: luck.integers(0, MOST + 1)]
        found.append(Family(int(luck.integers(2)), tuple((int(age), int(luck.integers(3))) for age in ages)))
    return found


FAMILIES = distinct(150)
CLEAN = frames(FAMILIES)


def made(given: Tables, tables: LinkedTables = TABLES, schema: Schema = VILLAGE) -> LinkedRelease:
    encoded = open_tables(schema, given).derive(tables)
    vault = SimulatedVault(encoded, seed=3)  # type: ignore[arg-type]
    return release_units(vault, tables, loss=Rho("0.5"), total=NoisyTotal(), settings=SIZES)


def more(given: Tables, name: str, rows: Sequence[dict[str, object]]) -> Tables:
    """Return the tables with further rows, before and after the others."""
    added = pa.Table.from_pylist(list(rows), SCHEMAS[name])
    half = len(rows) // 2
    return {**given, name: pa.concat_tables([added[:half], given[name], added[half:]])}


def of_nobody(given: Tables) -> Tables:
    return more(given, "persons", [{"house": f"gone {n}", "age": n % 4, "work": "yes"} for n in range(40)])


def of_no_id(given: Tables) -> Tables:
    return more(given, "persons", [{"house": None, "age": 3, "work": "yes"}] * 30)


def beyond_the_last_kept(given: Tables) -> Tables:
    """Full houses get younger persons, and such of no age: none of them is among the first."""
    full = [f"h{place}" for place, family in enumerate(FAMILIES) if len(family.children) == MOST]
    added = [{"house": house, "age": age, "work": "other"} for house in full for age in (0, None, 0, 0)]
    return more(given, "persons", added)


def parents_of_no_id(given: Tables) -> Tables:
    return more(given, "houses", [{"house": None, "size": "L"}] * 20)


def shuffled(given: Tables) -> Tables:
    luck = np.random.default_rng(8)
    return {name: table.take(pa.array(luck.permutation(table.num_rows))) for name, table in given.items()}


def renamed(given: Tables) -> Tables:
    found = {}
    for name, table in given.items():
        houses = [None if house is None else f"Rosenweg {house}" for house in table["house"].to_pylist()]
        found[name] = table.set_column(0, "house", pa.array(houses, pa.string()))
    return found


WAYS: list[Callable[[Tables], Tables]] = [
    of_nobody,
    of_no_id,
    beyond_the_last_kept,
    parents_of_no_id,
    shuffled,
    renamed,
]


def said(release: LinkedRelease) -> tuple[object, ...]:
    """Return everything published besides the noisy tables and models; the seed is a digest of those."""
    return (
        release.seed,
        release.notes,
        release.guarantee,
        release.cost,
        dict(release.expected_error),
        dict(release.provenance),
    )


@pytest.fixture(scope="module")
def clean() -> LinkedRelease:
    return made(CLEAN)


@pytest.mark.parametrize("otherwise", WAYS, ids=lambda way: way.__name__)
def test_what_is_not_counted_changes_nothing(otherwise: Callable[[Tables], Tables], clean: LinkedRelease) -> None:
    other = made(otherwise(CLEAN))
    assert said(other) == said(clean)
    assert all(other.tables[name].equals(table) for name, table in clean.tables.items())


def test_one_more_person_who_is_counted_changes_it(clean: LinkedRelease) -> None:
    """So that to be the same says something."""
    place = next(place for place, family in enumerate(FAMILIES) if len(family.children) == 1)
    other = made(more(CLEAN, "persons", [{"house": f"h{place}", "age": 0, "work": "no"}] * 2))
    assert said(other) != said(clean)


def test_nothing_of_it_is_an_error_or_a_warning_of_a_release_with_a_ledger(tmp_path: Path) -> None:
    given = CLEAN
    for way in WAYS:
        given = way(given)
    ledger = f"sqlite:///{tmp_path / 'village.ledger'}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vault = open_schema(given, schema=VILLAGE, ledger=ledger, limit=Rho(1), create=True)
        release = synthesize(vault, loss=Rho("0.5"), children=TABLES.children, settings=SIZES)
    assert set(release.tables) == {"houses", "persons"}


def test_how_many_rows_a_unit_has_says_the_schema_and_not_the_table() -> None:
    crowd = Family(1, tuple((3, 1) for _ in range(60)))
    assert link_tables(VILLAGE).children[0].most == VILLAGE["persons"].rows == 6
    for families in ([*FAMILIES, crowd], [Family(0, ())] * 20):
        release = made(frames(families))
        assert release.linked.unit_domain.hash == TABLES.unit_domain.hash
        assert release.unit_model.tables[2].values.shape == (MOST + 1,)  # the number of persons
        houses = release.tables["persons"]["house"].to_pylist()
        assert max(map(houses.count, houses), default=0) <= MOST


def test_no_text_has_a_true_number_of_rows_and_no_table_as_many(tmp_path: Path) -> None:
    """At a loss whose noise is of the order of the table, by chance less than once in a hundred seeds."""
    families = distinct(1637, seed=2)
    given = of_nobody(frames(families))
    tables = related(MOST)
    vault = SimulatedVault(open_tables(VILLAGE, given).derive(tables), seed=4)  # type: ignore[arg-type]
    release = release_units(vault, tables, loss=Rho("0.0001"), total=NoisyTotal(), settings=SIZES)
    true = {given["houses"].num_rows, given["persons"].num_rows, given["persons"].num_rows - 40}
    true.add(sum(bool(family.children) for family in families))
    assert min(true) > 1000
    folder = tmp_path / "release"
    release.write(folder)
    assert not {table.num_rows for table in release.tables.values()} & true
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".md")]
    assert len(texts) > 1
    texts += [str(pq.read_schema(path).metadata) for path in folder.glob("*.parquet")]
    for text in texts:
        numbers = {found.replace(",", "").rstrip(".") for found in re.findall(r"[0-9][0-9,.]*", text)}
        assert not numbers & {str(number) for number in true}


def test_no_id_of_the_table_is_in_what_is_written(tmp_path: Path) -> None:
    release = made(renamed(CLEAN))
    release.write(tmp_path / "release", file_format="csv")
    texts = [path.read_text() for path in (tmp_path / "release").iterdir()]
    assert len(texts) > 3
    assert not any("Rosenweg" in text for text in texts)
    assert release.tables["houses"]["house"].to_pylist() == list(range(1, release.unit_model.total + 1))


def test_days_within_a_cell_of_a_first_date_are_not_told_apart() -> None:
    """All visits of a patient move by some days, so that the first stays in its cell: gaps and cells are the same."""
    luck = np.random.default_rng(5)
    visits = []
    for _ in range(120):
        first = 8 * int(luck.integers(30))
        visits.append([(first + 10 * n, int(luck.integers(2))) for n in range(luck.integers(1, 4))])
    later = [[(day + 1 + place % 7, end) for day, end in held] for place, held in enumerate(visits)]
    tables = LinkedTables(schema=CLINIC, children=(ChildTable(table=VISITS, order="day", most=3),))
    one, other = (made(clinic_frames(each), tables, CLINIC) for each in (visits, later))
    assert one.tables["visits"]["day"].to_pylist() == other.tables["visits"]["day"].to_pylist()
    assert said(one) == said(other)
