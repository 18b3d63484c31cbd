from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sfumato.evaluate.population_split import independent
from sfumato.evaluate.released import Released
from sfumato.evaluate.utility.scorecard import marginal_score, rescaled, sampled_score


def test_u2_by_hand(people):
    one, two = people.population(300, seed=0), people.population(200, seed=1)
    total = []
    for a, b in combinations(range(6), 2):
        tables = []
        for rows in (one, two):
            table = np.zeros((60, 60))
            np.add.at(table, (rows.codes[:, a], rows.codes[:, b]), 1 / len(rows))
            tables.append(table)
        total.append(np.abs(tables[0] - tables[1]).sum() / 2)
    score = marginal_score(Released.raw(one), Released.raw(two), ways=2)
    assert score == pytest.approx(1 - np.mean(total))


def test_the_scale_runs_from_independent_columns_to_other_people(everyone):
    real = Released.raw(everyone.members)
    floor = Released.raw(independent(everyone.members, np.random.default_rng(0)))
    ceiling = Released.raw(everyone.others)
    assert marginal_score(real, floor, ways=1) == 1  # every column is right
    low, high = (marginal_score(real, end, ways=2) for end in (floor, ceiling))
    assert low < high < marginal_score(real, real, ways=2) == 1
    assert rescaled(low, floor=low, ceiling=high) == 0
    assert rescaled(high, floor=low, ceiling=high) == 1
    assert np.isnan(rescaled(1, floor=1, ceiling=1))


def test_a_sample_of_marginals_lies_within_its_standard_error(everyone):
    real, other = (
        Released.raw(everyone.members),
        Released.raw(independent(everyone.members, np.random.default_rng(0))),
    )
    exact = marginal_score(real, other, ways=3)
    every = sampled_score(real, other, ways=3, most=20, generator=np.random.default_rng(0))
    assert (every.value, every.error, every.taken, every.all) == (pytest.approx(exact), 0, 20, 20)
    draws = [sampled_score(real, other, ways=3, most=8, generator=np.random.default_rng(seed)) for seed in range(400)]
    spread = np.std([draw.value for draw in draws])
    assert spread == pytest.approx(np.sqrt(np.mean([draw.error**2 for draw in draws])), rel=0.2)
    assert np.mean([draw.value for draw in draws]) == pytest.approx(exact, abs=6 * spread / 20)
