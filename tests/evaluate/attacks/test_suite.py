from __future__ import annotations

import numpy as np
import pytest

from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError, TableError
from sfumato.evaluate.attacks.suite import attack_rows
from sfumato.evaluate.intervals import advantage, newcombe, worst
from sfumato.evaluate.population_split import independent
from sfumato.evaluate.released import Claim, Released, Rows, parse_claim, spread
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.methods.histogram import histogram
from sfumato.vault.simulated import SimulatedVault


def by_name(attacks):
    return {result.attack: result for result in attacks.results}


def test_raw_rows_leak_and_every_number_says_what_the_attacker_knows(everyone):
    found = attack_rows(Released.raw(everyone.members), everyone.members, everyone.controls, claim=Claim(), seed=1)
    results = by_name(found)
    assert set(results) == {"membership", "linkage", "attribute inference", "singling out"}
    assert results["membership"].value > 0.7
    assert results["attribute inference"].value > 0.5
    assert results["singling out"].value > 0.8
    assert all(result.interval.low > 0 for result in results.values())
    assert all(result.knowledge for result in results.values())
    assert all(result.members.trials == result.controls.trials for result in results.values())
    assert found.headline.interval.low < min(results.values(), key=lambda result: -result.value).interval.low


@pytest.mark.parametrize("seed", range(4))
def test_zero_leak_is_reported_as_zero(everyone, seed):
    """Disjoint real people: one interval in twenty may miss zero; the corrected headline hardly ever does."""
    found = attack_rows(Released.raw(everyone.others), everyone.members, everyone.controls, claim=Claim(), seed=seed)
    assert found.headline.interval.low <= 0.02
    assert sum(0 not in result.interval for result in found.results) <= 1
    assert abs(found.curve.true_positive - found.curve.false_positive).max() < 0.15


def test_independent_columns_leak_nothing(everyone):
    floor = independent(everyone.members, np.random.default_rng(0))
    found = attack_rows(Released.raw(floor), everyone.members, everyone.controls, claim=Claim(), seed=0)
    assert found.headline.interval.low <= 0.02


def test_bounds_hold_for_k_anonymous_rows_on_all_columns(everyone):
    """Classes of ten rows that agree in every column: linkage stays below one in ten."""
    order = np.lexsort(everyone.members.codes.T)
    codes = everyone.members.codes.copy()
    cells = []
    for column, size in enumerate(everyone.domain.shape):
        sets = np.zeros((len(codes) // 10, size), dtype=bool)
        for number, start in enumerate(range(0, len(codes), 10)):
            members = order[start : start + 10]
            sets[number, everyone.members.codes[members, column]] = True
            codes[members, column] = number
        cells.append(spread(sets))
    release = Released(everyone.domain, codes, tuple(cells))
    found = attack_rows(release, everyone.members, everyone.controls, claim=Claim(class_size=10), seed=0)
    linkage = by_name(found)["linkage"]
    assert linkage.bound == 0.1
    assert linkage.interval.low <= linkage.bound
    assert by_name(found)["singling out"].members.successes == 0
    assert by_name(found)["membership"].bound is None


def test_unequal_numbers_and_too_few_people_are_refused(everyone):
    yes = np.ones(30, dtype=bool)
    with pytest.raises(TableError, match="equal numbers"):
        advantage("any", "", yes, yes[:29])
    with pytest.raises(TableError, match="too few rows for an interval"):
        advantage("any", "", yes[:19], yes[:19])
    few = everyone.members.take(np.arange(30))
    with pytest.raises(TableError, match="too few rows for an interval"):
        attack_rows(Released.raw(few), few, everyone.controls, claim=Claim(), seed=0)


def test_the_headline_is_the_worst_and_pays_for_the_choice():
    luck = np.random.default_rng(0)
    results = tuple(
        advantage(name, "", luck.random(400) < rate, luck.random(400) < 0.3) for name, rate in (("a", 0.4), ("b", 0.6))
    )
    headline = worst(results)
    assert headline.attack == "b"
    assert headline.interval == newcombe(headline.members, headline.controls, error=0.05 / 2)


def test_advantage_bounds():
    assert Epsilon(2).advantage_bound() == pytest.approx((np.e**2 - 1) / (np.e**2 + 1))
    assert EpsilonDelta(2, "0.1").advantage_bound() == pytest.approx((np.e**2 - 1 + 0.2) / (np.e**2 + 1))
    assert EpsilonDelta(2, "0.9").advantage_bound() == pytest.approx(1, abs=0.03)
    assert Rho("0.02").advantage_bound() == pytest.approx(0.1)
    assert Rho(50).advantage_bound() == pytest.approx(1)
    assert str(Claim(Epsilon(1), 5)) == "epsilon = 1, k = 5"
    assert str(Claim()) == "no guarantee"
    with pytest.raises(InputError):
        Claim(class_size=0)


@pytest.mark.parametrize("epsilon", ["0.2", "2"])
def test_bounds_hold_for_differentially_private_rows(everyone, epsilon):
    """Rows of a noisy histogram: no attack exceeds what epsilon allows."""
    narrow = ("town", "job", "rich")
    places = [everyone.domain.index(name) for name in narrow]
    members, controls = (
        Rows(everyone.domain.project(narrow), rows.codes[:, places]) for rows in (everyone.members, everyone.controls)
    )
    vault = SimulatedVault(ArrayTable(members.domain, members.codes.astype(np.uint8)), seed=1)
    model = histogram(vault, loss=Epsilon(epsilon), total=NoisyTotal()).model
    release = Released.raw(Rows(members.domain, model.sample(np.random.default_rng(0)).astype(np.intp)))
    found = attack_rows(release, members, controls, claim=Claim(Epsilon(epsilon)), seed=0)
    for result in found.results:
        if result.attack == "singling out":
            assert result.bound is None
        else:
            assert result.bound == pytest.approx(np.tanh(float(epsilon) / 2))
            assert result.interval.low <= result.bound


@pytest.mark.parametrize(
    "text", ["", "epsilon", "epsilon=0", "k=five", "k=0", "delta=1", "epsilon=1,k=5", "rho=-1", "safe"]
)
def test_what_is_no_guarantee_is_refused(text):
    with pytest.raises(InputError):
        parse_claim(text)
