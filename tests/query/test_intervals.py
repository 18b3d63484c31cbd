"""Intervals and standard errors against closed formulas of their noise, worked out here."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.query.conftest import DOMAIN

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato.query import answer as answers
from sfumato.query import ask, count, table, total
from sfumato.query.aggregates import Average, Confidence, Count, Total, Variance
from sfumato.query.aggregates.bins import outermost_bins, possible_bins
from sfumato.query.statements.select_statement import parse
from sfumato.vault.simulated import SimulatedVault

SURE = Confidence(Fraction(9, 10))
NOISE = DiscreteLaplace.for_loss(Epsilon("0.05"), sensitivity=1)
RATIO = math.exp(-0.05)


def least(probability: float) -> int:
    """The smallest k with P(|X| > k) = 2 q^(k + 1) / (1 + q) at most ``probability``."""
    return math.ceil(math.log(probability * (1 + RATIO) / 2) / math.log(RATIO) - 1)


def test_counts_and_sums_have_the_quantile_and_the_deviation_of_their_noise() -> None:
    deviation = math.sqrt(2 * RATIO) / (1 - RATIO)
    for aggregate, unit in ((Count(), 1.0), (Total("income"), 1e-4)):
        found = aggregate.estimates([np.array([70, -3])], NOISE, DOMAIN, SURE)
        assert found.value == pytest.approx([70 * unit, -3 * unit])
        assert found.high - found.value == pytest.approx([least(0.1) * unit] * 2)
        assert found.value - found.low == pytest.approx([least(0.1) * unit] * 2)
        assert found.error == pytest.approx([deviation * unit] * 2)


def test_a_mean_is_between_the_quotients_of_its_sums_at_the_ends_of_their_intervals() -> None:
    above, below, half = 60_000, 40_000, least(0.05)  # of ages 0 to 99: 100 000 units are about 1010 rows
    found = Average("age").estimates([np.array([above, below])], NOISE, DOMAIN, SURE)
    assert found.value == pytest.approx([99 * 0.4])
    assert found.low == pytest.approx([99 * (below - half) / (above + below)])
    assert found.high == pytest.approx([99 * (below + half) / (above + below)])


def test_a_variance_is_between_those_of_its_sums_at_the_ends_of_their_intervals() -> None:
    z, y, x, half = 30_000.0, 20_000.0, 50_000.0, least(0.1 / 3)
    found = Variance("age").estimates([np.array([30_000, 20_000, 50_000])], NOISE, DOMAIN, SURE)
    rows = x + y + z
    assert found.value == pytest.approx([99**2 * (x * z - y * y / 4) / rows**2])
    low = ((x - half) * (z - half) - (y + half) ** 2 / 4) / (rows + 3 * half) ** 2
    high = ((x + half) * (z + half) - (y - half) ** 2 / 4) / (rows - 3 * half) ** 2
    assert found.low == pytest.approx([99**2 * low])
    assert found.high == pytest.approx([99**2 * min(high, 0.25)])


def test_a_quantile_lies_in_a_bin_whose_edges_noise_could_have_moved_past_its_rank() -> None:
    gap, margin = np.array([[-50.0, -12.0, -9.0, -1.0, 4.0, 9.0, 60.0]]), np.full(7, 10.0)
    first, last = possible_bins(gap, margin)
    assert (first.tolist(), last.tolist()) == ([1], [5])  # -12 at the right edge of bin 0 is surely too few
    assert [bins.tolist() for bins in possible_bins(gap, np.zeros(7))] == [[3], [3]]


def test_a_minimum_lies_before_the_first_edge_past_which_counts_are_more_than_noise() -> None:
    below = np.array([[0.0, 12.0, 3.0, 11.0, 14.0, 30.0]])
    assert [bins.tolist() for bins in outermost_bins(below, np.full(6, 10.0))] == [[0], [2]]
    assert [bins.tolist() for bins in outermost_bins(np.zeros((1, 6)), np.zeros(6))] == [[0], [4]]


def test_a_condition_may_be_text(simulated) -> None:
    text, parsed = (
        count("age >= 18 AND sex = 'F'"),
        parse("SELECT COUNT(*) FROM t WHERE age >= 18 AND sex = 'F'", DOMAIN),
    )
    assert text.check(DOMAIN) == parsed.check(DOMAIN)
    assert text.describe(DOMAIN) == parsed.describe(DOMAIN)
    assert ask(simulated, total("age", "NOT member"), loss=Epsilon(1)).query.where is not None
    for odd in ("age >=", "SELECT 1", "age + 1 > 3", "nobody = 1", "age >= 18; DROP TABLE t", "", "COUNT(*)"):
        with pytest.raises(QueryError):
            count(odd).check(DOMAIN)


def test_whole_numbers_stand_as_numbers_in_the_table_of_an_answer() -> None:
    domain = Domain(
        (
            Integer(name="age", minimum=-1, maximum=3, unknown=Unknown.CLAMP, nullable=True),
            Categorical(name="code", values=(10, 20), unknown=Unknown.DROP),
            Categorical(name="text", values=("1", "2"), unknown=Unknown.DROP),
            Integer(name="other", minimum=0, maximum=1, unknown=Unknown.CATEGORY),
            Integer(name="band", minimum=0, maximum=9, edges=(0, 1, 2), unknown=Unknown.CLAMP),
            Categorical(name="member", values=(True, False), unknown=Unknown.DROP),
        )
    )
    vault = SimulatedVault(ArrayTable(domain, np.zeros((5, 6), dtype=int)), seed=1)
    answer = ask(vault, table("age", "code", "text"), loss=Epsilon(1))
    found = answer.to_arrow()
    assert [str(found[name].type) for name in ("age", "code", "text")] == ["int64", "int64", "string"]
    whole = {"(missing)": None}
    wanted = [(whole.get(age, age), code, text) for age, code, text in answer.keys]
    keys = zip(*(found[name].to_pylist() for name in ("age", "code", "text")), strict=True)
    assert [tuple(None if part is None else str(part) for part in key) for key in keys] == wanted
    for name in ("other", "band", "member"):
        assert str(ask(vault, table(name), loss=Epsilon(1)).to_arrow()[name].type) == "string"


def test_an_answer_is_a_table(simulated) -> None:
    answer = ask(simulated, table("sex", "member"), loss=Epsilon(1))
    found = answer.to_arrow()
    assert isinstance(found, pa.Table)
    assert found.column_names == ["sex", "member", "count(*)", "count(*)_error", "count(*)_low", "count(*)_high"]
    assert found.to_pylist() == answer.rows
    assert len(answer) == len(answer.to_pandas()) == 12


@pytest.mark.parametrize("block", [1, 5, 12, 100])
def test_an_answer_is_written_in_blocks_as_it_is(simulated, tmp_path, monkeypatch, block: int) -> None:
    monkeypatch.setattr(answers, "_BLOCK", block)
    answer = ask(simulated, table("sex", "member"), loss=Epsilon(1))
    rows = answer.released_rows()
    assert (len(rows), list(rows.columns)) == (12, answer.to_arrow().column_names)
    rows.write(tmp_path / "answer.parquet")
    assert pq.read_table(tmp_path / "answer.parquet").equals(answer.to_arrow())
    nothing = answer.slice_groups(slice(0)).released_rows()
    assert nothing.table.equals(answer.to_arrow()[:0])


SMALL = [DiscreteLaplace(scale) for scale in ("0.2", "0.3", "0.5", "0.7", "1", "2")]
SMALL += [DiscreteGaussian(variance) for variance in ("0.1", "0.2", "0.5", "1", "2", "4")]


@pytest.mark.parametrize("noise", SMALL, ids=str)
@pytest.mark.parametrize("confidence", [Fraction(9, 10), Fraction(95, 100), Fraction(99, 100)])
def test_the_interval_of_a_sum_of_small_noise_holds_as_often_as_stated(noise, confidence) -> None:
    """Exactly, by adding up the distribution of the sum: its values are integers, with none in between."""
    single = np.array([noise.pmf(abs(k)) for k in range(-60, 61)])
    sums, level = single, Confidence.from_number(confidence)
    for many in range(2, 40):
        sums = np.convolve(sums, single)
        size = np.abs(np.arange(len(sums)) - len(sums) // 2)
        (half,) = level.interval_half_width(noise, np.array([many * noise.variance]))
        assert sums[size > half].sum() <= 1 - confidence
