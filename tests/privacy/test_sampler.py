import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from sfumato.errors import InputError
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.noise import exp_enclosure
from sfumato.privacy.noise_table import decide, one_below, uniform_below


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 64, 1000])
def test_uniform_below_takes_leading_bits_and_rejects_the_rest(tools, bound):
    script, *_ = tools
    bits = (bound - 1).bit_length()
    every = [value << (64 - bits) for value in range(1 << bits)] if bits else [0]
    drawn = [int(uniform_below(bound, 1, script([word, 0]))[0]) for word in every]
    # Values below the bound come through; those above take the second word, which is zero.
    assert drawn == [value if value < bound else 0 for value in range(1 << bits)]


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 2**63 - 25])
def test_one_below_and_uniform_below_draw_the_same_numbers(bound):
    many, one = SimulatedEntropy(2), SimulatedEntropy(2)
    assert [int(uniform_below(bound, 1, many)[0]) for _ in range(200 if bound > 1 else 1)] == [
        one_below(bound, one) for _ in range(200 if bound > 1 else 1)
    ]


@pytest.mark.parametrize("bound", [3, 10, 2**62 + 1])
def test_uniform_below_is_uniform(bound):
    draws = uniform_below(bound, 60_000, SimulatedEntropy(1))
    assert draws.min() >= 0
    assert draws.max() < bound
    cells = np.bincount((draws // (-(-bound // 10))).astype(np.int64))
    widths = np.array([min(bound, (i + 1) * (-(-bound // 10))) - i * (-(-bound // 10)) for i in range(cells.size)])
    assert chisquare(cells, widths / bound * draws.size).pvalue > 1e-20


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1])
def test_uniform_below_refuses_bounds_out_of_range(bound):
    with pytest.raises(InputError):
        uniform_below(bound, 1, SimulatedEntropy(1))


def test_decide_asks_for_more_digits_only_when_it_has_to(tools):
    script, *_ = tools
    asked = []

    def half(bits):
        asked.append(bits)
        wide = 3 if bits == 64 else 0
        return (1 << (bits - 1)) - wide, (1 << (bits - 1)) + wide

    assert decide(half, script([0]))
    assert asked == [64]
    assert decide(half, script([(1 << 63) - 1, 0]))
    assert not decide(half, script([(1 << 63) + 1, 0]))
    assert asked == [64, 64, 128, 64, 128]


@pytest.mark.parametrize("exponent", [Fraction(1, 7), Fraction(1), Fraction(5, 2), Fraction(20)])
def test_decide_turns_exactly_at_the_enclosed_probability(tools, exponent):
    _, acceptance, _ = tools
    turn = acceptance(lambda entropy: decide(lambda bits: exp_enclosure(exponent, bits), entropy))
    assert turn == pytest.approx(math.exp(-exponent), rel=1e-14)


def test_coins_agree_with_their_probability_and_reject_another():
    tenths = Fraction(3, 10)
    entropy = SimulatedEntropy(5)

    def enclosure(bits):
        scaled = tenths.numerator << bits
        return scaled // tenths.denominator, -(-scaled // tenths.denominator)

    heads = sum(decide(enclosure, entropy) for _ in range(10_000))
    assert binomtest(heads, 10_000, 0.3).pvalue > 1e-20
    assert binomtest(heads, 10_000, 0.39).pvalue < 1e-20
