"""Several attributes, keys with values, heavy hitters, graded means."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.local import HeavyHitters, KeyValue, Mean, Server, Several
from sfumato.local.estimators import Post, likeliest, simplex
from sfumato.local.protocol.device import simulate
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.multi_attribute import NumericBounds, Sharing

LIMIT = 9.3
RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize("sharing", Sharing)
def test_several_attributes_are_estimated_together(sharing: Sharing) -> None:
    spec = Several.design({"sex": ["f", "m"], "age": NumericBounds(0, 100), "town": 12}, epsilon=3, sharing=sharing)
    people = 30_000
    values = {
        "sex": np.array(["f", "m"])[RANDOM.integers(0, 2, people)],
        "age": RANDOM.uniform(20, 60, people),
        "town": RANDOM.binomial(11, 0.3, people),
    }
    server = Server(spec)
    server.update(simulate(spec, values, seed=1))
    made = server.estimate()
    truth = [
        *(np.mean(values["sex"] == name) for name in ("f", "m")),
        values["age"].mean(),
        *np.bincount(values["town"], minlength=12) / people,
    ]
    # sampling people adds its own variance to a sampled part: at most a quarter of one report's range squared
    slack = np.array([0.5, 0.5, 20, *[0.5] * 12]) / np.sqrt(people / 3)
    assert (np.abs(made.values - truth) < LIMIT * np.hypot(np.sqrt(made.variance), slack)).all()
    assert made.labels[:3] == ("sex: f", "sex: m", "age: mean")


def test_sampling_attributes_beats_splitting_epsilon() -> None:
    domains = dict.fromkeys("abcdef", 8)
    spread = {}
    for sharing in Sharing:
        spec = Several.design(domains, epsilon=1, sharing=sharing)
        server = Server(spec)
        server.update(simulate(spec, {name: RANDOM.integers(0, 8, 20_000) for name in domains}, seed=1))
        spread[sharing] = float(server.estimate().variance.mean())
    assert spread[Sharing.SAMPLE] < spread[Sharing.SPLIT]


def test_keys_and_their_values() -> None:
    spec = KeyValue.design(("a", "b", "c"), 0, 10, pairs=2, epsilon=2)
    people = 60_000
    has_b = RANDOM.random(people) < 0.4
    counts = 1 + has_b.astype(np.int64)
    keys = np.full(counts.sum(), "a")
    values = np.full(counts.sum(), 2.0)
    second = (np.cumsum(counts) - 1)[has_b]
    keys[second], values[second] = "b", 9.0
    server = Server(spec)
    server.update(simulate(spec, (keys, values, counts), seed=1))
    made = server.estimate()
    share, mean = made.values[:3], made.values[3:]
    assert (np.abs(share - [1, has_b.mean(), 0]) < LIMIT * np.sqrt(made.variance[:3])).all()
    assert (np.abs(mean[:2] - [2, 9]) < LIMIT * np.sqrt(made.variance[3:5])).all()


def test_heavy_hitters_are_found_and_strangers_are_not() -> None:
    spec = HeavyHitters.design(bits=40, text=True, epsilon=4)
    words = np.array(["apple", "pear", "fig", *(f"x{i}" for i in range(500))], dtype=object)
    chances = np.array([0.3, 0.2, 0.1, *[0.4 / 500] * 500])
    values = words[RANDOM.choice(words.size, 40_000, p=chances)]
    one, two = Server(spec), Server(spec)
    one.update(simulate(spec, values[:25_000], seed=1))
    two.update(simulate(spec, values[25_000:], seed=2))
    one.merge(two.state())
    found = one.find(most=8)
    assert found.labels[:3] == ("apple", "pear", "fig")
    assert len(found.labels) < 6  # of eight candidates: noise alone does not pass
    truth = {word: float(np.mean(values == word)) for word in found.labels}
    for label, value, variance in zip(found.labels, found.values, found.variance, strict=True):
        assert abs(value - truth[label]) < LIMIT * np.sqrt(variance)
    with pytest.raises(InputError, match="find"):
        one.estimate()


def test_heavy_integers() -> None:
    spec = HeavyHitters.design(bits=16, text=False, epsilon=3)
    values = np.where(RANDOM.random(30_000) < 0.5, 54_321, RANDOM.integers(0, 1 << 16, 30_000))
    server = Server(spec)
    server.update(simulate(spec, values, seed=1))
    assert server.find(most=4).labels[0] == "54321"


def test_graded_means_and_blocks_and_public_levels() -> None:
    values = RANDOM.uniform(-1, 0.9, 60_000)
    divisions, budgets = (-1.0, -0.2, 0.6, 1.0), (3, 2, 1)
    graded = GradedMean.design(-1, 1, divisions=divisions, budgets=budgets)
    block = Block.design(divisions, budgets=budgets)
    levels = RANDOM.integers(0, 2, values.size)
    specs = [(graded, values), (block, values)]
    specs += [
        (PublicLevels.design(-1, 1, budgets=(2, 1), independent=each), (values, levels)) for each in (True, False)
    ]
    spread = []
    for spec, population in specs:
        server = Server(spec)
        server.update(simulate(spec, population, seed=1))
        made = server.estimate()
        slack = 0.55 / np.sqrt(values.size / 2)  # weights by variance estimate a level's own mean
        assert abs(made.values[0] - values.mean()) < LIMIT * np.hypot(np.sqrt(made.variance[0]), slack)
        spread.append(float(made.variance[0]))
    assert spread[2] < spread[3]  # inverse variances beat shares where levels say nothing about values


def test_a_level_of_two_people_whose_reports_agree_does_not_outweigh_the_rest() -> None:
    """Their sample variance is zero; the weights of levels are fixed beforehand."""
    spec = PublicLevels.design(-1, 1, budgets=(2, 1), independent=True)
    values, levels = np.full(2002, 0.5), np.repeat([0, 1], [2, 2000])
    agreed = 0
    for seed in range(40):
        reports = simulate(spec, (values, levels), seed=seed)
        agreed += np.array_equal(reports.data[0], reports.data[1])
        server = Server(spec)
        server.update(reports)
        assert abs(server.estimate().values[0] - 0.5) < 0.5  # ten standard deviations
    assert agreed


def test_projection_and_likelihood() -> None:
    assert simplex(np.array([0.2, 0.3, 0.5])).tolist() == pytest.approx([0.2, 0.3, 0.5])
    channel = np.array([[0.8, 0.2], [0.3, 0.7]])
    found = likeliest(channel, np.array([55_000, 45_000]))
    assert found @ channel == pytest.approx([0.55, 0.45], abs=1e-6)


def test_post_processing_that_has_no_meaning_is_refused() -> None:
    spec = Mean.design(0, 1, epsilon=1)
    server = Server(spec)
    server.update(simulate(spec, np.linspace(0, 1, 50), seed=1))
    with pytest.raises(InputError, match="no post-processing"):
        server.estimate(Post.SIMPLEX)
