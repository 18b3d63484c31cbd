import math
from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from sfumato.errors import InputError, LossError
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.privacy.selection import Exponential, PermuteAndFlip, gaps_below, root_below

MECHANISMS = [Exponential, PermuteAndFlip]


def coins(scores, rate):
    best = max(scores)
    return [math.exp(-rate * (best - score)) for score in scores]


def exponential_pmf(scores, rate):
    weights = coins(scores, rate)
    return [weight / sum(weights) for weight in weights]


def permute_and_flip_pmf(chances):
    """Return the probabilities by brute force over all orders: the first coin that shows heads is chosen."""
    size = len(chances)
    pmf = [chances[0] * 0] * size
    for order in permutations(range(size)):
        left = pmf[0] * 0 + 1
        for index in order:
            pmf[index] += left * chances[index] / math.factorial(size)
            left *= 1 - chances[index]
    return pmf


@given(st.lists(st.fractions(0, 1, max_denominator=10), min_size=0, max_size=4))
def test_a_uniform_choice_among_coins_that_show_is_permute_and_flip(others):
    chances = [Fraction(1), *others]
    pmf = [Fraction(0)] * len(chances)
    for shown in product([False, True], repeat=len(chances)):
        weight = math.prod((chance if show else 1 - chance) for chance, show in zip(chances, shown, strict=True))
        for index, show in enumerate(shown):
            if show:
                pmf[index] += weight / sum(shown)
    assert pmf == permute_and_flip_pmf(chances)


SCORES = [0, 3, 5, 5, -4]
RUNS = 10_000


@pytest.mark.parametrize("kind", ["integers", "fractions"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_choices_fit_their_distribution_and_reject_another_loss(mechanism, kind):
    chooser = mechanism(Epsilon("0.8"), sensitivity=2, monotone=False)
    scores = np.array(SCORES, dtype=np.int64) if kind == "integers" else [Fraction(score) for score in SCORES]
    entropy = SimulatedEntropy(3)
    counts = Counter(chooser.choose(scores, entropy) for _ in range(RUNS))
    observed = [counts[index] for index in range(len(SCORES))]

    def p_value(rate):
        pmf = exponential_pmf(SCORES, rate) if mechanism is Exponential else permute_and_flip_pmf(coins(SCORES, rate))
        return chisquare(observed, np.array(pmf) * RUNS).pvalue

    assert p_value(0.8 / 4) > 1e-20
    assert p_value(0.8 / 4 * 1.3) < 1e-20
    assert p_value(0.8 / 4 * 0.7) < 1e-20


@pytest.mark.parametrize("scores", [SCORES, [0, 1], [7], [0] * 5, [-1000, 0]])
@pytest.mark.parametrize("rate", [Fraction(1, 5), Fraction(3), Fraction(1, 1000)])
def test_the_parts_of_a_weight_make_its_exponential(scores, rate):
    """The certain and the coin-decided parts of an exponential choice add up to 2^31 exp(-rate gap)."""
    gaps = gaps_below(np.array(scores, dtype=np.int64), rate)
    for index, score in enumerate(scores):
        low, high = int(gaps.low[index]), int(gaps.high[index])
        exact = 2**31 * math.exp(-rate * (max(scores) - score))
        assert low <= exact * (1 + 1e-15) <= high * (1 + 1e-12) + 1e-300
        if high > low:
            below, above = gaps.remainder(index, 64)
            assert below <= above <= below + 4
            assert above >= 0
            assert below <= 1 << 64
            assert low + (high - low) * below / 2**64 == pytest.approx(exact, rel=1e-14, abs=1e-15)


def test_uniform_place_decides_the_exponential_choice(tools):
    script, *_ = tools
    chooser = Exponential(Epsilon(2), sensitivity=1, monotone=False)
    gaps = gaps_below(np.array([0, 1, 2], dtype=np.int64), Fraction(1))
    ends = np.cumsum(gaps.high.astype(np.int64)).tolist()
    shift = 64 - (ends[-1] - 1).bit_length()
    starts = [0, *ends[:-1]]
    for index, (start, low) in enumerate(zip(starts, gaps.low.tolist(), strict=True)):
        for place in (start, start + low - 1):
            assert chooser.choose(np.array([0, 1, 2]), script([place << shift])) == index
    # the first place that the lower end does not own is settled by a coin: shown, or drawn again
    tie = starts[1] + int(gaps.low[1])
    assert chooser.choose(np.array([0, 1, 2]), script([tie << shift, 0])) == 1
    assert chooser.choose(np.array([0, 1, 2]), script([tie << shift, (1 << 64) - 1, 0])) == 0


NEIGHBOURS = list(product([-1, 0, 1], repeat=3))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_choice_tells_neighbours_apart_by_more_than_epsilon(mechanism):
    epsilon = 1.5
    pmf_of = exponential_pmf if mechanism is Exponential else (lambda s, r: permute_and_flip_pmf(coins(s, r)))
    worst, ranges = 0.0, 0.0
    for base in product([0, 1, 3], repeat=3):
        here = pmf_of(base, epsilon / 2)
        for move in NEIGHBOURS:
            there = pmf_of([b + m for b, m in zip(base, move, strict=True)], epsilon / 2)
            losses = [math.log(a / b) for a, b in zip(here, there, strict=True)]
            worst = max(worst, *map(abs, losses))
            ranges = max(ranges, max(losses) - min(losses))
    assert worst <= epsilon * (1 + 1e-12)
    if mechanism is Exponential:
        assert ranges <= epsilon * (1 + 1e-12)  # bounded range: rho is epsilon^2 / 8
    assert worst > 0.6 * epsilon


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_monotone_exponent_is_for_monotone_scores_only(mechanism):
    epsilon = 1.5
    pmf_of = exponential_pmf if mechanism is Exponential else (lambda s, r: permute_and_flip_pmf(coins(s, r)))

    def worst(moves):
        losses = []
        for base in product([0, 1, 3], repeat=3):
            here = pmf_of(base, epsilon)
            for move in moves:
                there = pmf_of([b + m for b, m in zip(base, move, strict=True)], epsilon)
                losses += [abs(math.log(a / b)) for a, b in zip(here, there, strict=True)]
        return max(losses)

    assert worst([move for move in NEIGHBOURS if min(move) >= 0]) <= epsilon * (1 + 1e-12)
    assert worst(NEIGHBOURS) > 1.1 * epsilon


@pytest.mark.parametrize(("mechanism", "factor"), [(Exponential, 8), (PermuteAndFlip, 2)])
def test_loss_maps(mechanism, factor):
    pure = mechanism.for_loss(Epsilon("0.5"), sensitivity=1, monotone=False)
    assert pure.charge.epsilon == Fraction(1, 2)
    assert pure.charge.rho == Fraction(1, 4) / factor
    assert pure.charge.delta == 0
    scaled = mechanism.for_loss(Rho("0.1"), sensitivity=1, monotone=False)
    assert Fraction(1, 10) * (1 - Fraction(1, 10**15)) < scaled.charge.rho <= Fraction(1, 10)


@given(st.fractions(Fraction(1, 10**40), 10**40))
def test_root_is_below_and_close(value):
    root = root_below(value)
    assert root**2 <= value
    assert (root * (1 + Fraction(1, 10**17))) ** 2 > value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_extreme_scores_are_chosen_rightly(mechanism):
    chooser = mechanism(Epsilon(1), sensitivity=1, monotone=False)
    wide = np.array([-(1 << 62) + 1, (1 << 62) - 1, 0])
    assert {chooser.choose(wide, OsEntropy()) for _ in range(50)} == {1}
    assert {chooser.choose([Fraction(10**30), 0, Fraction(1, 3)], OsEntropy()) for _ in range(50)} == {0}
    assert chooser.choose([5], OsEntropy()) == 0
    assert {chooser.choose(np.zeros(4, dtype=np.int64), OsEntropy()) for _ in range(200)} == {0, 1, 2, 3}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "scores",
    [[], np.zeros(0, dtype=np.int64), [0.5], np.array([0.5]), np.array([1 << 62]), np.zeros((2, 2), dtype=np.int64)],
)
def test_scores_that_cannot_be_exact_are_refused(mechanism, scores):
    with pytest.raises(InputError):
        mechanism(Epsilon(1), sensitivity=1, monotone=False).choose(scores, OsEntropy())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("bad", [0, -1, "nan", True, None])
def test_sensitivities_are_positive(mechanism, bad):
    with pytest.raises(LossError):
        mechanism(Epsilon(1), sensitivity=bad, monotone=False)
