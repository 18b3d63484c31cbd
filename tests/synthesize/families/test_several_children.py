"""Several child tables of one parent: each with its keys and bounds, under one loss."""

from __future__ import annotations

from pathlib import Path

from tests.hospital import database, frames, schema

from sfumato.domain.related_tables import WHOLE, related_tables
from sfumato.privacy.loss import Rho
from sfumato.synthesize import related
from sfumato.synthesize.families import ModelSizes
from sfumato.vault.schema_vault import open_schema

HOSPITAL = schema()


def test_all_children_of_a_unit_are_made_and_their_children_are_left_out(tmp_path: Path) -> None:
    described = related_tables(HOSPITAL)
    assert [child.table.name for child in described.children] == ["visits", "drug_era"]
    assert described.left_out == ("drugs", "diagnoses")
    assert [tail.whole for tail in described.tails] == [WHOLE, WHOLE]
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    vault = open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger, limit=Rho(2), create=True)
    release = related(vault, loss=Rho(1), settings=ModelSizes(head_cells=50_000, tail_cells=50_000, calibration=1))
    assert vault.remaining.spent.rho <= 1
    kept = "all rows of one patient_id of hospital, in all its tables (at most 6 of visits, 4 of drug_era are kept)"
    assert release.guarantee.endswith(kept)
    assert release.provenance["unit"].endswith(kept)
    assert [entry.statement for entry in vault.ledger.journal()] == [release.guarantee]
    assert set(release.tables) == {"patients", "visits", "drug_era"}
    patients = set(release.tables["patients"]["patient_id"].to_pylist())
    for name, column, most in (("visits", "patient_id", 6), ("drug_era", "person_id", 4)):
        owners = release.tables[name][column].to_pylist()
        assert set(owners) <= patients
        assert max((owners.count(owner) for owner in set(owners)), default=0) <= most
    assert release.tables["visits"]["visit_id"].to_pylist() == [*range(1, release.tables["visits"].num_rows + 1)]
    assert {each.part for each in release.measured} == {"head", "visits.tail", "drug_era.tail"}
