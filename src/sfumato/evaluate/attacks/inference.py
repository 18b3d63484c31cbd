"""Attribute inference: what does the release tell about one column of a person, given all others?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.attacks.similarity import Similarity
from sfumato.evaluate.attacks.targets import Targets

KNOWLEDGE = "every column of the target but {secret}"
_SCOUTS = 150  # people of each kind that the choice of the secret is tried on


def choose_secret(similarity: Similarity, fit: Targets, *, generator: np.random.Generator) -> int:
    """The column whose values the release gives away most, on the fitting half."""
    scouts = Targets(fit.members[:_SCOUTS], fit.controls[:_SCOUTS])
    people = scouts.stacked
    right = np.empty((similarity.transposed.shape[0] and people.shape[1], len(people)), dtype=np.bool_)
    for part in similarity.chunks(len(people)):
        close = similarity.over(people[part], range(people.shape[1]))
        for column in range(people.shape[1]):
            votes = _votes(similarity, close, people[part], column)
            right[column, part] = _guess(votes, generator) == people[part, column]
    gains = right[:, : len(scouts)].mean(axis=1) - right[:, len(scouts) :].mean(axis=1)
    return int(np.argmax(gains))


def inferred(
    similarity: Similarity, targets: Targets, secret: int, *, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether the secret of each target, members then controls, was guessed.

    The guess is the value with most weight among the rows nearest on all other columns.
    """
    people = targets.stacked
    right = np.empty(len(people), dtype=np.bool_)
    for part in similarity.chunks(len(people)):
        close = similarity.over(people[part], range(people.shape[1]))
        votes = _votes(similarity, close, people[part], secret)
        right[part] = _guess(votes, generator) == people[part, secret]
    return right


def _votes(
    similarity: Similarity, close: NDArray[np.float32], people: NDArray[np.intp], secret: int
) -> NDArray[np.float32]:
    """Weight of every value of the secret among the nearest rows: shape ``(people, leaves)``."""
    others = close - similarity.of_column(people, secret)
    nearest = (others == others.max(axis=1, keepdims=True)).astype(np.float32)
    return np.asarray(nearest @ similarity.leaves_of(secret).T, dtype=np.float32)


def _guess(votes: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.intp]:
    ties = votes == votes.max(axis=1, keepdims=True)
    return np.asarray(np.argmax(ties * (1 - generator.random(votes.shape)), axis=1), dtype=np.intp)
