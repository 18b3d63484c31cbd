"""The codebook of linked tables: its numbers hold for the protected tables, and forged text is only text."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.families import derived_rows, related
from tests.synthesize.linked.test_child_dates import CLINIC, VISITS, frames, patients
from tests.synthesize.linked.test_related_synthesis import chained, simulated

from sfumato.domain.linked_domain import ChildTable, link_tables
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.errors import InputError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked as synthesize
from sfumato.synthesize.linked.linked_codebook import read_family_codebook
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.unit_measurables import DerivedMarginal

TABLES = related(4, memory=2)


@pytest.fixture(scope="module")
def made():
    families = chained(4000, 7)
    return families, simulated(families, TABLES, loss=Rho(2))[0]


def test_rows_of_the_parts_are_those_of_the_tables(made) -> None:
    """The counts are recomputed from the released tables, by the rules for the protected ones."""
    _, release = made
    head, tail = release.codebook.parts
    persons = Counter(release.tables["persons"]["house"].to_pylist())
    number = next(column for column in head.columns if column.name == "persons.number")
    sizes = Counter(persons.get(house, 0) for house in release.tables["houses"]["house"].to_pylist())
    assert [value.units for value in number.values] == [sizes[size] for size in range(5)]
    (shape,) = TABLES.derived
    weighed = sum(shape.weights[size - 2] * (size - 1) * count for size, count in sizes.items() if size > 1)
    assert tail.units == pytest.approx(weighed / shape.unit_weight)
    works: Counter[str] = Counter()
    by_house: dict[int, list[str]] = {}
    for row in release.tables["persons"].to_pylist():
        by_house.setdefault(row["house"], []).append(row["work"] or "other")
    for held in by_house.values():
        for work in held[1:]:
            works[work] += shape.weights[len(held) - 2]
    this = next(column for column in tail.columns if column.name == "persons.this.work")
    assert [value.units for value in this.values[:2]] == [
        pytest.approx(works[w] / shape.unit_weight) for w in ("no", "yes")
    ]
    before = next(column for column in tail.columns if column.name == "persons.before.work")
    assert before.values[-1].label == "none"
    second = sum(shape.weights[len(held) - 2] for held in by_house.values() if len(held) > 1)
    assert before.values[-1].units == pytest.approx(second / shape.unit_weight)


def test_stated_errors_hold_of_the_protected_tables(made) -> None:
    """The seeds are fixed, so nothing depends on chance."""
    families, release = made
    (shape,) = TABLES.derived
    rows, further = derived_rows(families, TABLES)
    parts = zip(release.codebook.parts, (TABLES.unit_domain, shape.domain), (rows, further), strict=True)
    stated, missed = 0, 0
    for part, domain, held in parts:
        weights = [1.0 if part.name == "head" else shape.weights[row[1]] / shape.unit_weight for row in held]
        for column in part.columns:
            place = domain.names.index(column.name)
            true = Counter()
            for row, weight in zip(held, weights, strict=True):
                true[row[place]] += weight
            if column.worst is None:
                continue
            off = []
            for code, value in enumerate(column.values):
                assert value.low is not None
                stated += 1
                missed += not value.low - 1e-6 <= true[code] <= value.high + 1e-6
                off.append(abs(value.units - true[code]))
            assert max(off) <= column.worst + 1e-6, column.name
    assert stated > 20
    assert missed <= stated / 10


def test_ties_are_as_far_off_as_is_said(made) -> None:
    families, release = made
    (shape,) = TABLES.derived
    rows, further = derived_rows(families, TABLES)
    names = {each.name for part in release.codebook.parts for each in part.columns}
    for part, domain, held in zip(
        release.codebook.parts, (TABLES.unit_domain, shape.domain), (rows, further), strict=True
    ):
        assert part.ties
        for tie in part.ties:
            assert set(tie.attributes) <= names
            assert 0 < tie.misplaced <= 1
            assert tie.worst >= tie.deviation
        assert len(held) > 0
        assert domain.names


def test_a_folder_says_that_it_is_synthetic(made, tmp_path: Path) -> None:
    _, release = made
    release.write(tmp_path / "made")
    said = json.loads((tmp_path / "made" / "release.json").read_text())
    assert said["notice"].startswith("synthetic")
    assert said["guarantee"] == release.guarantee
    text = (tmp_path / "made" / "codebook.md").read_text()
    assert "synthetic: these rows were drawn from a model" in text
    assert "persons.tail" in text
    for name in ("houses", "persons"):
        metadata = pq.read_schema(tmp_path / "made" / f"{name}.parquet").metadata
        assert metadata[b"sfumato.notice"].startswith(b"synthetic")
    book = read_family_codebook(tmp_path / "made")
    assert book == json.loads(json.dumps(release.codebook.to_json()))
    assert [each["order"] for each in book["files"]] == ["one row a unit", "of a unit at most 4, by falling age"]

    for forged in (
        {"parts": ""},
        {"parts": [said["codebook"]["parts"][0] | {"columns": [{"name": 1}]}]},
        {"units": "9"},
    ):
        (tmp_path / "release.json").write_text(json.dumps({**said, "codebook": {**said["codebook"], **forged}}))
        with pytest.raises(InputError, match="damaged"):
            read_family_codebook(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"codebook": {"notice": "real people"}}', '{"codebook": []}'])
def test_a_damaged_codebook_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "release.json").write_text(text)
    with pytest.raises(InputError, match="damaged"):
        read_family_codebook(tmp_path)


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no release of"):
        read_family_codebook(tmp_path)
    with pytest.raises(InputError, match="no release of"):
        read_family_codebook(tmp_path / "none")


def test_dates_of_the_parts_are_what_an_engine_counts_of_the_tables(tmp_path: Path) -> None:
    """Ties of one day do not matter to days: whichever comes first, gaps and first dates are the same."""
    described = link_tables(CLINIC, [ChildTable(table=VISITS, order="day", most=4)])
    vault = open_schema(
        frames(patients(400, 3)), schema=CLINIC, ledger=f"sqlite:///{tmp_path / 'ledger'}", limit=Rho(100), create=True
    )
    release = synthesize(vault, loss=Rho(100), children=described.children)
    (shape,) = described.derived
    counted = open_tables(CLINIC, release.tables).derive(described)
    head, tail = release.codebook.parts
    for part, name in ((head, "visits.number"), (head, "visits.first.day")):
        (exact,) = counted.marginals([(name,)])
        column = next(each for each in part.columns if each.name == name)
        assert [value.units for value in column.values] == reveal(exact).tolist(), name
    for name in ("visits.this.day", "visits.previous.day", "visits.place", "visits.last", "visits.number"):
        exact = reveal(DerivedMarginal(shape, (name,)).count(counted))
        column = next(each for each in tail.columns if each.name == name)
        assert [value.units for value in column.values] == pytest.approx((exact / shape.unit_weight).tolist()), name
    first, gaps = (
        next(each for each in part.columns if each.name == name).values
        for part, name in ((head, "visits.first.day"), (tail, "visits.previous.day"))
    )
    assert [first[0].label, first[-2].label, first[-1].label] == ["2023-01-01 to 2023-01-08", "(missing)", "none"]
    assert [gaps[place].label for place in (0, 2, -2, -1)] == ["0 later", "2 to 6 later", "missing", "first"]
