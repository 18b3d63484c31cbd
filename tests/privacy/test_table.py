"""The noise tables: exact probabilities of one trial, word by word, and statistics of whole runs."""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.noise_table import Exponent, NoiseTable


def laplace(scale: Fraction) -> Exponent:
    return Exponent(scale.denominator, 0, scale.numerator)


def gaussian(variance: Fraction) -> Exponent:
    return Exponent(0, variance.denominator, 2 * variance.numerator)


TARGETS = {
    "laplace 1/5": (laplace(Fraction(1, 5)), 0),
    "laplace 1": (laplace(Fraction(1)), 1),
    "laplace 7/3": (laplace(Fraction(7, 3)), 2),
    "gaussian 1/4": (gaussian(Fraction(1, 4)), 0),
    "gaussian 9": (gaussian(Fraction(9)), 3),
    "gaussian 9, coarse cells": (gaussian(Fraction(9)), 1 << 9),
    "laplace 7/3, coarse cells": (laplace(Fraction(7, 3)), 1 << 10),
}


def nearest(cell: int, width: int) -> int:
    return cell * width if cell >= 0 else -(cell + 1) * width + 1


@pytest.mark.parametrize("name", TARGETS)
def test_every_word_of_a_trial_adds_up_to_the_target(tools, name):
    """Enumerates all 2^16 words: the chance of each cell, in and beyond the table, is M exp(-g) / 2^16."""
    _, acceptance, _ = tools
    exponent, scale = TARGETS[name]
    table = NoiseTable.build(exponent, scale, word_bits=16)
    width = 1 << table.shift
    chance: dict[int, float] = defaultdict(float)
    owned = np.diff(table.edges.astype(np.int64))
    for index in range(2 * table.half):
        chance[index - table.half] += float(owned[index])
    spare = (1 << 16) - int(table.edges[-1])
    for word in range(min(spare, 4 * table.half + 4 * table.stride)):
        for block in range(1 if word < 4 * table.half else 3):
            tosses = [] if word < 4 * table.half else [1] * block + [0]
            cells = set()

            def run(entropy, word=word, cells=cells):
                cell = table.resolve_word(word, entropy)
                cells.add(cell)
                return cell is not None

            kept = acceptance(run, tosses)
            (cell,) = cells - {None} or {None}
            if cell is not None:
                chance[cell] += kept * (2.0 ** -(block + 1) if word >= 4 * table.half else 1)
    # three blocks of each tail; the furthest may be too rare for 64 digits to show
    assert set(range(-table.half - table.stride, table.half + table.stride)) <= set(chance)
    for cell, words in chance.items():
        exact = table.multiplier * math.exp(-exponent(nearest(cell, width)))
        # the parts of a cell are resolved to 2^-53 of its words, the parts of a tail to 2^-64 of a word
        assert words == pytest.approx(exact, rel=1e-14, abs=1e-17 * 2**16)
    assert table.resolve_word(spare - 1, SimulatedEntropy(1)) is None or spare == 4 * table.half + 4 * table.stride


@pytest.mark.parametrize("name", [name for name in TARGETS if "coarse" not in name])
@pytest.mark.parametrize("bits", [16, 64])
def test_words_that_a_cell_owns_return_it(tools, name, bits):
    script, *_ = tools
    exponent, scale = TARGETS[name]
    table = NoiseTable.build(exponent, scale, word_bits=bits)
    for index in range(2 * table.half):
        first, after = int(table.edges[index]), int(table.edges[index + 1])
        for word in {first, after - 1} if first < after else ():
            assert table.draw(1, script([word << (64 - bits)]))[0] == index - table.half


@pytest.mark.parametrize("name", ["gaussian 9, coarse cells", "laplace 7/3, coarse cells"])
@pytest.mark.parametrize("cell", [-2, -1, 0, 1, 3])
def test_an_integer_is_kept_with_its_weight_within_the_cell(tools, name, cell):
    _, acceptance, _ = tools
    exponent, scale = TARGETS[name]
    table = NoiseTable.build(exponent, scale)
    width = 1 << table.shift
    word = int(table.edges[cell + table.half])
    assert word < int(table.edges[cell + table.half + 1])
    for offset in range(width):
        value = cell * width + offset

        def run(entropy, value=value):
            values, failed = table.trials(1, entropy)
            assert values[0] == value
            return not failed.size

        kept = acceptance(run, [word, offset << (64 - table.shift)])
        exact = math.exp(-(exponent(abs(value)) - exponent(nearest(cell, width))))
        assert kept == pytest.approx(exact, rel=1e-14)


def laplace_distribution(scale: float):
    tail = math.exp(-1 / scale) if scale else 0.0

    def below(k: int) -> float:
        if k < 0:
            return math.exp(k / scale) / (1 + tail)
        return 1 - math.exp(-(k + 1) / scale) / (1 + tail)

    return below


def gaussian_distribution(sigma: float):
    if sigma > 200:
        return lambda k: math.erfc(-(k + 0.5) / sigma / math.sqrt(2)) / 2
    span = int(12 * sigma) + 3
    weights = np.exp(-(np.arange(-span, span + 1) ** 2) / (2 * sigma**2))
    sums = np.cumsum(weights) / weights.sum()
    return lambda k: float(sums[min(max(k + span, 0), 2 * span)])


@pytest.mark.parametrize("bits", [64, 16])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(100, 3), Fraction(5000), Fraction(10**12)])
def test_laplace_fits_its_scale_and_rejects_another(tools, bits, scale):
    *_, goodness = tools
    count = 100_000 if bits == 64 else 20_000
    draws = NoiseTable.build(laplace(scale), int(scale), word_bits=bits).draw(count, SimulatedEntropy(2))
    assert goodness(draws, laplace_distribution(float(scale)), float(scale)) > 1e-20
    assert goodness(draws, laplace_distribution(1.3 * float(scale)), float(scale)) < 1e-20
    assert goodness(draws, laplace_distribution(0.7 * float(scale)), float(scale)) < 1e-20


@pytest.mark.parametrize("bits", [64, 16])
@pytest.mark.parametrize("sigma", [Fraction(2, 3), Fraction(3), Fraction(100, 3), Fraction(5000), Fraction(10**12)])
def test_gaussian_fits_its_scale_and_rejects_another(tools, bits, sigma):
    *_, goodness = tools
    count = 100_000 if bits == 64 else 20_000
    draws = NoiseTable.build(gaussian(sigma**2), int(sigma), word_bits=bits).draw(count, SimulatedEntropy(3))
    assert goodness(draws, gaussian_distribution(float(sigma)), float(sigma)) > 1e-20
    assert goodness(draws, gaussian_distribution(1.3 * float(sigma)), float(sigma)) < 1e-20
    assert goodness(draws, gaussian_distribution(0.7 * float(sigma)), float(sigma)) < 1e-20


def test_short_words_force_ties_tails_and_failures():
    table = NoiseTable.build(laplace(Fraction(3)), 3, word_bits=16)
    draws = table.draw(200_000, SimulatedEntropy(4))
    assert (np.abs(draws) > table.half).any()
    spare = (1 << 16) - int(table.edges[-1])
    assert spare > 4 * table.half + 4 * table.stride - 1
    assert spare > 100


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_draws(count):
    assert NoiseTable.build(laplace(Fraction(3)), 3).draw(count, SimulatedEntropy(4)).shape == (count,)
