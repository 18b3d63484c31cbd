"""The subject of an interval, the rows that a bound leaves out, and a loss that is too small, stated before the
charge.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest
from tests.query.conftest import DOMAIN

from sfumato.description.domain_fit import dropped_rows
from sfumato.domain import Categorical, Domain, GroupBound, Unit, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query import accuracy, ask, count, low_signal_warnings, mean, sql, table, total
from sfumato.query.aggregates import Count
from sfumato.query.plan import plan
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse
from sfumato.vault.simulated import SimulatedVault

MUCH = Epsilon(10_000)


@pytest.fixture(scope="module")
def cut(table):
    """Return two rows per id, one of which counts."""
    return open_table(table).encode(Domain(DOMAIN.attributes, unit=Unit("id", rows=1)))


def test_an_answer_over_a_bounded_table_states_the_bound_in_every_form(cut, simulated) -> None:
    answer = ask(SimulatedVault(cut, seed=1), count(), loss=MUCH)
    said = (
        "intervals are of the bounded table: at most 1 row of one id, the rest is left out, and so are rows without id"
    )
    assert answer.value.interval == (2000, 2000), "of 4000 rows"
    assert said in answer.notes
    assert said in answer.to_json()["remarks"]
    assert said in answer.to_html()
    assert answer.table_phrase == " of the bounded table"
    whole = ask(simulated, count(), loss=MUCH)
    assert (whole.table_phrase, whole.notes) == ("", ())


def test_values_beyond_the_bounds_and_rounded_sums_are_said(simulated) -> None:
    assert (
        "values of age beyond the declared bounds count as the bounds" in ask(simulated, mean("age"), loss=MUCH).notes
    )
    (said,) = ask(simulated, total("income"), loss=MUCH).notes
    assert said == "sum(income) is of values rounded to multiples of 0.0001"


@pytest.mark.parametrize("where", ["", " WHERE age < 50"])
def test_the_rows_that_the_bound_leaves_out_are_counted_on_request(cut, table, where) -> None:
    # ruff: noqa: S608  (nothing of a statement is sent to an engine)
    asked = replace(parse(f"SELECT sex, COUNT(*) FROM t{where} GROUP BY sex", cut.domain), truncation=3)
    answer = ask(SimulatedVault(cut, seed=1), asked, loss=MUCH)
    every = open_table(table).encode(Domain(DOMAIN.attributes, unit=Unit("id", rows=2)))
    unbounded = ask(SimulatedVault(every, seed=1), replace(asked, truncation=None), loss=MUCH)
    condition, all_rows = (sum(values[0].estimate for values in each.values) for each in (answer, unbounded))
    found = answer.truncation
    assert found is not None
    assert found.rows.estimate == found.units.estimate == all_rows - condition > 0
    assert answer.to_json()["truncation"]["rows"]["estimate"] == all_rows - condition
    assert "counting at most 3 of one unit" in answer.to_html()


def test_the_count_of_what_is_left_out_is_a_part_of_the_loss(cut) -> None:
    vault, loss, query = SimulatedVault(cut, seed=1), Epsilon(1), replace(count(), truncation=5)
    answer = ask(vault, query, loss=loss)
    assert vault.spent.epsilon == 1
    planned = plan(query, cut.domain)
    assert sum(planned.shares) == 1
    assert sorted(planned.shares) == [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]
    stated = {each.name: each.standard_error for each in accuracy(cut.domain, query, loss, confidence="0.95")}
    assert answer.truncation is not None
    assert stated["rows left out by the bound"] == answer.truncation.rows.standard_error
    assert stated["rows left out by the bound"] == pytest.approx(5 * 2**0.5 * 4, rel=0.01)  # cap 5, a quarter each
    assert stated["units with rows left out by the bound"] == pytest.approx(2**0.5 * 4, rel=0.03)


def test_nothing_is_counted_where_no_bound_leaves_anything_out(vault) -> None:
    with pytest.raises(QueryError, match="no bound drops rows"):
        ask(vault, replace(count(), truncation=5), loss=Epsilon(1))
    for odd in (0, -1, True, 2.5):
        with pytest.raises(QueryError, match="dropped rows to count per unit"):
            Query((Count(),), truncation=odd)
    assert vault.ledger.remaining().left == 3


def test_the_owner_is_told_exactly_what_a_bound_leaves_out(table) -> None:
    found = dropped_rows(open_table(table), Domain(DOMAIN.attributes, unit=Unit("id", rows=1)))
    assert found is not None
    assert (found.rows, found.dropped, found.units, found.without_id) == (4000, 2000, 2000, 0)
    assert dropped_rows(open_table(table), DOMAIN) is None


def test_the_owner_is_told_how_many_rows_have_no_unit() -> None:
    ids = pa.array(["a"] * 3 + ["b"] + [None] * 5, pa.string())
    people = pa.table({"id": ids, "sex": ["F", "M", "x", None, "F", "M", "F", "x", None]})
    strict = Domain((Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),), unit=Unit("id", rows=2))
    found = dropped_rows(open_table(people), strict)
    assert found is not None
    assert found.without_id == 5, "whatever the domain drops for its values"


def test_a_loss_at_which_noise_outweighs_the_table_is_said_before_it_is_charged(simulated) -> None:
    tiny = Epsilon("0.0001")
    queries = [count(), total("age"), mean("age"), *(parse(f"SELECT {each} FROM t", DOMAIN) for each in
               ("VAR_POP(income)", "STDDEV_POP(age)", "MEDIAN(income)", "MIN(age)"))]  # fmt: skip
    for query in queries:
        (said,) = low_signal_warnings(DOMAIN, query, tiny, rows=4000)
        assert said.endswith("noise may outweigh all of 4,000 rows; the answer would say nothing")
        (unknown,) = low_signal_warnings(DOMAIN, query, tiny)
        assert "of fewer rows the answer says nothing" in unknown
        assert low_signal_warnings(DOMAIN, query, MUCH) == low_signal_warnings(DOMAIN, query, MUCH, rows=4000) == ()
    assert low_signal_warnings(DOMAIN, table("sex"), Epsilon("0.1"), rows=20)
    assert not low_signal_warnings(DOMAIN, table("sex"), Epsilon("0.1"), rows=4000)
    assert any("outweigh" in remark for remark in sql(simulated, "SELECT COUNT(*) FROM t", loss=tiny).notes)


def test_bounds_by_groups_are_said_and_what_they_leave_out_is_counted(table) -> None:
    domain = Domain(DOMAIN.attributes, unit=Unit("id", rows=2, per=(GroupBound(("sex",), rows=1),)))
    bounded = open_table(table).encode(domain)
    answer = ask(SimulatedVault(bounded, seed=1), replace(count(), truncation=5), loss=MUCH)
    every = open_table(table).encode(Domain(DOMAIN.attributes, unit=Unit("id", rows=2)))
    unbounded = ask(SimulatedVault(every, seed=1), count(), loss=MUCH)
    assert (
        "intervals are of the bounded table: at most 2 rows of one id, at most 1 in one sex, the rest is left out, "
        "and so are rows without id"
    ) in answer.notes
    assert answer.truncation is not None
    cut_away = unbounded.value.estimate - answer.value.estimate
    assert answer.truncation.rows.estimate == cut_away > 100
    assert answer.truncation.units.estimate == cut_away, "a unit of two rows of one sex loses one"
    fit = dropped_rows(open_table(table), domain)
    assert fit is not None
    assert fit.dropped == cut_away


def test_a_table_by_groups_takes_less_noise_under_a_bound_by_them() -> None:
    loose = Domain(DOMAIN.attributes, unit=Unit("id", rows=40))
    tight = Domain(DOMAIN.attributes, unit=Unit("id", rows=40, per=(GroupBound(("sex",), rows=5),)))
    asked = Query((Count(),), by=("sex",))
    (before,), (after,) = (
        accuracy(domain, asked, Epsilon(1), confidence=Fraction(95, 100)) for domain in (loose, tight)
    )
    assert before.half_width == 2 * after.half_width, "of four cells at most five rows each"
