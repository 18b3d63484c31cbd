"""Attacks on a query interface: averaging repeated answers, and differencing two answers about one person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.intervals import Share

Ask: TypeAlias = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""How many of the people in each subset have the secret: subsets ``(queries, people)``, answers ``(queries,)``."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Guessed secrets, boolean ``(people,)``."""

    guesses: NDArray[np.bool_]

    def against(self, truth: NDArray[np.bool_]) -> Share:
        """How many guesses are right."""
        return Share(int((self.guesses == truth).sum()), len(truth))


def averaging(ask: Ask, *, people: int, repeats: int) -> Reconstruction:
    """Ask about one person at a time, ``repeats`` times, and average: fresh noise on every answer cancels."""
    alone = np.eye(people, dtype=np.bool_)
    answers = np.stack([ask(alone) for _ in range(repeats)])
    return Reconstruction(answers.mean(axis=0) > 1 / 2)


def differencing(ask: Ask, *, people: int, repeats: int) -> Reconstruction:
    """Ask about everybody, then about everybody but one: large subsets only, so no minimum size stops it."""
    everybody = np.ones((1, people), dtype=np.bool_)
    all_but_one = ~np.eye(people, dtype=np.bool_)
    gaps = [ask(everybody) - ask(all_but_one) for _ in range(repeats)]
    return Reconstruction(np.mean(gaps, axis=0) > 1 / 2)
