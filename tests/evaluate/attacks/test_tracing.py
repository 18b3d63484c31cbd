from __future__ import annotations

import numpy as np

from sfumato.evaluate.attacks import homer_distance
from sfumato.evaluate.attacks.suite import attack_marginals
from sfumato.evaluate.released import AnsweredWorkload, Claim, Released


def test_homer_recognizes_members_of_a_small_study_from_its_means():
    luck = np.random.default_rng(0)
    shares = luck.uniform(0.1, 0.9, 3000)
    members, strangers = (luck.random((60, 3000)) < shares for _ in range(2))
    scores = [homer_distance(members.mean(axis=0), shares, people) for people in (members, strangers)]
    assert scores[0].min() > scores[1].max()
    noisy = members.mean(axis=0) + luck.laplace(0, 3000 / 60, 3000)  # means at epsilon 1 together
    blind = [homer_distance(noisy, shares, people) for people in (members, strangers)]
    assert abs(blind[0].mean() - blind[1].mean()) < 3 * blind[1].std() / np.sqrt(30)


def test_exact_marginals_of_few_people_are_traced_and_those_of_strangers_are_not(people):
    rows = people.population(900, seed=0)
    names = [("age", "town", "job"), ("job", "hours", "rich"), ("rich", "rooms", "age")]
    for source, low, high in ((slice(0, 300), 0.5, 1.0), (slice(300, 600), -0.2, 0.2)):
        release = Released.raw(rows.take(np.arange(900)[source]))
        answered = AnsweredWorkload(people.DOMAIN, {clique: release.marginal(clique) for clique in names})
        strangers = people.population(3000, seed=1)
        found = attack_marginals(answered, rows.take(np.arange(300)), strangers, claim=Claim(), seed=0)
        assert low < found.headline.value < high
