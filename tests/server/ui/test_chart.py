"""Which estimates tell something, and which are as wide as what anyone knows."""

from __future__ import annotations

import base64
import io
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from tests.server.serving import DOMAIN

from sfumato.domain import parse
from sfumato.engine.open import open_table
from sfumato.ledger import Account
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta
from sfumato.query import ask
from sfumato.query.aggregates import Average, Count, ExpectedError, Extreme, Quantile, Total, Variance
from sfumato.query.question import Query
from sfumato.vault.simulated import SimulatedVault
from sfumato_server.ui.rendering import charts, files, informative_estimates, steps

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
    told = dict(zip(answer.keys, informative_estimates(answer, DESCRIBED), strict=True))
    assert told["F",] == told["M",] == [True] * 9
    assert told["(missing)",] == told["(other)",] == [True, True, *[False] * 7]


def test_a_chart_has_no_bar_where_nothing_is_told_and_every_interval(vault):
    answer = ask(vault, Query((Average("age"), Count()), by=("sex",)), loss=Epsilon(1))
    means, counts = (each["data"]["values"] for each in charts(answer, DESCRIBED))
    assert [bar["estimate"] is None for bar in means] == [False, False, True, True]
    assert [(bar["low"], bar["high"]) for bar in means] == [row[0].interval for row in answer.values]
    assert None not in [bar["estimate"] for bar in counts]


def test_the_group_with_fewest_cells_has_colours_and_a_legend(vault):
    answer = ask(vault, Query((Count(),), by=("sex", "income")), loss=Epsilon(1))
    (found,) = charts(answer, DESCRIBED)
    assert found["layer"][0]["encoding"]["color"]["title"] == "income"
    assert found["encoding"]["y"]["title"] == "sex"
    told = {(bar["group"], bar["series"], bar["estimate"]) for bar in found["data"]["values"]}
    assert told == {(*key, row[0].estimate) for key, row in zip(answer.keys, answer.values, strict=True)}
    assert charts(ask(vault, Query((Count(),), by=("age", "sex")), loss=Epsilon(1)), DESCRIBED) == []  # too many bars
    assert charts(ask(vault, Query((Count(),)), loss=Epsilon(1)), DESCRIBED) == []


def test_an_answer_travels_in_the_page_as_files_with_its_numbers(vault):
    answer = ask(vault, Query((Count(),), by=("sex",)), loss=Epsilon(1))
    held = {ending: base64.b64decode(text.partition("base64,")[2]) for ending, text in files(answer).items()}
    assert csv.read_csv(io.BytesIO(held["csv"])).column("sex").to_pylist() == ["F", "M", "(missing)", "(other)"]
    assert parquet.read_table(io.BytesIO(held["parquet"])).equals(answer.to_arrow())


def test_steps_show_what_other_losses_buy_and_what_they_take_of_what_is_left():
    left = Account(Epsilon(3), Charge(Fraction(1), Fraction(1, 2), Fraction(0)))
    found = steps(Epsilon(1), lambda loss: [ExpectedError("n", 1.0, float(3 / loss.value), "units")], left)
    assert [each.half_width for each in found] == [12, 6, 3, 1.5, 0.75]
    assert [each.bar for each in found] == [1, 0.5, 0.25, 0.125, 0.0625]
    assert [each.share for each in found] == [0.125, 0.25, 0.5, 1, 2]
    assert [each.chosen for each in found] == [False, False, True, False, False]
    assert steps(EpsilonDelta(1, "1e-9"), lambda _: [], left) == []
