from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.anonymize.reidentification import UniquesModel, assess, estimate, fit_pitman, pitman, zayatz
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


def test_wrong_risks_are_refused() -> None:
    with pytest.raises(InputError, match="threshold"):
        assess(np.array([1]), threshold=1.5)
    with pytest.raises(InputError, match="no row"):
        assess(np.array([0]), threshold=0.1)
    with pytest.raises(InputError, match="more rows than people"):
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
    """Class sizes of a random sample of so many rows."""
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
