"""Which estimates tell something, and which are as wide as what anyone knows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.app.http.serving import DOMAIN

from sfumato.app.ui.dataset_pages import chart, telling
from sfumato.domain import parse
from sfumato.engine.open import open_table
from sfumato.privacy.loss import Epsilon
from sfumato.query import ask
from sfumato.query.aggregate import Average, Count, Total, Variance
from sfumato.query.hierarchical_histogram import Extreme, Quantile
from sfumato.query.question import Query
from sfumato.vault.simulated import SimulatedVault

DESCRIBED = parse(DOMAIN)
OF_ROWS = (
    Average("age"),
    Variance("age"),
    Variance("age", root=True),
    Quantile("age", Fraction(1, 2)),
    Extreme("age", largest=True),
    Extreme("age", largest=False),
    Average("income"),
)


@pytest.fixture(scope="module")
def vault():
    """A thousand women, a thousand men and nobody else."""
    random = np.random.default_rng(1)
    rows = {"age": random.integers(0, 99, 2000), "sex": ["F", "M"] * 1000, "income": random.random(2000) * 5000}
    return SimulatedVault(open_table(pa.table(rows)).encode(DESCRIBED), seed=3)


def test_groups_without_rows_tell_their_size_and_sum_and_nothing_else(vault):
    answer = ask(vault, Query((Count(), Total("age"), *OF_ROWS), by=("sex",)), loss=Epsilon(1))
    told = dict(zip(answer.keys, telling(answer, DESCRIBED), strict=True))
    assert told["F",] == told["M",] == [True] * 9
    assert told["(missing)",] == told["(other)",] == [True, True, *[False] * 7]


def test_a_chart_has_no_bar_where_nothing_is_told_and_every_interval(vault):
    answer = ask(vault, Query((Average("age"), Count()), by=("sex",)), loss=Epsilon(1))
    bars = chart(answer, DESCRIBED)["data"]["values"]
    assert [bar["estimate"] is None for bar in bars] == [False, False, True, True]
    assert [(bar["low"], bar["high"]) for bar in bars] == [row[0].interval for row in answer.values]
    counted = chart(ask(vault, Query((Count(),), by=("sex",)), loss=Epsilon(1)), DESCRIBED)["data"]["values"]
    assert None not in [bar["estimate"] for bar in counted]
