"""The four printed programs of interactive publishing, with their generator and sampler.  None is private: see
``FLAWS``.

They reproduce the printed histogram to its last digit, once the seeds are recovered from it: see :func:`seeds_left`.
Every other program takes its seeds from the C library's ``rand``, which it seeds with the clock.  The clocks of the
printed runs are ``RECORDS_CLOCK`` and ``CLOCKS``.  Anyone who knows the second of a run knows all of its noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

THRESHOLD = 55
SEEDS = 10_000
SPLIT = 20  # the third program divides epsilon by this number, for any number of queries
_MULTIPLIER, _STATES = 2045, 1 << 20
_HALF = 0.5
_DECIMALS = 6
_RAND_LAG, _RAND_SHORT_LAG, _RAND_DROPPED = 31, 3, 313  # of the C library's additive feedback generator

RECORDS = (182, 181)  # rows of the source's table and of its neighbor
LOSSES = (10.0, 0.1)  # epsilon of the printed runs, in their order
RECORDS_CLOCK = 1_714_231_233  # Unix seconds of the run of the first program
CLOCKS: Mapping[tuple[str, int], int] = {  # Unix seconds at which each printed run of averages began, by answers
    ("interactive", 50): 1_714_272_459,
    ("interactive", 100): 1_714_272_551,
    ("interactive", 1000): 1_714_272_564,
    ("interactive", 10_000): 1_714_272_589,
    ("improved", 20): 1_714_272_822,
    ("improved", 50): 1_714_272_825,
    ("improved", 100): 1_714_272_830,
    ("improved", 1000): 1_714_272_833,
    ("improved", 10_000): 1_714_272_836,
}

FLAWS = {
    "records": (
        "its noise is scaled to a sensitivity of 1, but records range over 0..100: its loss is 100 times that",
        "it prints the noise and the true count beside the answer",
        "its seeds come from the clock: whoever knows the second of the run knows every noise",
    ),
    "buckets": ("its sampler is biased and has 10 000 states, whatever its scale",),
    "interactive": (
        "the count is made of noisy records and reuses the noise of the last of them",
        "epsilon is divided by 20, and after 20 questions it goes on answering",
        "its seeds come from the clock, as those of the first program do",
    ),
    "improved": (
        "it divides epsilon by the number of questions, and its bias grows with the scale",
        "its seeds come from the clock, as those of the first program do",
    ),
    "all": (
        "the sampler mixes its second uniform number into the noise, whose mean is then scale/4 + 1/4 and not 0",
        "the generator has 10 000 seeds, so that one answer with six decimals gives the noise of every record away",
        "the noise is floating point, whose low bits tell answers apart",
    ),
}


def starts(seeds: Integers) -> Integers:
    """Return the initial states of the generator."""
    return seeds % SEEDS + SEEDS


def clock_starts(clocks: Integers, count: int) -> Integers:
    """Return the states from which runs at these clocks start their answers: shape ``(clocks, count)``.

    The source seeds the C library's ``rand`` with the Unix time and takes one number per answer.  ``rand`` adds its
    numbers 3 and 31 steps back, modulo 2^32.  It drops the first 313 and returns all bits except the lowest.
    """
    first = [clocks.astype(np.int64)]
    for _ in range(_RAND_LAG - 1):
        first.append(first[-1] * 16807 % 2_147_483_647)
    state = np.empty((_RAND_LAG + _RAND_DROPPED + count, clocks.size), dtype=np.uint32)
    state[:_RAND_LAG] = first
    for step in range(_RAND_LAG, len(state)):
        recent = state[step - _RAND_SHORT_LAG] if step >= _RAND_LAG + _RAND_SHORT_LAG else 0
        state[step] = state[step - _RAND_LAG] + recent
    return starts((state[_RAND_LAG + _RAND_DROPPED :].T >> 1).astype(np.int64))


def uniforms(started: Integers, count: int) -> Floats:
    """Return the next ``count`` numbers of the generator from each of these states: shape ``(states, count)``.

    s becomes (2045 s + 1) mod 1048576 and gives s / 1048576.  No number is dropped first, and 0 occurs.
    """
    cycle, place = _cycle()
    steps = (place[started][:, None] + np.arange(1, count + 1)) % _STATES
    drawn: Floats = cycle[steps] / _STATES
    return drawn


def noise(started: Integers, count: int, scale: float) -> Floats:
    """Run the printed sampler, ``count`` times from each state: shape ``(states, count)``.

    From two numbers u1 and u2 it makes scale (ln(2 u1) + u2) if u1 < 1/2, and u2 - scale ln(2 (1 - u1)) otherwise.  Its
    mean is scale/4 + 1/4 and its standard deviation about 1.27 scale; a correct sampler has 0 and 1.41 scale.
    """
    sized, fixed = _parts(started.tobytes(), count)
    return scale * sized + fixed


@lru_cache(maxsize=4)
def _parts(started: bytes, count: int) -> tuple[Floats, Floats]:
    """Return the two parts of the sampler: the part that is multiplied by its scale, and the constant part."""
    drawn = uniforms(np.frombuffer(started, dtype=np.int64), 2 * count)
    first, second = drawn[:, ::2], drawn[:, 1::2]
    low = first < _HALF
    with np.errstate(divide="ignore"):  # as printed: the logarithm of 0
        sized = np.where(low, np.log(2 * first) + second, -np.log(2 * (1 - first)))
    return sized, np.where(low, 0, second)


def noisy_records(
    values: Sequence[int], scale: float, started: Integers, *, threshold: int = THRESHOLD
) -> tuple[Integers, Floats]:
    """Count the records that reach the threshold with noise.  Return counts and the last record's noise: shapes
    ``(states,)``.
    """
    drawn = noise(started, len(values), scale)
    return (np.array(values) + drawn >= threshold).sum(axis=1), drawn[:, -1]


def noisy_buckets(counts: Sequence[int], epsilon: float, start: int) -> tuple[float, ...]:
    """Add noise of scale 1/epsilon to every bucket of a histogram, as printed with six decimals."""
    drawn = noise(np.array([start]), len(counts), 1 / epsilon)[0]
    return tuple(round(count + float(more), _DECIMALS) for count, more in zip(counts, drawn, strict=True))


def answers(values: Sequence[int], scale: float, started: Integers, *, threshold: int = THRESHOLD) -> Floats:
    """Return answers of the interactive programs: noisy records counted, plus the last record's noise, with six
    decimals.

    The third program has the scale 20 / epsilon, the improved one n / epsilon for n queries.
    """
    counts, last = noisy_records(values, scale, started, threshold=threshold)
    return np.round(counts + last, _DECIMALS)


def seeds_left(answer: float, scale: float, *, draws: int, most: int) -> dict[int, int]:
    """Return the states that fit one answer with six decimals, each with its count.

    Args:
        answer: as printed.
        scale: of the noise.
        draws: number of noises that the program draws; the last one is in the answer.
        most: the largest possible count.
    """
    every = starts(np.arange(SEEDS))
    last = noise(every, draws, scale)[:, -1]
    counts = np.where(np.isfinite(last), answer - last, -1.0)
    rounded = np.rint(counts)
    fits = (np.abs(counts - rounded) < 10**-_DECIMALS) & (rounded >= 0) & (rounded <= most)
    return {int(state): int(count) for state, count in zip(every[fits], rounded[fits], strict=True)}


@cache
def _cycle() -> tuple[Integers, Integers]:
    """Return all states in the order in which the generator visits them from 0, and the position of each."""
    states, factor, shift = np.zeros(1, dtype=np.int64), _MULTIPLIER, 1
    while states.size < _STATES:
        states = np.concatenate([states, (factor * states + shift) % _STATES])
        factor, shift = factor * factor % _STATES, (factor * shift + shift) % _STATES
    place = np.empty(_STATES, dtype=np.int64)
    place[states] = np.arange(_STATES)
    return states, place
