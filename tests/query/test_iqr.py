"""The interquartile range: it costs what a quantile costs, and its interval holds as often as stated."""

from fractions import Fraction

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.open import open_table
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato.query import ask
from sfumato.query.aggregates import Confidence, Iqr, Quantile
from sfumato.query.question import Query
from sfumato.vault.simulated import SimulatedVault

AGES = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),))
ASKED = Query((Iqr("age"),))
SURE = Fraction(9, 10)


def test_it_measures_what_a_quantile_measures():
    assert Iqr("age").measurables((), None, AGES) == Quantile("age", Fraction(1, 2)).measurables((), None, AGES)


def test_its_error_is_the_sum_of_those_of_both_quartiles():
    noise, sure = DiscreteLaplace(10), Confidence(SURE)
    stated, first, third = (
        aggregate.expected("", noise, AGES, confidence=confidence, rows=None)
        for aggregate, confidence in (
            (Iqr("age"), sure),
            (Quantile("age", Fraction(1, 4)), sure.for_each(2)),
            (Quantile("age", Fraction(3, 4)), sure.for_each(2)),
        )
    )
    assert sure.for_each(2).probability == Fraction(19, 20)
    assert first.standard_error < third.standard_error  # so twice the first is no bound
    assert stated.standard_error == first.standard_error + third.standard_error
    assert (stated.half_width, stated.measure) == (first.half_width + third.half_width, "rank")


def test_its_interval_holds_as_often_as_stated_and_says_something():
    random = np.random.default_rng(5)
    ages = np.clip(random.normal(45, 15, 5000), 0, 99).astype(np.int64)
    first, third = np.quantile(ages, [0.25, 0.75], method="inverted_cdf")
    encoded = open_table(pa.table({"age": ages})).encode(AGES)
    values = []
    for seed in range(100):
        answer = ask(SimulatedVault(encoded, seed=seed), ASKED, loss=Epsilon("0.1"), confidence=SURE)
        ((value,),) = answer.values
        values.append(value)
    held = [value.low <= third - first <= value.high for value in values]
    assert sum(held) >= 90
    assert np.mean([value.high - value.low for value in values]) < 20  # of 99 that are possible
    inner = [value.low + 0.45 * (value.high - value.low) for value in values]
    outer = [value.high - 0.45 * (value.high - value.low) for value in values]
    assert sum(low <= third - first <= high for low, high in zip(inner, outer, strict=True)) < 90  # a tenth does not


def test_it_is_zero_where_one_value_holds_all_rows():
    encoded = open_table(pa.table({"age": [30] * 2000})).encode(AGES)
    answer = ask(SimulatedVault(encoded, seed=1), ASKED, loss=Epsilon(50), confidence=SURE)
    ((value,),) = answer.values
    assert (value.estimate, value.low, value.high) == (0, 0, 0)
