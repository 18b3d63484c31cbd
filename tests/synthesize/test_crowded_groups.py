"""People of like numbers are kept apart by what they go with: ages of equal counts and marital status, end to end."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato import synthesize
from sfumato.domain import Categorical, Domain, Integer, Unknown, dump
from sfumato.workload import all_marginals
from sfumato.workload.counting_queries import Marginals

ROWS = 7600  # 400 in each five years of age: no count tells one age from another
STATUS = ("child", "single", "married", "widowed")
DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=94, edges=tuple(range(0, 95, 5)), unknown=Unknown.CLAMP),
        Categorical(name="status", values=STATUS, unknown=Unknown.DROP),
        Integer(name="income", minimum=0, maximum=9, unknown=Unknown.CLAMP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    )
)


def people() -> dict[str, np.ndarray]:
    age = np.repeat(np.arange(0, 95, 5), 400)
    status = np.array(STATUS)[np.digitize(age, [15, 25, 75])]
    return {"age": age, "status": status, "income": age // 10, "sex": np.array(["F", "M"])[np.arange(ROWS) % 2]}


@pytest.fixture
def vault(tmp_path):
    pq.write_table(pa.table(people()), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(dump(DOMAIN))
    return sf.open(
        tmp_path / "people.parquet",
        domain=tmp_path / "people.yaml",
        ledger=f"sqlite:///{tmp_path / 'ledger'}",
        limit=sf.EpsilonDelta(1, "1e-6"),
        create=True,
    )


WORKLOADS = (all_marginals(2), all_marginals(3), Marginals(cliques=(("age", "status"), ("age", "income"))))


@pytest.mark.parametrize("workload", WORKLOADS, ids=["pairs", "triples", "named"])
def test_ages_of_equal_counts_stay_apart_and_children_unmarried(vault, workload):
    """False alarms: below 1e-9.

    Two ages of 400 merge only if their noisy counts stay below ten deviations of some 25 rows: 22 deviations away.  The
    pairs carry noise of about 15 rows in 76 cells: the total variation of age and status is .02, by experience at most
    .05, while ages in one group make it above .5.
    """
    release = synthesize.aim(
        vault, loss=sf.EpsilonDelta(1, "1e-6"), total=synthesize.PublicTotal(ROWS), workload=workload
    )
    assert release.model.coarsenings["age"].trivial
    real = people()
    made = release.rows.table
    status = np.array(made["status"].to_pylist())
    bins = np.array(made["age"].to_pylist()) // 5
    off = 0
    for age, label in product(range(19), STATUS):
        held = ((real["age"] // 5 == age) & (real["status"] == label)).sum()
        off += abs(int(((bins == age) & (status == label)).sum()) - int(held))
    assert off / (2 * ROWS) < 0.15
    assert (status[bins < 3] != "child").mean() < 0.15
