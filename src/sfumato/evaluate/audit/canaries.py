"""Audit a synthesizer in one run, with many canaries that are in or out by a fair coin.

Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", Theorems 5.1 and 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, EpsilonDelta

_STEPS = 60  # bisections: the bound is found to 2^-60 of its range
_LARGEST = 60.0  # epsilon beyond which nothing is claimed

Run = Callable[[NDArray[np.bool_]], NDArray[np.float64]]


@dataclass(frozen=True)
class OneRun:
    """Correct guesses out of those made, and the epsilon that they prove."""

    guesses: int
    correct: int
    claimed: float
    proven: float

    @property
    def passed(self) -> bool:
        """Whether the guesses are compatible with the claim."""
        return self.proven <= self.claimed


def audit_one_run(
    run: Run,
    *,
    canaries: int,
    guesses: int,
    claim: Epsilon | EpsilonDelta,
    error: float,
    generator: np.random.Generator,
) -> OneRun:
    """Include each canary by a fair coin, run once, and guess the coins from a score for each canary.

    Args:
        run: takes which canaries are in the table, boolean ``(canaries,)``, and returns how much each looks
            as if it were; 0 is undecided.  Canaries must not share what is measured: each owns a cell.
        canaries: number of canaries, each one unit of privacy.
        guesses: how many are guessed, the most extreme scores first; the others are passed over.
        claim: the loss of the run.
        error: probability to reject a run that keeps its word.
        generator: source of the coins.

    Raises:
        InputError: more guesses than canaries, or none.
    """
    if not 0 < guesses <= canaries:
        raise InputError(f"guesses lie between 1 and the {canaries} canaries, not {guesses}", culprit=guesses)
    included = generator.random(canaries) < 1 / 2
    scores = np.asarray(run(included), dtype=np.float64)
    if scores.shape != (canaries,):
        raise InputError("a run returns one score a canary", culprit=scores.shape)
    sure = np.lexsort((generator.random(canaries), -np.abs(scores)))[:guesses]
    correct = int(np.count_nonzero((scores[sure] > 0) == included[sure]))
    delta = float(claim.delta) if isinstance(claim, EpsilonDelta) else 0.0
    claimed = float(claim.epsilon if isinstance(claim, EpsilonDelta) else claim.value)
    proven = _proven(correct, guesses, canaries, delta=delta, error=error)
    return OneRun(guesses, correct, claimed, proven)


def chance_of(correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """Largest probability of so many correct guesses under (epsilon, delta): Theorem 5.2.

    With delta = 0 the upper tail of Binomial(guesses, e^eps/(1 + e^eps)).
    """
    from scipy.special import bdtrc

    rate = 1 / (1 + math.exp(-epsilon))
    tails = bdtrc(np.arange(correct, -1, -1) - 1.0, guesses, rate) if correct else np.ones(1)
    tails = np.where(np.arange(correct, -1, -1) == 0, 1.0, tails)
    if delta == 0:
        return float(tails[0])
    gains = (tails[1:] - tails[0]) / np.arange(1, correct + 1)
    return min(1.0, float(tails[0] + 2 * canaries * delta * max(0.0, gains.max(initial=0.0))))


def _proven(correct: int, guesses: int, canaries: int, *, delta: float, error: float) -> float:
    low, high = 0.0, _LARGEST
    if chance_of(correct, guesses, canaries, epsilon=low, delta=delta) > error:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if chance_of(correct, guesses, canaries, epsilon=middle, delta=delta) > error:
            high = middle
        else:
            low = middle
    return low
