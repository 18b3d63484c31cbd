"""Points of real attributes in synthetic tables: as many rows have exactly the number as in the table."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Real, Unknown
from sfumato.domain.table_schema import parse_schema
from sfumato.model.coarsening import identity
from sfumato.model.count_priors import with_falling_tails
from sfumato.privacy.loss import EpsilonDelta, Rho
from sfumato.synthesize import (
    BudgetShare,
    NoisyTotal,
    Schedule,
    aim,
    all_marginals,
    batched,
    histogram,
    load,
    marginals,
    matrix,
    mst,
    mwem,
    read_codebook,
    read_zeros,
    save,
)

ROWS = 6000
LOSS = EpsilonDelta(5, "1e-6")
PAY = Real(name="pay", edges=(0.0, 10.0, 50.0, 100.0), points=(0.0, 25.0, 100.0), unknown=Unknown.CLAMP)
DOMAIN = Domain((PAY, Categorical(name="work", values=("no", "yes"), unknown=Unknown.DROP)))
SHARES = {0.0: 1 / 3, 25.0: 1 / 10, 100.0: 1 / 20}


def people(seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    pay = random.uniform(1, 60, ROWS)
    luck = random.random(ROWS)
    pay[luck < SHARES[0.0]] = 0.0
    pay[luck > 1 - SHARES[25.0]] = 25.0
    pay[(luck < 1 - SHARES[25.0]) & (luck > 1 - SHARES[25.0] - SHARES[100.0])] = 100.0
    work = np.where(pay == 0, "no", np.where(random.random(ROWS) < 0.9, "yes", "no"))
    return pa.table({"pay": pay, "work": work})


PAIRS = all_marginals(2)
METHODS = {
    "histogram": partial(histogram, total=NoisyTotal()),
    "marginals": partial(marginals, total=NoisyTotal(), cliques=[("pay",), ("work",)]),
    "matrix": partial(matrix, total=NoisyTotal(), workload=PAIRS),
    "mwem": partial(
        mwem, total=BudgetShare(Fraction(1, 20)), workload=PAIRS, schedule=Schedule(rounds=12, repetitions=20)
    ),
    "batched": partial(batched, total=NoisyTotal(), workload=PAIRS),
    "mst": partial(mst, total=NoisyTotal()),
    "aim": partial(aim, total=NoisyTotal(), workload=PAIRS),
}


def opened(folder: Path, table: pa.Table, domain: Domain = DOMAIN):
    ledger = f"sqlite:///{folder}/people.ledger"
    return sf.open(table, domain=domain, ledger=ledger, limit=EpsilonDelta(100, "1e-3"), create=True)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_the_rows_at_points_and_puts_no_other_row_there(method, tmp_path):
    vault = opened(tmp_path, people())
    release = METHODS[method](vault, loss=LOSS)
    save(release, tmp_path / "pay.model")
    release.rows.to_parquet(tmp_path / "pay.parquet")
    for rows in (release.rows, load(tmp_path / "pay.model").sample(ROWS)):
        pay, work = (rows.table[name].to_numpy(zero_copy_only=False) for name in ("pay", "work"))
        for point, share in SHARES.items():
            assert (pay == point).mean() == pytest.approx(share, abs=0.03)
        assert pay.min() == 0
        assert pay.max() == 100
        assert len(np.unique(pay)) > ROWS / 3  # the others are drawn from their cells
        if method != "marginals":  # which knows nothing of how the two go together
            assert (work[pay == 0] == "no").mean() > 0.9
    (told,) = (column for column in read_codebook(tmp_path / "pay.parquet").columns if column.name == "pay")
    assert [value.label for value in told.values] == list(PAY.labels())


def test_neighbours_of_a_point_are_never_measured_as_one_with_it(tmp_path):
    """In a table of few rows, noise hides the difference between the point and its neighbors, and would join them."""
    fine = Real(name="pay", edges=tuple(map(float, range(0, 101, 2))), points=(50.0,), unknown=Unknown.CLAMP)
    domain = Domain((fine, DOMAIN["work"]))
    release = mst(opened(tmp_path, people().slice(0, 300), domain), loss=Rho("0.01"), total=NoisyTotal())
    groups = release.model.coarsenings["pay"].groups
    (point,) = (code for code in range(fine.declared) if fine.is_point(code))
    assert (groups == groups[point]).sum() == 1
    assert len(np.unique(groups)) < fine.size / 2


def test_a_tail_goes_on_behind_a_point_as_if_it_were_not_there():
    widths = np.array([10.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    counts = np.array([900.0, 500.0, 40.0, 3.0, -5.0, 2.0])
    plain, expected = with_falling_tails(identity(6), counts, 100.0, widths)
    beside = np.insert(counts, 2, 800.0), np.insert(widths, 2, 0.0)
    found, estimates = with_falling_tails(identity(7), beside[0], 100.0, beside[1])
    assert found.weights[2] == 1.0  # of the point nothing is estimated
    np.testing.assert_allclose(np.delete(found.weights, 2), plain.weights)
    assert set(estimates) == {group + (group >= 2) for group in expected}


def test_rules_name_points_by_their_number(tmp_path):
    rules = read_zeros(
        [{"if": {"pay": 0}, "then": {"work": "no"}}, {"impossible": {"pay": "50..100", "work": "no"}}], DOMAIN
    )
    release = batched(opened(tmp_path, people()), loss=LOSS, total=NoisyTotal(), workload=PAIRS, zeros=rules)
    pay, work = (release.rows.table[name].to_numpy(zero_copy_only=False) for name in ("pay", "work"))
    assert set(work[pay == 0].tolist()) == {"no"}
    assert set(work[pay >= 50].tolist()) == {"yes"}
    assert (pay == 100).any()


def test_linked_tables_keep_points(tmp_path):
    schema = parse_schema(
        {
            "sfumato": 2,
            "schema": "shop",
            "unit": {"id": "person", "table": "people"},
            "tables": {
                "people": {
                    "key": "person",
                    "attributes": {"work": {"type": "categorical", "values": ["no", "yes"], "unknown": "drop"}},
                },
                "orders": {
                    "unit": "person",
                    "rows": 2,
                    "attributes": {
                        "paid": {"type": "real", "edges": [0, 5, 20, 60, 100], "points": [0], "unknown": "clamp"}
                    },
                },
            },
        }
    )
    random = np.random.default_rng(2)
    owners = np.repeat([f"p{place}" for place in range(4000)], 2)
    paid = np.where(random.random(len(owners)) < 1 / 3, 0.0, random.uniform(1, 90, len(owners)))
    tables = {
        "people": pa.table({"person": [f"p{place}" for place in range(4000)], "work": ["yes", "no"] * 2000}),
        "orders": pa.table({"person": owners, "paid": paid}),
    }
    ledger = f"sqlite:///{tmp_path}/shop.ledger"
    vault = sf.open_schema(tables, schema=schema, ledger=ledger, limit=EpsilonDelta(9, "1e-6"), create=True)
    made = sf.synthesize.synthesize_linked(vault, loss=EpsilonDelta(5, "1e-9"))
    drawn = made.tables["orders"]["paid"].to_numpy()
    assert (drawn == 0).mean() == pytest.approx(1 / 3, abs=0.05)
    assert (drawn > 0).any()
    assert drawn.min() == 0
