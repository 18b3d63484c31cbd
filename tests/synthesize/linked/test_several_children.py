"""Several child tables of one parent: each with its keys and bounds, under one loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.hospital import database, frames, schema

from sfumato.domain.linked_domain import WHOLE, link_tables
from sfumato.errors import DomainError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked
from sfumato.synthesize.linked import ModelSizes
from sfumato.vault.schema_vault import open_schema

HOSPITAL = schema()


def test_all_children_of_a_unit_and_theirs_are_made(tmp_path: Path) -> None:
    described = link_tables(HOSPITAL)
    assert [child.table.name for child in described.children] == ["visits", "drug_era", "drugs", "diagnoses"]
    assert described.left_out == ()
    assert {table.unit_weight for table in described.derived} == {WHOLE}
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    vault = open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger, limit=Rho(2), create=True)
    release = synthesize_linked(
        vault, loss=Rho(1), settings=ModelSizes(head_cells=50_000, tail_cells=50_000, calibration=1)
    )
    assert vault.remaining.spent.rho <= 1
    kept = (
        "all rows of one patient_id of hospital, in all its tables (at most 6 of visits, 4 of drug_era, 8 of drugs, "
        "5 of diagnoses are kept)"
    )
    assert release.guarantee.endswith(kept)
    assert release.provenance["unit"].endswith(kept)
    assert [entry.statement for entry in vault.ledger.journal(after=1)] == [release.guarantee]
    assert set(release.tables) == {"patients", "visits", "drug_era", "drugs", "diagnoses"}
    for name, column, above, most in (
        ("visits", "patient_id", "patients", 6),
        ("drug_era", "person_id", "patients", 4),
        ("drugs", "visit_id", "visits", 8),
        ("diagnoses", "visit_id", "visits", 5),
    ):
        owners = release.tables[name][column].to_pylist()
        assert set(owners) <= set(release.tables[above].column(0).to_pylist())
        assert max((owners.count(owner) for owner in set(owners)), default=0) <= most
    assert release.tables["visits"]["visit_id"].to_pylist() == [*range(1, release.tables["visits"].num_rows + 1)]
    heads = {"head", "drugs.head", "diagnoses.head"}
    assert {each.part for each in release.measured} == heads | {f"{name}.tail" for name in release.tables} - {
        "patients.tail"
    }


def test_a_table_whose_rows_belong_to_one_that_is_left_out_is_refused() -> None:
    drugs, visits = (
        next(each for each in link_tables(HOSPITAL).children if each.table.name == name) for name in ("drugs", "visits")
    )
    for children in ((drugs,), (drugs, visits)):
        with pytest.raises(DomainError, match="drugs belongs to rows of visits, which is not synthesized before it"):
            link_tables(HOSPITAL, children)
    assert link_tables(HOSPITAL, (visits, drugs)).left_out == ("diagnoses", "drug_era")


def test_more_rows_than_the_schema_bounds_are_refused() -> None:
    visits = next(each for each in link_tables(HOSPITAL).children if each.table.name == "visits")
    with pytest.raises(DomainError, match="of visits at most the 6 rows that the schema bounds are kept, not 7"):
        link_tables(HOSPITAL, (replace(visits, most=7),))
