"""The estimates that carry information, and those as wide as prior knowledge."""

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
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho
from sfumato.query import ask
from sfumato.query.aggregates import Average, Count, ExpectedError, Extreme, Quantile, Total, Variance
from sfumato.query.question import Query
from sfumato.vault.simulated import SimulatedVault
from sfumato_server.ui.budgets import share_of, steps
from sfumato_server.ui.rendering import BarScale, answer_table, files

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
    told = dict(zip(answer.keys, answer.informative, strict=True))
    assert told["F",] == told["M",] == (True,) * 9
    assert told["(missing)",] == told["(other)",] == (True, True, *(False,) * 7)
    texts = dict(zip(answer.keys, answer.texts, strict=True))["(other)",]
    assert texts[2] == "too few rows to tell (0 to 99)"
    assert "too few rows" not in texts[0]


def test_an_interval_of_a_single_value_is_no_error_of_zero():
    rows = SimulatedVault(
        open_table(pa.table({"age": [40] * 2000, "sex": ["F"] * 2000, "income": [0.0] * 2000})).encode(DESCRIBED),
        seed=3,
    )
    answer = ask(rows, Query((Quantile("age", Fraction(1, 2)),)), loss=Epsilon(1))
    assert answer.value.interval == (40, 40)
    (column,) = answer_table(answer, DESCRIBED).columns
    assert column.common_error is None


def test_a_bar_has_no_length_where_nothing_is_told_and_every_interval_has_whiskers(vault):
    answer = ask(vault, Query((Average("age"), Count()), by=("sex",)), loss=Epsilon(1))
    table = answer_table(answer, DESCRIBED)
    assert [cells[0].informative for _, cells in table.rows] == [True, True, False, False]
    assert [cells[0].start == cells[0].end for _, cells in table.rows] == [False, False, True, True]
    means = BarScale.of_values([row[0] for row in answer.values])
    for _, cells in table.rows:
        assert (cells[0].low, cells[0].high) == tuple(map(means.place, cells[0].value.interval))
        assert 0 <= cells[1].low < cells[1].high <= 100
    assert (means.place(means.least), means.place(means.most)) == (0, 100)


def test_equal_errors_are_stated_once_and_others_by_row(vault):
    answer = ask(vault, Query((Average("age"), Count()), by=("sex",)), loss=Epsilon(1))
    mean, count = (column.common_error for column in answer_table(answer, DESCRIBED).columns)
    assert mean is None
    assert count.standard_error == answer.values[0][1].standard_error
    for row in answer.values:  # an interval that is cut at zero is within the same error
        assert abs(row[1].low - row[1].estimate) <= count.half_width
        assert abs(row[1].high - row[1].estimate) <= count.half_width


def test_all_rows_are_shown_sorted_unless_they_have_an_order(vault):
    by_sex = answer_table(ask(vault, Query((Count(),), by=("sex",)), loss=Epsilon(1)), DESCRIBED)
    estimates = [cells[0].value.estimate for _, cells in by_sex.rows]
    assert estimates == sorted(estimates, reverse=True)
    assert by_sex.order == "largest count(*) first"
    answer = ask(vault, Query((Count(),), by=("age", "sex")), loss=Epsilon(1))
    by_both = answer_table(answer, DESCRIBED)
    assert [labels for labels, _ in by_both.rows] == list(answer.keys)
    assert by_both.order == "in the order of the description"
    assert answer_table(ask(vault, Query((Count(),)), loss=Epsilon(1)), DESCRIBED).order == ""


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
    found = steps(
        EpsilonDelta(1, "1e-9"), lambda loss: [ExpectedError("n", 1.0, float(3 / loss.epsilon), "units")], left
    )
    assert [(step.loss, step.half_width) for step in found][::4] == [
        ("epsilon 0.25", 12.0),
        ("epsilon 4", 0.75),
    ]


def test_a_share_is_of_the_rest_in_the_measure_of_the_limit():
    spent = Charge(Fraction(1), Fraction(1, 2), Fraction(0))
    assert share_of(Epsilon(1), Account(Epsilon(3), spent)) == 0.5
    assert share_of(Epsilon(1), Account(Epsilon(1), spent)) == float("inf")
    assert share_of(Epsilon(1), Account(None, spent)) is None
    assert share_of(Rho("0.1"), Account(Epsilon(3), spent)) is None
    assert share_of(Rho("0.1"), Account(Rho(1), spent)) == 0.2
    both = Account(EpsilonDelta(4, "1e-6"), Charge(None, Fraction(0), Fraction(0)))
    assert share_of(Epsilon(1), both) == float(Fraction(1, 2) / both.limit.most)
    assert share_of(EpsilonDelta(4, "1e-6"), both) == 1
