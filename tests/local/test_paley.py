"""The Paley design: supports by Euler's criterion, exact ratios, and estimates with the stated variance."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.local import Frequency, Method, Post, Server, dumps, loads
from sfumato.local.protocol.device import simulate
from sfumato.local.randomizers.paley import LARGEST_PALEY, Paley
from sfumato.local.randomizers.randomizer import exp_below
from sfumato.local.randomizers.two_valued import SubsetSelection, TwoValued
from sfumato.privacy.entropy import SimulatedEntropy

SIZES = [(2, 3), (3, 3), (4, 7), (7, 7), (8, 11), (20, 23), (24, 31)]


def supporters(inputs: int) -> list[set[int]]:
    """Return, for every report, the values that it supports, by Euler's criterion, for the judge of forged specs."""
    prime = next(q for q in (3, 7, 11, 19, 23, 31, 43, 47) if q >= inputs)
    return [{v for v in range(inputs) if pow(r - v, (prime - 1) // 2, prime) == 1} for r in range(prime)]


@pytest.mark.parametrize(("size", "prime"), SIZES)
def test_supports_are_squares_and_meet_equally_often(size, prime):
    """Euler's criterion: x is a nonzero square if x^((q - 1) / 2) = 1 mod q."""
    design = Paley(size)
    incidence = design.incidence()
    assert incidence.shape == (size, prime)
    for value in range(size):
        for report in range(prime):
            assert incidence[value, report] == (pow(report - value, (prime - 1) // 2, prime) == 1)
    assert set(incidence.sum(axis=1)) == {(prime - 1) // 2}
    both = {int((incidence[a] & incidence[b]).sum()) for a, b in combinations(range(size), 2)}
    assert both == {(prime - 3) // 4}
    inside, outside = design.pair_support
    assert inside == Fraction((prime - 3) // 4, prime // 2)
    assert outside == Fraction(prime // 2 - (prime - 3) // 4, prime - prime // 2)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3"])
@pytest.mark.parametrize(("size", "prime"), SIZES[:5])
def test_no_report_is_likelier_by_more_than_epsilon(size, prime, epsilon):
    """The table is enumerated: it keeps epsilon, uses all but nothing of it, and would not keep 30 % less."""
    randomizer = TwoValued.within(Paley(size), Fraction(epsilon))
    rows = randomizer.rows()
    assert all(sum(row) == 1 for row in rows)
    largest = max(max(column) / min(column) for column in zip(*rows, strict=True))
    assert largest == randomizer.ratio() <= exp_below(Fraction(epsilon))
    assert largest > exp_below(Fraction(epsilon) * Fraction(7, 10))
    assert largest > exp_below(Fraction(epsilon)) * (1 - Fraction(1, 10**15))


@pytest.mark.parametrize("inside", [True, False])
def test_every_report_of_a_side_is_drawn_equally_often(inside):
    """Twenty thousand draws of each of eleven values; the seed is fixed."""
    design, codes = Paley(9), np.repeat(np.arange(9), 20_000)
    reports = design.pick(codes, np.full(codes.size, inside), SimulatedEntropy(3))
    for value, drawn in enumerate(reports.reshape(9, -1)):
        counts = np.bincount(drawn, minlength=11)
        side = design.incidence()[value] == inside
        assert not counts[~side].any()
        expected = drawn.size / side.sum()
        assert ((counts[side] - expected) ** 2 / expected).sum() < 40, "a chi square of at most five degrees"


def test_the_server_estimates_with_the_stated_variance_and_not_with_30_percent_less():
    spec = Frequency.design(20, epsilon=1, method=Method.PALEY)
    assert loads(dumps(spec)) == spec
    people, runs, errors = 500, 150, []
    values = np.arange(people) % 4  # a quarter each; 16 values do not occur
    for run in range(runs):
        reports = simulate(spec, values, seed=run)
        server = Server(spec)
        server.update(reports)
        estimate = server.estimate(post=Post.NONE)
        errors.append(estimate.values - np.where(np.arange(20) < 4, 0.25, 0.0))
    errors = np.array(errors)
    stated = np.array([spec.randomizer.variance(0.25 if value < 4 else 0.0) / people for value in range(20)])
    ratio = float((errors**2 / stated).mean())
    assert abs(ratio - 1) < 0.15  # 3000 squares: a deviation of about .03 to .05
    assert abs(ratio / 0.7 - 1) > 0.15
    assert np.abs(errors.mean(axis=0) / np.sqrt(stated / runs)).max() < 5


@pytest.mark.parametrize("size", [7, 11, 23])
def test_at_a_small_epsilon_it_has_the_variance_of_the_best_subset(size):
    epsilon = Fraction(1, 20)
    best = min(TwoValued.within(SubsetSelection(size, part), epsilon).variance(1 / size) for part in range(1, size))
    assert TwoValued.within(Paley(size), epsilon).variance(1 / size) == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize(
    ("size", "most"), [(6, 1.12), (8, 1.12), (14, 1.12), (20, 1.07), (32, 1.07), (48, 1.07), (200, 1.07)]
)
@pytest.mark.parametrize("epsilon", ["0.1", "0.5"])
def test_its_variance_is_as_near_to_that_of_subsets_as_the_docs_say(size, most, epsilon):
    loss = Fraction(epsilon)
    best = min(TwoValued.within(SubsetSelection(size, part), loss).variance(1 / size) for part in range(1, size))
    assert TwoValued.within(Paley(size), loss).variance(1 / size) <= most * best


def test_domains_beyond_the_table_are_refused():
    assert Paley(LARGEST_PALEY - 1).outputs == LARGEST_PALEY - 1
    with pytest.raises(InputError, match="serves at most 8192 values"):
        Frequency.design(LARGEST_PALEY + 1, epsilon=1, method=Method.PALEY)
    for bad in (1, LARGEST_PALEY + 1):
        with pytest.raises(InputError, match="contradict"):
            Paley(bad)
