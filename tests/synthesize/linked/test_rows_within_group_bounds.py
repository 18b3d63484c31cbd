"""Bounds by groups hold in synthetic rows, as a count by hand says."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.hospital import database, frames, schema

from sfumato.domain.linked_domain import link_tables
from sfumato.domain.unit import GroupBound
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_rows import _stand, rows_within_group_bounds
from sfumato.vault.schema_vault import open_schema

HOSPITAL = schema()


def test_bounds_by_groups_hold_in_every_row_and_what_was_left_out_is_said(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'hospital.ledger'}"
    vault = open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger, limit=Rho(10**7), create=True)
    settings = ModelSizes(head_cells=500, tail_cells=500, calibration=1)
    release = synthesize_linked(vault, loss=Rho(10**7), settings=settings)
    visits = release.tables["visits"].to_pylist()
    months: dict[int, Counter[str]] = defaultdict(Counter)
    for row in visits:
        months[row["patient_id"]][str(row["admitted"])[:7]] += 1
    assert all(max(each.values()) <= 2 and len(each) <= 4 for each in months.values())
    owner = {row["visit_id"]: row["patient_id"] for row in visits}
    drugs = Counter((owner[row["visit_id"]], row["drug"]) for row in release.tables["drugs"].to_pylist())
    assert 0 < max(drugs.values()) <= 3
    assert len(owner) == len(visits)


@pytest.mark.parametrize("groups", [None, 1, 2])
def test_the_first_of_each_cell_stand(groups) -> None:
    random = np.random.default_rng(groups or 0)
    unit = np.sort(random.integers(0, 20, 200))
    cells = random.integers(0, 4, 200)
    bound = GroupBound(("cell",), rows=2, groups=groups)
    expected, held, order = [], Counter(), defaultdict(list)
    for one, cell in zip(unit.tolist(), cells.tolist(), strict=True):
        order[one] += [] if cell in order[one] else [cell]
        within = groups is None or order[one].index(cell) < groups
        expected.append(within and held[one, cell] < 2)
        held[one, cell] += 1
    assert _stand(unit, cells, bound).tolist() == expected


def test_rows_move_up_where_others_are_left_out() -> None:
    drugs = next(child for child in link_tables(HOSPITAL).children if child.table.name == "drugs")
    every = np.zeros(2, dtype=np.int64)
    slots = [(np.array([0, 1]), {"drug": every, "dose": every + at}) for at in range(3)]
    slots.append((np.array([0]), {"drug": np.array([1]), "dose": np.array([0])}))
    found, numbers, left = rows_within_group_bounds(
        drugs, slots, np.array([5, 5])
    )  # of one unit, which keeps three of a drug
    assert left == 3
    assert numbers is not None
    assert numbers.tolist() == [4, 0]
    assert [(rows.tolist(), codes["drug"].tolist()) for rows, codes in found] == [([0], [0])] * 3 + [([0], [1])]
