"""Linear regression on noisy moments: exact where noise vanishes, as often right as stated where it does not.

The statistical tests have a false-alarm rate of a millionth for each coefficient, and show that intervals 30 %
narrower, which is what noise 30 % larger than stated makes of them, would not pass.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from sfumato import query
from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Real, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import BudgetError, LossError, QueryError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.query import linear_regression
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault

FALSE_ALARM = 1e-6

DOMAIN = Domain(
    (
        Integer(name="age", minimum=17, maximum=90, unknown=Unknown.CLAMP),
        Integer(name="hours", minimum=1, maximum=99, unknown=Unknown.CLAMP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
        Categorical(name="school", values=("low", "middle", "high"), unknown=Unknown.DROP),
        Integer(name="kids", minimum=0, maximum=4, unknown=Unknown.CLAMP, nullable=True),
        Integer(name="year", minimum=0, maximum=99, edges=(0, 10, 30, 60), unknown=Unknown.CLAMP),
    )
)
INPUTS = ["age", "sex = 'M'", "school = 'high'"]


@cache
def people(size: int = 6000) -> np.ndarray:
    """Return codes whose hours follow from the other columns plus an unexplained part, far from even."""
    random = np.random.default_rng(0)
    age = np.clip(random.gamma(2.2, 10, size), 0, 73).astype(np.int64)
    sex, school = (random.random(size) < 0.67).astype(np.int64), np.minimum(random.poisson(0.8, size), 2)
    hours = np.clip(np.rint(30 + 0.1 * age + 6 * sex + 3 * school + random.normal(0, 11, size)), 0, 98)
    rest = random.integers(0, (6, 4), (size, 2))
    return np.column_stack([age, hours.astype(np.int64), sex, school, rest])


YEARS = (4.5, 19.5, 44.5, 79.5)


def solved(codes: np.ndarray, *, years: tuple[float, ...] = ()) -> np.ndarray:
    """Least squares over the rows themselves, by another way than through moments."""
    inputs = [np.ones(len(codes)), codes[:, 0] + 17, codes[:, 2], codes[:, 3] == 2]
    if years:
        inputs.append(np.array(years)[codes[:, 5]])
    return np.linalg.lstsq(np.column_stack(inputs).astype(float), codes[:, 1] + 1.0, rcond=None)[0]


def test_without_noise_it_is_the_regression_of_the_rows() -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, people()), seed=1)
    found = linear_regression(vault, "hours", [*INPUTS, "year"], loss=Rho(10**9))
    assert [each.table.estimate for each in found.coefficients] == pytest.approx(
        solved(people(), years=YEARS), rel=1e-4
    )
    names = [each.variable for each in found.coefficients]
    assert names == ["(constant)", "age", "sex in M", "school in high", "year"]
    assert any("year are taken at the middles" in remark for remark in found.notes)
    assert "hours by" in repr(found)


def test_an_open_last_cell_counts_with_its_typical_value() -> None:
    year = replace(DOMAIN["year"], typical=66)
    domain = Domain((*DOMAIN.attributes[:-1], year))
    found = linear_regression(
        SimulatedVault(ArrayTable(domain, people()), seed=1), "hours", [*INPUTS, "year"], loss=Rho(10**9)
    )
    wanted = solved(people(), years=(*YEARS[:-1], 66))
    assert [each.table.estimate for each in found.coefficients] == pytest.approx(wanted, rel=1e-4)
    assert any("at 66 in the open last one" in remark for remark in found.notes)


def test_rows_without_a_value_meet_no_condition() -> None:
    codes = people().copy()
    codes[:1000, 4] = 5  # missing
    found = linear_regression(SimulatedVault(ArrayTable(DOMAIN, codes), seed=1), "hours", ["kids = 1"], loss=Rho(10**9))
    inputs = np.column_stack([np.ones(len(codes)), codes[:, 4] == 1])
    wanted = np.linalg.lstsq(inputs, codes[:, 1] + 1.0, rcond=None)[0]
    assert [each.table.estimate for each in found.coefficients] == pytest.approx(wanted, rel=1e-4)


def test_a_condition_is_explained_as_a_share() -> None:
    codes = people()
    found = linear_regression(SimulatedVault(ArrayTable(DOMAIN, codes), seed=1), "sex = 'M'", ["age"], loss=Rho(10**9))
    inputs = np.column_stack([np.ones(len(codes)), codes[:, 0] + 17])
    wanted = np.linalg.lstsq(inputs, codes[:, 2].astype(float), rcond=None)[0]
    assert [each.table.estimate for each in found.coefficients] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("loss", [Rho("0.5"), Epsilon(1), EpsilonDelta(1, "1e-9")], ids=str)
def test_it_spends_what_it_states_and_no_more(loss) -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, people()), seed=1)
    found = linear_regression(vault, "hours", INPUTS, loss=loss)
    assert len(vault.reserved) == 1
    assert vault.spent.rho <= vault.reserved[0].rho
    assert vault.reserved[0] == loss.charge
    assert str(found.cost)


@pytest.mark.parametrize("rows", [1, 3])
def test_noise_is_that_of_all_products_together(rows) -> None:
    """p(p+1)/2 products, each moved by one at most: variance p(p+1)/(4 rho), for m rows m^2 as much."""
    unit = Unit.row() if rows == 1 else Unit("person", rows)
    domain = Domain(DOMAIN.attributes, unit=unit)
    found = linear_regression(SimulatedVault(ArrayTable(domain, people()), seed=1), "hours", ["age"], loss=Rho("0.5"))
    (deviation,) = found.expected_error.values()
    assert deviation**2 == pytest.approx(rows**2 * 3 * 4 / (4 * 0.5), rel=1e-3)
    assert (found.coefficients[0].population is None) == (rows > 1)


def test_one_row_moves_no_product_by_more_than_its_noise_is_made_for(monkeypatch) -> None:
    """Every row that the domain allows is tried alone: its part in each measured sum is within the sensitivity."""
    domain = Domain(
        (
            Integer(name="hours", minimum=1, maximum=5, unknown=Unknown.CLAMP),
            Real(name="wage", edges=(-3.0, -1.0, 0.5, 9.0), unknown=Unknown.CLAMP),
            Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
        )
    )
    asked = []
    real = SimulatedVault.release

    def watched(self, request, loss, run, **more):
        def seen(mechanisms):
            measure = mechanisms.measure

            class Watching:
                domain = mechanisms.domain

                def measure(self, questions, loss, **terms):
                    asked.extend(questions)
                    return measure(questions, loss, **terms)

            return run(Watching())

        return real(self, request, loss, seen, **more)

    monkeypatch.setattr(SimulatedVault, "release", watched)
    cells = np.stack([axis.ravel() for axis in np.indices(domain.shape)], axis=1)
    linear_regression(SimulatedVault(ArrayTable(domain, cells), seed=1), "hours", ["wage", "sex = 'F'"], loss=Rho(1))
    assert len(asked) == 4 * 5 / 2
    for question in asked:
        _, squared = question.sensitivity(domain)
        axes = [domain.index(name) for name in question.attributes]
        shape = tuple(domain.shape[axis] for axis in axes)
        weights = np.abs(question.weights.reshape(shape))
        assert int(weights.max()) ** 2 == squared
        assert len(question.weights) == 1


def covered(runs: int, *, population: bool, narrower: float = 1.0) -> np.ndarray:
    """Return how often the interval of each coefficient holds the truth."""
    codes, size = people(), len(people())
    held = np.zeros(len(INPUTS) + 1, dtype=int)
    truth = solved(codes)
    for run in range(runs):
        rows = codes[np.random.default_rng(500 + run).integers(0, size, size)] if population else codes
        vault = SimulatedVault(ArrayTable(DOMAIN, rows), seed=run)
        found = linear_regression(vault, "hours", INPUTS, loss=Rho("0.5") if population else EpsilonDelta(1, "1e-9"))
        values = [each.population if population else each.table for each in found.coefficients]
        held += [abs(v.estimate - t) <= narrower * (v.high - v.low) / 2 for v, t in zip(values, truth, strict=True)]
    return held


@pytest.mark.parametrize("population", [False, True], ids=["table", "population"])
def test_intervals_hold_as_often_as_they_say(population) -> None:
    runs = 400
    least, most = binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], runs, 0.95)
    held = covered(runs, population=population)
    assert (held >= least).all(), held
    assert (held <= most).all(), held
    assert binom.cdf(least - 1, runs, 0.83) > 0.99  # what intervals 30 % narrower hold


@pytest.mark.slow
@pytest.mark.parametrize("population", [False, True], ids=["table", "population"])
def test_narrower_intervals_are_told_from_those_that_hold(population) -> None:
    runs = 2000
    least, most = binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], runs, 0.95)
    assert (covered(runs, population=population) >= least).all()
    assert (covered(runs, population=population) <= most).all()
    assert (covered(runs, population=population, narrower=0.7) < least).all()


def test_where_noise_drowns_the_inputs_nothing_is_told() -> None:
    """The moments could be inverted, at about six times their noise: intervals of what comes of it would not hold."""
    for seed in range(5):
        vault = SimulatedVault(ArrayTable(DOMAIN, people()[:1800]), seed=seed)
        found = linear_regression(vault, "hours", INPUTS, loss=EpsilonDelta(1, "1e-9"))
        assert found.coefficients == ()
    assert "the noise is too large" in found.notes[-1]


@pytest.mark.parametrize(
    ("outcome", "inputs", "says"),
    [
        ("hours", ["kids"], "kids may be missing"),
        ("hours", ["sex"], "sex has no numbers; take a condition"),
        ("hours", ["age", "age"], "is repeated"),
        ("hours", ["hours"], "is repeated"),
        ("hours", [], "one or more inputs"),
        ("hours", "age", "one or more inputs"),
        ("hours", ["sex = 'M' AND age = 30"], "about one attribute"),
        ("hours", ["sex IN ('F', 'M')"], "for all rows or for none"),
        ("hours", ["nothing"], "nothing"),
        ("hours", ["age"] * 31, "at most 30 inputs"),
    ],
    ids=str,
)
def test_what_is_no_regression_is_refused_before_anything_is_spent(outcome, inputs, says) -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, people()), seed=1)
    with pytest.raises(QueryError, match=says):
        linear_regression(vault, outcome, inputs, loss=Rho(1))
    assert not vault.reserved


DATED = Domain((
    Date(name="seen", first=date(2020, 1, 1), last=date(2023, 12, 31), by=Grain.MONTH, unknown=Unknown.DROP),
    Date(name="born", first=date(2020, 1, 1), last=date(2020, 12, 31), by=Grain.MONTH, unknown=Unknown.DROP),
    Integer(name="cost", minimum=0, maximum=9, unknown=Unknown.DROP),
))  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("seen", 'seen has dates, not numbers; take a condition, such as "year(seen) = 2022"'),
        (
            "year(seen)",
            'year(seen) is a part of a date; use a condition on it as a variable, such as "year(seen) = 2022"',
        ),
        ("born", "born has dates, not numbers; take a condition, on parts of them or a range"),
    ],
)
def test_dates_are_refused_with_a_condition_that_is_taken(given, says) -> None:
    codes = np.random.default_rng(1).integers(0, DATED.shape, (4000, 3))
    vault = SimulatedVault(ArrayTable(DATED, codes), seed=1)
    with pytest.raises(QueryError) as caught:
        linear_regression(vault, "cost", [given], loss=Rho(1))
    assert str(caught.value) == says
    assert not vault.reserved
    if '"' in says:
        found = linear_regression(vault, "cost", [says.split('"')[1]], loss=Rho(1))
        assert len(found.coefficients) == 2


def test_losses_and_confidences_are_checked_first() -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, people()), seed=1)
    with pytest.raises(LossError, match="confidence"):
        linear_regression(vault, "hours", ["age"], loss=Rho(1), confidence=1)
    with pytest.raises(LossError, match="state a loss"):
        linear_regression(vault, "hours", ["age"], loss=0.5)
    assert not vault.reserved


def test_the_same_question_costs_nothing_and_the_journal_says_what_was_asked(tmp_path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'a.ledger'}", dataset="people", limit=Rho(1), create=True) as ledger:
        vault = Vault(ArrayTable(DOMAIN, people()), ledger, UNDECLARED)
        first = linear_regression(vault, "hours", ["age"], loss=Rho("0.6"))
        again = linear_regression(vault, "hours", ["age"], loss=Rho("0.6"), confidence=Fraction(9, 10))
        assert [each.table.estimate for each in first.coefficients] == [e.table.estimate for e in again.coefficients]
        assert again.coefficients[1].table.high < first.coefficients[1].table.high
        assert [entry.asked for entry in ledger.journal()][:1] == ["linear regression of hours by age"]
        with pytest.raises(BudgetError):
            linear_regression(vault, "hours", INPUTS, loss=Rho("0.6"))
    assert query.linear_regression is linear_regression
