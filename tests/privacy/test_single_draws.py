"""Noise of few draws: exact probabilities digit by digit and coin by coin, and statistics of whole runs.

The exact tests know exp from ``decimal`` with 60 digits, and not from the sampler.  A statistical one fails by chance
with probability below 1e-10, all together below 1e-8, and each sees that the noise is not 30 % less.
"""

import math
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian, GaussianTries
from sfumato.privacy.laplace import DiscreteLaplace, LaplaceDigits
from sfumato.privacy.noise_table import Exponent, NoiseTable

FALSE_ALARM = 1e-10
SCALES = [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(40), Fraction(10001, 7), Fraction(1 << 50)]
ZERO, ONE = (1 << 64) - 1, 0  # words that decide for a digit, whatever its probability is


def falls(exponent: Fraction) -> Fraction:
    """exp(-exponent) to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def chances(digits: LaplaceDigits) -> list[Fraction]:
    """The probability of each digit, and of one more multiple, as the words decide it: to 2^-63."""
    return [Fraction(int(low) + int(high), 1 << 65) for low, high in zip(digits.low, digits.high, strict=True)]


def two_sided(digits: LaplaceDigits) -> dict[int, Fraction]:
    """Return the probability of each difference of two numbers below 2^digits, from the probabilities of their
    digits.
    """
    one_sided = {}
    for ones in product((0, 1), repeat=digits.digits):
        number = sum(one << place for place, one in enumerate(ones))
        parts = [chance if one else 1 - chance for one, chance in zip(ones, chances(digits), strict=False)]
        one_sided[number] = math.prod(parts)
    found: dict[int, Fraction] = defaultdict(Fraction)
    for first, second in product(one_sided, repeat=2):
        if min(first, second) < 40:  # both beyond have a probability of nothing
            found[first - second] += one_sided[first] * one_sided[second]
    return found


@pytest.mark.parametrize("scale", SCALES)
def test_each_digit_is_one_with_the_probability_of_its_place(scale):
    digits = LaplaceDigits.of(scale)
    for place, (low, high) in enumerate(zip(digits.low.tolist(), digits.high.tolist(), strict=True)):
        ratio = falls((1 << place) / scale)
        exact = ratio if place == digits.digits else ratio / (1 + ratio)
        assert low <= exact * 2**64 <= high <= low + 2
        assert 0.7 * exact * 2**64 < low or place > digits.digits - 5
        for bits in (64, 150):
            least, most = digits.coin(place, bits)
            assert least <= exact * 2**bits <= most <= least + 5
    assert digits.high[-1] == 1, "one more multiple is as good as never"


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1, 2)])
def test_digits_make_up_the_difference_of_two_numbers(tools, scale):
    """Enumerates every pattern of the words of one draw, with its probability."""
    script, *_ = tools
    digits = LaplaceDigits.of(scale)
    number = [*chances(digits)]
    chance: dict[int, Fraction] = defaultdict(Fraction)
    places = digits.digits
    for ones in product((0, 1), repeat=2 * places):
        halves = ones[:places], ones[places:]
        words = [[*(ONE if one else ZERO for one in half), ZERO] for half in halves]
        drawn = int(digits.draw(1, script([*words[0], *words[1]]))[0])
        parts = [part if one else 1 - part for half in halves for one, part in zip(half, number[:places], strict=True)]
        chance[drawn] += math.prod(parts)
    noise = DiscreteLaplace(scale)
    less = DiscreteLaplace(scale * Fraction(7, 10))
    assert sum(chance.values()) == 1
    for k in range(-6, 7):
        assert abs(chance[k] - noise.enclose_pmf(k)[0]) < Fraction(1, 1 << 58)
        assert abs(chance[k] - less.enclose_pmf(k)[0]) > Fraction(1, 1 << 50) or abs(k) > 4


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(7, 3)])
def test_digits_and_tables_have_one_distribution(scale):
    found = two_sided(LaplaceDigits.of(scale))
    table = NoiseTable.build(Exponent(scale.denominator, 0, scale.numerator), int(scale))
    owned = [int(each) for each in np.diff(table.edges)]
    for k in range(-6, 7):
        assert float(found[k]) == pytest.approx(owned[k + table.half] / sum(owned), rel=1e-14)
        assert float(found[k]) == pytest.approx(float(DiscreteLaplace(scale).enclose_pmf(k)[0]), rel=1e-14)


@pytest.mark.parametrize("squared", [Fraction(1, 4), Fraction(2), Fraction(7, 3)])
def test_tries_and_tables_have_one_distribution(tools, squared):
    """The chance that a proposal is made, times where the coin that keeps it turns."""
    _, acceptance, _ = tools
    tries = GaussianTries.of(squared, math.isqrt(int(squared)) + 1)
    proposed = two_sided(tries.proposals)

    def kept(k):
        return acceptance(lambda entropy: tries.keeps(k, int(entropy.words(1)[0]), entropy))

    found = {k: float(proposed[k]) * kept(k) for k in range(-12, 13)}
    total = sum(found.values())
    assert total > 1 / 2, "fewer than two tries are needed in the mean"
    table = NoiseTable.build(Exponent(0, squared.denominator, 2 * squared.numerator), math.isqrt(int(squared)))
    owned = [int(each) for each in np.diff(table.edges)]
    less = DiscreteGaussian(squared * Fraction(7, 10))
    for k in range(-3, 4):
        exact = float(DiscreteGaussian(squared).enclose_pmf(k)[0])
        assert found[k] / total == pytest.approx(exact, rel=1e-13)
        assert found[k] / total == pytest.approx(owned[k + table.half] / sum(owned), rel=1e-13)
        assert found[k] / total != pytest.approx(float(less.enclose_pmf(k)[0]), rel=1e-2) or abs(k) == 1


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(10001, 7)])
def test_further_words_settle_a_tie(tools, scale):
    script, *_ = tools
    digits = LaplaceDigits.of(scale)
    nothing = [ZERO] * (digits.digits + 1)
    ties = [place for place in range(digits.digits) if digits.low[place] < digits.high[place]]
    for place in ties:
        drawn = set()
        for further in (ONE, ZERO):
            for word in range(int(digits.low[place]), int(digits.high[place])):
                words = [*nothing]
                words[place] = word
                drawn.add(int(digits.draw(1, script([*words, *nothing, further]))[0]))
        assert drawn == {0, 1 << place}


def test_what_lies_beyond_the_digits_is_drawn_too(tools):
    """The last word of all zeros is a tie, which takes further words: of as many zeros as the ratio has."""
    script, *_ = tools
    digits = LaplaceDigits.of(Fraction(1))
    nothing = [ZERO] * (digits.digits + 1)
    words = [*nothing[:-1], 0]
    assert digits.draw(1, script([*words, *nothing, ZERO]))[0] == 0
    assert digits.draw(1, script([*words, *nothing, 0, ZERO]))[0] == 1 << digits.digits
    assert digits.draw(1, script([*nothing, *words, 0, 0, 0, ZERO]))[0] == -2 << digits.digits


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(3), Fraction(1 << 50)])
def test_a_draw_takes_as_many_words_whatever_is_drawn(scale):
    class Counted:
        taken = 0

        def words(self, count):
            self.taken += count
            return OsEntropy().words(count)

    digits, entropy = LaplaceDigits.of(scale), Counted()
    digits.draw(1000, entropy)
    assert entropy.taken == 2000 * (digits.digits + 1)


def in_pieces(noise, count):
    entropy = OsEntropy()
    return np.concatenate([noise.draw(noise.few, entropy) for _ in range(-(-count // noise.few))])


def laplace_below(scale):
    tail = math.exp(-1 / scale)
    return lambda k: math.exp(k / scale) / (1 + tail) if k < 0 else 1 - math.exp(-(k + 1) / scale) / (1 + tail)


def gaussian_below(sigma):
    if sigma > 200:
        return lambda k: math.erfc(-(k + 0.5) / sigma / math.sqrt(2)) / 2
    weights = np.exp(-(np.arange(-4000, 4001) ** 2) / (2 * sigma**2))
    sums = np.cumsum(weights) / weights.sum()
    return lambda k: float(sums[min(max(k + 4000, 0), 8000)])


@pytest.mark.parametrize("scale", [Fraction(3), Fraction(10001, 7), Fraction(10**12)])
def test_few_laplace_draws_fit_their_scale_and_reject_another(tools, scale):
    *_, goodness = tools
    draws = in_pieces(DiscreteLaplace(scale), 100_000)
    assert goodness(draws, laplace_below(float(scale)), float(scale)) > FALSE_ALARM
    assert goodness(draws, laplace_below(float(scale) / 0.7), float(scale)) < FALSE_ALARM
    assert goodness(draws, laplace_below(float(scale) / 1.3), float(scale)) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [Fraction(3), Fraction(10001, 7), Fraction(10**12)])
def test_few_gaussian_draws_fit_their_scale_and_reject_another(tools, sigma):
    *_, goodness = tools
    draws = in_pieces(DiscreteGaussian(sigma**2), 20_000)
    assert goodness(draws, gaussian_below(float(sigma)), float(sigma)) > FALSE_ALARM
    assert goodness(draws, gaussian_below(float(sigma) / 0.7), float(sigma)) < FALSE_ALARM
    assert goodness(draws, gaussian_below(float(sigma) / 1.3), float(sigma)) < FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(3), Fraction(10001, 7)])
def test_draws_one_after_the_other_are_those_of_all_at_once(scale):
    """Few words are looked at one by one, many as an array; both are the same numbers of the same words."""
    digits = LaplaceDigits.of(scale)

    class Same:
        """These words, and no others."""

        def __init__(self, words):
            self.left = words

        def words(self, count):
            taken, self.left = self.left[:count], self.left[count:]
            return taken

    many = SimulatedEntropy(5).words(2 * 300 * (digits.digits + 1))
    together = digits.draw(300, Same(many))
    halves = many.reshape(2, 300, digits.digits + 1)
    apart = [int(digits.draw(1, Same(halves[:, place].ravel()))[0]) for place in range(300)]
    assert together.tolist() == apart


@pytest.mark.parametrize("noise", [DiscreteLaplace(30), DiscreteGaussian(900)])
def test_the_same_words_give_the_same_noise_whatever_came_before(noise):
    fresh = noise.draw(3, SimulatedEntropy(1)).tolist()
    noise.draw(10 * noise.few, SimulatedEntropy(2))
    assert noise.draw(3, SimulatedEntropy(1)).tolist() == fresh


@pytest.mark.parametrize("noise", [DiscreteLaplace(5), DiscreteGaussian(25)])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_as_many_are_drawn_as_were_asked_for(noise, count):
    drawn = noise.draw(count, OsEntropy())
    assert drawn.shape == (count,)
    assert drawn.dtype == np.int64
