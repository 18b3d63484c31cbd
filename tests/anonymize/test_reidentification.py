from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.anonymize.reidentification import (
    UniquesModel,
    assess,
    assess_table,
    estimate,
    estimate_uniques,
    fit_pitman,
    pitman,
    zayatz,
)
from sfumato.errors import InputError


def test_prosecutor_journalist_and_marketer() -> None:
    risk = assess(np.array([1, 4, 0]), np.array([2, 10, 3]), threshold=0.3)
    assert (risk.rows, risk.classes, risk.smallest_class, risk.sample_uniques) == (5, 2, 1, 1)
    assert (risk.prosecutor.highest, risk.prosecutor.average, risk.prosecutor.share_at_risk) == (1, 0.4, 0.2)
    assert risk.marketer == 0.4
    assert risk.journalist is not None
    assert risk.journalist.highest == 0.5
    assert risk.journalist.average == pytest.approx((0.5 + 4 * 0.1) / 5)
    assert risk.marketer_in_population == pytest.approx((1 / 2 + 4 / 10) / 5)


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5)),  # class, unit
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, more=st.lists(st.tuples(st.integers(0, 6), st.integers(50, 60)), max_size=20))
def test_risks_of_units_are_those_of_their_best_matched_row(
    rows: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    table = pa.table({"q": [f"q{q}" for q, _ in rows], "who": [f"w{who}" for _, who in rows]})
    everybody = pa.table({"q": [f"q{q}" for q, _ in rows + more], "who": [f"w{who}" for _, who in rows + more]})
    found = assess_table(table, quasi=["q"], threshold=0.4, population=everybody, unit="who")
    units = {who for _, who in rows}
    sizes = {q: len({who for other, who in rows if other == q}) for q, _ in rows}
    people = {q: len({who for other, who in rows + more if other == q}) for q, _ in rows}
    for attacker, among in ((found.prosecutor, sizes), (found.journalist, people)):
        assert attacker is not None
        risks = [max(Fraction(1, among[q]) for q, other in rows if other == who) for who in units]
        assert attacker.highest == pytest.approx(float(max(risks)))
        assert attacker.average == pytest.approx(float(sum(risks) / len(risks)))
        assert attacker.share_at_risk == pytest.approx(sum(risk > 0.4 for risk in risks) / len(risks))
    assert (found.rows, found.units, found.left_out) == (len(rows), len(units), 0)
    assert (found.classes, found.smallest_class) == (len(sizes), min(sizes.values()))
    assert found.sample_uniques == len({who for q, who in rows if sizes[q] == 1})
    assert found.marketer == found.prosecutor.average
    by_rows = assess_table(table, quasi=["q"], threshold=0.4)
    assert (by_rows.units, by_rows.smallest_class) == (None, min(Counter(q for q, _ in rows).values()))


def test_rows_without_a_unit_are_left_out_and_the_unit_is_no_quasi_identifier() -> None:
    table = pa.table({"q": ["a", "a", None], "who": ["x", None, "y"]})
    found = assess_table(table, quasi=["q"], threshold=0.2, unit="who")
    assert (found.rows, found.units, found.left_out) == (1, 1, 2)
    with pytest.raises(InputError, match="identifies units"):
        assess_table(table, quasi=["q", "who"], threshold=0.2, unit="who")
    assert estimate_uniques(table, quasi=["q"], population=10, unit="who").population == 10


def test_wrong_risks_are_refused() -> None:
    with pytest.raises(InputError, match="threshold"):
        assess(np.array([1]), threshold=1.5)
    with pytest.raises(InputError, match="no row"):
        assess(np.array([0]), threshold=0.1)
    with pytest.raises(InputError, match="more rows, or units, than people"):
        assess(np.array([3]), np.array([2]), threshold=0.1)
    with pytest.raises(InputError, match="population of 4 cannot contain"):
        zayatz(np.array([5]), 4)


def test_zayatz_is_bayes_rule_over_the_classes_of_the_sample() -> None:
    counts, population = np.array([1, 1, 1, 2, 2, 3]), 25
    rows = int(counts.sum())

    def single(size: int) -> Fraction:
        return Fraction(size * math.comb(population - size, rows - 1), math.comb(population, rows))

    joint = {size: Fraction(int((counts == size).sum()), len(counts)) * single(size) for size in (1, 2, 3)}
    expected = 3 * joint[1] / sum(joint.values()) * population / rows
    assert zayatz(counts, population) == pytest.approx(float(expected))
    assert zayatz(np.array([2, 3]), 50) == 0


def crp(rng: np.random.Generator, people: int, alpha: float, theta: float) -> list[int]:
    """Class of each person under Pitman's sampling formula: the two-parameter Chinese restaurant."""
    sizes: list[int] = []
    seats = []
    for seated in range(people):
        if rng.random() * (theta + seated) < theta + alpha * len(sizes):
            seats.append(len(sizes))
            sizes.append(1)
        else:
            weights = np.array(sizes) - alpha
            table = int(rng.choice(len(sizes), p=weights / weights.sum()))
            seats.append(table)
            sizes[table] += 1
    return seats


def test_pitman_finds_its_own_parameters_and_uniques() -> None:
    rng = np.random.default_rng(0)
    seats = np.array(crp(rng, 4000, 0.6, 20.0))
    # people of the restaurant are exchangeable: the first 800 are a random sample
    sample = np.unique(seats[:800], return_counts=True)[1]
    alpha, theta = fit_pitman(sample)
    assert abs(alpha - 0.6) < 0.12
    assert 5 < theta < 60
    uniques = int((np.unique(seats, return_counts=True)[1] == 1).sum())
    assert pitman(sample, 4000) == pytest.approx(uniques, rel=0.25)


def test_expected_uniques_under_pitman_by_enumeration() -> None:
    alpha, theta, people = Fraction(1, 2), Fraction(2), 5
    expected = Fraction(0)
    for seats in itertools.product(range(people), repeat=people):
        if list(dict.fromkeys(seats)) != list(range(max(seats) + 1)):
            continue
        probability, sizes = Fraction(1), []
        for seated, table in enumerate(seats):
            if table == len(sizes):
                probability *= (theta + alpha * len(sizes)) / (theta + seated) if seated else 1
                sizes.append(1)
            else:
                probability *= (sizes[table] - alpha) / (theta + seated)
                sizes[table] += 1
        expected += probability * sizes.count(1)
    log = math.lgamma(3) + math.lgamma(2 + 0.5 + people - 1) - math.lgamma(2.5) - math.lgamma(2 + people)
    assert people * math.exp(log) == pytest.approx(float(expected))


@pytest.mark.parametrize("model", [zayatz, pitman, estimate])
def test_a_population_larger_than_floats_tell_apart_is_refused(model):
    with pytest.raises(InputError, match="at most"):
        model(np.array([1, 1, 2]), 10**400)


def sampled(rng: np.random.Generator, classes: np.ndarray, rows: int) -> np.ndarray:
    """Return class sizes of a random sample of ``rows`` rows."""
    people = np.repeat(np.arange(len(classes)), classes)
    return np.unique(rng.choice(people, rows, replace=False), return_counts=True)[1]


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_model_that_the_rule_believes_is_the_better_one(spread: float) -> None:
    """Populations of neither model: class sizes are Poisson around lognormal means."""
    rng = np.random.default_rng(7)
    sizes = rng.poisson(rng.lognormal(0.5, spread, 20_000))
    population, uniques = int(sizes.sum()), int((sizes == 1).sum())
    for fraction, model in ((0.01, UniquesModel.PITMAN), (0.1, UniquesModel.PITMAN), (0.5, UniquesModel.ZAYATZ)):
        found = estimate(sampled(rng, sizes, int(population * fraction)), population)
        assert found.model is model
        errors = {
            name: abs(math.log(value / uniques)) for name, value in (("zayatz", found.zayatz), ("pitman", found.pitman))
        }
        assert found.believed == getattr(found, model)
        assert errors[model] <= min(errors.values()) + 0.1, (fraction, found)
        assert f"{fraction:g} of the population" in found.why or "population" in found.why


def test_without_pairs_or_uniques_the_rule_says_so() -> None:
    alone = estimate(np.array([1, 1, 3]), 1000)
    assert (alone.model, alone.believed) == (UniquesModel.ZAYATZ, alone.zayatz)
    assert "no class of the table has two rows" in alone.why
    none = estimate(np.array([2, 2]), 1000)
    assert (none.zayatz, none.pitman, none.believed) == (0, 0, 0)
    assert "no row of the table is unique" in none.why
