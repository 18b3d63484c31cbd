"""The result of an attack: success on members minus success on controls, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import TableError
from sfumato.evaluate.intervals import Interval, Share, newcombe

FEWEST = 20  # tested people of each kind below which no interval is given
ERROR = 0.05


@dataclass(frozen=True)
class Advantage:
    """Success of one attack on equally many members and controls, in the half that fitted nothing.

    ``bound`` is the largest value the release's guarantee allows, None where it allows anything.
    """

    attack: str
    knowledge: str  # what the attacker has besides the release
    members: Share
    controls: Share
    interval: Interval
    bound: float | None = None

    @property
    def value(self) -> float:
        """Success on members minus success on controls."""
        return self.members.value - self.controls.value


def advantage(
    attack: str, knowledge: str, members: NDArray[np.bool_], controls: NDArray[np.bool_], *, error: float = ERROR
) -> Advantage:
    """Newcombe's interval, two-sided with error probability ``error``, around the observed difference.

    Raises:
        TableError: unequal numbers, or too few for an interval.
    """
    if len(members) != len(controls):
        raise TableError("an attack needs equal numbers of members and controls", culprit=attack)
    if len(members) < FEWEST:
        raise TableError(f"too few rows for an interval: {attack} needs at least {FEWEST} of each kind", culprit=attack)
    won, guessed = (Share(int(outcome.sum()), len(outcome)) for outcome in (members, controls))
    return Advantage(attack, knowledge, won, guessed, newcombe(won, guessed, error=error))


def worst(results: tuple[Advantage, ...]) -> Advantage:
    """The largest advantage, its interval corrected for having been chosen among them (Bonferroni)."""
    largest = max(results, key=lambda result: result.value)
    interval = newcombe(largest.members, largest.controls, error=ERROR / len(results))
    return Advantage(
        largest.attack, largest.knowledge, largest.members, largest.controls, interval, bound=largest.bound
    )
