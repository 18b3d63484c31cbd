"""A million synthetic rows of three generations: no key, owner, bound, order or impossible cell is broken in any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.nested_families import UNIT_ROWS, NestedFamilies, nested, some_houses

from sfumato.domain.linked_domain import LinkedTables
from sfumato.privacy.loss import Rho
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.vault.simulated import SimulatedVault

UNITS = 320_000


@pytest.mark.slow
def test_nothing_is_broken_in_a_million_rows() -> None:
    shape = nested(4, 4)
    persons, jobs = shape.children
    tables = LinkedTables(schema=shape.schema, children=(replace(persons, final=("work", "yes")), jobs))
    vault = SimulatedVault(NestedFamilies(some_houses(1500, 1), tables), seed=3)
    release = release_units(vault, tables, loss=Rho(1), total=PublicTotal(UNITS), settings=ModelSizes(calibration=2))
    rows = {
        name: {column: table[column].to_numpy() for column in table.column_names}
        for name, table in release.tables.items()
    }
    assert len(rows["persons"]["person"]) + len(rows["jobs"]["job"]) > 10**6
    assert np.array_equal(rows["houses"]["house"], np.arange(1, UNITS + 1))
    unit = {"houses": rows["houses"]["house"]}
    for name, above, owner, key in (("persons", "houses", "house", "person"), ("jobs", "persons", "holder", "job")):
        child, own = next(each for each in tables.children if each.table.name == name), rows[name]
        assert np.array_equal(own[key], np.arange(1, len(own[key]) + 1))
        assert own[owner].min() >= 1
        assert own[owner].max() <= len(unit[above])
        unit[name] = unit[above][own[owner] - 1]
        assert np.bincount(own[owner]).max() <= child.most
        assert np.bincount(unit[name]).max() <= UNIT_ROWS[name]
        same = own[owner][1:] == own[owner][:-1]
        assert (np.diff(own[owner]) >= 0).all()
        rising = np.diff(own[child.order].astype(np.int64)) * (-1 if child.falling else 1)
        assert (rising[same] >= 0).all()
        if child.final is not None:
            assert not (same & (own["work"][:-1] == "yes")).any()
