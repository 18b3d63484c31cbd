"""Attribute inference: what does the release tell about one column of a person, given all others?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.attacks.similarity import Similarity
from sfumato.evaluate.released import Weights
from sfumato.evaluate.rows import Codes

KNOWLEDGE = "every column of the target but {secret}"


def infer(
    similarity: Similarity, close: Weights, people: Codes, secret: int, *, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether the secret of each target was guessed: shape ``(targets,)``.

    The guess is the value with most weight among the rows nearest on all other columns.

    Args:
        similarity: the release.
        close: similarities over all columns, shape ``(targets, rows)``.
        people: the targets.
        secret: position of the column that the attacker does not know.
        generator: breaks ties.
    """
    others = close - similarity.of_column(people, secret)
    votes = similarity.votes(others == others.max(axis=1, keepdims=True), secret)  # (targets, values)
    ties = votes == votes.max(axis=1, keepdims=True)
    guess = np.argmax(ties * (1 - generator.random(votes.shape)), axis=1)
    return np.asarray(guess == people[:, secret])
