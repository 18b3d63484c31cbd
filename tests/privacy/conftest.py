"""Tools of the privacy tests: words given one by one, and a chi-square that bins by a distribution function."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest


class ExhaustedError(Exception):
    """The script has no more words."""


class Script:
    """An entropy that hands out the given words, then raises ``ExhaustedError``."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray:
        if count > len(self._words):
            raise ExhaustedError
        given, self._words = self._words[:count], self._words[count:]
        return np.array(given, dtype=np.uint64)


def acceptance(run: Callable[[Script], bool], before: Iterable[int] = ()) -> float:
    """The probability of a coin whose deciding word comes after ``before``: where its answer turns, to 2^-64."""
    prefix = list(before)
    low, high = 0, 1 << 64
    while high - low > 1:
        middle = (low + high) // 2
        try:
            shows = run(Script([*prefix, middle]))
        except ExhaustedError:
            return middle / 2**64
        low, high = (middle, high) if shows else (low, middle)
    return high / 2**64


def goodness(draws: np.ndarray, distribution: Callable[[int], float], scale: float) -> float:
    """Chi-square p-value of integer draws against P(X <= k), in some forty bins over eight scales."""
    from scipy.stats import chisquare

    edges = np.unique(np.floor(np.linspace(-4 * scale, 4 * scale, 41)).astype(np.int64))
    below = np.array([0.0, *(distribution(int(k)) for k in edges), 1.0])
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=edges.size + 1)
    expected = np.diff(below) * draws.size
    kept = expected > 5
    rest = np.array([observed[~kept].sum()]), np.array([expected[~kept].sum()])
    observed, expected = np.concatenate([observed[kept], rest[0]]), np.concatenate([expected[kept], rest[1]])
    return float(chisquare(observed + 1e-9, (expected + 1e-9) * (observed.sum() / expected.sum())).pvalue)


@pytest.fixture(scope="session")
def tools() -> tuple:
    """(Script, acceptance, goodness)."""
    return Script, acceptance, goodness
