"""Every interval contains the exact answer as often as stated, for any loss and number of rows.

An interval of 90 % may miss 10 times in 100.  Of N draws more misses than ``most_misses(N)`` happen once in a million
times where the statement holds.  Exact answers are computed here from the rows, by NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.query import accuracy, ask
from sfumato.query.aggregates import Average, Confidence, Count, Extreme, Quantile, Total, Variance
from sfumato.query.question import Query
from sfumato.vault.simulated import SimulatedVault

SURE = Fraction(9, 10)
FALSE_ALARM = 1e-6
ATTRIBUTES = (
    Categorical(name="group", values=("a", "b", "c"), unknown=Unknown.CATEGORY),
    Integer(name="age", minimum=-5, maximum=94, unknown=Unknown.CLAMP),
    Integer(name="pay", minimum=0, maximum=99_999, edges=(0, 50_000), unknown=Unknown.CLAMP),
    Real(name="weight", edges=(-2.0, 0.0, 7.3), unknown=Unknown.CLAMP),
)
OF = ("age", "pay", "weight")
SHARES = (Fraction(1, 10), Fraction(1, 2), Fraction(99, 100))
ASKED = tuple(
    aggregate
    for of in OF
    for aggregate in (
        Total(of),
        Average(of),
        Variance(of),
        Variance(of, root=True),
        *(Quantile(of, share) for share in SHARES),
        Extreme(of, largest=False),
        Extreme(of, largest=True),
    )
)
LOSSES = (Epsilon("0.5"), Epsilon(20), Epsilon(100_000), Rho(2), EpsilonDelta(8, "1e-6"))


def most_misses(draws: int) -> int:
    return int(binom.ppf(1 - FALSE_ALARM, draws, float(1 - SURE)))


@dataclass
class Case:
    """Rows in memory, with the numbers behind their codes."""

    numbers: dict[str, np.ndarray]
    table: ArrayTable

    def exact(self, aggregate) -> float | None:
        """Return NumPy's result; None without a row."""
        if isinstance(aggregate, Count):
            return len(self.numbers["age"])
        of = self.numbers[aggregate.of]
        match aggregate:
            case Total():
                return of.sum()
            case _ if not len(of):
                return None
            case Average():
                return of.mean()
            case Variance(root=root):
                return of.std() if root else of.var()
            case Quantile(probability=share):
                return np.quantile(of, float(share), method="inverted_cdf")
            case Extreme(largest=largest):
                return of.max() if largest else of.min()


def case(rows: int, unit: Unit | None = None, seed: int = 0) -> Case:
    """Lumps at the bounds, gaps, and numbers that lie on no grid."""
    random = np.random.default_rng(seed + rows)
    ages = random.choice([-5, 17, 18, 40, 94], rows, p=[0.05, 0.3, 0.3, 0.3, 0.05])
    pays = np.clip(random.lognormal(9, 1, rows).astype(int), 0, 99_999)
    weights = np.clip(random.normal(3, 2, rows), -2, 7.3)
    codes = np.column_stack(
        [random.integers(0, 3, rows), ages + 5, (pays >= 50_000).astype(int), (weights >= 0).astype(int)]
    )
    domain = Domain(ATTRIBUTES) if unit is None else Domain(ATTRIBUTES, unit=unit)
    numbers = {"age": ages.astype(float), "pay": pays.astype(float), "weight": weights}
    return Case(numbers, ArrayTable(domain, codes, values={name: numbers[name] for name in ("pay", "weight")}))


CASES = {
    "no row": case(0),
    "one row": case(1),
    "forty rows": case(40),
    "four rows a unit": case(300, Unit("person", rows=4)),
    "many rows": case(4000),
}


def missed(found: Case, aggregates, loss, draws: int, *, narrower: float = 1.0) -> dict[str, int]:
    """Return how often the interval of each aggregate misses, each asked at its own loss."""
    misses: dict[str, int] = {}
    vault = SimulatedVault(found.table, seed=17)
    for aggregate in aggregates:
        exact = found.exact(aggregate)
        if exact is None:
            continue
        answers = (ask(vault, Query((aggregate,)), loss=loss, confidence=SURE).value for _ in range(draws))
        margin = 1e-9 * (1 + abs(exact))
        misses[str(aggregate)] = sum(
            not narrower * (value.low - value.estimate) - margin
            <= exact - value.estimate
            <= narrower * (value.high - value.estimate) + margin
            for value in answers
        )
    return misses


def refuse_more(misses: dict[str, int], most: int) -> None:
    assert misses
    assert {name: count for name, count in misses.items() if count > most} == {}


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_the_exact_answer_as_often_as_they_say(name: str, loss) -> None:
    draws, most = (1, 0) if loss == LOSSES[2] else (25, most_misses(25))  # without noise all draws are alike
    refuse_more(missed(CASES[name], (Count(), *_real_sums(ASKED)), loss, draws), most)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_the_exact_answer_as_often_as_they_say_over_many_draws(name: str, loss) -> None:
    found = CASES[name]
    refuse_more(missed(found, (Count(), *_real_sums(ASKED)), loss, 400), most_misses(400))


def test_intervals_a_third_too_narrow_would_be_found() -> None:
    misses = missed(CASES["forty rows"], (Count(), Total("age"), Total("pay")), Rho("0.05"), 400, narrower=0.7)
    assert min(misses.values()) > most_misses(400)


@pytest.mark.parametrize("loss", [Epsilon(1), Rho("0.1")], ids=str)
def test_intervals_by_group_hold_each_on_its_own(loss) -> None:
    found, draws = CASES["four rows a unit"], 60
    groups = np.concatenate([found.table.codes[:, 0]])
    misses = np.zeros((4, 2), dtype=int)
    vault = SimulatedVault(found.table, seed=5)
    for _ in range(draws):
        answer = ask(vault, Query((Count(), Average("age")), by=("group",)), loss=loss, confidence=SURE)
        for group, values in enumerate(answer.values):
            here = found.numbers["age"][groups == group]
            exact = (len(here), here.mean() if len(here) else None)
            misses[group] += [
                value is not None and not held.low <= value <= held.high
                for held, value in zip(values, exact, strict=True)
            ]
    assert misses.max() <= most_misses(draws)


@pytest.mark.parametrize("loss", [Epsilon(2), Epsilon(30), Rho(1)], ids=str)
def test_half_widths_stated_beforehand_hold_too(loss) -> None:
    found, draws = CASES["forty rows"], 60
    vault = SimulatedVault(found.table, seed=6)
    for aggregate in (Count(), *(a for a in ASKED if isinstance(a, Total | Average | Variance))):
        exact, query = found.exact(aggregate), Query((aggregate,))
        (stated,) = accuracy(found.table.domain, query, loss, confidence=SURE, rows=40)
        errors = [abs(ask(vault, query, loss=loss).value.estimate - exact) for _ in range(draws)]
        slack = 1e-4 * (1 + abs(exact))  # rounding to the fixed point
        assert sum(error > stated.half_width + slack for error in errors) <= most_misses(draws), str(aggregate)
        assert np.sqrt(np.mean(np.square(errors))) <= 1.6 * stated.standard_error + slack, str(aggregate)


@pytest.mark.parametrize("confidence", [Fraction(1, 2), Fraction(3, 4), Fraction(88, 100), Fraction(95, 100)])
def test_sums_of_noise_stay_within_their_spread_at_every_confidence(confidence) -> None:
    noise = DiscreteLaplace.for_loss(Epsilon("0.05"), sensitivity=1)
    random = np.random.default_rng(1)
    draws = 40_000
    for parts in (1, 2, 3, 8, 40):
        sums = random.laplace(0, float(noise.scale), (draws, parts)).sum(axis=1)
        spread = float(Confidence(confidence).interval_half_width(noise, np.array(parts * noise.variance)))
        allowed = binom.ppf(1 - FALSE_ALARM, draws, float(1 - confidence))
        assert (np.abs(sums) > spread).sum() <= allowed * 1.01  # the discrete noise is by a hair wider


def _real_sums(aggregates):
    """A sum of real numbers is one of rounded values, as its remark says: only its noise is tested at large losses."""
    return [each for each in aggregates if each != Total("weight")]
