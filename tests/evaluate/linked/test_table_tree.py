"""Linked tables are read into families: in order, bounded, and whatever is left out is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.evaluate.linked_tables import DOCUMENT, schema, write_hospital

from sfumato.domain.table_schema import parse_schema
from sfumato.errors import InputError, TableError
from sfumato.evaluate.linked.table_tree import ChildOrder, RowsRead, linked, orders, read_table_tree

PATIENTS = "patient_id,sex,region\n1,F,0\n2,M,1\n2,F,2\n3,?,0\n4,M,2\n,F,1\n"
VISITS = """visit_id,patient_id,admitted,cost,ward
a,1,2023-05-02,3,A
b,1,2023-01-09,9,B
c,2,2023-02-01,1,C
d,3,2023-02-01,1,C
e,99,2023-02-01,1,C
a,2,2023-03-01,1,C
f,2,2024-03-01,1,C
g,1,2023-01-08,0,C
h,1,2023-12-31,2,A
i,1,2023-12-30,2,B
"""
DRUGS = "visit_id,drug\ng,D1\nb,D0\nb,D1\nzz,D0\ni,D0\nh,D1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("patients", PATIENTS), ("visits", VISITS), ("drugs", DRUGS)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def test_children_stand_with_their_parent_in_order_and_bounded(folder: Path) -> None:
    families = read_table_tree(folder, schema(), orders=orders(schema()))
    patients, visits, drugs = families.levels
    assert [level.name for level in families.levels] == ["patients", "visits", "drugs"]
    assert [each.tolist() for each in patients.codes] == [[0, 1, 1], [0, 1, 2]]  # 1, the first 2, and 4
    # of the five visits of patient 1 the first four by day: g, b, a, i; the month is the cell
    assert visits.owner.tolist() == [0, 0, 0, 0, 1]
    assert visits.codes[0].tolist() == [0, 0, 4, 11, 1]
    assert visits.codes[1].tolist() == [0, 4, 3, 2, 1]
    assert drugs.owner.tolist() == [0, 1, 1, 3]
    assert drugs.codes[0].tolist()[0] == 1
    assert sorted(drugs.codes[0].tolist()[1:3]) == [0, 1]


def test_whatever_is_left_out_is_counted(folder: Path) -> None:
    families = read_table_tree(folder, schema(), orders=orders(schema()))
    assert families["patients"].read == RowsRead(6, undeclared=1, repeated=1, ownerless=1)
    assert families["visits"].read == RowsRead(10, undeclared=1, repeated=1, ownerless=2, beyond=1)
    assert families["drugs"].read == RowsRead(6, ownerless=2)  # of no visit, and of one beyond the most
    assert families["visits"].read.judged == 5


def test_parquet_is_read_as_csv_is(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("patients", "visits", "drugs"):
        pq.write_table(csv.read_csv(folder / f"{name}.csv"), other / f"{name}.parquet")
    one, two = (read_table_tree(place, schema(), orders=orders(schema())) for place in (folder, other))
    for first, second in zip(one.levels, two.levels, strict=True):
        assert first.read == second.read
        assert [each.tolist() for each in first.codes] == [each.tolist() for each in second.codes]


def test_an_order_falls_where_it_is_said_to(folder: Path) -> None:
    falling = orders(schema(), {"visits": "cost:falling", "drugs": ""})
    assert falling["visits"] == ChildOrder("cost", falling=True)
    assert falling["drugs"] == ChildOrder(None)
    visits = read_table_tree(folder, schema(), orders=falling)["visits"]
    assert visits.codes[1].tolist()[:2] == [4, 3]  # 9 is clamped to 4 and stands first


@pytest.mark.parametrize("text", ["height", "cost:sideways"])
def test_an_order_by_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no order"):
        orders(schema(), {"visits": text})


def test_without_a_table_of_units_they_are_those_with_rows(folder: Path) -> None:
    document = {**DOCUMENT, "unit": {"id": "patient_id"}}
    document["tables"] = {"visits": DOCUMENT["tables"]["visits"]}
    alone = parse_schema(document)
    families = read_table_tree(folder, alone, orders=orders(alone))
    assert [level.name for level in families.levels] == ["patient_id", "visits"]
    assert families.units == 4  # 1, 2, 3 and 99
    assert linked(alone) == ("visits",)


def test_units_are_taken_with_all_that_is_theirs(tmp_path: Path) -> None:
    families = read_table_tree(write_hospital(tmp_path, patients=30), schema(), orders=orders(schema()))
    chosen = np.array([4, 4, 0, 29])
    taken = families.taken(chosen)
    for place, unit in enumerate(chosen):
        ours, theirs = _unit(taken, place), _unit(families, unit)
        assert ours == theirs


def _unit(families: object, unit: int) -> list[object]:
    from sfumato.evaluate.linked.table_tree import TableTree

    assert isinstance(families, TableTree)
    patients, visits, drugs = families.levels
    own = np.flatnonzero(visits.owner == unit)
    found: list[object] = [[int(codes[unit]) for codes in patients.codes]]
    for visit in own:
        found.append([int(codes[visit]) for codes in visits.codes])
        found.append([int(drugs.codes[0][drug]) for drug in np.flatnonzero(drugs.owner == visit)])
    return found


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda folder: (folder / "visits.csv").unlink(), "has no visits.csv"),
        (lambda folder: (folder / "visits.csv").write_text("visit_id\n1\n"), "has no column"),
        (lambda folder: (folder / "visits.parquet").write_text("no"), "has both"),
        (lambda folder: (folder / "visits.csv").write_bytes(b"\xff\xfe\x00"), "cannot read|has no column"),
    ],
)
def test_what_cannot_be_read_is_refused(folder: Path, break_it: object, words: str) -> None:
    assert callable(break_it)
    break_it(folder)
    with pytest.raises(TableError, match=words):
        read_table_tree(folder, schema(), orders={})


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no folder"):
        read_table_tree(tmp_path / "none", schema(), orders={})
