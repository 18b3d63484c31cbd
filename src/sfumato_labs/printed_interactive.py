"""The three printed programs of the interactive lab, after their description.  None is private: see ``FLAWS``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

THRESHOLD = 55
SEEDS = 10_000
_MULTIPLIER, _MODULUS = 16_807, (1 << 31) - 1
_HALF = 0.5

FLAWS = {
    "noise on every record": (
        "its noise is scaled to a sensitivity of 1, but records range over 0..100: its loss is 100 times that",
        "it prints the noise and the true count beside the answer",
    ),
    "noise on every bucket": ("its sampler is biased and has 10 000 states, whatever its scale",),
    "interactive": (
        "the count is made of noisy records and reuses the noise of the last of them",
        "epsilon is divided by 20, and after 20 questions it goes on answering",
    ),
    "all": (
        "the sampler mixes its second uniform number into the noise, whose mean is then scale/4 + 1/4 and not 0",
        "the generator has 10 000 seeds, so that one answer with six decimals gives the true count away",
        "the noise is floating point, whose low bits tell answers apart",
    ),
}


@dataclass
class Generator:
    """A linear congruential generator with a seed below 10 000."""

    state: int

    def __post_init__(self) -> None:
        for _ in range(3):  # small seeds start with small numbers otherwise
            self.uniform()

    def uniform(self) -> float:
        """The next number in (0, 1)."""
        self.state = (self.state * _MULTIPLIER + 1) % _MODULUS
        return (self.state + 1) / (_MODULUS + 1)


def noise(generator: Generator, scale: float) -> float:
    """The printed sampler: a two-sided exponential whose sign the second uniform decides, which then enters the value.

    Its mean is scale/4 + 1/4.
    """
    first, second = generator.uniform(), generator.uniform()
    size = -scale * math.log(first)
    return (1 - second) * (size if second <= _HALF else -size) + second / 2


def noisy_records(values: Sequence[int], epsilon: float, seed: int) -> tuple[int, float]:
    """Noise of scale 1/epsilon on every record, then the count of those above the threshold, and the last noise."""
    generator = Generator(seed)
    drawn = [noise(generator, 1 / epsilon) for _ in values]
    count = sum(value + more > THRESHOLD for value, more in zip(values, drawn, strict=True))
    return count, drawn[-1]


def noisy_buckets(counts: Sequence[int], epsilon: float, seed: int) -> tuple[float, ...]:
    """Noise of scale 1/epsilon on every bucket of a histogram."""
    generator = Generator(seed)
    return tuple(count + noise(generator, 1 / epsilon) for count in counts)


def interactive(values: Sequence[int], epsilon: float, queries: int, seed: int) -> float:
    """One answer: the count of noisy records and the last record's noise, at epsilon / queries."""
    count, last = noisy_records(values, epsilon / queries, seed)
    return count + last


def recover(answer: float, scale: float) -> tuple[int, ...]:
    """The true counts that one answer with six decimals leaves possible: try all seeds of the generator."""
    found = []
    for seed in range(SEEDS):
        count = answer - noise(Generator(seed), scale)
        if count > -_HALF and abs(count - round(count)) < 1e-6:  # noqa: PLR2004  (six decimals)
            found.append(round(count))
    return tuple(sorted(set(found)))


def means(queries: int, scale: float, random: np.random.Generator) -> float:
    """The mean of so many noises of the printed sampler, with better uniform numbers than its own."""
    first, second = random.random((2, queries))
    sizes = -scale * np.log1p(-first)
    signed = np.where(second <= _HALF, sizes, -sizes)
    return float(np.mean((1 - second) * signed + second / 2))
